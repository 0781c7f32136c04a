// SPDX-License-Identifier: Apache-2.0
//! RoCEv2's own port, beside a socket that has it: READs of the responder's regions are answered as devices want it, the rest is the socket's.

use std::net::{Ipv6Addr, UdpSocket};
use std::time::Duration;

use onlooker_responder::{Config, Exit, Hook, Outcome, Pinned};
use onlooker_testbed::uninterrupted;
use onlooker_wire::{Frame, Ports, ROCE_PORT, Tags};

use crate::requester::FrameSocket;
use crate::support::{Ask, RKEY, exits, unlimited};
use crate::tagged::{ask, is_answer};
use crate::world::{PORT, World, device};

fn to_roce(ipv6: bool) -> Ask {
    Ask { port: ROCE_PORT, ..ask(ipv6, Tags::None) }
}

/// The datagrams that have come to a socket, by their lengths.
fn come_to(socket: &UdpSocket) -> Vec<usize> {
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| uninterrupted(|| socket.recv(&mut buffer)).ok()).collect()
}

#[test]
fn a_socket_keeps_the_port_and_devices_are_answered_beside_it() {
    let world = World::new();
    let responder = world.responder(&Config { roce: true, ..unlimited(PORT) });
    responder.attach(&device(), Hook::Tc).unwrap();
    let frames = FrameSocket::new(&world);
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, ROCE_PORT)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    for ipv6 in [false, true] {
        let ask = to_roce(ipv6);
        frames.send(&ask.frame());
        let answer = frames.receive(is_answer).unwrap_or_else(|| panic!("no answer: IPv6 {ipv6}"));
        let ports = Frame::parse(&answer).unwrap().envelope.ports;
        assert_eq!(ports, Ports { source: ask.source_port, destination: ROCE_PORT });
    }
    assert!(come_to(&socket).is_empty(), "what is answered does not come to the socket");
    // Over IPv4, where a datagram without UDP checksum reaches a socket without further ado.
    frames.send(&to_roce(false).rkey(RKEY + 1).frame());
    assert_eq!(come_to(&socket), vec![32], "BTH, RETH and ICRC");
    assert_eq!(exits(&responder.counters().unwrap()), [(Exit::Answered, 2), (Exit::Passed, 1)]);
}

#[test]
fn it_is_switched_on_and_off_in_place() {
    let world = World::new();
    let home = world.home("test");
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Tc).unwrap();
    drop(responder);
    let frames = FrameSocket::new(&world);
    for roce in [true, false, true] {
        let config = Config { roce, ..unlimited(PORT) };
        let (responder, outcome) = Pinned::ensure(&config, &home).unwrap();
        assert_eq!((outcome, *responder.config()), (Outcome::Replaced, config));
        assert_eq!(Pinned::ensure(&config, &home).unwrap().1, Outcome::Reopened);
        frames.send(&to_roce(true).frame());
        assert_eq!(frames.receive(is_answer).is_some(), roce);
        // The port of its own goes on all the while.
        frames.send(&ask(true, Tags::None).frame());
        assert!(frames.receive(is_answer).is_some());
    }
}
