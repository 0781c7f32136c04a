// SPDX-License-Identifier: Apache-2.0
//! ACK extended transport header (IBA 9.3.5), 4 bytes big-endian: how a request fared. In READ responses (but for middle
//! packets) and in acknowledge packets.

use crate::error::{Error, Layer};
use crate::slice::{reserve, take};
use crate::u24::Msn;

/// Credit count that says "no end-to-end flow control" (IBA 9.7.7.2): the syndrome byte of such an ACK is 0x1f.
pub const CREDITS_UNLIMITED: u8 = 0x1f;
/// Credits, timer or NAK code in a syndrome.
const VALUE: u8 = 0x1f;

/// Why a request was refused (IBA 9.7.5.2.2). The syndrome byte is 0x60 plus the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NakCode {
    /// 0x60: a request packet is missing; the PSN says from where to repeat. The only NAK to repeat on.
    PsnSequence = 0,
    /// 0x61: opcode or length that the responder does not serve.
    InvalidRequest = 1,
    /// 0x62: remote key, address range or access rights (IBA 9.7.5.2.4).
    RemoteAccess = 2,
    /// 0x63: the responder failed for a reason of its own.
    RemoteOperational = 3,
}

/// The syndrome byte: bit 7 is 0, bits 6 and 5 the kind, bits 4 to 0 the value (IBA 9.7.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Success, with encoded credits, 0 to 31; ours always [`CREDITS_UNLIMITED`].
    Ack {
        /// Encoded credit count.
        credits: u8,
    },
    /// Receiver not ready: come again after the encoded time, 0 to 31 (IBA 9.7.5.2.8).
    RnrNak {
        /// Encoded timer.
        timer: u8,
    },
    /// Refused.
    Nak(NakCode),
}

impl Syndrome {
    /// The syndrome of every successful answer of ours, 0x1f.
    pub const ACK: Self = Self::Ack { credits: CREDITS_UNLIMITED };

    /// The byte on the wire. Values above 31 are cut to five bits.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & VALUE,
            Self::RnrNak { timer } => 0x20 | timer & VALUE,
            Self::Nak(code) => 0x60 | code as u8,
        }
    }

    /// The syndrome of a byte.
    ///
    /// # Errors
    /// [`Error::Syndrome`] for reserved values, among them NAK 0x64, which is for reliable datagrams.
    pub const fn from_byte(byte: u8) -> Result<Self, Error> {
        let value = byte & VALUE;
        match (byte >> 5, value) {
            (0b000, credits) => Ok(Self::Ack { credits }),
            (0b001, timer) => Ok(Self::RnrNak { timer }),
            (0b011, 0) => Ok(Self::Nak(NakCode::PsnSequence)),
            (0b011, 1) => Ok(Self::Nak(NakCode::InvalidRequest)),
            (0b011, 2) => Ok(Self::Nak(NakCode::RemoteAccess)),
            (0b011, 3) => Ok(Self::Nak(NakCode::RemoteOperational)),
            _ => Err(Error::Syndrome(byte)),
        }
    }
}

/// Acknowledgement: how it went, and how many messages the responder has completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Aeth {
    /// How it went.
    pub syndrome: Syndrome,
    /// Message sequence number; without meaning from our responder, which keeps no count.
    pub msn: Msn,
}

impl Aeth {
    /// Bytes on the wire.
    pub const BYTES: usize = 4;

    /// Splits the header off what follows a BTH.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Syndrome`].
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (&[syndrome, a, b, c], rest) = take::<{ Self::BYTES }>(Layer::Transport, bytes)?;
        Ok((Self { syndrome: Syndrome::from_byte(syndrome)?, msn: Msn::from_be_bytes([a, b, c]) }, rest))
    }

    /// Writes the header; returns its length.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`].
    pub fn write(&self, out: &mut [u8]) -> Result<usize, Error> {
        let (bytes, _) = reserve::<{ Self::BYTES }>(out)?;
        let [a, b, c] = self.msn.to_be_bytes();
        *bytes = [self.syndrome.to_byte(), a, b, c];
        Ok(Self::BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_a_syndrome_or_refused() {
        let mut valid = 0;
        for byte in 0..=u8::MAX {
            match Syndrome::from_byte(byte) {
                Ok(syndrome) => {
                    assert_eq!(syndrome.to_byte(), byte);
                    valid += 1;
                }
                Err(error) => assert_eq!(error, Error::Syndrome(byte)),
            }
        }
        // 32 credit counts, 32 timers, 4 codes.
        assert_eq!(valid, 68);
        assert_eq!(Syndrome::ACK.to_byte(), 0x1f);
        assert_eq!(Syndrome::Nak(NakCode::RemoteOperational).to_byte(), 0x63);
    }
}
