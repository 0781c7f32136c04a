// SPDX-License-Identifier: Apache-2.0
//! A responder in a page of Rust on the wire crate's parser and builder: the oracle for the BPF programs. It shares no code and no structure with them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use onlooker_responder::{Config, Kind, Region};
use onlooker_wire::{
    Aeth, EtherType, Ethernet, Frame, Msn, Packet, Part, Ports, ROCE_PORT, ReadAnswer, ReadRequest, Syndrome, Tags,
};

/// What should become of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    Pass,
    /// Passed on and counted.
    Passed,
    Drop,
    Answer(Vec<u8>),
}

/// A responder's state: everything in it is allowed to ask and in lease.
pub(crate) struct Reference {
    pub(crate) config: Config,
    pub(crate) own: Vec<IpAddr>,
    pub(crate) sources: Vec<IpAddr>,
    pub(crate) regions: HashMap<u32, Region>,
    pub(crate) slab: Vec<u8>,
}

/// What the headers of a packet for one of our addresses tell, true or not.
struct Found<'a> {
    source: IpAddr,
    port: u16,
    /// IPv4 options or IPv6 extension headers are in front of UDP.
    options: bool,
    /// Behind UDP, to the frame's end.
    transport: &'a [u8],
}

/// Whether an address may be the source of a frame on the loopback device, where the tests' frames come in: RFC 1122 3.2.1.3, RFC 4291 2.5 and 2.7, and
/// no IPv4 address as an IPv6 one.
fn is_source(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !(address.is_multicast() || address.is_broadcast() || address.octets()[0] == 0),
        IpAddr::V6(address) => {
            !(address.is_multicast() || address.is_unspecified() || address.to_ipv4_mapped().is_some())
        }
    }
}

/// The bytes behind IPv6 extension headers, if they are UDP: RFC 8200 4, RFC 4302 2.2.
fn behind_extensions(mut header: u8, mut bytes: &[u8]) -> Option<&[u8]> {
    for _ in 0..8 {
        let length = match header {
            0 | 43 | 60 => 8 * (usize::from(*bytes.get(1)?) + 1),
            51 => 4 * (usize::from(*bytes.get(1)?) + 2),
            44 if bytes.get(2..4).is_some_and(|offset| u16::from_be_bytes([offset[0], offset[1]]) >> 3 == 0) => 8,
            _ => break,
        };
        header = *bytes.first()?;
        bytes = bytes.get(4..)?.get(length - 4..)?;
    }
    (header == 17).then_some(bytes)
}

impl Reference {
    pub(crate) fn respond(&self, frame: &[u8]) -> Expected {
        let Some(found) = self.find(frame) else { return Expected::Pass };
        if found.options {
            return if found.port == self.config.port { Expected::Drop } else { Expected::Pass };
        }
        let is_roce = self.config.roce && found.port == ROCE_PORT;
        if is_roce && let Some(left) = self.leave(&found) {
            return left;
        }
        if !is_roce && found.port != self.config.port {
            return Expected::Pass;
        }
        let Ok(Frame { ethernet, envelope, packet: Packet::ReadRequest(request) }) = Frame::parse(frame) else {
            return Expected::Drop;
        };
        let (true, Some(payload)) = (self.may_ask(envelope.ip.source()), self.read(&request)) else {
            return Expected::Drop;
        };
        let answer = ReadAnswer {
            part: Part::Only(Aeth { syndrome: Syndrome::ACK, msn: Msn::wrapping(request.psn.get() + 1) }),
            destination: request.destination,
            psn: request.psn,
            payload,
        };
        let ethernet = Ethernet { destination: ethernet.source, source: ethernet.destination, tags: ethernet.tags };
        let mut out = vec![0; 16 << 10];
        let mut back = envelope.answer(self.config.dscp);
        if is_roce {
            back.ports = Ports { source: envelope.ports.source, destination: ROCE_PORT };
        }
        let length = Packet::from(answer).write_frame(&ethernet, &back, &mut out).unwrap();
        out.truncate(length);
        Expected::Answer(out)
    }

    fn may_ask(&self, source: IpAddr) -> bool {
        is_source(source) && self.sources.contains(&source)
    }

    /// On RoCEv2's own port: what becomes of what is not for us. `None`: it is a READ of a region of ours by a source that may ask.
    fn leave(&self, found: &Found<'_>) -> Option<Expected> {
        let Some(headers) = found.transport.first_chunk::<28>().filter(|headers| headers[0] == 0x0c) else {
            return Some(Expected::Pass);
        };
        let field = |at: usize| u32::from_be_bytes([headers[at], headers[at + 1], headers[at + 2], headers[at + 3]]);
        let (va, rkey, length) = (u64::from(field(12)) << 32 | u64::from(field(16)), field(20), u64::from(field(24)));
        let has_it = |region: &Region| {
            let from = va.checked_sub(region.va);
            from.is_some_and(|from| from < region.bytes() && length <= region.bytes() - from)
        };
        let is_for_us = self.may_ask(found.source) && self.regions.get(&rkey).is_some_and(has_it);
        (!is_for_us).then_some(Expected::Passed)
    }

    /// A packet for one of our addresses, as far as the headers tell; `None`: it is none, or they end too early.
    fn find<'a>(&self, frame: &'a [u8]) -> Option<Found<'a>> {
        let (ethernet, ether_type, ip) = Ethernet::parse(frame).ok()?;
        let group = (ethernet.destination.0[0] | ethernet.source.0[0]) & 1 == 1;
        // What is of a VLAN is for its device; a tag without an id only tells a priority.
        let vlan = match ethernet.tags {
            Tags::None => false,
            Tags::One(tag) => tag.tci & 0xfff != 0,
            Tags::Two { outer, inner } => (outer.tci | inner.tci) & 0xfff != 0,
        };
        if group || vlan {
            return None;
        }
        let (udp, options, [source, destination]) = match ether_type {
            EtherType::Ipv4 => {
                let header: &[u8; 20] = ip.first_chunk()?;
                let (offset, words) =
                    (u16::from_be_bytes([header[6], header[7]]) & 0x1fff, usize::from(header[0] & 15));
                if header[0] >> 4 != 4 || words < 5 || header[9] != 17 || offset != 0 {
                    return None;
                }
                let address =
                    |at: usize| IpAddr::V4(Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]));
                (ip.get(4 * words..)?, words > 5, [address(12), address(16)])
            }
            EtherType::Ipv6 => {
                let header: &[u8; 40] = ip.first_chunk()?;
                if header[0] >> 4 != 6 {
                    return None;
                }
                let address = |at: usize| {
                    IpAddr::V6(Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|index| header[at + index])))
                };
                (behind_extensions(header[6], &ip[40..])?, header[6] != 17, [address(8), address(24)])
            }
        };
        if !self.own.contains(&destination) {
            return None;
        }
        let port = u16::from_be_bytes([*udp.get(2)?, *udp.get(3)?]);
        // What is refused for its options is so without a whole UDP header.
        let transport = if options { &[] } else { udp.get(8..)? };
        Some(Found { source, port, options, transport })
    }

    /// The memory asked for, if it is in range and in profile.
    fn read(&self, request: &ReadRequest) -> Option<&[u8]> {
        let region = self.regions.get(&request.rkey)?;
        let Kind::Memory { first_block, .. } = region.kind else { return None };
        let (from, length) = (request.va.checked_sub(region.va)?, u64::from(request.length_bytes));
        let inside = from < region.bytes() && length <= region.bytes() - from;
        let words = length >= 8 && length.is_multiple_of(8) && from.is_multiple_of(8);
        let blocks = if length < 1024 {
            from / 1024 == (from + length.max(1) - 1) / 1024
        } else {
            length.is_multiple_of(1024) && from.is_multiple_of(1024)
        };
        if !inside || !words || !blocks || request.length_bytes > self.config.max_read_bytes {
            return None;
        }
        let from = usize::try_from(from + 1024 * u64::from(first_block)).ok()?;
        self.slab.get(from..from + usize::try_from(length).ok()?)
    }
}
