// SPDX-License-Identifier: Apache-2.0
//! Group load: load averages.

mod computed;
#[cfg(test)]
mod facts;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

/// Metrics in the order of /proc/loadavg: name, help.
const AVERAGES: [(&str, &str); 3] =
    [("node_load1", "1m load average."), ("node_load5", "5m load average."), ("node_load15", "15m load average.")];
/// The kernel recomputes the averages every 5 s (LOAD_FREQ in linux/sched/loadavg.h).
const RESOLUTION_NS: u64 = 5_000_000_000;

impl Group {
    /// Load averages.
    pub const LOAD: Self = Self {
        descriptor: &Descriptor {
            name: "load",
            region: "node_load",
            computed: Some(Computed::new(2, |with| computed::prepare(with.discovery))),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
