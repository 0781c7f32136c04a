// SPDX-License-Identifier: Apache-2.0
//! Group responder: the responder's own counters.

mod computed;
mod facts;

use super::{Computed, Descriptor, Group};

impl Group {
    /// The responder's own counters.
    pub const RESPONDER: Self = Self {
        descriptor: &Descriptor {
            name: "responder",
            region: "onlooker_responder",
            computed: Some(Computed::new(5, |with| computed::prepare(with.responder))),
            sampled: None,
        },
    };
}
