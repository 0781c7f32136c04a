// SPDX-License-Identifier: Apache-2.0
//! The store of the version before, as far as it is read: what its tracks are, a log of tiles, and hot rows.
//!
//! ```text
//! *.olog           segments of the log: records of `framing`, with a magic of their own and without a second sum
//!   1 segment      format version (4), number (4); the first record of each file
//!   2 definition   track (4), columns (4), a byte each, description (`description`); here until version 2
//!   3 tile         rows of a track (`tile`); until version 2
//!   4 gap          track (4), from (8), to (8), reason
//!   5 leaf         where tiles are; until version 2, and of no use here
//!   6 batch        tiles of many tracks (`tile`)
//! definitions-a    segment and definitions
//! definitions-b    the same again
//! hot              rows that are not in the log yet (`hot`)
//! ```
//! Each row of a track has a number, one more than the row before. Whatever is damaged leaves numbers out, which
//! becomes a gap. The first rows are missing without a gap: they were deleted with their segment.
//!
//! Cost: all of the log is read once, and its batches once more for each group of tracks that is read.

mod column;
mod description;
mod hot;
#[cfg(test)]
mod tests;
mod tile;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use self::hot::{Hot, Ring};
use self::tile::{Batch, Head, Tile};
use crate::damage::{Damage, StoreError, io_error};
use crate::framing::bytes::Input;
use crate::framing::files::{numbered, numbers, open_to_read};
use crate::framing::{Form, Found, HEADER_BYTES, Reader};
use crate::store::DAMAGED;
use crate::types::{Gap, TrackId};

pub(super) use self::description::Description;

/// How the log's files are called, and both files of definitions.
pub(super) const EXTENSION: &str = "olog";
pub(super) const DEFINITIONS: [&str; 2] = ["definitions-a", "definitions-b"];
pub(super) const HOT: &str = "hot";

const FORM: Form = Form { magic: *b"OLR1", has_second_sum: false };
/// The last format that there was; all before it are read, too.
const VERSION: u32 = 3;
const SEGMENT: u8 = 1;
const DEFINITION: u8 = 2;
const TILE: u8 = 3;
const GAP: u8 = 4;
const BATCH: u8 = 6;

/// Where a record is.
#[derive(Clone, Copy)]
struct Place {
    segment: u32,
    offset: u64,
    bytes: u64,
}

/// A batch, and the least and the greatest track that has rows in it.
struct BatchRef {
    place: Place,
    first_track: u32,
    last_track: u32,
}

/// What is there of a track.
#[derive(Default)]
pub(super) struct Track {
    pub(super) columns: usize,
    described: Vec<u8>,
    /// Gaps that were told.
    pub(super) gaps: Vec<Gap>,
    tiles: Vec<Place>,
    /// Number of the first row in the log, and its time.
    first: Option<(u64, u64)>,
    /// Number of the last row in the log, and its time.
    last: (u64, u64),
    ring: Option<Ring>,
}

impl Track {
    /// What it is; `None` where nobody can tell.
    pub(super) fn description(&self) -> Option<Description> {
        Description::unpack(&self.described)
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.gaps.is_empty() && self.ring.is_none()
    }

    fn define(&mut self, columns: usize, described: &[u8]) {
        (self.columns, self.described) = (columns, described.to_vec());
    }

    fn count(&mut self, head: &Head) {
        self.first.get_or_insert((head.first, head.from_ns));
        self.last = self.last.max((head.last(), head.to_ns));
    }
}

/// The store.
pub(super) struct Old {
    dir: PathBuf,
    hot: Option<Hot>,
    tracks: BTreeMap<u32, Track>,
    batches: Vec<BatchRef>,
}

impl Old {
    /// Looks through a store. Damage is no error: what it has hit is missing.
    ///
    /// # Errors
    /// [`StoreError::Version`], [`StoreError::Io`].
    pub(super) fn open(dir: &Path) -> Result<Self, StoreError> {
        let hot = Hot::open(&dir.join(HOT))?;
        let mut old = Self { dir: dir.to_owned(), hot, tracks: BTreeMap::new(), batches: Vec::new() };
        for segment in numbers(dir, EXTENSION)? {
            scan(&numbered(dir, segment, EXTENSION), |offset, kind, payload| {
                // A payload that is whole and makes no sense is damage, too.
                let _ = old.take(Place { segment, offset, bytes: payload.len() as u64 }, kind, payload);
            })?;
        }
        for name in DEFINITIONS {
            scan(&dir.join(name), |_, kind, payload| {
                let _ = if kind == DEFINITION { old.take_definition(payload) } else { Ok(()) };
            })?;
        }
        old.adopt_rings()?;
        old.tracks.retain(|_, track| !track.is_empty());
        Ok(old)
    }

    /// All tracks of which there is anything, by their numbers.
    pub(super) fn tracks(&self) -> impl Iterator<Item = (u32, &Track)> {
        self.tracks.iter().map(|(id, track)| (*id, track))
    }

    fn track(&mut self, id: u32) -> &mut Track {
        self.tracks.entry(id).or_default()
    }

    fn take(&mut self, place: Place, kind: u8, payload: &[u8]) -> Result<(), Damage> {
        match kind {
            DEFINITION => self.take_definition(payload)?,
            TILE => {
                let head = Head::take(&mut Input(payload))?;
                let track = self.track(head.track);
                track.count(&head);
                track.tiles.push(place);
            }
            GAP => {
                let mut input = Input(payload);
                let (id, from_ns, to_ns) = (input.half()?, input.word()?, input.word()?);
                let reason = String::from_utf8_lossy(input.0).into_owned();
                self.track(id).gaps.push(Gap { track: TrackId(id), of: None, from_ns, to_ns, reason });
            }
            BATCH => {
                let found = Batch::parse(payload)?;
                found.heads().for_each(|head| self.track(head.track).count(head));
                let tracks = || found.heads().map(|head| head.track);
                let ends = tracks().min().zip(tracks().max());
                let batch = ends.map(|(first_track, last_track)| BatchRef { place, first_track, last_track });
                self.batches.extend(batch);
            }
            _ => {}
        }
        Ok(())
    }

    fn take_definition(&mut self, payload: &[u8]) -> Result<(), Damage> {
        let mut input = Input(payload);
        let (id, columns) = (input.half()?, input.half()? as usize);
        input.take(columns)?;
        self.track(id).define(columns, input.0);
        Ok(())
    }

    /// Gives rings to their tracks, where they have rows that the log does not have.
    fn adopt_rings(&mut self) -> Result<(), StoreError> {
        let Some(hot) = &self.hot else { return Ok(()) };
        for ring in hot.rings()? {
            let Some(track) = self.tracks.get_mut(&ring.track()) else { continue };
            let is_its = ring.is_of(track.columns, &track.described) && track.ring.is_none();
            if is_its && !hot.rows(&ring, track.last.0)?.is_empty() {
                track.ring = Some(ring);
            }
        }
        Ok(())
    }

    /// Gives the rows of some tracks, from `first` to `last`, to `visit`: track, time and values, those of each track
    /// in the order in which they were appended. What was damaged among them is returned.
    ///
    /// # Errors
    /// [`StoreError::Io`], and what `visit` returns.
    pub(super) fn read(
        &self,
        (first, last): (u32, u32),
        mut visit: impl FnMut(u32, u64, &[u64]) -> Result<(), StoreError>,
    ) -> Result<Vec<Gap>, StoreError> {
        let tracks = || self.tracks.range(first..=last);
        let mut rows: BTreeMap<u32, Rows> = tracks().map(|(id, track)| (*id, Rows::of(*id, track))).collect();
        let mut files = Files { dir: &self.dir, open: None };
        let mut give = |tile: Tile| match rows.get_mut(&tile.track) {
            Some(rows) => rows.give_tile(&tile, &mut visit),
            None => Ok(()),
        };
        for place in tracks().flat_map(|(_, track)| &track.tiles) {
            files.read(*place, Tile::parse)?.into_iter().try_for_each(&mut give)?;
        }
        for batch in self.batches.iter().filter(|batch| batch.first_track <= last && batch.last_track >= first) {
            let is_wanted = |track| (first..=last).contains(&track);
            let tiles = files.read(batch.place, |payload| Batch::parse(payload)?.tiles(is_wanted))?;
            tiles.into_iter().flatten().try_for_each(&mut give)?;
        }
        let mut damaged = Vec::new();
        for (mut rows, (_, track)) in rows.into_values().zip(tracks()) {
            rows.skip_to(track.last.0 + 1, track.last.1);
            if let (Some(hot), Some(ring)) = (&self.hot, &track.ring) {
                for row in hot.rows(ring, track.last.0)? {
                    rows.give(row.number, row.time_ns, &row.values, &mut visit)?;
                }
            }
            damaged.append(&mut rows.damaged);
        }
        Ok(damaged)
    }
}

/// Gives every whole record of a file to `visit`: offset, kind and payload.
fn scan(path: &Path, mut visit: impl FnMut(u64, u8, &[u8])) -> Result<(), StoreError> {
    let Some(file) = open_to_read(path)? else { return Ok(()) };
    let mut reader = Reader::new(&file).map_err(io_error("read", path))?.in_form(FORM);
    while let Some(found) = reader.next().map_err(io_error("read", path))? {
        let Found::Record(record) = found else { continue };
        if let (SEGMENT, Ok(found)) = (record.kind, Input(record.payload).half())
            && !(1..=VERSION).contains(&found)
        {
            return Err(StoreError::Version { path: path.to_owned(), found, known: VERSION });
        }
        visit(record.offset, record.kind, record.payload);
    }
    Ok(())
}

/// The log's files, one of which is open.
struct Files<'a> {
    dir: &'a Path,
    open: Option<(u32, File)>,
}

impl Files<'_> {
    /// What a record says; `None` where that makes no sense.
    fn read<T>(
        &mut self,
        place: Place,
        decode: impl FnOnce(&[u8]) -> Result<T, Damage>,
    ) -> Result<Option<T>, StoreError> {
        let path = numbered(self.dir, place.segment, EXTENSION);
        let file = match self.open.take().filter(|(number, _)| *number == place.segment) {
            Some((_, file)) => file,
            None => File::open(&path).map_err(io_error("open", &path))?,
        };
        let file = &self.open.insert((place.segment, file)).1;
        let end = place.offset + HEADER_BYTES as u64 + place.bytes;
        let mut reader = Reader::between(file, place.offset, end).map_err(io_error("read", &path))?.in_form(FORM);
        match reader.next().map_err(io_error("read", &path))? {
            Some(Found::Record(record)) => Ok(decode(record.payload).ok()),
            _ => Ok(None),
        }
    }
}

/// The rows of a track, one after another.
struct Rows {
    track: u32,
    columns: usize,
    /// Number of the row that comes next; 0: whichever is the first.
    next: u64,
    /// Time of the last row.
    until_ns: u64,
    damaged: Vec<Gap>,
}

type Visit<'a> = &'a mut dyn FnMut(u32, u64, &[u64]) -> Result<(), StoreError>;

impl Rows {
    fn of(id: u32, track: &Track) -> Self {
        let (next, until_ns) = track.first.unwrap_or_default();
        Self { track: id, columns: track.columns, next, until_ns, damaged: Vec::new() }
    }

    fn give_tile(&mut self, tile: &Tile, visit: Visit) -> Result<(), StoreError> {
        if tile.columns.len() != self.columns {
            return Ok(());
        }
        let mut values = Vec::with_capacity(self.columns);
        for ((row, time_ns), number) in tile.times_ns.iter().enumerate().zip(tile.first..) {
            values.clear();
            values.extend(tile.columns.iter().map(|column| column[row]));
            self.give(number, *time_ns, &values, visit)?;
        }
        Ok(())
    }

    /// A row that was sealed twice is there once.
    fn give(&mut self, number: u64, time_ns: u64, values: &[u64], visit: Visit) -> Result<(), StoreError> {
        if number < self.next {
            return Ok(());
        }
        self.skip_to(number, time_ns);
        (self.next, self.until_ns) = (number + 1, time_ns);
        visit(self.track, time_ns, values)
    }

    /// Nothing comes before row `number` any more.
    fn skip_to(&mut self, number: u64, time_ns: u64) {
        if self.next > 0 && number > self.next {
            let (track, reason) = (TrackId(self.track), DAMAGED.to_owned());
            self.damaged.push(Gap { track, of: None, from_ns: self.until_ns, to_ns: time_ns, reason });
            (self.next, self.until_ns) = (number, time_ns);
        }
    }
}
