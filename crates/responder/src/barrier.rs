// SPDX-License-Identifier: Apache-2.0
//! When what the programs saw before a change is seen by none of them any more.

use std::time::Duration;

use rustix::thread::{MembarrierCommand, membarrier};

/// Longer than any softirq takes.
const SOFTIRQ: Duration = Duration::from_millis(100);

/// Returns when every program that runs now has ended: programs in softirq are RCU readers, and `MEMBARRIER_CMD_GLOBAL` waits for a grace period
/// (`synchronize_rcu` in kernel/sched/membarrier.c), some 10 ms. Machines with `nohz_full` refuse it; there it returns after 100 ms, longer than any
/// softirq takes.
pub fn wait_for_programs() {
    if membarrier(MembarrierCommand::Global).is_err() {
        std::thread::sleep(SOFTIRQ);
    }
}
