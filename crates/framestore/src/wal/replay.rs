// SPDX-License-Identifier: Apache-2.0
//! Reading the log again: what was written comes back in its order, each row once, and rows that follow lost ones are
//! not taken for what they are not.
//!
//! Records of a group are held back until its parity record has come, so that the one that is damaged takes its place
//! among them again.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;

use zstd::bulk::Decompressor;

use super::record::{ENTRIES, Entries, GROUP_RECORDS, Kind, PARITY, Parity, Place, Raw, SEGMENT, Segment, number};
use super::{EXTENSION, VERSION};
use crate::damage::{Damage, StoreError, io_error};
use crate::framing::{Damaged, Found, Reader, Record, files};
use crate::types::TrackId;

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// Rows, as they stand in their track's head behind those that came before.
    Rows {
        /// Whose.
        track: TrackId,
        /// How many.
        rows: u32,
        /// What is to be appended to the head.
        bytes: &'a [u8],
    },
    /// The head was cut here: what came of it is one chunk, and the next row begins another head. Whether the chunk is
    /// durable, this log does not know.
    Cut {
        /// Whose.
        track: TrackId,
    },
    /// Rows of the head are damaged, or follow such rows of the same head. Like a cut this ends the head; the next row
    /// that comes begins another.
    Lost {
        /// Whose.
        track: TrackId,
        /// How many, as far as is known. What was lost with the beginning and the end of a head nobody has counted.
        rows: u32,
    },
}

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Segment: what [`super::Wal::delete_before`] is told of.
    pub segment: u32,
    /// Whose record.
    pub shard: u8,
    /// Position in the shard's ring up to which the record and those before it have everything.
    pub sequence: u64,
}

/// What a replay found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Records that are whole.
    pub records: u64,
    /// Rows in them that were given to the visitor.
    pub rows: u64,
    /// Of each shard, the position in its ring up to which the log has everything, as its last record says.
    pub covered: BTreeMap<u8, u64>,
    /// Records in which a flipped bit was put right.
    pub mended_records: u64,
    /// Records that are damaged, and were rebuilt from their group.
    pub rebuilt_records: u64,
    /// Records of which nothing is left.
    pub lost_records: u64,
    /// Rows that were lost, as far as is known.
    pub lost_rows: u64,
    /// Rows of heads that began in segments that are deleted: they are in warm chunks.
    pub old_rows: u64,
    /// Segments that nobody has deleted, and that are not there.
    pub missing_segments: u32,
    /// Bytes that are no records, by segment, what a write left that was not ended among them.
    pub damaged: Vec<(u32, Damaged)>,
}

/// A track in a replay.
#[derive(Clone, Copy, Debug)]
struct Progress {
    place: Place,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All rows of the head have come.
    Whole,
    /// Some are lost.
    Broken,
    /// Its beginning was deleted.
    Old,
}

pub(super) struct Replay<V> {
    visit: V,
    pub(super) recovery: Recovery,
    tracks: HashMap<TrackId, Progress>,
    /// Number of the record that comes next; `None` before the first.
    next: Option<u64>,
    /// Something is lost, so that what has no beginning need not be old.
    is_suspicious: bool,
    segment: u32,
    /// Records that wait for their parity.
    group: Vec<(u64, Vec<u8>)>,
    zstd: Decompressor<'static>,
    raw: Vec<u8>,
}

impl<V: FnMut(&Source, Entry<'_>)> Replay<V> {
    pub(super) fn new(visit: V) -> std::io::Result<Self> {
        Ok(Self {
            visit,
            recovery: Recovery::default(),
            tracks: HashMap::new(),
            next: None,
            is_suspicious: false,
            segment: 0,
            group: Vec::new(),
            zstd: Decompressor::new()?,
            raw: Vec::new(),
        })
    }

    /// Where the next row of each track will stand, and the number of the next record.
    pub(super) fn end(self) -> (Recovery, HashMap<TrackId, Place>, u64) {
        let next = |progress: Progress| match progress.state {
            State::Whole => progress.place,
            State::Broken | State::Old => progress.place.next_head(),
        };
        let places = self.tracks.into_iter().map(|(track, progress)| (track, next(progress))).collect();
        (self.recovery, places, self.next.unwrap_or(0))
    }

    /// Reads a segment; they come in the order of their numbers.
    pub(super) fn segment(&mut self, dir: &Path, segment: u32) -> Result<u64, StoreError> {
        let path = files::numbered(dir, segment, EXTENSION);
        self.opened(&files::open(&path)?, &path, segment)
    }

    /// The same of one that is open.
    pub(super) fn opened(&mut self, file: &File, path: &Path, segment: u32) -> Result<u64, StoreError> {
        if self.segment > 0 && segment > self.segment + 1 {
            self.recovery.missing_segments += segment - self.segment - 1;
            self.is_suspicious = true;
        }
        self.segment = segment;
        self.records(file, path)?;
        self.deliver();
        Ok(file.metadata().map_err(io_error("look at", path))?.len())
    }

    fn records(&mut self, file: &File, path: &Path) -> Result<(), StoreError> {
        let mut reader = Reader::new(file).map_err(io_error("read", path))?;
        while let Some(found) = reader.next().map_err(io_error("read", path))? {
            match found {
                Found::Record(record) => {
                    self.recovery.mended_records += u64::from(record.is_mended);
                    match self.record(&record, path) {
                        Ok(()) => {}
                        Err(Refused::Version(error)) => return Err(error),
                        Err(Refused::Damage(damage)) => self.refuse(record.offset, record.payload.len(), damage),
                    }
                }
                Found::Damaged(damaged) => self.damaged(damaged),
            }
        }
        Ok(())
    }

    fn refuse(&mut self, offset: u64, bytes: usize, damage: Damage) {
        self.damaged(Damaged { offset, bytes: bytes as u64, damage, is_torn: false });
    }

    fn damaged(&mut self, damaged: Damaged) {
        // What it was shows in the numbers of those that follow, unless there is none before.
        self.is_suspicious |= self.next.is_none();
        self.recovery.damaged.push((self.segment, damaged));
    }

    fn record(&mut self, record: &Record<'_>, path: &Path) -> Result<(), Refused> {
        match record.kind {
            SEGMENT => self.begin(&Segment::parse(record.payload)?, path),
            ENTRIES => {
                // More than this only come where a parity record is damaged, too.
                if self.group.len() >= 2 * usize::from(GROUP_RECORDS) {
                    self.deliver();
                }
                self.group.push((number(record.payload)?, record.payload.to_vec()));
                Ok(())
            }
            PARITY => {
                if let Some(rebuilt) = Parity::parse(record.payload)?.rebuild(&self.group) {
                    self.recovery.rebuilt_records += 1;
                    let at = self.group.partition_point(|(number, _)| *number < rebuilt.0);
                    self.group.insert(at, rebuilt);
                }
                self.deliver();
                Ok(())
            }
            _ => Err(Damage::Wrong("kind").into()),
        }
    }

    fn begin(&mut self, found: &Segment, path: &Path) -> Result<(), Refused> {
        if found.version != VERSION {
            let (path, found) = (path.to_owned(), found.version);
            return Err(Refused::Version(StoreError::Version { path, found, known: VERSION }));
        }
        if found.number != self.segment {
            return Err(Damage::Wrong("number of the segment").into());
        }
        self.expect(found.first);
        Ok(())
    }

    /// The next record has this number: those between are lost.
    fn expect(&mut self, number: u64) {
        let lost = self.next.map_or(0, |next| number.saturating_sub(next));
        self.recovery.lost_records += lost;
        self.is_suspicious |= lost > 0;
        self.next = Some(self.next.unwrap_or(0).max(number));
    }

    /// Gives what waits to the visitor.
    fn deliver(&mut self) {
        for (number, payload) in std::mem::take(&mut self.group) {
            // After a sync that failed what it should have made durable was written again.
            if self.next.is_some_and(|next| number < next) {
                continue;
            }
            self.expect(number);
            let mut raw = std::mem::take(&mut self.raw);
            match Entries::parse(&payload, &mut self.zstd, &mut raw) {
                Ok(entries) => {
                    self.next = Some(number + 1);
                    self.entries(entries);
                }
                // It was written so: there is no place for it in the file that would say more.
                Err(damage) => self.refuse(0, payload.len(), damage),
            }
            self.raw = raw;
        }
    }

    fn entries(&mut self, entries: Entries<'_>) {
        let source = Source { segment: self.segment, shard: entries.shard, sequence: entries.sequence };
        self.recovery.records += 1;
        self.recovery.covered.insert(entries.shard, entries.sequence);
        // All of them were looked at by `parse`.
        for raw in entries.iter().map_while(Result::ok) {
            self.rows(&source, &raw);
        }
    }

    /// Rows, or the cut that ends a head.
    fn rows(&mut self, source: &Source, raw: &Raw<'_>) {
        let Raw { track, place, rows, .. } = *raw;
        let before = self.tracks.get(&track).copied();
        let state = match before {
            Some(before) if before.place == place => before.state,
            _ if place.rows == 0 && raw.kind == Kind::Rows => {
                // A head begins. That the one before was not cut was lost with its cut.
                if before.is_some_and(|before| before.state == State::Whole && before.place.rows > 0) {
                    self.lose(source, track, 0);
                }
                State::Whole
            }
            None if !self.is_suspicious => State::Old,
            before => {
                let of_head = before.filter(|before| before.place.head == place.head);
                self.lose(source, track, of_head.map_or(0, |before| place.rows.saturating_sub(before.place.rows)));
                State::Broken
            }
        };
        let next = match raw.kind {
            Kind::Cut => Progress { place: place.next_head(), state: State::Whole },
            _ => Progress { place: Place { rows: place.rows.saturating_add(rows), ..place }, state },
        };
        self.tracks.insert(track, next);
        match (state, raw.kind) {
            (State::Whole, Kind::Cut) => (self.visit)(source, Entry::Cut { track }),
            (State::Whole, _) => {
                self.recovery.rows += u64::from(rows);
                (self.visit)(source, Entry::Rows { track, rows, bytes: raw.body });
            }
            (State::Broken, Kind::Cut) => {}
            (State::Broken, _) => self.lose(source, track, rows),
            (State::Old, _) => self.recovery.old_rows += u64::from(rows),
        }
    }

    fn lose(&mut self, source: &Source, track: TrackId, rows: u32) {
        self.recovery.lost_rows += u64::from(rows);
        (self.visit)(source, Entry::Lost { track, rows });
    }
}

/// Why a record is of no use.
enum Refused {
    Damage(Damage),
    /// Another version's: then none is.
    Version(StoreError),
}

impl From<Damage> for Refused {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}
