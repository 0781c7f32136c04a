// SPDX-License-Identifier: Apache-2.0
//! A schema with its decoding worked out once: which words of which blocks go to which columns of a row.
//!
//! [`Checked::decode`] hands over each value with all its names. Who has written the names down once wants the words
//! only, many times: [`Checked::copy_group`] and [`Checked::rows`] copy them, and look at no field.
//!
//! A group's *columns* are in the order in which `decode` hands over its samples: field by field, element by element.
//!
//! | field | columns of an element |
//! |---|---|
//! | number | one: its bits, of narrow ones those of the `u64`, `i64` or `f64` of the same value |
//! | histogram | its buckets, then the sum |
//! | text | one: the number that the caller gives to the text |
//!
//! In tables each row has all of them.
//!
//! Made by [`Plan::new`](crate::columns::Plan::new) and never changed, so all who read regions of a schema share one.
//! An array is one run however many elements it has, and fields that stand side by side are one together: a hostile
//! schema takes no more memory than its text is worth. Cost: 1-2 ns a value, and a look at each block's time; nothing
//! is allocated.

use crate::block::{GUARDED_FIRST, GUARDED_TIME, PLAIN_FIRST};
use crate::checked::{Checked, has_guard};
use crate::columns::RowRef;
use crate::limits::{BLOCK_BYTES, BLOCK_WORDS, GUARDED_SLOTS, MAX_LABEL_VALUE_BYTES, PLAIN_SLOTS};
use crate::schema::{Acquisition, Field, Group, Kind, Schema, Type};
use crate::table::{self, Layout};
use std::ops::Range;

/// When the values of a group were acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// As its blocks say, CLOCK_BOOTTIME ns of the watched host.
    At {
        /// Of its oldest block.
        oldest_ns: u64,
        /// Of its newest one. A block that is committed anew moves it.
        newest_ns: u64,
    },
    /// When it was READ: blocks of its kind have no time.
    WhenRead,
}

/// How to decode regions of one schema.
#[derive(Clone, Debug)]
pub struct Compiled {
    groups: Box<[CompiledGroup]>,
    blocks: usize,
    is_computed: bool,
}

/// How to decode one group.
#[derive(Clone, Debug)]
pub struct CompiledGroup {
    kind: Kind,
    blocks: Range<usize>,
    pub(crate) has_twin: bool,
    pub(crate) twin_of: Option<usize>,
    layout: Option<Layout>,
    /// First column of each field, then the number of columns.
    firsts: Box<[u32]>,
    runs: Box<[Run]>,
    /// Texts in slots: each element goes to one column.
    texts: Box<[Run]>,
    narrow: Box<[Narrow]>,
}

impl Compiled {
    /// # Panics
    /// If the schema has not passed [`Schema::check`].
    pub(crate) fn new(schema: &Schema) -> Self {
        let twin_of = |group: &Group| group.twin_of.map(|of| of as usize).filter(|of| *of < schema.groups.len());
        let placed = schema.placed_groups().enumerate();
        let groups = placed.map(|(number, (begin, group))| CompiledGroup {
            has_twin: schema.groups.iter().any(|twin| twin_of(twin) == Some(number)),
            twin_of: twin_of(group),
            ..CompiledGroup::new(group, begin as usize)
        });
        // A table can be computed, too: its kind says how it is laid out.
        let is_computed = |group: &Group| group.kind == Kind::Computed || group.acquisition == Acquisition::Computed;
        Self {
            groups: groups.collect(),
            blocks: schema.blocks() as usize,
            is_computed: schema.groups.iter().any(is_computed),
        }
    }

    /// All groups, in the order of the schema.
    #[must_use]
    pub fn groups(&self) -> &[CompiledGroup] {
        &self.groups
    }

    /// Blocks of a region.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Whether any block is made at the moment of the READ.
    #[must_use]
    pub fn is_computed(&self) -> bool {
        self.is_computed
    }
}

impl CompiledGroup {
    fn new(group: &Group, begin: usize) -> Self {
        let (mut runs, mut texts, mut narrow) = (Vec::<Elements>::new(), Vec::new(), Vec::new());
        let (mut firsts, mut column) = (vec![0], 0);
        for field in &group.fields {
            let is_text = field.kind == Type::Text;
            let elements = Elements::of(group, field, column);
            column += elements.count * if is_text { 1 } else { elements.width };
            firsts.push(small(column));
            if group.kind == Kind::Foreign && field.kind.width() < 8 {
                narrow.push(Narrow::new(field, &elements));
            } else if is_text {
                texts.push(elements);
            } else {
                let elements = elements.joined();
                match runs.last_mut().filter(|last| last.goes_on_with(&elements)) {
                    Some(last) => last.width += elements.width,
                    None => runs.push(elements),
                }
            }
        }
        let space = Space::of(group.kind);
        let run = |elements: Elements| Run::new(space, &elements);
        Self {
            kind: group.kind,
            blocks: begin..begin + group.blocks as usize,
            has_twin: false,
            twin_of: None,
            layout: group.layout(),
            firsts: firsts.into(),
            runs: runs.into_iter().map(run).collect(),
            texts: texts.into_iter().map(run).collect(),
            narrow: narrow.into(),
        }
    }

    /// Kind of its blocks.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Numbers of its blocks in the region.
    #[must_use]
    pub fn blocks(&self) -> Range<usize> {
        self.blocks.clone()
    }

    /// Number of its columns; in tables, of each row's.
    #[must_use]
    pub fn width(&self) -> usize {
        self.firsts.last().map_or(0, |width| *width as usize)
    }

    /// Columns of a field, by its number: as many for each of its elements.
    ///
    /// # Panics
    /// If there is no such field.
    #[must_use]
    pub fn columns(&self, field: usize) -> Range<usize> {
        self.firsts[field] as usize..self.firsts[field + 1] as usize
    }

    /// Copies all values out of the words of all blocks; of a table, out of a row's value words.
    fn copy(&self, words: &[u64], row: &mut [u64], mut text: impl FnMut(&[u8]) -> u64) {
        let space = Space::of(self.kind);
        self.runs.iter().for_each(|run| run.copy(space, words, row));
        self.texts.iter().for_each(|run| run.copy_texts(space, words, row, &mut text));
        self.narrow.iter().for_each(|narrow| narrow.copy(words, row, &mut text));
    }

    /// Whether a row's columns are its value words as they stand.
    fn is_straight(&self) -> bool {
        matches!(&*self.runs, [run] if (run.at, run.count) == (0, 1) && run.width as usize == self.width())
    }
}

impl<'a> Checked<'a, '_> {
    /// Copies a group's values to the front of `row`, its [width](CompiledGroup::width) long; `text` gives numbers to
    /// the bytes of texts, which may be no UTF-8. `None`, and the row is as it was: a block of the group was refused,
    /// or its twin gives the values, or it is a table.
    ///
    /// # Panics
    /// If the row is shorter than that.
    pub fn copy_group(self, group: usize, row: &mut [u64], text: impl FnMut(&[u8]) -> u64) -> Option<Acquired> {
        let group = self.group(group).filter(|group| group.compiled.layout.is_none() && group.is_whole())?;
        group.compiled.copy(bytemuck::cast_slice(group.blocks()), &mut row[..group.compiled.width()], text);
        if !has_guard(group.compiled.kind) {
            return Some(Acquired::WhenRead);
        }
        let (mut oldest_ns, mut newest_ns) = (u64::MAX, 0);
        for block in group.blocks() {
            let time_ns = block.0[GUARDED_TIME];
            (oldest_ns, newest_ns) = (oldest_ns.min(time_ns), newest_ns.max(time_ns));
        }
        Some(Acquired::At { oldest_ns, newest_ns })
    }

    /// Visits each live row of a table with its columns and its acquisition time, CLOCK_BOOTTIME ns. False: blocks were
    /// refused, or it is no table; other rows than those visited may be live.
    pub fn rows(
        self,
        group: usize,
        mut text: impl FnMut(&[u8]) -> u64,
        mut visit: impl FnMut(RowRef<'a>, &[u64], u64),
    ) -> bool {
        let Some(group) = self.group(group) else { return false };
        let Some(layout) = group.compiled.layout else { return false };
        let is_straight = group.compiled.is_straight();
        let mut columns = [0; GUARDED_SLOTS];
        let columns = &mut columns[..group.compiled.width()];
        for number in 0..group.blocks().len() {
            let Some((block, _)) = group.accepted(number) else { continue };
            for row in table::rows(layout, block.payload()) {
                let row_ref = RowRef::new(group.group, number * layout.rows_per_block(), &row);
                let columns = if is_straight {
                    &row.values[..columns.len()]
                } else {
                    group.compiled.copy(row.values, columns, &mut text);
                    &*columns
                };
                visit(row_ref, columns, block.0[GUARDED_TIME]);
            }
        }
        group.is_whole()
    }
}

/// Where a kind of group has its payload.
#[derive(Clone, Copy, Debug)]
struct Space {
    /// First word of the payload in a block.
    first: usize,
    /// Words of it.
    len: usize,
}

impl Space {
    fn of(kind: Kind) -> Self {
        let (first, len) = match kind {
            Kind::Plain => (PLAIN_FIRST, PLAIN_SLOTS),
            Kind::Guarded | Kind::Computed => (GUARDED_FIRST, GUARDED_SLOTS),
            // A table's is the row, which has no end within it.
            Kind::Foreign | Kind::Table => (0, BLOCK_WORDS),
        };
        Self { first, len }
    }
}

/// A field's elements: `count` of them, `width` slots each, `stride` apart (foreign: by words), and their first column.
#[derive(Clone, Copy, Debug)]
struct Elements {
    slot: usize,
    count: usize,
    width: usize,
    stride: usize,
    column: usize,
}

impl Elements {
    fn of(group: &Group, field: &Field, column: usize) -> Self {
        let unit = if group.kind == Kind::Foreign { 8 } else { 1 };
        let narrow = unit == 8 && field.kind.width() < 8;
        let width = if narrow { 1 } else { field.slots() };
        // The only element's stride is any number.
        let stride = field.array.as_ref().filter(|array| array.count > 1).map_or(width, |a| a.stride as usize / unit);
        Self { slot: field.slot as usize / unit, count: field.elements() as usize, width, stride, column }
    }

    /// Elements without gaps are one.
    fn joined(self) -> Self {
        if self.count > 1 && self.stride != self.width {
            return self;
        }
        Self { count: 1, width: self.count * self.width, ..self }
    }

    fn goes_on_with(&self, next: &Self) -> bool {
        let end = (self.slot + self.width, self.column + self.width);
        (self.count, next.count) == (1, 1) && end == (next.slot, next.column)
    }
}

/// Elements in the words of blocks, those that are no payload counted, too.
#[derive(Clone, Copy, Debug)]
struct Run {
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
}

impl Run {
    fn new(space: Space, elements: &Elements) -> Self {
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
        }
    }

    fn copy(&self, space: Space, words: &[u64], row: &mut [u64]) {
        let width = self.width as usize;
        let row = &mut row[self.column as usize..][..self.count as usize * width];
        let mut place = Place::of(self);
        if width == 1 {
            for to in row {
                *to = words[place.at];
                place.pass(self, space);
            }
            return;
        }
        for to in row.chunks_exact_mut(width) {
            place.copy(space, words, to);
            place.pass(self, space);
        }
    }

    fn copy_texts(&self, space: Space, words: &[u64], row: &mut [u64], text: &mut impl FnMut(&[u8]) -> u64) {
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
}

/// A field of foreign memory that is not made of words: numbers of less than 8 bytes, and texts.
#[derive(Clone, Copy, Debug)]
struct Narrow {
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
    fn new(field: &Field, elements: &Elements) -> Self {
        Self {
            kind: field.kind,
            at: field.slot,
            bytes: field.bytes,
            stride: field.array.as_ref().map_or(0, |array| array.stride).max(1),
            count: small(elements.count),
            column: small(elements.column),
        }
    }

    fn copy(&self, words: &[u64], row: &mut [u64], text: &mut impl FnMut(&[u8]) -> u64) {
        let row = &mut row[self.column as usize..][..self.count as usize];
        for (to, at) in row.iter_mut().zip((self.at as usize..).step_by(self.stride as usize)) {
            *to = match self.kind {
                Type::Text => text(until_nul(&bytemuck::cast_slice::<u64, u8>(words)[at..][..self.bytes as usize])),
                // It is aligned to its width, so it stands in one word.
                kind => widened(kind, words[at / 8] >> (at % 8 * 8)),
            };
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

fn small(count: usize) -> u32 {
    u32::try_from(count).expect("a checked schema has at most 2^23 words")
}

const _: () = assert!(BLOCK_BYTES == 8 * BLOCK_WORDS, "blocks are words");

#[cfg(all(test, not(loom)))]
mod tests;
