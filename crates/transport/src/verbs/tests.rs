// SPDX-License-Identifier: Apache-2.0
//! Requester and flows on the strict device of [`onlooker_verbs::fake`], whose far end is a host in memory.

use super::*;
use crate::Error;
use crate::memory::{CONTROL_RKEY, CONTROL_VA, DEVICE_RKEYS, Host, Memory, PLACE, Shared};
use onlooker_bootstrap::{Answer, Id, QueuePairEnd, Responder, VERBS, VerbsAnswer};
use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_reader::drive::{DriveError, read_host};
use onlooker_reader::{Broken, Completion, Error as HostError, Fault, Limits, Outcome, Read, Requester, Session, Via};
use onlooker_region::Block;
use onlooker_region::control::{Entry, Place, RESPONDER_TCP, RESPONDER_VERBS, RegionEntry};
use onlooker_verbs::fake::{Agreement, Fake, FakePair};
use onlooker_verbs::{Completed, Error as DeviceError, MAX_POLL, Status, WorkRequest};
use onlooker_wire::tcp_read::{self, Refusal};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod copies;

/// What tests change of a device that is a requester's.
struct World {
    /// Goes on in sleep only.
    now_ns: Cell<u64>,
    /// READs of a queue pair that are executed in a sleep.
    pace: Cell<usize>,
    /// What was posted is executed just before the alarm is set, instead of in sleep.
    is_early: Cell<bool>,
    has_overflowed: Cell<bool>,
    executed: Cell<u64>,
    /// Sleeps that nothing has ended.
    overslept: Cell<u32>,
}

impl World {
    fn new() -> Rc<Self> {
        Rc::new(Self {
            now_ns: Cell::new(0),
            pace: Cell::new(usize::MAX),
            is_early: Cell::new(false),
            has_overflowed: Cell::new(false),
            executed: Cell::new(0),
            overslept: Cell::new(0),
        })
    }
}

/// The strict device in its world.
struct Desk {
    fake: Fake,
    world: Rc<World>,
    is_armed: bool,
}

impl Desk {
    fn new(world: &Rc<World>, mut answer: impl FnMut(&WorkRequest) -> Result<Vec<u64>, Status> + 'static) -> Self {
        let counting = world.clone();
        let far_end = move |request: &WorkRequest| {
            counting.executed.set(counting.executed.get() + 1);
            answer(request)
        };
        Self { fake: Fake::with(64, Box::new(far_end)), world: world.clone(), is_armed: false }
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
        match self.world.has_overflowed.get() {
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

impl Sleeper for Desk {
    fn arm(&mut self) -> Result<(), DeviceError> {
        if self.world.is_early.get() {
            self.fake.run(self.world.pace.get());
        }
        self.is_armed = true;
        Ok(())
    }

    fn sleep(&mut self, timeout: Duration) -> io::Result<bool> {
        assert!(self.is_armed, "nothing would end this sleep");
        let World { now_ns, pace, executed, overslept, .. } = &*self.world;
        let before = executed.get();
        self.fake.run(pace.get());
        let has_completed = executed.get() > before;
        if has_completed {
            self.is_armed = false;
            now_ns.set(now_ns.get() + 10_000);
        } else {
            now_ns.set(now_ns.get() + u64::try_from(timeout.as_nanos()).unwrap());
            overslept.set(overslept.get() + 1);
        }
        Ok(has_completed)
    }
}

/// A device's words, everywhere their own address.
fn own_address(request: &WorkRequest) -> Result<Vec<u64>, Status> {
    Ok((0..u64::from(request.bytes / 8)).map(|word| request.va + 8 * word).collect())
}

/// A requester over a queue pair of such a device, and the pair.
fn requester(world: &Rc<World>, agreement: Agreement) -> (VerbsRequester<Desk>, FakePair) {
    let mut desk = Desk::new(world, own_address);
    let pair = desk.fake.pair(Settings::default(), agreement);
    (VerbsRequester::new(desk, pair.clone(), 64), pair)
}

/// One of the host's memory, under the device's keys.
fn requester_of(host: &Host, world: &Rc<World>) -> VerbsRequester<Desk> {
    let memory: Arc<Memory> = host.memory.clone();
    let mut desk = Desk::new(world, move |request| {
        let rkey = request.rkey.checked_sub(DEVICE_RKEYS).ok_or(Status::Access)?;
        let read = tcp_read::Read { va: request.va, rkey, length_bytes: request.bytes };
        let bytes = memory.read(&read).map_err(|_| Status::Access)?;
        Ok(bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect())
    });
    let pair = desk.fake.pair(Settings::default(), Agreement::default());
    VerbsRequester::new(desk, pair, 64)
}

fn read(id: u64) -> Read {
    Read { id, va: id << 13, rkey: 1, at: u32::try_from(id).unwrap() * 4, blocks: 1, deadline_ns: u64::MAX }
}

/// Sleeps once, and looks what has come.
fn turn<P: Port + Sleeper>(
    requester: &mut VerbsRequester<P>,
    memory: &mut [Block],
    now_ns: u64,
) -> (Vec<(u64, Outcome)>, Result<(), Broken>) {
    let mut completions = Vec::new();
    let mut polled = Ok(());
    // The first wait sets the alarm.
    for _ in 0..2 {
        requester.wait(Duration::from_millis(1)).unwrap();
        polled = polled.and(requester.poll(memory, now_ns, &mut completions));
    }
    (completions.iter().map(|completion| (completion.id, completion.outcome)).collect(), polled)
}

const WIDE: &str = r#"{"name":"shop","groups":[{"kind":"plain","blocks":9,"fields":[{"name":"a_total","metric":"counter","type":"u64"}]}]}"#;
const GUARDED: &str =
    r#"{"name":"node","groups":[{"kind":"guarded","blocks":1,"fields":[{"name":"g","metric":"gauge","type":"u64"}]}]}"#;

/// A host whose device answers for all regions that are made from now on.
fn host() -> Host {
    let responders = RESPONDER_TCP | RESPONDER_VERBS;
    let host = Host::within(Shared::new(64), Place { responders, ..PLACE }, Box::new(Shared::new));
    Host { responders, ..host }
}

fn answer(host: &Host) -> Answer {
    let end = QueuePairEnd { queue_pair: 17, packet: 7, gid: Id([9; 16]), mtu_bytes: 1024, reads_answered: 16 };
    let verbs = Some(VerbsAnswer { control_rkey: CONTROL_RKEY + DEVICE_RKEYS, end });
    let mut answer = host.answer(1);
    answer.responders.push(Responder { kind: VERBS.into(), verbs, ..Responder::default() });
    answer
}

struct Reading {
    session: Session,
    requester: VerbsRequester<Desk>,
    world: Rc<World>,
}

impl Reading {
    fn of(host: &Host) -> Self {
        let world = World::new();
        let requester = requester_of(host, &world);
        let session = Session::new(&answer(host), Via::Verbs, requester.max_read_blocks(), Limits::default());
        Self { session, requester, world }
    }

    fn read(&mut self) -> Result<(), DriveError> {
        let world = self.world.clone();
        let deadline_ns = world.now_ns.get() + 1_000_000_000;
        read_host(&mut self.requester, &mut self.session, deadline_ns, move || world.now_ns.get())
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for frame in self.session.frames() {
            frame.decode(|sample| {
                lines.push(format!("{}.{} {}", frame.entry().name, sample.field.name, sample.scaled()));
            });
        }
        lines
    }
}

#[test]
fn a_host_is_read_under_its_devices_keys() {
    let mut host = host();
    let wide = host.region(1, "shop", &[], WIDE);
    wide.words.set(0, 1, 42);
    host.region(2, "node", &[], GUARDED);
    let keyless = host.region(3, "keyless", &[], GUARDED);
    let entry = RegionEntry { device_rkey: 0, ..keyless.entry };
    host.control.replace(keyless.slot, &Entry::Region(entry), 3).unwrap();
    host.responders = RESPONDER_TCP;
    host.region(4, "agents", &[], GUARDED);
    let lengths = Arc::new(Mutex::new(Vec::new()));
    let log = lengths.clone();
    host.memory.hook(move |_, read| {
        log.lock().unwrap().push((read.rkey, read.length_bytes));
        None
    });
    let mut reading = Reading::of(&host);
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["shop.a_total 42", "node.g 0"]);
    wide.words.set(0, 1, 43);
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["shop.a_total 43", "node.g 0"]);
    assert_eq!(reading.session.directory().regions().count(), 4, "the directory has all");
    let lengths = lengths.lock().unwrap();
    let of_wide: Vec<_> = lengths.iter().filter(|(rkey, _)| *rkey == 1_001).map(|(_, bytes)| bytes / 1024).collect();
    assert_eq!(of_wide, [4, 4, 1, 4, 4, 1], "4 blocks at once");
    let counters = reading.requester.flows().counters();
    assert_eq!((counters.stray, counters.timeouts, counters.posted), (0, 0, lengths.len() as u64));
    assert_eq!((reading.world.overslept.get(), reading.requester.in_flight()), (0, 0));
}

#[test]
fn what_completes_before_the_alarm_is_set_is_not_slept_upon() {
    let mut host = host();
    host.region(1, "shop", &[], WIDE);
    let mut reading = Reading::of(&host);
    reading.world.is_early.set(true);
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["shop.a_total 0"]);
    assert_eq!((reading.world.overslept.get(), reading.world.now_ns.get()), (0, 0));
}

#[test]
fn a_key_that_the_device_does_not_know_costs_the_queue_pair() {
    let mut host = host();
    host.region(1, "shop", &[], WIDE);
    let gone = host.region(2, "gone", &[], GUARDED);
    host.memory.remove(gone.entry.rkey);
    let mut reading = Reading::of(&host);
    let broken = Broken::QueuePair(Fault::Access);
    let error = reading.read().unwrap_err();
    assert_eq!(error, DriveError::Broken(broken));
    assert!(error.to_string().contains("bootstrap") && error.to_string().contains("region"), "{error}");
    assert_eq!(reading.session.counters().failed["access"], 1);
    assert_eq!(reading.requester.submit(&[read(1)]), Err(broken));
    // The session goes on over a new one, and finds out that the region has gone.
    host.control.remove(gone.slot, 9);
    reading.requester = requester_of(&host, &reading.world);
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["shop.a_total 0"]);
}

#[test]
fn a_control_region_under_another_key_is_gone() {
    let host = host();
    host.memory.remove(CONTROL_RKEY);
    assert_eq!(Reading::of(&host).read(), Err(DriveError::Broken(Broken::QueuePair(Fault::Access))));
    // Without a queue pair in the answer no key is known.
    let requester = requester_of(&host, &World::new());
    let mut session = Session::new(&host.answer(1), Via::Verbs, requester.max_read_blocks(), Limits::default());
    session.begin(0, 1);
    let mut reads = Vec::new();
    session.wanted(0, 1, &mut reads);
    assert_eq!((reads[0].rkey, reads[0].va), (0, CONTROL_VA));
}

#[test]
fn what_comes_after_its_deadline_is_written_nowhere() {
    let world = World::new();
    let (mut requester, _) = requester(&world, Agreement::default());
    let mut memory = [Block([7; 128]); 8];
    world.pace.set(0);
    assert_eq!(requester.submit(&[Read { deadline_ns: 100, ..read(0) }]), Ok(1));
    assert_eq!(turn(&mut requester, &mut memory, 99), (vec![], Ok(())));
    assert_eq!(turn(&mut requester, &mut memory, 100), (vec![(0, Outcome::Timeout)], Ok(())));
    assert_eq!(requester.in_flight(), 0);
    world.pace.set(usize::MAX);
    assert_eq!(turn(&mut requester, &mut memory, 200), (vec![], Ok(())));
    assert_eq!(world.executed.get(), 1, "it has come");
    assert!(memory.iter().all(|block| *block == Block([7; 128])));
    // The queue pair is well.
    assert_eq!(requester.submit(&[read(1)]), Ok(1));
    assert_eq!(turn(&mut requester, &mut memory, 300), (vec![(1, Outcome::Done)], Ok(())));
    assert_eq!((memory[4].0[0], memory[4].0[127], memory[0], memory[5]), (8192, 8192 + 127 * 8, memory[1], memory[6]));
}

#[test]
fn when_a_queue_pair_fails_everything_on_it_ends_at_once_and_once() {
    let world = World::new();
    for (rkey, refusal, fault) in [(2, Refusal::Access, Fault::Access), (3, Refusal::InvalidRequest, Fault::Invalid)] {
        let mut desk = Desk::new(&world, |request| match request.rkey {
            1 => own_address(request),
            2 => Err(Status::Access),
            _ => Err(Status::Invalid),
        });
        let pair = desk.fake.pair(Settings::default(), Agreement::default());
        let mut requester = VerbsRequester::new(desk, pair, 4);
        let mut memory = [Block::default(); 20];
        let reads = [read(0), Read { rkey, ..read(1) }, read(2), read(3)];
        assert_eq!(requester.submit(&reads), Ok(4));
        let (ended, broken) = turn(&mut requester, &mut memory, 0);
        let (done, refused) = ((0, Outcome::Done), (1, Outcome::Refused(refusal)));
        assert_eq!(ended, [done, refused, (2, Outcome::Lost), (3, Outcome::Lost)]);
        assert_eq!(broken, Err(Broken::QueuePair(fault)));
        assert_eq!(turn(&mut requester, &mut memory, 0), (vec![], broken));
        assert_eq!((requester.submit(&reads), requester.in_flight()), (Err(Broken::QueuePair(fault)), 0));
        assert_eq!((memory[4], memory[8]), (Block::default(), Block::default()));
    }
    let (mut silent, _) = requester(&world, Agreement { packets: (7, 8), ..Agreement::default() });
    assert_eq!(silent.submit(&[read(0), read(1)]), Ok(2));
    let (ended, broken) = turn(&mut silent, &mut [Block::default(); 8], 0);
    assert_eq!(ended, [(0, Outcome::Lost), (1, Outcome::Lost)]);
    assert_eq!(broken, Err(Broken::QueuePair(Fault::NoAnswer)));
}

#[test]
fn a_queue_pair_that_fails_for_what_was_given_up_takes_the_rest_along() {
    let world = World::new();
    let mut desk = Desk::new(&world, |_| Err(Status::NoAnswer));
    let pair = desk.fake.pair(Settings::default(), Agreement::default());
    let mut requester = VerbsRequester::new(desk, pair, 4);
    let mut memory = [Block::default(); 8];
    world.pace.set(0);
    assert_eq!(requester.submit(&[Read { deadline_ns: 5, ..read(0) }, read(1)]), Ok(2));
    assert_eq!(turn(&mut requester, &mut memory, 5), (vec![(0, Outcome::Timeout)], Ok(())));
    // Only the first is executed.
    world.pace.set(1);
    let (ended, broken) = turn(&mut requester, &mut memory, 6);
    assert_eq!((ended, broken), (vec![(1, Outcome::Lost)], Err(Broken::QueuePair(Fault::NoAnswer))));
}

#[test]
fn more_reads_than_the_queue_takes_go_one_after_another() {
    let world = World::new();
    let (mut requester, _) = requester(&world, Agreement::default());
    let blocks = |id: u64| 1 + u32::try_from(id % 4).unwrap();
    let reads: Vec<_> = (0..100).map(|id| Read { blocks: blocks(id), ..read(id) }).collect();
    let mut memory = vec![Block([7; 128]); 400];
    let (mut sent, mut completions) = (0, Vec::new());
    while completions.len() < reads.len() {
        world.pace.set(1 + sent % 5);
        let taken = requester.submit(&reads[sent..]).unwrap();
        assert!(sent > 0 || taken == 16, "{taken}");
        sent += taken;
        assert!(requester.in_flight() <= 16);
        requester.poll(&mut memory, 0, &mut completions).unwrap();
        requester.wait(Duration::from_secs(1)).unwrap();
    }
    let mut ids: Vec<_> = completions.iter().map(|completion| completion.id).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..100));
    assert!(completions.iter().all(|completion| completion.outcome == Outcome::Done));
    for (id, place) in (0..).zip(memory.chunks(4)) {
        let (read, rest) = place.split_at(blocks(id) as usize);
        let mut words = (id << 13..).step_by(8).zip(read.iter().flat_map(|block| block.0));
        assert!(words.all(|(va, word)| va == word), "READ {id}");
        assert!(rest.iter().all(|block| *block == Block([7; 128])), "beside READ {id}");
    }
}

#[test]
fn a_batch_that_the_device_refuses_breaks_it_at_the_next_poll() {
    let world = World::new();
    let (mut requester, pair) = requester(&world, Agreement::default());
    assert_eq!(requester.submit(&[read(0)]), Ok(1));
    pair.borrow_mut().refuses = true;
    assert_eq!(requester.submit(&[read(1)]), Ok(0));
    let mut completions = Vec::new();
    let broken = Broken::System { operation: "posting READs", kind: io::ErrorKind::OutOfMemory };
    assert_eq!(requester.poll(&mut [Block::default(); 8], 0, &mut completions), Err(broken));
    assert_eq!(completions, [Completion { id: 0, outcome: Outcome::Lost }]);
    assert_eq!(requester.submit(&[read(2)]), Err(broken));
}

#[test]
fn one_flow_that_fails_or_goes_leaves_the_others_alone() {
    let world = World::new();
    let mut desk =
        Desk::new(&world, |request| if request.rkey == 1 { own_address(request) } else { Err(Status::Access) });
    let pairs: [FakePair; 3] = std::array::from_fn(|_| desk.fake.pair(Settings::default(), Agreement::default()));
    let mut flows = Flows::new(desk);
    let [bad, good, leaving] = pairs.map(|pair| flows.add(pair).unwrap());
    assert_eq!(flows.submit(bad, &[Read { rkey: 2, ..read(0) }, read(1)]), Ok(2));
    assert_eq!(flows.submit(good, &[read(2), read(3)]), Ok(2));
    assert_eq!(flows.submit(leaving, &[read(4)]), Ok(1));
    let mut completions = Vec::new();
    flows.remove(leaving, &mut completions);
    assert_eq!(completions, [Completion { id: 4, outcome: Outcome::Lost }]);
    assert_eq!((flows.broken(leaving), flows.submit(leaving, &[])), (Some(Broken::Closed), Err(Broken::Closed)));
    flows.port_mut().fake.run(4);
    completions.clear();
    let mut memory = vec![Block::default(); 20];
    flows.poll(&mut memory, 0, &mut completions).unwrap();
    completions.sort_unstable_by_key(|completion| completion.id);
    let outcomes: Vec<_> = completions.iter().map(|completion| completion.outcome).collect();
    assert_eq!(outcomes, [Outcome::Refused(Refusal::Access), Outcome::Lost, Outcome::Done, Outcome::Done]);
    assert_eq!((flows.broken(bad), flows.broken(good)), (Some(Broken::QueuePair(Fault::Access)), None));
    assert_eq!(flows.submit(good, &[read(4)]), Ok(1), "its neighbours' ends are theirs");
    assert_eq!((flows.in_flight(), flows.wake_ns()), (1, Some(u64::MAX)));
    // Completions that were lost were anybody's.
    world.has_overflowed.set(true);
    completions.clear();
    let broken = Broken::QueuePair(Fault::Overrun);
    assert_eq!(flows.poll(&mut memory, 0, &mut completions), Err(broken));
    assert_eq!(completions, [Completion { id: 4, outcome: Outcome::Lost }]);
    assert_eq!((flows.submit(good, &[read(5)]), flows.in_flight()), (Err(broken), 0));
}

fn told(responder: Responder) -> Bootstrapped {
    crate::told(answer(&host()), vec![responder])
}

#[test]
fn nobody_is_asked_for_a_queue_pair_that_cannot_be() {
    let connect =
        |responder: Responder| connect(&told(responder), Id([7; 16]), |_| panic!("the host was asked")).unwrap_err();
    let whole = Responder { kind: VERBS.into(), ..Responder::default() };
    let other = Responder { kind: "tcp".into(), ..whole.clone() };
    assert!(matches!(connect(other), Error::Host(HostError::NoResponder { wanted: VERBS, .. })));
    let away = Responder { problem: Some("the holder is away".into()), ..whole.clone() };
    assert!(matches!(connect(away), Error::Host(HostError::Problem { kind: VERBS, .. })));
    // Loopback is no device's address.
    assert!(matches!(connect(whole), Error::Device(_)));
}

#[test]
fn an_end_is_what_a_device_calls_an_endpoint() {
    let end = QueuePairEnd { queue_pair: 17, packet: 5, gid: Id([9; 16]), mtu_bytes: 1024, reads_answered: 16 };
    assert_eq!((end_of(&endpoint_of(&end)), endpoint_of(&end).check()), (end, Ok(())));
}
