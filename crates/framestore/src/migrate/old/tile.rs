// SPDX-License-Identifier: Apache-2.0
//! Tiles: consecutive rows of a track by columns, one in a record or many tracks' packed together.
//!
//! ```text
//! tile                        batch
//! 0   track (4)               0   tiles (4)
//! 4   rows (4)                4   bytes of the directory, packed (4)
//! 8   number of the first (8) 8   ... and unpacked (4)
//! 16  earliest time (8)       12  bytes of the bodies, unpacked (4)
//! 24  latest time (8)         16  directory under zstd: columns of tracks, rows, numbers of the first rows, earliest
//! 32  columns (4)                 times, twice the differences to the latest times (and one more where the only two
//! 36  times, columns              rows are in the wrong order), columns, and bytes of bodies
//!                             ..  bodies under zstd: times since the earliest where there are more than two, columns
//! ```

use zstd::bulk::Decompressor;

use super::column;
use crate::damage::Damage;
use crate::framing::MAX_PAYLOAD_BYTES;
use crate::framing::bytes::Input;

const MAX_ROWS: usize = 4096;
const MAX_COLUMNS: usize = 65_536;
/// Tiles of a batch, at most.
const MAX_TILES: usize = 16 << 10;
const DIRECTORY_COLUMNS: usize = 7;

/// What stands before the values.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) track: u32,
    /// Number of the first row.
    pub(super) first: u64,
    rows: usize,
    /// Earliest time.
    pub(super) from_ns: u64,
    /// Latest time.
    pub(super) to_ns: u64,
}

impl Head {
    fn new(track: u32, rows: u64, first: u64, from_ns: u64, to_ns: u64) -> Result<Self, Damage> {
        let rows = usize::try_from(rows).ok().filter(|rows| (1..=MAX_ROWS).contains(rows));
        let rows = rows.filter(|rows| first.checked_add(*rows as u64).is_some()).ok_or(Damage::Wrong("rows"))?;
        Ok(Self { track, first, rows, from_ns, to_ns })
    }

    /// From the front of a tile's record.
    pub(super) fn take(input: &mut Input) -> Result<Self, Damage> {
        let (track, rows) = (input.half()?, input.half()?);
        Self::new(track, rows.into(), input.word()?, input.word()?, input.word()?)
    }

    /// Number of the last row.
    pub(super) fn last(&self) -> u64 {
        self.first + (self.rows as u64 - 1)
    }
}

/// Rows.
pub(super) struct Tile {
    pub(super) track: u32,
    pub(super) first: u64,
    pub(super) times_ns: Vec<u64>,
    pub(super) columns: Vec<Vec<u64>>,
}

impl Tile {
    /// From a record of its own.
    pub(super) fn parse(payload: &[u8]) -> Result<Self, Damage> {
        let mut input = Input(payload);
        let head = Head::take(&mut input)?;
        let columns = input.half()? as usize;
        let times_ns = column::take(&mut input, head.rows)?;
        Self::take(&mut input, &head, columns, times_ns)
    }

    fn take(input: &mut Input, head: &Head, columns: usize, times_ns: Vec<u64>) -> Result<Self, Damage> {
        if columns > MAX_COLUMNS {
            return Err(Damage::Wrong("columns"));
        }
        let columns = (0..columns).map(|_| column::take(input, head.rows)).collect::<Result<_, _>>()?;
        input.end().map(|()| Self { track: head.track, first: head.first, times_ns, columns })
    }
}

struct Entry {
    head: Head,
    columns: usize,
    /// Of its body.
    bytes: usize,
    /// The first row has the latest time.
    is_reversed: bool,
}

impl Entry {
    fn new(words: [u64; DIRECTORY_COLUMNS]) -> Result<Self, Damage> {
        let [track, rows, first, from_ns, length, columns, bytes] = words;
        let narrow = |word: u64| u32::try_from(word).map_err(|_| Damage::Wrong("directory"));
        let to_ns = from_ns.checked_add(length >> 1).ok_or(Damage::Wrong("time"))?;
        let head = Head::new(narrow(track)?, rows, first, from_ns, to_ns)?;
        let (columns, bytes) = (narrow(columns)? as usize, narrow(bytes)? as usize);
        Ok(Self { head, columns, bytes, is_reversed: length & 1 == 1 })
    }

    fn tile(&self, body: &[u8]) -> Result<Tile, Damage> {
        let (mut input, Head { rows, from_ns, to_ns, .. }) = (Input(body), self.head);
        let times_ns = match (rows, self.is_reversed) {
            (1, _) => vec![from_ns],
            (2, false) => vec![from_ns, to_ns],
            (2, true) => vec![to_ns, from_ns],
            _ => {
                let mut times_ns = column::take(&mut input, rows)?;
                times_ns.iter_mut().for_each(|time_ns| *time_ns = time_ns.wrapping_add(from_ns));
                times_ns
            }
        };
        Tile::take(&mut input, &self.head, self.columns, times_ns)
    }
}

/// Tiles of many tracks.
pub(super) struct Batch<'a> {
    entries: Vec<Entry>,
    bodies: &'a [u8],
    bodies_bytes: usize,
}

impl<'a> Batch<'a> {
    /// Reads the directory of a record.
    pub(super) fn parse(payload: &'a [u8]) -> Result<Self, Damage> {
        let mut input = Input(payload);
        let mut length = || input.half().map(|bytes| bytes as usize);
        let (tiles, packed, unpacked, bodies_bytes) = (length()?, length()?, length()?, length()?);
        // A column takes no more than a byte and its words.
        if tiles > MAX_TILES || unpacked > DIRECTORY_COLUMNS * (1 + 8 * tiles) || bodies_bytes > MAX_PAYLOAD_BYTES {
            return Err(Damage::Wrong("length"));
        }
        let directory = unpack(input.take(packed)?, unpacked)?;
        let mut left = Input(&directory);
        let mut columns: [Vec<u64>; DIRECTORY_COLUMNS] = Default::default();
        for column in &mut columns {
            *column = column::take(&mut left, tiles)?;
        }
        left.end()?;
        let entry = |at: usize| Entry::new(columns.each_ref().map(|column| column[at]));
        let entries = (0..tiles).map(entry).collect::<Result<Vec<_>, _>>()?;
        if entries.iter().map(|entry| entry.bytes).sum::<usize>() != bodies_bytes {
            return Err(Damage::Wrong("directory"));
        }
        Ok(Self { entries, bodies: input.0, bodies_bytes })
    }

    pub(super) fn heads(&self) -> impl Iterator<Item = &Head> {
        self.entries.iter().map(|entry| &entry.head)
    }

    /// The tiles of some tracks, those that make sense.
    pub(super) fn tiles(&self, is_wanted: impl Fn(u32) -> bool) -> Result<Vec<Tile>, Damage> {
        let mut tiles = Vec::new();
        if !self.heads().any(|head| is_wanted(head.track)) {
            return Ok(tiles);
        }
        let bodies = unpack(self.bodies, self.bodies_bytes)?;
        let mut left = Input(&bodies);
        for entry in &self.entries {
            let body = left.take(entry.bytes)?;
            if is_wanted(entry.head.track) {
                tiles.extend(entry.tile(body));
            }
        }
        Ok(tiles)
    }
}

fn unpack(packed: &[u8], bytes: usize) -> Result<Vec<u8>, Damage> {
    let unpacked = Decompressor::new().and_then(|mut zstd| zstd.decompress(packed, bytes));
    unpacked.ok().filter(|unpacked| unpacked.len() == bytes).ok_or(Damage::Wrong("packing"))
}
