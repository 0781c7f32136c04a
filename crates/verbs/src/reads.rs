// SPDX-License-Identifier: Apache-2.0
//! READs to many hosts over one completion queue: what is posted, what a completion means, what is given up.
//!
//! Sans-I/O but for the [`Port`]. Each flow is one queue pair; its READs land in slots of its own memory, one for each place in its send queue, so that an answer that
//! comes after its deadline lands where nobody looks. A flow that has failed ends its READs and takes no more: the caller removes it and connects a new one.

use std::collections::VecDeque;

use onlooker_region::Block;
use onlooker_region::limits::BLOCK_BYTES;

use crate::completion::{Completed, MAX_POLL, Status};
use crate::error::Error;
use crate::port::Port;
use crate::send_queue::SendQueue;
use crate::settings::Settings;
use crate::work_request::WorkRequest;

/// Flows of one completion queue, at most.
const MAX_FLOWS: usize = 1 << 16;
/// Polls in a row before the caller gets its turn.
const MAX_POLLS: usize = 16;

/// A flow; another one later has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    index: u16,
    generation: u16,
}

impl Flow {
    /// The id of a work request: the flow's part above, the number in its queue below.
    fn id(self, number: u32) -> u64 {
        u64::from(self.index) << 48 | u64::from(self.generation) << 32 | u64::from(number)
    }

    fn of(id: u64) -> (Self, u32) {
        let bytes = id.to_be_bytes();
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let number = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        (Self { index: half(0), generation: half(2) }, number)
    }
}

/// A READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The caller's name for it.
    pub tag: u64,
    /// Address at the host.
    pub va: u64,
    /// Key of the region.
    pub rkey: u32,
    /// Length, a multiple of 8, at most [`Settings::max_read_blocks`].
    pub bytes: u32,
    /// When the caller gives it up.
    pub deadline_ns: u64,
}

/// How a READ ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The memory has the blocks.
    Done,
    /// It, or one before it, has failed; so has the flow.
    Failed(Status),
    /// Nothing came before the deadline. The flow may be well.
    Timeout,
}

/// The end of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its flow.
    pub flow: Flow,
    /// Its name.
    pub tag: u64,
    /// How.
    pub outcome: Outcome,
}

/// Where blocks go.
pub trait Memory {
    /// The memory of a READ that is done: as many blocks as it touches.
    fn of(&mut self, flow: Flow, tag: u64, bytes: u32) -> &mut [Block];
}

/// What has happened since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// READs posted.
    pub posted: u64,
    /// Batches they were posted in.
    pub batches: u64,
    /// Completions polled.
    pub completions: u64,
    /// Completions of work requests that were not outstanding.
    pub stray: u64,
    /// READs that ended in time-outs.
    pub timeouts: u64,
}

#[derive(Debug)]
struct Sent {
    /// `None`: given up.
    tag: Option<u64>,
    bytes: u32,
    deadline_ns: u64,
}

#[derive(Debug)]
struct State<Q> {
    pair: Q,
    settings: Settings,
    sent: SendQueue<Sent>,
    failed: Option<Status>,
}

#[derive(Debug)]
struct Slot<Q> {
    generation: u16,
    state: Option<State<Q>>,
}

/// All flows of one port.
#[derive(Debug)]
pub struct Reads<P: Port> {
    port: P,
    slots: Vec<Slot<P::Pair>>,
    free: VecDeque<u16>,
    in_flight: usize,
    /// Not later than the earliest deadline of what is in flight.
    deadline_ns: u64,
    /// The last poll has left completions.
    is_behind: bool,
    batch: Vec<WorkRequest>,
    counters: Counters,
}

impl<P: Port> Reads<P> {
    /// Without flows.
    #[must_use]
    pub fn new(port: P) -> Self {
        Self {
            port,
            slots: Vec::new(),
            free: VecDeque::new(),
            in_flight: 0,
            deadline_ns: u64::MAX,
            is_behind: false,
            batch: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The port, to make queue pairs of.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// What has happened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// READs that the caller waits for.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes a connected queue pair; `None` when there are 65536 flows.
    ///
    /// # Panics
    /// If it is another port's, or its depth no power of two: numbers wrap, and slots must not.
    pub fn add(&mut self, pair: P::Pair) -> Option<Flow> {
        let settings = self.port.settings(&pair).expect("a queue pair of this port");
        assert!(settings.depth.is_power_of_two(), "a depth of {}", settings.depth);
        let state = State { pair, settings, sent: SendQueue::new(settings.depth), failed: None };
        let index = match self.free.pop_front() {
            Some(index) => index,
            None if self.slots.len() == MAX_FLOWS => return None,
            None => {
                self.slots.push(Slot { generation: 0, state: None });
                u16::try_from(self.slots.len() - 1).unwrap_or(u16::MAX)
            }
        };
        let slot = &mut self.slots[usize::from(index)];
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = Some(state);
        Some(Flow { index, generation: slot.generation })
    }

    fn state(&mut self, flow: Flow) -> Option<&mut State<P::Pair>> {
        let slot = self.slots.get_mut(usize::from(flow.index))?;
        slot.state.as_mut().filter(|_| slot.generation == flow.generation)
    }

    /// Ends a flow, if it is one; its READs end as flushed.
    pub fn remove(&mut self, flow: Flow, ended: &mut Vec<Ended>) {
        if self.state(flow).is_none() {
            return;
        }
        let Some(mut state) = self.slots[usize::from(flow.index)].state.take() else { return };
        let before = ended.len();
        state.sent.abandon(|sent| {
            ended.extend(sent.tag.map(|tag| Ended { flow, tag, outcome: Outcome::Failed(Status::Flushed) }));
        });
        self.in_flight -= ended.len() - before;
        self.port.retire(state.pair);
        // The oldest free slot is used first: its generation is back last.
        self.free.push_back(flow.index);
    }

    /// Why a flow takes no READs any more, if that is so.
    pub fn failure(&mut self, flow: Flow) -> Option<Status> {
        self.state(flow).and_then(|state| state.failed)
    }

    /// READs that a flow takes now.
    pub fn room(&mut self, flow: Flow) -> usize {
        self.state(flow).map_or(0, |state| if state.failed.is_some() { 0 } else { state.sent.room() })
    }

    /// Posts READs, as many from the front as there is room for, in one batch; returns how many.
    ///
    /// # Errors
    /// The device has refused the batch: the flow has failed.
    ///
    /// # Panics
    /// If one is empty, of split words, or longer than the flow's longest.
    pub fn submit(&mut self, flow: Flow, reads: &[Read]) -> Result<usize, Error> {
        let count = self.room(flow).min(reads.len());
        let Some(slot) = self.slots.get_mut(usize::from(flow.index)) else { return Ok(0) };
        let Some(state) = slot.state.as_mut().filter(|_| count > 0) else { return Ok(0) };
        let Settings { depth, max_read_blocks } = state.settings;
        let most_bytes = max_read_blocks as usize * BLOCK_BYTES;
        for Read { bytes, .. } in &reads[..count] {
            let is_possible = bytes.is_multiple_of(8) && (1..=most_bytes).contains(&(*bytes as usize));
            assert!(is_possible, "a READ of {bytes} bytes");
        }
        self.batch.clear();
        for (index, read) in reads[..count].iter().enumerate() {
            let sent = Sent { tag: Some(read.tag), bytes: read.bytes, deadline_ns: read.deadline_ns };
            let (number, is_signalled) = state.sent.push(sent, index + 1 == count);
            self.batch.push(WorkRequest {
                id: flow.id(number),
                is_signalled,
                va: read.va,
                rkey: read.rkey,
                at: number % depth * max_read_blocks,
                bytes: read.bytes,
            });
        }
        if let Err(error) = self.port.post(&mut state.pair, &self.batch) {
            // Some may have been posted: their completions are nobody's.
            state.sent.refused(count);
            state.failed.get_or_insert(Status::Flushed);
            return Err(error);
        }
        let earliest = reads[..count].iter().map(|read| read.deadline_ns).min();
        self.deadline_ns = earliest.map_or(self.deadline_ns, |earliest| self.deadline_ns.min(earliest));
        self.in_flight += count;
        self.counters.posted += count as u64;
        self.counters.batches += 1;
        Ok(count)
    }

    /// Takes completions: blocks of READs that are done go to `memory`, their ends to `ended`; then gives up what is past its deadline.
    ///
    /// # Errors
    /// Completions were lost: all flows are to be removed.
    pub fn poll(&mut self, memory: &mut impl Memory, now_ns: u64, ended: &mut Vec<Ended>) -> Result<(), Error> {
        let mut completed = [Completed { id: 0, status: Status::Done }; MAX_POLL];
        self.is_behind = true;
        for _ in 0..MAX_POLLS {
            let count = self.port.poll(&mut completed)?;
            for completed in &completed[..count] {
                self.take(*completed, memory, ended);
            }
            if count < MAX_POLL {
                self.is_behind = false;
                break;
            }
        }
        // What has completed and was not looked at yet is not late.
        if now_ns >= self.deadline_ns && !self.is_behind {
            self.expire(now_ns, ended);
        }
        Ok(())
    }

    fn take(&mut self, completed: Completed, memory: &mut impl Memory, ended: &mut Vec<Ended>) {
        self.counters.completions += 1;
        let (flow, number) = Flow::of(completed.id);
        let Self { port, slots, .. } = self;
        let slot = slots.get_mut(usize::from(flow.index)).filter(|slot| slot.generation == flow.generation);
        let Some(state) = slot.and_then(|slot| slot.state.as_mut()) else {
            self.counters.stray += 1;
            return;
        };
        let State { pair, settings, sent, failed } = state;
        let before = ended.len();
        let is_known = sent.complete(number, completed.status, |number, sent, status| {
            let Some(tag) = sent.tag else { return };
            let outcome = match status {
                Status::Done => {
                    let at = number % settings.depth * settings.max_read_blocks;
                    port.landed(pair, (at, sent.bytes), memory.of(flow, tag, sent.bytes));
                    Outcome::Done
                }
                status => Outcome::Failed(status),
            };
            ended.push(Ended { flow, tag, outcome });
        });
        if completed.status != Status::Done {
            // The first tells why; the others are flushed.
            failed.get_or_insert(completed.status);
        }
        self.counters.stray += u64::from(!is_known);
        self.in_flight -= ended.len() - before;
    }

    fn expire(&mut self, now_ns: u64, ended: &mut Vec<Ended>) {
        self.deadline_ns = u64::MAX;
        let before = ended.len();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(state) = &mut slot.state else { continue };
            let flow = Flow { index: u16::try_from(index).unwrap_or(u16::MAX), generation: slot.generation };
            for sent in state.sent.iter_mut() {
                let Some(tag) = sent.tag else { continue };
                if sent.deadline_ns <= now_ns {
                    sent.tag = None;
                    ended.push(Ended { flow, tag, outcome: Outcome::Timeout });
                } else {
                    self.deadline_ns = self.deadline_ns.min(sent.deadline_ns);
                }
            }
        }
        let gone = ended.len() - before;
        self.in_flight -= gone;
        self.counters.timeouts += gone as u64;
    }

    /// When [`Reads::poll`] has something to do even if nothing completes: 0, at once, where the last one has left completions.
    #[must_use]
    pub fn wake_ns(&self) -> Option<u64> {
        if self.is_behind { Some(0) } else { (self.in_flight > 0).then_some(self.deadline_ns) }
    }
}

#[cfg(test)]
mod tests;
