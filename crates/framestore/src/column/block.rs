// SPDX-License-Identifier: Apache-2.0
//! Blocks of numbers that are packed in as many bits as each block needs.
//!
//! Zeros, which are values that equal the one before, may be left out: a mask says where they are. What all numbers
//! have in common, a least one and zero bits at the end, is taken off.
//!
//! ```text
//! head (1)   0-56 width, 57 width 64, 58 shifted; +64 masked; +128 based
//! shifted    shift (1), width (1) as in the head
//! based      base, zigzag LEB128
//! masked     a bit for each byte of the mask that is not 0 (1), those bytes; the mask has a bit for each number
//!            that is not 0
//! ..         the numbers (those of the mask) less base, >> shift, `width` bits each, low bits first, in whole bytes
//! ```
//! A block of zeros is one byte. Eight numbers of one width take whole bytes: unpacking is a load, a shift and a mask
//! each.

use super::{Input, put_signed};
use crate::damage::Damage;

/// Numbers of a block; the last one of a column may have less.
pub(super) const BLOCK: usize = 64;
/// Widest numbers that one load of eight bytes has whole, wherever they begin; wider ones take 64 bits.
const MAX_WIDTH: u32 = 56;
pub(super) const WHOLE: u8 = 57;
pub(super) const SHIFTED: u8 = 58;
pub(super) const MASKED: u8 = 64;
const BASED: u8 = 128;

type Numbers = [u64; BLOCK];

/// Bits that the largest of some numbers needs.
fn width(or_of_all: u64) -> u32 {
    u64::BITS - or_of_all.leading_zeros()
}

/// How the numbers of a block are packed.
#[derive(Clone, Copy)]
pub(super) struct Block {
    base: u64,
    shift: u32,
    width: u32,
    mask: u64,
    /// Numbers that are packed.
    count: usize,
}

impl Block {
    /// The narrowest way of packing all of these numbers, `plain` being all their bits.
    fn of(has_base: bool, plain: u64, numbers: &[u64]) -> Self {
        let (mut base, mut bits) = (0, plain);
        if has_base {
            let least = numbers.iter().map(|number| number.cast_signed()).min().unwrap_or(0);
            let above = numbers.iter().fold(0, |all, number| all | number.wrapping_sub(least.cast_unsigned()));
            if least < 0 || width(above) < width(plain) {
                (base, bits) = (least.cast_unsigned(), above);
            }
        }
        // A shift takes two bytes.
        let shift = if bits == 0 { 0 } else { bits.trailing_zeros() };
        let shift = if shift as usize * numbers.len() > 24 { shift } else { 0 };
        let width = width(bits >> shift);
        Self { base, shift, width: if width > MAX_WIDTH { 64 } else { width }, mask: u64::MAX, count: numbers.len() }
    }

    pub(super) fn packed_bytes(&self) -> usize {
        (self.width as usize * self.count).div_ceil(8)
    }

    fn is_masked(&self) -> bool {
        self.mask != u64::MAX
    }

    fn put(&self, numbers: &[u64], out: &mut Vec<u8>) {
        let width = if self.width > MAX_WIDTH { WHOLE } else { self.width.to_le_bytes()[0] };
        let masked = if self.is_masked() { MASKED } else { 0 };
        let flags = masked | if self.base == 0 { 0 } else { BASED };
        if self.shift > 0 {
            out.extend([SHIFTED | flags, self.shift.to_le_bytes()[0], width]);
        } else {
            out.push(width | flags);
        }
        if self.base != 0 {
            put_signed(self.base, out);
        }
        if self.is_masked() {
            let bytes = self.mask.to_le_bytes();
            out.push((0..8).fold(0, |present, at| present | u8::from(bytes[at] > 0) << at));
            out.extend(bytes.iter().filter(|byte| **byte > 0));
        }
        pack(self.width, numbers.iter().map(|number| number.wrapping_sub(self.base) >> self.shift), out);
    }

    /// Reads all but the packed numbers of a block of `count` ones.
    pub(super) fn take(input: &mut Input, count: usize) -> Result<Self, Damage> {
        let head = input.byte()?;
        let (mut shift, mut code) = (0, head & (MASKED - 1));
        if code == SHIFTED {
            (shift, code) = (u32::from(input.byte()?), input.byte()?);
        }
        let width = if code == WHOLE { 64 } else { u32::from(code) };
        if shift > 63 || code > WHOLE {
            return Err(Damage::Wrong("a block's width"));
        }
        let base = if head & BASED > 0 { input.signed()? } else { 0 };
        let mut block = Self { base, shift, width, mask: u64::MAX, count };
        if head & MASKED > 0 {
            let present = input.byte()?;
            let mut bytes = [0; 8];
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = if present >> at & 1 == 1 { input.byte()? } else { 0 };
            }
            block.mask = u64::from_le_bytes(bytes);
            block.count = block.mask.count_ones() as usize;
            if u64::BITS - block.mask.leading_zeros() > u32::try_from(count).unwrap_or(0) {
                return Err(Damage::Wrong("a block's mask"));
            }
        }
        Ok(block)
    }

    /// Reads the packed numbers.
    fn unpack(&self, input: &mut Input, packed: &mut Numbers) -> Result<(), Damage> {
        unpack(self.width, self.count, input, packed)?;
        if self.base != 0 || self.shift != 0 {
            packed.iter_mut().for_each(|number| *number = (*number << self.shift).wrapping_add(self.base));
        }
        Ok(())
    }

    /// Lays out those of the mask among zeros.
    fn spread(&self, packed: &Numbers, numbers: &mut Numbers) {
        numbers.fill(0);
        let mut left = self.mask;
        for number in &packed[..self.count] {
            numbers[left.trailing_zeros() as usize % BLOCK] = *number;
            left &= left.wrapping_sub(1);
        }
    }
}

/// Appends numbers, [`BLOCK`] at most. Without base they are words, else integers of either sign.
pub(super) fn put_block(has_base: bool, numbers: &[u64], out: &mut Vec<u8>) {
    let (mut mask, mut some, mut count, mut all) = (0u64, [0; BLOCK], 0, 0);
    for (at, number) in numbers.iter().enumerate() {
        some[count % BLOCK] = *number;
        count += usize::from(*number != 0);
        mask |= u64::from(*number != 0) << at;
        all |= number;
    }
    // What the zeros would take against what the mask takes.
    let mask_bytes = 1 + mask.to_le_bytes().iter().filter(|byte| **byte > 0).count();
    if count > 0 && (numbers.len() - count) * width(all) as usize > mask_bytes * 8 {
        let some = &some[..count];
        Block { mask, ..Block::of(has_base, all, some) }.put(some, out);
    } else {
        Block::of(has_base, all, numbers).put(numbers, out);
    }
}

/// Reads `count` numbers in blocks and appends what `next` makes of each and of the value before.
pub(super) fn take_blocks(
    input: &mut Input,
    count: usize,
    values: &mut Vec<u64>,
    mut value: u64,
    next: impl Fn(u64, u64) -> u64,
) -> Result<(), Damage> {
    let (mut packed, mut numbers) = ([0; BLOCK], [0; BLOCK]);
    for at in (0..count).step_by(BLOCK) {
        let count = BLOCK.min(count - at);
        let block = Block::take(input, count)?;
        if block.width == 0 && !block.is_masked() {
            // All the same, most often 0.
            values.extend((0..count).map(|_| {
                value = next(value, block.base);
                value
            }));
            continue;
        }
        if block.is_masked() {
            block.unpack(input, &mut packed)?;
            block.spread(&packed, &mut numbers);
        } else {
            block.unpack(input, &mut numbers)?;
        }
        values.extend(numbers[..count].iter().map(|number| {
            value = next(value, *number);
            value
        }));
    }
    Ok(())
}

/// The low `width` bits of each number, low bits first.
fn pack(width: u32, numbers: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
    let (mut word, mut used) = (0u64, 0);
    if width == 0 {
        return;
    }
    for number in numbers {
        word |= number << used;
        used += width;
        if used >= 64 {
            out.extend(word.to_le_bytes());
            used -= 64;
            word = if used == 0 { 0 } else { number >> (width - used) };
        }
    }
    out.extend(&word.to_le_bytes()[..used.div_ceil(8) as usize]);
}

fn unpack(width: u32, count: usize, input: &mut Input, numbers: &mut Numbers) -> Result<(), Damage> {
    let (all, groups, width) = (input.0, count.div_ceil(8), width as usize);
    let packed = input.take((width * count).div_ceil(8))?;
    match width {
        0 => numbers.fill(0),
        64 => numbers.iter_mut().zip(packed.as_chunks().0).for_each(|(to, word)| *to = u64::from_le_bytes(*word)),
        _ if all.len() >= groups * width + 8 => unpack_groups(width, all, groups, numbers),
        _ => {
            // The last ones of a column: loads must find eight bytes.
            let mut padded = [0; BLOCK / 8 * MAX_WIDTH as usize + 8];
            padded[..packed.len()].copy_from_slice(packed);
            unpack_groups(width, &padded, groups, numbers);
        }
    }
    Ok(())
}

/// Eight numbers of a width take whole bytes: in each eight they begin at the same bits, which the compiler knows if it
/// knows the width.
fn unpack_groups(width: usize, bytes: &[u8], groups: usize, numbers: &mut Numbers) {
    macro_rules! of_width {
        ($($width:literal)*) => {
            match width {
                $($width => unpack_width::<$width>(bytes, groups, numbers),)*
                _ => unreachable!("checked where the block's head was read"),
            }
        };
    }
    of_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30
        31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56);
}

fn unpack_width<const WIDTH: usize>(bytes: &[u8], groups: usize, numbers: &mut Numbers) {
    for (group, eight) in numbers.as_chunks_mut::<8>().0.iter_mut().enumerate().take(groups) {
        let bytes = &bytes[group * WIDTH..][..WIDTH + 8];
        for (at, number) in eight.iter_mut().enumerate() {
            let bit = at * WIDTH;
            let word = bytes[bit / 8..].first_chunk().copied().unwrap_or_default();
            *number = u64::from_le_bytes(word) >> (bit % 8) & (u64::MAX >> (64 - WIDTH));
        }
    }
}
