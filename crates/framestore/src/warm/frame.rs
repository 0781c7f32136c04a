// SPDX-License-Identifier: Apache-2.0
//! Records of warm files: framed so that a cut loses what lies after it and a flipped bit one record.
//!
//! ```text
//! 0   magic (4)            8   length of the payload (4)      16  header's own CRC-32C (4), over bytes 0-15
//! 4   kind (1), zero (3)   12  payload's CRC-32C (4)          20  zero (4)
//! 24  payload, zero padded to a multiple of 8
//! ```
//! Numbers are little-endian. Records begin at multiples of 8, so that a reader who has lost the thread finds the next
//! one by looking.

use crate::damage::Damage;

/// Bytes before the payload.
pub(super) const HEADER_BYTES: usize = 24;
/// Largest payload: more than a chunk of as many words as there may be.
pub(super) const MAX_PAYLOAD_BYTES: usize = 48 << 20;
const MAGIC: [u8; 4] = *b"OLW1";

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) payload_bytes: usize,
    payload_sum: u32,
}

/// Bytes of a whole record.
pub(super) fn record_bytes(payload_bytes: usize) -> usize {
    HEADER_BYTES + payload_bytes.next_multiple_of(8)
}

/// Appends a record.
///
/// # Panics
/// If the payload is larger than [`MAX_PAYLOAD_BYTES`].
pub(super) fn append(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    assert!(payload.len() <= MAX_PAYLOAD_BYTES, "chunks and indexes are smaller");
    let start = out.len();
    out.extend(MAGIC);
    out.extend([kind, 0, 0, 0]);
    out.extend(&payload.len().to_le_bytes()[..4]);
    out.extend(crc32c::crc32c(payload).to_le_bytes());
    let own = crc32c::crc32c(&out[start..]);
    out.extend(own.to_le_bytes());
    out.extend([0; 4]);
    out.extend(payload);
    out.resize(start + record_bytes(payload.len()), 0);
}

impl Frame {
    /// From the beginning of a record.
    pub(super) fn parse(header: &[u8]) -> Result<Self, Damage> {
        let header: &[u8; HEADER_BYTES] = header.first_chunk().ok_or(Damage::Wrong("the end"))?;
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        if header[..4] != MAGIC || half(16) != crc32c::crc32c(&header[..16]) {
            return Err(Damage::Wrong("a record's header"));
        }
        let payload_bytes = half(8) as usize;
        if payload_bytes > MAX_PAYLOAD_BYTES {
            return Err(Damage::Wrong("a record's length"));
        }
        Ok(Self { kind: header[4], payload_bytes, payload_sum: half(12) })
    }

    /// Whether a payload is what was written.
    pub(super) fn check(&self, payload: &[u8]) -> Result<(), Damage> {
        let is_whole = payload.len() == self.payload_bytes && crc32c::crc32c(payload) == self.payload_sum;
        if is_whole { Ok(()) } else { Err(Damage::Checksum) }
    }
}
