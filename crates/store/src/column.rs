// SPDX-License-Identifier: Apache-2.0
//! One column of a tile as bytes: constants take one word, integers their packed differences, floats whichever of three forms is smallest; few rows are short.
//!
//! Lossless for every bit pattern. Decoding trusts nothing: a damaged column is an error, never a panic or a large allocation.
//!
//! ```text
//! byte 0        form
//! constant      value (8)
//! packed        first value (8), least difference (8), bits (1), differences less the least, `bits` each, low bits first, in whole words
//! scaled        power of ten (1), then `packed` without its form byte, of value * 10^power as integers
//! xored         first value (8), trailing zero bits that all have (1), bits (1), value ^ value before, shifted
//! raw           all values (8 each)
//! short         the first value, then differences, each as a zigzag LEB128 integer: what is shortest for few rows
//! scaled short  power of ten (1), then `short` without its form byte, of value * 10^power as integers
//! ```

use crate::error::Damage;

const CONSTANT: u8 = 0;
const PACKED: u8 = 1;
const SCALED: u8 = 2;
const XORED: u8 = 3;
const RAW: u8 = 4;
const SHORT: u8 = 5;
const SCALED_SHORT: u8 = 6;

/// Powers of ten that are tried for floats: what gauges are usually rounded to.
const MAX_POWER: u8 = 4;
/// Largest integer that a float has exactly, 2^53.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// What a column's words are; decides which forms are tried, not what can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Counters, sizes, identities: u64, or i64 as its bits.
    Integer,
    /// f64 as its bits.
    Float,
}

/// Appends the smallest form of `values` to `out`.
///
/// # Panics
/// If there are no values.
pub fn encode(kind: Kind, values: &[u64], out: &mut Vec<u8>) {
    let (first, start) = (values[0], out.len());
    let is_constant = values.iter().all(|value| *value == first);
    match kind {
        _ if is_constant => {
            out.push(CONSTANT);
            out.extend(first.to_le_bytes());
        }
        Kind::Integer => {
            out.push(PACKED);
            pack_differences(values.iter().copied(), out);
        }
        Kind::Float => match scale(values) {
            Some((power, scaled)) => {
                out.extend([SCALED, power]);
                pack_differences(scaled.iter().copied(), out);
                shorten(start, &[SCALED_SHORT, power], &scaled, out);
            }
            None => encode_xored(values, out),
        },
    }
    if kind == Kind::Integer {
        shorten(start, &[SHORT], values, out);
    }
    if out.len() - start > 1 + values.len() * 8 {
        out.truncate(start);
        out.push(RAW);
        out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
}

/// Reads a column of `rows` values from the front of `bytes` and returns the rest.
///
/// # Errors
/// [`Damage`].
pub fn decode<'a>(bytes: &'a [u8], rows: usize, values: &mut Vec<u64>) -> Result<&'a [u8], Damage> {
    let mut input = Input(bytes);
    match input.byte()? {
        CONSTANT => {
            let value = input.word()?;
            values.extend(std::iter::repeat_n(value, rows));
        }
        PACKED => unpack_differences(&mut input, rows, |value| values.push(value))?,
        SCALED => {
            let power = input.power()?;
            unpack_differences(&mut input, rows, |value| values.push(unscaled(value, power)))?;
        }
        SCALED_SHORT => {
            let power = input.power()?;
            lengthen(&mut input, rows, |value| values.push(unscaled(value, power)))?;
        }
        SHORT => lengthen(&mut input, rows, |value| values.push(value))?,
        XORED => decode_xored(&mut input, rows, values)?,
        RAW => {
            for _ in 0..rows {
                values.push(input.word()?);
            }
        }
        _ => return Err(Damage::Column("form")),
    }
    Ok(input.0)
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Result<u8, Damage> {
        let (byte, rest) = self.0.split_first().ok_or(Damage::Column("end"))?;
        self.0 = rest;
        Ok(*byte)
    }

    fn power(&mut self) -> Result<u8, Damage> {
        Some(self.byte()?).filter(|power| *power <= MAX_POWER).ok_or(Damage::Column("power of ten"))
    }

    fn word(&mut self) -> Result<u64, Damage> {
        let (word, rest) = self.0.split_first_chunk().ok_or(Damage::Column("end"))?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }
}

/// Bits that the largest of some numbers needs.
fn width(or_of_all: u64) -> u32 {
    64 - or_of_all.leading_zeros()
}

fn pack_differences(values: impl Iterator<Item = u64> + Clone, out: &mut Vec<u8>) {
    let differences =
        || values.clone().zip(values.clone().skip(1)).map(|(before, value)| value.wrapping_sub(before).cast_signed());
    let first = values.clone().next().unwrap_or(0);
    let least = differences().min().unwrap_or(0);
    let above = || differences().map(|difference| difference.wrapping_sub(least).cast_unsigned());
    let bits = width(above().fold(0, |all, value| all | value));
    out.extend(first.to_le_bytes());
    out.extend(least.to_le_bytes());
    pack(bits, above(), out);
}

fn unpack_differences(input: &mut Input, rows: usize, mut push: impl FnMut(u64)) -> Result<(), Damage> {
    let mut value = input.word()?;
    let least = input.word()?;
    if rows > 0 {
        push(value);
        unpack(input, rows - 1, |above| {
            value = value.wrapping_add(least).wrapping_add(above);
            push(value);
        })?;
    }
    Ok(())
}

/// `bits` and then the low `bits` of each value, low bits first.
fn pack(bits: u32, values: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
    out.push(u8::try_from(bits).expect("at most 64"));
    let (mut word, mut used) = (0u64, 0);
    if bits == 0 {
        return;
    }
    for value in values {
        word |= value << used;
        used += bits;
        if used >= 64 {
            out.extend(word.to_le_bytes());
            used -= 64;
            word = if used == 0 { 0 } else { value >> (bits - used) };
        }
    }
    if used > 0 {
        out.extend(word.to_le_bytes());
    }
}

fn unpack(input: &mut Input, count: usize, mut push: impl FnMut(u64)) -> Result<(), Damage> {
    let bits = u32::from(input.byte()?);
    if bits > 64 {
        return Err(Damage::Column("bits"));
    }
    if bits == 0 {
        (0..count).for_each(|_| push(0));
        return Ok(());
    }
    let mask = u64::MAX >> (64 - bits);
    let (mut word, mut have) = (0u64, 0);
    for _ in 0..count {
        let mut value = word;
        if have < bits {
            word = input.word()?;
            value |= word.checked_shl(have).unwrap_or(0);
            let taken = bits - have;
            word = word.checked_shr(taken).unwrap_or(0);
            have = 64 - taken;
        } else {
            word = word.checked_shr(bits).unwrap_or(0);
            have -= bits;
        }
        push(value & mask);
    }
    Ok(())
}

/// Puts `head` and integers of variable length in the place of what begins at `start`, if that is shorter.
fn shorten(start: usize, head: &[u8], values: &[u64], out: &mut Vec<u8>) {
    let end = out.len();
    out.extend(head);
    let mut before = 0;
    for value in values {
        let difference = value.wrapping_sub(before).cast_signed();
        let mut rest = (difference << 1 ^ difference >> 63).cast_unsigned();
        loop {
            let low = (rest & 0x7f) as u8;
            rest >>= 7;
            out.push(if rest > 0 { low | 0x80 } else { low });
            if rest == 0 {
                break;
            }
        }
        before = *value;
        if out.len() - end >= end - start {
            return out.truncate(end);
        }
    }
    out.drain(start..end);
}

fn lengthen(input: &mut Input, rows: usize, mut push: impl FnMut(u64)) -> Result<(), Damage> {
    let mut value = 0u64;
    for _ in 0..rows {
        let (mut zigzag, mut shift) = (0u64, 0);
        loop {
            let byte = input.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || bits << shift >> shift != bits {
                return Err(Damage::Column("integer"));
            }
            zigzag |= bits << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        let difference = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        value = value.wrapping_add(difference);
        push(value);
    }
    Ok(())
}

#[allow(clippy::cast_possible_wrap, clippy::cast_precision_loss)] // exact when encoded; damaged input may be anything
fn unscaled(value: u64, power: u8) -> u64 {
    (value as i64 as f64 / 10f64.powi(power.into())).to_bits()
}

/// The least power of ten that makes all floats integers from which they come back bit for bit.
fn scale(values: &[u64]) -> Option<(u8, Vec<u64>)> {
    (0..=MAX_POWER).find_map(|power| {
        let factor = 10f64.powi(power.into());
        let scaled: Option<Vec<u64>> = values
            .iter()
            .map(|bits| {
                let rounded = (f64::from_bits(*bits) * factor).round();
                #[allow(clippy::cast_possible_truncation)] // saturates, and is then not exact
                let integer = rounded as i64;
                // Back by the decoder's own way: minus zero, for one, does not come back.
                #[allow(clippy::cast_precision_loss)]
                let exact = rounded.abs() < EXACT && (integer as f64 / factor).to_bits() == *bits;
                exact.then_some(integer.cast_unsigned())
            })
            .collect();
        scaled.map(|scaled| (power, scaled))
    })
}

fn encode_xored(values: &[u64], out: &mut Vec<u8>) {
    let xored = || values.windows(2).map(|pair| pair[0] ^ pair[1]);
    let all = xored().fold(0, |all, value| all | value);
    let shift = if all == 0 { 0 } else { all.trailing_zeros() };
    out.push(XORED);
    out.extend(values[0].to_le_bytes());
    out.push(u8::try_from(shift).expect("below 64"));
    pack(width(all >> shift), xored().map(|value| value >> shift), out);
}

fn decode_xored(input: &mut Input, rows: usize, values: &mut Vec<u64>) -> Result<(), Damage> {
    let mut value = input.word()?;
    let shift = u32::from(input.byte()?);
    if shift > 63 {
        return Err(Damage::Column("shift"));
    }
    if rows > 0 {
        values.push(value);
        unpack(input, rows - 1, |xored| {
            value ^= xored << shift;
            values.push(value);
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(kind: Kind, values: &[u64]) -> usize {
        let (mut bytes, mut back) = (Vec::new(), Vec::new());
        encode(kind, values, &mut bytes);
        let size = bytes.len();
        bytes.extend([1, 2, 3]);
        assert_eq!(decode(&bytes, values.len(), &mut back).unwrap(), [1, 2, 3]);
        assert_eq!(back, values);
        assert!(size <= 1 + values.len() * 8);
        size
    }

    #[test]
    fn every_column_comes_back_bit_for_bit() {
        bolero::check!().with_type::<(bool, Vec<u64>)>().for_each(|(float, values)| {
            if !values.is_empty() {
                round_trip(if *float { Kind::Float } else { Kind::Integer }, values);
            }
        });
        // Slow movers, in all widths and at the ends of the number range.
        bolero::check!().with_type::<(u64, u64, u8, Vec<u32>)>().for_each(|(first, step, bits, noise)| {
            let mut value = *first;
            let mut values = vec![value];
            for noise in noise {
                value = value.wrapping_add(*step).wrapping_add(u64::from(*noise) << (bits % 64));
                values.push(value);
            }
            round_trip(Kind::Integer, &values);
            round_trip(Kind::Float, &values);
        });
    }

    #[test]
    fn usual_columns_are_small() {
        let counter: Vec<u64> = (0..256).map(|i| 1_000_000 + i * 37 + i % 5).collect();
        assert!(round_trip(Kind::Integer, &counter) <= 18 + 256 * 4 / 8);
        let floats = |value: fn(u32) -> f64| (0..256).map(|i| value(i).to_bits()).collect::<Vec<u64>>();
        assert!(round_trip(Kind::Float, &floats(|i| f64::from(i % 7) / 100.0)) < 150, "load averages");
        assert!(round_trip(Kind::Float, &floats(|i| f64::from(i).sqrt())) <= 1 + 256 * 8);
        assert_eq!(round_trip(Kind::Float, &[f64::NAN.to_bits(); 99]), 9);
        round_trip(Kind::Float, &[(-0.0f64).to_bits(), 0, f64::NAN.to_bits(), f64::INFINITY.to_bits()]);
        round_trip(Kind::Integer, &[0, u64::MAX, 1, 1 << 63]);
        // Two rows, as there are of what is read every second.
        assert_eq!(round_trip(Kind::Integer, &[0, 0]), 3);
        assert_eq!(round_trip(Kind::Integer, &[1_000_000, 1_000_037]), 5);
        assert_eq!(round_trip(Kind::Integer, &[u64::MAX; 2]), 3);
        assert_eq!(round_trip(Kind::Integer, &[1 << 62; 2]), 9);
        assert_eq!(round_trip(Kind::Float, &[0.25f64.to_bits(), 0.27f64.to_bits()]), 4);
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        bolero::check!().with_type::<(u16, Vec<u8>)>().for_each(|(rows, bytes)| {
            let mut values = Vec::new();
            if decode(bytes, usize::from(*rows), &mut values).is_ok() {
                assert_eq!(values.len(), usize::from(*rows));
            }
        });
        for (form, rest) in [
            (9, &[0; 8][..]),
            (SHORT, &[0x80; 12]),
            (SHORT, &[0xff; 12]),
            (SCALED_SHORT, &[9; 4]),
            (PACKED, &[0; 16]),
            (SCALED, &[9; 40]),
            (XORED, &[64; 40]),
            (RAW, &[0; 7]),
        ] {
            let bytes: Vec<u8> = [form].iter().chain(rest).copied().collect();
            assert!(decode(&bytes, 2, &mut Vec::new()).is_err(), "{form}");
        }
    }
}
