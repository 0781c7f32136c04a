// SPDX-License-Identifier: Apache-2.0
//! Group cpu: times, run queue and context switches of each CPU.

mod computed;
mod facts;
pub(crate) mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

/// Times of CPUs: name, help.
const SECONDS: (&str, &str) = ("node_cpu_seconds_total", "Seconds the CPUs spent in each mode.");
/// Of these, times of guests.
const GUEST_SECONDS: (&str, &str) =
    ("node_cpu_guest_seconds_total", "Seconds the CPUs spent in guests (VMs) for each mode.");

impl Group {
    /// Times, run queue and context switches of each CPU.
    pub const CPU: Self = Self {
        descriptor: &Descriptor {
            name: "cpu",
            region: "node_cpu",
            computed: Some(Computed::new(1, |with| computed::prepare(with.discovery))),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
