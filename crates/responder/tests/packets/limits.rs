// SPDX-License-Identifier: Apache-2.0
//! Lease, sources and budgets.

use std::time::Duration;

use onlooker_responder::{Config, Exit, Prefix, Rate};

use crate::support::{Ask, Outcome, PORT, REQUESTER_IP4, REQUESTER_IP6, Rig, SIDES, Side, unlimited};

fn answered(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Answer(_))
}

#[test]
fn past_its_lease_the_responder_is_silent() {
    let rig = Rig::new(&unlimited(PORT));
    for side in SIDES {
        assert!(answered(&rig.run(side, &Ask::v4().frame())));
    }
    let until_ns = rig.responder.set_lease(Duration::ZERO).unwrap();
    assert_eq!(rig.responder.lease_until_ns().unwrap(), until_ns);
    for side in SIDES {
        assert_eq!(rig.run(side, &Ask::v4().frame()), Outcome::Drop(Exit::Lease));
    }
    rig.responder.set_lease(Duration::from_millis(300)).unwrap();
    assert!(answered(&rig.run(Side::Tc, &Ask::v6().frame())));
    std::thread::sleep(Duration::from_millis(310));
    assert_eq!(rig.run(Side::Tc, &Ask::v6().frame()), Outcome::Drop(Exit::Lease));
}

#[test]
fn a_new_responder_answers_nobody() {
    let rig = Rig::new(&unlimited(PORT));
    for source in [REQUESTER_IP4, REQUESTER_IP6] {
        rig.responder.disallow(Prefix::host(source.parse().unwrap())).unwrap();
    }
    assert_eq!(rig.responder.allowed(), []);
    assert_eq!(rig.run(Side::Tc, &Ask::v4().frame()), Outcome::Drop(Exit::Source));
    rig.responder.set_own_addresses(&[]).unwrap();
    assert_eq!(rig.run(Side::Tc, &Ask::v4().frame()), Outcome::Pass);
}

#[test]
fn sources_are_allowed_by_prefix() {
    let rig = Rig::new(&unlimited(PORT));
    for source in [REQUESTER_IP4, REQUESTER_IP6] {
        rig.responder.disallow(Prefix::host(source.parse().unwrap())).unwrap();
    }
    let prefix = |address: &str, bits| Prefix::new(address.parse().unwrap(), bits).unwrap();
    for (allowed, v4, v6) in [
        (prefix("10.1.0.0", 16), true, false),
        (prefix("10.2.0.0", 16), false, false),
        (prefix("0.0.0.0", 0), true, false),
        (prefix("fd00::", 64), false, true),
        (prefix("::", 0), true, true),
    ] {
        rig.responder.allow(allowed).unwrap();
        assert_eq!(rig.responder.allowed(), [allowed]);
        assert_eq!(answered(&rig.run(Side::Tc, &Ask::v4().frame())), v4, "{allowed}");
        assert_eq!(answered(&rig.run(Side::Xdp, &Ask::v6().frame())), v6, "{allowed}");
        rig.responder.disallow(allowed).unwrap();
    }
    assert!(rig.responder.disallow(prefix("10.1.0.0", 16)).is_err());
}

/// A rate so low that no budget returns while a test runs.
const HARDLY: Rate = Rate { per_second: 1, burst: 5 };

#[test]
fn each_source_has_a_budget_of_its_own() {
    let rig = Rig::new(&Config { source_rate: Some(HARDLY), ..unlimited(PORT) });
    let start = std::time::Instant::now();
    for _ in 0..HARDLY.burst {
        assert!(answered(&rig.run(Side::Tc, &Ask::v4().frame())));
    }
    let sixth = rig.run(Side::Xdp, &Ask::v4().frame());
    assert!(sixth == Outcome::Drop(Exit::SourceRate) || start.elapsed() > Duration::from_secs(1), "{sixth:?}");
    assert!(answered(&rig.run(Side::Tc, &Ask::v6().frame())));
    // The budget comes back with time, one request a second.
    std::thread::sleep(Duration::from_millis(1100));
    assert!(answered(&rig.run(Side::Tc, &Ask::v4().frame())));
}

#[test]
fn a_refused_source_costs_its_budget_nothing_and_others_none_of_theirs() {
    let rig = Rig::new(&Config { source_rate: Some(HARDLY), ..unlimited(PORT) });
    let mut stranger = Ask::v4();
    stranger.source = "10.9.9.9".parse().unwrap();
    for _ in 0..20 {
        assert_eq!(rig.run(Side::Tc, &stranger.frame()), Outcome::Drop(Exit::Source));
    }
    assert!(answered(&rig.run(Side::Tc, &Ask::v4().frame())));
}

/// Whoever knows no key can write any address into his packets.
#[test]
fn wrong_keys_and_other_mistakes_cost_no_budget() {
    let rig = Rig::new(&Config { source_rate: Some(HARDLY), cpu_rate: Some(HARDLY), ..unlimited(PORT) });
    let (good, mut opcode) = (Ask::v4(), Ask::v4().frame());
    opcode[42] = 0x0a;
    for _ in 0..20 {
        for side in SIDES {
            assert_eq!(rig.run(side, &good.clone().rkey(1).frame()), Outcome::Drop(Exit::Rkey));
            assert_eq!(rig.run(side, &good.clone().at(1 << 40, 1024).frame()), Outcome::Drop(Exit::Range));
            assert_eq!(rig.run(side, &good.clone().at(4, 1024).frame()), Outcome::Drop(Exit::Profile));
            assert_eq!(rig.run(side, &opcode), Outcome::Drop(Exit::Opcode));
        }
    }
    for _ in 0..HARDLY.burst {
        assert!(answered(&rig.run(Side::Tc, &good.frame())));
    }
}

#[test]
fn a_long_read_costs_a_processor_s_budget_a_read_each_block() {
    let rate = Rate { per_second: 1, burst: 20 };
    let rig = Rig::new(&Config { cpu_rate: Some(rate), max_read_bytes: 8192, ..unlimited(PORT) });
    let cpus = u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    let long = Ask::v4().at(0, 8192).frame();
    let count = (0..rate.burst * cpus).filter(|_| answered(&rig.run(Side::Tc, &long))).count();
    // Eight of twenty each; the one that exceeds is still let through.
    assert!(count <= usize::try_from(3 * cpus).unwrap(), "{count} on {cpus} processors");
}

#[test]
fn all_sources_share_each_processor_s_budget() {
    let rig = Rig::new(&Config { cpu_rate: Some(HARDLY), ..unlimited(PORT) });
    let frames = [Ask::v4().frame(), Ask::v6().frame()];
    let cpus = u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    let mut refused = 0;
    for index in 0..2 * HARDLY.burst * cpus + 2 {
        match rig.run(Side::Tc, &frames[usize::try_from(index % 2).unwrap()]) {
            Outcome::Answer(_) => {}
            Outcome::Drop(Exit::CpuRate) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused >= HARDLY.burst, "{refused} refused");
}
