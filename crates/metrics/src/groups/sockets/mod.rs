// SPDX-License-Identifier: Apache-2.0
//! Group sockets: TCP sockets by state, bytes that wait in UDP sockets.

mod procfs;

use onlooker_settings::units::Span;

use super::{Descriptor, Group, Sampled};

impl Group {
    /// Sockets by state.
    pub const SOCKETS: Self = Self {
        descriptor: &Descriptor {
            name: "sockets",
            region: "node_sockets",
            computed: None,
            sampled: Some(Sampled::new(procfs::make).not_more_often_than(Span::from_s(10))),
        },
    };
}
