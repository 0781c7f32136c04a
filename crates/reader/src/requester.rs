// SPDX-License-Identifier: Apache-2.0
//! The interface of everything that sends READs.

use onlooker_region::Block;
use onlooker_wire::tcp_read::Refusal;

/// One READ: from `va` at the host into the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The caller's name for it, given back in the [`Completion`].
    pub id: u64,
    /// Address at the host, bytes.
    pub va: u64,
    /// Key of the region.
    pub rkey: u32,
    /// First block of the memory given to [`Requester::poll`] that it fills.
    pub at: u32,
    /// Length, at least 1 and at most [`Requester::max_read_blocks`].
    pub blocks: u32,
    /// When the caller gives it up; on the clock of `now_ns`.
    pub deadline_ns: u64,
}

/// How a READ ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The memory has the blocks.
    Done,
    /// The responder says no.
    Refused(Refusal),
    /// Not everything came before the deadline. The memory has all, some or none of the blocks and stays as it is, even if an answer still comes.
    Timeout,
    /// The requester broke while it was under way.
    Lost,
}

/// The end of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The READ's id.
    pub id: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a queue pair has failed: the status of the first completion that was no success (IBA 11.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// Key, range or right. Its READ has completed as [`Outcome::Refused`].
    #[error("the host's device refuses a READ's key, range or right")]
    Access,
    /// No request that the device can answer. Its READ has completed as [`Outcome::Refused`].
    #[error("the host's device takes a READ for invalid")]
    Invalid,
    /// The host's device.
    #[error("the host's device has failed")]
    Remote,
    /// Retries exceeded.
    #[error("no answer, however often it was asked for")]
    NoAnswer,
    /// Not by a READ of its own.
    #[error("READs were flushed")]
    Flushed,
    /// This machine's device: the raw status (`enum ibv_wc_status`).
    #[error("this machine's device has failed with status {0}")]
    Local(u32),
    /// Completions were lost, of all queue pairs on the same completion queue.
    #[error("the completion queue has overflowed")]
    Overrun,
}

/// Why a requester is of no use any more. Everything under way has completed as [`Outcome::Lost`]; make a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The host closed the stream.
    #[error("the host closed the connection")]
    Closed,
    /// What came is no answer.
    #[error("the host's answer is not one: {0}")]
    Garbage(onlooker_wire::tcp_read::Error),
    /// The queue pair is in error, and stays so.
    #[error("the queue pair has failed: {0}; a new bootstrap makes a new one")]
    QueuePair(Fault),
    /// A system call failed.
    #[error("{operation}: {kind}")]
    System {
        /// Which.
        operation: &'static str,
        /// Its error.
        kind: std::io::ErrorKind,
    },
}

/// Where READs' blocks go, for requesters that many callers share.
pub trait Memory {
    /// The `blocks` blocks from `at` on, of the memory that the READ `id` was submitted for.
    ///
    /// # Panics
    /// If they are not within it.
    fn blocks(&mut self, id: u64, at: u32, blocks: u32) -> &mut [Block];
}

/// One memory for all READs.
impl<T: AsMut<[Block]> + ?Sized> Memory for T {
    fn blocks(&mut self, _: u64, at: u32, blocks: u32) -> &mut [Block] {
        &mut self.as_mut()[at as usize..][..blocks as usize]
    }
}

/// Sends READs and hands their answers over.
///
/// The caller owns the memory: one slice of blocks for all READs, given to each [`Requester::poll`] (its length may grow between two polls; blocks of
/// READs under way keep their places). Times are nanoseconds of any steady clock, given by the caller. Neither call allocates, locks or makes more
/// than a few system calls per batch once the queues have grown to their size.
pub trait Requester {
    /// Longest READ, blocks.
    fn max_read_blocks(&self) -> u32;

    /// READs that have not completed.
    fn in_flight(&self) -> usize;

    /// Puts READs under way, as many from the front as there is room for, and returns how many.
    ///
    /// # Errors
    /// The requester is broken; nothing was submitted.
    fn submit(&mut self, reads: &[Read]) -> Result<usize, Broken>;

    /// Takes what has arrived into `memory` and appends the READs that ended to `completions`. Never blocks.
    ///
    /// # Errors
    /// The requester has broken; the completions of what was under way are appended all the same.
    ///
    /// # Panics
    /// If a READ under way names blocks outside of `memory`.
    fn poll(&mut self, memory: &mut [Block], now_ns: u64, completions: &mut Vec<Completion>) -> Result<(), Broken>;

    /// Sleeps until [`Requester::poll`] may have something to do, at most `timeout`.
    ///
    /// # Errors
    /// The system call failed.
    fn wait(&mut self, timeout: std::time::Duration) -> Result<(), Broken>;
}
