// SPDX-License-Identifier: Apache-2.0
//! Hosts over the strict device of [`onlooker_verbs::fake`], whose far ends are hosts in memory.

use std::sync::Arc;
use std::time::Duration;

use onlooker_bootstrap::{Id, QueuePairEnd, Responder, Secret, Token, VERBS, VerbsAnswer};
use onlooker_flow::{Credit, Credits, Due, InFlight, Priority, Schedule, Sharing};
use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_reader::clock::{Moment, Relation};
use onlooker_reader::{Frames, Outcome, Pair, Via};
use onlooker_region::Block;
use onlooker_region::control::{Place as ControlPlace, RESPONDER_TCP, RESPONDER_VERBS};
use onlooker_targets::{Choice, Target};
use onlooker_transport::verbs::Settings;
use onlooker_verbs::fake::{Agreement, Fake, FakePair, FarEnd};
use onlooker_verbs::{Completed, Error as DeviceError, MAX_POLL, Status, WorkRequest};
use onlooker_wire::tcp_read;

use super::*;
use crate::engine::carriers::{self, Carriers};
use crate::engine::host::{Ended, Host};
use crate::engine::hosts::{Hosts, deliver};
use crate::engine::link::Link;
use crate::engine::outside::{Added, Carry as _};
use crate::engine::{BATCH, Config};
use crate::fleet::fixture::memory as far;
use crate::sink::State;
use far::{CONTROL_RKEY, DEVICE_RKEYS, PLACE, Shared};

const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 1));
const SECOND: u64 = 1_000_000_000;
const SHOP: &str = r#"{"name":"shop","groups":[{"kind":"plain","blocks":9,"fields":[{"name":"a_total","metric":"counter","type":"u64"}]}]}"#;

/// The device, and what tests change of it.
struct Desk {
    fake: Fake,
    has_overflowed: bool,
    end: Option<String>,
}

impl Desk {
    fn new(far_end: FarEnd) -> Self {
        Self { fake: Fake::with(1024, far_end), has_overflowed: false, end: None }
    }

    /// Its far end has everywhere the same.
    fn plain() -> Self {
        Self::new(Box::new(|request: &WorkRequest| -> Result<Vec<u64>, Status> {
            Ok(vec![7; request.bytes as usize / 8])
        }))
    }

    fn pair(&mut self) -> FakePair {
        self.fake.pair(Settings::default(), Agreement::default())
    }
}

impl Port for Desk {
    type Pair = FakePair;

    fn settings(&self, pair: &FakePair) -> Option<Settings> {
        self.fake.settings(pair)
    }

    fn post(&mut self, pair: &mut FakePair, batch: &[WorkRequest]) -> Result<(), DeviceError> {
        self.fake.post(pair, batch)
    }

    fn poll(&mut self, completed: &mut [Completed; MAX_POLL]) -> Result<usize, DeviceError> {
        match self.has_overflowed {
            true => Err(DeviceError::Overrun { device: "fake".into() }),
            false => self.fake.poll(completed),
        }
    }

    fn landed(&self, pair: &FakePair, from: (u32, u32), to: &mut [Block]) {
        self.fake.landed(pair, from, to);
    }

    fn retire(&mut self, pair: FakePair) {
        self.fake.retire(pair);
    }
}

impl Alarm for Desk {
    fn arm(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn end(&mut self) -> Option<String> {
        self.end.take()
    }

    fn leave(_: Flows<Self>, _: &Waiter) -> Box<dyn Send> {
        Box::new(())
    }
}

/// A host whose device answers for all its regions. Different `number`s have different keys.
fn far_host(number: u32) -> far::Host {
    let responders = RESPONDER_TCP | RESPONDER_VERBS;
    let place = ControlPlace { rkey: CONTROL_RKEY + number, responders, ..PLACE };
    let host = far::Host::within(Shared::new(64), place, Box::new(Shared::new));
    far::Host { responders, ..host }
}

/// The memory of all of them, under their devices' keys.
fn far_end(hosts: &[&far::Host]) -> FarEnd {
    let memories: Vec<_> = hosts.iter().map(|host| host.memory.clone()).collect();
    Box::new(move |request: &WorkRequest| -> Result<Vec<u64>, Status> {
        let rkey = request.rkey.checked_sub(DEVICE_RKEYS).ok_or(Status::Access)?;
        let read = tcp_read::Read { va: request.va, rkey, length_bytes: request.bytes };
        let bytes = memories.iter().find_map(|memory| memory.read(&read).ok()).ok_or(Status::Access)?;
        Ok(bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect())
    })
}

fn told(host: &far::Host) -> Bootstrapped {
    let end = QueuePairEnd { queue_pair: 17, packet: 7, gid: Id([9; 16]), mtu_bytes: 1024, reads_answered: 16 };
    let verbs = Some(VerbsAnswer { control_rkey: host.control.place().rkey + DEVICE_RKEYS, end });
    let mut answer = host.answer(1);
    answer.responders.push(Responder { kind: VERBS.into(), verbs, ..Responder::default() });
    let moment = Moment { steady_ns: 0, utc_ns: 0 };
    Bootstrapped {
        answer,
        peer: "10.77.0.2:7177".parse().unwrap(),
        local: LOCAL,
        relation: Relation::new(0, moment, moment),
        round_trip: Duration::ZERO,
    }
}

/// What the engine has, without its thread.
struct World {
    hosts: Vec<Option<Host<carriers::Place>>>,
    carriers: Carriers<Desk>,
    in_flight: InFlight,
    gone: Vec<Gone>,
    /// What became of hosts that were in no reading when their device went.
    lost: Vec<(usize, State)>,
    now_ns: u64,
}

impl World {
    fn new(hosts: usize, desk: Desk) -> Self {
        let mut schedule = Schedule::new(1);
        let target = Arc::new(Target {
            name: "x".into(),
            host: "10.77.0.2".into(),
            port: 7177,
            token: Token { fingerprint: None, secret: Secret::new([7; 32]) },
            labels: Default::default(),
            interval: Duration::from_secs(1),
            priority: Priority::Normal,
            choice: Choice::Auto,
        });
        let hosts = (0..hosts)
            .map(|index| Some(Host::new(target.clone(), schedule.add(SECOND, Priority::Normal, 0), index, 1)))
            .collect();
        let mut carriers = Carriers::new(Waiter::new().unwrap(), &Config::default(), Arc::default());
        carriers.devices.opened(LOCAL, desk);
        let in_flight = InFlight::default();
        Self { hosts, carriers, in_flight, gone: Vec::new(), lost: Vec::new(), now_ns: SECOND }
    }

    fn host(&mut self, index: usize) -> &mut Host<carriers::Place> {
        self.hosts[index].as_mut().unwrap()
    }

    fn desk(&mut self) -> Option<&mut Desk> {
        self.carriers.devices.devices.get_mut(&LOCAL).map(|device| device.flows.port_mut())
    }

    /// As the connector and the engine do it.
    fn link(&mut self, index: usize, far: &far::Host) {
        let pair = self.desk().unwrap().pair();
        let place = self.carriers.devices.add(LOCAL, pair, None).unwrap();
        let added = Added { place: carriers::Place::Device(place), max_read_blocks: 4, mirror: None };
        let schemas = Arc::default();
        let link = Link::new(told(far), Pair::VERBS_VERBS, added, &schemas, &Config::default(), self.now_ns);
        let host = self.host(index);
        host.answered();
        assert!(host.link(link));
    }

    fn begin(&mut self, index: usize) -> bool {
        let now_ns = self.now_ns;
        let host = self.host(index);
        let due = Due { flow: host.flow, due_ns: now_ns, missed: 0, is_on_probation: false };
        host.begin(due, now_ns, Duration::from_secs(1))
    }

    fn pump(&mut self) {
        self.now_ns += 1_000;
        let mut reads = Vec::with_capacity(BATCH);
        let credit = Some(Credit { all_bytes: 4 << 20, host_bytes: 256 << 10 });
        for host in self.hosts.iter_mut().flatten() {
            host.submit(&mut self.carriers, &mut self.in_flight, credit, self.now_ns, &mut reads);
        }
        if let Some(desk) = self.desk() {
            desk.fake.run(usize::MAX);
        }
        let Self { hosts, carriers, in_flight, gone, lost, now_ns } = self;
        let mut completions = Vec::new();
        carriers.poll(&mut Hosts(hosts), *now_ns, &mut completions, gone);
        for Gone { number, why, .. } in gone {
            for (index, host) in hosts.iter_mut().enumerate() {
                let state = host.as_mut().and_then(|host| host.lose_device::<Carriers<Desk>>(*number, why, *now_ns));
                lost.extend(state.map(|state| (index, state)));
            }
        }
        let credits = &mut Credits::new(onlooker_flow::Limits::default(), Sharing::Total);
        deliver(hosts, carriers, in_flight, credits, &completions, (*now_ns, *now_ns));
    }

    /// Reads all hosts once: how many regions each has given, or why none.
    fn read(&mut self) -> Vec<String> {
        let mut results = vec!["no link".to_owned(); self.hosts.len()];
        let mut going: Vec<usize> = (0..self.hosts.len()).filter(|index| self.begin(*index)).collect();
        for _ in 0..1_000 {
            self.pump();
            for index in std::mem::take(&mut going) {
                match self.end(index) {
                    Some(result) => results[index] = result,
                    None => going.push(index),
                }
            }
            if going.is_empty() {
                return results;
            }
        }
        panic!("{going:?} do not end");
    }

    fn end(&mut self, index: usize) -> Option<String> {
        let now_ns = self.now_ns;
        let host = self.hosts[index].as_mut().unwrap();
        match host.ended(now_ns)? {
            Ended::Read => {
                let reading = host.reading(now_ns, 0, Frames::default()).unwrap();
                let good = reading.frames.iter().filter(|frame| frame.problem().is_none()).count();
                Some(format!("{good} regions"))
            }
            Ended::Failed { reason, state, .. } => {
                if state.is_some() {
                    host.unlink(&mut self.carriers, &mut self.in_flight);
                }
                Some(reason.into())
            }
        }
    }
}

#[test]
fn a_region_that_went_costs_a_reading_of_its_host_only_which_is_asked_again_at_once() {
    let (mut good, mut bad) = (far_host(1), far_host(2));
    good.region(1, "shop", &[], SHOP);
    let gone = bad.region(2, "shop", &[], SHOP);
    let mut world = World::new(2, Desk::new(far_end(&[&good, &bad])));
    world.link(0, &good);
    world.link(1, &bad);
    assert_eq!(world.read(), ["1 regions", "1 regions"]);
    bad.memory.remove(gone.entry.rkey);
    assert_eq!(world.read(), ["1 regions", "access"]);
    let first_ns = world.now_ns;
    assert!(!world.host(1).is_linked() && world.host(1).may_ask(first_ns), "at once");
    assert_eq!(world.host(1).first(first_ns), Via::Verbs);
    assert_eq!(world.read(), ["1 regions", "no link"]);
    bad.control.remove(gone.slot, 9);
    let next = bad.region(3, "shop", &[], SHOP);
    world.link(1, &bad);
    assert_eq!(world.read(), ["1 regions", "1 regions"]);
    // Not in a tight loop.
    bad.memory.remove(next.entry.rkey);
    assert_eq!(world.read(), ["1 regions", "access"]);
    let now_ns = world.now_ns;
    assert!(now_ns - first_ns < SECOND / 20);
    assert!(!world.host(1).may_ask(now_ns) && world.host(1).may_ask(first_ns + SECOND / 10));
    assert_eq!(world.in_flight.bytes(), 0);
}

#[test]
fn a_host_that_refuses_everything_is_read_another_way_in_the_end() {
    let far = far_host(1);
    far.memory.remove(CONTROL_RKEY + 1);
    let mut world = World::new(1, Desk::new(far_end(&[&far])));
    for _ in 0..8 {
        world.link(0, &far);
        assert_eq!(world.read(), ["access"]);
        world.now_ns += SECOND;
        let now_ns = world.now_ns;
        assert!(world.host(0).may_ask(now_ns) && !world.host(0).has_failed());
        assert_eq!(world.host(0).first(now_ns), Via::Verbs);
    }
    world.link(0, &far);
    assert_eq!(world.read(), ["access"]);
    let now_ns = world.now_ns;
    assert!(!world.host(0).may_ask(now_ns) && world.host(0).has_failed());
    assert_eq!(world.host(0).first(now_ns), Via::Kernel);
}

#[test]
fn a_device_that_fails_goes_with_all_its_hosts_and_is_opened_anew() {
    let mut far = far_host(1);
    far.region(1, "shop", &[], SHOP);
    let mut world = World::new(2, Desk::new(far_end(&[&far])));
    world.link(0, &far);
    world.link(1, &far);
    assert_eq!(world.read(), ["1 regions", "1 regions"]);
    assert!(world.begin(0));
    world.desk().unwrap().has_overflowed = true;
    world.now_ns += 10 * SECOND;
    world.pump();
    // One is in a reading, which ends with it; the other learns of it at once.
    let Gone { number, why, .. } = world.gone.pop().unwrap();
    assert!(why.contains("10.77.0.1") && why.contains("overflowed"), "{why}");
    let now_ns = world.now_ns;
    assert!(world.carriers.devices.find(LOCAL, now_ns).is_none(), "it is to be opened");
    assert_eq!(std::mem::take(&mut world.lost), [(1, State::Failed(why))]);
    assert_eq!(world.end(0).as_deref(), Some("device"));
    let World { hosts, carriers, in_flight, .. } = &mut world;
    hosts.iter_mut().flatten().for_each(|host| host.unlink(carriers, in_flight));
    assert!(world.host(0).may_ask(now_ns), "the link had been good for long");

    world.carriers.devices.opened(LOCAL, Desk::new(far_end(&[&far])));
    world.link(0, &far);
    assert_eq!(world.host(0).lose_device::<Carriers<Desk>>(number, "", now_ns), None);
    assert_eq!(world.read(), ["1 regions", "no link"]);
    // What a device tells beside completions is looked at now and then.
    world.desk().unwrap().end = Some("it was removed".into());
    world.pump();
    assert!(world.gone.is_empty() && world.lost.is_empty());
    world.now_ns += EVENTS_INTERVAL_NS;
    world.pump();
    assert!(world.gone.pop().unwrap().why.ends_with("it was removed"));
    assert!(world.desk().is_none() && world.lost.len() == 1);
}

/// A device with so many flows.
fn flows<const N: usize>(devices: &mut Devices<Desk>) -> [Place; N] {
    devices.opened(LOCAL, Desk::plain());
    std::array::from_fn(|_| {
        let pair = devices.devices.get_mut(&LOCAL).unwrap().flows.port_mut().pair();
        devices.add(LOCAL, pair, None).unwrap()
    })
}

fn run(devices: &mut Devices<Desk>) {
    devices.devices.get_mut(&LOCAL).unwrap().flows.port_mut().fake.run(usize::MAX);
}

fn reads(first: u64) -> [Read; 4] {
    std::array::from_fn(|at| {
        let id = first + at as u64;
        Read { id, va: id << 13, rkey: 1, at: 0, blocks: 4, deadline_ns: SECOND }
    })
}

fn poll(devices: &mut Devices<Desk>, now_ns: u64) -> Vec<Outcome> {
    let mut completions = Vec::new();
    devices.poll(&mut [Block::default(); 4], now_ns, &mut completions, &mut Vec::new(), &Waiter::new().unwrap());
    completions.iter().map(|completion| completion.outcome).collect()
}

#[test]
fn the_engine_sleeps_on_a_device_that_is_armed_and_was_polled_since() {
    let mut devices = Devices::new();
    let [flow] = flows(&mut devices);
    assert!(devices.arm() && !devices.arm());
    assert_eq!((devices.submit(flow, &reads(0)), devices.wake_ns()), (Ok(4), Some(SECOND)));
    assert!(poll(&mut devices, 0).is_empty());
    assert!(!devices.arm(), "nothing has completed");
    run(&mut devices);
    assert_eq!(poll(&mut devices, 0), [Outcome::Done; 4]);
    assert!(devices.arm() && !devices.arm());
    // What was given up wakes, too, though it is told to nobody.
    assert_eq!(devices.submit(flow, &reads(10)), Ok(4));
    assert_eq!(poll(&mut devices, SECOND), [Outcome::Timeout; 4]);
    assert!(!devices.arm());
    run(&mut devices);
    assert!(poll(&mut devices, SECOND).is_empty());
    assert!(devices.arm() && !devices.arm());
    devices.rung();
    assert!(devices.arm());
}

#[test]
fn an_address_without_a_device_is_not_looked_up_for_every_host() {
    let mut devices: Devices<Desk> = Devices::new();
    assert!(devices.find(LOCAL, 0).is_none());
    devices.absent(LOCAL, "there is none".into(), 5);
    assert_eq!(devices.find(LOCAL, ABSENT_NS + 4).and_then(Result::err), Some("there is none"));
    assert!(devices.find(LOCAL, ABSENT_NS + 5).is_none());
    let pair = Desk::plain().pair();
    assert!(devices.add(LOCAL, pair.clone(), None).is_err());
    devices.opened(LOCAL, Desk::plain());
    assert!(devices.find(LOCAL, 6).is_some_and(|found| found.is_ok()));
    assert!(devices.add(LOCAL, pair, None).unwrap_err().contains("gone"), "another one's queue pair");
}
