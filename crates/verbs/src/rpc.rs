// SPDX-License-Identifier: Apache-2.0
//! Requests and answers by SEND and RECV: what one-sided READs are measured against, over the same kind of queue pair, which also READs and is READ.
//!
//! A request is two words, offset and length; the answer is the memory itself, copied by aligned 8-byte loads into registered memory of the end that answers, or 4 bytes, which
//! no answer has else: refused. Both are messages ("solicited"): [`CompletionQueue::arm_for_messages`] sleeps until the next. Each end has as many RECVs as requests can be
//! outstanding (credits.rs). An end whose queue pair has failed is of no use any more: both are made and connected anew.
//!
//! Any number of ends share a completion queue; each has a name there ([`end_of`]).

use std::sync::atomic::{AtomicU64, Ordering};

use onlooker_region::limits::BLOCK_BYTES;

use crate::completion::{Arrived, CompletionQueue, Status};
use crate::credits::{Answers, Asked, Requests};
use crate::endpoint::{Endpoint, Path};
use crate::error::Error;
use crate::memory::Landing;
use crate::queue_pair::{Operation, QueuePair};
use crate::settings::Settings;

/// Offset and length.
const REQUEST_BYTES: u32 = 16;
/// No number of words.
const REFUSED_BYTES: u32 = 4;
const NAME_SHIFT: u32 = 48;
/// Of ids: a RECV's.
const RECEIVES: u64 = 1 << 32;

/// Why an end is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// The device has refused something.
    #[error(transparent)]
    Device(#[from] Error),
    /// A message or a READ was not done.
    #[error("RDMA device {device}: a message or a READ ended as {}; make both ends anew", .status.name())]
    Failed {
        /// Name.
        device: String,
        /// How it ended.
        status: Status,
    },
    /// A message is not of the length that it must have.
    #[error(
        "RDMA device {device}: a message of {bytes} bytes where {wanted} were due; both ends must be of one version"
    )]
    Length {
        /// Name.
        device: String,
        /// Its length.
        bytes: u32,
        /// What it must be.
        wanted: u32,
    },
    /// A completion, or an answer, of nothing that is outstanding.
    #[error("RDMA device {device}: something has completed or was answered that nobody asked for; make both ends anew")]
    Stray {
        /// Name.
        device: String,
    },
}

/// The name of the end that a completion is of.
#[must_use]
pub fn end_of(arrived: &Arrived) -> u16 {
    u16::try_from(arrived.id >> NAME_SHIFT).unwrap_or(u16::MAX)
}

/// Part of both ends: a queue pair, and memory of which the first half is RECVs', the other one that of what is posted.
#[derive(Debug)]
struct End {
    // Goes first: its memory must outlive it.
    pair: QueuePair,
    memory: Landing,
    name: u16,
    settings: Settings,
}

impl End {
    fn new(queue: &CompletionQueue, name: u16, settings: Settings) -> Result<Self, Error> {
        let Settings { depth, max_read_blocks } = settings;
        assert!(depth.is_power_of_two(), "a depth of {depth}");
        let blocks = depth.checked_mul(max_read_blocks).and_then(|blocks| blocks.checked_mul(2));
        let blocks = blocks.ok_or_else(|| Error::Limit {
            device: queue.device().name().into(),
            what: "blocks for messages",
            wanted: u64::from(depth) * u64::from(max_read_blocks),
            limit: u32::MAX.into(),
        })?;
        let pair = QueuePair::for_messages(queue, depth)?;
        Ok(Self { pair, memory: Landing::new(queue.device(), blocks)?, name, settings })
    }

    fn connect(&mut self, peer: &Endpoint, path: Path) -> Result<(), Error> {
        self.pair.connect(peer, path)?;
        (0..self.settings.depth).try_for_each(|receive| self.receive(receive))
    }

    fn max_bytes(&self) -> u32 {
        self.settings.max_read_blocks.saturating_mul(u32::try_from(BLOCK_BYTES).unwrap_or(u32::MAX))
    }

    /// First block of a RECV.
    fn received(&self, receive: u32) -> u32 {
        receive * self.settings.max_read_blocks
    }

    /// First block of what is posted under a number.
    fn posted(&self, number: u32) -> u32 {
        (self.settings.depth + number % self.settings.depth) * self.settings.max_read_blocks
    }

    fn receive(&mut self, receive: u32) -> Result<(), Error> {
        let id = u64::from(self.name) << NAME_SHIFT | RECEIVES | u64::from(receive);
        let place = self.memory.place(self.received(receive));
        self.pair.receive(id, place, self.max_bytes())
    }

    fn post(&mut self, number: u32, operation: Operation, bytes: u32) -> Result<(), Error> {
        let id = u64::from(self.name) << NAME_SHIFT | u64::from(number);
        let place = self.memory.place(self.posted(number));
        self.pair.post_one(id, operation, place, bytes)
    }

    /// What has completed: a RECV, or what was posted under this number.
    fn completed(&self, arrived: &Arrived) -> Result<(bool, u32), RpcError> {
        if arrived.status != Status::Done {
            return Err(RpcError::Failed { device: self.device(), status: arrived.status });
        }
        let number = u32::try_from(arrived.id & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        Ok((arrived.id & RECEIVES != 0, number))
    }

    fn device(&self) -> String {
        self.pair.device().name().to_owned()
    }

    fn stray(&self) -> RpcError {
        RpcError::Stray { device: self.device() }
    }
}

/// What was asked for. Its words are the device's again when this has been looked at.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// As it was asked.
    pub tag: u64,
    /// `None`: refused.
    pub words: Option<&'a [AtomicU64]>,
}

/// The end that asks.
#[derive(Debug)]
pub struct Client {
    end: End,
    requests: Requests,
}

impl Client {
    /// Unconnected, for at most `settings.depth` READs and requests outstanding. Its completions go to `queue`, under `name`.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::System`].
    ///
    /// # Panics
    /// If the depth is no power of two.
    pub fn new(queue: &CompletionQueue, name: u16, settings: Settings) -> Result<Self, Error> {
        Ok(Self { end: End::new(queue, name, settings)?, requests: Requests::new(settings.depth) })
    }

    /// What the other end has to know.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.end.pair.endpoint()
    }

    /// Connects to what the other end, which has connected already, has told.
    ///
    /// # Errors
    /// [`Error::Peer`], [`Error::System`].
    pub fn connect(&mut self, server: &Endpoint, path: Path) -> Result<(), Error> {
        let device = self.end.pair.device();
        let reads = server.reads_from(device.limits().reads_sent);
        reads.map_err(|source| Error::Peer { device: device.name().into(), source })?;
        self.end.connect(server, path)
    }

    fn check(&self, bytes: u32) {
        let is_possible = bytes.is_multiple_of(8) && (1..=self.end.max_bytes()).contains(&bytes);
        assert!(is_possible, "{bytes} bytes asked for");
    }

    /// READs whole words of memory that is registered at the other end. False: there is no room now.
    ///
    /// # Errors
    /// [`Error::System`]: this end is of no use any more.
    ///
    /// # Panics
    /// If it is empty, of split words, or longer than the longest.
    pub fn read(&mut self, tag: u64, (va, rkey): (u64, u32), bytes: u32) -> Result<bool, Error> {
        self.check(bytes);
        if self.requests.room_for_reads() == 0 {
            return Ok(false);
        }
        let number = self.requests.read(Asked { tag, bytes });
        self.end.post(number, Operation::Read { va, rkey }, bytes)?;
        Ok(true)
    }

    /// Asks the other end for whole words of its memory. False: there is no room now.
    ///
    /// # Errors
    /// [`Error::System`]: this end is of no use any more.
    ///
    /// # Panics
    /// If it is empty, of split words, or longer than the longest.
    pub fn request(&mut self, tag: u64, offset: u64, bytes: u32) -> Result<bool, Error> {
        self.check(bytes);
        if self.requests.room_for_requests() == 0 {
            return Ok(false);
        }
        let number = self.requests.request(Asked { tag, bytes });
        let words = self.end.memory.words((self.end.posted(number), REQUEST_BYTES));
        for (word, value) in words.iter().zip([offset, bytes.into()]) {
            word.store(value, Ordering::Relaxed);
        }
        self.end.post(number, Operation::Send, REQUEST_BYTES)?;
        Ok(true)
    }

    /// Takes a completion of this end: `ended` gets what it has brought.
    ///
    /// # Errors
    /// [`RpcError`]: this end is of no use any more.
    pub fn take(&mut self, arrived: Arrived, mut ended: impl FnMut(Answer<'_>)) -> Result<(), RpcError> {
        let (is_received, number) = self.end.completed(&arrived)?;
        let Self { end, requests } = self;
        if !is_received {
            let is_known = requests.completed(number, |number, Asked { tag, bytes }| {
                ended(Answer { tag, words: Some(end.memory.words((end.posted(number), bytes))) });
            });
            return if is_known { Ok(()) } else { Err(end.stray()) };
        }
        let Asked { tag, bytes } = requests.answered().ok_or_else(|| end.stray())?;
        let words = match arrived.bytes {
            REFUSED_BYTES => None,
            whole if whole == bytes => Some(end.memory.words((end.received(number), bytes))),
            other => return Err(RpcError::Length { device: end.device(), bytes: other, wanted: bytes }),
        };
        ended(Answer { tag, words });
        Ok(end.receive(number)?)
    }
}

/// The end that answers.
#[derive(Debug)]
pub struct Server {
    end: End,
    answers: Answers,
    refused: u64,
}

impl Server {
    /// Unconnected, for at most `settings.depth` requests outstanding. Its completions go to `queue`, under `name`.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::System`].
    ///
    /// # Panics
    /// If the depth is no power of two.
    pub fn new(queue: &CompletionQueue, name: u16, settings: Settings) -> Result<Self, Error> {
        Ok(Self { end: End::new(queue, name, settings)?, answers: Answers::new(settings.depth), refused: 0 })
    }

    /// What the other end has to know, once this one is connected: its first request finds a RECV then.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.end.pair.endpoint()
    }

    /// Connects to what the other end has told.
    ///
    /// # Errors
    /// [`Error::Peer`], [`Error::System`].
    pub fn connect(&mut self, client: &Endpoint, path: Path) -> Result<(), Error> {
        self.end.connect(client, path)
    }

    /// Requests for what is not within the memory, or longer than the longest answer.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether requests wait for earlier answers to complete: these are no messages, so arm for all.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.answers.is_waiting()
    }

    /// Takes a completion of this end, and answers what can be answered now out of `memory`.
    ///
    /// # Errors
    /// [`RpcError`]: this end is of no use any more.
    pub fn take(&mut self, arrived: Arrived, memory: &[AtomicU64]) -> Result<(), RpcError> {
        let (is_received, number) = self.end.completed(&arrived)?;
        if !is_received {
            if !self.answers.completed(number) {
                return Err(self.end.stray());
            }
        } else if arrived.bytes == REQUEST_BYTES {
            self.answers.requested(number);
        } else {
            let device = self.end.device();
            return Err(RpcError::Length { device, bytes: arrived.bytes, wanted: REQUEST_BYTES });
        }
        while let Some((receive, number)) = self.answers.due() {
            self.answer(receive, number, memory)?;
        }
        Ok(())
    }

    fn answer(&mut self, receive: u32, number: u32, memory: &[AtomicU64]) -> Result<(), Error> {
        let request = self.end.memory.words((self.end.received(receive), REQUEST_BYTES));
        let (offset, bytes) = (request[0].load(Ordering::Relaxed), request[1].load(Ordering::Relaxed));
        self.end.receive(receive)?;
        let answer = part(memory, offset, bytes, self.end.max_bytes());
        let Some((words, bytes)) = answer else {
            self.refused += 1;
            return self.end.post(number, Operation::Send, REFUSED_BYTES);
        };
        let to = self.end.memory.words((self.end.posted(number), bytes));
        for (to, from) in to.iter().zip(words) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.end.post(number, Operation::Send, bytes)
    }
}

/// The words that are asked for, and their length in bytes; `None` if that cannot be answered.
fn part(memory: &[AtomicU64], offset: u64, bytes: u64, max_bytes: u32) -> Option<(&[AtomicU64], u32)> {
    let length =
        u32::try_from(bytes).ok().filter(|bytes| bytes.is_multiple_of(8) && (1..=max_bytes).contains(bytes))?;
    let first = usize::try_from(offset / 8).ok().filter(|_| offset.is_multiple_of(8))?;
    let end = first.checked_add(length as usize / 8)?;
    Some((memory.get(first..end)?, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_within_the_memory_are_answered() {
        let memory: Vec<AtomicU64> = (0..16).map(AtomicU64::new).collect();
        let asked = |offset, bytes| {
            let (words, length) = part(&memory, offset, bytes, 64)?;
            assert_eq!(words.len() * 8, length as usize);
            Some(words[0].load(Ordering::Relaxed))
        };
        assert_eq!((asked(0, 64), asked(120, 8), asked(64, 64)), (Some(0), Some(15), Some(8)));
        for (offset, bytes) in [(0, 0), (0, 4), (4, 8), (0, 72), (72, 64), (128, 8), (u64::MAX - 7, 8), (0, u64::MAX)] {
            assert_eq!(asked(offset, bytes), None, "{bytes} bytes at {offset}");
        }
    }

    #[test]
    fn a_completion_says_whose_it_is() {
        let arrived = |id| Arrived { id, status: Status::Done, bytes: 0 };
        assert_eq!(end_of(&arrived(7u64 << NAME_SHIFT | RECEIVES | 5)), 7);
        assert_eq!(end_of(&arrived(u64::MAX)), u16::MAX);
        assert_eq!(end_of(&arrived(u64::from(u32::MAX))), 0);
    }
}
