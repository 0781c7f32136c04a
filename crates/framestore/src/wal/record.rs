// SPDX-License-Identifier: Apache-2.0
//! What stands in a record of the log, and in the record that can stand in for one of a group.
//!
//! ```text
//! entries   number of the record, position in the ring, shard, bytes of what is packed, entries (varints), then
//!           under zstd: five columns, each a varint an entry, then the bodies
//! columns   track: zigzag of the difference to the entry before; rows * 4 + kind; number of the head;
//!           rows of the head before; bytes of the body
//! bodies    rows as they stand in their head
//! parity    0   first record (8)               12  lengths xor (4)
//!           8   records (1), zero (3)          16  CRC-32Cs xor (4), zero (4)
//!                                              24  payloads xor
//! ```
//! Columns and not entry by entry: most tracks have as many rows, and are as far with their heads, as the one before,
//! which zstd then has for nearly nothing.

use zstd::bulk::{Compressor, Decompressor};

use crate::damage::Damage;
use crate::framing::bytes::{Input, put_unsigned};
use crate::framing::{self, HEADER_BYTES};
use crate::types::TrackId;

/// What is packed in a record at most: bounds what is unpacked.
pub(super) const MAX_RAW_BYTES: usize = 16 << 20;
/// Records of a group.
pub(super) const GROUP_RECORDS: u8 = 16;

pub(super) const SEGMENT: u8 = 1;
pub(super) const ENTRIES: u8 = 2;
pub(super) const PARITY: u8 = 3;

const COLUMNS: usize = 5;
const PARITY_HEAD_BYTES: usize = 24;
/// Fast; more takes several times as long for a tenth less.
const LEVEL: i32 = 1;

/// Where a track's next row stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of the head, of those of its track: one more with each cut.
    pub(super) head: u16,
    /// Rows of the head before it.
    pub(super) rows: u32,
}

impl Place {
    /// The first row of the next head.
    pub(super) fn next_head(self) -> Self {
        Self { head: self.head.wrapping_add(1), rows: 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rows,
    Cut,
}

/// An entry as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw<'a> {
    pub(super) track: TrackId,
    pub(super) kind: Kind,
    pub(super) rows: u32,
    pub(super) place: Place,
    pub(super) body: &'a [u8],
}

/// A record that is made.
pub(super) struct Builder {
    columns: [Vec<u8>; COLUMNS],
    bodies: Vec<u8>,
    entries: u32,
    last_track: u32,
    zstd: Compressor<'static>,
    /// Of both, reused: what is packed, and what it becomes.
    raw: Vec<u8>,
    packed: Vec<u8>,
}

impl Builder {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            columns: Default::default(),
            bodies: Vec::new(),
            entries: 0,
            last_track: 0,
            zstd: Compressor::new(LEVEL)?,
            raw: Vec::new(),
            packed: Vec::new(),
        })
    }

    /// Bytes of what is to be packed.
    pub(super) fn raw_bytes(&self) -> usize {
        self.columns.iter().map(Vec::len).sum::<usize>() + self.bodies.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Takes an entry; false if it has no room.
    pub(super) fn push(&mut self, track: TrackId, kind: Kind, rows: u32, place: Place, body: &[u8]) -> bool {
        const WIDEST_BYTES: usize = COLUMNS * 10;
        let start = self.bodies.len();
        if self.raw_bytes() + body.len() + WIDEST_BYTES > MAX_RAW_BYTES {
            return false;
        }
        self.bodies.extend_from_slice(body);
        let difference = i64::from(track.0) - i64::from(self.last_track);
        let words = [
            (difference << 1 ^ difference >> 63).cast_unsigned(),
            u64::from(rows) << 2 | kind as u64,
            place.head.into(),
            place.rows.into(),
            (self.bodies.len() - start) as u64,
        ];
        self.columns.iter_mut().zip(words).for_each(|(column, word)| put_unsigned(word, column));
        self.last_track = track.0;
        self.entries += 1;
        true
    }

    /// Appends the record, framed, to `out`, and begins the next one.
    pub(super) fn finish(&mut self, number: u64, shard: u8, sequence: u64, out: &mut Vec<u8>) {
        self.raw.clear();
        self.columns.iter_mut().chain([&mut self.bodies]).for_each(|piece| {
            self.raw.append(piece);
        });
        self.packed.clear();
        self.packed.reserve(zstd::zstd_safe::compress_bound(self.raw.len()));
        let packed = self.zstd.compress_to_buffer(&self.raw, &mut self.packed);
        packed.expect("it fails for want of room only, and there is as much as it takes at worst");
        let start = framing::begin(out);
        for word in [number, sequence, shard.into(), self.raw.len() as u64, self.entries.into()] {
            put_unsigned(word, out);
        }
        out.extend_from_slice(&self.packed);
        framing::end(start, ENTRIES, out);
        (self.entries, self.last_track) = (0, 0);
    }
}

/// Number of the record that has this payload.
pub(super) fn number(payload: &[u8]) -> Result<u64, Damage> {
    Input(payload).unsigned().and_then(in_range)
}

/// Numbers that one can be added to for ever.
fn in_range(number: u64) -> Result<u64, Damage> {
    if number < u64::MAX / 2 { Ok(number) } else { Err(Damage::Wrong("number of the record")) }
}

/// A record that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries<'a> {
    pub(super) shard: u8,
    pub(super) sequence: u64,
    entries: usize,
    columns: [Input<'a>; COLUMNS],
    bodies: Input<'a>,
}

impl<'a> Entries<'a> {
    /// Reads a payload and unpacks it into `raw`.
    pub(super) fn parse(
        payload: &[u8],
        zstd: &mut Decompressor<'static>,
        raw: &'a mut Vec<u8>,
    ) -> Result<Self, Damage> {
        let mut input = Input(payload);
        let (_, sequence, shard) = (input.unsigned()?, input.unsigned()?, input.unsigned()?);
        let shard = u8::try_from(shard).map_err(|_| Damage::Wrong("shard"))?;
        let (raw_bytes, entries) = (input.unsigned()?, input.unsigned()?);
        // Each entry has a byte a column at least.
        if raw_bytes > MAX_RAW_BYTES as u64 || entries > raw_bytes / COLUMNS as u64 {
            return Err(Damage::Wrong("length"));
        }
        let short = |length| usize::try_from(length).map_err(|_| Damage::Wrong("length"));
        let (raw_bytes, entries) = (short(raw_bytes)?, short(entries)?);
        raw.clear();
        raw.reserve(raw_bytes);
        let unpacked = zstd.decompress_to_buffer(input.0, raw);
        if unpacked.ok() != Some(raw_bytes) {
            return Err(Damage::Wrong("packing"));
        }
        let mut rest = &raw[..];
        let columns = [(); COLUMNS].map(|()| {
            let column = Input(rest);
            rest = skip(rest, entries);
            column
        });
        let all = Self { shard, sequence, entries, columns, bodies: Input(rest) };
        // What is wrong with one is found before anybody has heard of any.
        let mut left = Input(rest);
        for entry in all.iter() {
            left.bytes(entry?.body.len() as u64)?;
        }
        left.end()?;
        Ok(all)
    }

    /// Its entries. After an error nothing more of use comes.
    pub(super) fn iter(self) -> impl Iterator<Item = Result<Raw<'a>, Damage>> {
        let Self { entries, mut columns, mut bodies, .. } = self;
        let mut last_track = 0i64;
        (0..entries).map(move |_| {
            let mut words = [0; COLUMNS];
            for (word, column) in words.iter_mut().zip(&mut columns) {
                *word = column.unsigned()?;
            }
            let [difference, what, head, rows_before, length] = words;
            last_track = last_track.wrapping_add((difference >> 1).cast_signed() ^ -(difference & 1).cast_signed());
            let wrong = |_| Damage::Wrong("entry");
            let kind = match what & 3 {
                0 => Kind::Rows,
                1 => Kind::Cut,
                _ => return Err(Damage::Wrong("kind")),
            };
            Ok(Raw {
                track: TrackId(u32::try_from(last_track).map_err(wrong)?),
                kind,
                rows: u32::try_from(what >> 2).map_err(wrong)?,
                place: Place {
                    head: u16::try_from(head).map_err(wrong)?,
                    rows: u32::try_from(rows_before).map_err(wrong)?,
                },
                body: bodies.bytes(length)?,
            })
        })
    }
}

/// What is behind so many varints.
fn skip(bytes: &[u8], varints: usize) -> &[u8] {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte < 0x80);
    let end = match varints {
        0 => 0,
        // Too few: reading them says so.
        _ => { ends }.nth(varints - 1).map_or(bytes.len(), |(at, _)| at + 1),
    };
    &bytes[end..]
}

/// What stands in for one record of a group, whichever is damaged: all their payloads, xor.
#[derive(Debug, Default)]
pub(super) struct Parity {
    first: u64,
    pub(super) records: u8,
    lengths: u32,
    sums: u32,
    payloads: Vec<u8>,
}

impl Parity {
    /// Takes the next record.
    pub(super) fn push(&mut self, number: u64, sum: u32, payload: &[u8]) {
        if self.records == 0 {
            self.first = number;
        }
        self.records += 1;
        self.mix(sum, payload);
    }

    fn mix(&mut self, sum: u32, payload: &[u8]) {
        self.sums ^= sum;
        self.lengths ^= u32::try_from(payload.len()).expect("a payload is that short");
        if self.payloads.len() < payload.len() {
            self.payloads.resize(payload.len(), 0);
        }
        self.payloads.iter_mut().zip(payload).for_each(|(mixed, byte)| *mixed ^= byte);
    }

    /// Appends its record, framed, to `out`, and begins the next group.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let start = framing::begin(out);
        out.extend(self.first.to_le_bytes());
        let halves = [u32::from(self.records), self.lengths, self.sums, 0];
        out.extend(halves.iter().flat_map(|half| half.to_le_bytes()));
        out.extend_from_slice(&self.payloads);
        framing::end(start, PARITY, out);
        self.clear();
    }

    /// Begins the next group.
    pub(super) fn clear(&mut self) {
        (self.records, self.lengths, self.sums) = (0, 0, 0);
        self.payloads.clear();
    }

    pub(super) fn parse(payload: &[u8]) -> Result<Self, Damage> {
        let mut input = Input(payload);
        let first = input.word().and_then(in_range)?;
        let (records, lengths, sums) = (input.half()?, input.half()?, input.half()?);
        let records = u8::try_from(records).ok().filter(|records| (1..=GROUP_RECORDS).contains(records));
        let payloads = payload.get(PARITY_HEAD_BYTES..).ok_or(Damage::Wrong("end"))?.to_vec();
        Ok(Self { first, records: records.ok_or(Damage::Wrong("group"))?, lengths, sums, payloads })
    }

    /// The one record of the group that is not among `found`, by their numbers; `None` where it is not just one.
    pub(super) fn rebuild(mut self, found: &[(u64, Vec<u8>)]) -> Option<(u64, Vec<u8>)> {
        let numbers = self.first..self.first + u64::from(self.records);
        let mut others = found.iter().filter(|(number, _)| numbers.contains(number));
        let missing = numbers.clone().filter(|number| found.iter().all(|(other, _)| other != number));
        let missing: Vec<u64> = missing.collect();
        let [missing] = missing[..] else { return None };
        others.try_for_each(|(_, payload)| {
            // A longer one than the longest is not of this group.
            (payload.len() <= self.payloads.len()).then(|| self.mix(crc32c::crc32c(payload), payload))
        })?;
        let length = usize::try_from(self.lengths).ok().filter(|length| *length <= self.payloads.len())?;
        self.payloads.truncate(length);
        let is_right = crc32c::crc32c(&self.payloads) == self.sums && number(&self.payloads) == Ok(missing);
        is_right.then_some((missing, self.payloads))
    }
}

/// What a segment begins with.
pub(super) struct Segment {
    pub(super) version: u32,
    pub(super) number: u32,
    /// Number that its first record has, unless a sync has failed.
    pub(super) first: u64,
}

impl Segment {
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let mut payload = [0; 16];
        payload[..4].copy_from_slice(&self.version.to_le_bytes());
        payload[4..8].copy_from_slice(&self.number.to_le_bytes());
        payload[8..].copy_from_slice(&self.first.to_le_bytes());
        framing::append(SEGMENT, &payload, out);
    }

    pub(super) fn parse(payload: &[u8]) -> Result<Self, Damage> {
        let mut input = Input(payload);
        Ok(Self { version: input.half()?, number: input.half()?, first: input.word().and_then(in_range)? })
    }

    /// Of a segment that has nothing else.
    pub(super) const BYTES: u64 = (HEADER_BYTES + 16) as u64;
}
