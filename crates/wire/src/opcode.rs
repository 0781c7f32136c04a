// SPDX-License-Identifier: Apache-2.0
//! What a packet is for, as its base transport header says.

use core::fmt;

/// Opcodes of a reliable connection (IBA 9.2.1, top bits 000) that we have a use for: READ, WRITE, FETCH ADD and their answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// First packet of a WRITE: RETH, payload.
    WriteFirst = 0x06,
    /// A packet between first and last: payload alone.
    WriteMiddle = 0x07,
    /// Last packet of a WRITE: payload alone.
    WriteLast = 0x08,
    /// The same, and a number for who waits: immediate data, payload.
    WriteLastImmediate = 0x09,
    /// A WRITE in one packet: RETH, payload.
    WriteOnly = 0x0a,
    /// The same, and a number for who waits: RETH, immediate data, payload.
    WriteOnlyImmediate = 0x0b,
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
    /// What a word was before it was added to: AETH, the word.
    AtomicAnswer = 0x12,
    /// Adds to a word of 8 bytes: AtomicETH, no payload.
    FetchAdd = 0x14,
}

impl Opcode {
    /// The opcode of a byte; `None`: none of these.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x06 => Self::WriteFirst,
            0x07 => Self::WriteMiddle,
            0x08 => Self::WriteLast,
            0x09 => Self::WriteLastImmediate,
            0x0a => Self::WriteOnly,
            0x0b => Self::WriteOnlyImmediate,
            0x0c => Self::ReadRequest,
            0x0d => Self::ReadAnswerFirst,
            0x0e => Self::ReadAnswerMiddle,
            0x0f => Self::ReadAnswerLast,
            0x10 => Self::ReadAnswerOnly,
            0x11 => Self::Acknowledge,
            0x12 => Self::AtomicAnswer,
            0x14 => Self::FetchAdd,
            _ => return None,
        })
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::WriteFirst => "WRITE first",
            Self::WriteMiddle => "WRITE middle",
            Self::WriteLast => "WRITE last",
            Self::WriteLastImmediate => "WRITE last with immediate",
            Self::WriteOnly => "WRITE only",
            Self::WriteOnlyImmediate => "WRITE only with immediate",
            Self::ReadRequest => "READ request",
            Self::ReadAnswerFirst => "READ response first",
            Self::ReadAnswerMiddle => "READ response middle",
            Self::ReadAnswerLast => "READ response last",
            Self::ReadAnswerOnly => "READ response only",
            Self::Acknowledge => "acknowledge",
            Self::AtomicAnswer => "atomic acknowledge",
            Self::FetchAdd => "FETCH ADD",
        })
    }
}
