// SPDX-License-Identifier: Apache-2.0
//! Which key a READ names. An RDMA device makes keys of its own, all others share the agent's; addresses are the same for all.

use crate::{Read, Via};
use onlooker_bootstrap::Answer;
use onlooker_region::control::{RegionEntry, SchemaEntry};

/// A READ of a host's header through `via`, into block 0 of the caller's memory: to knock with, and to measure by.
/// Through an RDMA device, `answer` is the one with the host's queue pair.
#[must_use]
pub fn header_read(answer: &Answer, via: Via, id: u64, deadline_ns: u64) -> Read {
    let rkey = Keys::new(answer, via).control();
    Read { id, va: answer.control.va, rkey, at: 0, blocks: 1, deadline_ns }
}

/// The keys of one host, for READs through one responder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    via: Via,
    control: u32,
}

impl Keys {
    pub(super) fn new(answer: &Answer, via: Via) -> Self {
        let control = match via {
            // 0 where the host was not asked for a queue pair: there is none to READ through then.
            Via::Verbs => {
                answer.responder(via.kind()).and_then(|responder| responder.verbs).map_or(0, |v| v.control_rkey)
            }
            Via::Kernel | Via::Tcp => answer.control.rkey,
        };
        Self { via, control }
    }

    /// The control region's.
    pub(super) fn control(self) -> u32 {
        self.control
    }

    /// That of a schema's text, which lies in the control region.
    pub(super) fn schema(self, entry: &SchemaEntry) -> u32 {
        match self.via {
            Via::Verbs => self.control,
            Via::Kernel | Via::Tcp => entry.rkey,
        }
    }

    /// A region's.
    pub(super) fn region(self, entry: &RegionEntry) -> u32 {
        match self.via {
            Via::Verbs => entry.device_rkey,
            Via::Kernel | Via::Tcp => entry.rkey,
        }
    }

    /// Whether the responder serves a region. One that a device has no key of would cost the queue pair to be asked for.
    pub(super) fn serves(self, entry: &RegionEntry) -> bool {
        entry.responders & self.via.bit() != 0 && (self.via != Via::Verbs || entry.device_rkey != 0)
    }

    /// Whether the responder serves a schema's text. Keys and bits of schemas are the agent's; a device has the control region as a whole.
    pub(super) fn serves_schema(self, entry: &SchemaEntry) -> bool {
        self.via == Via::Verbs || entry.responders & self.via.bit() != 0
    }
}
