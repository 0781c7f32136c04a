// SPDX-License-Identifier: Apache-2.0
//! Records of the log: framed so that a cut loses what lies after it and a flipped bit one record.
//!
//! ```text
//! 0   magic (4)            8   length of the payload (4)      16  header's own CRC-32C (4), over bytes 0-15
//! 4   kind (1), zero (3)   12  payload's CRC-32C (4)          20  zero (4)
//! 24  payload, zero padded to a multiple of 8
//! ```
//! Numbers are little-endian. Records begin at multiples of 8, so that a reader who has lost the thread finds the next one by looking.

use crate::column::{self, Kind};
use crate::error::Damage;

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 24;
/// Largest payload: a tile of 4096 rows of 1000 columns, and some.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 20;
/// Largest number of rows of a tile.
pub const MAX_TILE_ROWS: usize = 4096;
/// Largest number of columns of a track.
pub const MAX_COLUMNS: usize = 65_536;
/// Longest meta text of a definition.
pub const MAX_META_BYTES: usize = 1 << 20;
const MAGIC: [u8; 4] = *b"OLR1";

/// Number of a track: a series of rows of one region, or of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(pub u32);

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// First record of a segment.
    Segment {
        /// Format version.
        version: u32,
        /// Number of the segment.
        number: u32,
    },
    /// A track.
    Definition {
        /// Its number.
        track: TrackId,
        /// Its columns.
        columns: Vec<Kind>,
        /// What the store's user says of it.
        meta: Vec<u8>,
    },
    /// Rows.
    Tile(Tile),
    /// Rows that are not there.
    Gap(Gap),
    /// Where tiles of a track are: a table with a row for each. Only in logs of version 2.
    Leaf(Tile),
    /// Tiles of many tracks, packed (`batch.rs`).
    Batch(Vec<u8>),
}

/// Consecutive rows of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Which track.
    pub track: TrackId,
    /// Sequence number of the first row.
    pub first: u64,
    /// Time of each row, ns.
    pub times_ns: Vec<u64>,
    /// Values by column.
    pub columns: Vec<Vec<u64>>,
}

/// A time without rows, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Which track.
    pub track: TrackId,
    /// Beginning, ns.
    pub from_ns: u64,
    /// End, ns.
    pub to_ns: u64,
    /// Reason, a word.
    pub reason: String,
}

/// What a tile's payload begins with, enough for an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileHead {
    /// Which track.
    pub track: TrackId,
    /// Sequence number of the first row.
    pub first: u64,
    /// Rows.
    pub rows: u32,
    /// Earliest time of a row, ns: the first one's, unless a clock was set back.
    pub from_ns: u64,
    /// Latest time of a row, ns.
    pub to_ns: u64,
}

const SEGMENT: u8 = 1;
const DEFINITION: u8 = 2;
const TILE: u8 = 3;
const GAP: u8 = 4;
const LEAF: u8 = 5;
const BATCH: u8 = 6;
const TILE_HEAD_BYTES: usize = 36;

/// Appends a whole record.
///
/// `kinds` are the columns' kinds of a tile or leaf, and unused otherwise.
pub fn encode(record: &Record, kinds: &[Kind], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    let kind = match record {
        Record::Segment { version, number } => {
            out.extend([version, number].iter().flat_map(|half| half.to_le_bytes()));
            SEGMENT
        }
        Record::Definition { track, columns, meta } => {
            out.extend([track.0, count(columns.len())].iter().flat_map(|half| half.to_le_bytes()));
            out.extend(columns.iter().map(|kind| u8::from(*kind == Kind::Float)));
            out.extend(meta);
            DEFINITION
        }
        Record::Tile(tile) | Record::Leaf(tile) => {
            out.extend([tile.track.0, count(tile.times_ns.len())].iter().flat_map(|half| half.to_le_bytes()));
            let times = || tile.times_ns.iter().copied();
            let head = [tile.first, times().min().unwrap_or(0), times().max().unwrap_or(0)];
            out.extend(head.iter().flat_map(|word| word.to_le_bytes()));
            out.extend(count(tile.columns.len()).to_le_bytes());
            column::encode(Kind::Integer, &tile.times_ns, out);
            for (column, kind) in tile.columns.iter().zip(kinds) {
                column::encode(*kind, column, out);
            }
            if matches!(record, Record::Leaf(_)) { LEAF } else { TILE }
        }
        Record::Gap(gap) => {
            out.extend(gap.track.0.to_le_bytes());
            out.extend([gap.from_ns, gap.to_ns].iter().flat_map(|word| word.to_le_bytes()));
            out.extend(gap.reason.as_bytes());
            GAP
        }
        Record::Batch(payload) => {
            out.extend(payload);
            BATCH
        }
    };
    let payload = crc32c::crc32c(&out[start + HEADER_BYTES..]);
    let length = count(out.len() - start - HEADER_BYTES);
    let header = &mut out[start..start + HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4] = kind;
    header[8..12].copy_from_slice(&length.to_le_bytes());
    header[12..16].copy_from_slice(&payload.to_le_bytes());
    let own = crc32c::crc32c(&header[..16]);
    header[16..20].copy_from_slice(&own.to_le_bytes());
    out.resize(start + padded(out.len() - start), 0);
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("bounded by MAX_PAYLOAD_BYTES")
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(8)
}

/// A record's frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    kind: u8,
    payload_crc: u32,
    /// Length of its payload.
    pub payload_bytes: usize,
}

impl Frame {
    /// From the first [`HEADER_BYTES`] of a record.
    ///
    /// # Errors
    /// [`Damage`]: no record begins here.
    pub fn parse(header: &[u8; HEADER_BYTES]) -> Result<Self, Damage> {
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        if header[..4] != MAGIC || half(16) != crc32c::crc32c(&header[..16]) {
            return Err(Damage::Record("header"));
        }
        let payload_bytes = half(8) as usize;
        if payload_bytes > MAX_PAYLOAD_BYTES {
            return Err(Damage::Record("length"));
        }
        Ok(Self { kind: header[4], payload_crc: half(12), payload_bytes })
    }

    /// Bytes of the whole record.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        HEADER_BYTES + padded(self.payload_bytes)
    }

    /// Whether it is a tile.
    #[must_use]
    pub fn is_tile(&self) -> bool {
        self.kind == TILE
    }

    /// Whether it is a batch of tiles.
    #[must_use]
    pub fn is_batch(&self) -> bool {
        self.kind == BATCH
    }

    /// Whether it lists tiles.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        self.kind == LEAF
    }

    /// Checks a payload against the frame's sum.
    ///
    /// # Errors
    /// [`Damage::Checksum`].
    pub fn check(&self, payload: &[u8]) -> Result<(), Damage> {
        if crc32c::crc32c(payload) == self.payload_crc { Ok(()) } else { Err(Damage::Checksum) }
    }

    /// Decodes a checked payload.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn decode(&self, payload: &[u8]) -> Result<Record, Damage> {
        let mut input = Payload(payload);
        match self.kind {
            SEGMENT => Ok(Record::Segment { version: input.half()?, number: input.half()? }),
            DEFINITION => {
                let (track, columns) = (TrackId(input.half()?), input.half()? as usize);
                let (kinds, meta) = input.0.split_at_checked(columns).ok_or(Damage::Record("columns"))?;
                let columns = kinds.iter().map(|kind| if *kind == 0 { Kind::Integer } else { Kind::Float }).collect();
                Ok(Record::Definition { track, columns, meta: meta.to_vec() })
            }
            TILE => decode_tile(payload).map(Record::Tile),
            LEAF => decode_tile(payload).map(Record::Leaf),
            BATCH => Ok(Record::Batch(payload.to_vec())),
            GAP => {
                let (track, from_ns, to_ns) = (TrackId(input.half()?), input.word()?, input.word()?);
                let reason = String::from_utf8_lossy(input.0).into_owned();
                Ok(Record::Gap(Gap { track, from_ns, to_ns, reason }))
            }
            _ => Err(Damage::Record("kind")),
        }
    }
}

struct Payload<'a>(&'a [u8]);

impl Payload<'_> {
    fn half(&mut self) -> Result<u32, Damage> {
        let (half, rest) = self.0.split_first_chunk().ok_or(Damage::Record("end"))?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*half))
    }

    fn word(&mut self) -> Result<u64, Damage> {
        let (word, rest) = self.0.split_first_chunk().ok_or(Damage::Record("end"))?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }
}

impl TileHead {
    /// Reads it from a tile's payload.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn parse(payload: &[u8]) -> Result<Self, Damage> {
        let mut input = Payload(payload);
        let (track, rows) = (TrackId(input.half()?), input.half()?);
        if rows == 0 || rows as usize > MAX_TILE_ROWS {
            return Err(Damage::Record("rows"));
        }
        let (first, from_ns, to_ns) = (input.word()?, input.word()?, input.word()?);
        Ok(Self { track, first, rows, from_ns, to_ns })
    }
}

fn decode_tile(payload: &[u8]) -> Result<Tile, Damage> {
    let head = TileHead::parse(payload)?;
    let mut input = Payload(payload.get(TILE_HEAD_BYTES - 4..).ok_or(Damage::Record("end"))?);
    let count = input.half()? as usize;
    if count > MAX_COLUMNS {
        return Err(Damage::Record("columns"));
    }
    let rows = head.rows as usize;
    let mut times_ns = Vec::with_capacity(rows);
    let mut rest = column::decode(input.0, rows, &mut times_ns)?;
    let mut columns = Vec::new();
    for _ in 0..count {
        let mut values = Vec::with_capacity(rows);
        rest = column::decode(rest, rows, &mut values)?;
        columns.push(values);
    }
    if !rest.is_empty() {
        return Err(Damage::Record("end"));
    }
    Ok(Tile { track: head.track, first: head.first, times_ns, columns })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Record> {
        vec![
            Record::Segment { version: 1, number: 7 },
            Record::Definition {
                track: TrackId(3),
                columns: vec![Kind::Integer, Kind::Float],
                meta: b"{\"host\":\"a\"}".to_vec(),
            },
            Record::Tile(Tile {
                track: TrackId(3),
                first: 40,
                times_ns: (0..100).map(|i| 1_700_000_000_000_000_000 + i * 10_000_000).collect(),
                columns: vec![(0..100).map(|i| i * i).collect(), (0..100).map(|i| f64::from(i).to_bits()).collect()],
            }),
            Record::Gap(Gap { track: TrackId(3), from_ns: 5, to_ns: 9, reason: "timeout".into() }),
        ]
    }

    const KINDS: [Kind; 2] = [Kind::Integer, Kind::Float];

    fn decode(bytes: &[u8]) -> Result<Record, Damage> {
        let frame = Frame::parse(bytes[..HEADER_BYTES].try_into().unwrap())?;
        let payload = &bytes[HEADER_BYTES..][..frame.payload_bytes];
        frame.check(payload)?;
        assert_eq!(frame.record_bytes(), bytes.len());
        frame.decode(payload)
    }

    #[test]
    fn records_come_back() {
        for record in samples() {
            let mut bytes = Vec::new();
            encode(&record, &KINDS, &mut bytes);
            assert_eq!(bytes.len() % 8, 0);
            assert_eq!(decode(&bytes).unwrap(), record);
            if let Record::Tile(tile) = &record {
                let head = TileHead::parse(&bytes[HEADER_BYTES..]).unwrap();
                let ends = (tile.times_ns[0], tile.times_ns[99]);
                assert_eq!(
                    (head.track, head.first, head.rows, (head.from_ns, head.to_ns)),
                    (tile.track, 40, 100, ends)
                );
                assert!(bytes.len() < 100 * 8, "two columns and times in less than one raw column: {}", bytes.len());
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for record in samples() {
            let mut bytes = Vec::new();
            encode(&record, &KINDS, &mut bytes);
            let frame = Frame::parse(bytes[..HEADER_BYTES].try_into().unwrap()).unwrap();
            // Bytes 20-23 and the padding carry nothing.
            let end = HEADER_BYTES + frame.payload_bytes;
            for bit in (0..20 * 8).chain(HEADER_BYTES * 8..end * 8) {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(&bytes).is_err(), "bit {bit} of {record:?}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn payloads_that_lie_are_errors() {
        bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(kind, payload)| {
            let frame = Frame { kind: kind % 7, payload_crc: 0, payload_bytes: payload.len() };
            let _ = frame.decode(payload);
            let _ = TileHead::parse(payload);
            if let Ok(batch) = crate::batch::Batch::parse(payload) {
                let _ = batch.entries.first().map(|entry| batch.tiles(entry.head.track));
            }
        });
    }
}
