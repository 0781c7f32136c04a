// SPDX-License-Identifier: Apache-2.0
//! A responder in a page of Rust on the wire crate's parser and builder: the oracle for the BPF programs. It shares no code and no structure with them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use onlooker_kernel::{Config, Kind, Region};
use onlooker_wire::{
    Aeth, EtherType, Ethernet, Frame, Msn, Packet, Part, Ports, ROCE_PORT, ReadAnswer, ReadRequest, Syndrome,
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
    /// Behind UDP, to the frame's end.
    transport: &'a [u8],
}

impl Reference {
    pub(crate) fn respond(&self, frame: &[u8]) -> Expected {
        let Some(found) = self.find(frame) else { return Expected::Pass };
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
        let (true, Some(payload)) = (self.sources.contains(&envelope.ip.source()), self.read(&request)) else {
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
        let is_for_us = self.sources.contains(&found.source) && self.regions.get(&rkey).is_some_and(has_it);
        (!is_for_us).then_some(Expected::Passed)
    }

    /// A packet for one of our addresses, as far as the headers tell; `None`: it is none, or they end too early.
    fn find<'a>(&self, frame: &'a [u8]) -> Option<Found<'a>> {
        let (ethernet, ether_type, ip) = Ethernet::parse(frame).ok()?;
        let group = (ethernet.destination.0[0] | ethernet.source.0[0]) & 1 == 1;
        let (udp, recognised, [source, destination]) = match ether_type {
            EtherType::Ipv4 => {
                let header: &[u8; 20] = ip.first_chunk()?;
                let offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
                let address =
                    |at: usize| IpAddr::V4(Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]));
                (&ip[20..], header[0] == 0x45 && header[9] == 17 && offset == 0, [address(12), address(16)])
            }
            EtherType::Ipv6 => {
                let header: &[u8; 40] = ip.first_chunk()?;
                let address = |at: usize| {
                    IpAddr::V6(Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|index| header[at + index])))
                };
                (&ip[40..], header[0] >> 4 == 6 && header[6] == 17, [address(8), address(24)])
            }
        };
        let (udp, transport) = udp.split_first_chunk::<8>()?;
        let port = u16::from_be_bytes([udp[2], udp[3]]);
        (!group && recognised && self.own.contains(&destination)).then_some(Found { source, port, transport })
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
