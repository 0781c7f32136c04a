// SPDX-License-Identifier: Apache-2.0
//! Computed blocks: by the test collector, an object of its own as others' collectors are.

use std::time::Duration;

use libbpf_rs::{Object, ObjectBuilder};
use onlooker_region::{Block, Identity, guard};
use onlooker_responder::{Config, Error, Exit, Kind, Rate, Region};
use onlooker_wire::{Frame, Packet, Part, Ports, ReadAnswer};

use crate::roce::for_devices;
use crate::support::{Ask, Outcome, PORT, RKEY as MEMORY_RKEY, Rig, SIDES, Side, VA, unlimited};

const COLLECTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_collector.bpf.o"));
const SLOT: u32 = 7;
const RKEY: u32 = 77;

fn install(rig: &Rig) -> Object {
    let mut object = ObjectBuilder::default().open_memory(COLLECTOR).unwrap();
    rig.responder.adopt_maps(&mut object).unwrap();
    let object = object.load().unwrap();
    let program = |name: &str| object.progs().find(|program| program.name() == name).unwrap();
    rig.responder.install_collector(SLOT, program("test_collect_tc"), program("test_collect_xdp")).unwrap();
    object
}

fn computed(rig: &Rig) -> Identity {
    let identity = Identity::first(0x12_3456, 0x65_4321);
    let kind = Kind::Computed { collector: SLOT, identity: identity.word() };
    rig.responder.add_region(RKEY, &Region { va: VA, blocks: 2, kind }).unwrap();
    identity
}

#[test]
fn a_computed_block_is_a_good_guarded_block_in_a_good_packet() {
    let rig = Rig::new(&unlimited(PORT));
    let _object = install(&rig);
    let identity = computed(&rig);
    let mut last_time_ns = 0;
    let mut runs = 0;
    for ask in [Ask::v4(), Ask::v6()] {
        for side in SIDES {
            let Outcome::Answer(answer) = rig.run(side, &ask.clone().rkey(RKEY).frame()) else { panic!("{side:?}") };
            let frame = Frame::parse(&answer).unwrap();
            let Packet::ReadAnswer(ReadAnswer { part: Part::Only(_), psn, payload, .. }) = frame.packet else {
                panic!()
            };
            assert_eq!(psn, ask.request.psn);
            let mut block = Block::default();
            block.bytes_mut().copy_from_slice(payload);
            let accepted = guard::check(&block, identity).unwrap();
            let payload = accepted.payload();
            runs += 1;
            assert_eq!((payload[0], payload[123]), (runs, u64::from(RKEY)));
            assert!(payload[1..123].iter().all(|word| *word == 0));
            let time_ns = accepted.time_ns();
            assert!(time_ns > last_time_ns);
            last_time_ns = time_ns;
        }
    }
}

#[test]
fn a_device_reads_computed_blocks_too() {
    let rig = Rig::new(&for_devices());
    let _object = install(&rig);
    let identity = computed(&rig);
    for ask in [Ask::v4(), Ask::v6()] {
        for side in SIDES {
            let Outcome::Answer(answer) = rig.run(side, &ask.clone().rkey(RKEY).frame()) else { panic!("{side:?}") };
            let Frame { envelope, packet, .. } = Frame::parse(&answer).unwrap();
            assert_eq!(envelope.ports, Ports { source: ask.source_port, destination: PORT });
            let Packet::ReadAnswer(ReadAnswer { payload, .. }) = packet else { panic!("{packet:?}") };
            let mut block = Block::default();
            block.bytes_mut().copy_from_slice(payload);
            assert_eq!(guard::check(&block, identity).unwrap().payload()[123], u64::from(RKEY));
        }
    }
}

#[test]
fn computed_regions_serve_whole_blocks_one_at_a_time() {
    let rig = Rig::new(&onlooker_responder::Config { max_read_bytes: 4096, ..unlimited(PORT) });
    let _object = install(&rig);
    computed(&rig);
    for side in SIDES {
        for (offset, length) in [(0, 8), (0, 2048), (8, 1024)] {
            let frame = Ask::v4().rkey(RKEY).at(offset, length).frame();
            let exit = if offset + u64::from(length) > 2048 { Exit::Range } else { Exit::Profile };
            assert_eq!(rig.run(side, &frame), Outcome::Drop(exit), "{offset}+{length}");
        }
        // The test collector refuses block 1.
        let second = Ask::v4().rkey(RKEY).at(1024, 1024).frame();
        assert_eq!(rig.run(side, &second), Outcome::Drop(Exit::CollectorRefused));
    }
}

#[test]
fn without_a_collector_there_is_silence() {
    let rig = Rig::new(&unlimited(PORT));
    computed(&rig);
    let frame = Ask::v6().rkey(RKEY).frame();
    for side in SIDES {
        assert_eq!(rig.run(side, &frame), Outcome::Drop(Exit::Collector));
    }
    let object = install(&rig);
    // The table keeps the programs, not the object.
    drop(object);
    std::thread::sleep(Duration::from_millis(50));
    assert!(matches!(rig.run(Side::Tc, &frame), Outcome::Answer(_)));
    rig.responder.remove_collector(SLOT).unwrap();
    assert_eq!(rig.run(Side::Tc, &frame), Outcome::Drop(Exit::Collector));
    assert!(matches!(rig.responder.remove_collector(SLOT), Err(Error::Bpf { .. })));
    for slot in [0, 64] {
        let refused = rig.responder.install_collector(slot, rig.responder.tc(), rig.responder.xdp());
        assert!(matches!(refused, Err(Error::Limit { .. })), "{slot}");
    }
}

/// A computed READ costs as many READs as there is room for in its time. Fewer processors make the count exact: each has a budget of its own.
#[test]
fn a_computed_block_costs_a_processor_s_budget_its_time() {
    let mut one = rustix::thread::CpuSet::new();
    one.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    // So low that no budget returns while the test runs.
    let rate = Rate { per_second: 1, burst: 40 };
    let answered = |rkey| {
        let rig = Rig::new(&Config { cpu_rate: Some(rate), ..unlimited(PORT) });
        let _object = install(&rig);
        computed(&rig);
        let frame = Ask::v4().rkey(rkey).frame();
        let asked = (0..2 * rate.burst).map(|_| rig.run(Side::Tc, &frame));
        asked.filter(|outcome| matches!(outcome, Outcome::Answer(_))).count()
    };
    let (memory, computed) = (answered(MEMORY_RKEY), answered(RKEY));
    assert!(memory >= 40 && computed < 40, "{memory} of memory, {computed} computed");
}
