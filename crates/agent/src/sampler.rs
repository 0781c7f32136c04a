// SPDX-License-Identifier: Apache-2.0
//! When kernel metrics are sampled: only while somebody is connected who has read.
//!
//! The sampler thread sleeps on a condition variable while nobody reads, so an idle agent has no wake-ups. A reader's first READ takes the first sample
//! itself, before it is answered; who cannot name a region's key costs nothing.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::counters::{Counter, Counters};
use crate::node::Sampled;
use crate::procfs::LINE_BYTES;
use crate::system;

/// Stack of the sampler thread: its buffers are on the heap.
const STACK_BYTES: usize = 64 * 1024;

struct State {
    readers: u32,
    last: Option<Instant>,
    groups: Vec<Sampled>,
    buffer: Box<[u8; LINE_BYTES]>,
}

/// The sampler.
pub struct Sampler {
    state: Mutex<State>,
    arrived: Condvar,
    interval: Duration,
    counters: Counters,
}

/// A reader's presence; sampling goes on while there is one.
pub struct Attached {
    sampler: Arc<Sampler>,
}

impl Sampler {
    /// A sampler of these groups; nothing is read before [`Sampler::attach`].
    #[must_use]
    pub fn new(groups: Vec<Sampled>, interval: Duration, counters: Counters) -> Arc<Self> {
        let state = State { readers: 0, last: None, groups, buffer: Box::new([0; LINE_BYTES]) };
        Arc::new(Self { state: Mutex::new(state), arrived: Condvar::new(), interval, counters })
    }

    /// Starts the thread; without groups there is none.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn start(self: &Arc<Self>) -> std::io::Result<()> {
        if self.lock().groups.is_empty() {
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
        if state.last.is_none_or(|last| last.elapsed() >= self.interval) {
            self.sample(&mut state);
        }
        if state.readers == 1 {
            self.arrived.notify_one();
        }
        drop(state);
        Attached { sampler: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sample(&self, state: &mut State) {
        let begin = Instant::now();
        state.last = Some(begin);
        let State { groups, buffer, .. } = state;
        for group in groups {
            let loss = group.sample(buffer, None);
            self.counters.add(Counter::SampleErrors, u64::from(loss.failed));
            self.counters.add(Counter::SampleRowsDropped, loss.rows_dropped);
        }
        self.counters.add(Counter::Samples, 1);
        self.counters.add(Counter::SampleNs, u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
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
