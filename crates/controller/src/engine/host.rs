// SPDX-License-Identifier: Apache-2.0
//! One host: connecting, reading, backing off.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use onlooker_flow::{Due, FlowId};
use onlooker_region::Block;
use onlooker_transport::bootstrap::Bootstrapped;
use onlooker_transport::clock::steady_ns;
use onlooker_transport::reader::{Frames, ReadError, Session};
use onlooker_transport::soft::FlowConfig;
use onlooker_transport::tcp::TcpRequester;
use onlooker_transport::{Broken, Completion, Read, Requester as _, Via};

use super::sockets::{Place, Sockets, Waiter};
use super::{BATCH, Config, memory};
use crate::connect::Connected;
use crate::processor::Share;
use crate::sink::Reading;
use crate::target::Target;

/// Bytes of a block.
const BLOCK_BYTES: u32 = 1024;
/// First pause before a host is asked again; it doubles with each failure.
const FIRST_PAUSE_NS: u64 = 250_000_000;
/// Longest pause.
const MAX_PAUSE_NS: u64 = 30_000_000_000;
/// A link that lasts so long has been a good one. Those that break before make the host wait: who answers once and closes is not to be asked in a tight loop.
const STABLE_NS: u64 = 5_000_000_000;
/// The session's counters are told so often, ns.
const COUNTERS_INTERVAL_NS: u64 = 1_000_000_000;
/// Readings in a row that a kernel responder may leave unanswered before the host is asked anew.
const MAX_SILENCES: u32 = 2;

enum Way {
    Soft(Place),
    Tcp(Box<TcpRequester>),
}

struct Link {
    told: Bootstrapped,
    session: Session,
    way: Way,
    /// Readings in a row that got no answer.
    silences: u32,
    /// Whether any reading has succeeded.
    proven: bool,
    /// When the session's counters were last told.
    counted_ns: u64,
    since_ns: u64,
}

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
}

/// How a reading ended.
pub(super) enum Ended {
    /// With frames, good or bad.
    Read,
    /// Without. With an error the link is of no use any more.
    Failed { due_ns: u64, reason: &'static str, error: Option<String>, silent: bool },
}

pub(super) struct Host {
    pub(super) target: Arc<Target>,
    pub(super) flow: FlowId,
    index: usize,
    generation: u32,
    link: Option<Link>,
    cycle: Option<Cycle>,
    /// Its readings that the processor has not finished.
    pub(super) share: Share,
    /// The connector has it.
    asked: bool,
    failures: u32,
    not_before_ns: u64,
    avoid_kernel: bool,
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
            cycle: None,
            share: Share::default(),
            asked: true,
            failures: 0,
            not_before_ns: 0,
            avoid_kernel: false,
        }
    }

    /// What the connector's answers for it carry.
    pub(super) fn ticket(&self) -> u64 {
        (self.index as u64) << 32 | u64::from(self.generation)
    }

    pub(super) fn avoids_kernel(&self) -> bool {
        self.avoid_kernel
    }

    /// The last try did not succeed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// The connector has brought an answer.
    pub(super) fn link(
        &mut self,
        connected: Connected,
        sockets: &mut Sockets,
        waiter: &Waiter,
        config: &Config,
    ) -> Result<Via, String> {
        self.asked = false;
        let Connected { told, tcp } = connected;
        let (via, way, max_read_blocks) = match tcp {
            Some(requester) => {
                waiter.watch(requester.as_fd()).map_err(|error| format!("epoll: {error}"))?;
                let most = requester.max_read_blocks();
                (Via::Tcp, Way::Tcp(Box::new(requester)), most)
            }
            None => {
                let (responder, address) = told.responder(Via::Kernel).map_err(|error| error.to_string())?;
                let max_read_bytes = told.answer.max_read_blocks(responder) * BLOCK_BYTES;
                let flow = FlowConfig { max_read_bytes, credit_bytes: config.host_credit_bytes };
                let place = sockets.add(address, flow, waiter).map_err(|error| error.to_string())?;
                (Via::Kernel, Way::Soft(place), sockets.max_read_blocks(place))
            }
        };
        let mut session = Session::new(&told.answer, via, max_read_blocks, config.limits);
        let skip = config.skip.clone();
        session.select(move |entry, _| !skip.contains(&entry.name));
        session.rest();
        self.link = Some(Link { told, session, way, silences: 0, proven: false, counted_ns: 0, since_ns: steady_ns() });
        Ok(via)
    }

    /// Drops the link; READs under way are over.
    pub(super) fn unlink(&mut self, sockets: &mut Sockets) {
        self.cycle = None;
        if let Some(Link { way: Way::Soft(place), .. }) = self.link.take() {
            sockets.remove(place);
        }
    }

    /// Asking has failed: the next try has to wait.
    pub(super) fn back_off(&mut self, now_ns: u64) {
        self.asked = false;
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
    pub(super) fn place(&self) -> Option<Place> {
        match &self.link.as_ref()?.way {
            Way::Soft(place) => Some(*place),
            Way::Tcp(_) => None,
        }
    }

    /// The session's memory.
    pub(super) fn memory(&mut self) -> &mut [Block] {
        self.link.as_mut().map_or(&mut [], |link| link.session.memory())
    }

    /// Puts what the session wants under way; true if it was anything.
    pub(super) fn submit(&mut self, sockets: &mut Sockets, now_ns: u64, reads: &mut Vec<Read>) -> bool {
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
        let submitted = match &mut link.way {
            Way::Soft(place) => {
                reads.iter_mut().for_each(|read| read.id = memory::name(self.index, read.id));
                sockets.submit(*place, reads)
            }
            Way::Tcp(requester) => requester.submit(reads),
        };
        match submitted {
            Ok(count) => {
                link.session.submitted(count);
                count > 0
            }
            Err(broken) => {
                cycle.failed = Some(Failure::Broken(broken));
                true
            }
        }
    }

    /// A READ of its flow has ended.
    pub(super) fn complete(&mut self, completion: Completion, now_ns: u64) {
        let completion = Completion { id: memory::local_of(completion.id), ..completion };
        let (Some(link), Some(cycle)) = (&mut self.link, &mut self.cycle) else { return };
        if let Err(error) = link.session.complete(completion, now_ns) {
            cycle.failed.get_or_insert(Failure::Read(error));
        }
    }

    /// Takes what has come over TCP; true if it was anything.
    pub(super) fn poll_tcp(&mut self, now_ns: u64, completions: &mut Vec<Completion>) -> bool {
        let Some(Link { session, way: Way::Tcp(requester), .. }) = &mut self.link else { return false };
        completions.clear();
        let polled = requester.poll(session.memory(), now_ns, completions);
        for completion in completions.iter() {
            self.complete(*completion, now_ns);
        }
        if let (Err(broken), Some(cycle)) = (polled, &mut self.cycle) {
            cycle.failed.get_or_insert(Failure::Broken(broken));
        }
        !completions.is_empty()
    }

    /// How the reading ended, once it has.
    pub(super) fn ended(&mut self, now_ns: u64) -> Option<Ended> {
        let (Some(link), Some(cycle)) = (&mut self.link, &mut self.cycle) else {
            return Some(Ended::Failed { due_ns: now_ns, reason: "lost", error: None, silent: false });
        };
        let Some(failure) = cycle.failed.take() else {
            if !link.session.is_done() {
                return None;
            }
            (link.silences, link.proven) = (0, true);
            if now_ns.saturating_sub(link.since_ns) >= STABLE_NS {
                self.failures = 0;
            }
            return Some(Ended::Read);
        };
        let (reason, error, silent) = match &failure {
            Failure::Broken(broken) => ("lost", Some(broken.to_string()), false),
            Failure::Read(error @ ReadError::Timeout) => {
                link.silences += 1;
                let given_up = link.silences >= MAX_SILENCES || !link.session.via().is_silent();
                self.avoid_kernel = given_up && !link.proven && link.session.via() == Via::Kernel;
                ("timeout", given_up.then(|| error.to_string()), true)
            }
            Failure::Read(error @ ReadError::Gone(_)) => ("gone", Some(error.to_string()), false),
            Failure::Read(error @ ReadError::Lost) => ("lost", Some(error.to_string()), false),
            Failure::Read(ReadError::Overloaded) => ("overloaded", None, false),
            Failure::Read(error @ ReadError::Control(_)) => ("control", Some(error.to_string()), false),
            Failure::Read(error @ ReadError::Limit(_)) => ("limit", Some(error.to_string()), false),
        };
        let (due_ns, proven) = (cycle.due.due_ns, link.proven);
        // It has bootstrapped and cannot be read, or not for long: not to be asked in a tight loop.
        if error.is_some() && (!proven || now_ns.saturating_sub(link.since_ns) < STABLE_NS) {
            self.back_off(now_ns);
        }
        self.cycle = None;
        Some(Ended::Failed { due_ns, reason, error, silent })
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
