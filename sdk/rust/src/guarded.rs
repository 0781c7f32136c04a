// SPDX-License-Identifier: Apache-2.0
//! Guarded groups: values that are committed together (docs/format/block.md, "Guarded block").
//!
//! A commit takes the region's lock, so that there is one writer at a time and the memory cannot move under it. The program's closure works on a
//! private copy; the block itself is being written only for the length of a copy and a CRC (about 150 ns). A reader sees all of a commit or nothing.

use crate::metric::Metric;
use crate::open::{Published, Token, unique};
use crate::owner::Owner;
use crate::words::Number;
use crate::words::sealed::Sealed;
use onlooker_region::block::GUARDED_FIRST;
use onlooker_region::limits::GUARDED_SLOTS;
use onlooker_region::schema::{self, Field, Type};
use onlooker_region::table::{put_text, text_of};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Marks a slot that holds a text.
#[derive(Clone, Copy, Debug)]
pub struct TextSlot;

/// A value of a guarded group or of a table's rows.
#[derive(Debug)]
pub struct Slot<T> {
    pub(crate) fields: u64,
    pub(crate) at: usize,
    pub(crate) words: usize,
    value: PhantomData<fn() -> T>,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Slot<T> {}

/// The fields of a guarded group, or of a table's rows, in the order in which they stand.
#[derive(Debug)]
pub struct Fields {
    fields: Vec<Field>,
    used: usize,
    pub(crate) id: u64,
}

impl Fields {
    pub(crate) fn new() -> Self {
        Self { fields: Vec::new(), used: 0, id: unique() }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.min(GUARDED_SLOTS)
    }

    pub(crate) fn into_fields(self) -> Vec<Field> {
        self.fields
    }

    fn push<T>(&mut self, field: Field, words: usize) -> Slot<T> {
        let slot = Slot { fields: self.id, at: self.used, words, value: PhantomData };
        self.used += words;
        self.fields.push(field);
        slot
    }

    /// A counter: `u64` or `f64`.
    pub fn counter<T: Number>(&mut self, metric: impl Into<Metric>) -> Slot<T> {
        let field = metric.into().field(schema::Metric::Counter, T::TYPE, self.used);
        self.push(field, 1)
    }

    /// A gauge.
    pub fn gauge<T: Number>(&mut self, metric: impl Into<Metric>) -> Slot<T> {
        let field = metric.into().field(schema::Metric::Gauge, T::TYPE, self.used);
        self.push(field, 1)
    }

    /// A text of at most `bytes` bytes (a multiple of 8): an info metric.
    pub fn text(&mut self, metric: impl Into<Metric>, bytes: u32) -> Slot<TextSlot> {
        let mut field = metric.into().field(schema::Metric::Info, Type::Text, self.used);
        field.bytes = bytes;
        self.push(field, bytes as usize / 8)
    }
}

/// A guarded group of an open region.
#[derive(Clone)]
pub struct Guarded {
    owner: Arc<Owner>,
    block: usize,
    slots: usize,
    fields: u64,
}

/// The values of a guarded group under commit: at first those of the last commit.
#[derive(Debug)]
pub struct Values<'a> {
    words: &'a mut [u64],
    fields: u64,
}

impl Values<'_> {
    fn place<T>(&self, slot: Slot<T>) -> Range<usize> {
        assert_eq!(slot.fields, self.fields, "onlooker: a slot of another group");
        slot.at..slot.at + slot.words
    }

    /// Sets a number.
    ///
    /// # Panics
    /// If the slot is another group's.
    pub fn set<T: Number>(&mut self, slot: Slot<T>, value: T) {
        let place = self.place(slot);
        self.words[place.start] = value.to_word();
    }

    /// Adds to a number; whole numbers wrap.
    ///
    /// # Panics
    /// As [`Values::set`].
    pub fn add<T: Number>(&mut self, slot: Slot<T>, value: T) {
        self.set(slot, self.get(slot).plus(value));
    }

    /// The number as it will be committed.
    ///
    /// # Panics
    /// As [`Values::set`].
    #[must_use]
    pub fn get<T: Number>(&self, slot: Slot<T>) -> T {
        T::from_word(self.words[self.place(slot).start])
    }

    /// Sets a text, cut at the end of a character where it is too long.
    ///
    /// # Panics
    /// As [`Values::set`].
    pub fn set_text(&mut self, slot: Slot<TextSlot>, text: &str) {
        let place = self.place(slot);
        put_text(&mut self.words[place], text);
    }

    /// The text as it will be committed.
    ///
    /// # Panics
    /// As [`Values::set`].
    #[must_use]
    pub fn text(&self, slot: Slot<TextSlot>) -> String {
        text_of(&self.words[self.place(slot)])
    }
}

impl Guarded {
    /// Changes values and commits them together. Commits of one region take turns.
    ///
    /// # Panics
    /// If called from within a commit of the same region; with whatever `change` panics with (nothing is committed then).
    pub fn commit<R>(&self, change: impl FnOnce(&mut Values) -> R) -> R {
        self.owner.commit(self.block, self.slots, |words| change(&mut Values { words, fields: self.fields }))
    }
}

impl Sealed for Guarded {}
impl Published for Guarded {
    type Handle = Self;
    #[allow(private_interfaces)]
    fn handle(owner: &Arc<Owner>, token: Token<Self>) -> Self {
        Self { owner: owner.clone(), block: owner.0.guarded_block(token.at), slots: token.count, fields: token.fields }
    }
}

const _: () = assert!(GUARDED_FIRST + GUARDED_SLOTS < onlooker_region::limits::BLOCK_WORDS);
