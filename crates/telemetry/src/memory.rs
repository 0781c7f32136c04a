// SPDX-License-Identifier: Apache-2.0
//! Blocks of tables, by READs: many at once.

use std::time::Duration;

use onlooker_reader::clock::steady_ns;
use onlooker_reader::{Broken, Completion, Outcome, Read, Requester};
use onlooker_region::Block;
use onlooker_region::limits::BLOCK_BYTES;

use crate::table::Table;

/// READs handed over at once.
const BATCH: usize = 256;
/// Sleep at most so long, so that deadlines are noticed.
const MAX_SLEEP: Duration = Duration::from_millis(50);

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The connection is gone.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// No answer in time.
    #[error("no answer in time: its agent may have been started anew; read the directory again")]
    Timeout,
    /// The host says no.
    #[error("the host refuses a READ of the table: it may be gone; read the directory again")]
    Refused,
    /// The directory names less than what the table has.
    #[error("the directory names less memory than the table has")]
    Short,
    /// A question to another kind of table.
    #[error("table {name} is for {primitive}")]
    Primitive {
        /// Its name.
        name: String,
        /// What it is for.
        primitive: &'static str,
    },
}

/// Where blocks of tables are had from.
pub trait Readable {
    /// The blocks that have these bytes of a table, in the same order, in `blocks`.
    ///
    /// # Errors
    /// [`AskError`]; `blocks` has some of them then.
    fn blocks(&mut self, table: &Table, offsets: &[u64], blocks: &mut Vec<Block>) -> Result<(), AskError>;
}

/// A host's memory, by a requester that has nothing else under way.
#[derive(Debug)]
pub struct Memory<'a, R: ?Sized> {
    /// Who sends READs.
    pub requester: &'a mut R,
    /// For each question.
    pub timeout: Duration,
}

impl<R: Requester + ?Sized> Readable for Memory<'_, R> {
    fn blocks(&mut self, table: &Table, offsets: &[u64], blocks: &mut Vec<Block>) -> Result<(), AskError> {
        let timeout_ns = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = steady_ns().saturating_add(timeout_ns);
        let mut reads = Vec::with_capacity(offsets.len());
        for (at, offset) in (0u32..).zip(offsets) {
            let (va, rkey) = table.block(*offset).ok_or(AskError::Short)?;
            reads.push(Read { id: at.into(), va, rkey, at, blocks: 1, deadline_ns });
        }
        blocks.clear();
        blocks.resize(offsets.len(), Block::default());
        let (mut sent, mut ended, mut failed) = (0, 0, None);
        let mut completions: Vec<Completion> = Vec::with_capacity(BATCH);
        // To the last one, or an answer would come into the next question's memory.
        while ended < if failed.is_some() { sent } else { reads.len() } {
            if failed.is_none() {
                sent += self.requester.submit(&reads[sent..reads.len().min(sent + BATCH)])?;
            }
            completions.clear();
            self.requester.poll(blocks, steady_ns(), &mut completions)?;
            ended += completions.len();
            failed = completions.iter().find_map(|completion| why(completion.outcome)).or(failed);
            if sent < reads.len() && steady_ns() >= deadline_ns {
                failed = failed.or(Some(AskError::Timeout));
            }
            if completions.is_empty() {
                self.requester.wait(MAX_SLEEP)?;
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

fn why(outcome: Outcome) -> Option<AskError> {
    match outcome {
        Outcome::Done => None,
        Outcome::Refused(_) => Some(AskError::Refused),
        Outcome::Timeout => Some(AskError::Timeout),
        Outcome::Lost => Some(AskError::Broken(Broken::Closed)),
    }
}

/// Part of a block: as many bytes from an offset of the table on.
pub(crate) fn part(block: &Block, offset: u64, bytes: usize) -> Option<&[u8]> {
    let from = usize::try_from(offset % BLOCK_BYTES as u64).ok()?;
    block.bytes().get(from..from + bytes)
}
