// SPDX-License-Identifier: Apache-2.0
//! Group softnet: backlogs of received packets of each CPU.

mod computed;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

impl Group {
    /// Backlogs of received packets of each CPU.
    pub const SOFTNET: Self = Self {
        descriptor: &Descriptor {
            name: "softnet",
            region: "node_softnet",
            computed: Some(Computed::new(17, |with| computed::prepare(with.discovery))),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
