// SPDX-License-Identifier: Apache-2.0
//! Why bytes were refused. One variant a reason, so that a caller can count each.

use core::fmt;

use crate::opcode::Opcode;

/// The part of a packet that an [`Error::Truncated`] speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layer {
    /// Ethernet header or VLAN tag.
    Ethernet,
    /// IPv4 header.
    Ipv4,
    /// IPv6 header.
    Ipv6,
    /// UDP header.
    Udp,
    /// Base transport header and ICRC.
    Transport,
}

impl fmt::Display for Layer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Ethernet => "Ethernet header",
            Self::Ipv4 => "IPv4 header",
            Self::Ipv6 => "IPv6 header",
            Self::Udp => "UDP header",
            Self::Transport => "InfiniBand transport header and ICRC",
        })
    }
}

/// Why a packet was not parsed or not built. A parsed packet that is refused is to be dropped in silence (CA17-24, IBA 9.6)
/// and counted under [`Error::reason`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// Fewer bytes than the fixed part of a header.
    #[error("{layer}: needs {needed_bytes} bytes, got {got_bytes}; drop the packet")]
    Truncated {
        /// The header that did not fit.
        layer: Layer,
        /// Bytes that the header needs.
        needed_bytes: usize,
        /// Bytes that were there.
        got_bytes: usize,
    },
    /// Neither IPv4 nor IPv6 behind the MAC addresses and tags.
    #[error("Ethernet header: EtherType {0:#06x} is not IPv4 (0x0800) or IPv6 (0x86dd); not RoCEv2, pass it on")]
    EtherType(u16),
    /// A third VLAN tag.
    #[error("Ethernet header: more than two VLAN tags; take a tagging level off this link")]
    TooManyTags,
    /// The version nibble disagrees with the EtherType (CA17-27).
    #[error("IP header: version {0} does not match the EtherType; drop the packet")]
    IpVersion(u8),
    /// Internet header length below 5 words (RFC 791 3.1).
    #[error("IPv4 header: header length of {0} words is below the minimum of 5; drop the packet")]
    Ipv4HeaderLength(u8),
    /// Internet header length above 5 words (CA17-3).
    #[error("IPv4 header: options present (header length {0} words), RoCEv2 allows none; drop the packet")]
    Ipv4Options(u8),
    /// More fragments, or a fragment offset (CA17-8).
    #[error("IPv4 header: fragment (flags and offset {0:#06x}); raise the path MTU above the answer's size")]
    Ipv4Fragment(u16),
    /// Flags other than "don't fragment" alone (CA17-7).
    #[error("IPv4 header: flags {0:#05b} are not 0b010 (don't fragment); set IP_PMTUDISC_DO on the sending socket")]
    Ipv4Flags(u8),
    /// The header checksum does not add up (RFC 791 3.1).
    #[error("IPv4 header: header checksum is wrong; drop the packet")]
    Ipv4Checksum,
    /// The IP length field does not fit the header or goes past the bytes received.
    #[error("IP header: states {stated_bytes} bytes where {available_bytes} are there; drop the packet")]
    IpLength {
        /// IPv4 total length, or IPv6 header plus payload length.
        stated_bytes: usize,
        /// Bytes from the IP header to the end of what was received.
        available_bytes: usize,
    },
    /// An IPv6 extension header where UDP must follow (CA17-16, RFC 8200 section 4).
    #[error("IPv6 header: extension header {0}, RoCEv2 allows none; drop the packet")]
    Ipv6Extension(u8),
    /// A transport other than UDP (CA17-10, CA17-16).
    #[error("IP header: protocol {0} is not UDP (17); not RoCEv2, pass it on")]
    Protocol(u8),
    /// UDP length and IP payload length disagree (CA17-21).
    #[error("UDP header: length {udp_bytes} differs from the IP payload of {ip_payload_bytes} bytes; drop the packet")]
    UdpLength {
        /// The UDP length field.
        udp_bytes: usize,
        /// Bytes that the IP header gives to UDP.
        ip_payload_bytes: usize,
    },
    /// An opcode of another service or operation (IBA 9.2).
    #[error("BTH: opcode {0:#04x} is none of READ, WRITE and FETCH ADD (0x06 to 0x12, 0x14); drop the packet")]
    Opcode(u8),
    /// Transport header version other than 0 (IBA 9.2, TVer).
    #[error("BTH: transport header version {0} is not 0; drop the packet")]
    TransportVersion(u8),
    /// A partition key outside the default partition (IBA 9.2, P_Key).
    #[error(
        "BTH: partition key {0:#06x} is not of the default partition (0xffff or 0x7fff); configure the peer's P_Key"
    )]
    PartitionKey(u16),
    /// The length of the UDP payload does not fit the opcode.
    #[error("{opcode}: UDP payload of {payload_bytes} bytes does not fit this opcode; drop the packet")]
    RoceLength {
        /// The packet's opcode.
        opcode: Opcode,
        /// UDP payload, from BTH to ICRC.
        payload_bytes: usize,
    },
    /// A pad count that the opcode or the payload does not allow (IBA 9.2, PadCnt).
    #[error("{opcode}: pad count {pad_bytes} does not fit {body_bytes} bytes of padded payload; drop the packet")]
    PadCount {
        /// The packet's opcode.
        opcode: Opcode,
        /// The pad count field, bytes.
        pad_bytes: u8,
        /// Payload and pad together.
        body_bytes: usize,
    },
    /// A WRITE in one packet that has other bytes than it says (IBA 9.4.3).
    #[error("WRITE: states {stated_bytes} bytes and has {payload_bytes}; drop the packet")]
    WriteLength {
        /// The RETH's length.
        stated_bytes: u32,
        /// Bytes without pad.
        payload_bytes: usize,
    },
    /// The invariant CRC is wrong (CA17-22, IBA 7.8.1).
    #[error(
        "ICRC: packet carries {stored:#010x}, computed {computed:#010x}; drop it, and check IP id and addresses if all are refused"
    )]
    Icrc {
        /// As stored in the packet.
        stored: u32,
        /// As computed over it.
        computed: u32,
    },
    /// A reserved AETH syndrome, or a NAK inside a response that has data (IBA 9.7.5.2).
    #[error("AETH: syndrome {0:#04x} is reserved or not allowed in this packet; drop the packet")]
    Syndrome(u8),
    /// The caller's buffer is too small for the packet.
    #[error("build: needs {needed_bytes} bytes of buffer, got {got_bytes}; pass a larger buffer")]
    BufferTooSmall {
        /// Bytes still to be written when it ran out.
        needed_bytes: usize,
        /// Bytes that were left.
        got_bytes: usize,
    },
    /// A payload whose packet would not fit the 16-bit length fields, or none where at least one byte belongs.
    #[error("build: payload of {0} bytes does not fit one packet of this kind; split the read")]
    PayloadLength(usize),
    /// Source and destination of different address families.
    #[error("build: source and destination addresses are of different families; give both as IPv4 or both as IPv6")]
    MixedFamilies,
}

impl Error {
    /// A short stable name, for counters.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "truncated",
            Self::EtherType(_) => "ether_type",
            Self::TooManyTags => "too_many_tags",
            Self::IpVersion(_) => "ip_version",
            Self::Ipv4HeaderLength(_) => "ipv4_header_length",
            Self::Ipv4Options(_) => "ipv4_options",
            Self::Ipv4Fragment(_) => "ipv4_fragment",
            Self::Ipv4Flags(_) => "ipv4_flags",
            Self::Ipv4Checksum => "ipv4_checksum",
            Self::IpLength { .. } => "ip_length",
            Self::Ipv6Extension(_) => "ipv6_extension",
            Self::Protocol(_) => "protocol",
            Self::UdpLength { .. } => "udp_length",
            Self::Opcode(_) => "opcode",
            Self::TransportVersion(_) => "transport_version",
            Self::PartitionKey(_) => "partition_key",
            Self::RoceLength { .. } => "roce_length",
            Self::PadCount { .. } => "pad_count",
            Self::WriteLength { .. } => "write_length",
            Self::Icrc { .. } => "icrc",
            Self::Syndrome(_) => "syndrome",
            Self::BufferTooSmall { .. } => "buffer_too_small",
            Self::PayloadLength(_) => "payload_length",
            Self::MixedFamilies => "mixed_families",
        }
    }
}
