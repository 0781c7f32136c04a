// SPDX-License-Identifier: Apache-2.0
//! What the tests share: a responder with some memory, requests to it, and what it should answer.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod reference;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlooker_responder::{Config, Counters, Error, Exit, Kind, Prefix, Program, Region, Responder, Slab, SlabMapping};
use onlooker_wire::{Envelope, Ethernet, IpHeader, Mac, Packet, Psn, Qpn, ReadRequest, Tags};

use reference::{Expected, Reference};

pub(crate) const PORT: u16 = 4791;
pub(crate) const RESPONDER_MAC: Mac = Mac([2, 0, 0, 0, 0, 0xb2]);
pub(crate) const REQUESTER_MAC: Mac = Mac([2, 0, 0, 0, 0, 0xa1]);
pub(crate) const RESPONDER_IP4: &str = "10.1.2.4";
pub(crate) const REQUESTER_IP4: &str = "10.1.2.3";
pub(crate) const RESPONDER_IP6: &str = "fd00::b2";
pub(crate) const REQUESTER_IP6: &str = "fd00::a1";
pub(crate) const RKEY: u32 = 0xc0ff_ee11;
pub(crate) const VA: u64 = 0xdead_beef_1234_5400;
pub(crate) const SLAB_BLOCKS: u32 = 16;
/// The region leaves the slab's first two blocks and its last one to others.
pub(crate) const FIRST_BLOCK: u32 = 2;
pub(crate) const REGION_BLOCKS: u32 = 13;

/// Which program a frame is given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Tc,
    Xdp,
}

pub(crate) const SIDES: [Side; 2] = [Side::Tc, Side::Xdp];

/// What became of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Left to the stack, unchanged.
    Pass,
    /// The same, and counted: a READ request to RoCEv2's own port that is not for the responder.
    Passed,
    /// Dropped and counted.
    Drop(Exit),
    /// Sent back like this.
    Answer(Vec<u8>),
}

/// A request and all that is around it.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) ethernet: Ethernet,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) port: u16,
    pub(crate) request: ReadRequest,
}

impl Ask {
    pub(crate) fn v4() -> Self {
        Self::between(REQUESTER_IP4, RESPONDER_IP4)
    }

    pub(crate) fn v6() -> Self {
        Self::between(REQUESTER_IP6, RESPONDER_IP6)
    }

    fn between(source: &str, destination: &str) -> Self {
        Self {
            ethernet: Ethernet { destination: RESPONDER_MAC, source: REQUESTER_MAC, tags: Tags::None },
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port: 40_001,
            port: PORT,
            request: ReadRequest {
                destination: Qpn::wrapping(0x12_abcd),
                psn: Psn::wrapping(0xff_ffff),
                va: VA,
                rkey: RKEY,
                length_bytes: 1024,
            },
        }
    }

    pub(crate) fn tags(mut self, tags: Tags) -> Self {
        self.ethernet.tags = tags;
        self
    }

    pub(crate) fn at(mut self, offset_bytes: u64, length_bytes: u32) -> Self {
        self.request.va = VA.wrapping_add(offset_bytes);
        self.request.length_bytes = length_bytes;
        self
    }

    pub(crate) fn rkey(mut self, rkey: u32) -> Self {
        self.request.rkey = rkey;
        self
    }

    pub(crate) fn envelope(&self) -> Envelope {
        let destination = (self.destination, self.port).into();
        match self.source {
            // What a socket takes for an IPv4 address, a frame can still have.
            IpAddr::V6(source) if source.to_ipv4_mapped().is_some() => {
                let other = (Ipv6Addr::LOCALHOST, self.source_port).into();
                let mut envelope = Envelope::socket(other, destination).unwrap();
                let IpHeader::V6(header) = &mut envelope.ip else { unreachable!() };
                header.source = source;
                envelope
            }
            source => Envelope::socket((source, self.source_port).into(), destination).unwrap(),
        }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0; 128];
        let length = Packet::from(self.request).write_frame(&self.ethernet, &self.envelope(), &mut frame).unwrap();
        frame.truncate(length);
        frame
    }
}

/// A loaded responder with one slab, one region and both test addresses, that answers both test requesters.
pub(crate) struct Rig {
    pub(crate) responder: Responder,
    pub(crate) slab: Slab,
    pub(crate) memory: SlabMapping,
}

/// Runs share per-CPU scratch, and kernels before 6.11 may preempt one for another: one at a time.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn unlimited(port: u16) -> Config {
    Config { source_rate: None, cpu_rate: None, ..Config::new(port) }
}

impl Rig {
    pub(crate) fn new(config: &Config) -> Self {
        let responder = Responder::load(config).unwrap_or_else(|error| panic!("{error}"));
        let slab = responder.create_slab(5, SLAB_BLOCKS).unwrap();
        let memory = slab.map(0, SLAB_BLOCKS, true).unwrap();
        for (index, word) in memory.words().iter().enumerate() {
            word.store(pattern(index), Ordering::Relaxed);
        }
        responder.add_region(RKEY, &region()).unwrap();
        let own: Vec<IpAddr> = [RESPONDER_IP4, RESPONDER_IP6].map(|own| own.parse().unwrap()).to_vec();
        responder.set_own_addresses(&own).unwrap();
        for source in [REQUESTER_IP4, REQUESTER_IP6] {
            responder.allow(Prefix::host(source.parse().unwrap())).unwrap();
        }
        responder.set_lease(Duration::from_secs(3600)).unwrap();
        Self { responder, slab, memory }
    }

    /// What this responder should do, by the wire crate alone.
    pub(crate) fn reference(&self) -> Reference {
        let words = self.memory.words().iter();
        let slab: Vec<u8> = words.flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        Reference {
            config: *self.responder.config(),
            own: [RESPONDER_IP4, RESPONDER_IP6].map(|own| own.parse().unwrap()).to_vec(),
            sources: [REQUESTER_IP4, REQUESTER_IP6].map(|source| source.parse().unwrap()).to_vec(),
            regions: self.responder.regions().unwrap().into_iter().collect(),
            slab,
        }
    }

    pub(crate) fn program(&self, side: Side) -> &Program {
        match side {
            Side::Tc => self.responder.tc(),
            Side::Xdp => self.responder.xdp(),
        }
    }

    /// Gives a frame to a program; checks that exactly what the verdict says was counted.
    pub(crate) fn run(&self, side: Side, frame: &[u8]) -> Outcome {
        self.try_run(side, frame).expect("a frame that test_run takes")
    }

    /// `None` where the kernel's test_run wants more of an IP header than there is: later ones do, for tc.
    fn try_run(&self, side: Side, frame: &[u8]) -> Option<Outcome> {
        let _one = one_at_a_time();
        let before = self.responder.counters().unwrap();
        let run = match self.program(side).run(frame, 1) {
            Err(Error::System { source, .. }) if side == Side::Tc && frame.len() < 54 => {
                assert_eq!(source.raw_os_error(), Some(22), "{source}");
                return None;
            }
            run => run.unwrap(),
        };
        let counted = self.responder.counters().unwrap().since(&before);
        Some(match (side, run.verdict) {
            // TC_ACT_UNSPEC, XDP_PASS.
            (Side::Tc, u32::MAX) | (Side::Xdp, 2) => {
                assert_eq!(run.packet, frame, "a frame that was passed on was changed");
                match exits(&counted)[..] {
                    [] => Outcome::Pass,
                    [(Exit::Passed, 1)] => Outcome::Passed,
                    ref other => panic!("a frame that was passed on was counted as {other:?}"),
                }
            }
            // TC_ACT_SHOT, XDP_DROP.
            (Side::Tc, 2) | (Side::Xdp, 1) => match exits(&counted)[..] {
                [(exit, 1)] if ![Exit::Answered, Exit::Passed].contains(&exit) => Outcome::Drop(exit),
                ref other => panic!("a drop was counted as {other:?}"),
            },
            // TC_ACT_REDIRECT, XDP_TX.
            (Side::Tc, 7) | (Side::Xdp, 3) => {
                assert_eq!(exits(&counted), [(Exit::Answered, 1)]);
                Outcome::Answer(run.packet)
            }
            (side, verdict) => panic!("{side:?} verdict {verdict}"),
        })
    }

    /// Gives a frame to both programs and compares each with the reference.
    pub(crate) fn agree(&self, reference: &Reference, frame: &[u8]) -> Outcome {
        let (tc, xdp) = (self.try_run(Side::Tc, frame), self.run(Side::Xdp, frame));
        assert!(tc.is_none_or(|tc| tc == xdp), "tc and XDP differ");
        match (reference.respond(frame), &xdp) {
            (Expected::Pass, Outcome::Pass)
            | (Expected::Passed, Outcome::Passed)
            | (Expected::Drop, Outcome::Drop(_)) => {}
            (Expected::Answer(expected), Outcome::Answer(answer)) => assert_eq!(hex(answer), hex(&expected)),
            (expected, outcome) => panic!("expected {expected:?}, got {outcome:?} for {}", hex(frame)),
        }
        xdp
    }
}

pub(crate) fn region() -> Region {
    Region { va: VA, blocks: REGION_BLOCKS, kind: Kind::Memory { slab: 5, first_block: FIRST_BLOCK } }
}

/// The word `index` of the test slab: no two bytes of a neighbourhood alike.
pub(crate) fn pattern(index: usize) -> u64 {
    u64::try_from(index).unwrap().wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub(crate) fn exits(counters: &Counters) -> Vec<(Exit, u64)> {
    counters.iter().filter(|(_, count)| *count != 0).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
