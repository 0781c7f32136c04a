// SPDX-License-Identifier: Apache-2.0
//! Requests with random mistakes in them: both programs must do what the reference does, byte for byte.

use std::net::IpAddr;
use std::time::Duration;

use bolero::TypeGenerator;
use onlooker_responder::Config;
use onlooker_wire::{Psn, Qpn, Tag, Tags, Tpid};

use crate::roce::for_devices;
use crate::support::{Ask, Outcome, PORT, REGION_BLOCKS, Rig, unlimited};

/// A request near enough to a good one to get far.
#[derive(Debug, Clone, TypeGenerator)]
pub(crate) struct Case {
    ipv6: bool,
    tags: u8,
    tci: [u16; 2],
    service: [bool; 2],
    stranger: u8,
    wrong_port: u8,
    qpn: u32,
    psn: u32,
    wrong_rkey: u8,
    /// In words or blocks, most of them within the region.
    offset: u16,
    whole_blocks: bool,
    odd_offset: u8,
    length_words: u8,
    odd_length: u8,
    trailer: u8,
    cut: u8,
    fix_icrc: bool,
    damaged: bool,
    flips: [(u8, u8); 3],
}

/// A thousand cases on an emulated processor.
pub(crate) const TEST_TIME: Duration = Duration::from_secs(4);

/// One in sixteen.
fn seldom(value: u8) -> bool {
    value < 16
}

impl Case {
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut ask = if self.ipv6 { Ask::v6() } else { Ask::v4() };
        let tag = |index: usize| Tag {
            tpid: if self.service[index] { Tpid::Service } else { Tpid::Customer },
            // Three in four only tell a priority, and are for the device that the frame comes in by.
            tci: if self.tci[index] & 3 == 0 { self.tci[index] } else { self.tci[index] & 0xf000 },
        };
        ask.ethernet.tags = match self.tags % 3 {
            0 => Tags::None,
            1 => Tags::One(tag(0)),
            _ => Tags::Two { outer: tag(0), inner: tag(1) },
        };
        if seldom(self.stranger) {
            ask.source = if self.ipv6 { "fd00::a2".parse::<IpAddr>() } else { "10.1.2.2".parse() }.unwrap();
        }
        if seldom(self.wrong_port) {
            ask.port = PORT ^ u16::from(self.wrong_port);
        }
        ask.request.destination = Qpn::wrapping(self.qpn);
        ask.request.psn = Psn::wrapping(self.psn);
        if seldom(self.wrong_rkey) {
            ask.request.rkey ^= u32::from(self.wrong_rkey);
        }
        let mut offset = if self.whole_blocks {
            u64::from(self.offset) % u64::from(REGION_BLOCKS + 1) * 1024
        } else {
            u64::from(self.offset) % (u64::from(REGION_BLOCKS) * 128 + 8) * 8
        };
        let mut length = if self.whole_blocks { 1024 } else { u32::from(self.length_words) * 8 };
        if seldom(self.odd_offset) {
            offset = offset.wrapping_sub(u64::from(self.odd_offset));
        }
        if seldom(self.odd_length) {
            length = length.wrapping_sub(u32::from(self.odd_length));
        }
        ask = ask.at(offset, length);
        let mut frame = ask.frame();
        if self.damaged {
            for (at, flip) in self.flips {
                let at = usize::from(at) % frame.len();
                frame[at] ^= flip;
            }
            if self.fix_icrc {
                fix_icrc(&mut frame);
            }
        }
        if seldom(self.trailer) {
            frame.extend(std::iter::repeat_n(self.trailer, usize::from(self.cut)));
        } else if seldom(self.cut) {
            frame.truncate((frame.len() - usize::from(self.cut) * 4).max(14));
        }
        frame
    }
}

/// Makes the checks before the ICRC decide: gives a changed frame the checksums that fit it, where it still is a packet.
fn fix_icrc(frame: &mut [u8]) {
    let Ok(udp) = onlooker_wire::UdpFrame::parse(frame) else { return };
    let length = udp.payload.len();
    if length < 16 {
        return;
    }
    let Ok(icrc) = onlooker_wire::icrc::Icrc::compute(&udp.envelope, &udp.payload[..length - 4]) else { return };
    let end = udp.ethernet.len_bytes() + udp.envelope.len_bytes() + length;
    frame[end - 4..end].copy_from_slice(&icrc.to_le_bytes());
}

#[test]
fn programs_and_reference_agree_on_mutated_requests() {
    agree_on_mutated_requests(&unlimited(PORT));
}

#[test]
fn programs_and_reference_agree_on_mutated_requests_of_devices() {
    agree_on_mutated_requests(&for_devices());
}

#[allow(clippy::print_stdout)]
fn agree_on_mutated_requests(config: &Config) {
    let rig = Rig::new(config);
    let reference = rig.reference();
    let (passed, dropped, answered) = (Tally::default(), Tally::default(), Tally::default());
    bolero::check!().with_test_time(TEST_TIME).with_type::<Case>().for_each(|case| {
        match rig.agree(&reference, &case.frame()) {
            Outcome::Pass | Outcome::Passed => &passed,
            Outcome::Drop(_) => &dropped,
            Outcome::Answer(_) => &answered,
        }
        .add();
    });
    println!("mutated requests: {} passed on, {} dropped, {} answered", passed.get(), dropped.get(), answered.get());
    // Otherwise the generator is at fault.
    for (name, tally) in [("passed", &passed), ("dropped", &dropped), ("answered", &answered)] {
        assert!(tally.get() >= 10, "{name}: {}", tally.get());
    }
}

/// A counter that a `Fn` closure may use.
#[derive(Default)]
struct Tally(std::sync::atomic::AtomicU32);

impl Tally {
    fn add(&self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn get(&self) -> u32 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[test]
fn random_frames_for_our_port_never_get_an_answer_that_the_reference_refuses() {
    let rig = Rig::new(&unlimited(PORT));
    let reference = rig.reference();
    bolero::check!().with_test_time(TEST_TIME).with_type::<(bool, Vec<u8>)>().for_each(|(ipv6, bytes)| {
        let mut frame = if *ipv6 { Ask::v6().frame() } else { Ask::v4().frame() };
        let keep = frame.len() - 32;
        frame.truncate(keep);
        frame.extend_from_slice(bytes);
        rig.agree(&reference, &frame);
    });
}
