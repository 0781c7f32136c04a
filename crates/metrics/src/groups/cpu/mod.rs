// SPDX-License-Identifier: Apache-2.0
//! Group cpu: times, run queue and context switches of each CPU.

mod computed;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

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
