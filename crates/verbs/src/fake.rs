// SPDX-License-Identifier: Apache-2.0
//! A device for tests, as strict as the specification allows, where soft-RoCE is lenient: a place in the send queue is free again only when a completion behind it
//! was polled; a completion queue that overflows loses completions; a responder that is asked for more READs at once than it has resources for ends the connection
//! (IBA 9.4.4); a queue pair that is connected with an old packet number gets no answers (IBA 9.7.1); each request of a queue pair in error is flushed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use onlooker_region::Block;
use onlooker_region::limits::BLOCK_WORDS;

use crate::completion::{Completed, MAX_POLL, Status};
use crate::error::Error;
use crate::port::{Port, WorkRequest};
use crate::reads::Settings;

/// What both ends of a connection have been told of each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreement {
    /// READs that this end has under way at once.
    pub(crate) reads_sent: u32,
    /// READs that the other end answers at once.
    pub(crate) reads_answered: u32,
    /// Number of the first packet that this end sends, and what the other end waits for.
    pub(crate) packets: (u32, u32),
}

impl Default for Agreement {
    fn default() -> Self {
        Self { reads_sent: 16, reads_answered: 16, packets: (7, 7) }
    }
}

/// A queue pair; what is known of it is the device's.
pub(crate) type FakePair = Rc<RefCell<Queue>>;

#[derive(Debug)]
pub(crate) struct Queue {
    settings: Settings,
    agreement: Agreement,
    /// Posted, not executed.
    waiting: VecDeque<WorkRequest>,
    /// Ids of the requests whose places are taken.
    taken: VecDeque<u64>,
    is_in_error: bool,
    /// No batch is taken.
    pub(crate) refuses: bool,
    memory: Vec<Block>,
}

/// The device. Its far end has everywhere words that are their own address.
#[derive(Debug)]
pub(crate) struct Fake {
    completions: VecDeque<Completed>,
    entries: usize,
    pairs: Vec<FakePair>,
    /// How the next requests end: by address.
    pub(crate) bad: Vec<(u64, Status)>,
    pub(crate) lost_completions: usize,
}

impl Fake {
    pub(crate) fn new(entries: usize) -> Self {
        Self { completions: VecDeque::new(), entries, pairs: Vec::new(), bad: Vec::new(), lost_completions: 0 }
    }

    pub(crate) fn pair(&mut self, settings: Settings, agreement: Agreement) -> FakePair {
        let memory = vec![Block::default(); (settings.depth * settings.max_read_blocks) as usize];
        let (waiting, taken) = (VecDeque::new(), VecDeque::new());
        let queue = Queue { settings, agreement, waiting, taken, is_in_error: false, refuses: false, memory };
        let pair = Rc::new(RefCell::new(queue));
        self.pairs.push(pair.clone());
        pair
    }

    fn complete(&mut self, completed: Completed) {
        if self.completions.len() < self.entries {
            self.completions.push_back(completed);
        } else {
            self.lost_completions += 1;
        }
    }

    /// Executes at most `most` requests of each queue pair.
    pub(crate) fn run(&mut self, most: usize) {
        for pair in self.pairs.clone() {
            let mut queue = pair.borrow_mut();
            let queue = &mut *queue;
            for _ in 0..most {
                let Some(request) = queue.waiting.pop_front() else { break };
                let Agreement { reads_sent, reads_answered, packets } = queue.agreement;
                // Counted with the one at hand.
                let at_once = (queue.waiting.len() + 1).min(reads_sent as usize);
                let status = if queue.is_in_error {
                    Status::Flushed
                } else if packets.0 != packets.1 {
                    Status::NoAnswer
                } else if at_once > reads_answered as usize {
                    Status::Invalid
                } else {
                    let bad = self.bad.iter().find(|(va, _)| *va == request.va);
                    bad.map_or(Status::Done, |(_, status)| *status)
                };
                if status == Status::Done {
                    for word in 0..request.bytes as usize / 8 {
                        let block = &mut queue.memory[request.at as usize + word / BLOCK_WORDS];
                        block.0[word % BLOCK_WORDS] = request.va + 8 * word as u64;
                    }
                }
                queue.is_in_error |= status != Status::Done;
                if request.is_signalled || status != Status::Done {
                    self.complete(Completed { id: request.id, status });
                }
            }
        }
    }
}

impl Port for Fake {
    type Pair = FakePair;

    fn settings(&self, pair: &FakePair) -> Option<Settings> {
        self.pairs.iter().any(|own| Rc::ptr_eq(own, pair)).then(|| pair.borrow().settings)
    }

    fn post(&mut self, pair: &mut FakePair, batch: &[WorkRequest]) -> Result<(), Error> {
        let mut queue = pair.borrow_mut();
        let queue = &mut *queue;
        if queue.refuses || queue.taken.len() + batch.len() > queue.settings.depth as usize {
            let (device, operation) = ("fake".into(), "posting READs");
            return Err(Error::System { device, operation, source: io::ErrorKind::OutOfMemory.into() });
        }
        queue.taken.extend(batch.iter().map(|request| request.id));
        queue.waiting.extend(batch);
        Ok(())
    }

    fn poll(&mut self, completed: &mut [Completed; MAX_POLL]) -> Result<usize, Error> {
        let count = self.completions.len().min(MAX_POLL);
        for (to, one) in completed.iter_mut().zip(self.completions.drain(..count)) {
            for pair in &self.pairs {
                let taken = &mut pair.borrow_mut().taken;
                if let Some(at) = taken.iter().position(|id| *id == one.id) {
                    taken.drain(..=at);
                }
            }
            *to = one;
        }
        Ok(count)
    }

    fn landed(&self, pair: &FakePair, (at, bytes): (u32, u32), to: &mut [Block]) {
        for word in 0..bytes as usize / 8 {
            let block = &pair.borrow().memory[at as usize + word / BLOCK_WORDS];
            to[word / BLOCK_WORDS].0[word % BLOCK_WORDS] = block.0[word % BLOCK_WORDS];
        }
    }

    fn retire(&mut self, pair: FakePair) {
        self.pairs.retain(|other| !Rc::ptr_eq(other, &pair));
    }
}
