// SPDX-License-Identifier: Apache-2.0
//! Records of warm files: those of `framing`, without its second sum. So a flipped bit costs its chunk, and is found.

use crate::damage::Damage;
pub(super) use crate::framing::HEADER_BYTES;
use crate::framing::{Form, Frame};

/// Largest payload: more than a chunk of as many words as there may be.
pub(super) const MAX_PAYLOAD_BYTES: usize = 48 << 20;
const FORM: Form = Form { magic: *b"OLW1", has_second_sum: false };

/// Bytes of a whole record.
pub(super) fn record_bytes(payload_bytes: usize) -> usize {
    HEADER_BYTES + payload_bytes.next_multiple_of(8)
}

/// Appends a record.
///
/// # Panics
/// If the payload is larger than any record's.
pub(super) fn append(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    FORM.append(kind, payload, out);
}

/// The frame at the beginning of a record.
pub(super) fn parse(header: &[u8]) -> Result<Frame, Damage> {
    FORM.parse(header.first_chunk().ok_or(Damage::Wrong("the end"))?)
}
