// SPDX-License-Identifier: Apache-2.0
//! One host: connecting, reading, backing off.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use onlooker_bootstrap::Id;
use onlooker_flow::{Due, FlowId};
use onlooker_reader::bootstrap::{Bootstrapped, Parting};
use onlooker_reader::{Broken, Completion, Fault, Frames, Outcome, Pair, Read, ReadError, Requester as _, Via};
use onlooker_region::Block;
use onlooker_targets::{Choice, Target};
use onlooker_transport::{Error, verbs};

use super::clock::{self, Turn};
use super::devices::{Alarm, Devices};
use super::link::{Carrier, Carriers, Link};
use super::{BATCH, names, sockets};
use crate::processor::Share;
use crate::sink::{Reading, State};
use crate::ways::Detour;

/// First pause before a host is asked again; it doubles with each failure.
const FIRST_PAUSE_NS: u64 = 250_000_000;
/// Longest pause.
const MAX_PAUSE_NS: u64 = 30_000_000_000;
/// A link that lasts so long has been a good one. Those that break before make the host wait: who answers once and
/// closes is not to be asked in a tight loop.
const STABLE_NS: u64 = 5_000_000_000;
/// The session's counters are told so often, ns.
const COUNTERS_INTERVAL_NS: u64 = 1_000_000_000;
/// Readings in a row that may get no answer before the host is asked anew. Over TCP none: what is lost there does not
/// come again.
const MAX_SILENCES: u32 = 2;
/// A region that went since the directory was read costs a queue pair, and the host is asked for another at once: so
/// often at most, ns.
const ACCESS_PAUSE_NS: u64 = 100_000_000;
/// That many in a row before anything was read, and it is not regions that went.
const MAX_REFUSALS: u32 = 8;

struct Cycle {
    due: Due,
    began_ns: u64,
    deadline_ns: u64,
    /// When the session was last asked what it wants.
    asked_ns: u64,
    failed: Option<Failure>,
}

enum Failure {
    Read(ReadError),
    Broken(Broken),
    /// The device that carries it, with all its hosts.
    Device(String),
}

impl Failure {
    /// Whether it is not what was read that is at fault.
    fn is_of_carrier(&self) -> bool {
        match self {
            Self::Broken(_) | Self::Device(_) | Self::Read(ReadError::Timeout | ReadError::Lost) => true,
            Self::Read(_) => false,
        }
    }
}

/// How a reading ended.
pub(super) enum Ended {
    /// With frames, good or bad.
    Read,
    /// Without. With a state, which is the host's from now on, the link is of no use any more.
    Failed { due_ns: u64, reason: &'static str, state: Option<State> },
}

pub(super) struct Host {
    pub(super) target: Arc<Target>,
    pub(super) flow: FlowId,
    index: usize,
    generation: u32,
    link: Option<Link>,
    /// Over the host's device, to be used from the next reading on.
    better: Option<Link>,
    cycle: Option<Cycle>,
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

impl Host {
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

    /// By which the host is to know our queue pair.
    ///
    /// # Errors
    /// No random numbers.
    pub(super) fn reader_id(&mut self) -> Result<Id, Error> {
        let id = self.reader_id.map_or_else(verbs::reader_id, Ok)?;
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
        let is_unused = self.better.is_none() && self.link.as_ref().is_some_and(|link| link.device().is_none());
        if is_unused { self.part() } else { None }
    }

    /// The connector has brought a way. True if it is used at once; else the next reading begins it, since one over the
    /// way of before may be under way.
    pub(super) fn link(&mut self, link: Link) -> bool {
        let place = if self.link.is_some() { &mut self.better } else { &mut self.link };
        *place = Some(link);
        self.better.is_none()
    }

    /// Between two readings: takes the better way, if there is one.
    pub(super) fn improve<P: Alarm>(&mut self, carriers: &mut Carriers<P>) -> Option<Pair> {
        let better = self.better.take()?;
        let pair = better.pair;
        if let Some(link) = self.link.replace(better) {
            link.end(carriers);
        }
        Some(pair)
    }

    /// Drops the link; READs under way are over.
    pub(super) fn unlink<P: Alarm>(&mut self, carriers: &mut Carriers<P>) {
        self.cycle = None;
        for link in [self.link.take(), self.better.take()].into_iter().flatten() {
            link.end(carriers);
        }
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
        }
    }

    /// Why there is no reading.
    pub(super) fn reason(&self) -> &'static str {
        if self.asked { "connecting" } else { "unreachable" }
    }

    /// Begins a reading; false where there is no link.
    pub(super) fn begin(&mut self, due: Due, now_ns: u64, timeout: Duration) -> bool {
        let Some(link) = &mut self.link else { return false };
        let timeout_ns = u64::try_from(timeout.max(self.target.interval).as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = now_ns.saturating_add(timeout_ns);
        link.session.begin(now_ns, deadline_ns);
        self.cycle = Some(Cycle { due, began_ns: now_ns, deadline_ns, asked_ns: now_ns, failed: None });
        true
    }

    /// Its flow, if it is read by a soft requester.
    pub(super) fn place(&self) -> Option<sockets::Place> {
        match &self.link.as_ref()?.carrier {
            Carrier::Soft(place) => Some(*place),
            Carrier::Device(_) | Carrier::Tcp(_) => None,
        }
    }

    /// The session's memory.
    pub(super) fn memory(&mut self) -> &mut [Block] {
        self.link.as_mut().map_or(&mut [], |link| link.session.memory())
    }

    /// Puts what the session wants under way; true if it was anything.
    pub(super) fn submit<P: Alarm>(&mut self, carriers: &mut Carriers<P>, now_ns: u64, reads: &mut Vec<Read>) -> bool {
        let (Some(link), Some(cycle)) = (&mut self.link, &mut self.cycle) else { return false };
        if cycle.failed.is_some() || link.session.is_done() {
            return false;
        }
        cycle.asked_ns = now_ns;
        reads.clear();
        link.session.wanted(now_ns, BATCH, reads);
        if reads.is_empty() {
            return false;
        }
        if !matches!(link.carrier, Carrier::Tcp(_)) {
            reads.iter_mut().for_each(|read| read.id = names::name(self.index, read.id));
        }
        let submitted = match &mut link.carrier {
            Carrier::Device(place) => carriers.devices.submit(*place, reads),
            Carrier::Soft(place) => carriers.sockets.submit(*place, reads),
            Carrier::Tcp(requester) => requester.submit(reads),
        };
        match submitted {
            Ok(count) => {
                link.session.submitted(count);
                // A device has no room while what was given up is not done, which may be for ever: who waits for room
                // only has waited in vain.
                if let (0, Carrier::Device(place)) = (count, &link.carrier)
                    && now_ns >= cycle.deadline_ns
                    && carriers.devices.is_idle(*place)
                {
                    cycle.failed = Some(Failure::Read(ReadError::Timeout));
                    return true;
                }
                count > 0
            }
            Err(broken) => {
                cycle.failed = Some(Failure::Broken(broken));
                true
            }
        }
    }

    /// A READ of its flow has ended.
    pub(super) fn complete<P: Alarm>(&mut self, devices: &mut Devices<P>, completion: Completion, now_ns: u64) {
        // A queue pair that has failed says why: to the session it is only lost, or refused.
        if matches!(completion.outcome, Outcome::Lost | Outcome::Refused(_))
            && let Some(place) = self.link.as_ref().and_then(Link::device)
            && let Some(broken) = devices.broken(place)
            && let Some(cycle) = &mut self.cycle
        {
            cycle.failed.get_or_insert(Failure::Broken(broken));
        }
        self.take(completion, now_ns);
    }

    fn take(&mut self, completion: Completion, now_ns: u64) {
        let completion = Completion { id: names::local_of(completion.id), ..completion };
        let (Some(link), Some(cycle)) = (&mut self.link, &mut self.cycle) else { return };
        if let Err(error) = link.session.complete(completion, now_ns) {
            cycle.failed.get_or_insert(Failure::Read(error));
        }
    }

    /// Takes what has come over TCP; true if it was anything.
    pub(super) fn poll_tcp(&mut self, now_ns: u64, completions: &mut Vec<Completion>) -> bool {
        let Some(Link { session, carrier: Carrier::Tcp(requester), .. }) = &mut self.link else { return false };
        completions.clear();
        let polled = requester.poll(session.memory(), now_ns, completions);
        for completion in completions.iter() {
            self.take(*completion, now_ns);
        }
        if let (Err(broken), Some(cycle)) = (polled, &mut self.cycle) {
            cycle.failed.get_or_insert(Failure::Broken(broken));
        }
        !completions.is_empty()
    }

    /// The device with this number is of no use any more. The host's state from now on, if it is not in a reading,
    /// which would end with that.
    pub(super) fn lose_device(&mut self, number: u32, why: &str, now_ns: u64) -> Option<State> {
        let is_on = |link: &Link| link.device().is_some_and(|place| place.number == number);
        self.better.take_if(|link| is_on(link));
        if !self.link.as_ref().is_some_and(is_on) {
            return None;
        }
        let failure = Failure::Device(why.to_owned());
        match &mut self.cycle {
            Some(cycle) => {
                cycle.failed.get_or_insert(failure);
                None
            }
            None => self.judge(&failure, now_ns).1,
        }
    }

    /// How the reading ended, once it has.
    pub(super) fn ended(&mut self, now_ns: u64) -> Option<Ended> {
        let (Some(link), Some(cycle)) = (&mut self.link, &mut self.cycle) else {
            return Some(Ended::Failed { due_ns: now_ns, reason: "lost", state: None });
        };
        let due_ns = cycle.due.due_ns;
        if let Some(failure) = cycle.failed.take() {
            let (reason, state) = self.judge(&failure, now_ns);
            self.cycle = None;
            return Some(Ended::Failed { due_ns, reason, state });
        }
        if !link.session.is_done() {
            return None;
        }
        (link.silences, link.is_proven, self.refusals) = (0, true, 0);
        if now_ns.saturating_sub(link.since_ns) >= STABLE_NS {
            self.failures = 0;
            self.detour.settled(link.pair.via);
        }
        Some(Ended::Read)
    }

    /// What a failure is called, and the host's state from now on where the link is of no use any more.
    fn judge(&mut self, failure: &Failure, now_ns: u64) -> (&'static str, Option<State>) {
        let Some(link) = &mut self.link else { return ("lost", None) };
        let (via, is_proven) = (link.pair.via, link.is_proven);
        let is_stable = now_ns.saturating_sub(link.since_ns) >= STABLE_NS;
        let is_refused = matches!(failure, Failure::Broken(Broken::QueuePair(Fault::Access)));
        if is_refused && (is_proven || self.refusals < MAX_REFUSALS) {
            // That is how a device says that a region went since the directory was read: nobody is at fault, and nobody
            // waits.
            self.refusals += u32::from(!is_proven);
            self.not_before_ns = self.at_once_ns;
            self.at_once_ns = now_ns.max(self.not_before_ns) + ACCESS_PAUSE_NS;
            return ("access", Some(State::Connecting));
        }
        let failed = |error: &dyn std::fmt::Display| Some(State::Failed(error.to_string()));
        let (reason, state) = match failure {
            Failure::Broken(broken) => (if is_refused { "access" } else { "lost" }, failed(broken)),
            Failure::Device(why) => ("device", failed(why)),
            Failure::Read(error) => {
                let state = match error {
                    ReadError::Timeout => {
                        link.silences += 1;
                        let is_over = link.silences >= MAX_SILENCES || via == Via::Tcp;
                        is_over.then(|| State::Silent(error.to_string()))
                    }
                    ReadError::Overloaded => None,
                    ReadError::Gone(_) | ReadError::Lost | ReadError::Control(_) | ReadError::Limit(_) => failed(error),
                };
                (error.word(), state)
            }
        };
        if state.is_some() {
            // It has bootstrapped and cannot be read, or not for long: not to be asked in a tight loop.
            if !is_proven || !is_stable {
                self.back_off(now_ns);
            }
            // Of the kernel responder only silence: what else ends here is our own socket.
            let is_silence = matches!(failure, Failure::Read(ReadError::Timeout));
            if failure.is_of_carrier() && (via != Via::Kernel || is_silence) {
                self.detour.broke(via, is_proven, is_stable, now_ns);
            }
        }
        (reason, state)
    }

    /// The reading that has just ended well, in `frames`; the cycle is over.
    pub(super) fn reading(&mut self, now_ns: u64, repeated: u64, mut frames: Frames) -> Option<Reading> {
        let cycle = self.cycle.take()?;
        let link = self.link.as_mut()?;
        link.session.take(&mut frames);
        let is_time = now_ns.saturating_sub(link.counted_ns) >= COUNTERS_INTERVAL_NS;
        let counters = is_time.then(|| {
            link.counted_ns = now_ns;
            link.session.counters().clone()
        });
        Some(Reading {
            due_ns: cycle.due.due_ns,
            began_ns: cycle.began_ns,
            ended_ns: now_ns,
            repeated,
            frames,
            boot: link.session.directory().last_header().map(|header| header.boot_id),
            counters,
            relation: link.told.relation,
        })
    }

    /// The reading went to nobody: what it read is to be read again.
    pub(super) fn was_dropped(&mut self) {
        if let Some(link) = &mut self.link {
            link.session.wake();
            link.counted_ns = 0;
        }
    }

    /// When it has something to do even if nothing arrives: what its session wants next, or the end of its patience.
    pub(super) fn wake_ns(&self) -> u64 {
        let (Some(link), Some(cycle)) = (&self.link, &self.cycle) else { return u64::MAX };
        link.session.wake_ns(cycle.asked_ns).min(cycle.deadline_ns)
    }
}
