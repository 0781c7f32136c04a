// SPDX-License-Identifier: Apache-2.0
//! Group qdisc: queues of network devices.

mod procfs;

use super::{Descriptor, Group, Sampled};

impl Group {
    /// Queues of network devices.
    pub const QDISC: Self = Self {
        descriptor: &Descriptor {
            name: "qdisc",
            region: "node_qdisc",
            computed: None,
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
