// SPDX-License-Identifier: Apache-2.0
//! Group sensors: temperatures, fans, power supplies, CPU frequencies.

mod procfs;

use onlooker_settings::units::Span;

use super::{Descriptor, Group, Sampled};

impl Group {
    /// Sensors.
    pub const SENSORS: Self = Self {
        descriptor: &Descriptor {
            name: "sensors",
            region: "node_sensors",
            computed: None,
            sampled: Some(Sampled::new(procfs::make).not_more_often_than(Span::from_s(30))),
        },
    };
}
