// SPDX-License-Identifier: Apache-2.0
//! RDMA WRITE (IBA 9.4.3): bytes go to a remote address. What a translator sends to a collector's device.

use crate::reth::Reth;
use crate::u24::{Psn, Qpn};

/// Which part of a WRITE a packet is, with what that part says of all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WritePart {
    /// First of several. The length is that of all of them.
    First(Reth),
    /// Neither first nor last.
    Middle,
    /// Last of several, perhaps with immediate data.
    Last(Option<u32>),
    /// The whole WRITE, perhaps with immediate data.
    Only(Reth, Option<u32>),
}

/// A packet of a WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WriteRequest<'a> {
    /// Which part.
    pub part: WritePart,
    /// The responder's queue pair.
    pub destination: Qpn,
    /// Sequence number.
    pub psn: Psn,
    /// Whether an acknowledgement is asked for.
    pub ack_request: bool,
    /// The bytes, without pad.
    pub payload: &'a [u8],
}

impl<'a> WriteRequest<'a> {
    /// The WRITE of `payload` to `va`, in one packet.
    #[must_use]
    pub fn only(destination: Qpn, psn: Psn, va: u64, rkey: u32, payload: &'a [u8]) -> Self {
        // What does not fit one packet is refused when it is written.
        let length_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let part = WritePart::Only(Reth { va, rkey, length_bytes }, None);
        Self { part, destination, psn, ack_request: true, payload }
    }
}
