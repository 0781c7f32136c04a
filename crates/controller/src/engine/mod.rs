// SPDX-License-Identifier: Apache-2.0
//! One thread that reads all hosts, each at its pace.
//!
//! [`onlooker_flow::Schedule`] says whose reading begins; a host's [`onlooker_reader::Session`] says which READs it
//! wants; RDMA devices, soft requesters (of either one for each of our addresses) and TCP connections carry them. The
//! thread sleeps in epoll until an answer, a timer, or the connector has something for it.
//!
//! What it has read goes to the processor's thread. Owned by its thread; orders come through [`Orders`]. Only its loop
//! reads the clock; every decision is made by a time that the loop hands down. Cost: two system calls a batch of 64
//! READs and one epoll a turn; no allocation a READ.

mod clock;
mod connecting;
mod devices;
mod host;
mod hosts;
mod link;
mod names;
mod opening;
mod orders;
mod running;
mod sockets;

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use onlooker_flow::{Credits, Due, Ending, FlowId, Schedule};
use onlooker_reader::{Completion, Limits, Read, SchemaCache, Via};
use onlooker_targets::Target;
use onlooker_transport::soft;
use onlooker_transport::verbs::Card;
use rustix::event::{EventfdFlags, eventfd};

use crate::connect::Connector;
use crate::processor::Processor;
use crate::sink::{Gap, State};
use devices::{Devices, Gone};
use host::{Ended, Host};
use link::Carriers;
use opening::Openings;
use orders::{Order, ring};
use sockets::{Sockets, Waiter};

pub use orders::Orders;
pub use running::Running;

/// READs taken from a session at once.
const BATCH: usize = 256;
/// Credits are looked at so often, ns: a round trip of a network that is not congested.
const CREDITS_INTERVAL_NS: u64 = 1_000_000;
/// What the processor has no room for is told again so often, ns.
const TOLD_INTERVAL_NS: u64 = 1_000_000;

/// What is in flight, for who shows it.
#[derive(Debug, Default)]
pub struct Pressure {
    /// Bytes that may be in flight from each of our addresses.
    pub total_bytes: AtomicU64,
    /// Bytes that are, from all.
    pub in_flight_bytes: AtomicU64,
    /// Times that congestion marks made the total give way.
    pub decreases: AtomicU64,
    /// Times that a host was to be read by this machine's device, and there was no queue pair.
    pub detours: AtomicU64,
}

/// How the engine works.
#[derive(Clone, Debug)]
pub struct Config {
    /// Hosts in a reading at once, at most.
    pub window: usize,
    /// Bytes in flight from each of our addresses.
    pub credit_bytes: u32,
    /// Bytes in flight from one host.
    pub host_credit_bytes: u32,
    /// What one reading of a host may cost.
    pub limits: Limits,
    /// Threads for bootstraps.
    pub connectors: usize,
    /// How long a bootstrap may take, and at least how long a reading.
    pub timeout: Duration,
    /// Names of regions that are not read.
    pub skip: Arc<[String]>,
}

impl Default for Config {
    fn default() -> Self {
        let timeout = Duration::from_secs(2);
        Self {
            window: 128,
            credit_bytes: 4 << 20,
            host_credit_bytes: 256 << 10,
            limits: Limits::default(),
            connectors: 12,
            timeout,
            // A row for each connection, each a track in the store: what ports have of them is what is kept.
            skip: ["tcp_connections".to_owned()].into(),
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

/// The engine itself.
struct Engine {
    config: Config,
    processor: Processor,
    schedule: Schedule,
    hosts: Vec<Option<Host>>,
    free: Vec<usize>,
    by_name: HashMap<String, usize>,
    by_flow: HashMap<FlowId, usize>,
    /// Hosts in a reading.
    active: Vec<usize>,
    carriers: Carriers<Card>,
    /// Those of all hosts.
    schemas: Arc<SchemaCache>,
    /// Devices that are being opened, and who waits for them.
    opening: Openings<connecting::Waiting>,
    /// Devices that were lost in the poll of now.
    gone: Vec<Gone<Card>>,
    connector: Connector,
    orders: Receiver<Order>,
    bell: Arc<OwnedFd>,
    waiter: Waiter,
    credits: Credits,
    credits_at_ns: u64,
    /// Whose clock is asked for.
    clocks: clock::Turn,
    pressure: Arc<Pressure>,
    generation: u32,
    due: Vec<Due>,
    reads: Vec<Read>,
    completions: Vec<Completion>,
}

impl Engine {
    fn new(config: Config, processor: Processor, pressure: Arc<Pressure>) -> Result<(Self, Orders), EngineError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(bell.map_err(|errno| system("make an eventfd")(errno.into()))?);
        let waiter = Waiter::new().map_err(system("make an epoll"))?;
        waiter.watch(bell.as_fd()).map_err(system("watch its eventfd"))?;
        let wake = {
            let bell = bell.clone();
            move || ring(&bell)
        };
        let connector =
            Connector::new(config.connectors, config.timeout, wake).map_err(system("start connector threads"))?;
        let (send, orders) = channel();
        let engine = Self {
            config: config.clone(),
            processor,
            schedule: Schedule::new(config.window),
            hosts: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::new(),
            by_flow: HashMap::new(),
            active: Vec::new(),
            carriers: Carriers {
                sockets: Sockets::new(soft::Config { credit_bytes: config.credit_bytes }),
                devices: Devices::new(config.credit_bytes, config.host_credit_bytes),
            },
            schemas: Arc::default(),
            opening: Openings::new(),
            gone: Vec::new(),
            connector,
            orders,
            bell: bell.clone(),
            waiter,
            credits: Credits::new(credit_limits(config.credit_bytes)),
            credits_at_ns: 0,
            clocks: clock::Turn::default(),
            pressure,
            generation: 0,
            due: Vec::new(),
            reads: Vec::with_capacity(BATCH),
            completions: Vec::with_capacity(BATCH),
        };
        Ok((engine, Orders::new(send, bell)))
    }

    /// Reads until it is told to stop. `clock` tells the time, ns.
    fn run(&mut self, clock: impl Fn() -> u64) -> Result<(), EngineError> {
        loop {
            let now_ns = clock();
            if !self.take_orders(now_ns) || self.processor.is_gone() {
                return Ok(());
            }
            self.take_answers(now_ns);
            // A queue pair may have been made, which takes a millisecond.
            let now_ns = clock();
            self.expire_openings(now_ns);
            self.begin_due(now_ns);
            let asked = self.ask(&clock);
            // Where host and reader are one machine, READs are answered while they are sent.
            let now_ns = clock();
            let moved = self.take_completions(now_ns) || asked;
            self.give_credits(now_ns);
            // What a device has completed before it was armed wakes nobody: it is polled once more first.
            if !moved && !self.carriers.devices.arm() {
                self.sleep(clock())?;
            }
        }
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
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn watch(&mut self, target: Arc<Target>, now_ns: u64) {
        let interval_ns = target.interval_ns().max(1);
        let flow = self.schedule.add(interval_ns, now_ns);
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
        self.active.retain(|other| *other != index);
        host.unlink(&mut self.carriers);
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
            if due.missed > 0 {
                let interval_ns = host.target.interval_ns();
                let from_ns = due.due_ns.saturating_sub(due.missed * interval_ns);
                let to_ns = due.due_ns.saturating_sub(interval_ns);
                // Those who do not answer wait for each other: that says nothing of how late we are.
                let reason = if due.is_on_probation { "timeout" } else { "late" };
                self.processor.gap(&host.target, Gap { from_ns, to_ns, due_times: due.missed, reason });
            }
            if let Some(pair) = host.improve(&mut self.carriers) {
                self.processor.state(&host.target, State::Reading(pair));
            }
            if host.begin(*due, now_ns, self.config.timeout) {
                self.active.push(index);
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

    /// Sends the READs that sessions want; true if there were any. Each host's have a time of their own, since the
    /// values' times are bounded by it.
    fn ask(&mut self, clock: impl Fn() -> u64) -> bool {
        let mut moved = false;
        for at in 0..self.active.len() {
            if let Some(host) = self.hosts[self.active[at]].as_mut() {
                moved |= host.submit(&mut self.carriers, clock(), &mut self.reads);
            }
        }
        moved
    }

    /// Takes the answers, and ends the readings that have all of theirs, or no time left; true if anything came or
    /// ended.
    fn take_completions(&mut self, now_ns: u64) -> bool {
        self.completions.clear();
        let hosts = &mut hosts::Hosts(&mut self.hosts);
        self.carriers.sockets.poll(hosts, now_ns, &mut self.completions);
        self.carriers.devices.poll(hosts, now_ns, &mut self.completions, &mut self.gone);
        self.lose_devices(now_ns);
        hosts::deliver(&mut self.hosts, &mut self.carriers.devices, &self.completions, now_ns);
        let mut moved = !self.completions.is_empty();
        let mut at = 0;
        while at < self.active.len() {
            let index = self.active[at];
            let ended = self.hosts[index].as_mut().and_then(|host| {
                moved |= host.poll_tcp(now_ns, &mut self.completions);
                host.ended(now_ns)
            });
            match ended {
                Some(ended) => {
                    moved = true;
                    self.active.swap_remove(at);
                    self.end(index, ended, now_ns);
                }
                None => at += 1,
            }
        }
        moved
    }

    /// What was read over devices that have gone is to be read anew: hosts in a reading learn of it when that ends, the
    /// others now.
    fn lose_devices(&mut self, now_ns: u64) {
        for Gone { number, why, flows } in std::mem::take(&mut self.gone) {
            // Queue pairs that the connector has keep it open.
            self.waiter.forget(flows.port().queue().as_fd());
            for host in self.hosts.iter_mut().flatten() {
                let state = host.lose_device(number, &why, now_ns);
                host.part_if_unused().into_iter().for_each(|parting| self.connector.part(parting));
                let Some(state) = state else { continue };
                host.unlink(&mut self.carriers);
                self.processor.state(&host.target, state);
                ask_again(&self.connector, host, now_ns);
            }
            self.connector.end(Box::new(flows));
        }
    }

    /// Lets the network have its say.
    fn give_credits(&mut self, now_ns: u64) {
        if now_ns < self.credits_at_ns {
            return;
        }
        self.credits_at_ns = now_ns + CREDITS_INTERVAL_NS;
        if self.carriers.sockets.was_marked() {
            self.credits.congestion();
        }
        self.credits.advance(now_ns, CREDITS_INTERVAL_NS);
        self.carriers.sockets.set_credit_bytes(self.credits.total_bytes());
        self.carriers.devices.set_credit_bytes(self.credits.total_bytes());
        self.pressure.total_bytes.store(self.credits.total_bytes().into(), Ordering::Relaxed);
        let in_flight_bytes = self.carriers.sockets.bytes_in_flight() + self.carriers.devices.bytes_in_flight();
        self.pressure.in_flight_bytes.store(in_flight_bytes, Ordering::Relaxed);
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
                let repeated = host.place().map_or(0, |place| self.carriers.sockets.repeated(place));
                if let Some(reading) = host.reading(now_ns, repeated, self.processor.spare())
                    && !self.processor.reading(&host.target, reading, &host.share)
                {
                    host.was_dropped();
                }
            }
            Ended::Failed { due_ns, reason, state } => {
                self.processor.gap(&host.target, Gap { from_ns: due_ns, to_ns: due_ns, due_times: 1, reason });
                let Some(state) = state else { return };
                host.unlink(&mut self.carriers);
                self.processor.state(&host.target, state);
                ask_again(&self.connector, host, now_ns);
            }
        }
    }

    fn sleep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        let carriers = [self.carriers.sockets.wake_ns(), self.carriers.devices.wake_ns()];
        let timers = [self.schedule.next_ns(), self.opening.next_ns()].into_iter().chain(carriers);
        let sessions = self.active.iter().filter_map(|index| self.hosts[*index].as_ref().map(Host::wake_ns));
        let told_ns = if self.processor.flush() { u64::MAX } else { now_ns + TOLD_INTERVAL_NS };
        let until_ns = timers.flatten().chain(sessions).chain([told_ns]).min();
        let until_ns = until_ns.filter(|until_ns| *until_ns < u64::MAX);
        let timeout = until_ns.map(|until_ns| Duration::from_nanos(until_ns.saturating_sub(now_ns)));
        if self.waiter.wait(timeout).map_err(system("wait"))? {
            self.carriers.devices.rung();
        }
        let mut rung = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut rung);
        Ok(())
    }
}

/// Has a host asked that cannot be read, unless it has to wait.
fn ask_again(connector: &Connector, host: &mut Host, now_ns: u64) {
    if host.may_ask(now_ns) {
        connector.ask(host.ticket(), host.target.clone(), host.first(now_ns), host.has_failed());
    }
}

fn credit_limits(most_bytes: u32) -> onlooker_flow::Limits {
    let defaults = onlooker_flow::Limits::default();
    onlooker_flow::Limits { most_bytes, least_bytes: defaults.least_bytes.min(most_bytes), ..defaults }
}

#[cfg(test)]
mod goodbyes;
