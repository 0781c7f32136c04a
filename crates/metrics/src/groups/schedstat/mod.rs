// SPDX-License-Identifier: Apache-2.0
//! Group schedstat: times that tasks ran and waited on each CPU.

mod computed;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

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
