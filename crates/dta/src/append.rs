// SPDX-License-Identifier: Apache-2.0
//! Append: lists of events, each a ring of batches (paper D, section on Append).
//!
//! Entries wait in the translator until a batch is full or has waited long enough; then the batch is written at once. It says
//! which batch it is and which of its list's entries it begins with, under a seal. So a reader, who has nothing but the memory
//! and where he was, tells what is new from what is of the lap before, what is half written, and what he has missed and how
//! much of it. The paper leaves this open; there the head is known to the translator alone.
//!
//! A translator that starts again finds the end of the ring by the same numbers ([`List::end`]).

use crate::key_write::Stamp;
use crate::seal::{Seal, word};

/// Entries of a batch at most.
pub const MAX_BATCH: u8 = 64;
/// The longest batch.
pub const MAX_BATCH_BYTES: usize = 5120;
/// Bytes before a batch's entries: seal, number, first entry, stamp, count.
const HEADER_BYTES: usize = 32;
/// What is longer than this is a multiple of it, what is not divides it.
const BLOCK_BYTES: usize = 1024;

/// What a list is like. Whoever reads it must know the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    /// Bytes of each entry, 1 to 64.
    pub entry_bytes: u8,
    /// Entries of a full batch, 1 to [`MAX_BATCH`].
    pub batch: u8,
    /// It has room for 2 to the power of so many batches, 1 to 32.
    pub batches_log2: u8,
}

/// Where a list goes on: its next batch, and that one's first entry. Both count from the list's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Number of the batch.
    pub batch: u64,
    /// Number of the entry.
    pub entry: u64,
}

/// A batch as it lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    /// Where it is in the list.
    pub position: Position,
    /// When it was written.
    pub stamp: Stamp,
    /// Its entries, one behind the other.
    pub entries: &'a [u8],
    count: u8,
}

impl Batch<'_> {
    /// Where the list goes on behind it.
    #[must_use]
    pub fn end(&self) -> Position {
        Position { batch: self.position.batch + 1, entry: self.position.entry + u64::from(self.count) }
    }
}

/// What a reader finds where the next batch belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next<'a> {
    /// There is none yet.
    NotYet,
    /// It is being written, or was damaged.
    Torn,
    /// The next one. So many entries before it are lost: they were overwritten before they were read.
    Batch(Batch<'a>, u64),
    /// One of a later lap: what there is goes on from this batch, at the earliest.
    Overrun(u64),
}

impl List {
    /// Bytes of a batch.
    #[must_use]
    pub const fn batch_bytes(&self) -> usize {
        let bytes = HEADER_BYTES + self.entry_bytes as usize * self.batch as usize;
        if bytes <= BLOCK_BYTES { bytes.next_power_of_two() } else { bytes.next_multiple_of(BLOCK_BYTES) }
    }

    /// Bytes of the ring.
    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        (self.batch_bytes() as u64) << self.batches_log2
    }

    /// Where a batch begins, bytes from the beginning of the ring.
    #[must_use]
    pub const fn offset(&self, batch: u64) -> u64 {
        (batch & ((1 << self.batches_log2) - 1)) * self.batch_bytes() as u64
    }

    /// Makes a batch of some entries, in the first [`List::batch_bytes`] of `out`.
    ///
    /// # Panics
    /// If there are no entries, more than a batch has, or a part of one; or `out` is shorter than a batch.
    pub fn encode(&self, position: Position, stamp: Stamp, entries: &[u8], out: &mut [u8]) {
        let size = usize::from(self.entry_bytes);
        let count = u8::try_from(entries.len() / size).ok().filter(|count| (1..=self.batch).contains(count));
        let count = count.filter(|_| entries.len().is_multiple_of(size));
        let count = count.unwrap_or_else(|| panic!("{} bytes are no batch of entries of {size}", entries.len()));
        let out = &mut out[..self.batch_bytes()];
        out.fill(0);
        out[8..16].copy_from_slice(&(position.batch + 1).to_le_bytes());
        out[16..24].copy_from_slice(&position.entry.to_le_bytes());
        out[24..28].copy_from_slice(&stamp.to_bits().to_le_bytes());
        out[28] = count;
        out[HEADER_BYTES..HEADER_BYTES + entries.len()].copy_from_slice(entries);
        let seal = Seal::of(&out[8..HEADER_BYTES + entries.len()]);
        out[..8].copy_from_slice(&seal.to_le_bytes());
    }

    /// The batch that lies in memory, whichever it is. `None`: none, or half of one.
    #[must_use]
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Option<Batch<'a>> {
        let header = bytes.get(..HEADER_BYTES)?;
        let field = |at: usize, count: usize| word(&header[at..at + count]);
        let count = Some(header[28]).filter(|count| (1..=self.batch).contains(count))?;
        let end = HEADER_BYTES + usize::from(count) * usize::from(self.entry_bytes);
        let sealed = bytes.get(8..end)?;
        let position = Position { batch: field(8, 8).checked_sub(1)?, entry: field(16, 8) };
        let stamp = Stamp::from_bits(u32::try_from(field(24, 4)).ok()?)?;
        let entries = &sealed[HEADER_BYTES - 8..];
        (Seal::of(sealed) == field(0, 8)).then_some(Batch { position, stamp, entries, count })
    }

    /// What lies where a reader goes on: the bytes at [`List::offset`] of `next.batch`.
    #[must_use]
    pub fn next<'a>(&self, next: Position, bytes: &'a [u8]) -> Next<'a> {
        let Some(batch) = self.decode(bytes) else {
            let is_written = bytes.get(8..16).is_some_and(|number| word(number) != 0);
            return if is_written { Next::Torn } else { Next::NotYet };
        };
        match batch.position.batch {
            number if number < next.batch => Next::NotYet,
            number if number == next.batch => Next::Batch(batch, batch.position.entry.saturating_sub(next.entry)),
            number => Next::Overrun((number + 1).saturating_sub(1 << self.batches_log2).max(next.batch + 1)),
        }
    }

    /// Where a ring goes on, by all its batches: what a translator that starts again writes next.
    #[must_use]
    pub fn end<'a>(&self, batches: impl Iterator<Item = &'a [u8]>) -> Position {
        let ends = batches.filter_map(|bytes| self.decode(bytes)).map(|batch| batch.end());
        ends.max_by_key(|end| end.batch).unwrap_or_default()
    }
}

/// A list's open batch, in the translator.
#[derive(Debug, Clone)]
pub struct Open {
    list: List,
    position: Position,
    entries: Vec<u8>,
    since_ns: u64,
}

impl Open {
    /// Of a list that goes on there.
    #[must_use]
    pub fn new(list: List, position: Position) -> Self {
        Self { list, position, entries: Vec::new(), since_ns: 0 }
    }

    /// The list.
    #[must_use]
    pub fn list(&self) -> &List {
        &self.list
    }

    /// Takes one more entry in; the batch is to be written if it is full then.
    ///
    /// # Panics
    /// If the entry is not as long as the list's.
    pub fn push(&mut self, entry: &[u8], now_ns: u64) -> bool {
        assert_eq!(entry.len(), usize::from(self.list.entry_bytes), "an entry of another list");
        if self.entries.is_empty() {
            self.since_ns = now_ns;
        }
        self.entries.extend_from_slice(entry);
        self.entries.len() >= usize::from(self.list.batch) * entry.len()
    }

    /// Since when its first entry waits, ns.
    #[must_use]
    pub fn waits_since_ns(&self) -> Option<u64> {
        (!self.entries.is_empty()).then_some(self.since_ns)
    }

    /// Makes what has come a batch, in the first [`List::batch_bytes`] of `out`, and begins the next one. Returns where in the
    /// ring it belongs. `None`: nothing has come.
    ///
    /// # Panics
    /// If `out` is shorter than a batch.
    pub fn take(&mut self, now_ns: u64, out: &mut [u8]) -> Option<u64> {
        if self.entries.is_empty() {
            return None;
        }
        self.list.encode(self.position, Stamp::of(now_ns), &self.entries, out);
        let offset = self.list.offset(self.position.batch);
        let count = self.entries.len() / usize::from(self.list.entry_bytes);
        self.position = Position { batch: self.position.batch + 1, entry: self.position.entry + count as u64 };
        self.entries.clear();
        Some(offset)
    }
}

#[cfg(test)]
mod tests;
