// SPDX-License-Identifier: Apache-2.0
//! Framed records: what the write-ahead log, the files of chunks and the catalogue are made of. A cut loses what lies
//! after it, damage the record that it is in, and one flipped bit nothing.
//!
//! Whoever has a file appends with [`append`], or with [`begin`] and [`end`] around bytes that are made in place;
//! [`Reader`] finds everything again that is whole. What a kind's payload means is the caller's. Files of chunks, and
//! those of the version before, have a `Form` of their own: another magic, and zero for the second sum.
//!
//! ```text
//! 0   magic (4)            8   length of the payload (4)      16  header's own CRC-32C (4), over bytes 0-15
//! 4   kind (1), zero (3)   12  payload's CRC-32C (4)          20  payload's CRC-32 (4)
//! 24  payload, zero padded to a multiple of 8
//! ```
//! Numbers are little-endian. Records begin at multiples of 8, so that a reader who has lost the thread finds the next
//! one by looking.
//!
//! Two messages that have the same CRC-32C differ in four bits at least, as long as they are shorter than 2^31 bits
//! (Koopman, "32-bit cyclic redundancy codes for Internet applications", DSN 2002). So the sum says which bit has
//! flipped if it is one, and that bit is put right. More damage than that can look like one bit, with a probability of
//! its length in bits by 2^32: the second sum, of another polynomial, must agree.
//!
//! Cost: 24 bytes a record and its padding; two sums a payload, together about 0.1 ns a byte; up to 10 ns a byte of a
//! damaged record.

pub(crate) mod bytes;
pub mod files;
#[cfg(test)]
pub(crate) mod tests;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::damage::Damage;

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 24;
/// Largest payload.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 20;
/// Largest payload in which a flipped bit is looked for: 40 ms.
const MAX_MENDED_BYTES: usize = 4 << 20;
/// What is read at once, where a record is not longer.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes of the header that its sum covers.
const SUMMED_BYTES: usize = 16;
/// Castagnoli's polynomial, the lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// What tells records of one kind of files from those of others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) magic: [u8; 4],
    /// Without it nothing is mended in a payload.
    pub(crate) has_second_sum: bool,
}

/// Of all files whose module does not say otherwise.
const FORM: Form = Form { magic: *b"OLF1", has_second_sum: true };

impl Form {
    /// Appends a record.
    pub(crate) fn append(self, kind: u8, payload: &[u8], out: &mut Vec<u8>) {
        let start = begin(out);
        out.extend_from_slice(payload);
        self.end(start, kind, out);
    }

    fn end(self, start: usize, kind: u8, out: &mut Vec<u8>) {
        let payload = &out[start + HEADER_BYTES..];
        assert!(payload.len() <= MAX_PAYLOAD_BYTES, "a payload of {} bytes", payload.len());
        let length = u32::try_from(payload.len()).expect("was compared just now");
        let sum = crc32c::crc32c(payload);
        let second = if self.has_second_sum { crc32fast::hash(payload) } else { 0 };
        let header = &mut out[start..start + HEADER_BYTES];
        header[..4].copy_from_slice(&self.magic);
        header[4] = kind;
        header[8..12].copy_from_slice(&length.to_le_bytes());
        header[12..16].copy_from_slice(&sum.to_le_bytes());
        let own = crc32c::crc32c(&header[..SUMMED_BYTES]);
        header[16..20].copy_from_slice(&own.to_le_bytes());
        header[20..24].copy_from_slice(&second.to_le_bytes());
        out.resize(start + (out.len() - start).next_multiple_of(8), 0);
    }

    /// The frame of a record, from its first bytes.
    pub(crate) fn parse(self, header: &[u8; HEADER_BYTES]) -> Result<Frame, Damage> {
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        if header[..4] != self.magic || half(16) != crc32c::crc32c(&header[..SUMMED_BYTES]) {
            return Err(Damage::Wrong("header"));
        }
        let payload_bytes = half(8) as usize;
        if payload_bytes > MAX_PAYLOAD_BYTES {
            return Err(Damage::Wrong("length"));
        }
        let second = self.has_second_sum.then(|| half(20));
        Ok(Frame { kind: header[4], payload_bytes, sum: half(12), second })
    }

    /// The same where one bit of the header has flipped.
    fn parse_mended(self, header: &[u8; HEADER_BYTES]) -> Option<Frame> {
        let mut mended = *header;
        let difference = crc32c::crc32c(&header[..SUMMED_BYTES]) ^ u32::from_le_bytes(*header[16..].first_chunk()?);
        if difference.is_power_of_two() {
            // It is in the sum itself.
            mended[16..20].copy_from_slice(&crc32c::crc32c(&header[..SUMMED_BYTES]).to_le_bytes());
        } else {
            flip(&mut mended, flipped_bit(difference, SUMMED_BYTES)?);
        }
        self.parse(&mended).ok()
    }
}

/// Appends a record.
///
/// # Panics
/// If the payload exceeds [`MAX_PAYLOAD_BYTES`].
pub fn append(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    FORM.append(kind, payload, out);
}

/// Begins a record at the end of `out`, whose payload is appended next. Returns what [`end`] asks for.
#[must_use]
pub fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    start
}

/// Ends a record whose payload was appended since [`begin`] returned `start`.
///
/// # Panics
/// If the payload exceeds [`MAX_PAYLOAD_BYTES`].
pub fn end(start: usize, kind: u8, out: &mut Vec<u8>) {
    FORM.end(start, kind, out);
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the payload is.
    pub kind: u8,
    /// Its length.
    pub payload_bytes: usize,
    /// Its CRC-32C.
    pub sum: u32,
    second: Option<u32>,
}

impl Frame {
    /// From the first bytes of a record.
    ///
    /// # Errors
    /// [`Damage`]: no record begins here.
    pub fn parse(header: &[u8; HEADER_BYTES]) -> Result<Self, Damage> {
        FORM.parse(header)
    }

    /// Bytes of the whole record.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        HEADER_BYTES + self.payload_bytes.next_multiple_of(8)
    }

    /// Checks a payload.
    ///
    /// # Errors
    /// [`Damage::Checksum`].
    pub fn check(&self, payload: &[u8]) -> Result<(), Damage> {
        if crc32c::crc32c(payload) == self.sum { Ok(()) } else { Err(Damage::Checksum) }
    }

    /// Puts right the one bit of a payload that has flipped; false, and nothing is changed, if it is not just one.
    pub fn mend(&self, payload: &mut [u8]) -> bool {
        let Some(second) = self.second.filter(|_| payload.len() <= MAX_MENDED_BYTES) else { return false };
        let Some(bit) = flipped_bit(crc32c::crc32c(payload) ^ self.sum, payload.len()) else { return false };
        flip(payload, bit);
        let is_right = crc32fast::hash(payload) == second;
        if !is_right {
            flip(payload, bit);
        }
        is_right
    }
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// Which bit has flipped in so many bytes if it was one; `difference` is the CRC-32C of what they are, xor that of what
/// they were.
fn flipped_bit(difference: u32, bytes: usize) -> Option<usize> {
    // What a flip of the last bit makes of the sum, then of the one before it, and so on: the sum is linear.
    let mut trace = 1u32;
    (0..bytes * 8).rev().find(|_| {
        trace = trace >> 1 ^ (POLYNOMIAL & 0u32.wrapping_sub(trace & 1));
        trace == difference
    })
}

/// What a [`Reader`] finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A record.
    Record(Record<'a>),
    /// Bytes that are none.
    Damaged(Damaged),
}

/// A whole record.
#[derive(Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it begins.
    pub offset: u64,
    /// What its payload is.
    pub kind: u8,
    /// CRC-32C of the payload.
    pub sum: u32,
    /// The payload.
    pub payload: &'a [u8],
    /// Whether a flipped bit was put right. In the file it stays as it is.
    pub is_mended: bool,
}

/// Bytes of a file that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// What is wrong with them.
    pub damage: Damage,
    /// Whether nothing follows: a write that was not ended leaves such bytes.
    pub is_torn: bool,
}

/// How many bytes are damaged, where that is known, and how.
type Lost = (Option<usize>, Damage);

/// Reads the records of a file in their order, in pieces.
pub struct Reader<'f> {
    file: &'f File,
    form: Form,
    /// Of what is read.
    end: u64,
    /// Of the next record.
    at: u64,
    piece: Vec<u8>,
    piece_at: u64,
}

impl<'f> Reader<'f> {
    /// Of a whole file, as long as it is now.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(file: &'f File) -> io::Result<Self> {
        Self::between(file, 0, u64::MAX)
    }

    /// Of records that begin at `from` or later and before `end`. A record begins at `from`, or bytes that are damaged.
    ///
    /// # Errors
    /// What the system says.
    pub fn between(file: &'f File, from: u64, end: u64) -> io::Result<Self> {
        let end = file.metadata()?.len().min(end);
        Ok(Self { file, form: FORM, end, at: from.next_multiple_of(8), piece: Vec::new(), piece_at: 0 })
    }

    /// The same of records of another form.
    pub(crate) fn in_form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// The next record, or bytes that are none; `None` at the end.
    ///
    /// # Errors
    /// What the system says.
    #[allow(clippy::should_implement_trait, reason = "what it returns borrows from the reader")]
    pub fn next(&mut self) -> io::Result<Option<Found<'_>>> {
        let offset = self.at;
        if offset >= self.end {
            return Ok(None);
        }
        match self.look_at(offset)? {
            Ok((frame, is_mended)) => {
                self.at = offset + frame.record_bytes() as u64;
                let payload = self.place(offset, HEADER_BYTES, frame.payload_bytes);
                let payload = &self.piece[payload];
                Ok(Some(Found::Record(Record { offset, kind: frame.kind, sum: frame.sum, payload, is_mended })))
            }
            Err((bytes, damage)) => {
                self.at = match bytes {
                    Some(bytes) => self.end.min(offset + bytes as u64),
                    None => self.find(offset + 8)?,
                };
                let is_torn = self.at == self.end;
                Ok(Some(Found::Damaged(Damaged { offset, bytes: self.at - offset, damage, is_torn })))
            }
        }
    }

    /// The frame of the record at an offset, and whether it or the payload had to be mended.
    fn look_at(&mut self, offset: u64) -> io::Result<Result<(Frame, bool), Lost>> {
        let Some(header) = self.load(offset, HEADER_BYTES)?.first_chunk().copied() else {
            return Ok(Err((Some(HEADER_BYTES), Damage::Wrong("end"))));
        };
        let (frame, is_header_mended) = match self.form.parse(&header) {
            Ok(frame) => (frame, false),
            Err(damage) => match self.form.parse_mended(&header) {
                Some(frame) => (frame, true),
                None => return Ok(Err((None, damage))),
            },
        };
        // A header that was mended may be none: then its length means nothing.
        let bytes = (!is_header_mended).then_some(frame.record_bytes());
        if offset + (HEADER_BYTES + frame.payload_bytes) as u64 > self.end {
            return Ok(Err((bytes, Damage::Wrong("end"))));
        }
        self.load(offset, HEADER_BYTES + frame.payload_bytes)?;
        let place = self.place(offset, HEADER_BYTES, frame.payload_bytes);
        let payload = &mut self.piece[place];
        Ok(match frame.check(payload) {
            Ok(()) => Ok((frame, is_header_mended)),
            Err(_) if !is_header_mended && frame.mend(payload) => Ok((frame, true)),
            Err(damage) => Err((bytes, damage)),
        })
    }

    /// Where the next record begins that looks like one, or the end.
    fn find(&mut self, from: u64) -> io::Result<u64> {
        let (mut at, form) = (from, self.form);
        while at + HEADER_BYTES as u64 <= self.end {
            let piece = self.load(at, HEADER_BYTES)?;
            let mut headers = piece.windows(HEADER_BYTES).step_by(8);
            let count = headers.len() as u64;
            let is_one = |bytes: &[u8]| bytes.first_chunk().is_some_and(|header| form.parse(header).is_ok());
            if let Some(number) = headers.position(|bytes| bytes[..4] == form.magic && is_one(bytes)) {
                return Ok(at + number as u64 * 8);
            }
            at += count * 8;
        }
        Ok(self.end)
    }

    /// What is in memory of the file from an offset on: `bytes` at least, where the file has them.
    fn load(&mut self, offset: u64, bytes: usize) -> io::Result<&[u8]> {
        let wanted = (bytes as u64).min(self.end - offset);
        let loaded = self.piece_at..self.piece_at + self.piece.len() as u64;
        if !(loaded.contains(&offset) && offset + wanted <= loaded.end) {
            let length = (bytes.max(PIECE_BYTES) as u64).min(self.end - offset);
            self.piece.clear();
            self.piece.resize(usize::try_from(length).unwrap_or(0), 0); // at most a record or a piece
            self.file.read_exact_at(&mut self.piece, offset)?;
            self.piece_at = offset;
        }
        let place = self.place(offset, 0, 0);
        Ok(&self.piece[place.start..])
    }

    /// Where bytes of the record at `offset` are in the piece.
    fn place(&self, offset: u64, from: usize, bytes: usize) -> std::ops::Range<usize> {
        let start = usize::try_from(offset - self.piece_at).unwrap_or(0) + from; // within the piece
        start..start + bytes
    }
}
