// SPDX-License-Identifier: Apache-2.0
//! The file that all rings are in, and which parts of it are free.
//!
//! The file is a page of header and then extents, one after another. An extent's head says how long it is in the same word that says that it is one, and whose it
//! is in another: an extent is split, merged or given away by one store each, so that a kill leaves all others where they were. Extents are given away by bytes:
//! what finished tracks leave serves tracks of any width. Pages of free extents go back to the file system.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{FlockOperation, flock};

use crate::error::{StoreError, io_error};
use crate::mapping::Mapping;
use crate::private;
use crate::ring::{HEAD_WORDS, Owner, Ring, ring_words};

const FILE_MAGIC: u64 = u64::from_le_bytes(*b"OLHOT\0\0\x01");
const FILE_HEADER_WORDS: usize = 512;
/// Head of a ring as earlier versions wrote it: its length follows from its geometry.
const OLD_HEAD: u64 = u64::from_le_bytes(*b"OLRING\0\0");
/// Low 24 bits of an extent's head; the others are its words.
const HEAD: u64 = u64::from_le_bytes(*b"OLX\0\0\0\0\0");
const HEAD_BITS: u32 = 24;
/// Smallest extent that is worth a place in the list.
const MIN_WORDS: usize = 16;

/// The file.
pub(crate) struct Arena {
    memory: Arc<Mapping>,
    path: PathBuf,
    /// Where the last extent ends.
    end: usize,
    limit: usize,
    /// Words of free extents by their beginnings; none of them are neighbours, none is the last extent.
    free: BTreeMap<usize, usize>,
    by_words: BTreeSet<(usize, usize)>,
    free_words: usize,
}

impl Arena {
    /// Opens or makes the file and finds the rings that an earlier process left, without rows until they are recovered. A file of another size or version is begun
    /// anew.
    ///
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::Io`].
    pub(crate) fn open(path: &Path, bytes: u64) -> Result<(Self, Vec<Ring>), StoreError> {
        let failed = |operation| io_error(operation, path);
        let bytes = bytes.next_multiple_of(8).max(FILE_HEADER_WORDS as u64 * 8);
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false).mode(private::MODE);
        let file = options.open(path).map_err(failed("open"))?;
        private::restrict(&file).map_err(failed("restrict"))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| StoreError::InUse(path.to_owned()))?;
        if file.metadata().map_err(failed("examine"))?.len() != bytes {
            file.set_len(0).map_err(failed("truncate"))?;
            file.set_len(bytes).map_err(failed("extend"))?;
        }
        let length = usize::try_from(bytes).map_err(|_| failed("map")(std::io::ErrorKind::OutOfMemory.into()))?;
        let memory = Arc::new(Mapping::of(file, length).map_err(failed("map"))?);
        let limit = memory.words().len();
        let (free, by_words) = (BTreeMap::new(), BTreeSet::new());
        let path = path.to_owned();
        let mut arena = Self { memory, path, end: FILE_HEADER_WORDS, limit, free, by_words, free_words: 0 };
        arena.allocate(0, FILE_HEADER_WORDS)?;
        let mut left = Vec::new();
        let mut unused = Vec::new();
        if arena.word(0) == FILE_MAGIC {
            while let Some((words, ring)) = arena.next()? {
                match ring {
                    Some(ring) => left.push(ring),
                    None => unused.push((arena.end, words)),
                }
                // One that an earlier version wrote is like all others from now on.
                arena.set(arena.end, head_of(words));
                arena.end += words;
            }
        } else if arena.limit > FILE_HEADER_WORDS {
            arena.allocate(FILE_HEADER_WORDS, 1)?;
            arena.set(FILE_HEADER_WORDS, 0);
        }
        arena.set(0, FILE_MAGIC);
        for (from, words) in unused {
            arena.take_back(from, words);
        }
        Ok((arena, left))
    }

    fn word(&self, at: usize) -> u64 {
        self.memory.words()[at].load(Ordering::Acquire)
    }

    fn set(&self, at: usize, value: u64) {
        self.memory.words()[at].store(value, Ordering::Release);
    }

    /// Before anything there is touched.
    fn allocate(&self, from: usize, words: usize) -> Result<(), StoreError> {
        let words = words.min(self.limit - from);
        self.memory.allocate(from, words).map_err(io_error("take room for hot rows in", &self.path))
    }

    /// Words of the extent that begins where the arena ends so far, if one does, and its ring, if it is one.
    fn next(&self) -> Result<Option<(usize, Option<Ring>)>, StoreError> {
        let room = self.limit - self.end;
        if room < HEAD_WORDS {
            return Ok(None);
        }
        self.allocate(self.end, HEAD_WORDS)?;
        let head = self.word(self.end);
        let ring = Ring::found(&self.memory, self.end);
        let words = match &ring {
            _ if head & ((1 << HEAD_BITS) - 1) == HEAD => usize::try_from(head >> HEAD_BITS).unwrap_or(usize::MAX),
            Some(ring) if head == OLD_HEAD => ring.words(),
            _ => return Ok(None),
        };
        if !(HEAD_WORDS..=room).contains(&words) {
            return Ok(None);
        }
        let ring = ring.filter(|ring| ring.words() <= words && ring.owner() != Owner::NOBODY);
        if ring.is_some() {
            self.allocate(self.end, words)?;
        }
        Ok(Some((words, ring)))
    }

    /// A ring that is nobody's yet; `None` where the file has no room.
    ///
    /// # Errors
    /// [`StoreError::Io`] where the file system has none.
    pub(crate) fn reserve(&mut self, columns: usize, rows: u64) -> Result<Option<Ring>, StoreError> {
        let Some(words) = ring_words(columns, rows).filter(|_| rows > 0) else { return Ok(None) };
        let words = words.next_multiple_of(8).max(MIN_WORDS);
        let best = self.by_words.range((words, 0)..).next().copied();
        let from = match best {
            Some((there, from)) => {
                let rest = if there - words >= MIN_WORDS { there - words } else { 0 };
                self.allocate(from, words + if rest > 0 { HEAD_WORDS } else { there - words })?;
                self.unlist(from, there);
                if rest > 0 {
                    self.head(from + words, rest);
                    self.list(from + words, rest);
                    self.set(from, head_of(words));
                }
                from
            }
            None if words <= self.limit - self.end => {
                let from = self.end;
                self.allocate(from, words + HEAD_WORDS)?;
                // What lies behind the last extent must not look like another one, whatever rows have stood there.
                if from + words < self.limit {
                    self.set(from + words, 0);
                }
                self.head(from, words);
                self.end += words;
                from
            }
            None => return Ok(None),
        };
        Ok(Some(Ring::made(&self.memory, from, columns, rows)))
    }

    /// Gives a ring to its owner: from now on it is found after a restart.
    pub(crate) fn own(&self, ring: &Ring) {
        ring.sign();
    }

    /// Takes a ring back; nobody may have an appender to it any more.
    pub(crate) fn free(&mut self, ring: &Ring) {
        let from = ring.disown();
        let words = usize::try_from(self.word(from) >> HEAD_BITS).unwrap_or(ring.words());
        self.take_back(from, words);
    }

    fn take_back(&mut self, mut from: usize, mut words: usize) {
        // Only memory depends on it.
        let _ = self.memory.release(from + HEAD_WORDS, words.saturating_sub(HEAD_WORDS));
        let after = self.free.get(&(from + words)).copied();
        if let Some(more) = after {
            self.unlist(from + words, more);
            words += more;
            self.set(from, head_of(words));
        }
        let before = self.free.range(..from).next_back().map(|(before, length)| (*before, *length));
        if let Some((before, length)) = before.filter(|(before, length)| before + length == from) {
            self.unlist(before, length);
            (from, words) = (before, length + words);
            self.set(from, head_of(words));
        }
        if from + words == self.end {
            self.set(from, 0);
            self.end = from;
        } else {
            self.list(from, words);
        }
    }

    /// Begins an extent that is nobody's.
    fn head(&self, from: usize, words: usize) {
        self.set(from + Ring::OWNER_WORD, Owner::NOBODY.word());
        self.set(from, head_of(words));
    }

    fn list(&mut self, from: usize, words: usize) {
        self.free.insert(from, words);
        self.by_words.insert((words, from));
        self.free_words += words;
    }

    fn unlist(&mut self, from: usize, words: usize) {
        self.free.remove(&from);
        self.by_words.remove(&(words, from));
        self.free_words -= words;
    }

    /// Bytes of the file that rings take.
    #[must_use]
    pub(crate) fn used_bytes(&self) -> u64 {
        (self.end - FILE_HEADER_WORDS - self.free_words) as u64 * 8
    }
}

fn head_of(words: usize) -> u64 {
    ((words as u64) << HEAD_BITS) | HEAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TrackId;

    fn owner(track: u32) -> Owner {
        Owner { track: TrackId(track), meta_crc: 77 }
    }

    fn ring(arena: &mut Arena, track: u32, columns: usize, rows: u64) -> Option<Ring> {
        let ring = arena.reserve(columns, rows).unwrap()?.of(owner(track), 0);
        arena.own(&ring);
        Some(ring)
    }

    #[test]
    fn memory_is_given_away_by_bytes_whatever_the_widths_and_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hot");
        let (mut arena, _) = Arena::open(&path, 1 << 18).unwrap();
        let mut rings: BTreeMap<u32, Ring> = BTreeMap::new();
        let mut seed = 7u64;
        let mut chance = |below: u64| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut refused = 0;
        for track in 1..=4_000u32 {
            let (columns, rows) = (usize::try_from(chance(60)).unwrap(), 8 + chance(40));
            match ring(&mut arena, track, columns, rows) {
                Some(ring) => {
                    let mut appender = ring.appender();
                    for _ in 0..rows {
                        // Words that look like an extent's head.
                        appender.append(head_of(64), &vec![head_of(64); columns]).unwrap();
                    }
                    rings.insert(track, ring);
                }
                None => refused += 1,
            }
            while rings.len() > 10 && chance(3) > 0 {
                let at = usize::try_from(chance(rings.len() as u64)).unwrap();
                let track = *rings.keys().nth(at).unwrap();
                arena.free(&rings.remove(&track).unwrap());
            }
            if track % 500 == 0 {
                let used = arena.used_bytes();
                drop(arena);
                // As after a kill.
                let kept: BTreeMap<u32, u64> = rings.iter().map(|(track, ring)| (*track, ring.published())).collect();
                rings.clear();
                let left;
                (arena, left) = Arena::open(&path, 1 << 18).unwrap();
                for ring in left {
                    let track = ring.owner().track.0;
                    assert_eq!(ring.recover(0).unwrap().1, kept[&track]);
                    rings.insert(track, ring);
                }
                assert!(rings.keys().eq(kept.keys()));
                assert_eq!(arena.used_bytes(), used);
            }
        }
        assert!(refused < 2_000, "{refused}");
        rings.values().for_each(|ring| arena.free(ring));
        assert_eq!((arena.used_bytes(), arena.free.len(), arena.by_words.len()), (0, 0, 0));
        // All of it in one piece.
        assert!(ring(&mut arena, 1, 97, 300).is_some());
    }

    #[test]
    fn pages_of_what_is_free_go_back() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hot");
        let (mut arena, _) = Arena::open(&path, 1 << 22).unwrap();
        let taken = || std::fs::metadata(&path).unwrap().blocks() * 512;
        let rings: Vec<Ring> = (1..20).map(|track| ring(&mut arena, track, 50, 300).unwrap()).collect();
        let full = taken();
        assert!(full > 19 * 50 * 300 * 8, "{full}");
        rings[..18].iter().for_each(|ring| arena.free(ring));
        assert!(taken() < full / 4, "{} of {full}", taken());
    }
}
