// SPDX-License-Identifier: Apache-2.0
//! What the SDK of this process knows: its regions, whether it is connected, what went wrong last.
//!
//! One lock, held for moments only; never while waiting for the agent or for a region's lock (a fork takes this one first, then the regions').

use crate::bell::Bell;
use crate::placement::is_set_user_id;
use crate::region::{Inner, Standing};
use onlooker_local::registration::{DEFAULT_SOCKET, SOCKET_VARIABLE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest error that is kept, bytes.
const MAX_ERROR_BYTES: usize = 512;

/// What the SDK does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing to publish yet, or [`crate::start`] was not called.
    Idle,
    /// `ONLOOKER_DISABLE=1`: metrics stay in private memory.
    Disabled,
    /// No agent, or it does not answer properly; trying.
    Waiting,
    /// An agent answers.
    Connected,
    /// A forked child that publishes nothing.
    Detached,
}

/// See [`crate::status`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// At the moment.
    pub state: State,
    /// Open regions, globals included.
    pub regions: usize,
    /// Visible to readers now.
    pub published: usize,
    /// Refused by the agent, or unable to be published.
    pub refused: usize,
    /// Successful hellos.
    pub connections: u64,
    /// Moves of a region to other memory.
    pub switches: u64,
    /// Window of the last switch: from the first word copied to the new memory in place and settled.
    pub last_window: Duration,
    /// The longest of them.
    pub worst_window: Duration,
    /// Errors so far.
    pub errors: u64,
    /// The last one.
    pub error: Option<String>,
}

/// What forked children do; see [`crate::follow_fork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// The child's copies are its own and published nowhere.
    Detach,
    /// The child publishes its copies under its own process id: programs that daemonise.
    Keep,
    /// Likewise, with counters, up-down gauges and histograms beginning at 0: workers that are forked.
    Fresh,
}

/// The state behind the lock.
pub(crate) struct Core {
    pub(crate) state: State,
    pub(crate) regions: Vec<Arc<Inner>>,
    /// Without owners; the thread removes them from the agent.
    pub(crate) retired: Vec<Arc<Inner>>,
    /// Set when the thread is started.
    socket: Option<PathBuf>,
    pub(crate) fork: Fork,
    pub(crate) started: bool,
    /// Errors go to standard error, too.
    debug: bool,
    /// Forks are watched.
    pub(crate) hooked: bool,
    pub(crate) thread: Option<Bell>,
    connections: u64,
    switches: u64,
    last_window: Duration,
    worst_window: Duration,
    errors: u64,
    error: Option<String>,
    /// For standard error, until the lock is free.
    unsaid: Vec<String>,
}

/// The SDK of this process.
pub(crate) struct Sdk {
    core: Mutex<Core>,
    changed: Condvar,
}

pub(crate) static SDK: Sdk = Sdk {
    core: Mutex::new(Core {
        state: State::Idle,
        regions: Vec::new(),
        retired: Vec::new(),
        socket: None,
        fork: Fork::Detach,
        started: false,
        debug: false,
        hooked: false,
        thread: None,
        connections: 0,
        switches: 0,
        last_window: Duration::ZERO,
        worst_window: Duration::ZERO,
        errors: 0,
        error: None,
        unsaid: Vec::new(),
    }),
    changed: Condvar::new(),
};

impl Sdk {
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn error(&self, mut message: String) {
        if message.len() > MAX_ERROR_BYTES {
            let end = (0..=MAX_ERROR_BYTES).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
            message.truncate(end);
        }
        self.core().fail(message);
        self.say();
    }

    /// Says what there is to say, without any lock: whoever reads standard error may be slow, and nobody waits for that. What it cannot take at once
    /// is dropped.
    pub(crate) fn say(&self) {
        let unsaid = std::mem::take(&mut self.core().unsaid);
        for message in unsaid {
            let stderr = std::io::stderr();
            // A pipe that polls as writable takes a page; a message is shorter (MAX_ERROR_BYTES).
            let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
            if poll(&mut ready, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
                // Nothing can be said where there is no standard error.
                let _said = rustix::io::write(&stderr, format!("onlooker: {message}\n").as_bytes());
            }
        }
    }

    pub(crate) fn has(&self, name: &str, instance: &str) -> bool {
        self.core().has(name, instance)
    }

    /// Called when a region's last handle is gone.
    pub(crate) fn retire(&self, inner: &Arc<Inner>) {
        let mut core = self.core();
        core.regions.retain(|region| !Arc::ptr_eq(region, inner));
        if core.thread.is_some() {
            core.retired.push(inner.clone());
            core.wake();
        }
        self.changed.notify_all();
    }

    pub(crate) fn set_state(&self, state: State) {
        self.core().state = state;
        self.changed.notify_all();
    }

    pub(crate) fn connected(&self) {
        let mut core = self.core();
        core.state = State::Connected;
        core.connections += 1;
    }

    pub(crate) fn switched(&self, window: Duration) {
        let mut core = self.core();
        core.switches += 1;
        core.last_window = window;
        core.worst_window = core.worst_window.max(window);
    }

    /// After a change of a region's standing.
    pub(crate) fn notify(&self) {
        drop(self.core());
        self.changed.notify_all();
    }

    pub(crate) fn status(&self) -> Status {
        let core = self.core();
        let count = |standing| core.regions.iter().filter(|region| region.standing.get() == standing).count();
        Status {
            state: core.state,
            regions: core.regions.len(),
            published: count(Standing::Published),
            refused: count(Standing::Refused) + count(Standing::Private),
            connections: core.connections,
            switches: core.switches,
            last_window: core.last_window,
            worst_window: core.worst_window,
            errors: core.errors,
            error: core.error.clone(),
        }
    }

    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        let mut core = self.core();
        loop {
            if core.regions.iter().all(|region| region.standing.get() == Standing::Published) {
                return true;
            }
            let now = Instant::now();
            if now >= end {
                return false;
            }
            core = self.changed.wait_timeout(core, end - now).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Core {
    pub(crate) fn fail(&mut self, message: String) {
        // Each attempt to reach an agent that is not there fails in the same way.
        if self.debug && self.error.as_ref() != Some(&message) {
            self.unsaid.push(message.clone());
        }
        self.errors += 1;
        self.error = Some(message);
    }

    pub(crate) fn has(&self, name: &str, instance: &str) -> bool {
        self.regions.iter().any(|region| region.name == name && region.instance == instance)
    }

    /// Where the agent's socket is, and whether errors are to be seen.
    pub(crate) fn settings(&self) -> (PathBuf, bool) {
        (self.socket.clone().unwrap_or_default(), self.debug)
    }

    /// Whether a thread is to be started; wakes the one that there is.
    pub(crate) fn needs_thread(&mut self) -> bool {
        if !self.started {
            self.started = true;
            let trusted = !is_set_user_id();
            let variable = |name| std::env::var_os(name).filter(|_| trusted);
            if variable("ONLOOKER_DISABLE").is_some_and(|value| value == "1") {
                self.state = State::Disabled;
            }
            self.debug = variable("ONLOOKER_DEBUG").is_some_and(|value| value == "1");
            self.socket = Some(variable(SOCKET_VARIABLE).map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from));
        }
        if matches!(self.state, State::Disabled | State::Detached) || self.regions.is_empty() {
            return false;
        }
        if self.thread.is_some() {
            self.wake();
            return false;
        }
        true
    }

    fn wake(&self) {
        if let Some(bell) = &self.thread {
            bell.ring();
        }
    }

    /// In the child of a fork: the thread and its descriptors are the parent's.
    pub(crate) fn become_child(&mut self) {
        self.thread = None;
        self.retired.clear();
        self.unsaid.clear(); // the parent says it
        (self.connections, self.switches, self.errors) = (0, 0, 0);
        (self.last_window, self.worst_window, self.error) = (Duration::ZERO, Duration::ZERO, None);
        if matches!(self.state, State::Waiting | State::Connected) {
            self.state = State::Detached;
        }
    }
}
