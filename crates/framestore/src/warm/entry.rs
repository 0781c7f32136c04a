// SPDX-License-Identifier: Apache-2.0
//! What is known of a chunk without reading it: where it is, when its rows were, whose it is, and its mark.

use crate::chunk::{Head, MAX_ROWS};
use crate::types::{SECOND_NS, TrackId};

/// Where a chunk is, and when its rows were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    /// Earliest time, UTC ns.
    pub from_ns: u64,
    /// Latest time, UTC ns.
    pub to_ns: u64,
    pub(super) file: u32,
    /// Of its record, in units of 8 bytes.
    pub(super) offset_words: u32,
    /// Its length.
    pub bytes: u32,
    /// Its rows, and whether it has a mark.
    pub(super) rows_and_mark: u16,
    /// Length of its front in units of 8 bytes; the largest number if it is longer.
    pub(super) front_words: u16,
}

const _: () = assert!(size_of::<ChunkRef>() == 32, "there are many");
/// It has a mark; that says how many chunks its piece has.
pub(super) const MARKED: u16 = 1 << 15;
pub(super) const COUNTED: u16 = 1 << 14;

impl ChunkRef {
    /// Its rows.
    #[must_use]
    pub fn rows(&self) -> u16 {
        self.rows_and_mark & !(MARKED | COUNTED)
    }

    pub(super) fn offset(&self) -> u64 {
        u64::from(self.offset_words) * 8
    }

    /// Grows with each chunk of a level that is written.
    pub(crate) fn arrival(&self) -> (u32, u32) {
        (self.file, self.offset_words)
    }
}

/// A chunk and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) track: TrackId,
    pub(crate) mark: u64,
    pub(crate) place: ChunkRef,
}

impl Entry {
    /// Of a chunk of so many bytes at a place; offsets are multiples of 8.
    pub(super) fn new(head: &Head, bytes: usize, file: u32, offset: u64) -> Option<Self> {
        let place = ChunkRef {
            from_ns: head.from_ns,
            to_ns: head.to_ns,
            file,
            offset_words: u32::try_from(offset / 8).ok()?,
            bytes: u32::try_from(bytes).ok()?,
            rows_and_mark: rows_and_mark(head.rows as u64, head.mark)?,
            front_words: u16::try_from(head.front_bytes / 8).unwrap_or(u16::MAX),
        };
        Some(Self { track: head.track, mark: head.mark, place })
    }
}

pub(super) fn rows_and_mark(rows: u64, mark: u64) -> Option<u16> {
    let rows = u16::try_from(rows).ok().filter(|rows| (1..=MAX_ROWS).contains(&usize::from(*rows)))?;
    let counted = if count(mark) > 0 { COUNTED } else { 0 };
    Some(if mark > 0 { rows | MARKED | counted } else { rows })
}

const _: () = assert!(MAX_ROWS < COUNTED as usize);

/// The mark of the last of so many chunks of a piece that ends at a time, a whole second.
pub(crate) fn last_mark(to_ns: u64, chunks: usize) -> u64 {
    to_ns.saturating_add((chunks as u64).min(SECOND_NS - 1))
}

/// How many chunks a mark counts; 0: it is one of an earlier version, or of raw rows.
pub(super) fn count(mark: u64) -> usize {
    usize::try_from(mark % SECOND_NS).unwrap_or(0)
}
