// SPDX-License-Identifier: Apache-2.0
//! Records of warm files: those of `framing`, without its second sum. So a flipped bit costs its chunk, and is found.
//! Their kinds are told in `file.rs`.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use crate::damage::{Damage, StoreError, io_error};
pub(super) use crate::framing::HEADER_BYTES;
use crate::framing::{Form, Frame};

pub(super) const FILE: u8 = 1;
pub(super) const CHUNK: u8 = 2;
pub(super) const INDEX: u8 = 3;
pub(super) const TRAILER: u8 = 4;
pub(super) const OUTLINE: u8 = 5;
pub(super) const BOUND: u8 = 6;

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

/// A file that chunks are read from.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) path: PathBuf,
}

impl Opened {
    /// The payload of the record at a place, if it is whole, of a kind, and ends before `end`.
    pub(super) fn read_record(&self, kind: u8, at: u64, end: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let read = |bytes: &mut [u8], at| self.file.read_exact_at(bytes, at).map_err(io_error("read", &self.path));
        let mut header = [0; HEADER_BYTES];
        if at.checked_add(HEADER_BYTES as u64).is_none_or(|begun| begun > end) {
            return Ok(None);
        }
        read(&mut header, at)?;
        let frame = parse(&header).ok().filter(|frame| frame.kind == kind);
        let fits = |frame: &Frame| at + record_bytes(frame.payload_bytes) as u64 <= end;
        let Some(frame) = frame.filter(fits) else { return Ok(None) };
        let mut payload = vec![0; frame.payload_bytes];
        read(&mut payload, at + HEADER_BYTES as u64)?;
        Ok(frame.check(&payload).is_ok().then_some(payload))
    }
}
