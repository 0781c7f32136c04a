// SPDX-License-Identifier: Apache-2.0
//! Neighbours write any source address into their frames and any tag around them. What cannot come from outside gets no answer, by either program, even if
//! everybody may ask.

use std::net::{IpAddr, Ipv6Addr};

use onlooker_responder::{Config, Device, Exit, Hook, Pinned, Prefix};
use onlooker_wire::{ROCE_PORT, Tags};

use crate::requester::FrameSocket;
use crate::support::{Ask, exits, unlimited};
use crate::tagged::{ask, is_answer};
use crate::world::{PORT, REQUESTER_DEVICE, REQUESTER_IP4, REQUESTER_IP6, RESPONDER_IP4, RESPONDER_IP6, World, device};

/// Addresses that no frame from outside can be from: of loopback, of the host itself, of nobody.
const MARTIANS: [&str; 10] = [
    "127.0.0.1",
    "127.255.0.3",
    "::1",
    RESPONDER_IP4,
    RESPONDER_IP6,
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "ff02::1",
    "::ffff:10.77.1.2",
];

/// A READ of 32 bytes, which even an answer of XDP has room for, padded to the answer's size.
fn frame(ask: Ask) -> Vec<u8> {
    let mut frame = ask.at(0, 32).frame();
    frame.resize(frame.len() + 64, 0);
    frame
}

/// Ones' complement sum (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let sum = bytes.chunks(2).fold(0u32, |sum, pair| sum + u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum = (sum & 0xffff) + (sum >> 16);
    u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap()
}

fn from(source: &str, port: u16) -> Vec<u8> {
    let source: IpAddr = source.parse().unwrap();
    frame(Ask { source, port, ..ask(source.is_ipv6(), Tags::None) })
}

#[test]
fn a_frame_from_outside_with_an_address_that_cannot_be_there_is_dropped_by_tc() {
    check(Hook::Tc);
}

#[test]
fn a_frame_from_outside_with_an_address_that_cannot_be_there_is_dropped_by_xdp() {
    check(Hook::Xdp);
}

fn check(hook: Hook) {
    let world = World::new();
    let responder = world.responder(&Config { roce: true, ..unlimited(PORT) });
    responder.allow(Prefix::new(Ipv6Addr::UNSPECIFIED.into(), 0).unwrap()).unwrap();
    responder.attach(&device(), hook).unwrap();
    if hook == Hook::Xdp {
        // veth takes frames from XDP only if its peer has a program too: one that passes everything on.
        let passing = Pinned::load(&unlimited(PORT), &world.home("passing")).unwrap();
        world.at_requester(|| passing.attach(&Device::named(REQUESTER_DEVICE).unwrap(), hook).map(drop)).unwrap();
        passing.set_own_addresses(&[]).unwrap();
    }
    let frames = FrameSocket::new(&world);
    for source in MARTIANS {
        frames.send(&from(source, PORT));
        frames.send(&from(source, ROCE_PORT));
    }
    // What comes behind them is answered, so they have been seen.
    for (source, port) in [(REQUESTER_IP4, PORT), (REQUESTER_IP6, PORT), (REQUESTER_IP4, ROCE_PORT)] {
        frames.send(&from(source, port));
        assert!(frames.receive(is_answer).is_some(), "{hook}: {source} to {port}");
    }
    let martians = u64::try_from(MARTIANS.len()).unwrap();
    // RoCEv2's own port is left to the stack, which drops them.
    let expected = [(Exit::Answered, 3), (Exit::Martian, martians), (Exit::Passed, martians)];
    assert_eq!(exits(&responder.counters().unwrap()), expected, "{hook}");
}

/// Loopback addresses are this host's own, and may be attached to as well: but frames to them come from here only.
#[test]
fn a_frame_from_outside_to_a_loopback_address_is_none_of_ours() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Tc).unwrap();
    responder.attach(&Device::named("lo").unwrap(), Hook::Tc).unwrap();
    let frames = FrameSocket::new(&world);
    for (source, destination) in [(REQUESTER_IP4, "127.0.0.1"), (REQUESTER_IP6, "::1")] {
        let destination: IpAddr = destination.parse().unwrap();
        let mut ask = ask(destination.is_ipv6(), Tags::None);
        (ask.source, ask.destination) = (source.parse().unwrap(), destination);
        frames.send(&frame(ask));
    }
    frames.send(&from(REQUESTER_IP4, PORT));
    assert!(frames.receive(is_answer).is_some());
    assert_eq!(exits(&responder.counters().unwrap()), [(Exit::Answered, 1)]);
}

/// The stack would refuse them by ICMP, which says that somebody is there.
#[test]
fn options_and_extension_headers_get_no_answer_from_the_stack_either() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Tc).unwrap();
    let frames = FrameSocket::new(&world);
    let mut options = ask(false, Tags::None).frame();
    options.splice(34..34, [1, 1, 1, 0]);
    options[14] = 0x46;
    options[17] += 4;
    options[24..26].fill(0);
    let checksum = !sum(&options[14..38]);
    options[24..26].copy_from_slice(&checksum.to_be_bytes());
    let mut extension = ask(true, Tags::None).frame();
    extension.splice(54..54, [17, 0, 1, 4, 0, 0, 0, 0]);
    extension[20] = 60;
    extension[19] += 8;
    let is_icmp = |frame: &[u8]| {
        frame.len() > 55
            && (frame[12..14] == [8, 0] && frame[23] == 1 && frame[34] == 3
                || frame[12..14] == [0x86, 0xdd] && frame[20] == 58 && frame[54] < 128)
    };
    for frame in [&options, &extension] {
        frames.send(frame);
        assert!(frames.receive(is_icmp).is_none());
    }
    assert_eq!(exits(&responder.counters().unwrap()), [(Exit::Options, 2)]);
    // The same to a port that is nobody's: then the stack answers, so these packets are good ones.
    for (mut frame, port) in [(options, 40), (extension, 64)] {
        frame[port..port + 2].copy_from_slice(&(PORT + 1).to_be_bytes());
        if port == 64 {
            // Over IPv6 the stack wants a checksum.
            let udp = frame[62..].to_vec();
            let checksum = !sum(&[&frame[22..54], &[0, 17], &udp[4..6], &udp].concat());
            frame[68..70].copy_from_slice(&checksum.to_be_bytes());
        }
        frames.send(&frame);
        assert!(frames.receive(is_icmp).is_some(), "IPv6: {}", port == 64);
    }
}
