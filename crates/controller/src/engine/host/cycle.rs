// SPDX-License-Identifier: Apache-2.0
//! One host's reading, from its due time to its end.

use std::time::Duration;

use onlooker_flow::{Credit, Due, InFlight, Room, Served, Took};
use onlooker_reader::{Broken, By, Completion, Fault, Frames, Outcome, Read, ReadError, Via};
use onlooker_region::limits::BLOCK_BYTES;

use super::{Host, STABLE_NS};
use crate::engine::link::Link;
use crate::engine::outside::Carry;
use crate::engine::{BATCH, names};
use crate::sink::{Reading, State};

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

pub(super) struct Cycle {
    due: Due,
    began_ns: u64,
    deadline_ns: u64,
    /// When the session was last asked what it wants.
    asked_ns: u64,
    /// READs that were submitted.
    reads: u32,
    failed: Option<Failure>,
}

pub(super) enum Failure {
    Read(ReadError),
    Broken(Broken),
    /// The device that carries it, with all its hosts.
    Device(String),
    /// There was no room for its READs in all the time that it had.
    Late,
}

impl Failure {
    /// Whether it is not what was read that is at fault.
    fn is_of_carrier(&self) -> bool {
        match self {
            Self::Broken(_) | Self::Device(_) | Self::Read(ReadError::Timeout | ReadError::Lost) => true,
            Self::Read(_) | Self::Late => false,
        }
    }
}

/// How a reading ended.
pub(in crate::engine) enum Ended {
    /// With frames, good or bad.
    Read,
    /// Without. With a state, which is the host's from now on, the link is of no use any more.
    Failed { due_ns: u64, reason: &'static str, state: Option<State> },
}

fn bytes_of(blocks: u32) -> u64 {
    u64::from(blocks) * BLOCK_BYTES as u64
}

impl<P: Copy> Host<P> {
    /// Begins a reading; false where there is no link.
    pub(in crate::engine) fn begin(&mut self, due: Due, now_ns: u64, timeout: Duration) -> bool {
        let Some(link) = &mut self.link else { return false };
        let timeout_ns = u64::try_from(timeout.max(self.target.interval).as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = now_ns.saturating_add(timeout_ns);
        link.session.begin(now_ns, deadline_ns);
        self.cycle = Some(Cycle { due, began_ns: now_ns, deadline_ns, asked_ns: now_ns, reads: 0, failed: None });
        true
    }

    /// Puts what the session wants under way, as far as there is credit; `None`: others are first. True: something has
    /// moved. And the room that there was.
    pub(in crate::engine) fn submit(
        &mut self,
        carriers: &mut impl Carry<Place = P>,
        in_flight: &mut InFlight,
        credit: Option<Credit>,
        now_ns: u64,
        reads: &mut Vec<Read>,
    ) -> (Served, bool, Room) {
        let (Some(link), Some(cycle)) = (&mut self.link, &mut self.cycle) else {
            return (Served::Done, false, Room::UNASKED);
        };
        if cycle.failed.is_some() || link.session.is_done() {
            return (Served::Done, false, Room::UNASKED);
        }
        cycle.asked_ns = now_ns;
        reads.clear();
        link.session.wanted(now_ns, BATCH, reads);
        if reads.is_empty() {
            return (Served::Done, false, Room::UNASKED);
        }
        reads.iter_mut().for_each(|read| read.id = names::name(self.index, read.id));
        let sizes = reads.iter().map(|read| bytes_of(read.blocks));
        let room = credit.map_or(Room::NONE, |credit| in_flight.room(self.flow, sizes, credit));
        let submitted = if room.reads == 0 { Ok(0) } else { carriers.submit(link.place, &reads[..room.reads]) };
        let count = match submitted {
            Ok(count) => count,
            Err(broken) => {
                cycle.failed = Some(Failure::Broken(broken));
                return (Served::Done, true, room);
            }
        };
        if let Some(credit) = credit {
            reads[..count].iter().for_each(|read| in_flight.begin(self.flow, bytes_of(read.blocks), credit, now_ns));
        }
        link.session.submitted(count);
        cycle.reads += u32::try_from(count).unwrap_or(u32::MAX);
        let has_waited_in_vain = now_ns >= cycle.deadline_ns && in_flight.of(self.flow) == 0;
        if has_waited_in_vain {
            // A queue pair has no room while what was given up is not done, which may be for ever.
            let is_hosts = room.reads > 0 && link.pair.by == By::Verbs;
            cycle.failed = Some(if is_hosts { Failure::Read(ReadError::Timeout) } else { Failure::Late });
            return (Served::Done, true, room);
        }
        let served = if count == room.reads && room.is_short {
            Served::NoCredit { some: count > 0 }
        } else if count == 0 && room.reads > 0 {
            Served::NoRoom
        } else {
            Served::Done
        };
        (served, count > 0, room)
    }

    /// A READ of its own has ended. Its bytes and how long it took, if it was answered.
    pub(in crate::engine) fn complete(
        &mut self,
        carriers: &mut impl Carry<Place = P>,
        in_flight: &mut InFlight,
        completion: Completion,
        (looked_ns, now_ns): (u64, u64),
    ) -> Option<(u64, Took)> {
        let completion = Completion { id: names::local_of(completion.id), ..completion };
        let link = self.link.as_mut()?;
        let bytes = bytes_of(link.session.blocks_of(completion.id));
        // Of a batch that is forgotten nothing is under way.
        let took = (bytes > 0).then(|| (bytes, in_flight.end(self.flow, bytes, looked_ns, now_ns)));
        let took = took.filter(|_| completion.outcome == Outcome::Done);
        let Some(cycle) = &mut self.cycle else { return took };
        // What has failed says why: to the session it is only lost, or refused.
        if matches!(completion.outcome, Outcome::Lost | Outcome::Refused(_))
            && let Some(broken) = carriers.broken(link.place)
        {
            cycle.failed.get_or_insert(Failure::Broken(broken));
        }
        if let Err(error) = link.session.complete(completion, now_ns) {
            cycle.failed.get_or_insert(Failure::Read(error));
        }
        took
    }

    /// The device with this number is of no use any more. The host's state from now on, if it is not in a reading,
    /// which would end with that.
    pub(in crate::engine) fn lose_device<C: Carry<Place = P>>(
        &mut self,
        number: u32,
        why: &str,
        now_ns: u64,
    ) -> Option<State> {
        let is_on = |link: &Link<P>| C::device_of(link.place) == Some(number);
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
    pub(in crate::engine) fn ended(&mut self, now_ns: u64) -> Option<Ended> {
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
            Failure::Late => ("late", None),
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
    pub(in crate::engine) fn reading(&mut self, now_ns: u64, repeated: u64, mut frames: Frames) -> Option<Reading> {
        let cycle = self.cycle.take()?;
        self.reads = cycle.reads;
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

    /// READs that a reading takes: as many as the last one, or as there were by now.
    pub(in crate::engine) fn reads_a_cycle(&self) -> u32 {
        self.cycle.as_ref().map_or(0, |cycle| cycle.reads).max(self.reads)
    }

    /// When it has something to do even if nothing arrives: what its session wants next, or the end of its patience.
    pub(in crate::engine) fn wake_ns(&self) -> u64 {
        let (Some(link), Some(cycle)) = (&self.link, &self.cycle) else { return u64::MAX };
        link.session.wake_ns(cycle.asked_ns).min(cycle.deadline_ns)
    }
}
