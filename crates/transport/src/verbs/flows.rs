// SPDX-License-Identifier: Apache-2.0
//! READs to many hosts over one completion queue.

use super::copy::SharedMirror;
use onlooker_reader::{Broken, Completion, Fault, Memory, Mirror, Outcome, Read};
use onlooker_region::Block;
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_verbs::{Counters, Ended, Flow, Outcome as End, Port, Reads, Status};
use onlooker_wire::tcp_read::Refusal;
use std::collections::HashMap;
use std::fmt;

/// A READ under way: what it is to the caller.
#[derive(Clone, Copy, Debug)]
struct Place {
    id: u64,
    at: u32,
    blocks: u32,
}

/// READs under way, by tag.
#[derive(Debug, Default)]
struct Places {
    all: Vec<Place>,
    free: Vec<usize>,
}

impl Places {
    fn put(&mut self, read: &Read) -> u64 {
        let place = Place { id: read.id, at: read.at, blocks: read.blocks };
        let index = self.free.pop().unwrap_or(self.all.len());
        match self.all.get_mut(index) {
            Some(free) => *free = place,
            None => self.all.push(place),
        }
        index as u64
    }

    fn get(&self, tag: u64) -> (usize, Place) {
        let index = usize::try_from(tag).unwrap_or(usize::MAX);
        (index, self.all[index])
    }

    fn take(&mut self, tag: u64) -> Place {
        let (index, place) = self.get(tag);
        self.free.push(index);
        place
    }
}

/// Finds the caller's memory by tag.
struct Destination<'a, M: ?Sized> {
    places: &'a Places,
    memory: &'a mut M,
}

impl<M: Memory + ?Sized> onlooker_verbs::Memory for Destination<'_, M> {
    fn of(&mut self, _: Flow, tag: u64, _: u32) -> &mut [Block] {
        let (_, Place { id, at, blocks }) = self.places.get(tag);
        self.memory.blocks(id, at, blocks)
    }
}

/// All hosts of one device and I/O thread.
pub struct Flows<P: Port> {
    reads: Reads<P>,
    /// Each that was not removed, and why it takes no READs any more.
    flows: HashMap<Flow, Option<Broken>>,
    places: Places,
    /// What has ended and was not told yet.
    ended: Vec<Ended>,
    batch: Vec<onlooker_verbs::Read>,
    /// Why none of them is of use any more.
    broken: Option<Broken>,
    /// What hosts write to. Goes after the queue pairs: a WRITE to memory that is not registered would end them.
    copies: HashMap<Flow, SharedMirror>,
}

impl<P: Port> Flows<P> {
    /// Without hosts.
    #[must_use]
    pub fn new(port: P) -> Self {
        Self {
            reads: Reads::new(port),
            flows: HashMap::new(),
            places: Places::default(),
            ended: Vec::new(),
            batch: Vec::new(),
            broken: None,
            copies: HashMap::new(),
        }
    }

    /// The port, to make queue pairs of, and to sleep on.
    #[must_use]
    pub fn port(&self) -> &P {
        self.reads.port()
    }

    /// As [`Flows::port`].
    pub fn port_mut(&mut self) -> &mut P {
        self.reads.port_mut()
    }

    /// What has happened since the beginning.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.reads.counters()
    }

    /// READs of all hosts that have not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.reads.in_flight() + self.ended.len()
    }

    /// Takes a connected queue pair of this port; `None` when there are 65536.
    ///
    /// # Panics
    /// If it is another port's.
    pub fn add(&mut self, pair: P::Pair) -> Option<Flow> {
        let flow = self.reads.add(pair)?;
        self.flows.insert(flow, None);
        Some(flow)
    }

    /// As [`Flows::add`], a queue pair whose host writes its directory to `copy`, which is kept for as long as the pair is.
    ///
    /// # Panics
    /// If it is another port's.
    pub fn add_with_copy(&mut self, pair: P::Pair, copy: SharedMirror) -> Option<Flow> {
        let flow = self.add(pair)?;
        self.copies.insert(flow, copy);
        Some(flow)
    }

    /// For [`Session::mirror`](onlooker_reader::Session::mirror), where the flow's host writes its directory to this
    /// machine.
    #[must_use]
    pub fn mirror(&self, flow: Flow) -> Option<Box<dyn Mirror + Send>> {
        self.copies.get(&flow).map(|copy| Box::new(copy.clone()) as Box<dyn Mirror + Send>)
    }

    /// Ends a flow; its READs complete as [`Outcome::Lost`].
    pub fn remove(&mut self, flow: Flow, completions: &mut Vec<Completion>) {
        self.flows.remove(&flow);
        self.reads.remove(flow, &mut self.ended);
        self.copies.remove(&flow);
        let (own, others) = std::mem::take(&mut self.ended).into_iter().partition(|ended: &Ended| ended.flow == flow);
        self.ended = own;
        self.tell(completions);
        self.ended = others;
    }

    /// Why a flow takes no READs any more, if that is so: remove it, and bootstrap again. What it still had under way completes with the next poll. [`Broken::Closed`]
    /// where it was removed.
    pub fn broken(&mut self, flow: Flow) -> Option<Broken> {
        // One whose READs have all been given up fails without a word to anybody.
        if let Some(status) = self.reads.failure(flow) {
            self.end(flow, Broken::QueuePair(fault(status)));
        }
        self.broken.or_else(|| *self.flows.get(&flow).unwrap_or(&Some(Broken::Closed)))
    }

    /// [`onlooker_reader::Requester::submit`] to one flow.
    ///
    /// # Errors
    /// The flow is broken.
    ///
    /// # Panics
    /// If a READ has 0 blocks or more than the flow's longest.
    pub fn submit(&mut self, flow: Flow, reads: &[Read]) -> Result<usize, Broken> {
        if let Some(broken) = self.broken(flow) {
            return Err(broken);
        }
        let count = self.reads.room(flow).min(reads.len());
        self.batch.clear();
        for read in &reads[..count] {
            let Read { va, rkey, blocks, deadline_ns, .. } = *read;
            // A length beyond every limit is refused below, whatever it is.
            let bytes = u32::try_from(blocks as usize * BLOCK_BYTES).unwrap_or(u32::MAX);
            self.batch.push(onlooker_verbs::Read { tag: self.places.put(read), va, rkey, bytes, deadline_ns });
        }
        match self.reads.submit(flow, &self.batch) {
            Ok(taken) => Ok(taken),
            Err(error) => {
                for read in &self.batch {
                    self.places.take(read.tag);
                }
                // The next poll tells, with the completions of what was under way.
                self.end(flow, broken_by(&error));
                Ok(0)
            }
        }
    }

    /// [`onlooker_reader::Requester::poll`] for all flows. That one of them has broken is no error here: ask
    /// [`Flows::broken`].
    ///
    /// # Errors
    /// All have broken, and the port is of no use any more.
    ///
    /// # Panics
    /// If a READ under way names blocks outside of `memory`.
    pub fn poll(
        &mut self,
        memory: &mut (impl Memory + ?Sized),
        now_ns: u64,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let polled = self.reads.poll(&mut Destination { places: &self.places, memory }, now_ns, &mut self.ended);
        for index in 0..self.ended.len() {
            if let Ended { flow, outcome: End::Failed(_), .. } = self.ended[index]
                && let Some(status) = self.reads.failure(flow)
            {
                self.end(flow, Broken::QueuePair(fault(status)));
            }
        }
        if let Err(error) = &polled {
            self.broken = Some(broken_by(error));
            for flow in self.flows.keys() {
                self.reads.remove(*flow, &mut self.ended);
            }
        }
        self.tell(completions);
        self.broken.map_or(Ok(()), Err)
    }

    /// When [`Flows::poll`] has something to do even if nothing completes; 0: at once.
    #[must_use]
    pub fn wake_ns(&self) -> Option<u64> {
        if self.ended.is_empty() { self.reads.wake_ns() } else { Some(0) }
    }

    /// Nothing more goes over a queue pair; what was under way has ended, and is told next.
    fn end(&mut self, flow: Flow, broken: Broken) {
        self.reads.remove(flow, &mut self.ended);
        if let Some(why) = self.flows.get_mut(&flow) {
            why.get_or_insert(broken);
        }
    }

    /// Tells what has ended.
    pub(super) fn tell(&mut self, completions: &mut Vec<Completion>) {
        for ended in self.ended.drain(..) {
            let Place { id, .. } = self.places.take(ended.tag);
            completions.push(Completion { id, outcome: outcome(ended.outcome) });
        }
    }
}

impl<P: Port> fmt::Debug for Flows<P> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (flows, counters) = (self.flows.len(), self.counters());
        f.debug_struct("Flows").field("flows", &flows).field("counters", &counters).finish_non_exhaustive()
    }
}

fn outcome(end: End) -> Outcome {
    match end {
        End::Done => Outcome::Done,
        End::Failed(Status::Access) => Outcome::Refused(Refusal::Access),
        End::Failed(Status::Invalid) => Outcome::Refused(Refusal::InvalidRequest),
        End::Failed(_) => Outcome::Lost,
        End::Timeout => Outcome::Timeout,
    }
}

fn fault(status: Status) -> Fault {
    match status {
        Status::Access => Fault::Access,
        Status::Invalid => Fault::Invalid,
        Status::Remote => Fault::Remote,
        Status::NoAnswer => Fault::NoAnswer,
        Status::Local(raw) => Fault::Local(raw),
        Status::Flushed | Status::Done => Fault::Flushed,
    }
}

/// What an error of a device's call makes of those who use it.
pub(super) fn broken_by(error: &onlooker_verbs::Error) -> Broken {
    use onlooker_verbs::Error;
    match error {
        Error::System { operation, source, .. } => Broken::System { operation, kind: source.kind() },
        Error::Overrun { .. } => Broken::QueuePair(Fault::Overrun),
        _ => Broken::System { operation: "RDMA device", kind: std::io::ErrorKind::Other },
    }
}
