// SPDX-License-Identifier: Apache-2.0
//! One thread that reads all hosts, each at its pace.
//!
//! [`onlooker_flow::Schedule`] says whose reading begins; a host's [`onlooker_reader::Session`] says which READs it
//! wants; [`onlooker_flow::InFlight`] says how many of them may go, over all that carries them together, and
//! [`onlooker_flow::Line`] who is asked first.
//!
//! `Engine` only decides: what carries READs and what finds ways to hosts are given to it (`outside`), times as
//! well. `rim` gives it the real ones, and sleeps in epoll until an answer, a timer, or the connector has something.
//!
//! What it has read goes to the processor's thread. Owned by its thread; orders come through [`Orders`]. Cost: two
//! system calls a batch of 64 READs and one epoll a turn; no allocation a READ.

mod carriers;
mod clock;
mod connecting;
mod devices;
mod host;
mod hosts;
mod link;
mod names;
mod opening;
mod orders;
mod outside;
mod polling;
mod rim;
mod running;
mod sockets;
mod streams;
mod waiter;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlooker_flow::{Credits, Due, Ending, FlowId, InFlight, Line, Phases, Schedule, Served, Sharing};
use onlooker_reader::{Completion, Limits, Read, SchemaCache, Via};
use onlooker_targets::{Say, Target};
use onlooker_transport::soft::Totals;

use crate::processor::Processor;
use crate::sink::{Gap, State};
use host::{Ended, Host};
use opening::Openings;
use orders::Order;
use outside::{Carry as _, Connect, Gone, PlaceOf};

pub use orders::Orders;
pub use polling::{MANY_READS, Polling, UnderWay, Waiting};
pub use running::Running;

/// READs taken from a session at once.
const BATCH: usize = 256;
/// Credits are looked at so often, ns: a round trip of a network that is not congested.
const CREDITS_INTERVAL_NS: u64 = 1_000_000;
/// Who waits for a place tells what it has missed so often, ns.
const OVERDUE_INTERVAL_NS: u64 = 1_000_000_000;
/// What the processor has no room for is told again so often, ns.
const TOLD_INTERVAL_NS: u64 = 1_000_000;

/// What is in flight, for who shows it.
#[derive(Debug, Default)]
pub struct Pressure {
    /// Bytes that may be in flight, of all hosts together, whatever carries them.
    pub total_bytes: AtomicU64,
    /// Bytes that are.
    pub in_flight_bytes: AtomicU64,
    /// READs that were answered.
    pub reads: AtomicU64,
    /// Bytes in the answers, without headers.
    pub read_bytes: AtomicU64,
    /// Addresses that hosts have been read from.
    pub locals: Mutex<BTreeSet<IpAddr>>,
    /// Times that congestion made the total give way.
    pub decreases: AtomicU64,
    /// Times that a host was to be read by this machine's device, and there was no queue pair.
    pub detours: AtomicU64,
    /// What soft requesters' sockets have counted.
    pub soft: Mutex<Totals>,
    /// By which the soft requester of each local address sends and receives, for people.
    pub sockets: Mutex<BTreeMap<IpAddr, String>>,
    /// Times that a way to a host was found and could not be used, by [`onlooker_reader::By`]: the host is asked again.
    pub unusable: [AtomicU64; 3],
}

/// How the engine works.
#[derive(Clone)]
pub struct Config {
    /// Hosts in a reading at once, at most.
    pub window: usize,
    /// Bytes in flight of all hosts, at most.
    pub credit_bytes: u32,
    /// Bytes in flight from one host, at most.
    pub host_credit_bytes: u32,
    /// How hosts share what may be in flight.
    pub sharing: Sharing,
    /// When hosts of one interval are due.
    pub phases: Phases,
    /// What one reading of a host may cost.
    pub limits: Limits,
    /// Threads for bootstraps.
    pub connectors: usize,
    /// How long a bootstrap may take, and at least how long a reading.
    pub timeout: Duration,
    /// Names of regions that are not read.
    pub skip: Arc<[String]>,
    /// Soft requesters go past the kernel's UDP, by AF_XDP, where they can.
    pub af_xdp: bool,
    /// How its thread waits for answers.
    pub waiting: Waiting,
    /// What it may spend on polling for them, percent of a core.
    pub poll_percent: u8,
    /// Is told what an operator wants to know.
    pub say: Say,
}

impl Default for Config {
    fn default() -> Self {
        let timeout = Duration::from_secs(2);
        Self {
            window: 128,
            credit_bytes: 4 << 20,
            host_credit_bytes: 256 << 10,
            sharing: Sharing::Total,
            phases: Phases::Spread,
            limits: Limits::default(),
            connectors: 12,
            timeout,
            // A row for each connection, each a track in the store: what ports have of them is what is kept.
            skip: ["tcp_connections".to_owned()].into(),
            af_xdp: false,
            waiting: Waiting::Sleep,
            poll_percent: 25,
            say: Arc::new(|_| ()),
        }
    }
}

/// Why there is no engine, or no more.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A system call failed.
    #[error("the reading thread cannot {operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

fn system(operation: &'static str) -> impl FnOnce(std::io::Error) -> EngineError {
    move |source| EngineError::System { operation, source }
}

/// What is next after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing: it was told to stop.
    Stop,
    /// Another turn: something has moved.
    Again,
    /// Another turn when something has come, and not later than that; `None`: whenever that is.
    Sleep { until_ns: Option<u64> },
}

/// The engine itself.
struct Engine<N: Connect> {
    config: Config,
    processor: Processor,
    schedule: Schedule,
    hosts: Vec<Option<Host<PlaceOf<N>>>>,
    free: Vec<usize>,
    by_name: HashMap<String, usize>,
    by_flow: HashMap<FlowId, usize>,
    /// Hosts in a reading.
    active: Line<usize>,
    carriers: N::Carriers,
    /// Those of all hosts.
    schemas: Arc<SchemaCache>,
    /// Devices that are being opened, and who waits for them.
    opening: Openings<connecting::Waiting>,
    /// Devices that were lost in the poll of now.
    gone: Vec<Gone>,
    connector: N,
    orders: Receiver<Order>,
    credits: Credits,
    credits_at_ns: u64,
    overdue_ns: u64,
    in_flight: InFlight,
    /// When answers were looked for last, or it woke up since.
    looked_ns: u64,
    was_asleep: bool,
    /// Somebody waits for credit, or for room on its way, which may come with nothing else.
    is_short: bool,
    polling: Polling,
    /// Whose clock is asked for.
    clocks: clock::Turn,
    /// What soft requesters' sockets had counted when the network last had its say.
    heeded: Totals,
    pressure: Arc<Pressure>,
    generation: u32,
    due: Vec<Due>,
    reads: Vec<Read>,
    completions: Vec<Completion>,
}

impl<N: Connect> Engine<N> {
    fn new(
        config: Config,
        carriers: N::Carriers,
        connector: N,
        processor: Processor,
        orders: Receiver<Order>,
        pressure: Arc<Pressure>,
    ) -> Self {
        let credits = Credits::new(onlooker_flow::Limits::up_to(config.credit_bytes), config.sharing);
        pressure.total_bytes.store(credits.total_bytes().into(), Ordering::Relaxed);
        Self {
            processor,
            schedule: Schedule::new(config.window).with(config.phases),
            hosts: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::new(),
            by_flow: HashMap::new(),
            active: Line::default(),
            carriers,
            schemas: Arc::default(),
            opening: Openings::new(),
            gone: Vec::new(),
            connector,
            orders,
            credits,
            credits_at_ns: 0,
            overdue_ns: 0,
            in_flight: InFlight::default(),
            looked_ns: 0,
            was_asleep: false,
            is_short: false,
            polling: Polling::new(config.waiting, config.poll_percent),
            clocks: clock::Turn::default(),
            heeded: Totals::default(),
            pressure,
            generation: 0,
            due: Vec::new(),
            reads: Vec::with_capacity(BATCH),
            completions: Vec::with_capacity(BATCH),
            config,
        }
    }

    /// What carries READs.
    fn carriers(&mut self) -> &mut N::Carriers {
        &mut self.carriers
    }

    /// Does what is to be done now. `clock` tells the time, ns.
    fn turn(&mut self, clock: impl Fn() -> u64) -> Next {
        let now_ns = clock();
        if std::mem::take(&mut self.was_asleep) {
            // Who sleeps is woken by the first answer.
            self.looked_ns = now_ns;
        }
        if !self.take_orders(now_ns) || self.processor.is_gone() {
            return Next::Stop;
        }
        let has_more = self.take_answers(now_ns);
        // A queue pair may have been made, which takes a millisecond.
        let now_ns = clock();
        self.expire_openings(now_ns);
        self.begin_due(now_ns);
        self.tell_overdue(now_ns);
        let asked = self.ask(&clock);
        // Where host and reader are one machine, READs are answered while they are sent.
        let now_ns = clock();
        let moved = self.take_completions(now_ns) || asked;
        self.give_credits(now_ns);
        if moved || has_more {
            return Next::Again;
        }
        let until_ns = self.wake_ns(now_ns);
        let under_way = self.under_way(now_ns);
        self.was_asleep = !self.polling.again(under_way, now_ns);
        if self.was_asleep { Next::Sleep { until_ns } } else { Next::Again }
    }

    /// What may come soon: hosts that have been silent for a while are not waited for.
    fn under_way(&self, now_ns: u64) -> UnderWay {
        if self.config.waiting == Waiting::Sleep {
            return UnderWay::Nothing;
        }
        let hosts = self.active.iter().filter_map(|index| self.hosts[index].as_ref());
        let of = |host: &Host<_>| match self.in_flight.of(host.flow) > self.in_flight.stalled(host.flow, now_ns) {
            false => UnderWay::Nothing,
            true if host.reads_a_cycle() < MANY_READS => UnderWay::OfFew,
            true => UnderWay::OfMany,
        };
        hosts.map(of).max().unwrap_or(UnderWay::Nothing)
    }

    /// Hosts are told to end our queue pairs; the connector's end waits for that, not for long.
    fn close(mut self) {
        for parting in self.hosts.iter_mut().flatten().filter_map(Host::part) {
            self.connector.part(parting);
        }
    }

    /// False once it is to stop.
    fn take_orders(&mut self, now_ns: u64) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Watch(target)) => {
                    self.forget(&target.name);
                    self.watch(target, now_ns);
                }
                Ok(Order::Forget(name)) => self.forget(&name),
                Ok(Order::Call(names)) => self.call(&names, now_ns),
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn call(&mut self, names: &[String], now_ns: u64) {
        for index in names.iter().filter_map(|name| self.by_name.get(name)) {
            self.hosts[*index].iter().for_each(|host| self.schedule.call(host.flow, now_ns));
        }
    }

    fn watch(&mut self, target: Arc<Target>, now_ns: u64) {
        let interval_ns = target.interval_ns().max(1);
        let flow = self.schedule.add(interval_ns, target.priority, now_ns);
        // Answers for a host that had this place before carry another number.
        self.generation = self.generation.wrapping_add(1);
        let index = self.free.pop().unwrap_or(self.hosts.len());
        if index == self.hosts.len() {
            self.hosts.push(None);
        }
        self.by_name.insert(target.name.clone(), index);
        self.by_flow.insert(flow, index);
        self.processor.state(&target, State::Connecting);
        let host = Host::new(target.clone(), flow, index, self.generation);
        self.connector.ask(host.ticket(), target, Via::Verbs, false);
        self.hosts[index] = Some(host);
    }

    /// Whoever takes its place is another reader to the host: what is said here may come later than that one's first
    /// word.
    fn forget(&mut self, name: &str) {
        let Some(index) = self.by_name.remove(name) else { return };
        let Some(mut host) = self.hosts[index].take() else { return };
        self.schedule.remove(host.flow);
        self.by_flow.remove(&host.flow);
        self.active.retain(|other| other != index);
        host.unlink(&mut self.carriers, &mut self.in_flight);
        host.part().into_iter().for_each(|parting| self.connector.part(parting));
        self.processor.gone(&host.target);
        self.free.push(index);
    }

    /// Begins the readings that are due; hosts that cannot be read have a gap instead, and are asked again when their
    /// pause is over.
    fn begin_due(&mut self, now_ns: u64) {
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        self.schedule.begin(now_ns, &mut due);
        for due in &due {
            let Some(index) = self.by_flow.get(&due.flow).copied() else { continue };
            let Some(host) = self.hosts[index].as_mut() else { continue };
            tell_missed(&mut self.processor, host, *due);
            if let Some(pair) = host.improve(&mut self.carriers) {
                self.processor.state(&host.target, State::Reading(pair));
            }
            if host.begin(*due, now_ns, self.config.timeout) {
                self.active.push(index, host.target.priority);
                self.improve(index, now_ns);
                self.renew_clock(index, now_ns);
                continue;
            }
            let gap = Gap { from_ns: due.due_ns, to_ns: due.due_ns, due_times: 1, reason: host.reason() };
            self.processor.gap(&host.target, gap);
            self.schedule.end(due.flow, Ending::Unasked, now_ns);
            ask_again(&self.connector, host, now_ns);
        }
        self.due = due;
    }

    /// Who waits for a place has gaps meanwhile, not only once it is read.
    fn tell_overdue(&mut self, now_ns: u64) {
        if now_ns < self.overdue_ns {
            return;
        }
        self.overdue_ns = now_ns + OVERDUE_INTERVAL_NS;
        let mut overdue = std::mem::take(&mut self.due);
        overdue.clear();
        self.schedule.overdue(now_ns, &mut overdue);
        for due in &overdue {
            let host = self.by_flow.get(&due.flow).and_then(|index| self.hosts[*index].as_ref());
            host.into_iter().for_each(|host| tell_missed(&mut self.processor, host, *due));
        }
        self.due = overdue;
    }

    /// Sends the READs that sessions want, as far as there is credit; true if there were any. Each host's have a time
    /// of their own, since the values' times are bounded by it.
    fn ask(&mut self, clock: impl Fn() -> u64) -> bool {
        let now_ns = clock();
        let flows = self.active.iter().filter_map(|index| self.hosts[index].as_ref().map(|host| host.flow));
        let stalled_bytes = flows.map(|flow| self.in_flight.stalled(flow, now_ns)).sum();
        let (hosts, taken_bytes) = (self.active.len(), self.in_flight.bytes());
        let host_bytes = self.config.host_credit_bytes;
        let credit = self.credits.credit(host_bytes, hosts, taken_bytes, stalled_bytes);
        let Self { active, hosts, carriers, in_flight, credits, reads, .. } = self;
        let mut moved = false;
        self.is_short = active.serve(|index, is_late| {
            let Some(host) = hosts[index].as_mut() else { return Served::Done };
            let credit = (!is_late).then_some(credit);
            let (served, has_moved, room) = host.submit(carriers, in_flight, credit, clock(), reads);
            moved |= has_moved;
            credit.into_iter().for_each(|credit| credits.refused(room, credit, host_bytes));
            served
        });
        moved
    }

    /// Takes the answers, and ends the readings that have all of theirs, or no time left; true if anything came or
    /// ended.
    fn take_completions(&mut self, now_ns: u64) -> bool {
        self.completions.clear();
        let memory = &mut hosts::Hosts(&mut self.hosts);
        self.carriers.poll(memory, now_ns, &mut self.completions, &mut self.gone);
        self.lose_devices(now_ns);
        let Self { hosts, carriers, in_flight, credits, completions, .. } = self;
        let times = (std::mem::replace(&mut self.looked_ns, now_ns), now_ns);
        let (reads, bytes) = hosts::deliver(hosts, carriers, in_flight, credits, completions, times);
        self.pressure.reads.fetch_add(reads, Ordering::Relaxed);
        self.pressure.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut moved = !self.completions.is_empty();
        let mut active = std::mem::take(&mut self.active);
        active.retain(|index| {
            let ended = self.hosts[index].as_mut().and_then(|host| host.ended(now_ns));
            let goes_on = ended.is_none();
            if let Some(ended) = ended {
                moved = true;
                self.end(index, ended, now_ns);
            }
            goes_on
        });
        self.active = active;
        moved
    }

    /// What was read over devices that have gone is to be read anew: hosts in a reading learn of it when that ends, the
    /// others now.
    fn lose_devices(&mut self, now_ns: u64) {
        for Gone { number, why, remains } in std::mem::take(&mut self.gone) {
            for host in self.hosts.iter_mut().flatten() {
                let state = host.lose_device::<N::Carriers>(number, &why, now_ns);
                host.part_if_unused().into_iter().for_each(|parting| self.connector.part(parting));
                let Some(state) = state else { continue };
                host.unlink(&mut self.carriers, &mut self.in_flight);
                self.processor.state(&host.target, state);
                ask_again(&self.connector, host, now_ns);
            }
            self.connector.end(remains);
        }
    }

    /// Lets the network have its say.
    fn give_credits(&mut self, now_ns: u64) {
        if now_ns < self.credits_at_ns {
            return;
        }
        self.credits_at_ns = now_ns + CREDITS_INTERVAL_NS;
        let totals = self.carriers.totals();
        let Totals { congestion_marked, recovered, .. } = std::mem::replace(&mut self.heeded, totals);
        self.credits.congestion(totals.congestion_marked.saturating_sub(congestion_marked));
        self.credits.recovered(totals.recovered.saturating_sub(recovered));
        // Who shows it may look just now: then the next time.
        if let Ok(mut shown) = self.pressure.soft.try_lock() {
            *shown = totals;
        }
        self.credits.advance(now_ns, CREDITS_INTERVAL_NS);
        self.pressure.total_bytes.store(self.credits.total_bytes().into(), Ordering::Relaxed);
        self.pressure.in_flight_bytes.store(self.in_flight.bytes(), Ordering::Relaxed);
        self.pressure.decreases.store(self.credits.decreases, Ordering::Relaxed);
    }

    fn end(&mut self, index: usize, ended: Ended, now_ns: u64) {
        let Some(host) = self.hosts[index].as_mut() else { return };
        let ending = match &ended {
            Ended::Read => Ending::Answered,
            Ended::Failed { reason: "timeout", .. } => Ending::TimedOut,
            Ended::Failed { .. } => Ending::Unasked,
        };
        self.schedule.end(host.flow, ending, now_ns);
        match ended {
            Ended::Read => {
                let repeated = host.place().map_or(0, |place| self.carriers.repeated(place));
                if let Some(reading) = host.reading(now_ns, repeated, self.processor.spare())
                    && !self.processor.reading(&host.target, reading, &host.share)
                {
                    host.was_dropped();
                }
            }
            Ended::Failed { due_ns, reason, state } => {
                self.processor.gap(&host.target, Gap { from_ns: due_ns, to_ns: due_ns, due_times: 1, reason });
                let Some(state) = state else { return };
                host.unlink(&mut self.carriers, &mut self.in_flight);
                self.processor.state(&host.target, state);
                ask_again(&self.connector, host, now_ns);
            }
        }
    }

    /// When there is something to do even if nothing comes.
    fn wake_ns(&mut self, now_ns: u64) -> Option<u64> {
        let credits_ns = self.is_short.then_some(self.credits_at_ns);
        let timers = [self.schedule.next_ns(), self.opening.next_ns(), self.carriers.wake_ns(), credits_ns];
        let sessions = self.active.iter().filter_map(|index| self.hosts[index].as_ref().map(Host::wake_ns));
        let told_ns = if self.processor.flush() { u64::MAX } else { now_ns + TOLD_INTERVAL_NS };
        let until_ns = timers.into_iter().flatten().chain(sessions).chain([told_ns]).min();
        until_ns.filter(|until_ns| *until_ns < u64::MAX)
    }
}

/// Due times that were missed while a host waited for a place.
fn tell_missed<P>(processor: &mut Processor, host: &Host<P>, due: Due) {
    if due.missed > 0 {
        let interval_ns = host.target.interval_ns();
        let from_ns = due.due_ns.saturating_sub(due.missed * interval_ns);
        let to_ns = due.due_ns.saturating_sub(interval_ns);
        // Those who do not answer wait for each other: that says nothing of how late we are.
        let reason = if due.is_on_probation { "timeout" } else { "late" };
        processor.gap(&host.target, Gap { from_ns, to_ns, due_times: due.missed, reason });
    }
}

/// Has a host asked that cannot be read, unless it has to wait.
fn ask_again<N: Connect>(connector: &N, host: &mut Host<PlaceOf<N>>, now_ns: u64) {
    if host.may_ask(now_ns) {
        connector.ask(host.ticket(), host.target.clone(), host.first(now_ns), host.has_failed());
    }
}

#[cfg(test)]
mod goodbyes;
#[cfg(test)]
mod tests;
