// SPDX-License-Identifier: Apache-2.0
//! Integers of variable length: LEB128, eight bytes at a time and without a branch for all that fit into 56 bits.
//!
//! ```text
//! byte      7 bits of the value, low ones first; the highest bit says that there is another byte. At most 10 bytes
//! ```

use crate::damage::Damage;

/// Longest integer.
pub(crate) const MAX_BYTES: usize = 10;
/// Highest bits of all bytes.
const MORE: u64 = 0x8080_8080_8080_8080;

/// Small differences of either sign as small numbers: 0, -1, 1, -2, ...
#[inline]
pub(crate) fn zigzag(difference: u64) -> u64 {
    difference << 1 ^ (difference.cast_signed() >> 63).cast_unsigned()
}

/// The difference that [`zigzag`] was given.
#[inline]
pub(crate) fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

/// Writes to the front of `room`, of which at least [`MAX_BYTES`] are there to be written over; returns how many bytes
/// count.
#[inline]
pub(crate) fn put(value: u64, room: &mut [u8]) -> usize {
    if value >> 56 != 0 {
        return put_long(value, room);
    }
    let more = (63 - (value | 1).leading_zeros()) / 7;
    let mut spread = value & 0x0fff_ffff | (value & 0x00ff_ffff_f000_0000) << 4;
    spread = spread & 0x0000_3fff_0000_3fff | (spread & 0x0fff_c000_0fff_c000) << 2;
    spread = spread & 0x007f_007f_007f_007f | (spread & 0x3f80_3f80_3f80_3f80) << 1;
    spread |= MORE & ((1 << (8 * more)) - 1);
    room[..8].copy_from_slice(&spread.to_le_bytes());
    more as usize + 1
}

#[cold]
fn put_long(mut value: u64, room: &mut [u8]) -> usize {
    let mut bytes = 0;
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        room[bytes] = if value > 0 { low | 0x80 } else { low };
        bytes += 1;
        if value == 0 {
            return bytes;
        }
    }
}

/// Appends one to `out`.
pub(crate) fn append(value: u64, out: &mut Vec<u8>) {
    let mut room = [0; MAX_BYTES];
    let bytes = put(value, &mut room);
    out.extend_from_slice(&room[..bytes]);
}

/// Takes one from the front of `input`.
///
/// # Errors
/// [`Damage::Wrong`].
#[inline]
pub(crate) fn take(input: &mut &[u8]) -> Result<u64, Damage> {
    if let Some(first) = input.first_chunk() {
        let word = u64::from_le_bytes(*first);
        let ends = !word & MORE;
        if ends != 0 {
            *input = &input[ends.trailing_zeros() as usize / 8 + 1..];
            let spread = word & (ends ^ (ends - 1)) & !MORE;
            let pairs = spread & 0x007f_007f_007f_007f | (spread & 0x7f00_7f00_7f00_7f00) >> 1;
            let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
            return Ok(fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4);
        }
    }
    take_bytewise(input)
}

/// Near the end of the input, and what is longer than eight bytes.
#[cold]
fn take_bytewise(input: &mut &[u8]) -> Result<u64, Damage> {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (byte, rest) = input.split_first().ok_or(Damage::Wrong("end of an integer"))?;
        *input = rest;
        let bits = u64::from(byte & 0x7f);
        if shift > 63 || bits << shift >> shift != bits {
            return Err(Damage::Wrong("length of an integer"));
        }
        value |= bits << shift;
        shift += 7;
        if *byte < 0x80 {
            return Ok(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(value: u64) {
        let mut bytes = vec![7];
        append(value, &mut bytes);
        assert_eq!(bytes.len() - 1, (64 - (value | 1).leading_zeros() as usize).div_ceil(7), "{value:#x}");
        assert_eq!(take(&mut &bytes[1..]), Ok(value), "bytewise at the end");
        assert_eq!(take_bytewise(&mut &bytes[1..]), Ok(value));
        (1..bytes.len()).for_each(|end| assert!(take(&mut &bytes[1..end]).is_err()));
        bytes.extend([0xff; 9]);
        let mut input = &bytes[1..];
        assert_eq!(take(&mut input), Ok(value), "at once");
        assert_eq!(input, [0xff; 9]);
        assert_eq!(unzigzag(zigzag(value)), value);
    }

    #[test]
    fn every_integer_comes_back_in_as_few_bytes_as_it_needs() {
        for bit in 0..64 {
            [(1 << bit) - 1, 1 << bit, (1 << bit) + 1, u64::MAX << bit].into_iter().for_each(round_trip);
        }
        bolero::check!().with_type::<(u64, u8)>().for_each(|(value, shift)| round_trip(value >> (shift % 64)));
        assert_eq!([0, 1, 2, 3].map(unzigzag), [0, u64::MAX, 1, u64::MAX - 1]);
        assert_eq!([zigzag(1 << 63), zigzag(u64::MAX >> 1)], [u64::MAX, u64::MAX - 1]);
    }

    #[test]
    fn integers_that_are_too_long_are_errors() {
        assert!(take(&mut &[0x80; 10][..]).is_err());
        assert!(take(&mut &[0xff; 20][..]).is_err());
        let mut beyond = [0xff; 10];
        beyond[9] = 2;
        assert!(take(&mut &beyond[..]).is_err(), "65 bits");
        beyond[9] = 1;
        assert_eq!(take(&mut &beyond[..]), Ok(u64::MAX));
    }
}
