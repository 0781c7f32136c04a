// SPDX-License-Identifier: Apache-2.0
//! The invariant CRC: CRC-32 over everything that routers leave alone (CA17-22, IBA 7.8.1).
//!
//! It runs over 8 bytes of ones, then the IP header, the UDP header, the BTH, extended headers, payload and pad, with these
//! set to ones: IPv4 type of service, time to live and header checksum; IPv6 traffic class, flow label and hop limit; UDP
//! checksum; BTH byte 4 (resv8a, where congestion bits live). It is sent least significant byte first. The addresses, the
//! IPv4 identification and flags and all lengths are covered.

use crate::crc32::Crc32;
use crate::envelope::Envelope;
use crate::error::Error;
use crate::ip::IpHeader;

/// Bytes of the ICRC at the end of a UDP payload.
pub const ICRC_BYTES: usize = 4;

/// CRC of the 8 bytes of ones that stand in for the link header of InfiniBand.
const SEED: u32 = !0xdebb_20e3;
/// IPv6 and UDP headers.
const LONGEST_ENVELOPE_BYTES: usize = 48;
/// BTH and RETH, all that a READ request has.
const REQUEST_BYTES: usize = 28;
/// BTH and AETH, before the blocks of an answer.
const ANSWER_FRONT_BYTES: usize = 16;
/// Where the BTH has resv8a.
const RESV8A: usize = 4;

/// Begins the ICRC: everything up to the BTH, for a UDP payload of `payload_bytes` (ICRC included).
///
/// # Errors
/// [`Error::PayloadLength`] if a 16-bit length field cannot hold it.
pub fn begin(envelope: &Envelope, payload_bytes: usize) -> Result<Crc32, Error> {
    let mut buffer = [0; LONGEST_ENVELOPE_BYTES];
    let length = envelope.write(payload_bytes, &mut buffer)?;
    let headers = &mut buffer[..length];
    match envelope.ip {
        IpHeader::V4(_) => {
            for masked in [1, 8, 10, 11] {
                headers[masked] = 0xff;
            }
        }
        IpHeader::V6(_) => {
            headers[0] |= 0x0f;
            headers[1..4].fill(0xff);
            headers[7] = 0xff;
        }
    }
    headers[length - 2..].fill(0xff);
    let mut crc = Crc32::resume(SEED);
    crc.update(headers);
    Ok(crc)
}

/// Appends the BTH and what follows it: `transport` starts at the BTH and ends before the ICRC, or before a payload whose
/// CRC is known and is appended with [`Crc32::append`].
pub fn cover(crc: &mut Crc32, transport: &[u8]) {
    // As few and as whole pieces as can be: each costs some 10 ns before its first byte, and blocks are summed fastest
    // if nothing is before them.
    let front_bytes = if transport.len() <= REQUEST_BYTES { transport.len() } else { ANSWER_FRONT_BYTES };
    let (front, rest) = transport.split_at(front_bytes);
    let mut masked = [0; REQUEST_BYTES];
    let masked = &mut masked[..front.len()];
    masked.copy_from_slice(front);
    if let Some(resv8a) = masked.get_mut(RESV8A) {
        *resv8a = 0xff;
    }
    crc.update(masked);
    crc.update(rest);
}

/// What ICRCs are summed by: the addresses and ports of packets.
pub trait Icrc {
    /// [`begin`].
    ///
    /// # Errors
    /// [`Error::PayloadLength`] if a 16-bit length field cannot hold it.
    fn begin(&self, payload_bytes: usize) -> Result<Crc32, Error>;

    /// The ICRC of a packet: `transport` is its UDP payload without the last [`ICRC_BYTES`]. Stored little-endian.
    ///
    /// # Errors
    /// [`Error::PayloadLength`] if a 16-bit length field cannot hold it.
    fn compute(&self, transport: &[u8]) -> Result<u32, Error> {
        let mut crc = self.begin(transport.len() + ICRC_BYTES)?;
        cover(&mut crc, transport);
        Ok(crc.finish())
    }
}

impl Icrc for Envelope {
    fn begin(&self, payload_bytes: usize) -> Result<Crc32, Error> {
        begin(self, payload_bytes)
    }
}

/// An envelope that has begun the ICRC of payloads of one length: for many packets between the same addresses.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    envelope: Envelope,
    payload_bytes: usize,
    crc: Crc32,
}

impl Begun {
    /// For UDP payloads of `payload_bytes`; others are summed from the beginning.
    ///
    /// # Errors
    /// [`Error::PayloadLength`] if a 16-bit length field cannot hold it.
    pub fn new(envelope: Envelope, payload_bytes: usize) -> Result<Self, Error> {
        Ok(Self { envelope, payload_bytes, crc: begin(&envelope, payload_bytes)? })
    }
}

impl Icrc for Begun {
    fn begin(&self, payload_bytes: usize) -> Result<Crc32, Error> {
        if payload_bytes == self.payload_bytes { Ok(self.crc) } else { begin(&self.envelope, payload_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_is_eight_bytes_of_ones() {
        let mut crc = Crc32::new();
        crc.update(&[0xff; 8]);
        assert_eq!(crc.finish(), SEED);
    }
}
