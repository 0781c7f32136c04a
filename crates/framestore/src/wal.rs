// SPDX-License-Identifier: Apache-2.0
//! The write-ahead log: encoded rows, as they stand in the heads of their tracks, durable within a second of their
//! coming.
//!
//! The store thread is the only one who writes: with each sync, of each shard (the ring of one processor thread), what
//! all heads have got since the last as one record (`record.rs`), in one write. At the next start [`Wal::open`] gives
//! it all back (`replay.rs`): the same bytes are appended to heads again. Segments are deleted when all rows that they
//! have are in warm chunks.
//!
//! ```text
//! <dir>/wal/<number>.wal    records of framing.rs: one Segment, then Entries, after each 16 of which a Parity;
//!                           numbers in a row; each process begins a new one
//! ```
//! **Order.** [`Wal::rows`] and [`Wal::cut`] of a track are called in the order in which its head got them. Definitions
//! that rows refer to are written to the catalogue before, and synced before. A chunk is written to its warm file after
//! the record that has the cut is durable: so a chunk that is there was cut, and a cut without a chunk finds its rows
//! in the log.
//!
//! **Size.** A record should end where a drain of the ring ends, at [`Wal::is_full`] (1 MiB before it is packed) at the
//! latest: then it covers the ring up to a position, and a torn write loses no rows of records before.
//!
//! **What damage costs.** A flipped bit nothing: it is put right (`framing.rs`). One damaged record of a group of 16,
//! by however much, nothing: it is rebuilt from the group's parity record. More than that costs the rows of those
//! records, and of the tracks in them what follows up to the next cut of their heads, since rows are coded against the
//! ones before: each entry says which row of which head it begins with, so that rows that do not fit are told as lost,
//! never decoded wrongly, and other tracks lose nothing. In the last group, which a crash found without its parity,
//! what follows is 15 records at most. A cut at a byte loses what lies after it. A process that goes on running loses
//! nothing in any case: heads are in memory until their chunks are made.
//!
//! **A failed sync.** The kernel may have dropped what it could not write, and will not say so again: the segment is
//! given up, and everything since the last good sync is written again to a new one, with the same numbers of records,
//! by which a replay knows it.
//!
//! Cost: some 50 bytes a record; about 2 bytes a track and record before zstd; 1/16 of all for the parity, and 8 bytes
//! of memory a track and its place in a map.

pub(crate) mod look;
mod record;
mod replay;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::record::{Builder, GROUP_RECORDS, Kind, MAX_RAW_BYTES, Parity, Place, Segment};
use self::replay::Replay;
pub use self::replay::{Entry, Recovery, Source};
use crate::damage::{StoreError, io_error};
use crate::framing::files::{self, Lock};
use crate::framing::{Frame, HEADER_BYTES};
use crate::types::TrackId;

/// Version of the log's format.
pub const VERSION: u32 = 1;
const EXTENSION: &str = "wal";
const DIRECTORY: &str = "wal";
/// A record should not get more, before it is packed: what damage costs, and what is unpacked at once.
const FULL_BYTES: usize = 1 << 20;
/// What may wait for a disk that does not work.
const MAX_UNSYNCED_BYTES: usize = 64 << 20;

/// The log.
pub struct Wal {
    dir: PathBuf,
    _lock: Arc<Lock>,
    /// What a segment has before the next one begins.
    segment_bytes: u64,
    /// Numbers and lengths, oldest first; the last one is `file`.
    segments: VecDeque<(u32, u64)>,
    file: Arc<File>,
    building: Builder,
    next_record: u64,
    /// Where the next row of each track stands.
    places: HashMap<TrackId, Place>,
    /// What the last record of each shard said.
    covered: BTreeMap<u8, u64>,
    /// Records since the last good sync, framed, without parity; so many bytes of them are in `file`.
    unsynced: Vec<u8>,
    written: usize,
    group: Parity,
    out: Vec<u8>,
    /// A sync has failed, and no other segment was begun yet.
    is_broken: bool,
}

/// A sync that can run beside everything else.
#[derive(Debug)]
pub struct Syncing {
    /// `None`: there is nothing to be done.
    file: Option<Arc<File>>,
    path: PathBuf,
    is_broken: bool,
    synced: Synced,
}

/// A sync that has run.
#[derive(Clone, Copy, Debug)]
pub struct Synced {
    segment: u32,
    bytes: usize,
}

impl Syncing {
    /// Waits for the disk (fdatasync).
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn run(&self) -> Result<Synced, StoreError> {
        let run = match &self.file {
            _ if self.is_broken => Err(io::Error::other("a sync has failed, and no other segment was begun yet")),
            Some(file) => file.sync_data(),
            None => Ok(()),
        };
        run.map(|()| self.synced).map_err(io_error("sync", &self.path))
    }
}

impl Wal {
    /// Opens the log of a store, or makes it; gives what is in it to `visit`, in the order of writing, and begins a new
    /// segment.
    ///
    /// A head whose rows end without a cut goes on: its next row is coded against its last one. Whoever could not take
    /// all rows of a head calls [`Wal::cut`] before that track's next row.
    ///
    /// # Errors
    /// [`StoreError::Version`], [`StoreError::Io`]. Damage is no error: see [`Recovery`].
    pub fn open(
        lock: &Arc<Lock>,
        segment_bytes: u64,
        visit: impl FnMut(&Source, Entry<'_>),
    ) -> Result<(Self, Recovery), StoreError> {
        let dir = lock.dir().join(DIRECTORY);
        files::make_dir(&dir)?;
        let mut replay = Replay::new(visit).map_err(io_error("take memory for unpacking", &dir))?;
        let mut segments = VecDeque::new();
        for number in files::numbers(&dir, EXTENSION)? {
            segments.push_back((number, replay.segment(&dir, number)?));
        }
        if let Some((last, _)) = segments.back() {
            // Whoever wrote it may have been killed before a sync: what was found whole counts as durable from now on.
            let path = files::numbered(&dir, *last, EXTENSION);
            files::open(&path)?.sync_data().map_err(io_error("sync", &path))?;
        }
        let (recovery, places, next_record) = replay.end();
        let number = segments.back().map_or(1, |(last, _)| last + 1);
        let file = begin_segment(&dir, number, next_record)?;
        segments.push_back((number, Segment::BYTES));
        let building = Builder::new().map_err(io_error("take memory for packing", &dir))?;
        let wal = Self {
            dir,
            _lock: lock.clone(),
            segment_bytes,
            segments,
            file,
            building,
            next_record,
            places,
            covered: recovery.covered.clone(),
            unsynced: Vec::new(),
            written: 0,
            group: Parity::default(),
            out: Vec::new(),
            is_broken: false,
        };
        Ok((wal, recovery))
    }

    /// Enters rows that a track's head has got, into the record that [`Wal::finish`] ends.
    ///
    /// # Errors
    /// [`StoreError::Limit`]: the record has no room for them; nothing was entered.
    pub fn rows(&mut self, track: TrackId, rows: u32, bytes: &[u8]) -> Result<(), StoreError> {
        if rows == 0 {
            return Ok(());
        }
        let place = self.places.get(&track).copied().unwrap_or_default();
        self.push(track, Kind::Rows, rows, place, bytes)?;
        self.places.insert(track, Place { rows: place.rows.saturating_add(rows), ..place });
        Ok(())
    }

    /// Enters that a head was cut: the track's next row is coded against zeros.
    ///
    /// # Errors
    /// [`StoreError::Limit`]: the record has no room for it; nothing was entered.
    pub fn cut(&mut self, track: TrackId) -> Result<(), StoreError> {
        let place = self.places.get(&track).copied().unwrap_or_default();
        self.push(track, Kind::Cut, 0, place, &[])?;
        self.places.insert(track, place.next_head());
        Ok(())
    }

    fn push(&mut self, track: TrackId, kind: Kind, rows: u32, place: Place, body: &[u8]) -> Result<(), StoreError> {
        if self.building.push(track, kind, rows, place, body) {
            return Ok(());
        }
        let got = self.building.raw_bytes() + body.len();
        Err(StoreError::Limit { what: "bytes of a record of the log", limit: MAX_RAW_BYTES, got })
    }

    /// Forgets a track that will have no more rows, after its head was cut.
    pub fn forget(&mut self, track: TrackId) {
        self.places.remove(&track);
    }

    /// Whether the record should be finished before more is entered.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.building.raw_bytes() >= FULL_BYTES
    }

    /// Whether more may be entered: where the disk does not work, it waits in memory, and there is an end to that.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.unsynced.len() < MAX_UNSYNCED_BYTES
    }

    /// Ends the record where it has no room for more: it covers no more of the ring than those before.
    pub fn split(&mut self, shard: u8) {
        let sequence = self.covered.get(&shard).copied().unwrap_or(0);
        self.finish(shard, sequence);
    }

    /// Ends the record of what was entered: it and those before have everything of this shard's ring up to position
    /// `sequence`.
    pub fn finish(&mut self, shard: u8, sequence: u64) {
        let is_known = self.covered.insert(shard, sequence) == Some(sequence);
        if self.building.is_empty() && is_known {
            return;
        }
        self.building.finish(self.next_record, shard, sequence, &mut self.unsynced);
        self.next_record += 1;
    }

    /// Writes all finished records, in a new segment where the current one is full or may have lost something.
    ///
    /// # Errors
    /// [`StoreError::Io`]: what could not be written is written with the next call.
    pub fn write(&mut self) -> Result<(), StoreError> {
        if self.is_broken {
            self.next_segment()?;
            self.is_broken = false;
        } else if self.current().1 >= self.segment_bytes {
            self.roll()?;
        }
        self.out.clear();
        let mut waiting = &self.unsynced[self.written..];
        while let Some((record, rest)) = split(waiting) {
            self.out.extend_from_slice(record.framed);
            self.group.push(record::number(record.payload).unwrap_or(0), record.sum, record.payload);
            if self.group.records == GROUP_RECORDS {
                self.group.finish(&mut self.out);
            }
            waiting = rest;
        }
        if let Err(error) = self.append() {
            // Those of its records that are in the file have no parity then.
            self.group.clear();
            return Err(error);
        }
        self.written = self.unsynced.len();
        Ok(())
    }

    /// Writes `out` to the end of the segment.
    fn append(&mut self) -> Result<(), StoreError> {
        let Some((number, bytes)) = self.segments.back_mut() else { unreachable!("open begins a segment") };
        if let Err(error) = self.file.write_all_at(&self.out, *bytes) {
            // Part of a record must not be taken for the beginning of one; a later attempt writes over it in any case.
            let _ = self.file.set_len(*bytes);
            return Err(io_error("write to", &files::numbered(&self.dir, *number, EXTENSION))(error));
        }
        *bytes += self.out.len() as u64;
        Ok(())
    }

    /// What makes durable everything that is written by now; [`Wal::end_sync`] must be told how it went, before the
    /// next one begins.
    #[must_use]
    pub fn begin_sync(&self) -> Syncing {
        let segment = self.segment_of_now();
        Syncing {
            file: (self.written > 0).then(|| self.file.clone()),
            path: files::numbered(&self.dir, segment, EXTENSION),
            is_broken: self.is_broken,
            synced: Synced { segment, bytes: self.written },
        }
    }

    /// Takes note of a sync that has run. After one that failed, [`Wal::write`] writes it all once more, elsewhere.
    ///
    /// # Errors
    /// The one that it is given: nothing written since the last success may be taken for durable.
    pub fn end_sync(&mut self, outcome: Result<Synced, StoreError>) -> Result<(), StoreError> {
        match outcome {
            Ok(synced) => {
                let bytes = synced.bytes.min(self.written);
                if synced.segment == self.segment_of_now() {
                    self.unsynced.drain(..bytes);
                    self.written -= bytes;
                }
                Ok(())
            }
            Err(error) => {
                self.is_broken = true;
                self.written = 0;
                Err(error)
            }
        }
    }

    /// Makes durable everything that is written by now.
    ///
    /// # Errors
    /// [`StoreError::Io`]: nothing written since the last success may be taken for durable.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.end_sync(self.begin_sync().run())
    }

    /// Begins a new segment, if the current one has anything and all of it is durable; false otherwise.
    ///
    /// # Errors
    /// [`StoreError::Io`]: the current segment goes on then.
    pub fn roll(&mut self) -> Result<bool, StoreError> {
        if self.written > 0 || self.is_broken || self.current().1 <= Segment::BYTES {
            return Ok(false);
        }
        if self.group.records > 0 {
            // It is of use even if it never gets to the disk, so nobody waits for it.
            self.out.clear();
            self.group.finish(&mut self.out);
            self.append()?;
        }
        self.next_segment()?;
        Ok(true)
    }

    fn next_segment(&mut self) -> Result<(), StoreError> {
        // Of a failed sync the first record that is written again.
        let first = split(&self.unsynced).and_then(|(record, _)| record::number(record.payload).ok());
        let number = self.segment_of_now() + 1;
        self.file = begin_segment(&self.dir, number, first.unwrap_or(self.next_record))?;
        self.segments.push_back((number, Segment::BYTES));
        self.group.clear();
        Ok(())
    }

    fn current(&self) -> (u32, u64) {
        self.segments.back().copied().unwrap_or_default()
    }

    /// Number of the segment that is written: what is entered now is in it or in a later one.
    #[must_use]
    pub fn segment_of_now(&self) -> u32 {
        self.current().0
    }

    /// Number of the oldest segment.
    #[must_use]
    pub fn oldest_segment(&self) -> u32 {
        self.segments.front().map_or(0, |(number, _)| *number)
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Deletes the segments before one, but never the one that is written; to be called when all rows that were entered
    /// before it was begun are in warm chunks that are durable. Returns how many bytes went.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn delete_before(&mut self, segment: u32) -> Result<u64, StoreError> {
        let mut freed = 0;
        while let Some((number, bytes)) = self.segments.front().copied()
            && number < segment
            && self.segments.len() > 1
        {
            files::remove(&files::numbered(&self.dir, number, EXTENSION))?;
            self.segments.pop_front();
            freed += bytes;
        }
        Ok(freed)
    }
}

fn begin_segment(dir: &Path, number: u32, first: u64) -> Result<Arc<File>, StoreError> {
    let path = files::numbered(dir, number, EXTENSION);
    let file = files::create(&path)?;
    let mut bytes = Vec::new();
    Segment { version: VERSION, number, first }.append(&mut bytes);
    if let Err(error) = file.write_all_at(&bytes, 0) {
        // The next attempt has the same number.
        let _ = files::remove(&path);
        return Err(io_error("write to", &path)(error));
    }
    Ok(Arc::new(file))
}

/// A record in memory.
struct Framed<'a> {
    framed: &'a [u8],
    payload: &'a [u8],
    sum: u32,
}

/// The first of some records, and the rest.
fn split(records: &[u8]) -> Option<(Framed<'_>, &[u8])> {
    let frame = Frame::parse(records.first_chunk::<HEADER_BYTES>()?).ok()?;
    let (framed, rest) = records.split_at_checked(frame.record_bytes())?;
    let payload = framed.get(HEADER_BYTES..HEADER_BYTES + frame.payload_bytes)?;
    Some((Framed { framed, payload, sum: frame.sum }, rest))
}
