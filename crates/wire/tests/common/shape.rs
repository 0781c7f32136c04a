// SPDX-License-Identifier: Apache-2.0
//! A random packet with everything around it.

use std::net::{Ipv4Addr, Ipv6Addr};

use bolero::TypeGenerator;
use onlooker_wire::{
    Acknowledge, Aeth, AtomicAnswer, Envelope, Ethernet, FetchAdd, IpHeader, Ipv4Header, Ipv6Header, Mac, Msn, Packet,
    Part, Ports, Psn, Qpn, ReadAnswer, ReadRequest, Reth, Syndrome, Tag, Tags, Tpid, WritePart, WriteRequest,
};

#[derive(Debug, Clone, TypeGenerator)]
pub(crate) struct Shape {
    ipv6: bool,
    tags: u8,
    tag_service: [bool; 2],
    tag_values: [u16; 2],
    macs: [[u8; 6]; 2],
    addresses: [[u8; 16]; 2],
    ports: [u16; 2],
    traffic_class: u8,
    hop_limit: u8,
    identification: u16,
    flow_label: u32,
    kind: u8,
    destination: u32,
    psn: u32,
    va: u64,
    rkey: u32,
    length_bytes: u32,
    value: u8,
    nak: u8,
    msn: u32,
    payload: Vec<u8>,
}

impl Shape {
    pub(crate) fn ethernet(&self) -> Ethernet {
        let tag = |at: usize| Tag {
            tpid: if self.tag_service[at] { Tpid::Service } else { Tpid::Customer },
            tci: self.tag_values[at],
        };
        let tags = match self.tags % 3 {
            0 => Tags::None,
            1 => Tags::One(tag(0)),
            _ => Tags::Two { outer: tag(0), inner: tag(1) },
        };
        Ethernet { destination: Mac(self.macs[0]), source: Mac(self.macs[1]), tags }
    }

    pub(crate) fn envelope(&self) -> Envelope {
        let [source, destination] = self.addresses;
        let v4 = |address: [u8; 16]| Ipv4Addr::from(*address.first_chunk::<4>().unwrap());
        let ip = if self.ipv6 {
            IpHeader::V6(Ipv6Header {
                traffic_class: self.traffic_class,
                flow_label: self.flow_label & 0xf_ffff,
                hop_limit: self.hop_limit,
                source: Ipv6Addr::from(source),
                destination: Ipv6Addr::from(destination),
            })
        } else {
            IpHeader::V4(Ipv4Header {
                traffic_class: self.traffic_class,
                identification: self.identification,
                hop_limit: self.hop_limit,
                source: v4(source),
                destination: v4(destination),
            })
        };
        Envelope { ip, ports: Ports { source: self.ports[0], destination: self.ports[1] } }
    }

    pub(crate) fn packet(&self) -> Packet<'_> {
        let destination = Qpn::wrapping(self.destination);
        let psn = Psn::wrapping(self.psn);
        let value = self.value % 32;
        let aeth = |syndrome| Aeth { syndrome, msn: Msn::wrapping(self.msn) };
        let ack = aeth(Syndrome::Ack { credits: value });
        let words = self.payload.len() / 4 * 4;
        let (part, payload) = match self.kind % 14 {
            0 => {
                let Self { va, rkey, length_bytes, .. } = *self;
                return ReadRequest { destination, psn, va, rkey, length_bytes }.into();
            }
            1 => {
                let syndrome = match self.nak % 6 {
                    0 => Syndrome::Ack { credits: value },
                    1 => Syndrome::RnrNak { timer: value },
                    code => Syndrome::from_byte(0x60 + code - 2).unwrap(),
                };
                return Acknowledge { destination, psn, aeth: aeth(syndrome) }.into();
            }
            kind @ 6.. => return self.write_or_atomic(kind),
            // Parts of several are never empty, and first and middle ones are whole words.
            2 if words > 0 => (Part::First(ack), &self.payload[..words]),
            3 if words > 0 => (Part::Middle, &self.payload[..words]),
            4 if words > 0 => (Part::Last(ack), &self.payload[..]),
            _ => (Part::Only(ack), &self.payload[..]),
        };
        ReadAnswer { part, destination, psn, payload }.into()
    }

    fn write_or_atomic(&self, kind: u8) -> Packet<'_> {
        let Self { va, rkey, length_bytes, .. } = *self;
        let (destination, psn) = (Qpn::wrapping(self.destination), Psn::wrapping(self.psn));
        let words = self.payload.len() / 4 * 4;
        let reth = Reth { va, rkey, length_bytes };
        let whole = Reth { length_bytes: self.payload.len().try_into().unwrap(), ..reth };
        let immediate = Some(self.msn);
        let (part, payload) = match kind {
            6 => return FetchAdd { destination, psn, va, rkey, addend: u64::from(length_bytes) << 17 }.into(),
            7 => {
                let aeth = Aeth { syndrome: Syndrome::Ack { credits: self.value % 32 }, msn: Msn::wrapping(self.msn) };
                return AtomicAnswer { destination, psn, aeth, original: va }.into();
            }
            8 if words > 0 => (WritePart::First(reth), &self.payload[..words]),
            9 if words > 0 => (WritePart::Middle, &self.payload[..words]),
            10 if words > 0 => (WritePart::Last(None), &self.payload[..]),
            11 if words > 0 => (WritePart::Last(immediate), &self.payload[..]),
            12 => (WritePart::Only(whole, immediate), &self.payload[..]),
            _ => (WritePart::Only(whole, None), &self.payload[..]),
        };
        WriteRequest { part, destination, psn, ack_request: self.nak.is_multiple_of(2), payload }.into()
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let (ethernet, envelope, packet) = (self.ethernet(), self.envelope(), self.packet());
        let mut frame = vec![0; packet.frame_bytes(&ethernet, &envelope)];
        assert_eq!(packet.write_frame(&ethernet, &envelope, &mut frame), Ok(frame.len()));
        frame
    }
}
