// SPDX-License-Identifier: Apache-2.0
//! Published twins.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use onlooker_metrics::collect::{InstalledGroup, Options, Publication, Published};
use onlooker_metrics::groups::Group;
use onlooker_region::block::Identity;
use onlooker_region::{Block, Reject, guard};
use onlooker_responder::{Error, Slab, SlabMapping};
use onlooker_testbed::try_often;

use crate::regions::{Collecting, between, identity, values};
use crate::support::SIDES;

const FIRST: u32 = 5;
const INTERVAL: Duration = Duration::from_millis(20);

/// Blocks of a twin, each as soon as it is whole.
fn twin(memory: &SlabMapping, group: &InstalledGroup, identity: Identity) -> Vec<Block> {
    (0..group.blocks)
        .map(|index| {
            let words = &memory.words()[usize::try_from((FIRST + index) * 128).unwrap()..][..128];
            let begin = Instant::now();
            loop {
                let mut block = Block::default();
                block.copy_from(words);
                match guard::check(&block, identity.at(u16::try_from(index).unwrap())) {
                    Ok(_) => return block,
                    Err(reject) if reject == Reject::Unwritten || reject.is_transient() => {}
                    Err(reject) => panic!("block {index}: {reject}"),
                }
                assert!(begin.elapsed() < Duration::from_secs(10), "block {index} is never written");
            }
        })
        .collect()
}

fn publish(collecting: &Collecting, group: Group, slab: &Slab) -> Published {
    let group = collecting.group(group);
    let identity = identity(group).word();
    let publication = Publication { interval: INTERVAL, slab, first_block: FIRST, identity, home: None };
    group.publish(&collecting.rig.responder, &publication).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn twins_equal_what_is_computed() {
    for &group in Options::default().groups.iter().filter(|group| group.absence().is_none()) {
        let collecting = Collecting::new(&[group]);
        let slab = collecting.rig.responder.create_slab(6, 64).unwrap();
        let memory = slab.map(0, 64, false).unwrap();
        let published = publish(&collecting, group, &slab);
        published.schema.check().unwrap();
        let installed = collecting.group(group);
        assert_eq!(published.schema.blocks(), installed.blocks);
        let interval_ns = u64::try_from(INTERVAL.as_nanos()).unwrap();
        let fields = published
            .schema
            .groups
            .iter()
            .zip(&installed.schema.groups)
            .flat_map(|(a, b)| a.fields.iter().zip(&b.fields));
        for (twin, computed) in fields {
            assert_eq!(twin.resolution_ns, computed.resolution_ns.max(interval_ns), "{}", twin.name);
        }
        try_often(group.name(), || {
            let before = collecting.read(group, SIDES[0]);
            let written = published.written().unwrap();
            let begin = Instant::now();
            while published.written().unwrap() <= written + u64::from(installed.blocks) {
                assert!(begin.elapsed() < Duration::from_secs(10), "{group} is not written any more");
                std::thread::sleep(Duration::from_millis(1));
            }
            let twin = values(installed, &twin(&memory, installed, identity(installed)));
            let after = collecting.read(group, SIDES[0]);
            assert_eq!(twin.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
            for (name, value) in &twin {
                // Run queues change with the READ itself, and what waits comes and goes.
                let gauges = [
                    "onlooker_run_queue_length",
                    "onlooker_softirq_pending",
                    "onlooker_iowait_tasks",
                    "onlooker_pressure_in_progress",
                ];
                let slack = if gauges.iter().any(|gauge| name.starts_with(gauge)) { 100.0 } else { 0.0 };
                between(*value, before[name], after[name], slack).map_err(|reason| format!("{name}: {reason}"))?;
            }
            Ok(())
        });
        let time_ns = |block: &Block| guard::check(block, identity(installed)).unwrap().time_ns();
        let first = time_ns(&twin(&memory, installed, identity(installed))[0]);
        std::thread::sleep(4 * INTERVAL);
        let second = time_ns(&twin(&memory, installed, identity(installed))[0]);
        assert!(second > first, "{group}: its time stands still");
        // Nobody else's blocks.
        for (index, word) in memory.words().iter().enumerate() {
            let block = u32::try_from(index / 128).unwrap();
            if !(FIRST..FIRST + installed.blocks).contains(&block) {
                assert_eq!(word.load(Ordering::Relaxed), 0, "word {index} of the slab");
            }
        }
    }
}

#[test]
fn a_twin_is_written_as_often_as_it_says_and_ends_with_its_holder() {
    let collecting = Collecting::new(&[Group::LOAD]);
    let slab = collecting.rig.responder.create_slab(6, 64).unwrap();
    let memory = slab.map(0, 64, false).unwrap();
    let published = publish(&collecting, Group::LOAD, &slab);
    let begin = Instant::now();
    let written = published.written().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    #[allow(clippy::cast_precision_loss)]
    let written = (published.written().unwrap() - written) as f64;
    let due = begin.elapsed().as_secs_f64() / INTERVAL.as_secs_f64();
    assert!(written > 0.5 * due && written <= due + 2.0, "{written} of {due}");
    drop(published);
    std::thread::sleep(3 * INTERVAL);
    let version = &memory.words()[usize::try_from(FIRST * 128).unwrap()];
    let last = version.load(Ordering::Relaxed);
    std::thread::sleep(5 * INTERVAL);
    assert_eq!(version.load(Ordering::Relaxed), last, "it is still being written");
    assert_eq!(last & 1, 0, "it ended in the middle of a block");
}

#[test]
fn past_the_lease_a_twin_is_silent_until_it_is_renewed() {
    let collecting = Collecting::new(&[Group::LOAD]);
    let responder = &collecting.rig.responder;
    let slab = responder.create_slab(6, 64).unwrap();
    let memory = slab.map(0, 64, false).unwrap();
    let published = publish(&collecting, Group::LOAD, &slab);
    let grows = |since: u64| {
        let begin = Instant::now();
        while published.written().unwrap() <= since {
            assert!(begin.elapsed() < Duration::from_secs(10), "it is not written");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    grows(0);
    for _ in 0..2 {
        responder.set_lease(Duration::ZERO).unwrap();
        // A turn may be under way.
        std::thread::sleep(5 * INTERVAL);
        let version = &memory.words()[usize::try_from(FIRST * 128).unwrap()];
        let last = (published.written().unwrap(), version.load(Ordering::Relaxed));
        // Longer than its slow pace.
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!((published.written().unwrap(), version.load(Ordering::Relaxed)), last, "it is still being written");
        assert_eq!(last.1 & 1, 0, "it ended in the middle of a block");
        responder.set_lease(Duration::from_secs(3600)).unwrap();
        grows(last.0);
        // And at its own pace again.
        let written = published.written().unwrap();
        std::thread::sleep(20 * INTERVAL);
        let written = published.written().unwrap() - written;
        assert!(written >= 5, "{written} times in 20 intervals");
    }
}

#[test]
fn impossible_twins_are_refused() {
    let collecting = Collecting::new(&[Group::LOAD]);
    let slab = collecting.rig.responder.create_slab(6, 8).unwrap();
    let group = collecting.group(Group::LOAD);
    let good = Publication { interval: INTERVAL, slab: &slab, first_block: 0, identity: 1, home: None };
    for bad in [
        Publication { interval: Duration::from_micros(99), ..good },
        Publication { first_block: 8, ..good },
        Publication { first_block: u32::MAX, ..good },
    ] {
        let refused = group.publish(&collecting.rig.responder, &bad);
        assert!(matches!(refused, Err(Error::Limit { .. })), "{bad:?}");
    }
}
