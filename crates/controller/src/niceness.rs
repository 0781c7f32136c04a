// SPDX-License-Identifier: Apache-2.0
//! Which threads have the processor first: those that read, decode and store. All others can wait; due times cannot.

use rustix::process::{getpid, getpriority_process, setpriority_process};

/// By how much all other threads are behind them (nice(2)): those that answer, connect, evaluate rules, forward, or
/// record the controller itself.
const NICE: i32 = 5;

/// The calling thread, and those that it starts, come after those that read.
pub(crate) fn come_after_reading() {
    // With another priority they are as right, only less polite.
    if let Ok(nice) = getpriority_process(Some(getpid())) {
        let _ = setpriority_process(None, nice + NICE);
    }
}
