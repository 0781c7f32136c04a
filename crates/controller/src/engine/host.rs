// SPDX-License-Identifier: Apache-2.0
//! One host: connecting, backing off, the way to it. [`cycle`] has its readings.

mod cycle;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use onlooker_bootstrap::Id;
use onlooker_flow::{FlowId, InFlight};
use onlooker_reader::bootstrap::{Bootstrapped, Parting};
use onlooker_reader::{By, Pair, Via};
use onlooker_region::Block;
use onlooker_targets::{Choice, Target};

use super::clock::{self, Turn};
use super::link::Link;
use super::outside::Carry;
use crate::processor::Share;
use crate::ways::Detour;
use cycle::Cycle;

pub(super) use cycle::Ended;

/// First pause before a host is asked again; it doubles with each failure.
const FIRST_PAUSE_NS: u64 = 250_000_000;
/// Longest pause.
const MAX_PAUSE_NS: u64 = 30_000_000_000;
/// A link that lasts so long has been a good one. Those that break before make the host wait: who answers once and
/// closes is not to be asked in a tight loop.
const STABLE_NS: u64 = 5_000_000_000;

/// `P` says where its READs go.
pub(super) struct Host<P> {
    pub(super) target: Arc<Target>,
    pub(super) flow: FlowId,
    index: usize,
    generation: u32,
    link: Option<Link<P>>,
    /// Over the host's device, to be used from the next reading on.
    better: Option<Link<P>>,
    cycle: Option<Cycle>,
    /// READs that its last reading took.
    reads: u32,
    /// Its readings that the processor has not finished.
    pub(super) share: Share,
    /// The connector has it.
    asked: bool,
    failures: u32,
    not_before_ns: u64,
    detour: Detour,
    /// By which the host knows our queue pair: one for the target's life.
    reader_id: Option<Id>,
    /// Ends what the host has of ours. Dropping it waits for the host, which this thread must not.
    parting: Option<Parting>,
    /// Queue pairs in a row that ended by a refusal before anything was read.
    refusals: u32,
    /// From when on it may be asked at once again, after such an end.
    at_once_ns: u64,
}

/// The place of the host that a connector's answer is for.
pub(super) fn index_of(ticket: u64) -> usize {
    usize::try_from(ticket >> 32).unwrap_or(usize::MAX)
}

impl<P: Copy> Host<P> {
    /// The caller asks the connector at once.
    pub(super) fn new(target: Arc<Target>, flow: FlowId, index: usize, generation: u32) -> Self {
        Self {
            target,
            flow,
            index,
            generation,
            link: None,
            better: None,
            cycle: None,
            reads: 0,
            share: Share::default(),
            asked: true,
            failures: 0,
            not_before_ns: 0,
            detour: Detour::new(index),
            reader_id: None,
            parting: None,
            refusals: 0,
            at_once_ns: 0,
        }
    }

    /// What the connector's answers for it carry.
    pub(super) fn ticket(&self) -> u64 {
        (self.index as u64) << 32 | u64::from(self.generation)
    }

    /// The way to begin with.
    pub(super) fn first(&self, now_ns: u64) -> Via {
        self.detour.first(now_ns)
    }

    /// The last try did not succeed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// As the connector is to take it: who is read already is asked for its device or nothing.
    pub(super) fn wanted(&self) -> Arc<Target> {
        match &self.link {
            Some(_) => Arc::new(Target { choice: Choice::Verbs, ..(*self.target).clone() }),
            None => self.target.clone(),
        }
    }

    /// By which the host is to know our queue pair; a `random` one at first.
    ///
    /// # Errors
    /// No random numbers.
    pub(super) fn reader_id<E>(&mut self, random: impl FnOnce() -> Result<Id, E>) -> Result<Id, E> {
        let id = self.reader_id.map_or_else(random, Ok)?;
        self.reader_id = Some(id);
        Ok(id)
    }

    /// The host has made a queue pair for us, in the place of the one before.
    pub(super) fn paired(&mut self, parting: Parting) {
        if let Some(before) = self.parting.replace(parting) {
            before.replaced();
        }
    }

    /// What ends our queue pair at the host, of which nothing is needed any more.
    pub(super) fn part(&mut self) -> Option<Parting> {
        self.parting.take()
    }

    /// The same, if the host is read another way by now. One that is read no way is asked again, and has another queue
    /// pair made in its place.
    pub(super) fn part_if_unused(&mut self) -> Option<Parting> {
        let is_unused = self.better.is_none() && self.link.as_ref().is_some_and(|link| link.pair.by != By::Verbs);
        if is_unused { self.part() } else { None }
    }

    /// The connector has brought a way. True if it is used at once; else the next reading begins it, since one over the
    /// way of before may be under way.
    pub(super) fn link(&mut self, link: Link<P>) -> bool {
        let place = if self.link.is_some() { &mut self.better } else { &mut self.link };
        *place = Some(link);
        self.better.is_none()
    }

    /// Between two readings: takes the better way, if there is one.
    pub(super) fn improve(&mut self, carriers: &mut impl Carry<Place = P>) -> Option<Pair> {
        let better = self.better.take()?;
        let pair = better.pair;
        if let Some(link) = self.link.replace(better) {
            carriers.remove(link.place);
        }
        Some(pair)
    }

    /// Drops the link; READs under way are over.
    pub(super) fn unlink(&mut self, carriers: &mut impl Carry<Place = P>, in_flight: &mut InFlight) {
        self.cycle = None;
        for link in [self.link.take(), self.better.take()].into_iter().flatten() {
            carriers.remove(link.place);
        }
        in_flight.forget(self.flow);
    }

    /// Whether it can be read.
    pub(super) fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// The connector has nothing of it any more.
    pub(super) fn answered(&mut self) {
        self.asked = false;
    }

    /// It is to be read another way, for a while.
    pub(super) fn no_queue_pair(&mut self, now_ns: u64) {
        self.detour.no_queue_pair(now_ns);
    }

    /// A try has failed: the next one has to wait.
    pub(super) fn back_off(&mut self, now_ns: u64) {
        let pause_ns = FIRST_PAUSE_NS.saturating_mul(1 << self.failures.min(16)).min(MAX_PAUSE_NS);
        // Hosts that failed together shall not come back together.
        let spread_ns = pause_ns / 64 * (self.index as u64 % 16);
        self.failures += 1;
        self.not_before_ns = now_ns + pause_ns + spread_ns;
    }

    /// Whether the connector is to be asked now; taken as done.
    pub(super) fn may_ask(&mut self, now_ns: u64) -> bool {
        let may = self.link.is_none() && !self.asked && now_ns >= self.not_before_ns;
        self.asked |= may;
        may
    }

    /// The address whose device is to be tried again, while the host is read another way.
    pub(super) fn wants_device(&self, now_ns: u64) -> Option<IpAddr> {
        let link = self.link.as_ref().filter(|link| link.pair.via != Via::Verbs)?;
        let is_free = self.better.is_none() && !self.asked;
        let may = self.target.choice == Choice::Auto && is_free && self.detour.is_over(now_ns);
        may.then_some(link.told.local)
    }

    /// The connector has it.
    pub(super) fn asking(&mut self) {
        self.asked = true;
    }

    /// The address to ask for its clock again, if it is time and there is a turn for it.
    pub(super) fn wants_clock(&mut self, turn: &mut Turn, now_ns: u64) -> Option<SocketAddr> {
        let Link { told, session, pair, wear, is_proven, .. } = self.link.as_mut()?;
        if !*is_proven || !wear.is_due(&told.relation, pair.via, now_ns) {
            return None;
        }
        let is_told = clock::is_told_by_readings(session);
        let may = !is_told && turn.take(now_ns);
        if is_told || may {
            wear.put_off(now_ns);
        }
        may.then_some(told.peer)
    }

    /// Its clock was asked for.
    pub(super) fn told_clock(&mut self, told: &Bootstrapped, now_ns: u64) {
        let Some(link) = &mut self.link else { return };
        // Another boot is another clock; its readings end by themselves.
        if link.told.answer.boot_id == told.answer.boot_id {
            link.told.relation = link.told.relation.or_better(told.relation, now_ns);
            link.session.know_clock(link.told.relation);
        }
    }

    /// Why there is no reading.
    pub(super) fn reason(&self) -> &'static str {
        if self.asked { "connecting" } else { "unreachable" }
    }

    /// Where its READs go.
    pub(super) fn place(&self) -> Option<P> {
        self.link.as_ref().map(|link| link.place)
    }

    /// The session's memory.
    pub(super) fn memory(&mut self) -> &mut [Block] {
        self.link.as_mut().map_or(&mut [], |link| link.session.memory())
    }

    /// The reading went to nobody: what it read is to be read again.
    pub(super) fn was_dropped(&mut self) {
        if let Some(link) = &mut self.link {
            link.session.wake();
            link.counted_ns = 0;
        }
    }
}
