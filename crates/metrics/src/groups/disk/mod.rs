// SPDX-License-Identifier: Apache-2.0
//! Group disk: disks.

pub(crate) mod computed;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

impl Group {
    /// Disks.
    pub const DISK: Self = Self {
        descriptor: &Descriptor {
            name: "disk",
            region: "node_disk",
            computed: Some(Computed::new(19, |with| computed::prepare(with.discovery)).absent(computed::absence).rows("disks without a row", computed::present)),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
