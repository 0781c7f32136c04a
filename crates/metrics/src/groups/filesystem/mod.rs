// SPDX-License-Identifier: Apache-2.0
//! Group filesystem: what is mounted, and how full it is.

mod procfs;

use onlooker_settings::units::Span;

use super::{Descriptor, Group, Sampled};

impl Group {
    /// Mounted file systems.
    pub const FILESYSTEM: Self = Self {
        descriptor: &Descriptor {
            name: "filesystem",
            region: "node_filesystem",
            computed: None,
            sampled: Some(Sampled::new(procfs::make).not_more_often_than(Span::from_s(30))),
        },
    };
}
