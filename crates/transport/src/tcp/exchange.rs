// SPDX-License-Identifier: Apache-2.0
//! The TCP read's requester without the socket: bytes out, bytes in, READs completed.
//!
//! Answers come in the order of requests and items in the order of reads, so everything under way stands in two queues. A READ that has
//! timed out keeps its place: its late item is passed over and counted. All buffers are bounded and reused.

use onlooker_reader::{Completion, Memory, Outcome, Read};
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_wire::profile::BLOCK_BYTES as BLOCK;
use onlooker_wire::tcp_read::{
    self, Decoded, Error, Header, LONGEST_ITEM_BYTES, LONGEST_REQUEST_BYTES, MAX_READ_BYTES, MAX_READS_PER_REQUEST,
    decode_answer_header, decode_answer_item, encode_request,
};
use std::collections::VecDeque;

// The format and the packets count by the same block.
const _: () = assert!(BLOCK as usize == BLOCK_BYTES);

/// READs under way at most, those included that timed out and whose answers are still owed.
pub const MAX_IN_FLIGHT: usize = 4096;
/// Requests under way at most.
const MAX_REQUESTS: usize = 256;
/// Bytes waiting to be sent, beyond which nothing is submitted: a host that answers what it has not received must not make the queue grow.
const MAX_OUTBOX_BYTES: usize = MAX_REQUESTS * LONGEST_REQUEST_BYTES;
/// Several of the longest items, so that a system call brings more than one.
const INBOX_BYTES: usize = 4 * LONGEST_ITEM_BYTES;

#[derive(Clone, Copy, Debug)]
struct Pending {
    id: u64,
    at: u32,
    blocks: u32,
    deadline_ns: u64,
    expired: bool,
}

/// State of one stream.
#[derive(Debug)]
pub struct Exchange {
    max_read_blocks: u32,
    next_request: u32,
    requests: VecDeque<Header>,
    reads: VecDeque<Pending>,
    /// Items that the answer under way still has; 0 before its header.
    items: u16,
    expired: usize,
    late: u64,
    earliest_ns: u64,
    outbox: Vec<u8>,
    sent: usize,
    inbox: Box<[u8]>,
    /// Bytes of `inbox` that are filled and not yet taken.
    filled: std::ops::Range<usize>,
    batch: Vec<tcp_read::Read>,
}

impl Exchange {
    /// Before anything was sent. READs are of at most `max_read_blocks`, and of at most what the protocol allows.
    #[must_use]
    pub fn new(max_read_blocks: u32) -> Self {
        Self {
            max_read_blocks: max_read_blocks.clamp(1, MAX_READ_BYTES / BLOCK),
            next_request: 0,
            requests: VecDeque::new(),
            reads: VecDeque::new(),
            items: 0,
            expired: 0,
            late: 0,
            earliest_ns: u64::MAX,
            outbox: Vec::new(),
            sent: 0,
            inbox: vec![0; INBOX_BYTES].into_boxed_slice(),
            filled: 0..0,
            batch: Vec::with_capacity(MAX_READS_PER_REQUEST),
        }
    }

    /// Longest READ.
    #[must_use]
    pub fn max_read_blocks(&self) -> u32 {
        self.max_read_blocks
    }

    /// READs that have not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.reads.len() - self.expired
    }

    /// Answers that came after their READ had timed out.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Puts READs into requests, as many from the front as there is room for.
    ///
    /// # Panics
    /// If a READ has 0 blocks or more than [`Exchange::max_read_blocks`].
    pub fn submit(&mut self, reads: &[Read]) -> usize {
        let room = MAX_IN_FLIGHT - self.reads.len();
        let mut taken = 0;
        for batch in reads[..reads.len().min(room)].chunks(MAX_READS_PER_REQUEST) {
            if self.requests.len() == MAX_REQUESTS || self.outbox.len() >= MAX_OUTBOX_BYTES {
                break;
            }
            self.batch.clear();
            for read in batch {
                assert!((1..=self.max_read_blocks).contains(&read.blocks), "a READ of {} blocks", read.blocks);
                let Read { id, va, rkey, at, blocks, deadline_ns } = *read;
                self.batch.push(tcp_read::Read { va, rkey, length_bytes: blocks * BLOCK });
                self.reads.push_back(Pending { id, at, blocks, deadline_ns, expired: false });
                self.earliest_ns = self.earliest_ns.min(deadline_ns);
            }
            let begin = self.outbox.len();
            self.outbox.resize(begin + LONGEST_REQUEST_BYTES, 0);
            let header = Header::new(self.next_request, batch.len()).expect("1 to 256 reads");
            let written = encode_request(self.next_request, &self.batch, &mut self.outbox[begin..])
                .expect("lengths are checked and the buffer is of the longest request");
            self.outbox.truncate(begin + written);
            self.requests.push_back(header);
            self.next_request = self.next_request.wrapping_add(1);
            taken += batch.len();
        }
        taken
    }

    /// Bytes to be sent.
    #[must_use]
    pub fn outgoing(&self) -> &[u8] {
        &self.outbox[self.sent..]
    }

    /// So many of [`Exchange::outgoing`] were sent.
    ///
    /// # Panics
    /// If there were fewer.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        assert!(self.sent <= self.outbox.len());
        if self.sent == self.outbox.len() {
            self.outbox.clear();
            self.sent = 0;
        }
    }

    /// Where received bytes go; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        // An item always fits behind `filled.start == 0`, so what is kept is moved only when the end is near.
        if self.filled.is_empty() {
            self.filled = 0..0;
        } else if self.inbox.len() - self.filled.start < LONGEST_ITEM_BYTES + tcp_read::HEADER_BYTES {
            self.inbox.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        &mut self.inbox[self.filled.end..]
    }

    /// So many bytes were put into [`Exchange::space`]: takes whole items into `memory` and completes their READs.
    ///
    /// # Errors
    /// The stream is out of step: close it and [`Exchange::lose`] the rest.
    ///
    /// # Panics
    /// If more bytes are claimed than there was space, or a READ names blocks outside of `memory`.
    pub fn received(
        &mut self,
        bytes: usize,
        memory: &mut (impl Memory + ?Sized),
        completions: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        self.filled.end += bytes;
        assert!(self.filled.end <= self.inbox.len());
        loop {
            let input = &self.inbox[self.filled.clone()];
            if self.items == 0 {
                let Some(expected) = self.requests.front() else {
                    // Nothing was asked: any byte is out of step.
                    return if input.is_empty() { Ok(()) } else { Err(unasked(input)) };
                };
                match decode_answer_header(input, *expected)? {
                    Decoded::Need { .. } => return Ok(()),
                    Decoded::Complete { value, consumed_bytes } => {
                        self.items = value.count();
                        self.filled.start += consumed_bytes;
                    }
                }
                continue;
            }
            let read = self.reads.front().copied().expect("as many reads as items");
            let (consumed_bytes, outcome) = match decode_answer_item(input, read.blocks * BLOCK)? {
                Decoded::Need { .. } => return Ok(()),
                Decoded::Complete { value, consumed_bytes } => match value {
                    Err(refusal) => (consumed_bytes, Outcome::Refused(refusal)),
                    Ok(data) => {
                        if !read.expired {
                            let blocks = memory.blocks(read.id, read.at, read.blocks);
                            for (block, bytes) in blocks.iter_mut().zip(data.chunks_exact(BLOCK_BYTES)) {
                                block.bytes_mut().copy_from_slice(bytes);
                            }
                        }
                        (consumed_bytes, Outcome::Done)
                    }
                },
            };
            self.filled.start += consumed_bytes;
            self.reads.pop_front();
            self.items -= 1;
            if self.items == 0 {
                self.requests.pop_front();
            }
            if read.expired {
                self.expired -= 1;
                self.late += 1;
            } else {
                completions.push(Completion { id: read.id, outcome });
            }
        }
    }

    /// Completes what is past its deadline.
    pub fn expire(&mut self, now_ns: u64, completions: &mut Vec<Completion>) {
        if now_ns < self.earliest_ns {
            return;
        }
        self.earliest_ns = u64::MAX;
        for read in self.reads.iter_mut().filter(|read| !read.expired) {
            if read.deadline_ns <= now_ns {
                read.expired = true;
                self.expired += 1;
                completions.push(Completion { id: read.id, outcome: Outcome::Timeout });
            } else {
                self.earliest_ns = self.earliest_ns.min(read.deadline_ns);
            }
        }
    }

    /// Completes everything as lost: the stream is gone.
    pub fn lose(&mut self, completions: &mut Vec<Completion>) {
        let lost = self.reads.drain(..).filter(|read| !read.expired);
        completions.extend(lost.map(|read| Completion { id: read.id, outcome: Outcome::Lost }));
        self.requests.clear();
        (self.items, self.expired, self.earliest_ns) = (0, 0, u64::MAX);
        self.outbox.clear();
        self.sent = 0;
    }
}

/// The error for bytes that answer nothing.
fn unasked(input: &[u8]) -> Error {
    let id = input.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    Error::Unexpected { got: id, got_count: 0, expected: 0, expected_count: 0 }
}

#[cfg(test)]
mod tests;
