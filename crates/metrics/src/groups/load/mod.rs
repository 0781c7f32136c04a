// SPDX-License-Identifier: Apache-2.0
//! Group load: load averages.

mod computed;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

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
