// SPDX-License-Identifier: Apache-2.0
//! Which chunks there are: 32 bytes of memory a chunk, by track and time.
//!
//! The writer publishes chunks when their bytes are in their file. Readers hold the lock for a look-up only; what they
//! read, they read from files that they hold open, which may be deleted meanwhile.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::Level;
use super::entry::{ChunkRef, Entry, count};
use super::file::{self, Listed, Loaded};
use super::frame::Opened;
use super::outline::{self, Groups, Outline};
use super::place::{Origin, Place};
use crate::damage::{StoreError, io_error};
use crate::types::{LATE_NS, TrackId};

/// Files that are kept open at most, beside those that somebody reads.
const MAX_OPEN: usize = 64;

/// Chunks of a level.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) level: Level,
    /// By number.
    pub(super) files: BTreeMap<u32, Stored>,
    /// Of those that are outlines the names of the cold files.
    pub(super) cold: BTreeMap<u32, String>,
    tracks: HashMap<TrackId, Track>,
    /// How many chunks pieces of several have, by where the last one is.
    pub(super) counts: BTreeMap<(u32, u32), usize>,
    /// Where chunks of rollups are that were written twice, and where the same chunk is before.
    pub(super) copies: BTreeMap<(u32, u32), (u32, u32)>,
}

/// A file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stored {
    pub(super) bytes: u64,
    /// Of the cold file.
    pub(super) cold_bytes: u64,
    /// Earliest and latest time of a row in it, ns; 0: it has none.
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

#[derive(Debug, Default)]
struct Track {
    /// By earliest time, then as they were written.
    chunks: VecDeque<ChunkRef>,
    /// Longest time that one of them takes.
    longest_ns: u64,
    /// Largest of their marks.
    mark: u64,
}

/// The order of a track's chunks.
fn key(chunk: &ChunkRef) -> (u64, u32, u32) {
    (chunk.from_ns, chunk.file, chunk.offset_words)
}

impl Track {
    /// Where a chunk is.
    fn find(&self, place: &ChunkRef) -> Option<usize> {
        let at = self.chunks.partition_point(|chunk| key(chunk) < key(place));
        self.chunks.get(at).filter(|chunk| *chunk == place).map(|_| at)
    }
}

impl Shelf {
    fn new(level: Level) -> Self {
        let (files, cold, tracks, counts, copies) = Default::default();
        Self { level, files, cold, tracks, counts, copies }
    }

    /// Takes a chunk; of raw rows that which was at `instead` goes. Pieces of rollups have both: which chunks belong to
    /// one is told by the order in which all were written.
    pub(super) fn put(&mut self, entry: &Entry, instead: Option<ChunkRef>) {
        let Entry { track, mark, place } = *entry;
        let file = self.files.entry(place.file).or_default();
        file.from_ns = if file.to_ns == 0 { place.from_ns } else { file.from_ns.min(place.from_ns) };
        file.to_ns = file.to_ns.max(place.to_ns);
        let track = self.tracks.entry(track).or_default();
        match instead {
            Some(instead) if self.level == Level::Raw => track.chunks.retain(|chunk| *chunk != instead),
            instead => self.copies.extend(instead.map(|instead| (place.arrival(), instead.arrival()))),
        }
        let at = track.chunks.partition_point(|chunk| key(chunk) < key(&place));
        track.chunks.insert(at, place);
        track.longest_ns = track.longest_ns.max(place.to_ns - place.from_ns);
        track.mark = track.mark.max(mark);
        if self.level > Level::Raw && count(mark) > 1 {
            self.counts.insert(place.arrival(), count(mark));
        }
    }

    /// Whether readers find this chunk.
    pub(super) fn has(&self, entry: &Entry) -> bool {
        self.tracks.get(&entry.track).is_some_and(|track| track.find(&entry.place).is_some())
    }

    /// Has an outline of a file instead of it, with its chunks at other places, in the same order; false: it is not
    /// there any more.
    pub(super) fn put_outline(
        &mut self,
        number: u32,
        cold: &str,
        moved: &[(Entry, ChunkRef)],
        bytes: u64,
        cold_bytes: u64,
    ) -> bool {
        let Some(stored) = self.files.get_mut(&number) else { return false };
        (stored.bytes, stored.cold_bytes) = (bytes, cold_bytes);
        self.cold.insert(number, cold.to_owned());
        // All are looked for before any is moved: they are in order before and after, not in between.
        let mut found = Vec::with_capacity(moved.len());
        for (entry, to) in moved {
            let track = self.tracks.get(&entry.track);
            found.extend(track.and_then(|track| track.find(&entry.place)).map(|at| (entry.track, at, *to)));
        }
        for (track, at, to) in found {
            if let Some(chunk) = self.tracks.get_mut(&track).and_then(|track| track.chunks.get_mut(at)) {
                *chunk = to;
            }
        }
        true
    }

    /// Chunks that may be the same one, written twice.
    pub(super) fn twins(&self, entry: &Entry) -> Vec<ChunkRef> {
        let of = |place: &ChunkRef| (place.from_ns, place.to_ns, place.rows(), place.bytes);
        let Some(Track { chunks, .. }) = self.tracks.get(&entry.track) else { return Vec::new() };
        let at = chunks.partition_point(|chunk| chunk.from_ns < entry.place.from_ns);
        let same_time = chunks.range(at..).take_while(|chunk| chunk.from_ns == entry.place.from_ns);
        same_time.copied().filter(|chunk| of(chunk) == of(&entry.place)).collect()
    }

    /// Chunks of a file, and whose they are; those of a track by their earliest times.
    pub(super) fn of_file(&self, number: u32) -> impl Iterator<Item = (TrackId, &ChunkRef)> {
        let all = self.tracks.iter().flat_map(|(id, track)| track.chunks.iter().map(|chunk| (*id, chunk)));
        all.filter(move |(_, chunk)| chunk.file == number)
    }

    /// Those of a track with rows between two times, both included.
    pub(super) fn between(&self, track: TrackId, from_ns: u64, to_ns: u64) -> impl Iterator<Item = ChunkRef> {
        let track = self.tracks.get(&track);
        let chunks = track.into_iter().flat_map(move |track| {
            let earliest_ns = from_ns.saturating_sub(track.longest_ns);
            track.chunks.range(track.chunks.partition_point(|chunk| chunk.from_ns < earliest_ns)..)
        });
        chunks.take_while(move |chunk| chunk.from_ns <= to_ns).filter(move |chunk| chunk.to_ns >= from_ns).copied()
    }

    /// The last ones of a track: of those that follow one another the latest is among them.
    fn last(&self, track: TrackId) -> impl Iterator<Item = &ChunkRef> {
        self.tracks.get(&track).into_iter().flat_map(|track| track.chunks.iter().rev().take(16))
    }

    /// Forgets files before this one.
    pub(super) fn forget_before(&mut self, number: u32) {
        self.counts = self.counts.split_off(&(number, 0));
        self.copies.retain(|_, (file, _)| *file >= number);
        let kept = self.files.split_off(&number);
        let to_ns = std::mem::replace(&mut self.files, kept).values().map(|file| file.to_ns).max().unwrap_or(0);
        self.tracks.retain(|_, track| {
            let chunks = &mut track.chunks;
            while chunks.front().is_some_and(|chunk| chunk.file < number) {
                chunks.pop_front();
            }
            // Out of order after a clock was set back.
            if chunks.iter().take_while(|chunk| chunk.from_ns <= to_ns).any(|chunk| chunk.file < number) {
                chunks.retain(|chunk| chunk.file >= number);
            }
            !chunks.is_empty()
        });
    }
}

/// Number of a file, and where in it: chunks are written in this order.
pub(super) type Position = (u32, u64);

fn position(chunk: &ChunkRef) -> Position {
    (chunk.file, chunk.offset())
}

/// What the writer and the readers have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) dir: PathBuf,
    pub(super) shelves: RwLock<[Shelf; Level::ALL.len()]>,
    /// The files that were asked for last, the very last one at the end.
    open: Mutex<VecDeque<(Level, u32, Origin)>>,
    groups: Arc<Groups>,
}

impl Shared {
    pub(super) fn new(dir: PathBuf) -> Self {
        let shelves = RwLock::new(Level::ALL.map(Shelf::new));
        Self { dir, shelves, open: Mutex::default(), groups: Arc::default() }
    }

    /// Changes a level's shelf.
    pub(super) fn with<T>(&self, level: Level, change: impl FnOnce(&mut Shelf) -> T) -> T {
        change(&mut self.shelves.write().unwrap_or_else(PoisonError::into_inner)[level as usize])
    }

    /// Looks at a level's shelf.
    pub(super) fn look<T>(&self, level: Level, look: impl FnOnce(&Shelf) -> T) -> T {
        look(&self.shelves.read().unwrap_or_else(PoisonError::into_inner)[level as usize])
    }

    /// Takes the chunks of a file, of raw rows those that are not there yet.
    pub(super) fn put_file(&self, level: Level, number: u32, loaded: &Loaded) {
        for entry in &loaded.entries {
            let mut twins = self.look(level, |shelf| shelf.twins(entry)).into_iter();
            let copied = twins.find(|twin| self.is_copy(level, *twin, &loaded.opened, entry.place));
            if level > Level::Raw || copied.is_none() {
                self.with(level, |shelf| shelf.put(entry, copied));
            }
        }
        let cold_bytes = self.listed(level, number).cold.map_or(0, |cold| outline::cold_bytes(&self.dir, &cold));
        self.with(level, |shelf| {
            let stored = shelf.files.entry(number).or_default();
            (stored.bytes, stored.cold_bytes) = (loaded.bytes, cold_bytes);
        });
    }

    /// A file as it is now: of chunks, or an outline.
    pub(super) fn listed(&self, level: Level, number: u32) -> Listed {
        Listed { level, number, cold: self.look(level, |shelf| shelf.cold.get(&number).cloned()) }
    }

    /// Whether two records have the same payload by their headers.
    fn is_copy(&self, level: Level, one: ChunkRef, opened: &Opened, other: ChunkRef) -> bool {
        let path = self.listed(level, one.file).path(&self.dir);
        let first = File::open(&path).ok().and_then(|file| outline::header_of(&Opened { file, path }, one));
        first.is_some() && first == outline::header_of(opened, other)
    }

    /// Closes files that nobody else reads.
    pub(super) fn close_before(&self, level: Level, number: u32) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(of, file, _)| *of != level || *file >= number);
        if level == Level::Raw {
            self.groups.close_before(number);
        }
    }

    /// The same of one file.
    pub(super) fn close(&self, level: Level, number: u32) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(of, file, _)| (*of, *file) != (level, number));
    }

    fn open(&self, shelf: &Shelf, level: Level, number: u32) -> Result<Origin, StoreError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let known = open.iter().rposition(|(of, file, _)| (*of, *file) == (level, number));
        let opened = match known.and_then(|at| open.remove(at)) {
            Some((_, _, origin)) => origin,
            None => match shelf.cold.get(&number) {
                Some(cold) => {
                    let groups = self.groups.clone();
                    Origin::Outline(Arc::new(Outline::open(&self.dir, level, number, cold, groups)?))
                }
                None => {
                    let path = file::path(&self.dir, level, number);
                    Origin::Chunks(Arc::new(Opened { file: File::open(&path).map_err(io_error("open", &path))?, path }))
                }
            },
        };
        if open.len() >= MAX_OPEN {
            open.pop_front();
        }
        open.push_back((level, number, opened.clone()));
        Ok(opened)
    }

    /// Opens what these chunks are read from.
    pub(super) fn places(
        &self,
        shelf: &Shelf,
        chunks: impl IntoIterator<Item = ChunkRef>,
    ) -> Result<Vec<Place>, StoreError> {
        let mut last: Option<(u32, Origin)> = None;
        let place = |chunk: ChunkRef| {
            let known = last.take().filter(|(number, _)| *number == chunk.file);
            let opened = known.map_or_else(|| self.open(shelf, shelf.level, chunk.file), |(_, opened)| Ok(opened))?;
            last = Some((chunk.file, opened.clone()));
            Ok(Place::new(opened, chunk))
        };
        chunks.into_iter().map(place).collect()
    }
}

/// Finds and reads chunks, beside the writer and without waiting for its disk.
#[derive(Clone, Debug)]
pub struct Reader(pub(super) Arc<Shared>);

impl Reader {
    /// The store's directory.
    pub(crate) fn store_dir(&self) -> &Path {
        outline::store_of(&self.0.dir)
    }

    /// A track's chunks with rows between two times (UTC ns, both included), by their earliest times.
    ///
    /// # Errors
    /// [`StoreError::Io`] if a file cannot be opened.
    pub fn between(&self, level: Level, track: TrackId, from_ns: u64, to_ns: u64) -> Result<Vec<Place>, StoreError> {
        self.0.look(level, |shelf| self.0.places(shelf, shelf.between(track, from_ns, to_ns)))
    }

    /// Tracks that have chunks of a level.
    #[must_use]
    pub fn tracks(&self, level: Level) -> Vec<TrackId> {
        self.0.look(level, |shelf| shelf.tracks.keys().copied().collect())
    }

    /// The largest mark of a track's chunks.
    #[must_use]
    pub fn mark(&self, level: Level, track: TrackId) -> Option<u64> {
        self.0.look(level, |shelf| shelf.tracks.get(&track).map(|track| track.mark))
    }

    /// Earliest time, not before `from_ns`, that a chunk of a track covers; or, with `begins`, that one begins with.
    pub(crate) fn first_ns(&self, level: Level, track: TrackId, from_ns: u64, begins: bool) -> Option<u64> {
        self.0.look(level, |shelf| {
            let mut chunks = shelf.between(track, from_ns, u64::MAX);
            chunks.find(|chunk| !begins || chunk.from_ns >= from_ns).map(|chunk| chunk.from_ns.max(from_ns))
        })
    }

    /// Latest time of a track's rows, UTC ns.
    #[must_use]
    pub fn newest_ns(&self, level: Level, track: TrackId) -> Option<u64> {
        self.0.look(level, |shelf| shelf.last(track).map(|chunk| chunk.to_ns).max())
    }

    /// Earliest time of the chunk of a track that was written last, UTC ns.
    pub(crate) fn last_begin_ns(&self, level: Level, track: TrackId) -> Option<u64> {
        self.0.look(level, |shelf| shelf.last(track).max_by_key(|chunk| chunk.arrival()).map(|chunk| chunk.from_ns))
    }

    /// How much there is of a track.
    #[must_use]
    pub fn extent(&self, level: Level, track: TrackId) -> Option<Extent> {
        self.0.look(level, |shelf| shelf.tracks.get(&track)?.chunks.iter().map(Extent::from).reduce(Extent::joined))
    }

    /// The same of its chunks with rows between two times, both included.
    #[must_use]
    pub fn extent_between(&self, level: Level, track: TrackId, from_ns: u64, to_ns: u64) -> Option<Extent> {
        let extent = |shelf: &Shelf| {
            let chunks = shelf.between(track, from_ns, to_ns);
            chunks.map(|chunk| Extent::from(&chunk)).reduce(Extent::joined)
        };
        self.0.look(level, |shelf| extent(shelf))
    }

    /// Earliest time of a row, UTC ns.
    #[must_use]
    pub fn oldest_ns(&self, level: Level) -> Option<u64> {
        self.0.look(level, |shelf| shelf.files.values().map(|file| file.from_ns).filter(|from_ns| *from_ns > 0).min())
    }

    /// The same of all levels.
    #[must_use]
    pub fn oldest_of_all_ns(&self) -> Option<u64> {
        Level::ALL.into_iter().filter_map(|level| self.oldest_ns(level)).min()
    }

    /// Between which times what is lost at a place in the files was, if it was of a track: the end of the chunk that was
    /// written right before, and the beginning of the one right behind, or `last_ns`, which is behind all of them. Where
    /// a clock was set that was wrong at one of the two, the nearest time on the other side that fits the other one.
    pub(crate) fn around(
        &self,
        level: Level,
        track: TrackId,
        lost: &Range<Position>,
        last_ns: Option<u64>,
    ) -> (Option<u64>, Option<u64>) {
        self.0.look(level, |shelf| {
            let chunks = || shelf.tracks.get(&track).into_iter().flat_map(|track| &track.chunks);
            let all_before = || chunks().filter(|chunk| position(chunk) < lost.start);
            let all_behind = || chunks().filter(|chunk| position(chunk) >= lost.end);
            let before_ns = all_before().max_by_key(|chunk| position(chunk)).map(|chunk| chunk.to_ns);
            let behind_ns = all_behind().min_by_key(|chunk| position(chunk)).map(|chunk| chunk.from_ns).or(last_ns);
            let (Some(to_ns), Some(from_ns)) = (before_ns, behind_ns) else { return (before_ns, behind_ns) };
            if (to_ns.saturating_sub(LATE_NS)..=to_ns).contains(&from_ns) {
                // Samples come late: nothing is between the two.
                return (before_ns, behind_ns);
            }
            let begins = all_behind().map(|chunk| chunk.from_ns).chain(last_ns);
            match begins.filter(|begin_ns| *begin_ns > to_ns).min() {
                Some(begin_ns) if begin_ns != from_ns => (before_ns, Some(begin_ns)),
                _ => (all_before().map(|chunk| chunk.to_ns).filter(|end_ns| *end_ns < from_ns).max(), behind_ns),
            }
        })
    }

    /// Times of the last row of the chunk that was written right before a place in the files, and of the one right
    /// behind it, whosever they are; of those that end by `last_ns`.
    pub(crate) fn neighbours(&self, level: Level, lost: &Range<Position>, last_ns: u64) -> (Option<u64>, Option<u64>) {
        self.0.look(level, |shelf| {
            let all = || shelf.tracks.values().flat_map(|track| &track.chunks);
            let chunks = || all().filter(|chunk| chunk.to_ns <= last_ns);
            let before = chunks().filter(|chunk| position(chunk) < lost.start).max_by_key(|chunk| position(chunk));
            let behind = chunks().filter(|chunk| position(chunk) >= lost.end).min_by_key(|chunk| position(chunk));
            (before.map(|chunk| chunk.to_ns), behind.map(|chunk| chunk.to_ns))
        })
    }

    /// Latest time of a row, UTC ns.
    pub(crate) fn latest_ns(&self, level: Level) -> Option<u64> {
        self.0.look(level, |shelf| shelf.files.values().map(|file| file.to_ns).max())
    }

    /// Bytes of a level's files, cold ones included.
    #[must_use]
    pub fn bytes(&self, level: Level) -> u64 {
        self.0.look(level, |shelf| shelf.files.values().map(|file| file.bytes + file.cold_bytes).sum())
    }

    /// Bytes of outlines and their cold files.
    #[must_use]
    pub fn cold_bytes(&self) -> u64 {
        let bytes = |(number, file): (&u32, &Stored), shelf: &Shelf| {
            if shelf.cold.contains_key(number) { file.bytes + file.cold_bytes } else { 0 }
        };
        self.0.look(Level::Raw, |shelf| shelf.files.iter().map(|file| bytes(file, shelf)).sum())
    }
}

/// How much there is of something, and of when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Rows.
    pub rows: u64,
    /// Earliest time, UTC ns.
    pub from_ns: u64,
    /// Latest time, UTC ns.
    pub to_ns: u64,
}

impl From<&ChunkRef> for Extent {
    fn from(chunk: &ChunkRef) -> Self {
        Self { rows: chunk.rows().into(), from_ns: chunk.from_ns, to_ns: chunk.to_ns }
    }
}

impl Extent {
    /// Of both.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        let (from_ns, to_ns) = (self.from_ns.min(other.from_ns), self.to_ns.max(other.to_ns));
        Self { rows: self.rows + other.rows, from_ns, to_ns }
    }
}
