// SPDX-License-Identifier: Apache-2.0
//! IPv4 (RFC 791) and IPv6 (RFC 8200) headers as RoCEv2 has them (A17.3.1): no options, no fragments, no extension headers.
//!
//! The structs hold what a sender chooses; lengths and checksum are computed when writing and checked when parsing, and the
//! rest is fixed by A17. So a parsed header written again gives the same bytes (but for the two forms of a zero checksum),
//! which is what lets the ICRC be computed from the struct.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::{Error, Layer};
use crate::eth::EtherType;
use crate::slice::{reserve, take};

/// ECN field, the two lowest bits of the traffic class (RFC 3168 5): capable transport. Our answers carry it.
pub const ECN_CAPABLE: u8 = 0b10;
/// ECN field: congestion experienced.
pub const ECN_CONGESTED: u8 = 0b11;
/// The hop limit that [`crate::Envelope`] sends with; masked in the ICRC, since routers count it down.
pub const DEFAULT_HOP_LIMIT: u8 = 64;

/// IPv4 flags and fragment offset of every RoCEv2 packet: "don't fragment" alone (CA17-7, CA17-8).
const DONT_FRAGMENT: u16 = 0x4000;
/// More fragments flag and fragment offset (RFC 791 3.1).
const FRAGMENT: u16 = 0x3fff;
/// Protocol number of UDP (CA17-10, CA17-16).
const UDP: u8 = 17;
/// Next-header values that are extension headers (IANA list of IPv6 extension headers, but for the two of experiments).
const EXTENSIONS: [u8; 9] = [0, 43, 44, 50, 51, 60, 135, 139, 140];

/// What a sender chooses in an IPv4 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ipv4Header {
    /// Type of service: DSCP (6 bits) and ECN (2 bits).
    pub traffic_class: u8,
    /// Identification; 0 from an unconnected UDP socket with "don't fragment". Covered by the ICRC.
    pub identification: u16,
    /// Time to live, hops.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

/// What a sender chooses in an IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ipv6Header {
    /// DSCP (6 bits) and ECN (2 bits).
    pub traffic_class: u8,
    /// Flow label, the lowest 20 bits; higher bits are not sent.
    pub flow_label: u32,
    /// Hop limit, hops.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

/// An IP header of either version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpHeader {
    /// IPv4.
    V4(Ipv4Header),
    /// IPv6.
    V6(Ipv6Header),
}

impl IpHeader {
    /// Bytes of an IPv4 header without options.
    pub const V4_BYTES: usize = 20;
    /// Bytes of an IPv6 header.
    pub const V6_BYTES: usize = 40;

    /// Bytes on the wire.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        match self {
            Self::V4(_) => Self::V4_BYTES,
            Self::V6(_) => Self::V6_BYTES,
        }
    }

    /// The EtherType of frames that carry this header.
    #[must_use]
    pub const fn ether_type(&self) -> EtherType {
        match self {
            Self::V4(_) => EtherType::Ipv4,
            Self::V6(_) => EtherType::Ipv6,
        }
    }

    /// Source address.
    #[must_use]
    pub const fn source(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.source),
            Self::V6(header) => IpAddr::V6(header.source),
        }
    }

    /// Destination address.
    #[must_use]
    pub const fn destination(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.destination),
            Self::V6(header) => IpAddr::V6(header.destination),
        }
    }

    /// Whether a switch on the way marked the packet: congestion experienced (RFC 3168 5).
    #[must_use]
    pub const fn is_congestion_marked(&self) -> bool {
        let traffic_class = match self {
            Self::V4(header) => header.traffic_class,
            Self::V6(header) => header.traffic_class,
        };
        traffic_class & 0b11 == ECN_CONGESTED
    }

    /// Splits an IP packet into header and payload. Bytes after the stated length (Ethernet padding) are left out.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::IpVersion`], the `Ipv4*` and `Ipv6*` errors, [`Error::IpLength`], [`Error::Protocol`].
    pub fn parse(ether_type: EtherType, packet: &[u8]) -> Result<(Self, &[u8]), Error> {
        match ether_type {
            EtherType::Ipv4 => parse_v4(packet),
            EtherType::Ipv6 => parse_v6(packet),
        }
    }

    /// Writes the header of a packet with `payload_bytes` behind it; returns the header's length.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]; [`Error::PayloadLength`] if a 16-bit length field cannot hold it.
    pub fn write(&self, payload_bytes: usize, out: &mut [u8]) -> Result<usize, Error> {
        match self {
            Self::V4(header) => {
                let (bytes, _) = reserve::<{ Self::V4_BYTES }>(out)?;
                *bytes = header.bytes(length_field(payload_bytes + Self::V4_BYTES)?);
                let checksum = !ones_sum(bytes);
                bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            Self::V6(header) => {
                let (bytes, _) = reserve::<{ Self::V6_BYTES }>(out)?;
                *bytes = header.bytes(length_field(payload_bytes)?);
            }
        }
        Ok(self.len_bytes())
    }
}

impl Ipv4Header {
    /// The header with a zero checksum.
    fn bytes(&self, total_length: u16) -> [u8; IpHeader::V4_BYTES] {
        let mut bytes = [0; IpHeader::V4_BYTES];
        bytes[0] = 0x45;
        bytes[1] = self.traffic_class;
        bytes[2..4].copy_from_slice(&total_length.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.identification.to_be_bytes());
        bytes[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
        bytes[8] = self.hop_limit;
        bytes[9] = UDP;
        bytes[12..16].copy_from_slice(&self.source.octets());
        bytes[16..20].copy_from_slice(&self.destination.octets());
        bytes
    }
}

impl Ipv6Header {
    fn bytes(&self, payload_length: u16) -> [u8; IpHeader::V6_BYTES] {
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        let mut bytes = [0; IpHeader::V6_BYTES];
        bytes[..4].copy_from_slice(&word.to_be_bytes());
        bytes[4..6].copy_from_slice(&payload_length.to_be_bytes());
        bytes[6] = UDP;
        bytes[7] = self.hop_limit;
        bytes[8..24].copy_from_slice(&self.source.octets());
        bytes[24..40].copy_from_slice(&self.destination.octets());
        bytes
    }
}

/// The value of a 16-bit length field.
pub(crate) fn length_field(length_bytes: usize) -> Result<u16, Error> {
    u16::try_from(length_bytes).map_err(|_| Error::PayloadLength(length_bytes))
}

fn parse_v4(packet: &[u8]) -> Result<(IpHeader, &[u8]), Error> {
    let (header, rest) = take::<{ IpHeader::V4_BYTES }>(Layer::Ipv4, packet)?;
    let [
        version_words,
        traffic_class,
        l0,
        l1,
        i0,
        i1,
        f0,
        f1,
        hop_limit,
        protocol,
        _,
        _,
        s0,
        s1,
        s2,
        s3,
        d0,
        d1,
        d2,
        d3,
    ] = *header;
    match (version_words >> 4, version_words & 0x0f) {
        (4, 5) => {}
        (4, words @ 0..=4) => return Err(Error::Ipv4HeaderLength(words)),
        (4, words) => return Err(Error::Ipv4Options(words)),
        (version, _) => return Err(Error::IpVersion(version)),
    }
    let stated_bytes = usize::from(u16::from_be_bytes([l0, l1]));
    let payload = stated_bytes
        .checked_sub(IpHeader::V4_BYTES)
        .and_then(|payload_bytes| rest.get(..payload_bytes))
        .ok_or(Error::IpLength { stated_bytes, available_bytes: packet.len() })?;
    if ones_sum(header) != u16::MAX {
        return Err(Error::Ipv4Checksum);
    }
    let flags_offset = u16::from_be_bytes([f0, f1]);
    if flags_offset & FRAGMENT != 0 {
        return Err(Error::Ipv4Fragment(flags_offset));
    }
    if flags_offset != DONT_FRAGMENT {
        return Err(Error::Ipv4Flags(f0 >> 5));
    }
    if protocol != UDP {
        return Err(Error::Protocol(protocol));
    }
    let header = Ipv4Header {
        traffic_class,
        identification: u16::from_be_bytes([i0, i1]),
        hop_limit,
        source: Ipv4Addr::new(s0, s1, s2, s3),
        destination: Ipv4Addr::new(d0, d1, d2, d3),
    };
    Ok((IpHeader::V4(header), payload))
}

fn parse_v6(packet: &[u8]) -> Result<(IpHeader, &[u8]), Error> {
    let (&word, rest) = take::<4>(Layer::Ipv6, packet)?;
    let (&[l0, l1, next_header, hop_limit], rest) = take::<4>(Layer::Ipv6, rest)?;
    let (&source, rest) = take::<16>(Layer::Ipv6, rest)?;
    let (&destination, rest) = take::<16>(Layer::Ipv6, rest)?;
    let [version_class, class_label, _, _] = word;
    if version_class >> 4 != 6 {
        return Err(Error::IpVersion(version_class >> 4));
    }
    let payload_bytes = usize::from(u16::from_be_bytes([l0, l1]));
    let payload = rest
        .get(..payload_bytes)
        .ok_or(Error::IpLength { stated_bytes: payload_bytes + IpHeader::V6_BYTES, available_bytes: packet.len() })?;
    if EXTENSIONS.contains(&next_header) {
        return Err(Error::Ipv6Extension(next_header));
    }
    if next_header != UDP {
        return Err(Error::Protocol(next_header));
    }
    let header = Ipv6Header {
        traffic_class: version_class << 4 | class_label >> 4,
        flow_label: u32::from_be_bytes(word) & 0xf_ffff,
        hop_limit,
        source: Ipv6Addr::from(source),
        destination: Ipv6Addr::from(destination),
    };
    Ok((IpHeader::V6(header), payload))
}

/// Ones' complement sum of 16-bit words (RFC 791 3.1, RFC 1071): 0xffff over a header with a right checksum.
fn ones_sum(header: &[u8; IpHeader::V4_BYTES]) -> u16 {
    let (words, _) = header.as_chunks::<2>();
    words.iter().fold(0, |sum: u16, word| {
        let (sum, carry) = sum.overflowing_add(u16::from_be_bytes(*word));
        sum + u16::from(carry)
    })
}
