// SPDX-License-Identifier: Apache-2.0
//! A reader's place in a list: what comes next, and what was lost on the way there.

use onlooker_dta::Geometry;
use onlooker_dta::append::{List, Next, Position};
use onlooker_dta::key_write::Stamp;
use onlooker_region::Block;
use onlooker_region::limits::BLOCK_BYTES;

use crate::ask::other;
use crate::memory::{AskError, Readable, part};
use crate::table::Table;

/// Batches that are looked for at once: while readers keep up, the first one is not there yet.
const MOST_AT_ONCE: usize = 256;

/// Of a ring, and how often a reader that is overtaken tries again.
const EIGHTHS: u64 = 8;

/// Entries of a list, as far as one look has found them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    /// Each with its number and when its batch was written.
    pub entries: Vec<(u64, Stamp, Vec<u8>)>,
    /// Entries that are lost: the ring was overtaken, or they were waiting in a translator that has ended.
    pub lost: u64,
}

/// A place in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    list: List,
    next: Position,
    at_once: usize,
}

impl Tail {
    /// At the oldest entry that the ring still has.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn oldest(memory: &mut (impl Readable + ?Sized), table: &Table) -> Result<Self, AskError> {
        Self::back(memory, table, u64::MAX)
    }

    /// So many batches before the newest one, as far as the ring has them.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn back(memory: &mut (impl Readable + ?Sized), table: &Table, batches: u64) -> Result<Self, AskError> {
        let mut tail = Self::newest(memory, table)?;
        let oldest = tail.next.batch.saturating_sub(batches.min(1 << tail.list.batches_log2));
        let batch = tail.batches(memory, table, oldest..oldest + 1)?;
        // What is lost before it is nobody's.
        let first = tail.list.decode(&batch[0]).map(|batch| batch.position).filter(|at| at.batch == oldest);
        tail.next = first.unwrap_or(if tail.next.batch == 0 { Position::default() } else { tail.next });
        Ok(tail)
    }

    /// Behind the newest entry. By bisection: numbers rise from the beginning of the ring to its newest batch.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn newest(memory: &mut (impl Readable + ?Sized), table: &Table) -> Result<Self, AskError> {
        let Geometry::Append(list) = table.geometry else { return Err(other(table)) };
        let tail = Self { list, next: Position::default(), at_once: 1 };
        let ring = 1u64 << list.batches_log2;
        let mut end = |place: u64| -> Result<Option<(u64, Position)>, AskError> {
            // One that is being written is looked at again.
            for _ in 0..8 {
                let batch = tail.batches(memory, table, place..place + 1)?;
                match list.next(Position::default(), &batch[0]) {
                    Next::NotYet => return Ok(None),
                    Next::Torn => {}
                    Next::Batch(batch, _) => return Ok(Some((batch.position.batch, batch.end()))),
                    Next::Overrun(_) => {
                        let batch = list.decode(&batch[0]);
                        return Ok(batch.map(|batch| (batch.position.batch, batch.end())));
                    }
                }
            }
            Ok(None)
        };
        let Some((first, first_end)) = end(0)? else { return Ok(tail) };
        let lap = first / ring;
        let (mut low, mut high, mut newest) = (0, ring, first_end);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match end(middle)?.filter(|(number, _)| number / ring == lap) {
                Some((_, position)) => (low, newest) = (middle, position),
                None => high = middle,
            }
        }
        Ok(Self { next: newest, ..tail })
    }

    /// Where an earlier one was ([`Tail::position`]).
    ///
    /// # Errors
    /// [`AskError::Primitive`].
    pub fn at(table: &Table, next: Position) -> Result<Self, AskError> {
        let Geometry::Append(list) = table.geometry else { return Err(other(table)) };
        Ok(Self { list, next, at_once: 1 })
    }

    /// Where it is, to go on from there.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.next
    }

    /// Number of the entry that comes next.
    #[must_use]
    pub fn next_entry(&self) -> u64 {
        self.next.entry
    }

    /// What has come since; nothing, if nothing has. Not more than fits a few hundred batches: ask again until it is empty.
    ///
    /// # Errors
    /// [`AskError`]; the place is as it was.
    pub fn read(&mut self, memory: &mut (impl Readable + ?Sized), table: &Table) -> Result<Entries, AskError> {
        if table.geometry != Geometry::Append(self.list) {
            return Err(other(table));
        }
        let mut entries = Entries::default();
        for times in 0..EIGHTHS {
            if self.read_on(memory, table, &mut entries)? {
                break;
            }
            // Its first entry's number says how many were lost. What is overwritten right now is left alone the more often that has been too slow.
            let ring = 1 << self.list.batches_log2;
            let oldest = Self::newest(memory, table)?.next.batch.saturating_sub(ring);
            self.next.batch = self.next.batch.max(oldest + ring * times / EIGHTHS);
        }
        Ok(entries)
    }

    /// False: the ring has overtaken us.
    fn read_on(
        &mut self,
        memory: &mut (impl Readable + ?Sized),
        table: &Table,
        entries: &mut Entries,
    ) -> Result<bool, AskError> {
        let from = self.next.batch;
        let batches = self.batches(memory, table, from..from + self.at_once as u64)?;
        let mut taken = 0;
        for bytes in &batches {
            match self.list.next(self.next, bytes) {
                // A batch behind one that is being written may be there, but comes after it.
                Next::NotYet | Next::Torn => break,
                Next::Batch(batch, lost) => {
                    entries.lost += lost;
                    let each = batch.entries.chunks(self.list.entry_bytes.into());
                    let numbered = (batch.position.entry..).zip(each);
                    entries.entries.extend(numbered.map(|(number, entry)| (number, batch.stamp, entry.to_vec())));
                    self.next = batch.end();
                    taken += 1;
                }
                Next::Overrun(oldest) => {
                    self.next.batch = oldest;
                    return Ok(false);
                }
            }
        }
        // Whoever is behind looks further ahead.
        let most = MOST_AT_ONCE.min(1 << self.list.batches_log2.min(16));
        self.at_once = if taken == batches.len() { (self.at_once * 2).min(most) } else { taken.max(1) };
        Ok(true)
    }

    /// The bytes of batches, each in one piece.
    fn batches(
        &self,
        memory: &mut (impl Readable + ?Sized),
        table: &Table,
        numbers: std::ops::Range<u64>,
    ) -> Result<Vec<Vec<u8>>, AskError> {
        let bytes = self.list.batch_bytes();
        let blocks_of_one = bytes.div_ceil(BLOCK_BYTES);
        let begins: Vec<u64> = numbers.map(|number| self.list.offset(number)).collect();
        let block = BLOCK_BYTES as u64;
        let offsets: Vec<u64> =
            begins.iter().flat_map(|begin| (0..blocks_of_one as u64).map(move |at| begin + at * block)).collect();
        let mut blocks: Vec<Block> = Vec::new();
        memory.blocks(table, &offsets, &mut blocks)?;
        let whole = begins.iter().zip(blocks.chunks(blocks_of_one)).map(|(begin, blocks)| {
            let pieces = blocks.iter().filter_map(|block| part(block, *begin, bytes.min(BLOCK_BYTES)));
            pieces.flatten().copied().collect()
        });
        Ok(whole.collect())
    }
}
