// SPDX-License-Identifier: Apache-2.0
//! Words of blocks, and the columns that they go to.
//!
//! A run is a field's elements, or those of fields whose words follow each other: side by side as one long element, or
//! arrays that lie interleaved as one array of elements with a word of each. Words are counted over all of a group's
//! blocks, so that going on is an addition; only at the end of a block's payload is there something to skip.

use crate::block::{GUARDED_FIRST, PLAIN_FIRST};
use crate::limits::{BLOCK_BYTES, BLOCK_WORDS, GUARDED_SLOTS, MAX_LABEL_VALUE_BYTES, PLAIN_SLOTS};
use crate::schema::{Field, Group, Kind, Type};

/// Where a kind of group has its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    /// First word of the payload in a block.
    first: usize,
    /// Words of it.
    len: usize,
}

impl Space {
    pub(super) fn of(kind: Kind) -> Self {
        let (first, len) = match kind {
            Kind::Plain => (PLAIN_FIRST, PLAIN_SLOTS),
            Kind::Guarded | Kind::Computed => (GUARDED_FIRST, GUARDED_SLOTS),
            // A table's is the row, which has no end within it.
            Kind::Foreign | Kind::Table => (0, BLOCK_WORDS),
        };
        Self { first, len }
    }
}

/// Elements in slots: `count` of them, `stride` apart (foreign: by words), each of `width` slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elements {
    slot: usize,
    count: usize,
    width: usize,
    stride: usize,
    /// The first one's first column.
    column: usize,
    /// Columns from a word to the next: 1, or the elements are of so many arrays that lie interleaved, one of each.
    spread: usize,
}

impl Elements {
    pub(super) fn of(group: &Group, field: &Field, column: usize) -> Self {
        let unit = if group.kind == Kind::Foreign { 8 } else { 1 };
        let narrow = unit == 8 && field.kind.width() < 8;
        let width = if narrow { 1 } else { field.slots() };
        // The only element's stride is any number.
        let stride = field.array.as_ref().filter(|array| array.count > 1).map_or(width, |a| a.stride as usize / unit);
        Self { slot: field.slot as usize / unit, count: field.elements() as usize, width, stride, column, spread: 1 }
    }

    /// Elements without gaps are one.
    pub(super) fn joined(self) -> Self {
        if self.count > 1 && self.stride != self.width {
            return self;
        }
        Self { count: 1, width: self.count * self.width, ..self }
    }

    /// With the elements of the next field, if their words follow each other.
    pub(super) fn with(&self, next: &Self) -> Option<Self> {
        let both = Self { width: self.width + next.width, ..*self };
        let follows = self.slot + self.width == next.slot;
        if (self.count, next.count) == (1, 1) {
            return (follows && self.column + self.width == next.column).then_some(both);
        }
        let is_alike = (self.count, self.stride, next.width) == (next.count, next.stride, 1);
        let is_single = self.width == 1 || self.spread > 1;
        let goes_on = self.column + self.width * self.count == next.column;
        (follows && is_alike && is_single && goes_on).then_some(Self { spread: self.count, ..both })
    }
}

/// Elements in the words of blocks, those that are no payload counted, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// First word.
    at: u32,
    /// Words from there to the end of its block's payload.
    left: u32,
    /// Words from an element to the next, if no block ends between them: whole blocks, and so many more.
    stride: u32,
    /// Those that are more.
    step: u32,
    /// Number of elements.
    count: u32,
    /// Words of each.
    width: u32,
    /// The first one's first column.
    column: u32,
    /// Columns from a word of an element to the next.
    spread: u32,
}

impl Run {
    pub(super) fn new(space: Space, elements: &Elements) -> Self {
        let split = |slots: usize| (slots / space.len * BLOCK_WORDS, slots % space.len);
        let ((begin, offset), (blocks, step)) = (split(elements.slot), split(elements.stride));
        Self {
            at: small(begin + space.first + offset),
            left: small(space.len - offset),
            stride: small(blocks + step),
            step: small(step),
            count: small(elements.count),
            width: small(elements.width),
            column: small(elements.column),
            spread: small(elements.spread),
        }
    }

    /// Whether it copies the first `width` words as they stand.
    pub(super) fn is_front(&self, width: usize) -> bool {
        (self.at, self.count, self.width as usize) == (0, 1, width)
    }

    pub(super) fn copy(&self, space: Space, words: &[u64], row: &mut [u64]) {
        let (count, width) = (self.count as usize, self.width as usize);
        let row = &mut row[self.column as usize..][..count * width];
        let mut place = Place::of(self);
        if width == 1 {
            for to in row {
                *to = words[place.at];
                place.pass(self, space);
            }
        } else if self.spread == 1 {
            for to in row.chunks_exact_mut(width) {
                place.copy(space, words, to);
                place.pass(self, space);
            }
        } else {
            for element in 0..count {
                place.scatter(space, words, width, row[element..].iter_mut().step_by(count));
                place.pass(self, space);
            }
        }
    }

    pub(super) fn copy_texts(&self, space: Space, words: &[u64], row: &mut [u64], text: &mut impl FnMut(&[u8]) -> u64) {
        let mut buffer = [0; MAX_LABEL_VALUE_BYTES / 8];
        let buffer = &mut buffer[..self.width as usize];
        let mut place = Place::of(self);
        for to in &mut row[self.column as usize..][..self.count as usize] {
            place.copy(space, words, buffer);
            *to = text(until_nul(bytemuck::cast_slice(&*buffer)));
            place.pass(self, space);
        }
    }
}

/// A word of a payload.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    /// Words of its block's payload from there on, 1 or more.
    left: usize,
}

impl Place {
    fn of(run: &Run) -> Self {
        Self { at: run.at as usize, left: run.left as usize }
    }

    /// Goes to the next element.
    fn pass(&mut self, run: &Run, space: Space) {
        self.at += run.stride as usize;
        match self.left.checked_sub(run.step as usize) {
            Some(left @ 1..) => self.left = left,
            _ => {
                self.left = self.left + space.len - run.step as usize;
                self.at += BLOCK_WORDS - space.len;
            }
        }
    }

    /// Copies the element here, which may go on in the next blocks.
    fn copy(self, space: Space, words: &[u64], mut to: &mut [u64]) {
        let Self { mut at, mut left } = self;
        while !to.is_empty() {
            let (now, later) = to.split_at_mut(left.min(to.len()));
            now.copy_from_slice(&words[at..][..now.len()]);
            at += left + BLOCK_WORDS - space.len;
            (left, to) = (space.len, later);
        }
    }

    /// Copies the words of the element here to one place each.
    fn scatter<'r>(self, space: Space, words: &[u64], width: usize, mut to: impl Iterator<Item = &'r mut u64>) {
        let Self { mut at, mut left } = self;
        let mut rest = width;
        while rest > 0 {
            let here = left.min(rest);
            words[at..][..here].iter().zip(to.by_ref()).for_each(|(from, to)| *to = *from);
            at += left + BLOCK_WORDS - space.len;
            (left, rest) = (space.len, rest - here);
        }
    }
}

/// A field of foreign memory that is not made of words: numbers of less than 8 bytes, and texts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrow {
    kind: Type,
    /// First byte.
    at: u32,
    /// Of a text.
    bytes: u32,
    /// Bytes from an element to the next.
    stride: u32,
    count: u32,
    column: u32,
}

impl Narrow {
    pub(super) fn new(field: &Field, elements: &Elements) -> Self {
        Self {
            kind: field.kind,
            at: field.slot,
            bytes: field.bytes,
            stride: field.array.as_ref().map_or(0, |array| array.stride),
            count: small(elements.count),
            column: small(elements.column),
        }
    }

    pub(super) fn copy(&self, words: &[u64], row: &mut [u64], text: &mut impl FnMut(&[u8]) -> u64) {
        let mut at = self.at as usize;
        for to in &mut row[self.column as usize..][..self.count as usize] {
            *to = match self.kind {
                Type::Text => text(until_nul(&bytemuck::cast_slice::<u64, u8>(words)[at..][..self.bytes as usize])),
                // It is aligned to its width, so it stands in one word.
                kind => widened(kind, words[at / 8] >> (at % 8 * 8)),
            };
            at += self.stride as usize;
        }
    }
}

/// The word of a number that is in the low bytes of `word`; what is above them does not count.
#[must_use]
#[allow(clippy::cast_possible_truncation)] // the low bytes are meant
pub(crate) fn widened(kind: Type, word: u64) -> u64 {
    match kind {
        Type::U8 => u64::from(word as u8),
        Type::U16 => u64::from(word as u16),
        Type::U32 => u64::from(word as u32),
        Type::I8 => i64::from((word as u8).cast_signed()).cast_unsigned(),
        Type::I16 => i64::from((word as u16).cast_signed()).cast_unsigned(),
        Type::I32 => i64::from((word as u32).cast_signed()).cast_unsigned(),
        Type::F32 => f64::from(f32::from_bits(word as u32)).to_bits(),
        Type::U64 | Type::I64 | Type::F64 | Type::Text => word,
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.iter().position(|byte| *byte == 0).map_or(bytes, |end| &bytes[..end])
}

pub(super) fn small(count: usize) -> u32 {
    u32::try_from(count).expect("a checked schema has at most 2^23 words")
}

const _: () = assert!(BLOCK_BYTES == 8 * BLOCK_WORDS, "blocks are words");
