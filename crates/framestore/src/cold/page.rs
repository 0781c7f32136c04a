// SPDX-License-Identifier: Apache-2.0
//! Values as the bytes of Parquet pages, and back: runs, differences, split bytes.
//!
//! The library behind us writes headers, metadata and footers; the bytes of pages are ours, for three reasons. Names
//! and labels of a series are a *run*, one for thousands of rows, so that they cost nothing a row. Zstandard sees whole
//! bytes, which it packs better than bits. And each page has a checksum in its Zstandard frame, which every reader
//! verifies: a flipped bit is an error in DuckDB, too.
//!
//! All of it is what the Parquet format says (Encodings.md), of which we use a part:
//!
//! ```text
//! runs          (RLE)                 varint 2 * length, value in whole bytes; never bit-packed
//! differences   (DELTA_BINARY_PACKED) varint values a block, varint miniblocks, varint values, zigzag first value;
//!                                     then blocks of zigzag least difference, bits a miniblock (1 each), miniblocks of
//!                                     difference - least; bits are multiples of 8
//! split         (BYTE_STREAM_SPLIT)   all first bytes, all second bytes, ...
//! levels        varint runs of 1 and 0, behind their length (u32)
//! ```
//! Reading trusts nothing: what is not as above is a [`Damage`], memory is bounded by the number of rows, which the
//! caller has checked.

use crate::damage::Damage;
use crate::framing::bytes::{Input, put_signed, put_unsigned};

/// Values a block; some readers take no more than 65,536.
const BLOCK: usize = 32_768;
/// Of numbers: values a miniblock, and the difference from which all others are counted. One for all makes one byte of
/// what usually happens, whatever else does nearby, and needs no head every 128 values.
const MINIBLOCK: usize = 64;
const LEAST: i64 = -128;
/// Most values a block that we read.
const MAX_BLOCK: usize = 65_536;

/// Calls a function that is made for each width; of width 0 there is nothing.
macro_rules! by_width {
    ($bytes:expr, $of:ident, $($argument:expr),*) => {
        match $bytes {
            0 => {}
            1 => $of::<1>($($argument),*),
            2 => $of::<2>($($argument),*),
            3 => $of::<3>($($argument),*),
            4 => $of::<4>($($argument),*),
            5 => $of::<5>($($argument),*),
            6 => $of::<6>($($argument),*),
            7 => $of::<7>($($argument),*),
            _ => $of::<8>($($argument),*),
        }
    };
}

/// Whole bytes that a number needs.
fn width(value: u64) -> usize {
    (64 - value.leading_zeros()).div_ceil(8) as usize
}

/// Bits that numbers of a dictionary of this size have; never 0, which not all readers know.
pub(super) fn number_bits(entries: usize) -> u8 {
    let largest = entries.saturating_sub(1) as u64;
    u8::try_from(64 - largest.leading_zeros()).unwrap_or(32).max(1)
}

/// Appends runs of (value, rows) whose values have so many bits.
pub(super) fn put_runs(bits: u8, runs: impl IntoIterator<Item = (u32, usize)>, out: &mut Vec<u8>) {
    let bytes = usize::from(bits.div_ceil(8));
    for (value, rows) in runs {
        put_unsigned((rows as u64) << 1, out);
        out.extend(&value.to_le_bytes()[..bytes]);
    }
}

/// Reads runs for so many rows.
pub(super) fn take_runs(input: &mut Input, bits: u8, rows: usize) -> Result<Vec<(u32, usize)>, Damage> {
    if bits > 32 {
        return Err(Damage::Wrong("the bits of a run"));
    }
    let (mut runs, mut left) = (Vec::new(), rows);
    while left > 0 {
        let head = input.unsigned()?;
        let length = usize::try_from(head >> 1).unwrap_or(usize::MAX);
        if head & 1 == 1 || length == 0 || length > left {
            return Err(Damage::Wrong("a run"));
        }
        let mut value = [0; 4];
        let bytes = input.take(usize::from(bits.div_ceil(8)))?;
        value[..bytes.len()].copy_from_slice(bytes);
        runs.push((u32::from_le_bytes(value), length));
        left -= length;
    }
    Ok(runs)
}

/// Appends levels: runs of whether there is a value.
pub(super) fn put_levels(runs: &[(bool, usize)], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend([0; 4]);
    put_runs(1, runs.iter().map(|(is_there, rows)| (u32::from(*is_there), *rows)), out);
    let bytes = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&bytes.to_le_bytes());
}

/// Reads levels of so many rows.
pub(super) fn take_levels(input: &mut Input, rows: usize) -> Result<Vec<(bool, usize)>, Damage> {
    let mut levels = Input(input.sized()?);
    let runs = take_runs(&mut levels, 1, rows)?;
    if !levels.0.is_empty() || runs.iter().any(|(value, _)| *value > 1) {
        return Err(Damage::Wrong("the levels"));
    }
    Ok(runs.into_iter().map(|(value, rows)| (value == 1, rows)).collect())
}

/// Appends differences, each 64 of them as narrow as they can be: for values of which most equal the one before, and
/// for times that nobody else has.
pub(super) fn put_differences(values: &[u64], out: &mut Vec<u8>) {
    put_blocks(values, MINIBLOCK, LEAST, None, out);
}

/// Appends the differences of times, all of one width, so that the same times are the same bytes wherever they stand:
/// many series have them in common, and Zstandard finds them.
pub(super) fn put_times(times: &[u64], out: &mut Vec<u8>) {
    let differences = || times.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]).cast_signed());
    let least = differences().min().unwrap_or(0);
    let most = differences().max().unwrap_or(0);
    put_blocks(times, BLOCK, least, Some(width(most.wrapping_sub(least).cast_unsigned())), out);
}

fn put_blocks(values: &[u64], miniblock: usize, least: i64, bytes: Option<usize>, out: &mut Vec<u8>) {
    let first = values.first().copied().unwrap_or(0);
    [BLOCK, BLOCK / miniblock, values.len()].iter().for_each(|number| put_unsigned(*number as u64, out));
    put_signed(first, out);
    let mut before = first;
    let mut above = Vec::with_capacity(miniblock);
    for values in values.get(1..).unwrap_or(&[]).chunks(BLOCK) {
        put_signed(least.cast_unsigned(), out);
        let widths = out.len();
        out.resize(widths + BLOCK / miniblock, 0);
        for (number, values) in values.chunks(miniblock).enumerate() {
            above.clear();
            let mut all = 0;
            above.extend(values.iter().map(|value| {
                let above = value.wrapping_sub(before).wrapping_sub(least.cast_unsigned());
                before = *value;
                all |= above;
                above
            }));
            let bytes = bytes.unwrap_or_else(|| width(all));
            out[widths + number] = u8::try_from(bytes * 8).expect("at most 64");
            let end = out.len() + miniblock * bytes;
            pack(bytes, &above, out);
            out.resize(end, 0);
        }
    }
}

/// The low bytes of each value.
fn pack(bytes: usize, values: &[u64], out: &mut Vec<u8>) {
    fn each<const BYTES: usize>(values: &[u64], out: &mut Vec<u8>) {
        let low = |value: &u64| -> [u8; BYTES] { std::array::from_fn(|at| (value >> (8 * at) & 0xff) as u8) };
        out.extend(values.iter().flat_map(low));
    }
    by_width!(bytes, each, values, out);
}

/// Adds values that have so many bytes each to what they are differences of.
fn unpack(bytes: usize, packed: &[u8], mut value: u64, least: u64, count: usize, values: &mut Vec<u64>) -> u64 {
    fn each<const BYTES: usize>(packed: &[u8], value: &mut u64, least: u64, count: usize, values: &mut Vec<u64>) {
        let (packed, _) = packed.as_chunks::<BYTES>();
        values.extend(packed.iter().take(count).map(|above| {
            let mut word = [0; 8];
            word[..BYTES].copy_from_slice(above);
            *value = value.wrapping_add(least).wrapping_add(u64::from_le_bytes(word));
            *value
        }));
    }
    if bytes == 0 {
        values.extend((0..count).map(|_| {
            value = value.wrapping_add(least);
            value
        }));
    }
    by_width!(bytes, each, packed, &mut value, least, count, values);
    value
}

/// Reads the differences of so many values.
pub(super) fn take_differences(input: &mut Input, rows: usize) -> Result<Vec<u64>, Damage> {
    let (block, miniblocks) = (input.count(MAX_BLOCK)?, input.count(MAX_BLOCK)?);
    let is_shape = block > 0 && miniblocks > 0 && block.is_multiple_of(miniblocks);
    if !is_shape || input.count(rows)? != rows {
        return Err(Damage::Wrong("the head of a page of differences"));
    }
    let mut value = input.signed()?;
    let mut values = Vec::with_capacity(rows);
    if rows > 0 {
        values.push(value);
    }
    while values.len() < rows {
        let least = input.signed()?;
        for bits in input.take(miniblocks)? {
            let count = (block / miniblocks).min(rows - values.len());
            if count == 0 {
                break;
            }
            if *bits > 64 || bits % 8 > 0 {
                return Err(Damage::Wrong("the width of differences"));
            }
            let bytes = usize::from(bits / 8);
            let packed = input.take(block / miniblocks * bytes)?;
            value = unpack(bytes, packed, value, least, count, &mut values);
        }
    }
    Ok(values)
}

/// Appends words, split into their bytes.
pub(super) fn put_split(words: &[u64], out: &mut Vec<u8>) {
    for byte in 0..8 {
        out.extend(words.iter().map(|word| (word >> (8 * byte) & 0xff) as u8));
    }
}

/// Reads so many split words.
pub(super) fn take_split(input: &mut Input, rows: usize) -> Result<Vec<u64>, Damage> {
    let bytes = input.take(rows.saturating_mul(8))?;
    let mut words = vec![0; rows];
    for (number, stream) in bytes.chunks_exact(rows.max(1)).enumerate() {
        words.iter_mut().zip(stream).for_each(|(word, byte)| *word |= u64::from(*byte) << (8 * number));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences(values: &[u64], put: fn(&[u64], &mut Vec<u8>)) -> usize {
        let mut bytes = Vec::new();
        put(values, &mut bytes);
        let mut input = Input(&bytes);
        assert_eq!(take_differences(&mut input, values.len()).unwrap(), values);
        assert!(input.0.is_empty());
        bytes.len()
    }

    #[test]
    fn whatever_is_put_is_taken() {
        bolero::check!().with_type::<Vec<u64>>().for_each(|values| {
            differences(values, put_differences);
            differences(values, put_times);
            let mut bytes = Vec::new();
            put_split(values, &mut bytes);
            assert_eq!(take_split(&mut Input(&bytes), values.len()).unwrap(), *values);
        });
        bolero::check!().with_type::<(u32, Vec<(u32, u16)>)>().for_each(|(entries, runs)| {
            let entries = *entries as usize + 1;
            let of = |value: u32| u32::try_from(value as usize % entries).unwrap();
            let runs: Vec<_> = runs.iter().map(|(value, rows)| (of(*value), usize::from(*rows) + 1)).collect();
            let rows = runs.iter().map(|(_, rows)| rows).sum();
            let mut bytes = Vec::new();
            put_runs(number_bits(entries), runs.iter().copied(), &mut bytes);
            assert_eq!(take_runs(&mut Input(&bytes), number_bits(entries), rows).unwrap(), runs);
            let levels: Vec<_> = runs.iter().map(|(value, rows)| (value % 2 == 0, *rows)).collect();
            bytes.clear();
            put_levels(&levels, &mut bytes);
            assert_eq!(take_levels(&mut Input(&bytes), rows).unwrap(), levels);
        });
    }

    #[test]
    fn more_values_than_a_block_come_back() {
        for rows in [1, 2, 128, 129, 130, 257, 32_768, 32_769, 32_770, 100_001] {
            let values: Vec<u64> = (0..rows).map(|row| row * 1_000_000_007 % 77_777 + row * 1_000).collect();
            differences(&values, put_differences);
            differences(&values, put_times);
        }
        // What does not change is a byte that Zstandard knows.
        assert!(differences(&[7; 12_801], put_differences) < 13_500);
    }

    #[test]
    fn the_same_times_are_the_same_bytes() {
        let times: Vec<u64> = (0..599u64).map(|row| row * 1_000_000_000 + row * row * 7_919 % 200_000).collect();
        let twice: Vec<u64> = times.iter().chain(&times).chain(&times).copied().collect();
        let mut bytes = Vec::new();
        put_times(&twice, &mut bytes);
        let seen = bytes.windows(64).filter(|part| *part == &bytes[1_000..1_064]).count();
        assert_eq!(seen, 3);
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        bolero::check!().with_type::<(u16, u8, Vec<u8>)>().for_each(|(rows, bits, bytes)| {
            let rows = usize::from(*rows);
            if let Ok(values) = take_differences(&mut Input(bytes), rows) {
                assert_eq!(values.len(), rows);
            }
            for runs in [take_runs(&mut Input(bytes), *bits, rows)].into_iter().flatten() {
                assert_eq!(runs.iter().map(|(_, rows)| rows).sum::<usize>(), rows);
            }
            let _ = take_levels(&mut Input(bytes), rows);
            let _ = take_split(&mut Input(bytes), rows);
        });
    }
}
