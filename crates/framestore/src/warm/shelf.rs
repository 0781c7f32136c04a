// SPDX-License-Identifier: Apache-2.0
//! Which chunks there are, and reading them: 32 bytes of memory a chunk, by track and time.
//!
//! The writer publishes chunks when their bytes are in their file. Readers hold the lock for a look-up only; what they
//! read, they read from files that they hold open, which may be deleted meanwhile.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::file::{self, Entry, Loaded, Opened};
use super::frame::{self, HEADER_BYTES};
use super::{ChunkRef, Level};
use crate::chunk::{self, Chunk, HEAD_BYTES, Head};
use crate::damage::{Damage, StoreError, io_error};
use crate::types::{LATE_NS, TrackId};

/// Files that are kept open at most, beside those that somebody reads.
const MAX_OPEN: usize = 64;
/// A chunk of which reading all costs less than reading twice.
const SMALL_BYTES: usize = 8 << 10;

/// Chunks of a level.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    /// By number.
    pub(super) files: BTreeMap<u32, Stored>,
    tracks: HashMap<TrackId, Track>,
}

/// A file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stored {
    pub(super) bytes: u64,
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

impl Shelf {
    /// Takes a chunk; that which was at `instead` goes.
    pub(super) fn put(&mut self, entry: &Entry, instead: Option<ChunkRef>) {
        let Entry { track, mark, place } = *entry;
        let file = self.files.entry(place.file).or_default();
        file.from_ns = if file.to_ns == 0 { place.from_ns } else { file.from_ns.min(place.from_ns) };
        file.to_ns = file.to_ns.max(place.to_ns);
        let track = self.tracks.entry(track).or_default();
        if let Some(instead) = instead {
            track.chunks.retain(|chunk| *chunk != instead);
        }
        let key = |chunk: &ChunkRef| (chunk.from_ns, chunk.file, chunk.offset_words);
        let at = track.chunks.partition_point(|chunk| key(chunk) < key(&place));
        track.chunks.insert(at, place);
        track.longest_ns = track.longest_ns.max(place.to_ns - place.from_ns);
        track.mark = track.mark.max(mark);
    }

    /// A chunk that may be the same one, written twice.
    pub(super) fn twin(&self, entry: &Entry) -> Option<ChunkRef> {
        let of = |place: &ChunkRef| (place.from_ns, place.to_ns, place.rows(), place.bytes);
        let chunks = &self.tracks.get(&entry.track)?.chunks;
        let at = chunks.partition_point(|chunk| chunk.from_ns < entry.place.from_ns);
        let same_time = chunks.range(at..).take_while(|chunk| chunk.from_ns == entry.place.from_ns);
        same_time.copied().find(|chunk| of(chunk) == of(&entry.place))
    }

    /// Those of a track with rows between two times, both included.
    fn between(&self, track: TrackId, from_ns: u64, to_ns: u64) -> impl Iterator<Item = ChunkRef> {
        let track = self.tracks.get(&track);
        let chunks = track.into_iter().flat_map(move |track| {
            let earliest_ns = from_ns.saturating_sub(track.longest_ns);
            track.chunks.range(track.chunks.partition_point(|chunk| chunk.from_ns < earliest_ns)..)
        });
        chunks.take_while(move |chunk| chunk.from_ns <= to_ns).filter(move |chunk| chunk.to_ns >= from_ns).copied()
    }

    /// Forgets a chunk; its file has so many bytes without it.
    pub(super) fn forget(&mut self, track: TrackId, chunk: &ChunkRef, bytes: u64) {
        if let Some(track) = self.tracks.get_mut(&track) {
            track.chunks.retain(|there| there != chunk);
        }
        self.files.entry(chunk.file).or_default().bytes = bytes;
    }

    /// Forgets files before this one.
    pub(super) fn forget_before(&mut self, number: u32) {
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
    open: Mutex<VecDeque<(Level, u32, Arc<Opened>)>>,
}

impl Shared {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, shelves: RwLock::default(), open: Mutex::default() }
    }

    /// Changes a level's shelf.
    pub(super) fn with<T>(&self, level: Level, change: impl FnOnce(&mut Shelf) -> T) -> T {
        change(&mut self.shelves.write().unwrap_or_else(PoisonError::into_inner)[level as usize])
    }

    /// Looks at a level's shelf.
    pub(super) fn look<T>(&self, level: Level, look: impl FnOnce(&Shelf) -> T) -> T {
        look(&self.shelves.read().unwrap_or_else(PoisonError::into_inner)[level as usize])
    }

    /// Takes the chunks of a file that are not there yet.
    pub(super) fn put_file(&self, level: Level, number: u32, loaded: &Loaded) {
        for entry in &loaded.entries {
            let twin = self.look(level, |shelf| shelf.twin(entry));
            if !twin.is_some_and(|twin| self.is_copy(level, twin, &loaded.opened, entry.place)) {
                self.with(level, |shelf| shelf.put(entry, None));
            }
        }
        self.with(level, |shelf| shelf.files.entry(number).or_default().bytes = loaded.bytes);
    }

    /// Whether two records have the same payload by their headers.
    fn is_copy(&self, level: Level, one: ChunkRef, opened: &Opened, other: ChunkRef) -> bool {
        let header = |file: &File, place: ChunkRef| {
            let mut header = [0; HEADER_BYTES];
            file.read_exact_at(&mut header, place.offset()).ok().map(|()| header)
        };
        let first = File::open(file::path(&self.dir, level, one.file)).ok();
        let first = first.and_then(|file| header(&file, one));
        first.is_some() && first == header(&opened.file, other)
    }

    /// Closes files that nobody else reads.
    pub(super) fn close_before(&self, level: Level, number: u32) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(of, file, _)| *of != level || *file >= number);
    }

    fn open(&self, level: Level, number: u32) -> Result<Arc<Opened>, StoreError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let known = open.iter().rposition(|(of, file, _)| (*of, *file) == (level, number));
        let opened = match known.and_then(|at| open.remove(at)) {
            Some((_, _, opened)) => opened,
            None => {
                let path = file::path(&self.dir, level, number);
                Arc::new(Opened { file: File::open(&path).map_err(io_error("open", &path))?, path })
            }
        };
        if open.len() >= MAX_OPEN {
            open.pop_front();
        }
        open.push_back((level, number, opened.clone()));
        Ok(opened)
    }
}

/// Finds and reads chunks, beside the writer and without waiting for its disk.
#[derive(Clone, Debug)]
pub struct Reader(pub(super) Arc<Shared>);

impl Reader {
    /// A track's chunks with rows between two times (UTC ns, both included), by their earliest times.
    ///
    /// # Errors
    /// [`StoreError::Io`] if a file cannot be opened.
    pub fn between(&self, level: Level, track: TrackId, from_ns: u64, to_ns: u64) -> Result<Vec<Place>, StoreError> {
        self.0.look(level, |shelf| {
            let mut last: Option<(u32, Arc<Opened>)> = None;
            let mut place = |chunk: ChunkRef| {
                let known = last.take().filter(|(number, _)| *number == chunk.file);
                let opened = known.map_or_else(|| self.0.open(level, chunk.file), |(_, opened)| Ok(opened))?;
                last = Some((chunk.file, opened.clone()));
                Ok(Place { opened, chunk })
            };
            shelf.between(track, from_ns, to_ns).map(&mut place).collect()
        })
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

    /// Times that a track's chunks cover which have rows between two times, both included: in whole multiples of
    /// `unit_ns`, ascending, those that touch as one. Chunks without a mark count where the last one of their piece is
    /// there: a kill may have left them alone.
    pub(crate) fn covered(
        &self,
        level: Level,
        track: TrackId,
        unit_ns: u64,
        from_ns: u64,
        to_ns: u64,
    ) -> Vec<(u64, u64)> {
        let mut covered: Vec<(u64, u64)> = Vec::new();
        self.0.look(level, |shelf| {
            for chunk in shelf.between(track, from_ns, to_ns).filter(ChunkRef::is_marked) {
                let begin_ns = chunk.from_ns - chunk.from_ns % unit_ns;
                let last_ns = chunk.to_ns - chunk.to_ns % unit_ns + (unit_ns - 1);
                match covered.last_mut() {
                    Some((_, end_ns)) if begin_ns <= *end_ns + 1 => *end_ns = last_ns.max(*end_ns),
                    _ => covered.push((begin_ns, last_ns)),
                }
            }
        });
        covered
    }

    /// Latest time of a track's rows, UTC ns.
    #[must_use]
    pub fn newest_ns(&self, level: Level, track: TrackId) -> Option<u64> {
        self.0
            .look(level, |shelf| shelf.tracks.get(&track)?.chunks.iter().rev().take(16).map(|chunk| chunk.to_ns).max())
    }

    /// How much there is of a track.
    #[must_use]
    pub fn extent(&self, level: Level, track: TrackId) -> Option<Extent> {
        self.0.look(level, |shelf| shelf.tracks.get(&track)?.chunks.iter().map(Extent::from).reduce(Extent::joined))
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
    /// behind it, whosever they are.
    pub(crate) fn neighbours(&self, level: Level, lost: &Range<Position>) -> (Option<u64>, Option<u64>) {
        self.0.look(level, |shelf| {
            let chunks = || shelf.tracks.values().flat_map(|track| &track.chunks);
            let before = chunks().filter(|chunk| position(chunk) < lost.start).max_by_key(|chunk| position(chunk));
            let behind = chunks().filter(|chunk| position(chunk) >= lost.end).min_by_key(|chunk| position(chunk));
            (before.map(|chunk| chunk.to_ns), behind.map(|chunk| chunk.to_ns))
        })
    }

    /// Latest time of a row, UTC ns.
    pub(crate) fn latest_ns(&self, level: Level) -> Option<u64> {
        self.0.look(level, |shelf| shelf.files.values().map(|file| file.to_ns).max())
    }

    /// Bytes of a level's files.
    #[must_use]
    pub fn bytes(&self, level: Level) -> u64 {
        self.0.look(level, |shelf| shelf.files.values().map(|file| file.bytes).sum())
    }
}

/// Room for what is read of one chunk after the other.
#[derive(Debug, Default)]
pub struct Buffers {
    front: Vec<u8>,
    piece: Vec<u8>,
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

/// A chunk that can be read.
#[derive(Clone, Debug)]
pub struct Place {
    opened: Arc<Opened>,
    chunk: ChunkRef,
}

impl Place {
    /// Its times, rows and bytes.
    #[must_use]
    pub fn chunk(&self) -> &ChunkRef {
        &self.chunk
    }

    /// Reads all of it, checked, into a buffer.
    ///
    /// # Errors
    /// [`StoreError::Io`], and [`StoreError::Damaged`] if its bytes are not what was written.
    pub fn read<'a>(&self, bytes: &'a mut Vec<u8>) -> Result<Chunk<'a>, StoreError> {
        self.fill(bytes, 0, HEADER_BYTES + self.chunk.bytes as usize)?;
        let (header, payload) = bytes.split_at(HEADER_BYTES);
        let checked = frame::parse(header).and_then(|frame| {
            frame.check(payload)?;
            if frame.kind == file::CHUNK { Chunk::parse(payload) } else { Err(Damage::Wrong("a record's kind")) }
        });
        checked.map_err(|damage| self.damaged(damage))
    }

    /// Reads neighbouring columns, checked, and appends their values, column after column. Of a large chunk that is two
    /// small reads. The chunk that comes back has times, lines and statistics, and perhaps no other columns.
    ///
    /// # Errors
    /// [`StoreError::Io`], and [`StoreError::Damaged`] if their bytes are not what was written.
    pub fn read_columns<'a>(
        &self,
        columns: Range<usize>,
        buffers: &'a mut Buffers,
        values: &mut Vec<u64>,
    ) -> Result<Chunk<'a>, StoreError> {
        let damaged = |damage| self.damaged(damage);
        if self.chunk.bytes as usize <= SMALL_BYTES {
            let chunk = self.read(&mut buffers.front)?;
            columns.into_iter().try_for_each(|number| chunk.column(number, values)).map_err(damaged)?;
            return Ok(chunk);
        }
        let chunk = self.read_front(&mut buffers.front)?;
        let range = chunk.range(columns.clone()).map_err(damaged)?;
        let front_bytes = chunk.head().front_bytes;
        if front_bytes + range.end > self.chunk.bytes as usize {
            return Err(damaged(Damage::Wrong("where a column is")));
        }
        let piece = &mut buffers.piece;
        piece.clear();
        if !range.is_empty() {
            self.fill(piece, HEADER_BYTES + front_bytes + range.start, range.len())?;
        }
        let mut checked = |number| chunk.checked_column(number, range.start, piece, values);
        columns.into_iter().try_for_each(&mut checked).map_err(damaged)?;
        Ok(chunk)
    }

    /// Reads what is before the columns: times, lines and statistics, checked.
    ///
    /// # Errors
    /// [`StoreError::Io`], and [`StoreError::Damaged`] if its bytes are not what was written.
    pub fn read_front<'a>(&self, bytes: &'a mut Vec<u8>) -> Result<Chunk<'a>, StoreError> {
        let mut length = usize::from(self.chunk.front_words) * 8;
        if self.chunk.front_words == u16::MAX {
            self.fill(bytes, HEADER_BYTES, HEAD_BYTES)?;
            length = Head::parse(bytes).map_err(|damage| self.damaged(damage))?.front_bytes;
        }
        if length > self.chunk.bytes as usize {
            return Err(self.damaged(Damage::Wrong("a chunk's end")));
        }
        self.fill(bytes, HEADER_BYTES, length)?;
        let checked = chunk::check_front(bytes).and_then(|()| Chunk::parse_front(bytes));
        checked.map_err(|damage| self.damaged(damage))
    }

    fn fill(&self, bytes: &mut Vec<u8>, at: usize, length: usize) -> Result<(), StoreError> {
        bytes.resize(length, 0);
        let read = self.opened.file.read_exact_at(bytes, self.chunk.offset() + at as u64);
        read.map_err(io_error("read", &self.opened.path))
    }

    pub(crate) fn damaged(&self, damage: Damage) -> StoreError {
        StoreError::Damaged { path: self.opened.path.clone(), offset: self.chunk.offset(), damage }
    }
}
