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
use crate::port::Port;
use crate::settings::Settings;
use crate::work_request::WorkRequest;

/// What both ends of a connection have been told of each other.
#[derive(Clone, Copy, Debug)]
pub struct Agreement {
    /// READs that this end has under way at once.
    pub reads_sent: u32,
    /// READs that the other end answers at once.
    pub reads_answered: u32,
    /// Number of the first packet that this end sends, and what the other end waits for.
    pub packets: (u32, u32),
}

impl Default for Agreement {
    fn default() -> Self {
        Self { reads_sent: 16, reads_answered: 16, packets: (7, 7) }
    }
}

/// A queue pair; what is known of it is the device's.
pub type FakePair = Rc<RefCell<Queue>>;

/// What is known of a queue pair.
#[derive(Debug)]
pub struct Queue {
    settings: Settings,
    agreement: Agreement,
    /// Posted, not executed.
    waiting: VecDeque<WorkRequest>,
    /// Ids of the requests whose places are taken.
    taken: VecDeque<u64>,
    is_in_error: bool,
    /// No batch is taken.
    pub refuses: bool,
    memory: Vec<Block>,
}

/// What the far end answers to a READ: its words, or how it fails.
pub type FarEnd = Box<dyn FnMut(&WorkRequest) -> Result<Vec<u64>, Status>>;

fn own_addresses(request: &WorkRequest) -> Result<Vec<u64>, Status> {
    Ok((0..u64::from(request.bytes / 8)).map(|word| request.va + 8 * word).collect())
}

/// The device.
pub struct Fake {
    completions: VecDeque<Completed>,
    entries: usize,
    pairs: Vec<FakePair>,
    far_end: FarEnd,
    /// How the next requests end: by address.
    pub bad: Vec<(u64, Status)>,
    /// Completions that there was no room for.
    pub lost_completions: usize,
}

impl Fake {
    /// With a queue of so many completions, and a far end that has everywhere words that are their own address.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self::with(entries, Box::new(own_addresses))
    }

    /// With another far end.
    #[must_use]
    pub fn with(entries: usize, far_end: FarEnd) -> Self {
        let (completions, pairs, bad) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { completions, entries, pairs, far_end, bad, lost_completions: 0 }
    }

    /// A connected queue pair.
    pub fn pair(&mut self, settings: Settings, agreement: Agreement) -> FakePair {
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
    pub fn run(&mut self, most: usize) {
        for pair in self.pairs.clone() {
            let mut queue = pair.borrow_mut();
            let queue = &mut *queue;
            for _ in 0..most {
                let Some(request) = queue.waiting.pop_front() else { break };
                let Agreement { reads_sent, reads_answered, packets } = queue.agreement;
                // Counted with the one at hand.
                let at_once = (queue.waiting.len() + 1).min(reads_sent as usize);
                let answer = if queue.is_in_error {
                    Err(Status::Flushed)
                } else if packets.0 != packets.1 {
                    Err(Status::NoAnswer)
                } else if at_once > reads_answered as usize {
                    Err(Status::Invalid)
                } else {
                    let bad = self.bad.iter().find(|(va, _)| *va == request.va);
                    bad.map_or_else(|| (self.far_end)(&request), |(_, status)| Err(*status))
                };
                for (index, word) in answer.iter().flatten().take(request.bytes as usize / 8).enumerate() {
                    let block = &mut queue.memory[request.at as usize + index / BLOCK_WORDS];
                    block.0[index % BLOCK_WORDS] = *word;
                }
                let status = answer.err().unwrap_or(Status::Done);
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
