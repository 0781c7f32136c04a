// SPDX-License-Identifier: Apache-2.0
//! RoCEv2's own port: RDMA devices ask there, and others may be at home there.

use std::time::{Duration, Instant};

use onlooker_responder::{Config, Exit, Rate};
use onlooker_wire::{Frame, Msn, Packet, Part, Ports, Psn, ROCE_PORT, ReadAnswer};

use crate::support::{Ask, Outcome, PORT, REGION_BLOCKS, RKEY, Rig, SIDES, Side, unlimited};

/// What soft requesters ask at; requests of [`Ask`] go to RoCEv2's.
const OWN_PORT: u16 = PORT + 1;
const _: () = assert!(PORT == ROCE_PORT);

pub(crate) fn for_devices() -> Config {
    Config { roce: true, ..unlimited(OWN_PORT) }
}

/// A request with one byte of its BTH or of what is behind it replaced.
fn with(ask: &Ask, offset: usize, value: u8) -> Vec<u8> {
    let mut frame = ask.frame();
    frame[bth(ask) + offset] = value;
    frame
}

/// Where the BTH of an untagged request is.
fn bth(ask: &Ask) -> usize {
    if ask.source.is_ipv4() { 42 } else { 62 }
}

fn stranger(ask: &Ask) -> Ask {
    let source = if ask.source.is_ipv4() { "10.1.2.9" } else { "fd00::a2" };
    Ask { source: source.parse().unwrap(), ..ask.clone() }
}

#[test]
fn a_device_is_answered_where_devices_receive_and_a_socket_where_it_asked_from() {
    let rig = Rig::new(&for_devices());
    let reference = rig.reference();
    for base in [Ask::v4(), Ask::v6()] {
        for (psn, msn) in [(0, 1), (0x12_3456, 0x12_3457), (0xff_ffff, 0)] {
            for (offset, length) in [(0, 8), (1016, 8), (8, 1016), (0, 1024), (1024, 1024)] {
                for port in [PORT, OWN_PORT] {
                    let mut ask = Ask { port, ..base.clone() }.at(offset, length);
                    ask.request.psn = Psn::wrapping(psn);
                    // Both programs, and the ICRC, which the parser checks.
                    let Outcome::Answer(answer) = rig.agree(&reference, &ask.frame()) else { panic!("{ask:?}") };
                    let Frame { envelope, packet, .. } = Frame::parse(&answer).unwrap();
                    let back = match port {
                        PORT => Ports { source: ask.source_port, destination: PORT },
                        _ => Ports { source: OWN_PORT, destination: ask.source_port },
                    };
                    assert_eq!((envelope.ip.source(), envelope.ports), (ask.destination, back));
                    let Packet::ReadAnswer(ReadAnswer { part: Part::Only(aeth), destination, psn, payload }) = packet
                    else {
                        panic!("{packet:?}")
                    };
                    assert_eq!((destination, psn), (ask.request.destination, ask.request.psn));
                    assert_eq!((aeth.msn, payload.len()), (Msn::wrapping(msn), usize::try_from(length).unwrap()));
                }
            }
        }
    }
}

#[test]
fn what_is_others_goes_on_to_them() {
    let rig = Rig::new(&for_devices());
    let reference = rig.reference();
    let end = u64::from(REGION_BLOCKS) * 1024;
    for ask in [Ask::v4(), Ask::v6()] {
        let (good, bth) = (ask.frame(), bth(&ask));
        for (name, frame, outcome) in [
            ("SEND", with(&ask, 0, 0x04), Outcome::Pass),
            ("WRITE", with(&ask, 0, 0x0a), Outcome::Pass),
            ("an answer to who reads from here", with(&ask, 0, 0x10), Outcome::Pass),
            ("an acknowledge", with(&ask, 0, 0x11), Outcome::Pass),
            ("a datagram", with(&ask, 0, 0x64), Outcome::Pass),
            ("no RoCE at all", good[..bth + 5].to_vec(), Outcome::Pass),
            ("cut within the RETH", good[..bth + 27].to_vec(), Outcome::Pass),
            ("another key", ask.clone().rkey(RKEY + 1).frame(), Outcome::Passed),
            ("before the region", ask.clone().at(0u64.wrapping_sub(8), 8).frame(), Outcome::Passed),
            ("far before the region", ask.clone().at(1 << 63, 1024).frame(), Outcome::Passed),
            ("behind the region", ask.clone().at(end, 8).frame(), Outcome::Passed),
            ("over the region's end", ask.clone().at(end - 8, 16).frame(), Outcome::Passed),
            ("a stranger's WRITE", with(&stranger(&ask), 0, 0x0a), Outcome::Pass),
            ("a stranger that has guessed", stranger(&ask).frame(), Outcome::Passed),
            ("a stranger that guesses", stranger(&ask).rkey(RKEY + 1).frame(), Outcome::Passed),
            ("another port", Ask { port: PORT - 1, ..ask.clone() }.frame(), Outcome::Pass),
        ] {
            assert_eq!(rig.agree(&reference, &frame), outcome, "{name} from {}", ask.source);
        }
        // On the port that the responder owns nothing goes on.
        let own = |ask: Ask| Ask { port: OWN_PORT, ..ask };
        for (frame, exit) in [
            (with(&own(ask.clone()), 0, 0x0a), Exit::Opcode),
            (own(ask.clone().rkey(RKEY + 1)).frame(), Exit::Rkey),
            (own(stranger(&ask)).frame(), Exit::Source),
        ] {
            assert_eq!(rig.agree(&reference, &frame), Outcome::Drop(exit));
        }
    }
}

#[test]
fn what_is_ours_and_wrong_is_dropped_and_counted() {
    let rig = Rig::new(&for_devices());
    let reference = rig.reference();
    for ask in [Ask::v4(), Ask::v6()] {
        let last = ask.frame().len() - 1 - bth(&ask);
        let damaged = ask.frame()[bth(&ask) + last] ^ 1;
        for (name, frame, exit) in [
            ("transport version", with(&ask, 1, 0x41), Exit::TransportVersion),
            ("partition key", with(&ask, 2, 0x12), Exit::PartitionKey),
            ("pad", with(&ask, 1, 0x50), Exit::PadCount),
            ("cut within the ICRC", ask.frame()[..bth(&ask) + last].to_vec(), Exit::IpLength),
            ("no bytes", ask.clone().at(0, 0).frame(), Exit::Profile),
            ("not whole words", ask.clone().at(0, 12).frame(), Exit::Profile),
            ("over the end of a block", ask.clone().at(1016, 16).frame(), Exit::Profile),
            ("more than one packet", ask.clone().at(0, 2048).frame(), Exit::Profile),
            ("ICRC", with(&ask, last, damaged), Exit::Icrc),
        ] {
            assert_eq!(rig.agree(&reference, &frame), Outcome::Drop(exit), "{name} from {}", ask.source);
        }
    }
}

#[test]
fn without_a_lease_everything_goes_on_and_counts() {
    let rig = Rig::new(&for_devices());
    rig.responder.set_lease(Duration::ZERO).unwrap();
    for side in SIDES {
        for ask in [Ask::v4(), Ask::v6()] {
            assert_eq!(rig.run(side, &ask.frame()), Outcome::Passed);
            assert_eq!(rig.run(side, &with(&ask, 0, 0x0a)), Outcome::Pass);
            assert_eq!(rig.run(side, &Ask { port: OWN_PORT, ..ask }.frame()), Outcome::Drop(Exit::Lease));
        }
    }
}

#[test]
fn unless_it_is_switched_on_the_port_is_left_alone() {
    let rig = Rig::new(&unlimited(OWN_PORT));
    let reference = rig.reference();
    for ask in [Ask::v4(), Ask::v6()] {
        for frame in [ask.frame(), ask.clone().rkey(0).frame(), stranger(&ask).frame(), with(&ask, 0, 0x0a)] {
            assert_eq!(rig.agree(&reference, &frame), Outcome::Pass);
        }
    }
}

#[test]
fn only_what_is_ours_costs_its_source_s_budget() {
    // So low that no budget returns while the test runs.
    let rate = Rate { per_second: 1, burst: 5 };
    let rig = Rig::new(&Config { source_rate: Some(rate), ..for_devices() });
    let start = Instant::now();
    for _ in 0..2 * rate.burst {
        assert_eq!(rig.run(Side::Tc, &Ask::v4().rkey(RKEY + 1).frame()), Outcome::Passed);
        assert_eq!(rig.run(Side::Xdp, &with(&Ask::v4(), 0, 0x0a)), Outcome::Pass);
    }
    for _ in 0..rate.burst {
        assert!(matches!(rig.run(Side::Xdp, &Ask::v4().frame()), Outcome::Answer(_)));
    }
    let sixth = rig.run(Side::Tc, &Ask::v4().frame());
    assert!(sixth == Outcome::Drop(Exit::SourceRate) || start.elapsed() > Duration::from_secs(1), "{sixth:?}");
}
