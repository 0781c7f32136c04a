// SPDX-License-Identifier: Apache-2.0
//! The few bytes of protobuf's encoding that remote write needs.
//!
//! Written by hand: its messages have four kinds of fields, and labels of a series are kept encoded, which code that is
//! generated from messages cannot do.

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const SIZED: u32 = 2;

pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        // The low seven bits, and that more follow.
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn tag(out: &mut Vec<u8>, field: u32, wire: u32) {
    varint(out, u64::from(field << 3 | wire));
}

pub(crate) fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, VARINT);
    varint(out, value);
}

pub(crate) fn double(out: &mut Vec<u8>, field: u32, value: f64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Begins a field of bytes; these must follow.
pub(crate) fn sized(out: &mut Vec<u8>, field: u32, len: usize) {
    tag(out, field, SIZED);
    varint(out, len as u64);
}

pub(crate) fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    sized(out, field, value.len());
    out.extend_from_slice(value);
}

/// Takes a field of bytes off the front of what [`bytes()`] has written with a field number below 16.
pub(crate) fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (_, rest) = from.split_first()?;
    let ends = rest.iter().position(|byte| *byte < 0x80)?;
    let len = rest[..=ends].iter().rev().fold(0usize, |len, byte| len << 7 | usize::from(byte & 0x7f));
    let (value, rest) = rest[ends + 1..].split_at_checked(len)?;
    *from = rest;
    Some(value)
}
