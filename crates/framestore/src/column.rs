// SPDX-License-Identifier: Apache-2.0
//! One column as bytes. Blocks of 64 values each take the width that they need, those that equal the one before take a
//! bit or nothing, and a constant is one number. `chunk` writes and reads columns; so does whoever else has a list of
//! numbers to keep.
//!
//! Lossless for every bit pattern. Decoding trusts nothing: a damaged column is an error, never a panic or an
//! allocation beyond the rows that were asked for. A column may consist of *runs*, one for each line of a table: what
//! lies between the last value of one and the first of the next is no difference to pack.
//!
//! ```text
//! byte 0      form
//! constant    the value
//! deltas      first value; blocks of value - value before; first values of the other runs, each less the one before
//! levels      blocks of values
//! scaled      power of ten (1); then `deltas` without its form byte, of value * 10^power as integers
//! xored       first value; blocks of value ^ value before; first values of the other runs, each ^ the one before
//! raw         all values (8 each)
//! ```
//! Blocks are those of `block.rs`. Values are zigzag LEB128 integers, in `xored` LEB128 of the swapped bytes. The
//! difference at the beginning of a run is whatever is cheapest.

mod block;

use block::{BLOCK, Block, put_block, take_blocks};

use crate::damage::Damage;
pub(crate) use crate::framing::bytes::{Input, put_signed, put_unsigned};
use crate::types::Kind;

const CONSTANT: u8 = 0;
const DELTAS: u8 = 1;
const LEVELS: u8 = 2;
const SCALED: u8 = 3;
const XORED: u8 = 4;
const RAW: u8 = 5;

/// Powers of ten that are tried for floats: what gauges are usually rounded to.
const POWERS: [f64; 5] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0];
/// 1.5 * 2^52: what a float has no fraction beside. Adding it rounds, without a call.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// Appends the smallest form of `values` to `out`; nothing of none. `runs` are the numbers of values of the runs,
/// nothing where there is one only.
pub fn encode(kind: Kind, values: &[u64], runs: &[u32], out: &mut Vec<u8>) {
    let Some(first) = values.first() else { return };
    let start = out.len();
    if values.iter().all(|value| value == first) {
        out.push(CONSTANT);
        put_signed(*first, out);
    } else if kind != Kind::Float {
        out.push(DELTAS);
        put_chain(Op::Add, values, runs, out);
    } else if let Some((power, scaled)) = scale(values) {
        out.extend([SCALED, power]);
        put_chain(Op::Add, &scaled, runs, out);
    } else {
        out.push(XORED);
        put_chain(Op::Xor, values, runs, out);
    }
    if matches!(kind, Kind::Integer { .. }) && !values.is_sorted() {
        put_levels_if_smaller(start, values, out);
    }
    if out.len() - start > 1 + size_of_val(values) {
        out.truncate(start);
        out.push(RAW);
        out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
}

/// Reads a column of `rows` values from the front of `bytes`, appends them to `values` and returns the rest. With an
/// error `values` stays as it was.
///
/// # Errors
/// [`Damage`].
pub fn decode<'a>(bytes: &'a [u8], rows: usize, runs: &[u32], values: &mut Vec<u64>) -> Result<&'a [u8], Damage> {
    let (mut input, start) = (Input(bytes), values.len());
    if rows > 0 {
        values.reserve(rows);
        take_column(&mut input, rows, runs, values).inspect_err(|_| values.truncate(start))?;
    }
    Ok(input.0)
}

/// What follows a column, which is not unpacked.
///
/// # Errors
/// [`Damage`].
pub fn skip<'a>(bytes: &'a [u8], rows: usize, runs: &[u32]) -> Result<&'a [u8], Damage> {
    let mut input = Input(bytes);
    if rows == 0 {
        return Ok(bytes);
    }
    let form = input.byte()?;
    let numbers = match form {
        CONSTANT => 0,
        LEVELS => rows,
        RAW => {
            input.take(rows * 8)?;
            0
        }
        DELTAS | XORED | SCALED => rows - 1,
        _ => return Err(Damage::Wrong("a column's form")),
    };
    if form == SCALED {
        input.byte()?;
    }
    if !matches!(form, LEVELS | RAW) {
        input.unsigned()?;
    }
    for at in (0..numbers).step_by(BLOCK) {
        let block = Block::take(&mut input, BLOCK.min(numbers - at))?;
        input.take(block.packed_bytes())?;
    }
    let firsts = if matches!(form, DELTAS | XORED | SCALED) { runs.len().saturating_sub(1) } else { 0 };
    for _ in 0..firsts {
        input.unsigned()?;
    }
    Ok(input.0)
}

fn take_column(input: &mut Input, rows: usize, runs: &[u32], values: &mut Vec<u64>) -> Result<(), Damage> {
    let start = values.len();
    match input.byte()? {
        CONSTANT => {
            let value = input.signed()?;
            values.resize(start + rows, value);
        }
        DELTAS => take_chain(input, Op::Add, rows, runs, values)?,
        LEVELS => take_blocks(input, rows, values, 0, |_, number| number)?,
        SCALED => {
            let factor = factor(input.byte()?)?;
            take_chain(input, Op::Add, rows, runs, values)?;
            values[start..].iter_mut().for_each(|value| *value = unscaled(*value, factor));
        }
        XORED => take_chain(input, Op::Xor, rows, runs, values)?,
        RAW => {
            let bytes = input.take(rows * 8)?;
            values.extend(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
        }
        _ => return Err(Damage::Wrong("a column's form")),
    }
    Ok(())
}

/// What makes a value of the one before and a number.
#[derive(Clone, Copy)]
enum Op {
    Add,
    Xor,
}

impl Op {
    /// The first value of a run, against that of the run before.
    fn put_first(self, before: u64, value: u64, out: &mut Vec<u8>) {
        match self {
            Self::Add => put_signed(value.wrapping_sub(before), out),
            Self::Xor => put_unsigned((value ^ before).swap_bytes(), out),
        }
    }

    fn take_first(self, before: u64, input: &mut Input) -> Result<u64, Damage> {
        Ok(match self {
            Self::Add => before.wrapping_add(input.signed()?),
            Self::Xor => before ^ input.unsigned()?.swap_bytes(),
        })
    }
}

fn put_chain(op: Op, values: &[u64], runs: &[u32], out: &mut Vec<u8>) {
    op.put_first(0, values[0], out);
    let mut end = 0;
    let mut starts = runs.iter().map(|rows| {
        end += *rows as usize;
        end
    });
    let mut next = starts.next().unwrap_or(usize::MAX);
    let (mut numbers, mut last) = ([0; BLOCK], 0);
    for at in (1..values.len()).step_by(BLOCK) {
        let count = BLOCK.min(values.len() - at);
        let pairs = numbers.iter_mut().zip(values[at - 1..at + count].windows(2));
        match op {
            Op::Add => pairs.for_each(|(number, pair)| *number = pair[1].wrapping_sub(pair[0])),
            Op::Xor => pairs.for_each(|(number, pair)| *number = pair[1] ^ pair[0]),
        }
        while next < at + count {
            // Nobody reads it: what the one before is costs least.
            numbers[next - at] = if next > at { numbers[next - at - 1] } else { last };
            next = starts.next().unwrap_or(usize::MAX);
        }
        last = numbers[count - 1];
        put_block(matches!(op, Op::Add), &numbers[..count], out);
    }
    let mut at = 0;
    for rows in &runs[..runs.len().saturating_sub(1)] {
        let before = values[at];
        at += *rows as usize;
        op.put_first(before, values[at], out);
    }
}

fn take_chain(input: &mut Input, op: Op, rows: usize, runs: &[u32], values: &mut Vec<u64>) -> Result<(), Damage> {
    let start = values.len();
    let mut first = op.take_first(0, input)?;
    values.push(first);
    match op {
        Op::Add => take_blocks(input, rows - 1, values, first, u64::wrapping_add)?,
        Op::Xor => take_blocks(input, rows - 1, values, first, |before, number| before ^ number)?,
    }
    let mut rest = &mut values[start..];
    for pair in runs.windows(2) {
        first = op.take_first(first, input)?;
        rest = rest.split_at_mut_checked(pair[0] as usize).ok_or(Damage::Wrong("a column's runs"))?.1;
        let run = rest.get_mut(..pair[1] as usize).filter(|run| !run.is_empty());
        let run = run.ok_or(Damage::Wrong("a column's runs"))?;
        match op {
            Op::Add => {
                let up = first.wrapping_sub(run[0]);
                run.iter_mut().for_each(|value| *value = value.wrapping_add(up));
            }
            Op::Xor => {
                let other = first ^ run[0];
                run.iter_mut().for_each(|value| *value ^= other);
            }
        }
    }
    Ok(())
}

/// Puts levels in the place of what begins at `start`, if that is shorter: what jumps about needs a bit less than its
/// differences do.
fn put_levels_if_smaller(start: usize, values: &[u64], out: &mut Vec<u8>) {
    let end = out.len();
    out.push(LEVELS);
    for block in values.chunks(BLOCK) {
        put_block(true, block, out);
        if out.len() - end >= end - start {
            return out.truncate(end);
        }
    }
    out.drain(start..end);
}

/// Of a power of ten.
pub(crate) fn factor(power: u8) -> Result<f64, Damage> {
    POWERS.get(usize::from(power)).copied().ok_or(Damage::Wrong("a column's power of ten"))
}

/// A float that was stored as an integer.
pub(crate) fn unscaled(value: u64, factor: f64) -> u64 {
    (value.cast_signed() as f64 / factor).to_bits()
}

/// The least power of ten that makes all floats integers from which they come back bit for bit.
fn scale(values: &[u64]) -> Option<(u8, Vec<u64>)> {
    (0u8..).zip(POWERS).find_map(|(power, factor)| {
        let integers = values.iter().map(|bits| {
            let rounded = f64::from_bits(*bits) * factor + ROUNDER - ROUNDER;
            #[allow(clippy::cast_possible_truncation)] // saturates, and does not come back then
            let integer = (rounded as i64).cast_unsigned();
            // Back by the decoder's own way: minus zero, for one, does not come back.
            (unscaled(integer, factor) == *bits).then_some(integer)
        });
        integers.collect::<Option<Vec<_>>>().map(|integers| (power, integers))
    })
}

#[cfg(test)]
mod tests;
