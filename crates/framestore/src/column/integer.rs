// SPDX-License-Identifier: Apache-2.0
//! Integers of variable length: LEB128, and what reads them.

use crate::damage::Damage;

/// Bits that the largest of some numbers needs.
pub(super) fn width(or_of_all: u64) -> u32 {
    u64::BITS - or_of_all.leading_zeros()
}

/// Small numbers of either sign as small numbers.
fn zigzag(value: u64) -> u64 {
    let value = value.cast_signed();
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// Appends an integer, LEB128.
pub(crate) fn put_unsigned(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// Appends an integer that is small or the negative of a small one, zigzag LEB128.
pub(crate) fn put_signed(value: u64, out: &mut Vec<u8>) {
    put_unsigned(zigzag(value), out);
}

/// What is left to read.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn byte(&mut self) -> Result<u8, Damage> {
        let (byte, rest) = self.0.split_first().ok_or(Damage::Wrong("the end"))?;
        self.0 = rest;
        Ok(*byte)
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Damage::Wrong("the end"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn unsigned(&mut self) -> Result<u64, Damage> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || bits << shift >> shift != bits {
                return Err(Damage::Wrong("an integer"));
            }
            value |= bits << shift;
            shift += 7;
            if byte < 0x80 {
                return Ok(value);
            }
        }
    }

    pub(crate) fn signed(&mut self) -> Result<u64, Damage> {
        let zigzag = self.unsigned()?;
        Ok((zigzag >> 1) ^ (zigzag & 1).wrapping_neg())
    }
}
