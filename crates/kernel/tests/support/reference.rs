// SPDX-License-Identifier: Apache-2.0
//! A responder in a page of Rust on the wire crate's parser and builder: the oracle for the BPF programs. It shares no code and no structure with them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use onlooker_kernel::{Config, Kind, Region};
use onlooker_wire::{Aeth, EtherType, Ethernet, Frame, Msn, Packet, Part, ReadAnswer, ReadRequest, Syndrome};

/// What should become of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    Pass,
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

impl Reference {
    pub(crate) fn respond(&self, frame: &[u8]) -> Expected {
        if !self.is_ours(frame).unwrap_or(false) {
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
        let length = Packet::from(answer).write_frame(&ethernet, &envelope.answer(self.config.dscp), &mut out).unwrap();
        out.truncate(length);
        Expected::Answer(out)
    }

    /// For one of our addresses and our port, as far as the headers tell; `None` where they end too early.
    fn is_ours(&self, frame: &[u8]) -> Option<bool> {
        let (ethernet, ether_type, ip) = Ethernet::parse(frame).ok()?;
        let group = (ethernet.destination.0[0] | ethernet.source.0[0]) & 1 == 1;
        let (udp, recognised, destination) = match ether_type {
            EtherType::Ipv4 => {
                let header: &[u8; 20] = ip.first_chunk()?;
                let offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
                let destination = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
                (&ip[20..], header[0] == 0x45 && header[9] == 17 && offset == 0, IpAddr::V4(destination))
            }
            EtherType::Ipv6 => {
                let header: &[u8; 40] = ip.first_chunk()?;
                let destination = Ipv6Addr::from(*header.last_chunk::<16>()?);
                (&ip[40..], header[0] >> 4 == 6 && header[6] == 17, IpAddr::V6(destination))
            }
        };
        let udp: &[u8; 8] = udp.first_chunk()?;
        let port = u16::from_be_bytes([udp[2], udp[3]]);
        Some(!group && recognised && port == self.config.port && self.own.contains(&destination))
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
