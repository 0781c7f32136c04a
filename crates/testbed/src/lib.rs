// SPDX-License-Identifier: Apache-2.0
//! Real agents, controllers and network namespaces, for tests and benches only. Everything started here ends with its
//! value, also when the test fails.
#![forbid(unsafe_code)]
#![allow(clippy::missing_panics_doc)] // a test's helper that fails has failed the test

mod agent;
mod controller;
mod http;
mod interrupted;
mod namespace;
mod port;
mod process;
pub mod remote_write;
mod sink;
mod world;

use std::time::{Duration, Instant};

pub use agent::{Agent, Keys};
pub use controller::Controller;
pub use http::{Answer, get, json, request};
pub use interrupted::{ServiceManager, uninterrupted};
pub use namespace::Namespace;
pub use port::free_port;
pub use process::{Process, binary, example, run};
pub use sink::{Body, RETRY_AFTER_S, Stream, sink, sink_over};
pub use world::{Network, World, bring_up, own_network};

/// How long a test waits for what must come. An agent that starts has the kernel check all its BPF programs: 24 s beside three other test programs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `wanted` has something.
pub fn until<T>(what: &str, wanted: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, wanted)
}

/// [`until`], for what takes long by itself.
pub fn until_within<T>(patience: Duration, what: &str, mut wanted: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = wanted() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Tries up to 50 times without waiting: for what is compared with two readings of procfs while the world moves.
pub fn try_often(what: &str, mut attempt: impl FnMut() -> Result<(), String>) {
    let mut last = String::new();
    for _ in 0..50 {
        match attempt() {
            Ok(()) => return,
            Err(reason) => last = reason,
        }
    }
    panic!("{what}: {last}");
}

/// False, and said aloud, where a test needs root and is not.
#[must_use]
pub fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln_loudly(what);
    }
    root
}

#[allow(clippy::print_stderr)] // a skipped test must be seen
fn eprintln_loudly(what: &str) {
    eprintln!("##############################################################################");
    eprintln!("## SKIPPED: NOT tested, it needs root: {what}");
    eprintln!("##############################################################################");
}
