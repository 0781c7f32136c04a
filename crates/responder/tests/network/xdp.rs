// SPDX-License-Identifier: Apache-2.0
//! READs answered by the driver's XDP hook.

use onlooker_responder::{Device, Error, Exit, Hook};
use onlooker_wire::{Frame, Packet, ReadAnswer, Tags};

use crate::requester::{FrameSocket, UdpRequester};
use crate::support::{exits, unlimited};
use crate::tagged::{ask, is_answer};
use crate::world::{PORT, REQUESTER_DEVICE, World, device, programs_shown};

#[test]
fn native_xdp_answers_what_fits_the_frame_s_room() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Xdp).unwrap();
    // veth takes frames from XDP only if its peer has a program too: one that passes everything on.
    let passing = onlooker_responder::Pinned::load(&unlimited(PORT), &world.home("passing")).unwrap();
    world.at_requester(|| passing.attach(&Device::named(REQUESTER_DEVICE).unwrap(), Hook::Xdp).map(drop)).unwrap();
    passing.set_own_addresses(&[]).unwrap();

    let mut requester = UdpRequester::new(&world, false);
    for length in [8, 64] {
        assert_eq!(requester.read_at(0, length).map(|answer| answer.len()), Some(usize::try_from(length).unwrap()));
    }
    // How much a frame on veth can grow depends on the kernel; what does not fit is counted and not answered wrongly.
    let before = responder.counters().unwrap();
    let answer = requester.read_at(0, 1024);
    let counted = exits(&responder.counters().unwrap().since(&before));
    assert_eq!(counted, [(if answer.is_some() { Exit::Answered } else { Exit::Room }, 1)]);

    // A request padded behind its IP packet to the size of the answer needs no room.
    let frames = FrameSocket::new(&world);
    for ipv6 in [false, true] {
        let mut frame = ask(ipv6, Tags::None).frame();
        frame.resize(14 + if ipv6 { 1092 } else { 1072 }, 0);
        frames.send(&frame);
        let answer = frames.receive(is_answer).unwrap();
        let Packet::ReadAnswer(ReadAnswer { payload, .. }) = Frame::parse(&answer).unwrap().packet else { panic!() };
        assert_eq!(payload.len(), 1024);
    }
}

#[test]
fn one_program_a_device_and_no_owner_pushed_aside() {
    let world = World::new();
    let first = world.responder(&unlimited(PORT));
    let second = onlooker_responder::Pinned::load(&unlimited(PORT + 1), &world.home("second")).unwrap();
    let refused = |responder: &onlooker_responder::Pinned, hook, words: &[&str]| {
        let error = responder.attach(&device(), hook).unwrap_err();
        assert!(matches!(error, Error::Taken { .. }), "{error}");
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    for (own, other) in [(Hook::Xdp, Hook::Tc), (Hook::Tc, Hook::Xdp)] {
        let attachment = first.attach(&device(), own).unwrap();
        for hook in [own, other] {
            refused(&first, hook, &["ve1", "Onlooker"]);
            refused(&second, hook, &["ve1", "Onlooker"]);
        }
        first.detach(&attachment).unwrap();
        assert_eq!(first.attachments(), []);
        assert!(!programs_shown().contains("xdp") && !programs_shown().contains("clsact"), "{}", programs_shown());
    }
    // Free again.
    second.attach(&device(), Hook::Xdp).unwrap();
    refused(&first, Hook::Tc, &["native XDP program onlooker_xdp"]);
}

#[test]
fn devices_that_cannot_be_served_are_refused() {
    let world = World::new();
    let responder = world.responder(&onlooker_responder::Config { max_read_bytes: 8192, ..unlimited(PORT) });
    let error = responder.attach(&device(), Hook::Tc).unwrap_err();
    assert!(matches!(error, Error::Mtu { mtu_bytes: 1500, needed_bytes: 8260, .. }), "{error}");
    // veth has native XDP, the loopback device has not.
    let error = responder.attach(&Device::named("lo").unwrap(), Hook::Xdp).unwrap_err();
    assert!(matches!(&error, Error::System { operation: "attaching", .. }), "{error}");
    assert!(error.to_string().contains("use tc"), "{error}");
    assert_eq!(responder.attachments(), []);
}
