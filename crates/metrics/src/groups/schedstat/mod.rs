// SPDX-License-Identifier: Apache-2.0
//! Group schedstat: times that tasks ran and waited on each CPU.

mod computed;
#[cfg(test)]
mod facts;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};
use crate::sampled::metric::Definition;

/// Metrics in the order of the program's slots, and of the last columns of a CPU's line in /proc/schedstat.
static FIELDS: [Definition; 3] = [
    Definition::counter("node_schedstat_running_seconds_total", "Number of seconds CPU spent running a process.")
        .unit("seconds", 1e-9)
        .by("cpu"),
    Definition::counter(
        "node_schedstat_waiting_seconds_total",
        "Number of seconds spent by processing waiting for this CPU.",
    )
    .unit("seconds", 1e-9)
    .by("cpu"),
    Definition::counter("node_schedstat_timeslices_total", "Number of timeslices executed by CPU.").by("cpu"),
];

impl Group {
    /// Times that tasks ran and waited on each CPU.
    pub const SCHEDSTAT: Self = Self {
        descriptor: &Descriptor {
            name: "schedstat",
            region: "node_schedstat",
            computed: Some(Computed::new(9, |with| computed::prepare(with.discovery)).absent(computed::absence)),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
