// SPDX-License-Identifier: Apache-2.0
//! Group netstat: counters of the network protocols of the loader's namespace.

mod computed;
mod facts;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

impl Group {
    /// Counters of the network protocols of the loader's namespace.
    pub const NETSTAT: Self = Self {
        descriptor: &Descriptor {
            name: "netstat",
            region: "node_netstat",
            computed: Some(Computed::new(16, |with| computed::prepare(with.discovery))),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
