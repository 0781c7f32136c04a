// SPDX-License-Identifier: Apache-2.0
//! UDP header (RFC 768, A17.3.2).
//!
//! The checksum is written as 0 (A17.3.2.4) and never checked: the ICRC covers more, and a frame on a veth or a loopback
//! device carries a sum that is only half computed. A socket that is to receive such packets over IPv6 needs
//! `UDP_NO_CHECK6_RX`, since RFC 8200 8.1 makes the sum obligatory there.

use crate::error::{Error, Layer};
use crate::ip::length_field;
use crate::slice::{reserve, take};

/// The port of RoCEv2 (CA17-20, assigned by IANA). Peers of our own may agree on any other.
pub const ROCE_PORT: u16 = 4791;

/// The two ports of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ports {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
}

impl Ports {
    /// Bytes of a UDP header.
    pub const HEADER_BYTES: usize = 8;

    /// Splits an IP payload into ports and UDP payload.
    ///
    /// # Errors
    /// [`Error::Truncated`]; [`Error::UdpLength`] unless the datagram fills the IP payload exactly.
    pub fn parse(ip_payload: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (&[s0, s1, d0, d1, l0, l1, _, _], payload) = take::<{ Self::HEADER_BYTES }>(Layer::Udp, ip_payload)?;
        let udp_bytes = usize::from(u16::from_be_bytes([l0, l1]));
        if udp_bytes != ip_payload.len() {
            return Err(Error::UdpLength { udp_bytes, ip_payload_bytes: ip_payload.len() });
        }
        Ok((Self { source: u16::from_be_bytes([s0, s1]), destination: u16::from_be_bytes([d0, d1]) }, payload))
    }

    /// Writes the header of a datagram with `payload_bytes` behind it, checksum 0; returns the header's length.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]; [`Error::PayloadLength`] if the 16-bit length field cannot hold it.
    pub fn write(&self, payload_bytes: usize, out: &mut [u8]) -> Result<usize, Error> {
        let (bytes, _) = reserve::<{ Self::HEADER_BYTES }>(out)?;
        let length = length_field(payload_bytes + Self::HEADER_BYTES)?;
        bytes[..2].copy_from_slice(&self.source.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.destination.to_be_bytes());
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
        bytes[6..].fill(0);
        Ok(Self::HEADER_BYTES)
    }
}
