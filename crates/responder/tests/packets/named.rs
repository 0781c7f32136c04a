// SPDX-License-Identifier: Apache-2.0
//! Named packets: what goes in, what comes out, what is counted.

use std::net::Ipv6Addr;

use onlooker_responder::{Exit, Prefix};
use onlooker_wire::{Tag, Tags, Tpid};

use crate::support::{Ask, Outcome, PORT, REGION_BLOCKS, Rig, unhex, unlimited};

const VECTORS: &str = include_str!("../../../wire/tests/vectors/packets.txt");

/// Offsets in an untagged IPv4 request.
mod at {
    pub(super) const DESTINATION_MAC: usize = 0;
    pub(super) const SOURCE_MAC: usize = 6;
    pub(super) const IP: usize = 14;
    pub(super) const IP_FLAGS: usize = 20;
    pub(super) const IP_CHECKSUM: usize = 24;
    pub(super) const UDP_LENGTH: usize = 38;
    pub(super) const UDP_CHECKSUM: usize = 40;
    pub(super) const BTH: usize = 42;
    pub(super) const ICRC: usize = 70;
}

/// A request's frame with some bytes replaced; the IPv4 checksum is made right again where the header was touched.
fn changed(mut frame: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
    for &(offset, value) in changes {
        frame[offset] = value;
    }
    let is_ipv4 = frame[12..14] == [0x08, 0];
    if is_ipv4
        && changes
            .iter()
            .any(|&(offset, _)| (at::IP..at::IP + 20).contains(&offset) && offset / 2 != at::IP_CHECKSUM / 2)
    {
        frame[at::IP_CHECKSUM..at::IP_CHECKSUM + 2].fill(0);
        let sum = frame[at::IP..at::IP + 20]
            .chunks(2)
            .fold(0u32, |sum, pair| sum + u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        frame[at::IP_CHECKSUM..at::IP_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}

/// An IPv4 request with options, for a port.
fn with_options(frame: &[u8], options: &[u8], port: u16) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at::UDP_LENGTH - 2..at::UDP_LENGTH].copy_from_slice(&port.to_be_bytes());
    frame.splice(at::IP + 20..at::IP + 20, options.iter().copied());
    frame[at::IP] = 0x45 + u8::try_from(options.len() / 4).unwrap();
    let bytes = u8::try_from(frame.len() - at::IP).unwrap();
    frame[at::IP + 3] = bytes;
    frame
}

/// An IPv6 request behind extension headers of these types and lengths, for a port.
fn with_extensions(headers: &[(u8, usize)], port: u16) -> Vec<u8> {
    let mut frame = Ask::v6().frame();
    frame[56..58].copy_from_slice(&port.to_be_bytes());
    let mut next = 17;
    for &(header, bytes) in headers.iter().rev() {
        let mut extension = vec![0; bytes];
        extension[0] = next;
        extension[1] = match header {
            44 => 0,
            51 => u8::try_from(bytes / 4 - 2).unwrap(),
            _ => u8::try_from(bytes / 8 - 1).unwrap(),
        };
        frame.splice(54..54, extension);
        next = header;
    }
    frame[20] = next;
    let bytes = u8::try_from(frame.len() - 54).unwrap();
    frame[19] = bytes;
    frame
}

fn tag(tpid: Tpid, tci: u16) -> Tag {
    Tag { tpid, tci }
}

#[test]
fn answers_are_the_reference_s_byte_for_byte() {
    let rig = Rig::new(&unlimited(PORT));
    let reference = rig.reference();
    // Priorities.
    let one = Tags::One(tag(Tpid::Customer, 0x6000));
    let two = Tags::Two { outer: tag(Tpid::Service, 0xf000), inner: tag(Tpid::Customer, 0x1000) };
    for base in [Ask::v4(), Ask::v6()] {
        for tags in [Tags::None, one, two] {
            let last_block = u64::from(REGION_BLOCKS - 1) * 1024;
            for (offset, length) in [
                (0, 8),
                (0, 64),
                (0, 256),
                (0, 1024),
                (1016, 8),
                (8, 1016),
                (1024, 1024),
                (last_block, 1024),
                (last_block + 1000, 24),
            ] {
                let frame = base.clone().tags(tags).at(offset, length).frame();
                let outcome = rig.agree(&reference, &frame);
                assert!(matches!(outcome, Outcome::Answer(_)), "{base:?} {tags:?} {offset}+{length}: {outcome:?}");
            }
        }
    }
}

#[test]
fn jumbo_answers_and_the_configured_code_point() {
    let config = onlooker_responder::Config { max_read_bytes: 8192, dscp: 46, ..unlimited(4792) };
    let rig = Rig::new(&config);
    let reference = rig.reference();
    for mut base in [Ask::v4(), Ask::v6()] {
        base.port = 4792;
        // test_run gives XDP programs one page: room for answers up to 3 blocks. tc has no such limit.
        for blocks in 1..=3 {
            let outcome = rig.agree(&reference, &base.clone().at(2048, blocks * 1024).frame());
            assert!(matches!(outcome, Outcome::Answer(_)), "{blocks} blocks: {outcome:?}");
        }
        for blocks in 4..=8 {
            let frame = base.clone().at(1024, blocks * 1024).frame();
            let tc = rig.run(crate::support::Side::Tc, &frame);
            let crate::support::reference::Expected::Answer(expected) = reference.respond(&frame) else { panic!() };
            assert_eq!(tc, Outcome::Answer(expected));
            assert_eq!(rig.run(crate::support::Side::Xdp, &frame), Outcome::Drop(Exit::Room));
        }
        assert_eq!(rig.agree(&reference, &base.clone().at(0, 9 * 1024).frame()), Outcome::Drop(Exit::Profile));
    }
}

#[test]
fn frames_that_are_not_ours_go_to_the_stack() {
    let rig = Rig::new(&unlimited(PORT));
    let reference = rig.reference();
    let ask = Ask::v4().frame();
    let three_tags = {
        let mut frame =
            Ask::v4().tags(Tags::Two { outer: tag(Tpid::Customer, 0), inner: tag(Tpid::Customer, 0) }).frame();
        frame.splice(12..12, [0x81, 0, 0, 0]);
        frame
    };
    let mut other_port = Ask::v6();
    other_port.port = PORT + 1;
    let mut other_host = Ask::v6();
    other_host.destination = "fd00::b3".parse().unwrap();
    let mut other_host_4 = Ask::v4();
    other_host_4.destination = "10.1.2.5".parse().unwrap();
    for (name, frame) in [
        ("another port", other_port.frame()),
        ("another host", other_host.frame()),
        ("another host, IPv4", other_host_4.frame()),
        ("broadcast", changed(ask.clone(), &[(at::DESTINATION_MAC, 0xff)])),
        ("from a group address", changed(ask.clone(), &[(at::SOURCE_MAC, 0x01)])),
        ("ARP", changed(ask.clone(), &[(13, 0x06)])),
        ("three tags", three_tags),
        ("a VLAN", Ask::v4().tags(Tags::One(tag(Tpid::Customer, 1))).frame()),
        ("a VLAN in a provider's", Ask::v6().tags(Tags::One(tag(Tpid::Service, 0xffff))).frame()),
        ("a VLAN behind a priority", {
            let tags = Tags::Two { outer: tag(Tpid::Customer, 0x6000), inner: tag(Tpid::Customer, 0x0064) };
            Ask::v4().tags(tags).frame()
        }),
        ("an IPv4 address as an IPv6 one", {
            let mut frame = Ask::v6().frame();
            frame[38..54].copy_from_slice(&"::ffff:10.1.2.4".parse::<Ipv6Addr>().unwrap().octets());
            frame
        }),
        ("IPv4 options, another port", with_options(&ask, &[0x94, 4, 0, 0], PORT + 1)),
        ("IPv4 header without its addresses", changed(ask.clone(), &[(at::IP, 0x44)])),
        ("IPv4 version", changed(ask.clone(), &[(at::IP, 0x65)])),
        ("TCP", changed(ask.clone(), &[(at::IP + 9, 6)])),
        ("a later fragment", changed(ask.clone(), &[(at::IP_FLAGS, 0), (at::IP_FLAGS + 1, 1)])),
        ("IPv6 options, another port", with_extensions(&[(0, 8)], PORT + 1)),
        ("a later IPv6 fragment", {
            let mut frame = with_extensions(&[(44, 8)], PORT);
            frame[14 + 40 + 3] = 8;
            frame
        }),
        ("more IPv6 extension headers than are followed", with_extensions(&[(60, 8); 9], PORT)),
        (
            "IPv6 extension headers that never end",
            Ask::v6().frame()[..54]
                .iter()
                .enumerate()
                .map(|(at, byte)| if at == 20 { 60 } else { *byte })
                .chain([60, 255, 0, 0])
                .collect(),
        ),
        ("IPv6 without a next header", changed(Ask::v6().frame(), &[(20, 59)])),
        ("cut within UDP", ask[..at::BTH - 1].to_vec()),
        ("cut within IP", ask[..at::IP + 19].to_vec()),
        ("cut within IPv6", Ask::v6().frame()[..53].to_vec()),
        ("cut within a tag", Ask::v4().tags(Tags::One(tag(Tpid::Customer, 5))).frame()[..17].to_vec()),
    ] {
        assert_eq!(rig.agree(&reference, &frame), Outcome::Pass, "{name}");
    }
}

#[test]
fn frames_that_are_ours_and_wrong_are_dropped_and_counted() {
    let rig = Rig::new(&unlimited(PORT));
    let reference = rig.reference();
    let ask = Ask::v4();
    let good = ask.frame();
    let mut stranger = ask.clone();
    stranger.source = "10.1.2.9".parse().unwrap();
    let mut stranger_6 = Ask::v6();
    stranger_6.source = "fd00::a2".parse().unwrap();
    let end = u64::from(REGION_BLOCKS) * 1024;
    let with = |changes: &[(usize, u8)]| changed(good.clone(), changes);
    for (name, frame, exit) in [
        ("stranger", stranger.frame(), Exit::Source),
        ("stranger, IPv6", stranger_6.frame(), Exit::Source),
        ("IPv4 options", with_options(&good, &[0x94, 4, 0, 0], PORT), Exit::Options),
        ("as many IPv4 options as there can be", with_options(&good, &[1; 40], PORT), Exit::Options),
        ("IPv6 hop-by-hop options", with_extensions(&[(0, 8)], PORT), Exit::Options),
        ("IPv6 routing header", with_extensions(&[(43, 24)], PORT), Exit::Options),
        ("IPv6 destination options", with_extensions(&[(60, 80)], PORT), Exit::Options),
        ("the first IPv6 fragment", with_extensions(&[(44, 8)], PORT), Exit::Options),
        ("IPv6 authentication header", with_extensions(&[(51, 24)], PORT), Exit::Options),
        ("all of them", with_extensions(&[(0, 8), (60, 16), (43, 8), (44, 8), (51, 12), (60, 8)], PORT), Exit::Options),
        ("as many as are followed", with_extensions(&[(60, 8); 8], PORT), Exit::Options),
        ("cut within the BTH", good[..at::BTH + 11].to_vec(), Exit::Truncated),
        ("cut behind UDP", good[..at::BTH].to_vec(), Exit::Truncated),
        ("WRITE", with(&[(at::BTH, 0x0a)]), Exit::Opcode),
        ("an answer", with(&[(at::BTH, 0x10)]), Exit::Opcode),
        ("UD SEND", with(&[(at::BTH, 0x64)]), Exit::Opcode),
        ("transport version", with(&[(at::BTH + 1, 0x41)]), Exit::TransportVersion),
        ("partition key", with(&[(at::BTH + 2, 0x12)]), Exit::PartitionKey),
        ("first fragment", with(&[(at::IP_FLAGS, 0x20)]), Exit::Ipv4Flags),
        ("may be fragmented", with(&[(at::IP_FLAGS, 0)]), Exit::Ipv4Flags),
        ("reserved flag", with(&[(at::IP_FLAGS, 0xc0)]), Exit::Ipv4Flags),
        ("IPv4 checksum", with(&[(at::IP_CHECKSUM, good[at::IP_CHECKSUM] ^ 1)]), Exit::Ipv4Checksum),
        ("IP length beyond the frame", with(&[(at::IP + 3, 61)]), Exit::IpLength),
        ("IP length within the header", with(&[(at::IP + 3, 19)]), Exit::IpLength),
        ("IP length without room for UDP", with(&[(at::IP + 3, 27)]), Exit::IpLength),
        ("IPv6 length beyond the frame", changed(Ask::v6().frame(), &[(19, 41)]), Exit::IpLength),
        ("IPv6 length without room for UDP", changed(Ask::v6().frame(), &[(19, 7)]), Exit::IpLength),
        ("cut within the RETH", good[..at::ICRC - 4].to_vec(), Exit::IpLength),
        ("cut within the ICRC", good[..at::ICRC + 3].to_vec(), Exit::IpLength),
        ("UDP length", with(&[(at::UDP_LENGTH + 1, 39)]), Exit::UdpLength),
        ("shorter than a READ", with(&[(at::IP + 3, 56), (at::UDP_LENGTH + 1, 36)]), Exit::RoceLength),
        (
            "longer than a READ",
            {
                let mut frame = with(&[(at::IP + 3, 64), (at::UDP_LENGTH + 1, 44)]);
                frame.extend([0; 4]);
                frame
            },
            Exit::RoceLength,
        ),
        ("pad", with(&[(at::BTH + 1, 0x50)]), Exit::PadCount),
        ("rkey", ask.clone().rkey(0).frame(), Exit::Rkey),
        ("rkey near by", ask.clone().rkey(crate::support::RKEY + 1).frame(), Exit::Rkey),
        ("before the region", ask.clone().at(0u64.wrapping_sub(1024), 1024).frame(), Exit::Range),
        ("far before the region", ask.clone().at(1 << 63, 1024).frame(), Exit::Range),
        ("behind the region", ask.clone().at(end, 8).frame(), Exit::Range),
        ("over the region's end", ask.clone().at(end - 8, 16).frame(), Exit::Range),
        ("over the end of addresses", ask.clone().at(0u64.wrapping_sub(8), 1024).frame(), Exit::Range),
        ("no bytes", ask.clone().at(0, 0).frame(), Exit::Profile),
        ("less than a word", ask.clone().at(0, 4).frame(), Exit::Profile),
        ("not whole words", ask.clone().at(0, 1020).frame(), Exit::Profile),
        ("not at a word", ask.clone().at(4, 8).frame(), Exit::Profile),
        ("over the end of a block", ask.clone().at(1016, 16).frame(), Exit::Profile),
        ("a block that does not begin at one", ask.clone().at(8, 1024).frame(), Exit::Profile),
        ("above max_read_bytes", ask.clone().at(0, 2048).frame(), Exit::Profile),
        ("neither block nor part of one", ask.clone().at(0, 1032).frame(), Exit::Profile),
        ("4 GiB", ask.clone().at(0, u32::MAX).frame(), Exit::Range),
        ("ICRC", with(&[(at::ICRC, good[at::ICRC] ^ 1)]), Exit::Icrc),
        ("damaged PSN", with(&[(at::BTH + 11, good[at::BTH + 11] ^ 1)]), Exit::Icrc),
        ("identification without its ICRC", with(&[(at::IP + 5, 1)]), Exit::Icrc),
    ] {
        assert_eq!(rig.agree(&reference, &frame), Outcome::Drop(exit), "{name}");
    }
}

/// On the loopback device, where frames of test_run come in; those from outside are in `tests/network/martian.rs`.
#[test]
fn nobody_s_addresses_are_refused_whoever_is_allowed() {
    let rig = Rig::new(&unlimited(PORT));
    rig.responder.allow(Prefix::new(Ipv6Addr::UNSPECIFIED.into(), 0).unwrap()).unwrap();
    let mut reference = rig.reference();
    for (source, exit) in [
        ("0.0.0.0", Some(Exit::Martian)),
        ("0.1.2.3", Some(Exit::Martian)),
        ("224.0.0.1", Some(Exit::Martian)),
        ("239.255.255.255", Some(Exit::Martian)),
        ("255.255.255.255", Some(Exit::Martian)),
        ("::", Some(Exit::Martian)),
        ("ff02::1", Some(Exit::Martian)),
        ("::ffff:10.1.2.3", Some(Exit::Martian)),
        ("::ffff:127.0.0.1", Some(Exit::Martian)),
        ("127.0.0.1", None),
        ("::1", None),
        ("240.0.0.1", None),
        (crate::support::RESPONDER_IP4, None),
        (crate::support::RESPONDER_IP6, None),
    ] {
        let source: std::net::IpAddr = source.parse().unwrap();
        reference.sources.push(source);
        let frame = Ask { source, ..if source.is_ipv4() { Ask::v4() } else { Ask::v6() } }.frame();
        match (rig.agree(&reference, &frame), exit) {
            (Outcome::Drop(found), Some(exit)) => assert_eq!(found, exit, "{source}"),
            (Outcome::Answer(_), None) => {}
            (outcome, _) => panic!("{source}: {outcome:?}"),
        }
    }
}

#[test]
fn what_the_icrc_leaves_out_may_change_on_the_way() {
    let rig = Rig::new(&unlimited(PORT));
    let reference = rig.reference();
    let good = Ask::v4().frame();
    let mut trailer = good.clone();
    trailer.extend([0xaa; 1200]);
    for (name, frame) in [
        ("congestion mark and hop limit", changed(good.clone(), &[(at::IP + 1, 0x03), (at::IP + 8, 7)])),
        ("UDP checksum", changed(good.clone(), &[(at::UDP_CHECKSUM, 0x12), (at::UDP_CHECKSUM + 1, 0x34)])),
        ("resv8a", changed(good.clone(), &[(at::BTH + 4, 0xc0)])),
        (
            "IPv6 class, label and hop limit",
            changed(Ask::v6().frame(), &[(14, 0x6f), (15, 0x12), (16, 0x34), (17, 0x56), (21, 1)]),
        ),
        ("a trailer behind the IP packet", trailer),
    ] {
        assert!(matches!(rig.agree(&reference, &frame), Outcome::Answer(_)), "{name}");
    }
    // Solicited event, migration state, acknowledge request and a limited partition key are covered, and ignored when read.
    for (offset, value) in [(at::BTH + 1, 0x80), (at::BTH + 8, 0), (at::BTH + 2, 0x7f)] {
        let mut frame = changed(good.clone(), &[(offset, value)]);
        let envelope = Ask::v4().envelope();
        let icrc = onlooker_wire::icrc::Icrc::compute(&envelope, &frame[at::BTH..at::ICRC]).unwrap();
        frame[at::ICRC..].copy_from_slice(&icrc.to_le_bytes());
        assert!(matches!(rig.agree(&reference, &frame), Outcome::Answer(_)), "{offset} {value:#x}");
    }
}

#[test]
fn vectors_of_the_wire_crate() {
    let rig = Rig::new(&unlimited(PORT));
    let reference = rig.reference();
    // Some vectors have a changed source, for their ICRC's sake.
    rig.responder.allow(Prefix::new(Ipv6Addr::UNSPECIFIED.into(), 0).unwrap()).unwrap();
    let (mut answered, mut dropped, mut passed) = (0, 0, 0);
    for record in VECTORS.split("\n\n") {
        let field = |key: &str| record.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        let (Some(name), Some(frame)) = (field("name"), field("frame")) else { continue };
        let frame = unhex(frame);
        // The kernel's test_run wants a whole Ethernet header.
        if frame.len() < 14 {
            continue;
        }
        match rig.agree(&reference, &frame) {
            Outcome::Answer(_) => {
                assert!(name.starts_with("read-request"), "{name} was answered");
                answered += 1;
            }
            Outcome::Drop(exit) => {
                // Packets of the other opcodes never get as far as what is wrong with them.
                let expected = match field("error") {
                    _ if exit == Exit::Opcode => "opcode",
                    Some("ipv4_fragment") => "ipv4_flags",
                    Some("ipv4_options") => "options",
                    // Where the programs see it first by the lengths that the headers state.
                    Some("truncated") if [Exit::IpLength, Exit::RoceLength].contains(&exit) => exit.name(),
                    Some(error) => error,
                    None => "opcode",
                };
                assert_eq!(exit.name(), expected, "{name}");
                dropped += 1;
            }
            Outcome::Pass | Outcome::Passed => {
                // Answers are for the requester's address, and what is of a VLAN for its device.
                let is_of_vlan = ["read-request-vlan", "read-request-qinq"].contains(&name);
                assert!(!name.starts_with("read-request") || is_of_vlan, "{name} was passed on");
                passed += 1;
            }
        }
    }
    assert!(answered >= 4 && dropped >= 25 && passed >= 10, "{answered} answered, {dropped} dropped, {passed} passed");
}
