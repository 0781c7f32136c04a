// SPDX-License-Identifier: Apache-2.0
//! Hot rows: one ring a track, in a file on tmpfs (`arena.rs`), so that the end of the process loses none.
//!
//! One thread appends to a ring ([`Appender`]), another seals it; they share two numbers. A row is written over only after it has become durable in the
//! log: a full ring refuses rows, it never loses one that was taken.
//!
//! ```text
//! ring     8 words: the arena's, columns, rows, sum of these, owner (low 32: track, high 32: sum of its meta); then its rows
//! row      sequence number (from 1), time, values, CRC-32C over owner and all before
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use crate::mapping::Mapping;
use crate::record::TrackId;

/// Words before the rows.
pub(crate) const HEAD_WORDS: usize = 8;
/// Sequence number, time and sum.
const ROW_EXTRA_WORDS: usize = 3;
/// Time that a ring is to hold.
const RING_NS: u64 = 4_000_000_000;
const MIN_RING_ROWS: u64 = 8;
const MAX_RING_ROWS: u64 = 4096;

/// Rows of a track that are not in the log yet, and room for more.
#[derive(Clone)]
pub struct Ring {
    memory: Arc<Mapping>,
    from: usize,
    columns: usize,
    rows: u64,
    numbers: Arc<Numbers>,
    owner: Owner,
}

/// Whose ring it is. Rows carry it in their sum, so that those of the owner before are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The track.
    pub track: TrackId,
    /// Sum of the track's meta, lest the number has come to mean another track.
    pub meta_crc: u32,
}

impl Owner {
    /// Of a ring that waits for a track.
    pub const NOBODY: Self = Self { track: TrackId(u32::MAX), meta_crc: 0 };

    pub(crate) fn word(self) -> u64 {
        u64::from(self.track.0) | u64::from(self.meta_crc) << 32
    }

    #[allow(clippy::cast_possible_truncation)] // halves are meant
    fn from_word(word: u64) -> Self {
        Self { track: TrackId(word as u32), meta_crc: (word >> 32) as u32 }
    }
}

struct Numbers {
    /// Last row that is complete.
    published: AtomicU64,
    /// Last row that may be written over.
    durable: AtomicU64,
    /// When the first row that may not be written over came, or before, [`steady_ns`].
    waiting_since_ns: AtomicU64,
    /// Bytes of the log that its rows have taken.
    logged_bytes: AtomicU64,
}

impl Default for Numbers {
    fn default() -> Self {
        let [published, durable, logged_bytes] = [const { AtomicU64::new(0) }; 3];
        Self { published, durable, waiting_since_ns: steady_ns().into(), logged_bytes }
    }
}

/// The clock by which rows wait: monotonic, ns.
#[must_use]
pub fn steady_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The ring is full of rows that are not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all rows of the ring wait for the disk")]
pub struct Full;

/// The one who appends to a ring.
pub struct Appender {
    ring: Ring,
}

/// Rows that a ring should have where one comes every `interval_ns` at most: what a slow disk holds up for so long costs nothing.
#[must_use]
pub fn ring_rows(interval_ns: u64) -> u64 {
    (RING_NS / interval_ns.max(1)).clamp(MIN_RING_ROWS, MAX_RING_ROWS)
}

/// Bytes of hot memory that a ring of so many rows takes; `u64::MAX` for one that nobody can have.
#[must_use]
pub fn ring_bytes(columns: usize, rows: u64) -> u64 {
    ring_words(columns, rows).map_or(u64::MAX, |words| words as u64 * 8)
}

impl Appender {
    /// Bytes of the log that this ring's rows have taken until now; grows as they are sealed.
    #[must_use]
    pub fn logged_bytes(&self) -> u64 {
        self.ring.numbers.logged_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of hot memory that the ring takes.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        ring_bytes(self.ring.columns, self.ring.rows)
    }

    /// Takes a row; the one who seals sees it at once.
    ///
    /// # Errors
    /// [`Full`].
    ///
    /// # Panics
    /// If the row is not as wide as the track.
    pub fn append(&mut self, time_ns: u64, values: &[u64]) -> Result<u64, Full> {
        let ring = &self.ring;
        assert_eq!(values.len(), ring.columns, "values of a row");
        let sequence = ring.numbers.published.load(Ordering::Relaxed) + 1;
        let waiting = sequence - ring.numbers.durable.load(Ordering::Acquire);
        if waiting > ring.rows {
            return Err(Full);
        }
        if waiting == 1 {
            ring.numbers.waiting_since_ns.store(steady_ns(), Ordering::Relaxed);
        }
        let row = ring.row(sequence);
        row[0].store(0, Ordering::Relaxed);
        row[1].store(time_ns, Ordering::Relaxed);
        for (to, value) in row[2..].iter().zip(values) {
            to.store(*value, Ordering::Relaxed);
        }
        row[row.len() - 1].store(sum(ring.owner, sequence, time_ns, values), Ordering::Relaxed);
        row[0].store(sequence, Ordering::Release);
        ring.numbers.published.store(sequence, Ordering::Release);
        Ok(sequence)
    }
}

fn sum(owner: Owner, sequence: u64, time_ns: u64, values: &[u64]) -> u64 {
    let head = crc32c::crc32c(bytemuck::cast_slice(&[owner.word(), sequence, time_ns]));
    u64::from(crc32c::crc32c_append(head, bytemuck::cast_slice(values)))
}

impl Ring {
    /// The one who appends. There must be one at a time: the caller sees to it.
    pub(crate) fn appender(&self) -> Appender {
        Appender { ring: self.clone() }
    }

    /// Last row that is complete.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.numbers.published.load(Ordering::Acquire)
    }

    /// Rows up to this one, the last that was there at `since_ns`, may be written over.
    pub fn set_durable(&self, sequence: u64, since_ns: u64) {
        // First: the one who appends may set it again once this one is durable.
        self.numbers.waiting_since_ns.store(since_ns, Ordering::Relaxed);
        self.numbers.durable.store(sequence, Ordering::Release);
    }

    /// Since when the first row waits that may not be written over, [`steady_ns`].
    #[must_use]
    pub fn waiting_since_ns(&self) -> u64 {
        self.numbers.waiting_since_ns.load(Ordering::Relaxed)
    }

    /// Counts what its rows have taken in the log.
    pub(crate) fn add_logged(&self, bytes: u64) {
        self.numbers.logged_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whose it is.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Columns of its rows.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Rows that it holds at most.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.rows
    }

    /// Time of a row that is complete and has not been freed.
    pub(crate) fn time_ns(&self, sequence: u64) -> u64 {
        self.row(sequence)[1].load(Ordering::Relaxed)
    }

    /// Copies a row that is complete and has not been freed.
    pub fn copy(&self, sequence: u64, values: &mut Vec<u64>) -> u64 {
        let row = self.row(sequence);
        values.clear();
        values.extend(row[2..2 + self.columns].iter().map(|word| word.load(Ordering::Relaxed)));
        row[1].load(Ordering::Relaxed)
    }

    fn row(&self, sequence: u64) -> &[AtomicU64] {
        let words = self.columns + ROW_EXTRA_WORDS;
        #[allow(clippy::cast_possible_truncation)] // less than the ring's rows
        let slot = (sequence % self.rows) as usize;
        &self.memory.words()[self.from + HEAD_WORDS + slot * words..][..words]
    }

    /// Words of it and its head.
    pub(crate) fn words(&self) -> usize {
        ring_words(self.columns, self.rows).unwrap_or(usize::MAX)
    }

    /// Where the word is that says whose it is.
    pub(crate) const OWNER_WORD: usize = 4;

    fn at(memory: &Arc<Mapping>, from: usize, columns: usize, rows: u64, owner: Owner) -> Self {
        Self { memory: memory.clone(), from, columns, rows, numbers: Arc::default(), owner }
    }

    /// Makes one that is nobody's yet in words that nobody uses.
    pub(crate) fn made(memory: &Arc<Mapping>, from: usize, columns: usize, rows: u64) -> Self {
        let geometry = [columns as u64, rows, geometry_sum(columns as u64, rows)];
        for (to, value) in memory.words()[from + 1..].iter().zip(geometry) {
            to.store(value, Ordering::Relaxed);
        }
        Self::at(memory, from, columns, rows, Owner::NOBODY)
    }

    /// The one that begins at a word, if its head makes sense.
    pub(crate) fn found(memory: &Arc<Mapping>, from: usize) -> Option<Self> {
        let words = memory.words()[from..].first_chunk::<HEAD_WORDS>()?;
        let [_, columns, rows, geometry, owner, ..] = words.each_ref().map(|word| word.load(Ordering::Acquire));
        let is_whole = geometry == geometry_sum(columns, rows) && rows > 0;
        let columns = usize::try_from(columns).ok().filter(|_| is_whole)?;
        ring_words(columns, rows)?;
        Some(Self::at(memory, from, columns, rows, Owner::from_word(owner)))
    }

    /// The same memory for an owner, who counts on from `sequence`; the file does not know of it until [`Ring::sign`].
    pub(crate) fn of(&self, owner: Owner, sequence: u64) -> Self {
        let ring = Self::at(&self.memory, self.from, self.columns, self.rows, owner);
        ring.numbers.published.store(sequence, Ordering::Release);
        ring.numbers.durable.store(sequence, Ordering::Release);
        ring
    }

    /// Writes down whose it is.
    pub(crate) fn sign(&self) {
        self.memory.words()[self.from + Self::OWNER_WORD].store(self.owner.word(), Ordering::Release);
    }

    /// Nobody's from now on; returns where it begins.
    pub(crate) fn disown(&self) -> usize {
        self.memory.words()[self.from + Self::OWNER_WORD].store(Owner::NOBODY.word(), Ordering::Release);
        self.from
    }

    /// After a restart: the last unbroken run of whole rows after `sealed` is there again. Returns its first and last number; the first is not `sealed` + 1
    /// where the log has lost rows that it had before.
    pub(crate) fn recover(&self, sealed: u64) -> Option<(u64, u64)> {
        let whole: BTreeSet<u64> =
            (0..self.rows).filter_map(|slot| self.whole(slot)).filter(|sequence| *sequence > sealed).collect();
        let run = whole.last().map(|last| {
            let first =
                whole.iter().rev().zip((0..=*last).rev()).take_while(|(found, expected)| *found == expected).count();
            (last - first as u64 + 1, *last)
        });
        let (first, last) = run.unwrap_or((sealed + 1, sealed));
        self.numbers.published.store(last, Ordering::Release);
        self.numbers.durable.store(first - 1, Ordering::Release);
        run
    }

    /// Number of the row in a slot, if it is whole.
    fn whole(&self, slot: u64) -> Option<u64> {
        let row = self.row(slot);
        let sequence = row[0].load(Ordering::Acquire);
        let mut values = Vec::with_capacity(self.columns);
        let time_ns = self.copy(slot, &mut values);
        let sum_there = row[row.len() - 1].load(Ordering::Relaxed);
        (sequence % self.rows == slot && sum_there == sum(self.owner, sequence, time_ns, &values)).then_some(sequence)
    }
}

fn geometry_sum(columns: u64, rows: u64) -> u64 {
    u64::from(crc32c::crc32c(bytemuck::cast_slice(&[columns, rows])))
}

pub(crate) fn ring_words(columns: usize, rows: u64) -> Option<usize> {
    let row = columns.checked_add(ROW_EXTRA_WORDS)?;
    usize::try_from(rows).ok()?.checked_mul(row)?.checked_add(HEAD_WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::error::StoreError;

    const OWNER: Owner = Owner { track: TrackId(4), meta_crc: 77 };
    const OTHER: Owner = Owner { track: TrackId(9), meta_crc: 1 };

    fn rows(ring: &Ring, from: u64) -> Vec<(u64, Vec<u64>)> {
        let mut values = Vec::new();
        (from..=ring.published()).map(|sequence| (ring.copy(sequence, &mut values), values.clone())).collect()
    }

    fn made(arena: &mut Arena, owner: Owner, columns: usize, rows: u64, sequence: u64) -> Ring {
        let ring = arena.reserve(columns, rows).unwrap().unwrap().of(owner, sequence);
        arena.own(&ring);
        ring
    }

    #[test]
    fn rows_outlive_the_process_and_a_full_ring_refuses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hot");
        let (mut arena, left) = Arena::open(&path, 1 << 20).unwrap();
        assert!(left.is_empty());
        assert!(matches!(Arena::open(&path, 1 << 20), Err(StoreError::InUse(_))));
        let other = made(&mut arena, OTHER, 5, 10, 0);
        let ring = made(&mut arena, OWNER, 2, 4, 6);
        let mut appender = ring.appender();
        for i in 0..4 {
            assert_eq!(appender.append(100 + i, &[i, i * i]), Ok(7 + i));
        }
        assert_eq!(appender.append(9, &[1, 1]), Err(Full));
        ring.set_durable(8, steady_ns());
        assert_eq!(appender.append(104, &[4, 16]), Ok(11));
        drop((appender, ring, other, arena));

        let (mut arena, left) = Arena::open(&path, 1 << 20).unwrap();
        assert_eq!(left.iter().map(Ring::owner).collect::<Vec<_>>(), [OTHER, OWNER]);
        let ring = &left[1];
        assert_eq!(ring.recover(8), Some((9, 11)));
        assert_eq!(rows(ring, 9), (2..5).map(|i| (100 + i, vec![i, i * i])).collect::<Vec<_>>());
        assert_eq!(
            ring.recover(3),
            Some((8, 11)),
            "rows that the log has lost are there as long as nobody needed their place"
        );
        assert_eq!(ring.recover(20), None);
        // A row that was being written is not there; those before it are.
        ring.row(11)[2].store(9, Ordering::Relaxed);
        assert_eq!(ring.recover(8), Some((9, 10)));
        arena.free(ring);
        let other = made(&mut arena, OTHER, 2, 4, 8);
        assert_eq!(other.recover(8), None, "rows of the owner before");
        assert_eq!(other.appender().append(1, &[1, 2]), Ok(9));
        assert!(arena.reserve(1000, 1000).unwrap().is_none(), "no room");
        drop((left, other, arena));
        let (_, left) = Arena::open(&path, 1 << 20).unwrap();
        assert_eq!((left.len(), left[1].recover(8)), (2, Some((9, 9))));
        drop(left);
        assert!(Arena::open(&path, 1 << 19).unwrap().1.is_empty(), "of another size");
    }

    #[test]
    fn rings_hold_seconds() {
        let rows = [1, 10, 100, 1_000, 60_000].map(|ms| ring_rows(ms * 1_000_000));
        assert_eq!(rows, [4_000, 400, 40, 8, 8]);
        assert_eq!((ring_rows(0), ring_bytes(usize::MAX, 8)), (MAX_RING_ROWS, u64::MAX));
        assert_eq!(ring_bytes(15, 8), (8 + 8 * 18) * 8);
    }

    #[test]
    fn one_thread_appends_while_another_seals() {
        let dir = tempfile::tempdir().unwrap();
        let (mut arena, _) = Arena::open(&dir.path().join("hot"), 1 << 20).unwrap();
        let ring = made(&mut arena, OWNER, 3, 16, 0);
        let mut appender = ring.appender();
        let writer = std::thread::spawn(move || {
            let mut refused = 0u64;
            for i in 1..=50_000u64 {
                while appender.append(i, &[i, !i, i << 3]).is_err() {
                    refused += 1;
                    std::thread::yield_now();
                }
            }
            refused
        });
        let (mut sealed, mut values) = (0, Vec::new());
        while sealed < 50_000 {
            for sequence in sealed + 1..=ring.published() {
                assert_eq!(ring.copy(sequence, &mut values), sequence);
                assert_eq!(values, [sequence, !sequence, sequence << 3]);
                sealed = sequence;
            }
            ring.set_durable(sealed, 0);
        }
        writer.join().unwrap();
    }
}
