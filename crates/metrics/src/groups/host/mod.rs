// SPDX-License-Identifier: Apache-2.0
//! Group host: what the host has once: file handles, entropy, clock discipline, names, time.

mod procfs;

use super::{Descriptor, Group, Sampled};

impl Group {
    /// What the host has once.
    pub const HOST: Self = Self {
        descriptor: &Descriptor {
            name: "host",
            region: "node_host",
            computed: None,
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
