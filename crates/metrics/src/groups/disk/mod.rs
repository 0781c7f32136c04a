// SPDX-License-Identifier: Apache-2.0
//! Group disk: disks.

pub(crate) mod computed;

use super::{Computed, Descriptor, Group};

impl Group {
    /// Disks.
    pub const DISK: Self = Self {
        descriptor: &Descriptor {
            name: "disk",
            region: "node_disk",
            computed: Some(Computed::new(19, |with| computed::prepare(with.discovery)).absent(computed::absence).rows("disks without a row", computed::present)),
        },
    };
}
