// SPDX-License-Identifier: Apache-2.0
//! The tiles of many tracks in one record: what one sync makes durable, packed together.
//!
//! A tile of two rows packs badly by itself, and so do the two rows of each of a thousand tracks; together they are mostly the same bytes again, which zstd finds.
//! The directory is apart from the bodies, so that finding out what a batch has costs little.
//!
//! ```text
//! 0   tiles (4)            8   bytes of the directory (4)
//! 4   ... packed (4)       12  bytes of the bodies (4)
//! 16  directory under zstd: columns (as in column.rs) of the tiles' tracks, rows, first sequence numbers, earliest times, twice the differences to the latest times
//!     (and one more where the only two rows are in the wrong order, after a clock was set back), columns, and bytes of their bodies
//! ..  bodies under zstd: of each tile the times since its earliest, where there are more than two, then its columns
//! ```

use zstd::bulk::{Compressor, Decompressor};

use crate::column::{self, Kind};
use crate::error::Damage;
use crate::record::{MAX_COLUMNS, MAX_PAYLOAD_BYTES, MAX_TILE_ROWS, Record, Tile, TileHead, TrackId, encode};
use crate::ring::Ring;

/// A batch is full with so many bytes of bodies: what has to be unpacked for one tile of it.
const FULL_BYTES: usize = 64 << 10;
/// Words that a tile has at most, if it has more than one row.
const TILE_WORDS: usize = 128 << 10;
const HEAD_BYTES: usize = 16;
const HEAD_COLUMNS: usize = 7;
/// Rows whose times the directory has.
const MAX_HEAD_TIMES: u32 = 2;
/// Tiles of a batch at most.
const MAX_TILES: usize = FULL_BYTES / 4;
/// Fast, and nearly as small as others on what is packed already.
const LEVEL: i32 = 1;

/// What packs batches.
pub(crate) struct Packer(Compressor<'static>);

impl Packer {
    pub(crate) fn new() -> std::io::Result<Self> {
        Compressor::new(LEVEL).map(Self)
    }

    fn pack(&mut self, bytes: &[u8]) -> Vec<u8> {
        // It fails for want of room only, and `compress` makes enough.
        self.0.compress(bytes).expect("room for what zstd makes of it at worst")
    }
}

/// A tile of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) head: TileHead,
    pub(crate) columns: u32,
    /// Of its body.
    pub(crate) bytes: u32,
    /// The first row has the latest time.
    is_reversed: bool,
}

/// A batch that is made.
#[derive(Default)]
pub(crate) struct Builder {
    entries: Vec<Entry>,
    bodies: Vec<u8>,
    rows: Vec<u64>,
    column: Vec<u64>,
}

/// Rows that one tile takes of a track.
pub(crate) fn max_rows(columns: usize) -> u64 {
    (TILE_WORDS / (columns + 1)).clamp(1, MAX_TILE_ROWS) as u64
}

impl Builder {
    /// Takes rows of a ring, [`max_rows`] at most. Returns the time of the last one.
    pub(crate) fn push(&mut self, track: TrackId, ring: &Ring, kinds: &[Kind], first: u64, rows: u32) -> u64 {
        let (columns, start) = (kinds.len(), self.bodies.len());
        self.rows.clear();
        self.column.clear();
        let mut row = Vec::with_capacity(columns);
        for sequence in first..first + u64::from(rows) {
            self.column.push(ring.copy(sequence, &mut row));
            self.rows.extend(&row);
        }
        let times = || self.column.iter().copied();
        let head =
            TileHead { track, first, rows, from_ns: times().min().unwrap_or(0), to_ns: times().max().unwrap_or(0) };
        // Of the last row, not the greatest: a clock may have been set back, and rows that come after that are not durable by then.
        let until_ns = times().next_back().unwrap_or(0);
        let is_reversed = times().next() != Some(head.from_ns);
        if rows > MAX_HEAD_TIMES {
            self.column.iter_mut().for_each(|time_ns| *time_ns -= head.from_ns);
            column::encode(Kind::Integer, &self.column, &mut self.bodies);
        }
        for (at, kind) in kinds.iter().enumerate() {
            self.column.clear();
            self.column.extend(self.rows.iter().skip(at).step_by(columns));
            column::encode(*kind, &self.column, &mut self.bodies);
        }
        let bytes = half(self.bodies.len() - start);
        self.entries.push(Entry { head, columns: half(columns), bytes, is_reversed });
        until_ns
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bodies.len() >= FULL_BYTES || self.entries.len() >= MAX_TILES
    }

    /// Appends the batch's record to `out`, gives its tiles back, and begins the next one; `None` where it has none.
    pub(crate) fn finish(&mut self, packer: &mut Packer, out: &mut Vec<u8>) -> Option<Vec<Entry>> {
        if self.entries.is_empty() {
            return None;
        }
        let mut directory = Vec::new();
        for word in [
            (|entry: &Entry| u64::from(entry.head.track.0)) as fn(&Entry) -> u64,
            |entry: &Entry| entry.head.rows.into(),
            |entry: &Entry| entry.head.first,
            |entry: &Entry| entry.head.from_ns,
            |entry: &Entry| (entry.head.to_ns - entry.head.from_ns) << 1 | u64::from(entry.is_reversed),
            |entry: &Entry| entry.columns.into(),
            |entry: &Entry| entry.bytes.into(),
        ] {
            self.column.clear();
            self.column.extend(self.entries.iter().map(word));
            column::encode(Kind::Integer, &self.column, &mut directory);
        }
        let packed = packer.pack(&directory);
        let lengths = [self.entries.len(), packed.len(), directory.len(), self.bodies.len()];
        let mut payload: Vec<u8> = lengths.iter().flat_map(|length| half(*length).to_le_bytes()).collect();
        payload.extend(packed);
        payload.extend(packer.pack(&self.bodies));
        encode(&Record::Batch(payload), &[], out);
        self.bodies.clear();
        Some(std::mem::take(&mut self.entries))
    }
}

fn half(length: usize) -> u32 {
    u32::try_from(length).expect("bounded by a tile's words")
}

/// A batch that is read.
pub(crate) struct Batch<'a> {
    pub(crate) entries: Vec<Entry>,
    bodies: &'a [u8],
    bodies_bytes: usize,
}

impl<'a> Batch<'a> {
    /// Reads the directory from a record's payload.
    pub(crate) fn parse(payload: &'a [u8]) -> Result<Self, Damage> {
        let (head, rest) = payload.split_first_chunk::<HEAD_BYTES>().ok_or(Damage::Record("end"))?;
        let length = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at * 4 + i])) as usize;
        let (tiles, bodies_bytes) = (length(0), length(3));
        // A column of a directory takes no more than a byte and its words.
        if tiles > MAX_TILES || length(2) > HEAD_COLUMNS * (1 + 8 * tiles) || bodies_bytes > MAX_PAYLOAD_BYTES {
            return Err(Damage::Record("length"));
        }
        let (packed, bodies) = rest.split_at_checked(length(1)).ok_or(Damage::Record("end"))?;
        let directory = unpack(packed, length(2))?;
        let mut left = &directory[..];
        let mut columns: [Vec<u64>; HEAD_COLUMNS] = Default::default();
        for column in &mut columns {
            left = column::decode(left, tiles, column)?;
        }
        let entries: Option<Vec<Entry>> =
            (0..tiles).map(|at| entry(columns.each_ref().map(|column| column[at]))).collect();
        let entries = entries.filter(|entries| {
            entries.iter().map(|entry| entry.bytes as usize).sum::<usize>() == bodies_bytes && left.is_empty()
        });
        Ok(Self { entries: entries.ok_or(Damage::Record("directory"))?, bodies, bodies_bytes })
    }

    /// The tiles of one track.
    pub(crate) fn tiles(&self, track: TrackId) -> Result<Vec<Tile>, Damage> {
        let mut tiles = Vec::new();
        if self.entries.iter().all(|entry| entry.head.track != track) {
            return Ok(tiles);
        }
        let bodies = unpack(self.bodies, self.bodies_bytes)?;
        let mut at = 0;
        for entry in &self.entries {
            let end = at + entry.bytes as usize;
            if entry.head.track == track {
                tiles.push(tile(entry, &bodies[at..end])?);
            }
            at = end;
        }
        Ok(tiles)
    }
}

fn entry(words: [u64; HEAD_COLUMNS]) -> Option<Entry> {
    let [track, rows, first, from_ns, length, columns, bytes] = words;
    let narrow = |word: u64| u32::try_from(word).ok();
    let rows = narrow(rows).filter(|rows| (1..=MAX_TILE_ROWS).contains(&(*rows as usize)))?;
    let columns = narrow(columns).filter(|columns| *columns as usize <= MAX_COLUMNS)?;
    first.checked_add(rows.into())?;
    let head =
        TileHead { track: TrackId(narrow(track)?), first, rows, from_ns, to_ns: from_ns.checked_add(length >> 1)? };
    Some(Entry { head, columns, bytes: narrow(bytes)?, is_reversed: length & 1 == 1 })
}

fn tile(entry: &Entry, body: &[u8]) -> Result<Tile, Damage> {
    let (rows, TileHead { from_ns, to_ns, .. }) = (entry.head.rows as usize, entry.head);
    let mut rest = body;
    let mut times_ns = match (rows, entry.is_reversed) {
        (1, _) => vec![from_ns],
        (2, false) => vec![from_ns, to_ns],
        (2, true) => vec![to_ns, from_ns],
        _ => Vec::with_capacity(rows),
    };
    if times_ns.is_empty() {
        rest = column::decode(body, rows, &mut times_ns)?;
        times_ns.iter_mut().for_each(|time_ns| *time_ns = time_ns.wrapping_add(from_ns));
    }
    let mut columns = Vec::new();
    for _ in 0..entry.columns {
        let mut values = Vec::with_capacity(rows);
        rest = column::decode(rest, rows, &mut values)?;
        columns.push(values);
    }
    if !rest.is_empty() {
        return Err(Damage::Record("end"));
    }
    Ok(Tile { track: entry.head.track, first: entry.head.first, times_ns, columns })
}

fn unpack(packed: &[u8], bytes: usize) -> Result<Vec<u8>, Damage> {
    let unpacked = Decompressor::new().and_then(|mut zstd| zstd.decompress(packed, bytes));
    unpacked.ok().filter(|unpacked| unpacked.len() == bytes).ok_or(Damage::Record("packing"))
}
