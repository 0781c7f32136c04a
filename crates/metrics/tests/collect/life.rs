// SPDX-License-Identifier: Apache-2.0
//! Collectors and twins outlive the process that installed them, and end with the responder's home.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onlooker_metrics::collect::{Options, Publication, install, remove, stop_publishing};
use onlooker_metrics::groups::Group;
use onlooker_region::block::Identity;
use onlooker_region::{Block, guard};
use onlooker_responder::{Exit, Home, Kind, Pinned, Prefix, Region};
use onlooker_wire::{Frame, Packet, Part, ReadAnswer};

use crate::support::{Ask, PORT, REQUESTER_IP4, RESPONDER_IP4, VA, one_at_a_time, unlimited};
use crate::world::World;

/// Says in the child where its home is.
const HOME: &str = "ONLOOKER_TEST_LOADER_BPFFS";
const NAME: &str = "loader";
const RKEY: u32 = 200;
const INTERVAL: Duration = Duration::from_millis(10);

fn identity() -> Identity {
    Identity::first(9, 0x99)
}

/// The loader: installs everything, and exits.
fn load(bpffs: &Path) {
    let home = Home::new(bpffs, NAME).unwrap();
    let pinned = Pinned::load(&unlimited(PORT), &home).unwrap();
    pinned.set_own_addresses(&[RESPONDER_IP4.parse().unwrap()]).unwrap();
    pinned.allow(Prefix::host(REQUESTER_IP4.parse().unwrap())).unwrap();
    pinned.set_lease(Duration::from_secs(600)).unwrap();
    let slab = pinned.create_slab(0, 16).unwrap();
    let installed = install(&pinned, &Options { groups: vec![Group::CPU], ..Options::default() }).unwrap();
    let group = &installed.groups[0];
    let kind = Kind::Computed { collector: group.slot, identity: identity().word() };
    pinned.add_region(RKEY, &Region { va: VA, blocks: group.blocks, kind }).unwrap();
    let identity = identity().word();
    let publication = Publication { interval: INTERVAL, slab: &slab, first_block: 0, identity, home: Some(&home) };
    group.publish(&pinned, &publication).unwrap();
    // A second time: the first timer must end, or two would write one block.
    group.publish(&pinned, &publication).unwrap();
}

/// Context switches of all CPUs in a block that is read by a READ; `None` where it is dropped.
fn read(pinned: &Pinned) -> Option<u64> {
    let _one = one_at_a_time();
    let run = pinned.tc().run(&Ask::v4().rkey(RKEY).frame(), 1).unwrap();
    let Ok(Frame { packet: Packet::ReadAnswer(ReadAnswer { part: Part::Only(_), payload, .. }), .. }) =
        Frame::parse(&run.packet)
    else {
        return None;
    };
    let mut block = Block::default();
    block.bytes_mut().copy_from_slice(payload);
    let accepted = guard::check(&block, identity()).unwrap();
    Some(accepted.payload()[11] + accepted.payload()[26])
}

#[test]
fn collectors_and_twins_go_on_when_their_loader_has_exited() {
    if let Some(bpffs) = std::env::var_os(HOME) {
        return load(Path::new(&bpffs));
    }
    let world = World::new();
    let test = "life::collectors_and_twins_go_on_when_their_loader_has_exited";
    let loader = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads=1"])
        .env(HOME, world.bpffs())
        .output()
        .unwrap();
    assert!(loader.status.success(), "{}", String::from_utf8_lossy(&loader.stdout));
    let home = Home::new(world.bpffs(), NAME).unwrap();
    let pinned = Pinned::open(&home).unwrap();
    let first = read(&pinned).expect("an answer");
    std::thread::sleep(Duration::from_millis(20));
    let second = read(&pinned).expect("an answer");
    assert!(first > 0 && second > first, "{first}, then {second} context switches");

    let slab = pinned.slab(0).unwrap();
    let memory = slab.map(0, 4, false).unwrap();
    let version = || memory.words()[0].load(Ordering::Relaxed);
    let before = version();
    std::thread::sleep(20 * INTERVAL);
    let written = (version() - before) / 2;
    assert!((5..=22).contains(&written), "in 20 intervals the twin was written {written} times");
    stop_publishing(&home, Group::CPU).unwrap();
    std::thread::sleep(2 * INTERVAL);
    let last = version();
    std::thread::sleep(5 * INTERVAL);
    assert_eq!(version(), last, "the twin goes on after its end");
    stop_publishing(&home, Group::CPU).unwrap();

    remove(&pinned, &Group::ALL);
    assert_eq!(read(&pinned), None);
    assert_eq!(pinned.counters().unwrap().get(Exit::Collector), 1);
}

#[test]
fn a_purge_ends_everything() {
    let world = World::new();
    load(world.bpffs());
    let home = Home::new(world.bpffs(), NAME).unwrap();
    let slab = Pinned::open(&home).unwrap().slab(0).unwrap();
    let memory = slab.map(0, 4, false).unwrap();
    home.purge().unwrap();
    std::thread::sleep(5 * INTERVAL);
    let last = memory.words()[0].load(Ordering::Relaxed);
    assert!(last > 0);
    std::thread::sleep(5 * INTERVAL);
    assert_eq!(memory.words()[0].load(Ordering::Relaxed), last, "the twin goes on after a purge");
}
