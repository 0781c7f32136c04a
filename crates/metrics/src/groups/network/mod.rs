// SPDX-License-Identifier: Apache-2.0
//! Group network: network devices of the loader's namespace.

mod computed;
pub(crate) mod devices;
mod facts;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

pub use devices::DeviceRows;

impl Group {
    /// Network devices of the loader's namespace.
    pub const NETWORK: Self = Self {
        descriptor: &Descriptor {
            name: "network",
            region: "node_network",
            computed: Some(
                Computed::new(4, |with| computed::prepare(with.discovery, with.devices))
                    .rows("devices without a row", computed::present),
            ),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
