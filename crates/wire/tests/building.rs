// SPDX-License-Identifier: Apache-2.0
//! What the crate refuses to build, and the envelopes it makes.

use std::net::{IpAddr, SocketAddr};

use onlooker_wire::{
    Acknowledge, Aeth, Envelope, Error, IpHeader, Msn, NakCode, Packet, Part, Ports, Psn, Qpn, ReadAnswer, ReadRequest,
    Syndrome, Tag, Tpid,
};

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn envelope() -> Envelope {
    Envelope::socket(address("10.0.0.1:40000"), address("10.0.0.2:4791")).unwrap()
}

const REQUEST: ReadRequest =
    ReadRequest { destination: Qpn::wrapping(1), psn: Psn::wrapping(2), va: 3, rkey: 4, length_bytes: 1024 };

fn build(part: Part, payload: &[u8]) -> Result<usize, Error> {
    let answer = ReadAnswer { part, destination: Qpn::wrapping(5), psn: REQUEST.psn, payload };
    Packet::from(answer).write_datagram(&envelope(), &mut vec![0; 70000])
}

#[test]
fn answers_that_no_receiver_would_take() {
    let aeth = |syndrome| Aeth { syndrome, msn: Msn::default() };
    let ack = aeth(Syndrome::ACK);
    assert_eq!(build(Part::First(ack), &[]), Err(Error::PayloadLength(0)));
    assert_eq!(build(Part::Middle, &[]), Err(Error::PayloadLength(0)));
    assert_eq!(build(Part::Last(ack), &[]), Err(Error::PayloadLength(0)));
    assert_eq!(build(Part::First(ack), &[0; 255]), Err(Error::PayloadLength(255)));
    assert_eq!(build(Part::Middle, &[0; 254]), Err(Error::PayloadLength(254)));
    let nak = aeth(Syndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(build(Part::Only(nak), &[0; 4]), Err(Error::Syndrome(0x62)));
    assert_eq!(build(Part::Last(aeth(Syndrome::RnrNak { timer: 1 })), &[0; 4]), Err(Error::Syndrome(0x21)));
}

#[test]
fn answers_up_to_the_largest_ip_packet() {
    let ack = Part::Only(Aeth { syndrome: Syndrome::ACK, msn: Msn::default() });
    // 65535 less IPv4, UDP, BTH, AETH and ICRC is 65487; 65484 is the last multiple of 4.
    assert_eq!(build(ack, &[0; 65484]), Ok(65484 + 20));
    assert_eq!(build(ack, &[0; 65485]), Err(Error::PayloadLength(65488 + 48)));
}

#[test]
fn answers_and_refusals_of_a_request() {
    let mut out = [0; 64];
    let nak = Acknowledge::nak(&REQUEST, Qpn::wrapping(9), NakCode::InvalidRequest);
    let length = Packet::from(nak).write_datagram(&envelope(), &mut out).unwrap();
    assert_eq!(length, 20);
    assert_eq!(out[..16], [0x11, 0x40, 0xff, 0xff, 0, 0, 0, 9, 0, 0, 0, 2, 0x61, 0, 0, 0]);

    let answer = ReadAnswer::only(&REQUEST, Qpn::wrapping(9), &[7, 8]);
    let length = Packet::from(answer).write_datagram(&envelope(), &mut out).unwrap();
    assert_eq!(length, 24);
    assert_eq!(out[..20], [0x10, 0x60, 0xff, 0xff, 0, 0, 0, 9, 0, 0, 0, 2, 0x1f, 0, 0, 0, 7, 8, 0, 0]);
}

#[test]
fn envelope_of_an_answer() {
    for (from, to) in [("10.0.0.1:40000", "10.0.0.2:4791"), ("[fd00::1]:40000", "[fd00::2]:4791")] {
        let mut asked = Envelope::socket(address(from), address(to)).unwrap();
        match &mut asked.ip {
            IpHeader::V4(header) => (header.identification, header.hop_limit) = (7, 3),
            IpHeader::V6(header) => (header.flow_label, header.hop_limit) = (7, 3),
        }
        let mut expected = Envelope::socket(address(to), address(from)).unwrap();
        match &mut expected.ip {
            IpHeader::V4(header) => header.traffic_class = 46 << 2 | 0b10,
            IpHeader::V6(header) => header.traffic_class = 46 << 2 | 0b10,
        }
        assert_eq!(asked.answer(46), expected);
        assert_eq!(expected.ports, Ports { source: 4791, destination: 40000 });
    }
}

#[test]
fn socket_addresses_of_either_family() {
    let mapped = Envelope::socket(address("[::ffff:10.0.0.1]:40000"), address("10.0.0.2:4791"));
    assert_eq!(mapped, Ok(envelope()));
    assert_eq!(envelope().ip.source(), IpAddr::from([10, 0, 0, 1]));
    assert_eq!(envelope().ip.destination(), IpAddr::from([10, 0, 0, 2]));
    assert_eq!(Envelope::socket(address("[fd00::1]:1"), address("10.0.0.2:2")), Err(Error::MixedFamilies));
}

#[test]
fn congestion_marks() {
    for (traffic_class, marked) in
        [(0b00, false), (0b01, false), (0b10, false), (0b11, true), (0xff, true), (0xfe, false)]
    {
        for ends in [["10.0.0.1:1", "10.0.0.2:2"], ["[fd00::1]:1", "[fd00::2]:2"]] {
            let mut ip = Envelope::socket(address(ends[0]), address(ends[1])).unwrap().ip;
            match &mut ip {
                IpHeader::V4(header) => header.traffic_class = traffic_class,
                IpHeader::V6(header) => header.traffic_class = traffic_class,
            }
            assert_eq!(ip.is_congestion_marked(), marked, "{traffic_class:#04x}");
        }
    }
}

#[test]
fn vlan_id_is_the_lowest_twelve_bits() {
    assert_eq!(Tag { tpid: Tpid::Customer, tci: 0xb064 }.vlan_id(), 100);
}
