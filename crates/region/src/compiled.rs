// SPDX-License-Identifier: Apache-2.0
//! A schema with its decoding worked out once: which words of which blocks go to which columns of a row.
//!
//! [`Checked::decode`](crate::Checked::decode) hands over each value with all its names. Who has written the names down
//! once wants the words only, many times: [`Checked::copy_group`](crate::Checked::copy_group) and
//! [`Checked::rows`](crate::Checked::rows) copy them, and look at no field.
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
//! An array is one run however many elements it has, and so are fields that stand side by side, and arrays that lie
//! interleaved: a hostile schema takes no more memory than its text is worth, and blocks are read from front to back.
//! Cost: 0.2-1 ns a value, and a look at each block's time; nothing is allocated.

mod copy;
mod runs;

use crate::schema::{Acquisition, Group, Kind, Schema, Type};
use crate::table::Layout;
use runs::{Elements, Narrow, Run, Space, small};
use std::ops::Range;

pub(crate) use runs::widened;

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
            column += field.elements() as usize * if is_text { 1 } else { field.slots() };
            firsts.push(small(column));
            if group.kind == Kind::Foreign && field.kind.width() < 8 {
                narrow.push(Narrow::new(field, &elements));
            } else if is_text {
                texts.push(elements);
            } else {
                let elements = elements.joined();
                match runs.last_mut().and_then(|last| Some((last.with(&elements)?, last))) {
                    Some((both, last)) => *last = both,
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
        matches!(&*self.runs, [run] if run.is_front(self.width()))
    }
}
