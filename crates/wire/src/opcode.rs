// SPDX-License-Identifier: Apache-2.0
//! What a packet is for, as its base transport header says.

use core::fmt;

/// Opcodes of the RC READ family (IBA 9.2.1): reliable connection (top bits 000) and operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA READ request: RETH, no payload.
    ReadRequest = 0x0c,
    /// First packet of a READ response: AETH, payload.
    ReadAnswerFirst = 0x0d,
    /// A packet between first and last: payload alone.
    ReadAnswerMiddle = 0x0e,
    /// Last packet of a READ response: AETH, payload.
    ReadAnswerLast = 0x0f,
    /// A READ response in one packet: AETH, payload.
    ReadAnswerOnly = 0x10,
    /// ACK or NAK: AETH, no payload.
    Acknowledge = 0x11,
}

impl Opcode {
    /// The opcode of a byte; `None` outside the RC READ family.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x0c => Self::ReadRequest,
            0x0d => Self::ReadAnswerFirst,
            0x0e => Self::ReadAnswerMiddle,
            0x0f => Self::ReadAnswerLast,
            0x10 => Self::ReadAnswerOnly,
            0x11 => Self::Acknowledge,
            _ => return None,
        })
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::ReadRequest => "READ request",
            Self::ReadAnswerFirst => "READ response first",
            Self::ReadAnswerMiddle => "READ response middle",
            Self::ReadAnswerLast => "READ response last",
            Self::ReadAnswerOnly => "READ response only",
            Self::Acknowledge => "acknowledge",
        })
    }
}
