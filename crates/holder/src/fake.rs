// SPDX-License-Identifier: Apache-2.0
//! A device for tests that keeps account of what was made of it, and panics where something ends in the wrong order: a
//! device before what was made of it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use onlooker_bootstrap::Id;
use onlooker_region::map::Map;
use rustix::event::{EventfdFlags, eventfd};

use crate::protocol::{Code, End, Limits, Refusal};
use crate::state::{Event, Made, Owner, Write};

/// No device has this address.
pub(crate) const NOBODYS: &str = "10.0.0.99";
/// The device of this address fails at once.
pub(crate) const FAILING: &str = "10.0.0.66";

/// Something that has ended: a queue pair, a registration or a device, by number or key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Pair(u32),
    Memory(u32),
    Device(u32),
}

/// All devices.
#[derive(Debug)]
pub(crate) struct World {
    /// The last number or key that was given: none is given twice.
    last: u32,
    devices: BTreeSet<u32>,
    /// Device and number.
    pub(crate) pairs: BTreeSet<(u32, u32)>,
    /// Device and key.
    pub(crate) memory: BTreeSet<(u32, u32)>,
    pub(crate) ended: Vec<Ended>,
    /// What the device has to tell.
    pub(crate) events: Vec<Event>,
    pub(crate) limits: Limits,
    /// Queue pairs that can take WRITEs.
    pub(crate) writers: usize,
    /// By number of such a queue pair: how many it takes, and those that have not ended.
    outstanding: BTreeMap<u32, (u32, Vec<u64>)>,
    /// Number of the queue pair, key of the memory, and what.
    pub(crate) writes: Vec<(u32, u32, Write)>,
    /// WRITEs that have ended, and were not told yet.
    written: Vec<(u64, bool)>,
    /// WRITEs of this queue pair are not taken.
    pub(crate) refusing: Option<u32>,
}

impl World {
    /// Has all WRITEs of a queue pair end.
    pub(crate) fn end_writes(&mut self, number: u32, is_done: bool) {
        let outstanding = self.outstanding.get_mut(&number).map(|(_, ids)| std::mem::take(ids));
        self.written.extend(outstanding.into_iter().flatten().map(|id| (id, is_done)));
    }
}

/// Shared by all that is made of it.
#[derive(Clone, Debug)]
pub(crate) struct Shared(pub(crate) Rc<RefCell<World>>);

impl Shared {
    pub(crate) fn new(regions: u32, queue_pairs: u32) -> Self {
        Self(Rc::new(RefCell::new(World {
            last: 0,
            devices: BTreeSet::new(),
            pairs: BTreeSet::new(),
            memory: BTreeSet::new(),
            ended: Vec::new(),
            events: Vec::new(),
            limits: Limits { regions, queue_pairs },
            writers: usize::MAX,
            outstanding: BTreeMap::new(),
            writes: Vec::new(),
            written: Vec::new(),
            refusing: None,
        })))
    }

    /// For `Core::new`.
    pub(crate) fn opener(&self) -> impl FnMut(IpAddr) -> Result<FakeDevice, Refusal> + 'static + use<> {
        let world = self.clone();
        move |address| {
            if address.to_string() == NOBODYS {
                return Err(Refusal::new(Code::NoDevice, "no device has it"));
            }
            let fails = address.to_string() == FAILING;
            if fails {
                world.0.borrow_mut().events.push(Event::Device);
            }
            let number = world.next();
            world.0.borrow_mut().devices.insert(number);
            let events = eventfd(u32::from(fails), EventfdFlags::CLOEXEC).unwrap();
            Ok(FakeDevice { world: world.clone(), number, events, name: format!("fake{number}") })
        }
    }

    fn next(&self) -> u32 {
        let mut world = self.0.borrow_mut();
        world.last += 1;
        world.last
    }
}

pub(crate) struct FakeDevice {
    world: Shared,
    number: u32,
    events: OwnedFd,
    name: String,
}

pub(crate) struct FakeMemory {
    world: Shared,
    device: u32,
    rkey: u32,
    map: Map,
}

pub(crate) struct FakePair {
    world: Shared,
    device: u32,
    number: u32,
}

impl AsFd for FakeDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl Owner for FakeDevice {
    type Memory = FakeMemory;
    type Pair = FakePair;

    fn name(&self) -> &str {
        &self.name
    }

    fn limits(&self) -> Limits {
        self.world.0.borrow().limits
    }

    fn register(&self, memory: Map, va: u64) -> Result<(FakeMemory, u32), Refusal> {
        assert!(va.is_multiple_of(4096) && !memory.words().is_empty());
        let rkey = self.world.next();
        let mut world = self.world.0.borrow_mut();
        assert!(world.memory.len() < world.limits.regions as usize, "more registrations than there can be");
        world.memory.insert((self.number, rkey));
        Ok((FakeMemory { world: self.world.clone(), device: self.number, rkey, map: memory }, rkey))
    }

    fn pair(&self, end: &End, writes: u32) -> Result<Made<FakePair>, Refusal> {
        if end.queue_pair < 2 {
            return Err(Refusal::new(Code::BadRequest, "no number of a queue pair"));
        }
        let number = self.world.next();
        let mut world = self.world.0.borrow_mut();
        assert!(world.pairs.len() < world.limits.queue_pairs as usize, "more queue pairs than there can be");
        world.pairs.insert((self.number, number));
        let own = End { queue_pair: number, packet: 0, gid: Id([1; 16]), mtu_bytes: 1024, reads_answered: 16 };
        let writes = if world.outstanding.len() < world.writers { writes } else { 0 };
        if writes > 0 {
            world.outstanding.insert(number, (writes, Vec::new()));
        }
        let pair = FakePair { world: self.world.clone(), device: self.number, number };
        Ok(Made { pair, end: own, writes })
    }

    fn write(&self, pair: &mut FakePair, memory: &FakeMemory, write: &Write) -> Result<(), Refusal> {
        let mut world = self.world.0.borrow_mut();
        if world.refusing == Some(pair.number) {
            return Err(Refusal::new(Code::Device, "it is in error"));
        }
        let (depth, ids) = world.outstanding.get_mut(&pair.number).expect("a queue pair that takes WRITEs");
        assert!(ids.len() < *depth as usize, "more WRITEs than there is room for");
        ids.push(write.id);
        let words = memory.map.words().len() as u64;
        assert!(write.bytes > 0 && write.offset + u64::from(write.bytes) <= words * 8, "outside of the registration");
        world.writes.push((pair.number, memory.rkey, *write));
        Ok(())
    }

    fn written(&self, ended: &mut Vec<(u64, bool)>) -> Result<(), Refusal> {
        ended.append(&mut self.world.0.borrow_mut().written);
        Ok(())
    }

    fn event(&self) -> Result<Option<Event>, Refusal> {
        Ok(self.world.0.borrow_mut().events.pop())
    }
}

impl Drop for FakePair {
    fn drop(&mut self) {
        let mut world = self.world.0.borrow_mut();
        assert!(world.pairs.remove(&(self.device, self.number)), "ended twice");
        // Whatever was outstanding completes then, and is told later.
        world.end_writes(self.number, false);
        world.outstanding.remove(&self.number);
        world.ended.push(Ended::Pair(self.number));
    }
}

impl Drop for FakeMemory {
    fn drop(&mut self) {
        let mut world = self.world.0.borrow_mut();
        assert!(world.memory.remove(&(self.device, self.rkey)), "ended twice");
        world.ended.push(Ended::Memory(self.rkey));
    }
}

impl Drop for FakeDevice {
    fn drop(&mut self) {
        let mut world = self.world.0.borrow_mut();
        let is_used = |made: &BTreeSet<(u32, u32)>| made.iter().any(|(device, _)| *device == self.number);
        assert!(!is_used(&world.pairs) && !is_used(&world.memory), "a device ends before what was made of it");
        assert!(world.devices.remove(&self.number), "closed twice");
        world.ended.push(Ended::Device(self.number));
    }
}
