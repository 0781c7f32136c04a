// SPDX-License-Identifier: Apache-2.0
//! Base transport header (IBA 9.2), 12 bytes big-endian at the start of every UDP payload.
//!
//! Written with P_Key 0xffff, migration state 1 and all reserved bits 0. Read: solicited event, migration state, resv8a and
//! resv7 are ignored, version and partition are checked.

use core::fmt;

use crate::error::{Error, Layer};
use crate::slice::{reserve, take};
use crate::u24::{Psn, Qpn};

/// Partition key of the default partition, full membership. The only one on Ethernet unless somebody set up others.
pub const DEFAULT_PARTITION: u16 = 0xffff;
/// Membership bit of a partition key (IBA 10.9.1.1): full or limited.
const MEMBERSHIP: u16 = 0x8000;
/// Migration request bit, second byte; 1 is "migrated", the state of a queue pair that does no path migration.
const MIGRATED: u8 = 0x40;
/// Acknowledge request bit, ninth byte.
const ACK_REQUEST: u8 = 0x80;

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
    /// The opcode of a byte.
    ///
    /// # Errors
    /// [`Error::Opcode`] outside the RC READ family.
    pub const fn from_byte(byte: u8) -> Result<Self, Error> {
        Ok(match byte {
            0x0c => Self::ReadRequest,
            0x0d => Self::ReadAnswerFirst,
            0x0e => Self::ReadAnswerMiddle,
            0x0f => Self::ReadAnswerLast,
            0x10 => Self::ReadAnswerOnly,
            0x11 => Self::Acknowledge,
            _ => return Err(Error::Opcode(byte)),
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

/// The fields of a BTH that matter to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bth {
    /// Operation.
    pub opcode: Opcode,
    /// Bytes, 0 to 3, between payload and ICRC (PadCnt). Higher values are cut to two bits when written.
    pub pad_bytes: u8,
    /// Queue pair at the receiver (DestQP).
    pub destination: Qpn,
    /// Whether an acknowledgement is asked for (A). Set in every READ request of ours, though a READ is answered anyway.
    pub ack_request: bool,
    /// Packet sequence number (PSN). An answer carries that of its request.
    pub psn: Psn,
}

impl Bth {
    /// Bytes on the wire.
    pub const BYTES: usize = 12;

    /// Splits a UDP payload into BTH and what follows.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Opcode`], [`Error::TransportVersion`], [`Error::PartitionKey`].
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (header, rest) = take::<{ Self::BYTES }>(Layer::Transport, bytes)?;
        let [opcode, flags, k0, k1, _resv8a, q0, q1, q2, ack, p0, p1, p2] = *header;
        let opcode = Opcode::from_byte(opcode)?;
        if flags & 0x0f != 0 {
            return Err(Error::TransportVersion(flags & 0x0f));
        }
        let partition = u16::from_be_bytes([k0, k1]);
        if partition | MEMBERSHIP != DEFAULT_PARTITION {
            return Err(Error::PartitionKey(partition));
        }
        let bth = Self {
            opcode,
            pad_bytes: flags >> 4 & 0b11,
            destination: Qpn::from_be_bytes([q0, q1, q2]),
            ack_request: ack & ACK_REQUEST != 0,
            psn: Psn::from_be_bytes([p0, p1, p2]),
        };
        Ok((bth, rest))
    }

    /// Writes the header; returns its length.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`].
    pub fn write(&self, out: &mut [u8]) -> Result<usize, Error> {
        let (bytes, _) = reserve::<{ Self::BYTES }>(out)?;
        let [q0, q1, q2] = self.destination.to_be_bytes();
        let [p0, p1, p2] = self.psn.to_be_bytes();
        let [k0, k1] = DEFAULT_PARTITION.to_be_bytes();
        let flags = MIGRATED | (self.pad_bytes & 0b11) << 4;
        let ack = if self.ack_request { ACK_REQUEST } else { 0 };
        *bytes = [self.opcode as u8, flags, k0, k1, 0, q0, q1, q2, ack, p0, p1, p2];
        Ok(Self::BYTES)
    }
}
