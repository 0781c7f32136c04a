// SPDX-License-Identifier: Apache-2.0
//! Base transport header (IBA 9.2), 12 bytes big-endian at the start of every UDP payload.
//!
//! Written with P_Key 0xffff, migration state 1 and all reserved bits 0. Read: solicited event, migration state, resv8a and
//! resv7 are ignored, version and partition are checked.

use crate::error::{Error, Layer};
use crate::opcode::Opcode;
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
        let opcode = Opcode::from_byte(opcode).ok_or(Error::Opcode(opcode))?;
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
