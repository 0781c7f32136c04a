// SPDX-License-Identifier: Apache-2.0
//! VLAN tags: the kernel moves the outer one out of the frame before the program sees it, and an answer must have it again.

use std::net::IpAddr;

use onlooker_responder::{Exit, Hook};
use onlooker_wire::{Ethernet, Frame, Mac, Packet, ReadAnswer, Tag, Tags, Tpid};

use crate::requester::FrameSocket;
use crate::support::{Ask, exits, unlimited};
use crate::world::{PORT, REQUESTER_MAC, RESPONDER_MAC, World, addresses, device};

pub(crate) fn ask(ipv6: bool, tags: Tags) -> Ask {
    let (source, destination): (IpAddr, IpAddr) = addresses(ipv6);
    let base = if ipv6 { Ask::v6() } else { Ask::v4() };
    let ethernet = Ethernet { destination: Mac(RESPONDER_MAC), source: Mac(REQUESTER_MAC), tags };
    Ask { ethernet, source, destination, port: PORT, ..base }
}

/// Whether a frame is the answer to a READ.
pub(crate) fn is_answer(frame: &[u8]) -> bool {
    Frame::parse(frame).is_ok_and(|frame| matches!(frame.packet, Packet::ReadAnswer(_)))
}

const fn tag(tpid: Tpid, tci: u16) -> Tag {
    Tag { tpid, tci }
}

/// 802.1Q: an id of 0 names no VLAN, and the stack takes such a frame as one without a tag.
#[test]
fn priorities_come_back_with_the_answer() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Tc).unwrap();
    let frames = FrameSocket::new(&world);
    let mut asked = 0;
    for tags in [
        Tags::None,
        Tags::One(tag(Tpid::Customer, 0xa000)),
        Tags::One(tag(Tpid::Service, 0x0000)),
        Tags::Two { outer: tag(Tpid::Service, 0x2000), inner: tag(Tpid::Customer, 0xe000) },
    ] {
        for ipv6 in [false, true] {
            let ask = ask(ipv6, tags);
            frames.send(&ask.frame());
            let answer = frames.receive(is_answer).unwrap_or_else(|| panic!("no answer: IPv6 {ipv6}, {tags:?}"));
            let answer = Frame::parse(&answer).unwrap();
            let back = Ethernet { destination: Mac(REQUESTER_MAC), source: Mac(RESPONDER_MAC), tags };
            assert_eq!(answer.ethernet, back);
            assert_eq!(answer.envelope, ask.envelope().answer(0));
            let Packet::ReadAnswer(ReadAnswer { payload, psn, .. }) = answer.packet else { panic!() };
            assert_eq!((payload.len(), psn), (1024, ask.request.psn));
            asked += 1;
        }
    }
    assert_eq!(exits(&responder.counters().unwrap()), [(Exit::Answered, asked)]);
}

/// Who is in another VLAN of the same port is not in this network.
#[test]
fn a_frame_of_a_vlan_is_not_for_the_device_underneath() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Tc).unwrap();
    let frames = FrameSocket::new(&world);
    for tags in [
        Tags::One(tag(Tpid::Customer, 0xa064)),
        Tags::One(tag(Tpid::Service, 0x0001)),
        Tags::Two { outer: tag(Tpid::Service, 0x0065), inner: tag(Tpid::Customer, 0xe064) },
        Tags::Two { outer: tag(Tpid::Customer, 0), inner: tag(Tpid::Customer, 0x0064) },
    ] {
        for ipv6 in [false, true] {
            frames.send(&ask(ipv6, tags).frame());
        }
    }
    // What comes behind them is answered, so they have been seen.
    frames.send(&ask(false, Tags::None).frame());
    assert!(frames.receive(is_answer).is_some());
    assert_eq!(exits(&responder.counters().unwrap()), [(Exit::Answered, 1)]);
}
