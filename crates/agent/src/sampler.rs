// SPDX-License-Identifier: Apache-2.0
//! When kernel metrics are sampled for readers over TCP: only while one is connected who has read.
//!
//! The sampler thread sleeps on a condition variable while nobody reads, so an idle agent has no wake-ups. A reader's first READ takes the first sample
//! itself, before it is answered; who cannot name a region's key costs nothing. A group whose series have changed needs another region, which is the main thread's to make
//! ([`Sampler::renew`]): a descriptor becomes readable for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onlooker_metrics::sampled::Set;
use rustix::event::{EventfdFlags, eventfd};

use crate::counters::Counters;
use crate::host::boot_time_ns;
use crate::system;

/// Stack of the sampler thread: its buffers are on the heap.
const STACK_BYTES: usize = 64 * 1024;

struct State {
    readers: u32,
    last: Option<Instant>,
    set: Set,
}

/// The sampler.
pub struct Sampler {
    state: Mutex<State>,
    arrived: Condvar,
    interval: Duration,
    counters: Counters,
    /// Readable while there are groups to be made anew.
    changed: OwnedFd,
}

/// A reader's presence; sampling goes on while there is one.
pub struct Attached {
    sampler: Arc<Sampler>,
}

impl Sampler {
    /// A sampler of these groups; nothing is read before [`Sampler::attach`].
    ///
    /// # Errors
    /// No descriptor to be had.
    pub fn new(set: Set, interval: Duration, counters: Counters) -> std::io::Result<Arc<Self>> {
        let state = State { readers: 0, last: None, set };
        let changed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { state: Mutex::new(state), arrived: Condvar::new(), interval, counters, changed }))
    }

    /// Starts the thread; without groups, and where each READ samples, there is none.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn start(self: &Arc<Self>) -> std::io::Result<()> {
        if self.is_per_read() || self.lock().set.groups().is_empty() {
            return Ok(());
        }
        let own = self.clone();
        std::thread::Builder::new().name("sampler".into()).stack_size(STACK_BYTES).spawn(move || {
            system::drop_thread_capabilities();
            own.run();
        })?;
        Ok(())
    }

    /// A reader has come. When this returns no sample is older than the interval.
    #[must_use]
    pub fn attach(self: &Arc<Self>) -> Attached {
        let mut state = self.lock();
        state.readers += 1;
        if !state.set.is_fresh(boot_time_ns()) {
            self.sample(&mut state);
        }
        if state.readers == 1 {
            self.arrived.notify_one();
        }
        drop(state);
        Attached { sampler: self.clone() }
    }

    /// Whether each request is to find samples of its own moment ([`Sampler::sample_now`]); nobody else takes any then.
    #[must_use]
    pub fn is_per_read(&self) -> bool {
        self.interval.is_zero()
    }

    /// Samples what is worth sampling so often, in the calling thread.
    pub fn sample_now(&self) {
        self.sample(&mut self.lock());
    }

    /// Hands the groups to `renew`, which may put other regions in their places, sampled already.
    pub fn renew(&self, renew: impl FnOnce(&mut Set)) {
        let _ = rustix::io::read(&self.changed, &mut [0; 8]);
        renew(&mut self.lock().set);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sample(&self, state: &mut State) {
        let begin = Instant::now();
        state.last = Some(begin);
        let loss = state.set.sample(boot_time_ns(), None);
        self.counters.sampled(begin, loss);
        if loss.changed {
            // Readable already: as good.
            let _ = rustix::io::write(&self.changed, &1u64.to_ne_bytes());
        }
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            if state.readers == 0 {
                state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let due = state.last.map_or(Duration::ZERO, |last| self.interval.saturating_sub(last.elapsed()));
            if due.is_zero() {
                self.sample(&mut state);
            } else {
                state = self.arrived.wait_timeout(state, due).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.sampler.lock().readers -= 1;
    }
}

impl AsFd for Sampler {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changed.as_fd()
    }
}
