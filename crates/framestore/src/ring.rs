// SPDX-License-Identifier: Apache-2.0
//! The ring of a processor thread: rows, definitions and gaps in the order in which they came, in a file on tmpfs, so
//! that the end of the process loses none.
//!
//! One thread appends ([`Producer`]), another reads ([`Consumer`]) and gives the room back once what it read is in the
//! page cache of the write-ahead log ([`Consumer::release`]). They share two numbers and never wait for each other: a
//! full ring refuses, it never loses what was taken.
//!
//! Invariants: the words from `released` to `published` are the consumer's, all others are the producer's; a record is
//! published after it is whole. After a kill, `open` (`ring/open.rs`) finds every record that was published and not
//! released.
//!
//! ```text
//! page     the first of the file
//!          words 0-2: name and version, words of the records, CRC-32C of both
//!          word 16: published, the position behind the last record
//!          word 32: released, the position of the first record that is needed, as the producer sees it
//!          words 34-36 and 37-39: by turns, that position, the sequence number before it, CRC-32C of both; after a
//!          kill the greater one counts
//! records  one behind the other, round and round; none wraps (`ring/record.rs`)
//! ```
//! A position counts words since the ring was made. A record is at most half the ring, so that it always fits once
//! enough has been released.
//!
//! Cost: a copy and a CRC-32C of each row, no system call: 0.5 ns a value in rows of 690, 2.1 ns in rows of 15; 5 words
//! a record. Of the file's memory it takes what waits and 4 MiB, more as it is needed.

mod mapping;
mod open;
mod record;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::{Line, TrackId};
use mapping::Mapping;
pub use open::{Recovery, open};
use record::{HEADER_WORDS, Header, payload_words};

/// Kind of a record that is a row. 0 is none; others are the user's.
pub const ROW: u8 = 1;

/// Memory is taken in pieces of so many words.
const RESERVE_WORDS: u64 = 512 << 10;
const PUBLISHED: usize = 16;
const RELEASED: usize = 32;
const SLOTS: [usize; 2] = [34, 37];

/// Why a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// What is there waits for the disk: later there will be room.
    #[error("all of the ring waits for the disk")]
    Full,
    /// It never will fit.
    #[error("a record of {bytes} bytes is larger than half the ring: make the ring larger")]
    TooLarge {
        /// Bytes that it would have had.
        bytes: usize,
    },
}

/// The one who appends.
pub struct Producer {
    memory: Arc<Mapping>,
    capacity: u64,
    published: u64,
    /// What is known of it: the consumer may be further.
    released: u64,
    /// Where the last early round began: nothing before it waits.
    begun: u64,
    /// Most words that have waited at once; half of it is forgotten with each round.
    most_waiting: u64,
    /// Words from the beginning that have memory.
    reserved: u64,
    sequence: u64,
}

/// The one who reads.
pub struct Consumer {
    memory: Arc<Mapping>,
    capacity: u64,
    /// What is known of it: the producer may be further.
    published: u64,
    at: Position,
    released: u64,
    releases: usize,
    lost_bytes: u64,
}

/// A place between two records, to be released up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    word: u64,
    sequence: u64,
}

impl Position {
    /// Number of the last record before it.
    #[must_use]
    pub fn sequence(self) -> u64 {
        self.sequence
    }
}

/// A record as it lies in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number: greater than all before, and by 1, unless damage or a lost ring has made a hole.
    pub sequence: u64,
    /// [`ROW`], or what the user calls it.
    pub kind: u8,
    /// Whose row it is.
    pub track: TrackId,
    /// Which of its lines.
    pub line: Line,
    /// The row's time, UTC ns.
    pub time_ns: u64,
    words: &'a [u64],
    bytes: usize,
}

impl<'a> Record<'a> {
    /// The payload of a row.
    #[must_use]
    pub fn words(&self) -> &'a [u64] {
        self.words
    }

    /// The payload of other kinds.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        &bytemuck::cast_slice(self.words)[..self.bytes]
    }
}

impl Producer {
    /// Takes a record with words, usually a [`ROW`]; the consumer sees it at once. Returns its sequence number.
    ///
    /// # Errors
    /// [`Refused`].
    ///
    /// # Panics
    /// If the kind is 0.
    pub fn push(&mut self, kind: u8, track: TrackId, line: Line, time_ns: u64, words: &[u64]) -> Result<u64, Refused> {
        self.append(kind, (track, line, time_ns), words.len() * 8, |payload| payload.copy_from_slice(words))
    }

    /// Takes a record with bytes.
    ///
    /// # Errors
    /// [`Refused`].
    ///
    /// # Panics
    /// If the kind is 0.
    pub fn push_bytes(&mut self, kind: u8, bytes: &[u8]) -> Result<u64, Refused> {
        self.append(kind, (TrackId(0), Line::ONLY, 0), bytes.len(), |payload| {
            if let Some(last) = payload.last_mut() {
                *last = 0;
            }
            bytemuck::cast_slice_mut(payload)[..bytes.len()].copy_from_slice(bytes);
        })
    }

    /// Number of the last record.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Bytes that the ring has ever given back.
    #[must_use]
    pub fn released_bytes(&self) -> u64 {
        self.memory.numbers()[RELEASED].load(Ordering::Relaxed) * 8
    }

    /// Bytes that are not released.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.waiting() * 8
    }

    /// Bytes for records.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity * 8
    }

    #[inline]
    fn append(
        &mut self,
        kind: u8,
        (track, line, time_ns): (TrackId, Line, u64),
        bytes: usize,
        fill: impl FnOnce(&mut [u64]),
    ) -> Result<u64, Refused> {
        assert_ne!(kind, record::SKIP, "kind of a record");
        let words = HEADER_WORDS + payload_words(bytes);
        let length = u32::try_from(bytes).ok().filter(|_| words as u64 <= self.capacity / 2);
        let length = length.ok_or(Refused::TooLarge { bytes: words * 8 })?;
        let at = self.make_room(words as u64)?;
        // SAFETY: `make_room` has found that the words are not between `released` and `published`: they are ours until
        // we publish them.
        let record =
            unsafe { std::slice::from_raw_parts_mut(self.memory.words(offset(at, self.capacity), words), words) };
        fill(&mut record[HEADER_WORDS..]);
        self.sequence += 1;
        Header { kind, bytes: length, sequence: self.sequence, track, line, time_ns }.seal(record);
        self.published = at + words as u64;
        self.memory.numbers()[PUBLISHED].store(self.published, Ordering::Release);
        Ok(self.sequence)
    }

    /// Words that are not released, without those that were skipped.
    fn waiting(&self) -> u64 {
        let released = self.memory.numbers()[RELEASED].load(Ordering::Relaxed);
        self.published.saturating_sub(released.max(self.begun))
    }

    fn is_empty(&self) -> bool {
        self.memory.numbers()[RELEASED].load(Ordering::Acquire) == self.published
    }

    /// Position of so many words in one piece that are nobody's.
    fn make_room(&mut self, words: u64) -> Result<u64, Refused> {
        let begin = self.published % self.capacity;
        let rest = self.capacity - begin;
        // What is empty begins at the beginning again: it takes no more memory than what waits, and stays in caches.
        // Until the consumer has come round, too, there is room up to here and no further. It is enough for eight times
        // what has waited of late: a turn of the consumer that takes longer than others must have no row refused.
        self.most_waiting = self.most_waiting.max(self.waiting() + words);
        let is_early = begin >= RESERVE_WORDS.max(8 * self.most_waiting) && self.is_empty();
        let at = self.published + if words > rest || is_early { rest } else { 0 };
        if at + words - self.released > self.capacity {
            self.released = self.memory.numbers()[RELEASED].load(Ordering::Acquire);
            if at + words - self.released > self.capacity {
                return Err(Refused::Full);
            }
        }
        let end = at % self.capacity + words;
        if end > self.reserved {
            let (from, more) = (offset(self.reserved, u64::MAX), offset(end - self.reserved + RESERVE_WORDS, u64::MAX));
            self.memory.reserve(from, more).map_err(|_| Refused::Full)?;
            self.reserved = (end + RESERVE_WORDS).min(self.capacity);
        }
        if at > self.published {
            self.most_waiting /= 2;
            if is_early {
                self.begun = at;
            }
            let skipped = self.memory.words(offset(self.published, self.capacity), 1);
            let words = usize::try_from(rest).expect("less than the mapping's");
            // SAFETY: it is before `at` and behind `published`: ours as what follows it.
            unsafe { skipped.write(record::skip(words)) };
        }
        Ok(at)
    }
}

impl Consumer {
    /// The next record, if one has come. Its words are there until the next call.
    #[allow(clippy::should_implement_trait, reason = "records borrow from the consumer")]
    pub fn next(&mut self) -> Option<Record<'_>> {
        loop {
            if self.at.word == self.published {
                self.published = self.number(PUBLISHED).load(Ordering::Acquire);
            }
            let waiting = self.published.wrapping_sub(self.at.word).min(self.capacity);
            if waiting == 0 {
                return None;
            }
            let from = offset(self.at.word, self.capacity);
            let rest = self.capacity - from as u64;
            let words = usize::try_from(waiting.min(rest)).expect("less than the mapping's");
            // SAFETY: words between `released` and `published` are ours: the producer touches them after `release`, for
            // which nobody may hold a record.
            let words = unsafe { std::slice::from_raw_parts(self.memory.words(from, words).cast_const(), words) };
            if let Some(header) = Header::parse(words) {
                let record = &words[..header.record_words()];
                self.at = Position { word: self.at.word + record.len() as u64, sequence: header.sequence };
                let Header { kind, bytes, sequence, track, line, time_ns } = header;
                let (words, bytes) = (&record[HEADER_WORDS..], bytes as usize);
                return Some(Record { sequence, kind, track, line, time_ns, words, bytes });
            }
            if words.len() as u64 == rest && record::is_skip(words) {
                self.at.word += rest;
            } else {
                // Somebody else has written into the file. Where the next record begins cannot be known.
                self.lost_bytes += waiting * 8;
                self.at.word = self.published;
            }
        }
    }

    /// Behind the last record that [`Consumer::next`] returned.
    #[must_use]
    pub fn position(&self) -> Position {
        self.at
    }

    /// Gives the room of all records before a position back: they are safe elsewhere.
    ///
    /// # Panics
    /// If the position is not this ring's, or is before one that was released earlier.
    pub fn release(&mut self, position: Position) {
        assert!((self.released..=self.at.word).contains(&position.word), "{position:?} of another ring");
        let Position { word, sequence } = position;
        self.released = word;
        self.releases += 1;
        // A kill while one slot is written leaves the other, of which the records are still there: the producer gets
        // their room last.
        let slot = SLOTS[self.releases % 2];
        for (at, value) in [word, sequence, slot_sum(word, sequence)].into_iter().enumerate() {
            self.number(slot + at).store(value, Ordering::Release);
        }
        self.number(RELEASED).store(word, Ordering::Release);
    }

    /// Bytes of the ring that are not released.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        (self.number(PUBLISHED).load(Ordering::Relaxed).saturating_sub(self.released)) * 8
    }

    /// Bytes for records.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity * 8
    }

    /// Bytes that were not records although they should have been: always 0, unless a stranger writes into the file.
    #[must_use]
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    fn number(&self, at: usize) -> &AtomicU64 {
        &self.memory.numbers()[at]
    }
}

fn slot_sum(word: u64, sequence: u64) -> u64 {
    u64::from(crc32c::crc32c(bytemuck::cast_slice(&[word, sequence])))
}

fn offset(position: u64, capacity: u64) -> usize {
    usize::try_from(position % capacity).expect("less than the mapping's")
}

#[cfg(test)]
mod tests;
