// SPDX-License-Identifier: Apache-2.0
//! One column of a tile. Reading trusts nothing.
//!
//! ```text
//! byte 0          form
//! 0 constant      value (8)
//! 1 packed        first value (8), least difference (8), differences less the least (bits)
//! 2 scaled        power of ten (1), then `packed` without its form, of value * 10^power as integers
//! 3 xored         first value (8), trailing zero bits that all have (1), value ^ value before, shifted (bits)
//! 4 raw           all values (8 each)
//! 5 short         the first value, then differences, each as a zigzag LEB128 integer
//! 6 scaled short  power of ten (1), then `short` without its form, of value * 10^power as integers
//! bits            bits a number (1), numbers, low bits first, in whole words
//! ```

use crate::column::{factor, unscaled};
use crate::damage::Damage;
use crate::framing::bytes::Input;

const CONSTANT: u8 = 0;
const PACKED: u8 = 1;
const SCALED: u8 = 2;
const XORED: u8 = 3;
const RAW: u8 = 4;
const SHORT: u8 = 5;
const SCALED_SHORT: u8 = 6;

/// Reads a column of so many values.
pub(super) fn take(input: &mut Input, rows: usize) -> Result<Vec<u64>, Damage> {
    match input.byte()? {
        CONSTANT => input.word().map(|value| vec![value; rows]),
        PACKED => take_packed(input, rows),
        SHORT => take_short(input, rows),
        form @ (SCALED | SCALED_SHORT) => {
            let factor = factor(input.byte()?)?;
            let integers = if form == SCALED { take_packed(input, rows)? } else { take_short(input, rows)? };
            Ok(integers.into_iter().map(|integer| unscaled(integer, factor)).collect())
        }
        XORED => take_xored(input, rows),
        RAW => (0..rows).map(|_| input.word()).collect(),
        _ => Err(Damage::Wrong("a column's form")),
    }
}

fn take_packed(input: &mut Input, rows: usize) -> Result<Vec<u64>, Damage> {
    let (first, least) = (input.word()?, input.word()?);
    take_chain(input, rows, first, |before, above| before.wrapping_add(least).wrapping_add(above))
}

fn take_xored(input: &mut Input, rows: usize) -> Result<Vec<u64>, Damage> {
    let (first, shift) = (input.word()?, input.byte()?);
    if shift > 63 {
        return Err(Damage::Wrong("a column's shift"));
    }
    take_chain(input, rows, first, |before, xored| before ^ xored << shift)
}

fn take_short(input: &mut Input, rows: usize) -> Result<Vec<u64>, Damage> {
    let mut value = 0u64;
    let next = |_| {
        value = value.wrapping_add(input.signed()?);
        Ok(value)
    };
    (0..rows).map(next).collect()
}

/// A value, and what `next` makes of each and of the number that is packed for the next one.
fn take_chain(input: &mut Input, rows: usize, first: u64, next: impl Fn(u64, u64) -> u64) -> Result<Vec<u64>, Damage> {
    let numbers = rows.saturating_sub(1);
    let bits = usize::from(input.byte()?);
    if bits > 64 {
        return Err(Damage::Wrong("a column's bits"));
    }
    let words = input.take((bits * numbers).div_ceil(64) * 8)?.as_chunks().0;
    let word = |at: usize| words.get(at).map_or(0, |word| u128::from(u64::from_le_bytes(*word)));
    let mut values = vec![first; rows.min(1)];
    let mut value = first;
    for bit in (0..numbers).map(|number| number * bits) {
        let two = word(bit / 64) | word(bit / 64 + 1) << 64;
        #[allow(clippy::cast_possible_truncation)] // masked
        let number = (two >> (bit % 64) & ((1 << bits) - 1)) as u64;
        value = next(value, number);
        values.push(value);
    }
    Ok(values)
}
