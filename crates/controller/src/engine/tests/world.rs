// SPDX-License-Identifier: Apache-2.0
//! Hosts in memory, their network and their bootstraps, on a clock that the test moves.
//!
//! What carries READs counts for itself, and says so at once where more is under way than may be, or than the engine
//! has counted. Everything follows from the seed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use onlooker_bootstrap::Id;
use onlooker_reader::bootstrap::{Bootstrapped, Parting};
use onlooker_reader::clock::{Moment, Relation};
use onlooker_reader::{Broken, By, Completion, Memory, Outcome, Pair, Read, Via};
use onlooker_region::control::{RESPONDER_KERNEL, RESPONDER_TCP};
use onlooker_targets::{Priority, Target};
use onlooker_transport::Error;
use onlooker_transport::soft::Totals;

use crate::connect::{Answer, Connected, Step};
use crate::engine::orders::Order;
use crate::engine::outside::{Added, Carry, Connect, Gone};
use crate::engine::{Config, Engine, Next, Pressure};
use crate::fleet::fixture::direct::answer;
use crate::fleet::fixture::{self, memory};
use crate::processor::{Processor, Work};
use crate::sink::{Gap, Reading, Sink, State};

pub(super) const MS: u64 = 1_000_000;
/// Turns at one instant: more is a thread that does not sleep.
const MAX_TURNS: u32 = 1_000;

/// What a host does with READs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Answers,
    /// Answers nothing.
    Silent,
    /// Answers for its directory, and not for its regions.
    Halting,
}

/// A host to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) pair: Pair,
    pub(super) manner: Manner,
    pub(super) blocks: u32,
    pub(super) interval: Duration,
    pub(super) priority: Priority,
}

struct Far {
    memory: memory::Host,
    plan: Plan,
    /// As it is now.
    manner: Cell<Manner>,
}

/// A generator of numbers (splitmix64: Steele, Lea and Flood, 2014).
struct Dice(Cell<u64>);

impl Dice {
    fn below(&self, most: u64) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut mixed = self.0.get();
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % most
    }
}

/// What all of it shares.
struct Ground {
    now_ns: Cell<u64>,
    dice: Dice,
    hosts: Vec<Far>,
    pressure: Arc<Pressure>,
    credit_bytes: u64,
    host_credit_bytes: u64,
}

/// Most that was under way, by who asks; `None`: of all together.
pub(super) type Peaks = BTreeMap<Option<String>, u64>;

/// A READ under way.
struct Asked {
    host: usize,
    read: Read,
    began_ns: u64,
    is_late: bool,
}

/// READs under way, by when they end.
pub(super) struct Network {
    ground: Rc<Ground>,
    under_way: BTreeMap<(u64, u64), Asked>,
    number: u64,
    bytes: BTreeMap<usize, u64>,
    peaks: Peaks,
    /// With more than that under way, answers to soft requesters are marked.
    pub(super) congested_bytes: u64,
    totals: Totals,
    /// Until then no READ is taken; nothing tells of the end.
    full_until_ns: u64,
    /// Those whose host has closed the connection.
    closed: BTreeSet<usize>,
}

impl Network {
    fn all_bytes(&self, wanted: impl Fn(By) -> bool) -> u64 {
        let by = |host: usize| self.ground.hosts[host].plan.pair.by;
        self.bytes.iter().filter(|(host, _)| wanted(by(**host))).map(|(_, bytes)| bytes).sum()
    }

    /// Of hosts that have not answered a READ for 10 ms.
    fn stalled_bytes(&self) -> u64 {
        let before_ns = self.ground.now_ns.get().saturating_sub(10 * MS);
        let old = self.under_way.values().filter(|asked| asked.began_ns <= before_ns).map(|asked| asked.host);
        old.collect::<BTreeSet<_>>().iter().map(|host| self.bytes[host]).sum()
    }

    fn ends(&mut self, host: usize, read: &Read) {
        *self.bytes.get_mut(&host).unwrap() -= u64::from(read.blocks) * 1024;
    }

    /// Most that was under way since this was asked.
    pub(super) fn take_peaks(&mut self) -> Peaks {
        std::mem::take(&mut self.peaks)
    }
}

impl Carry for Network {
    type Place = usize;

    fn submit(&mut self, host: usize, reads: &[Read]) -> Result<usize, Broken> {
        let ground = self.ground.clone();
        if self.closed.contains(&host) {
            return Err(Broken::Closed);
        }
        if ground.now_ns.get() < self.full_until_ns {
            return Ok(0);
        }
        let Far { plan: Plan { pair, .. }, manner, .. } = &ground.hosts[host];
        let manner = manner.get();
        for read in reads {
            let is_control = read.va & memory::CONTROL_VA == memory::CONTROL_VA;
            let is_answered = manner == Manner::Answers || (manner == Manner::Halting && is_control);
            let delay_ns = MS / 10 + ground.dice.below(MS);
            let at_ns = if is_answered { ground.now_ns.get() + delay_ns } else { u64::MAX };
            let is_late = at_ns >= read.deadline_ns;
            self.number += 1;
            let asked = Asked { host, read: *read, began_ns: ground.now_ns.get(), is_late };
            self.under_way.insert((at_ns.min(read.deadline_ns), self.number), asked);
            *self.bytes.entry(host).or_default() += u64::from(read.blocks) * 1024;
        }
        let bytes = self.all_bytes(|_| true);
        let total = ground.pressure.total_bytes.load(Ordering::Relaxed);
        let is_within = bytes <= total || bytes <= total + self.stalled_bytes();
        assert!(is_within && bytes <= ground.credit_bytes, "{bytes} under way, {total} may be");
        assert!(self.bytes[&host] <= ground.host_credit_bytes, "{} of one host", self.bytes[&host]);
        let own = self.all_bytes(|by| by == pair.by);
        for (whose, bytes) in [(None, bytes), (Some(pair.by.to_string()), own)] {
            let peak = self.peaks.entry(whose).or_default();
            *peak = bytes.max(*peak);
        }
        self.totals.congestion_marked += u64::from(pair.by == By::Soft && bytes > self.congested_bytes);
        Ok(reads.len())
    }

    fn poll(&mut self, memory: &mut impl Memory, now_ns: u64, completions: &mut Vec<Completion>, _: &mut Vec<Gone>) {
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= now_ns) {
            let Asked { host, read, is_late, .. } = entry.remove();
            self.ends(host, &read);
            let blocks = memory.blocks(read.id, read.at, read.blocks);
            let outcome = match is_late {
                true => Outcome::Timeout,
                false => answer(&self.ground.hosts[host].memory, &read, blocks),
            };
            completions.push(Completion { id: read.id, outcome });
        }
    }

    fn broken(&mut self, host: usize) -> Option<Broken> {
        self.closed.contains(&host).then_some(Broken::Closed)
    }

    fn remove(&mut self, host: usize) {
        self.under_way.retain(|_, asked| asked.host != host);
        self.bytes.remove(&host);
        self.closed.remove(&host);
    }

    fn device_of(_: usize) -> Option<u32> {
        None
    }

    fn device(&self, _: IpAddr, _: u64) -> Option<Result<(), &str>> {
        Some(Err("there is none"))
    }

    fn repeated(&self, _: usize) -> u64 {
        0
    }

    fn totals(&self) -> Totals {
        self.totals
    }

    fn wake_ns(&self) -> Option<u64> {
        self.under_way.keys().next().map(|(at_ns, _)| *at_ns)
    }
}

/// Bootstraps that are under way, by when they end.
pub(super) struct Bootstraps {
    ground: Rc<Ground>,
    under_way: RefCell<BTreeMap<(u64, u64), usize>>,
    /// So many ways cannot be used.
    pub(super) unusable: Cell<u64>,
}

impl Connect for Bootstraps {
    type Carriers = Network;
    /// The host, and how it is read.
    type Way = (usize, Pair);

    fn ask(&self, id: u64, target: Arc<Target>, _: Via, _: bool) {
        let at_ns = self.ground.now_ns.get() + MS + self.ground.dice.below(20 * MS);
        self.under_way.borrow_mut().insert((at_ns, id), usize::from(target.port));
    }

    fn rest(&self, _: u64, _: Arc<Target>, _: Box<Bootstrapped>, _: (Via, bool)) {
        panic!("nobody is told of a device");
    }

    // Without an answer, as where a host says nothing.
    fn clock(&self, _: u64, _: Arc<Target>, _: SocketAddr) {}

    fn part(&self, _: Parting) {
        panic!("nobody has a queue pair");
    }

    fn end(&self, _: Box<dyn Send>) {}

    fn open(&self, _: IpAddr) {
        panic!("there is no device");
    }

    fn reader_id(&self) -> Result<Id, Error> {
        Ok(Id([1; 16]))
    }

    fn pair(
        &self,
        _: &Network,
        _: (u64, Arc<Target>),
        told: Box<Bootstrapped>,
        _: Id,
        _: (Via, bool),
    ) -> Result<(), (Box<Bootstrapped>, String)> {
        Err((told, "there is no device".into()))
    }

    fn answer(&mut self, _: &mut Network, now_ns: u64) -> Option<Answer<Self::Way, ()>> {
        let mut under_way = self.under_way.borrow_mut();
        let entry = under_way.first_entry().filter(|entry| entry.key().0 <= now_ns)?;
        let ((_, id), host) = entry.remove_entry();
        let moment = Moment { steady_ns: now_ns, utc_ns: now_ns };
        let told = Bootstrapped {
            answer: self.ground.hosts[host].memory.answer(1),
            peer: ([127, 0, 0, 1], 1).into(),
            local: [127, 0, 0, 1].into(),
            relation: Relation::new(now_ns, moment, moment),
            round_trip: Duration::ZERO,
        };
        let connected =
            Connected { told, way: (host, self.ground.hosts[host].plan.pair), instead: None, parting: None };
        Some(Answer::Host(id, Ok(Step::Linked(Box::new(connected)))))
    }

    fn pair_of((_, pair): &Self::Way) -> Pair {
        *pair
    }

    fn add(&self, _: &mut Network, _: &Bootstrapped, (host, _): Self::Way, _: u32) -> Result<Added<usize>, String> {
        if let Some(left) = self.unusable.get().checked_sub(1) {
            self.unusable.set(left);
            return Err("there is no room for it".into());
        }
        Ok(Added { place: host, max_read_blocks: 64, mirror: None })
    }
}

/// What became of a host's due times.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Readings with all regions.
    pub(super) good: u64,
    /// Readings that lack something.
    pub(super) partial: u64,
    /// Due times without a reading, by reason.
    pub(super) missed: BTreeMap<&'static str, u64>,
    last_due_ns: Option<u64>,
}

#[derive(Default)]
pub(super) struct Seen {
    pub(super) hosts: Vec<Told>,
    /// Everything, in order.
    pub(super) log: Vec<(usize, u64, &'static str)>,
}

impl Seen {
    /// Each due time comes once, in order, without a hole.
    fn due(&mut self, target: &Target, from_ns: u64, to_ns: u64, what: &'static str) -> &mut Told {
        let host = usize::from(target.port);
        self.log.push((host, from_ns, what));
        let told = &mut self.hosts[host];
        let next_ns = told.last_due_ns.map_or(from_ns, |last_ns| last_ns + target.interval_ns());
        assert_eq!(from_ns, next_ns, "host {host}: {what}");
        told.last_due_ns = Some(to_ns);
        told
    }
}

impl Sink for Seen {
    fn reading(&mut self, target: &Arc<Target>, reading: &Reading) {
        let is_good = reading.frames.iter().count() > 0 && reading.frames.iter().all(|frame| frame.problem().is_none());
        let told = self.due(target, reading.due_ns, reading.due_ns, "reading");
        told.good += u64::from(is_good);
        told.partial += u64::from(!is_good);
    }

    fn gap(&mut self, target: &Arc<Target>, gap: Gap) {
        assert_eq!(gap.due_times, (gap.to_ns - gap.from_ns) / target.interval_ns() + 1);
        let told = self.due(target, gap.from_ns, gap.to_ns, gap.reason);
        *told.missed.entry(gap.reason).or_default() += gap.due_times;
    }

    fn state(&mut self, _: &Arc<Target>, _: State) {}

    fn gone(&mut self, _: &Arc<Target>) {}
}

/// The engine and all that is around it.
pub(super) struct World {
    pub(super) engine: Engine<Bootstraps>,
    pub(super) pressure: Arc<Pressure>,
    pub(super) seen: Seen,
    ground: Rc<Ground>,
    work: Work,
    _orders: Sender<Order>,
}

impl World {
    pub(super) fn new(seed: u64, config: Config, plans: &[Plan]) -> Self {
        let pressure = Arc::new(Pressure::default());
        let ground = Rc::new(Ground {
            now_ns: Cell::new(MS),
            dice: Dice(Cell::new(seed)),
            hosts: plans.iter().map(|plan| far(*plan)).collect(),
            pressure: pressure.clone(),
            credit_bytes: config.credit_bytes.into(),
            host_credit_bytes: config.host_credit_bytes.into(),
        });
        let network = Network {
            ground: ground.clone(),
            under_way: BTreeMap::new(),
            number: 0,
            bytes: BTreeMap::new(),
            peaks: Peaks::default(),
            congested_bytes: u64::MAX,
            totals: Totals::default(),
            full_until_ns: 0,
            closed: BTreeSet::new(),
        };
        let bootstraps = Bootstraps { ground: ground.clone(), under_way: RefCell::default(), unusable: Cell::new(0) };
        let (processor, mut works) = Processor::new(1);
        let work = works.remove(0);
        let (orders, taken) = channel();
        let engine = Engine::new(config, network, bootstraps, processor, taken, pressure.clone());
        for (host, plan) in (0..).zip(plans) {
            let Plan { interval, priority, .. } = *plan;
            let target = Target { port: host, interval, priority, ..fixture::target(&format!("host-{host}")) };
            orders.send(Order::Watch(Arc::new(target))).unwrap();
        }
        let seen = Seen { hosts: plans.iter().map(|_| Told::default()).collect(), log: Vec::new() };
        Self { engine, pressure, seen, ground, work, _orders: orders }
    }

    pub(super) fn network(&mut self) -> &mut Network {
        self.engine.carriers()
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, ns: u64) {
        let ground = self.ground.clone();
        let end_ns = ground.now_ns.get() + ns;
        let mut turns = 0;
        while ground.now_ns.get() < end_ns {
            let now_ns = ground.now_ns.get();
            let next = self.engine.turn(|| now_ns);
            self.work.catch_up(&mut self.seen);
            // What the engine counts is what there is.
            let counted = self.engine.in_flight.bytes();
            assert_eq!(counted, self.network().all_bytes(|_| true));
            turns += 1;
            assert!(turns < MAX_TURNS, "no sleep at {now_ns}: {next:?}");
            if let Next::Sleep { until_ns } = next {
                let told_ns = self.engine.connector.under_way.borrow().keys().next().map(|(at_ns, _)| *at_ns);
                let next_ns = [until_ns, told_ns].into_iter().flatten().fold(end_ns, u64::min);
                if next_ns > now_ns {
                    turns = 0;
                    ground.now_ns.set(next_ns);
                }
            }
        }
    }

    /// From now on a host does that with READs.
    pub(super) fn behave(&self, host: usize, manner: Manner) {
        self.ground.hosts[host].manner.set(manner);
    }

    /// The host closes its connection.
    pub(super) fn close(&mut self, host: usize) {
        self.network().closed.insert(host);
    }

    /// For so long no READ is taken.
    pub(super) fn fill(&mut self, ns: u64) {
        self.network().full_until_ns = self.ground.now_ns.get() + ns;
    }

    /// Bytes of a host's READs under way.
    pub(super) fn held(&self, host: usize) -> u64 {
        self.engine.in_flight.of(self.engine.hosts[host].as_ref().unwrap().flow)
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.pressure.total_bytes.load(Ordering::Relaxed)
    }
}

fn far(plan: Plan) -> Far {
    let mut memory = memory::Host::new(16);
    memory.responders = RESPONDER_TCP | RESPONDER_KERNEL;
    let blocks = plan.blocks;
    let fields = r#"[{"name":"a_total","metric":"counter","type":"u64"}]"#;
    let schema = format!(r#"{{"name":"shop","groups":[{{"kind":"plain","blocks":{blocks},"fields":{fields}}}]}}"#);
    memory.region(1, "shop", &[], &schema);
    Far { memory, plan, manner: Cell::new(plan.manner) }
}
