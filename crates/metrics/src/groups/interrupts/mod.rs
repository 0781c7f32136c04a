// SPDX-License-Identifier: Apache-2.0
//! Group interrupts: each line by CPU.

mod procfs;

use onlooker_settings::units::Span;

use super::{Descriptor, Group, Sampled};

impl Group {
    /// Interrupts by line and CPU.
    pub const INTERRUPTS: Self = Self {
        descriptor: &Descriptor {
            name: "interrupts",
            region: "node_interrupts",
            computed: None,
            sampled: Some(Sampled::new(procfs::make).not_more_often_than(Span::from_s(10))),
        },
    };
}
