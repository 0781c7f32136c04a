// SPDX-License-Identifier: Apache-2.0
//! Group vmstat: events of the memory.

mod computed;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

impl Group {
    /// Events of the memory.
    pub const VMSTAT: Self = Self {
        descriptor: &Descriptor {
            name: "vmstat",
            region: "node_vmstat",
            computed: Some(Computed::new(11, |with| computed::prepare(with.discovery))),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
