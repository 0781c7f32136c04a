// SPDX-License-Identifier: Apache-2.0
//! Group scrape: how the other groups' samples went.

mod procfs;

use super::{Descriptor, Group, Sampled};

impl Group {
    /// How the others' samples went; after them.
    pub const SCRAPE: Self = Self {
        descriptor: &Descriptor {
            name: "scrape",
            region: "node_scrape",
            computed: None,
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
