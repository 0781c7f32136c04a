// SPDX-License-Identifier: Apache-2.0
//! Group sockstat: sockets of the loader's namespace.

mod computed;
mod facts;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

impl Group {
    /// Sockets of the loader's namespace.
    pub const SOCKSTAT: Self = Self {
        descriptor: &Descriptor {
            name: "sockstat",
            region: "node_sockstat",
            computed: Some(Computed::new(18, |with| computed::prepare(with.discovery))),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
