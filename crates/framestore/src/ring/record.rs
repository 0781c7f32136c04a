// SPDX-License-Identifier: Apache-2.0
//! One record of a ring: how it stands in the file, and how it is told from what is none.
//!
//! ```text
//! 0   "OLR" (3), kind (1)          24  time, ns (8)
//! 4   bytes of the payload (4)     32  CRC-32C of all before (4)
//! 8   sequence number (8)          36  CRC-32C of bytes 0-31 and the payload with its padding (4)
//! 16  track (4), line (4)          40  payload, zero padded to a multiple of 8
//! ```
//! Numbers are little-endian. What is left at the end of the file is skipped by a first word of kind 0, whose length is
//! that of the rest.

use crate::types::{Line, TrackId};

/// Words before the payload.
pub(super) const HEADER_WORDS: usize = 5;
/// No ring gets so far.
pub(super) const MAX_SEQUENCE: u64 = 1 << 62;
/// Kind of what is skipped.
pub(super) const SKIP: u8 = 0;
const MAGIC: u32 = u32::from_le_bytes(*b"OLR\0");

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) bytes: u32,
    pub(super) sequence: u64,
    pub(super) track: TrackId,
    pub(super) line: Line,
    pub(super) time_ns: u64,
}

impl Header {
    /// Words of the whole record.
    pub(super) fn record_words(&self) -> usize {
        HEADER_WORDS + payload_words(self.bytes as usize)
    }

    /// Writes the header and the sums of a record whose payload is there.
    #[inline]
    pub(super) fn seal(&self, record: &mut [u64]) {
        record[0] = first_word(self.kind, self.bytes);
        record[1] = self.sequence;
        record[2] = u64::from(self.track.0) | u64::from(self.line.0) << 32;
        record[3] = self.time_ns;
        let (own, all) = sums(record);
        record[4] = u64::from(own) | u64::from(all) << 32;
    }

    /// Of the record that begins in front of some words, if there is one and it fits into them; nothing says yet that
    /// it is whole.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // halves and a byte are meant
    pub(super) fn parse(words: &[u64]) -> Option<Self> {
        let [first, sequence, ids, time_ns, _] = *words.first_chunk::<HEADER_WORDS>()?;
        let (name, bytes) = (first as u32, (first >> 32) as u32);
        let header = Self {
            kind: (name >> 24) as u8,
            bytes,
            sequence,
            track: TrackId(ids as u32),
            line: Line((ids >> 32) as u32),
            time_ns,
        };
        let is_named = name & 0x00ff_ffff == MAGIC && header.kind != SKIP && sequence < MAX_SEQUENCE;
        (is_named && header.record_words() <= words.len()).then_some(header)
    }

    /// The same, of a record that is whole.
    pub(super) fn check(words: &[u64]) -> Option<Self> {
        let header = Self::parse(words)?;
        let record = &words[..header.record_words()];
        // The payload, which may be anything's, is not looked at unless the header is right.
        let is_own = crc32c::crc32c(bytemuck::cast_slice(&record[..4])) == low(record[4]);
        (is_own && sums(record) == (low(record[4]), low(record[4] >> 32))).then_some(header)
    }
}

/// Words of a payload of so many bytes.
pub(super) fn payload_words(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// First word of what is skipped at the end of the file, of so many words and itself.
pub(super) fn skip(words: usize) -> u64 {
    first_word(SKIP, u32::try_from(words - 1).unwrap_or(u32::MAX))
}

/// Whether the rest of the file is skipped.
pub(super) fn is_skip(rest: &[u64]) -> bool {
    rest.first().is_some_and(|first| *first == skip(rest.len()))
}

fn first_word(kind: u8, length: u32) -> u64 {
    u64::from(MAGIC | u32::from(kind) << 24) | u64::from(length) << 32
}

#[allow(clippy::cast_possible_truncation)] // a half is meant
fn low(word: u64) -> u32 {
    word as u32
}

#[inline]
fn sums(record: &[u64]) -> (u32, u32) {
    let own = crc32c::crc32c(bytemuck::cast_slice(&record[..HEADER_WORDS - 1]));
    (own, crc32c::crc32c_append(own, bytemuck::cast_slice(&record[HEADER_WORDS..])))
}
