// SPDX-License-Identifier: Apache-2.0
//! Numbers and texts as bytes. Numbers are little-endian, or LEB128 where most are small; texts are behind their
//! length. Reading trusts nothing.

use crate::damage::Damage;
use crate::row::varint::{unzigzag, zigzag};

const END: Damage = Damage::Wrong("end");

/// Appends a number, LEB128: seven bits a byte, low ones first.
pub(crate) fn put_unsigned(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

/// Appends a number that is small or the negative of a small one, zigzag LEB128.
pub(crate) fn put_signed(number: u64, out: &mut Vec<u8>) {
    put_unsigned(zigzag(number), out);
}

/// Appends a text.
pub(crate) fn put_text(text: &str, out: &mut Vec<u8>) {
    put_unsigned(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (array, rest) = self.0.split_first_chunk().ok_or(END)?;
        self.0 = rest;
        Ok(*array)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Damage> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn half(&mut self) -> Result<u32, Damage> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn word(&mut self) -> Result<u64, Damage> {
        self.array().map(u64::from_le_bytes)
    }

    /// A content's id.
    pub(crate) fn id(&mut self) -> Result<[u8; 16], Damage> {
        self.array()
    }

    #[inline]
    pub(crate) fn unsigned(&mut self) -> Result<u64, Damage> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || bits << shift >> shift != bits {
                return Err(Damage::Wrong("number"));
            }
            number |= bits << shift;
            shift += 7;
            if byte < 0x80 {
                return Ok(number);
            }
        }
    }

    #[inline]
    pub(crate) fn signed(&mut self) -> Result<u64, Damage> {
        self.unsigned().map(unzigzag)
    }

    /// A number that is at most `most`.
    pub(crate) fn count(&mut self, most: usize) -> Result<usize, Damage> {
        let count = self.unsigned()?;
        usize::try_from(count).ok().filter(|count| *count <= most).ok_or(Damage::Wrong("count"))
    }

    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(END)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Bytes behind their length (4).
    pub(crate) fn sized(&mut self) -> Result<&'a [u8], Damage> {
        let bytes = self.half()?;
        self.take(bytes as usize)
    }

    pub(crate) fn bytes(&mut self, bytes: u64) -> Result<&'a [u8], Damage> {
        usize::try_from(bytes).map_err(|_| END).and_then(|bytes| self.take(bytes))
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Damage> {
        let length = self.unsigned()?;
        std::str::from_utf8(self.bytes(length)?).map_err(|_| Damage::Wrong("text"))
    }

    /// That nothing is left.
    pub(crate) fn end(&self) -> Result<(), Damage> {
        if self.0.is_empty() { Ok(()) } else { Err(END) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_come_back_and_what_is_cut_is_an_error() {
        bolero::check!().with_type::<(u64, u8, String)>().for_each(|(number, shift, text)| {
            let number = number >> (shift % 64);
            let mut bytes = Vec::new();
            put_unsigned(number, &mut bytes);
            put_text(text, &mut bytes);
            let mut input = Input(&bytes);
            assert_eq!((input.unsigned(), input.text()), (Ok(number), Ok(&text[..])));
            assert_eq!(input.end(), Ok(()));
            let mut cut = Input(&bytes[..bytes.len() - 1]);
            assert!(cut.unsigned().and_then(|_| cut.text()).is_err());
        });
        assert!(Input(&[0xff; 10]).unsigned().is_err(), "more than 64 bits");
    }
}
