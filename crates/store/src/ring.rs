// SPDX-License-Identifier: Apache-2.0
//! Hot rows: one ring a track, in a file on tmpfs, so that the end of the process loses none.
//!
//! One thread appends to a ring ([`Appender`]), another seals it; they share two numbers. A row is written over only after it has become durable in the
//! log: a full ring refuses rows, it never loses one that was taken.
//!
//! ```text
//! file     page of header: magic, version, bytes; then rings one after another
//! ring     8 words: magic, columns, rows, sum of these, owner (low 32: track, high 32: sum of its meta); then its rows
//! row      sequence number (from 1), time, values, CRC-32C over owner and all before
//! ```

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};

use crate::error::{StoreError, io_error};
use crate::mapping::Mapping;
use crate::record::TrackId;

const FILE_MAGIC: u64 = u64::from_le_bytes(*b"OLHOT\0\0\x01");
const RING_MAGIC: u64 = u64::from_le_bytes(*b"OLRING\0\0");
const FILE_HEADER_WORDS: usize = 512;
const RING_HEADER_WORDS: usize = 8;
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

    fn word(self) -> u64 {
        u64::from(self.track.0) | u64::from(self.meta_crc) << 32
    }

    #[allow(clippy::cast_possible_truncation)] // halves are meant
    fn from_word(word: u64) -> Self {
        Self { track: TrackId(word as u32), meta_crc: (word >> 32) as u32 }
    }
}

#[derive(Default)]
struct Numbers {
    /// Last row that is complete.
    published: AtomicU64,
    /// Last row that may be written over.
    durable: AtomicU64,
    /// Bytes of the log that its rows have taken.
    logged_bytes: AtomicU64,
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
        if sequence - ring.numbers.durable.load(Ordering::Acquire) > ring.rows {
            return Err(Full);
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

    /// Rows up to this one may be written over.
    pub fn set_durable(&self, sequence: u64) {
        self.numbers.durable.store(sequence, Ordering::Release);
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
        &self.memory.words()[self.from + RING_HEADER_WORDS + slot * words..][..words]
    }

    /// Forgets all rows and counts on from `sequence`.
    fn reset(&self, sequence: u64) {
        self.numbers.published.store(sequence, Ordering::Release);
        self.numbers.durable.store(sequence, Ordering::Release);
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

/// The file that all rings are in.
pub struct Arena {
    memory: Arc<Mapping>,
    path: PathBuf,
    /// Words in use.
    end: usize,
    limit: usize,
}

impl Arena {
    /// Opens or makes the file and finds the rings that an earlier process left, without rows until they are recovered. A file of another size or version is begun
    /// anew.
    ///
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::Io`].
    pub fn open(path: &Path, bytes: u64) -> Result<(Self, Vec<Ring>), StoreError> {
        let failed = |operation| io_error(operation, path);
        let bytes = bytes.next_multiple_of(8).max(FILE_HEADER_WORDS as u64 * 8);
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed("open"))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| StoreError::InUse(path.to_owned()))?;
        if file.metadata().map_err(failed("examine"))?.len() != bytes {
            file.set_len(0).map_err(failed("truncate"))?;
            file.set_len(bytes).map_err(failed("extend"))?;
        }
        let length = usize::try_from(bytes).map_err(|_| failed("map")(std::io::ErrorKind::OutOfMemory.into()))?;
        let memory = Arc::new(Mapping::of(file, length).map_err(failed("map"))?);
        let words = memory.words();
        let limit = words.len();
        let mut arena = Self { memory: memory.clone(), path: path.to_owned(), end: FILE_HEADER_WORDS, limit };
        arena.allocate(0, FILE_HEADER_WORDS)?;
        let mut left = Vec::new();
        if words[0].load(Ordering::Relaxed) == FILE_MAGIC {
            while let Some(found) = arena.next()? {
                left.push(found);
            }
        }
        words[0].store(FILE_MAGIC, Ordering::Relaxed);
        Ok((arena, left))
    }

    /// Before anything there is touched.
    fn allocate(&self, from_word: usize, words: usize) -> Result<(), StoreError> {
        self.memory.allocate(from_word, words).map_err(io_error("take room for hot rows in", &self.path))
    }

    /// The ring that begins where the arena ends, if one does.
    fn next(&mut self) -> Result<Option<Ring>, StoreError> {
        if self.limit - self.end < RING_HEADER_WORDS {
            return Ok(None);
        }
        self.allocate(self.end, RING_HEADER_WORDS)?;
        let words = &self.memory.words()[self.end..];
        let [magic, columns, rows, geometry, owner] = std::array::from_fn(|i| words[i].load(Ordering::Relaxed));
        if magic != RING_MAGIC || geometry != geometry_sum(columns, rows) || rows == 0 {
            return Ok(None);
        }
        let Ok(columns) = usize::try_from(columns) else { return Ok(None) };
        let Some(taken) = ring_words(columns, rows).filter(|words| *words <= self.limit - self.end) else {
            return Ok(None);
        };
        self.allocate(self.end, taken)?;
        let ring = self.ring_at(self.end, columns, rows, Owner::from_word(owner));
        self.end += taken;
        Ok(Some(ring))
    }

    fn ring_at(&self, from: usize, columns: usize, rows: u64, owner: Owner) -> Ring {
        let numbers = Arc::new(Numbers::default());
        Ring { memory: self.memory.clone(), from, columns, rows, numbers, owner }
    }

    /// Makes a ring at the end, whose next row is number `sequence` + 1; `None` where the file has no room.
    ///
    /// # Errors
    /// [`StoreError::Io`] where the file system has none.
    pub fn ring(&mut self, owner: Owner, columns: usize, rows: u64, sequence: u64) -> Result<Option<Ring>, StoreError> {
        let taken = ring_words(columns, rows).filter(|words| rows > 0 && *words <= self.limit - self.end);
        let Some(taken) = taken else { return Ok(None) };
        self.allocate(self.end, taken)?;
        let ring = self.ring_at(self.end, columns, rows, owner);
        let header = &self.memory.words()[self.end..][..RING_HEADER_WORDS];
        let geometry = [columns as u64, rows, geometry_sum(columns as u64, rows), owner.word()];
        for (to, value) in header[1..].iter().zip(geometry) {
            to.store(value, Ordering::Relaxed);
        }
        // Last, so that a kill leaves no ring or a whole one.
        header[0].store(RING_MAGIC, Ordering::Release);
        ring.reset(sequence);
        self.end += taken;
        Ok(Some(ring))
    }

    /// Bytes of the file that are in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.end as u64 * 8
    }

    /// Gives a ring to another track of the same width; nobody may have an appender to it any more.
    #[must_use]
    pub fn reuse(&self, ring: &Ring, owner: Owner, sequence: u64) -> Ring {
        self.memory.words()[ring.from + 4].store(owner.word(), Ordering::Release);
        let ring = self.ring_at(ring.from, ring.columns, ring.rows, owner);
        ring.reset(sequence);
        ring
    }
}

fn geometry_sum(columns: u64, rows: u64) -> u64 {
    u64::from(crc32c::crc32c(bytemuck::cast_slice(&[columns, rows])))
}

fn ring_words(columns: usize, rows: u64) -> Option<usize> {
    let row = columns.checked_add(ROW_EXTRA_WORDS)?;
    usize::try_from(rows).ok()?.checked_mul(row)?.checked_add(RING_HEADER_WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { track: TrackId(4), meta_crc: 77 };
    const OTHER: Owner = Owner { track: TrackId(9), meta_crc: 1 };

    fn rows(ring: &Ring, from: u64) -> Vec<(u64, Vec<u64>)> {
        let mut values = Vec::new();
        (from..=ring.published()).map(|sequence| (ring.copy(sequence, &mut values), values.clone())).collect()
    }

    #[test]
    fn rows_outlive_the_process_and_a_full_ring_refuses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hot");
        let (mut arena, left) = Arena::open(&path, 1 << 20).unwrap();
        assert!(left.is_empty());
        assert!(matches!(Arena::open(&path, 1 << 20), Err(StoreError::InUse(_))));
        let other = arena.ring(OTHER, 5, 10, 0).unwrap().unwrap();
        let ring = arena.ring(OWNER, 2, 4, 6).unwrap().unwrap();
        let mut appender = ring.appender();
        for i in 0..4 {
            assert_eq!(appender.append(100 + i, &[i, i * i]), Ok(7 + i));
        }
        assert_eq!(appender.append(9, &[1, 1]), Err(Full));
        ring.set_durable(8);
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
        let other = arena.reuse(ring, OTHER, 8);
        assert_eq!(other.recover(8), None, "rows of the owner before");
        assert_eq!(other.appender().append(1, &[1, 2]), Ok(9));
        assert!(arena.ring(OWNER, 1000, 1000, 0).unwrap().is_none(), "no room");
        drop((left, other, arena));
        let (_, left) = Arena::open(&path, 1 << 20).unwrap();
        assert_eq!((left.len(), left[1].recover(8)), (2, Some((9, 9))));
        drop(left);
        assert!(Arena::open(&path, 1 << 19).unwrap().1.is_empty(), "of another size");
    }

    #[test]
    fn one_thread_appends_while_another_seals() {
        let dir = tempfile::tempdir().unwrap();
        let (mut arena, _) = Arena::open(&dir.path().join("hot"), 1 << 20).unwrap();
        let ring = arena.ring(OWNER, 3, 16, 0).unwrap().unwrap();
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
            ring.set_durable(sealed);
        }
        writer.join().unwrap();
    }
}
