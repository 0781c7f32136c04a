// SPDX-License-Identifier: Apache-2.0
//! Group pressure: stalls for want of CPU, memory and I/O.

mod computed;
mod facts;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

impl Group {
    /// Stalls for want of CPU, memory and I/O.
    pub const PRESSURE: Self = Self {
        descriptor: &Descriptor {
            name: "pressure",
            region: "node_pressure",
            computed: Some(Computed::new(10, |with| computed::prepare(with.discovery)).absent(computed::absence).held_to_bounds(&[computed::IN_PROGRESS])),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
