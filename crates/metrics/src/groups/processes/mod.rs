// SPDX-License-Identifier: Apache-2.0
//! Group processes: how many processes and threads there are.

mod procfs;

use onlooker_settings::units::Span;

use super::{Descriptor, Group, Sampled};

impl Group {
    /// Counts of processes and threads.
    pub const PROCESSES: Self = Self {
        descriptor: &Descriptor {
            name: "processes",
            region: "node_processes",
            computed: None,
            sampled: Some(Sampled::new(procfs::make).not_more_often_than(Span::from_s(30))),
        },
    };
}
