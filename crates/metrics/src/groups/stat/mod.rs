// SPDX-License-Identifier: Apache-2.0
//! Group stat: interrupts, softirqs, forks.

mod computed;
mod facts;
mod procfs;
pub(crate) mod totals;

use super::{Computed, Descriptor, Group};

impl Group {
    /// Interrupts, softirqs, forks.
    pub const STAT: Self = Self {
        descriptor: &Descriptor {
            name: "stat",
            region: "node_stat",
            computed: Some(
                Computed::new(8, |with| computed::prepare(with.discovery)).held_to_bounds(&[computed::PENDING]),
            ),
            sampled: None,
        },
    };
}
