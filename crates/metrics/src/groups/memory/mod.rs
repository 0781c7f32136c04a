// SPDX-License-Identifier: Apache-2.0
//! Group memory: memory of the whole machine.

mod computed;
mod facts;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

impl Group {
    /// Memory of the whole machine.
    pub const MEMORY: Self = Self {
        descriptor: &Descriptor {
            name: "memory",
            region: "node_memory",
            computed: Some(Computed::new(3, |with| computed::prepare(with.discovery))),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
