// SPDX-License-Identifier: Apache-2.0
//! The crate against bytes that `vectors/generate.py` derived on its own.

#[path = "common/records.rs"]
mod records;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use onlooker_wire::tcp_read::{self, Decoded, Header, Read, Refusal};
use onlooker_wire::{
    Acknowledge, Aeth, AtomicAnswer, Envelope, Ethernet, FetchAdd, Frame, IpHeader, Mac, Msn, Packet, Part, Psn, Qpn,
    ReadAnswer, ReadRequest, Reth, Syndrome, Tag, Tags, Tpid, UdpFrame, WritePart, WriteRequest,
};
use records::{Record, hex};

fn ethernet(record: &Record) -> Ethernet {
    let mac = |key| Mac(record.bytes(key).try_into().unwrap());
    let tags: Vec<Tag> = record
        .text("tags")
        .split(' ')
        .filter(|tag| *tag != "-")
        .map(|tag| {
            let tpid = if tag.starts_with("8100") { Tpid::Customer } else { Tpid::Service };
            Tag { tpid, tci: u16::from_str_radix(&tag[4..], 16).unwrap() }
        })
        .collect();
    let tags = match tags[..] {
        [] => Tags::None,
        [tag] => Tags::One(tag),
        [outer, inner] => Tags::Two { outer, inner },
        _ => panic!("more than two tags"),
    };
    Ethernet { destination: mac("destination_mac"), source: mac("source_mac"), tags }
}

fn envelope(record: &Record) -> Envelope {
    let end = |address, port| SocketAddr::new(record.number(address), record.number(port));
    let mut envelope = Envelope::socket(end("source", "source_port"), end("destination", "destination_port")).unwrap();
    match &mut envelope.ip {
        IpHeader::V4(header) => {
            header.identification = record.number("identification");
            header.traffic_class = record.number("traffic_class");
            header.hop_limit = record.number("hop_limit");
        }
        IpHeader::V6(header) => {
            header.flow_label = record.number("flow_label");
            header.traffic_class = record.number("traffic_class");
            header.hop_limit = record.number("hop_limit");
        }
    }
    envelope
}

fn packet<'a>(record: &Record, payload: &'a [u8]) -> Packet<'a> {
    let destination = Qpn::new(record.number("destination_qp")).unwrap();
    let psn = Psn::new(record.number("psn")).unwrap();
    let aeth = || Aeth {
        syndrome: Syndrome::from_byte(record.number("syndrome")).unwrap(),
        msn: Msn::new(record.number("msn")).unwrap(),
    };
    let answer = |part| Packet::ReadAnswer(ReadAnswer { part, destination, psn, payload });
    let write = |part| {
        let ack_request = record.text("ack_request") == "1";
        Packet::WriteRequest(WriteRequest { part, destination, psn, ack_request, payload })
    };
    let reth = || Reth { va: record.number("va"), rkey: record.number("rkey"), length_bytes: record.number("length") };
    let immediate = || Some(record.number("immediate"));
    match record.text("packet") {
        "read_request" => Packet::ReadRequest(ReadRequest {
            destination,
            psn,
            va: record.number("va"),
            rkey: record.number("rkey"),
            length_bytes: record.number("length"),
        }),
        "first" => answer(Part::First(aeth())),
        "middle" => answer(Part::Middle),
        "last" => answer(Part::Last(aeth())),
        "only" => answer(Part::Only(aeth())),
        "acknowledge" => Packet::Acknowledge(Acknowledge { destination, psn, aeth: aeth() }),
        "write_first" => write(WritePart::First(reth())),
        "write_middle" => write(WritePart::Middle),
        "write_last" => write(WritePart::Last(None)),
        "write_last_immediate" => write(WritePart::Last(immediate())),
        "write_only" => write(WritePart::Only(reth(), None)),
        "write_only_immediate" => write(WritePart::Only(reth(), immediate())),
        "fetch_add" => {
            let (va, rkey, addend) = (record.number("va"), record.number("rkey"), record.number("addend"));
            Packet::FetchAdd(FetchAdd { destination, psn, va, rkey, addend })
        }
        "atomic_answer" => {
            let original = record.number("original");
            Packet::AtomicAnswer(AtomicAnswer { destination, psn, aeth: aeth(), original })
        }
        kind => panic!("packet kind {kind}"),
    }
}

#[test]
fn packets() {
    let (mut good, mut refused) = (0, BTreeMap::new());
    for record in Record::all(include_str!("vectors/packets.txt")) {
        let name = record.text("name");
        let frame = record.bytes("frame");
        if let Some(reason) = record.0.get("error") {
            let error = Frame::parse(&frame).expect_err(name);
            assert_eq!(error.reason(), *reason, "{name}: {error}");
            *refused.entry(*reason).or_insert(0) += 1;
            continue;
        }
        good += 1;
        let payload = if record.0.contains_key("payload") { record.bytes("payload") } else { Vec::new() };
        let expected =
            Frame { ethernet: ethernet(&record), envelope: envelope(&record), packet: packet(&record, &payload) };
        assert_eq!(Frame::parse(&frame), Ok(expected), "{name}");

        // Padding up to 60 bytes and trailers are not part of the packet.
        let mut padded = frame.clone();
        padded.resize(frame.len() + 46, 0xee);
        assert_eq!(Frame::parse(&padded), Ok(expected), "{name}, padded");

        let Frame { ethernet, envelope, packet } = expected;
        let mut out = vec![0x55; frame.len()];
        assert_eq!(packet.frame_bytes(&ethernet, &envelope), frame.len(), "{name}");
        assert_eq!(packet.write_frame(&ethernet, &envelope, &mut out), Ok(frame.len()), "{name}");
        assert_eq!(out, frame, "{name}");

        let datagram = UdpFrame::parse(&frame).unwrap().payload;
        assert_eq!(packet.write_datagram(&envelope, &mut out), Ok(datagram.len()), "{name}");
        assert_eq!(&out[..datagram.len()], datagram, "{name}");
        for short in 0..datagram.len() {
            assert_eq!(
                packet.write_datagram(&envelope, &mut out[..short]).map_err(|error| error.reason()),
                Err("buffer_too_small"),
                "{name}, {short} bytes"
            );
        }
        for short in 0..frame.len() {
            assert_eq!(
                packet.write_frame(&ethernet, &envelope, &mut out[..short]).map_err(|error| error.reason()),
                Err("buffer_too_small"),
                "{name}, {short} bytes"
            );
        }
    }
    assert_eq!(good, 37);
    // Every reason that a frame can be refused for has a vector: all but the three of building.
    assert_eq!(refused.len(), 21, "{refused:?}");
}

/// What a socket sees: the payload and the peer's address, not the IP header. Time to live, DSCP, ECN and flow label may
/// have changed on the way, a numbered packet cannot be checked.
#[test]
fn datagrams_with_known_addresses() {
    for record in Record::all(include_str!("vectors/packets.txt")) {
        if record.0.contains_key("error") {
            continue;
        }
        let end = |address, port| SocketAddr::new(record.number(address), record.number(port));
        let known = Envelope::socket(end("source", "source_port"), end("destination", "destination_port")).unwrap();
        let frame = record.bytes("frame");
        let udp = UdpFrame::parse(&frame).unwrap();
        let parsed = Packet::parse_datagram(&known, udp.payload);
        if record.text("name") == "read-request-numbered-marked" {
            assert_eq!(parsed.unwrap_err().reason(), "icrc");
        } else {
            assert_eq!(parsed, udp.packet());
        }
    }
}

fn complete<T: std::fmt::Debug>(decoded: Decoded<T>) -> (T, usize) {
    match decoded {
        Decoded::Complete { value, consumed_bytes } => (value, consumed_bytes),
        Decoded::Need { missing_bytes } => panic!("{missing_bytes} bytes missing"),
    }
}

#[test]
fn tcp_request() {
    let records = Record::all(include_str!("vectors/tcp_read.txt"));
    let record = records.iter().find(|record| record.text("name") == "request").unwrap();
    let reads: Vec<Read> = record
        .text("reads")
        .split(' ')
        .map(|read| {
            let mut fields = read.split('/').map(|field| field.parse::<u64>().unwrap());
            let mut next = || fields.next().unwrap();
            Read { va: next(), rkey: next().try_into().unwrap(), length_bytes: next().try_into().unwrap() }
        })
        .collect();
    let message = record.bytes("message");
    let mut out = vec![0; message.len()];
    assert_eq!(tcp_read::encode_request(record.number("request_id"), &reads, &mut out), Ok(message.len()));
    assert_eq!(out, message);
    let (request, consumed) = complete(tcp_read::Request::decode(&message).unwrap());
    assert_eq!(consumed, message.len());
    assert_eq!(request.header.request_id(), record.number::<u32>("request_id"));
    assert_eq!(request.reads().collect::<Vec<_>>(), reads);
}

#[test]
fn tcp_answers() {
    let records = Record::all(include_str!("vectors/tcp_read.txt"));
    let mut answers = 0;
    for record in records.iter().filter(|record| record.0.contains_key("items")) {
        answers += 1;
        let message = record.bytes("message");
        let items: Vec<(&str, Vec<u8>)> = record
            .text("items")
            .split(' ')
            .map(|item| item.split_once('/').unwrap())
            .map(|(status, data)| (status, hex(data)))
            .collect();
        let header = Header::new(record.number("request_id"), items.len()).unwrap();
        let mut encoded = header.to_bytes().to_vec();
        let (decoded, mut at) = complete(tcp_read::decode_answer_header(&message, header).unwrap());
        assert_eq!(decoded, header);
        for (status, data) in &items {
            let length = u32::try_from(data.len()).unwrap();
            let expected = match *status {
                "ok" => Ok(&data[..]),
                "access" => Err(Refusal::Access),
                "invalid_request" => Err(Refusal::InvalidRequest),
                "overloaded" => Err(Refusal::Overloaded),
                status => panic!("status {status}"),
            };
            let (item, consumed) = complete(tcp_read::decode_answer_item(&message[at..], length.max(1)).unwrap());
            assert_eq!(item, expected);
            at += consumed;
            encoded.extend(tcp_read::encode_item_header(expected.map(|_| length)).unwrap());
            encoded.extend(data);
        }
        assert_eq!(at, message.len());
        assert_eq!(encoded, message);
    }
    assert_eq!(answers, 2);
}
