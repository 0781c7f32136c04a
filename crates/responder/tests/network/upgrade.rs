// SPDX-License-Identifier: Apache-2.0
//! Programs are replaced under traffic: no READ is lost, nothing is forgotten.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder};
use onlooker_responder::{Config, Device, Error, Exit, Home, Hook, Kind, Outcome, Pinned, Region};
use onlooker_testbed::run;
use onlooker_wire::{Frame, Tags};

use crate::requester::{FrameSocket, UdpRequester};
use crate::support::{VA, exits, unlimited};
use crate::tagged::{ask, is_answer};
use crate::world::{PORT, REQUESTER_DEVICE, World, device};

const COLLECTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_collector.bpf.o"));
const COLLECTOR_SLOT: u32 = 3;
const COMPUTED_RKEY: u32 = 0x77;

/// The ways to attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Tc,
    Filter,
    Xdp,
}

pub(crate) const WAYS: [Way; 3] = [Way::Tc, Way::Filter, Way::Xdp];

impl Way {
    pub(crate) fn hook(self) -> Hook {
        if self == Way::Xdp { Hook::Xdp } else { Hook::Tc }
    }

    /// What a READ asks for that every way can answer: frames on veth have little room to grow in XDP.
    pub(crate) fn read_bytes(self) -> u32 {
        if self == Way::Xdp { 64 } else { 1024 }
    }

    pub(crate) fn attach(self, world: &World, responder: &Pinned) {
        match self {
            Way::Filter => responder.attach_by_filter(&device()).unwrap(),
            Way::Tc | Way::Xdp => responder.attach(&device(), self.hook()).unwrap(),
        };
        if self == Way::Xdp {
            // veth takes frames from XDP only if its peer has a program too: one that passes everything on.
            let passing = Pinned::load(&unlimited(PORT), &world.home("passing")).unwrap();
            let attach = || passing.attach(&Device::named(REQUESTER_DEVICE).unwrap(), Hook::Xdp).map(drop);
            world.at_requester(attach).unwrap();
            passing.set_own_addresses(&[]).unwrap();
        }
    }
}

/// Configurations that differ in what every answer shows.
pub(crate) fn marked(dscp: u8) -> Config {
    Config { dscp, ..unlimited(PORT) }
}

/// The code point of an answer now.
pub(crate) fn code_point(world: &World, bytes: u32) -> u8 {
    let frames = FrameSocket::new(world);
    let asked = ask(false, Tags::None).at(0, bytes);
    frames.send(&asked.frame());
    let answer = frames.receive(is_answer).expect("no answer");
    let envelope = Frame::parse(&answer).unwrap().envelope;
    let matches: Vec<u8> = (0..64).filter(|&dscp| asked.envelope().answer(dscp) == envelope).collect();
    assert_eq!(matches.len(), 1);
    matches[0]
}

fn install_collector(responder: &Pinned) -> Object {
    let mut object = ObjectBuilder::default().open_memory(COLLECTOR).unwrap();
    responder.adopt_maps(&mut object).unwrap();
    let object = object.load().unwrap();
    let program = |name: &str| object.progs().find(|program| program.name() == name).unwrap();
    responder.install_collector(COLLECTOR_SLOT, program("test_collect_tc"), program("test_collect_xdp")).unwrap();
    let kind = Kind::Computed { collector: COLLECTOR_SLOT, identity: 1 << 16 };
    responder.add_region(COMPUTED_RKEY, &Region { va: VA, blocks: 1, kind }).unwrap();
    object
}

/// READs at full speed while `meanwhile` runs: how many were answered. None may be lost.
pub(crate) fn reading<T>(
    requester: &mut UdpRequester,
    rkeys: &[u32],
    bytes: u32,
    meanwhile: impl FnOnce() -> T,
) -> (u64, T) {
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let result = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for &rkey in rkeys {
                    let count = answered.load(Ordering::Relaxed);
                    assert!(requester.read(VA, rkey, bytes).is_some(), "READ {count} of {rkey:#x} was lost");
                    answered.store(count + 1, Ordering::Relaxed);
                }
            }
        });
        while answered.load(Ordering::Relaxed) < 10 && !reader.is_finished() {
            std::thread::yield_now();
        }
        let result = meanwhile();
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result
    });
    (answered.into_inner(), result)
}

fn replaced_under_load(way: Way) {
    let world = World::new();
    let home = world.home("test");
    let responder = world.responder(&marked(0));
    let _collector = install_collector(&responder);
    way.attach(&world, &responder);
    let attachments = responder.attachments();
    drop(responder);
    let bytes = way.read_bytes();
    let rkeys: &[u32] = if bytes == 1024 { &[crate::support::RKEY, COMPUTED_RKEY] } else { &[crate::support::RKEY] };
    let mut requester = UdpRequester::new(&world, false);
    // 50 times on a real processor; an emulated one needs seconds for each.
    let (mut times, start) = (0, Instant::now());
    let (answered, ()) = reading(&mut requester, rkeys, bytes, || {
        while times < 50 && (times < 4 || start.elapsed() < Duration::from_secs(15)) {
            times += 1;
            let dscp = times % 2;
            let (responder, outcome) = Pinned::ensure(&marked(dscp), &home).unwrap();
            assert_eq!(outcome, Outcome::Replaced);
            assert_eq!((responder.attachments(), *responder.config()), (attachments.clone(), marked(dscp)));
        }
    });
    assert!(answered > 10 * u64::from(times), "{answered} READs during {times} replacements");
    let (responder, outcome) = Pinned::ensure(&marked(times % 2), &home).unwrap();
    assert_eq!(outcome, Outcome::Reopened);
    assert_eq!(exits(&responder.counters().unwrap()), [(Exit::Answered, answered)]);
    assert_eq!(code_point(&world, bytes), times % 2);
    assert_eq!(programs_of_home(&home), ["finish_tc", "finish_xdp", "tc", "xdp"]);
    home.purge().unwrap();
    assert_eq!(requester.read_at(0, bytes), None);
}

pub(crate) fn programs_of_home(home: &Home) -> Vec<String> {
    let entries = std::fs::read_dir(home.path().join("programs")).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn no_read_is_lost_to_a_replacement_in_a_link() {
    replaced_under_load(Way::Tc);
}

#[test]
fn no_read_is_lost_to_a_replacement_in_a_filter() {
    replaced_under_load(Way::Filter);
}

#[test]
fn no_read_is_lost_to_a_replacement_in_the_driver() {
    replaced_under_load(Way::Xdp);
}

#[test]
fn ensure_loads_opens_replaces_and_says_so() {
    let world = World::new();
    let home = world.home("test");
    let ensure = |config: &Config| Pinned::ensure(config, &home).map(|(_, outcome)| outcome);
    assert!(matches!(ensure(&Config { port: 0, ..marked(0) }), Err(Error::Limit { .. })));
    assert_eq!(ensure(&marked(0)).unwrap(), Outcome::Loaded);
    assert_eq!(ensure(&marked(0)).unwrap(), Outcome::Reopened);
    assert_eq!(ensure(&marked(1)).unwrap(), Outcome::Replaced);
    assert_eq!(*Pinned::open(&home).unwrap().config(), marked(1));
    // A pinned program that is gone is no reason to drop tables.
    std::fs::remove_file(home.path().join("programs/finish_tc")).unwrap();
    assert!(Pinned::open(&home).is_err());
    assert_eq!(ensure(&marked(1)).unwrap(), Outcome::Replaced);
    // Whoever dies while pinning for the first time leaves no settings, or nothing but directories.
    std::fs::remove_file(home.path().join("settings")).unwrap();
    assert!(matches!(ensure(&marked(1)).unwrap(), Outcome::Reloaded { because } if because.contains("settings")));
    home.purge().unwrap();
    std::fs::create_dir_all(home.path().join("maps")).unwrap();
    assert!(matches!(ensure(&marked(1)).unwrap(), Outcome::Reloaded { .. }));
    assert_eq!(ensure(&marked(1)).unwrap(), Outcome::Reopened);
}

#[test]
fn another_layout_is_purged_and_a_map_of_another_shape_too() {
    let world = World::new();
    let home = world.home("test");
    let responder = world.responder(&marked(0));
    responder.attach(&device(), Hook::Tc).unwrap();
    // A later version's settings: the same map with another version in front.
    let settings = MapHandle::from_pinned_path(home.path().join("settings")).unwrap();
    let mut value = settings.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
    value[0] += 1;
    settings.update(&[0; 4], &value, MapFlags::ANY).unwrap();
    assert!(matches!(Pinned::open(&home), Err(Error::Incompatible { .. })));
    let (responder, outcome) = Pinned::ensure(&marked(0), &home).unwrap();
    assert!(matches!(&outcome, Outcome::Reloaded { because } if because.contains("layout version")), "{outcome}");
    assert_eq!(
        (responder.slabs().unwrap(), responder.regions().unwrap(), responder.attachments()),
        (vec![], vec![], vec![])
    );
    assert!(!crate::world::programs_shown().contains("onlooker"));
    // A map of another size under our name, as a version that forgot to raise the layout's would leave.
    drop(responder);
    let (scratch, cpu_rate) = (home.path().join("maps/scratch"), home.path().join("maps/cpu_rate"));
    std::fs::remove_file(&cpu_rate).unwrap();
    MapHandle::from_pinned_path(scratch).unwrap().pin(cpu_rate).unwrap();
    let (_, outcome) = Pinned::ensure(&marked(1), &home).unwrap();
    assert!(matches!(&outcome, Outcome::Reloaded { because } if because.contains("map cpu_rate")), "{outcome}");
}

#[test]
fn answers_that_would_not_fit_an_attached_device_are_refused_and_the_old_responder_goes_on() {
    let world = World::new();
    let home = world.home("test");
    let responder = world.responder(&marked(0));
    responder.attach(&device(), Hook::Tc).unwrap();
    let larger = Config { max_read_bytes: 8192, ..marked(0) };
    assert!(matches!(Pinned::ensure(&larger, &home), Err(Error::Mtu { mtu_bytes: 1500, .. })));
    assert_eq!(Pinned::ensure(&marked(0), &home).unwrap().1, Outcome::Reopened);
    assert!(UdpRequester::new(&world, true).read_at(0, 1024).is_some());
    for (end, mtu) in [(true, "9000"), (false, "9000")] {
        let name = if end { crate::world::RESPONDER_DEVICE } else { REQUESTER_DEVICE };
        let set = || run("ip", &["link", "set", name, "mtu", mtu]);
        if end {
            set()
        } else {
            world.at_requester(set)
        };
    }
    assert_eq!(Pinned::ensure(&larger, &home).unwrap().1, Outcome::Replaced);
    assert_eq!(UdpRequester::new(&world, true).read_at(0, 8192).map(|answer| answer.len()), Some(8192));
}

#[test]
fn an_interrupted_slab_is_mended() {
    let world = World::new();
    let home = world.home("test");
    let responder = world.responder(&marked(0));
    responder.attach(&device(), Hook::Tc).unwrap();
    let mut requester = UdpRequester::new(&world, false);
    // As after a removal that got only as far as the table.
    std::ops::Deref::deref(&responder).remove_slab(crate::world::SLAB).unwrap();
    assert_eq!(requester.read_at(0, 1024), None);
    assert_eq!(Pinned::ensure(&marked(0), &home).unwrap().1, Outcome::Reopened);
    assert!(requester.read_at(0, 1024).is_some());
}
