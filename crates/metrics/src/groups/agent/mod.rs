// SPDX-License-Identifier: Apache-2.0
//! Group agent: the agent's own process.

mod procfs;

use super::{Descriptor, Group, Sampled};

impl Group {
    /// The agent's own process.
    pub const AGENT: Self = Self {
        descriptor: &Descriptor {
            name: "agent",
            region: "node_agent",
            computed: None,
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
