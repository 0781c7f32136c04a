// SPDX-License-Identifier: Apache-2.0
//! Tables of an open region (docs/format/table.md): rows with a typed key.
//!
//! Each change is one commit of one block (about 200 ns with the lookup), under the region's lock.

use crate::guarded::{Slot, TextSlot};
use crate::open::{Published, Token};
use crate::owner::Owner;
use crate::region::now_ns;
use crate::words::Number;
use crate::words::sealed::Sealed;
use onlooker_region::table::{self, KeyPart, KeyType, KeyValue, RowValues, TableError};
use std::marker::PhantomData;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// A key part that is a text of at most `BYTES` bytes, a multiple of 8; longer ones are cut at the end of a character.
#[derive(Clone, Copy, Debug)]
pub struct Text<const BYTES: u32>;

/// Type of a key part: [`Text`], `u64` or [`IpAddr`].
pub trait Part: Sealed + 'static {
    /// What a program gives.
    type Value<'a>: Copy;
    /// What the schema says of it.
    #[doc(hidden)]
    fn part(name: &str) -> KeyPart;
    /// For packing.
    #[doc(hidden)]
    fn value<'a>(value: Self::Value<'a>) -> KeyValue<'a>;
}

impl<const BYTES: u32> Sealed for Text<BYTES> {}
impl<const BYTES: u32> Part for Text<BYTES> {
    type Value<'a> = &'a str;
    fn part(name: &str) -> KeyPart {
        KeyPart { name: name.into(), kind: KeyType::Text, bytes: BYTES }
    }
    fn value<'a>(value: Self::Value<'a>) -> KeyValue<'a> {
        KeyValue::Text(value)
    }
}

impl Part for u64 {
    type Value<'a> = u64;
    fn part(name: &str) -> KeyPart {
        KeyPart { name: name.into(), kind: KeyType::U64, bytes: 0 }
    }
    fn value<'a>(value: u64) -> KeyValue<'a> {
        KeyValue::U64(value)
    }
}

impl Sealed for IpAddr {}
impl Part for IpAddr {
    type Value<'a> = IpAddr;
    fn part(name: &str) -> KeyPart {
        KeyPart { name: name.into(), kind: KeyType::Address, bytes: 0 }
    }
    fn value<'a>(value: IpAddr) -> KeyValue<'a> {
        KeyValue::Address(value)
    }
}

/// Type of a table's key: a tuple of one to eight [`Part`]s.
pub trait Key: Sealed + 'static {
    /// Names of the parts: they become labels of the row.
    type Names<'a>;
    /// A key.
    type Value<'a>: Copy;
    /// What the schema says of it.
    #[doc(hidden)]
    fn parts(names: Self::Names<'_>) -> Vec<KeyPart>;
    /// The key's words in a row.
    #[doc(hidden)]
    fn words(parts: &[KeyPart], value: Self::Value<'_>) -> Vec<u64>;
}

macro_rules! keys {
    ($($count:literal: $($part:ident $name:ident),+;)+) => {$(
        impl<$($part: Part),+> Sealed for ($($part,)+) {}
        impl<$($part: Part),+> Key for ($($part,)+) {
            type Names<'a> = [&'a str; $count];
            type Value<'a> = ($($part::Value<'a>,)+);
            fn parts([$($name),+]: [&str; $count]) -> Vec<KeyPart> {
                vec![$($part::part($name)),+]
            }
            fn words(parts: &[KeyPart], ($($name,)+): Self::Value<'_>) -> Vec<u64> {
                // The types make the parts and the values agree.
                table::pack_key(parts, &[$($part::value($name)),+]).unwrap_or_default()
            }
        }
    )+};
}
keys! {
    1: A a;
    2: A a, B b;
    3: A a, B b, C c;
    4: A a, B b, C c, D d;
    5: A a, B b, C c, D d, E e;
    6: A a, B b, C c, D d, E e, F f;
    7: A a, B b, C c, D d, E e, F f, G g;
    8: A a, B b, C c, D d, E e, F f, G g, H h;
}

/// A table of an open region.
pub struct Rows<K> {
    owner: Arc<Owner>,
    number: usize,
    parts: Arc<[KeyPart]>,
    fields: u64,
    key: PhantomData<fn(K)>,
}

impl<K> Clone for Rows<K> {
    fn clone(&self) -> Self {
        Self {
            owner: self.owner.clone(),
            number: self.number,
            parts: self.parts.clone(),
            fields: self.fields,
            key: PhantomData,
        }
    }
}

/// No room for another row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the table is full with {rows} rows: remove some, or open the region with more")]
pub struct Full {
    /// Rows in it.
    pub rows: usize,
}

/// The values of a row under commit.
pub struct Row<'r, 'p, 'a> {
    values: &'r mut RowValues<'p, 'a>,
    fields: u64,
}

impl Row<'_, '_, '_> {
    fn at<T>(&self, slot: Slot<T>) -> usize {
        assert_eq!(slot.fields, self.fields, "onlooker: a slot of another table");
        slot.at
    }

    /// Sets a number.
    ///
    /// # Panics
    /// If the slot is another table's.
    pub fn set<T: Number>(&mut self, slot: Slot<T>, value: T) {
        let at = self.at(slot);
        self.values.set(at, value.to_word());
    }

    /// Adds to a number; whole numbers wrap.
    ///
    /// # Panics
    /// As [`Row::set`].
    pub fn add<T: Number>(&mut self, slot: Slot<T>, value: T) {
        self.set(slot, self.get(slot).plus(value));
    }

    /// The number as it will be committed; 0 in a new row.
    ///
    /// # Panics
    /// As [`Row::set`].
    #[must_use]
    pub fn get<T: Number>(&self, slot: Slot<T>) -> T {
        T::from_word(self.values.get(self.at(slot)))
    }

    /// Sets a text, cut at the end of a character where it is too long.
    ///
    /// # Panics
    /// As [`Row::set`].
    pub fn set_text(&mut self, slot: Slot<TextSlot>, text: &str) {
        let at = self.at(slot);
        let mut words = vec![0; slot.words];
        table::put_text(&mut words, text);
        words.iter().enumerate().for_each(|(i, word)| self.values.set(at + i, *word));
    }
}

impl<K: Key> Rows<K> {
    /// Changes the row of `key`, or makes one with values of 0, in one commit. `change` runs while readers find the block busy: keep it short.
    ///
    /// # Errors
    /// [`Full`].
    ///
    /// # Panics
    /// If called from within a commit of the same region; with whatever `change` panics with (what it had set is committed then).
    pub fn upsert<R>(&self, key: K::Value<'_>, change: impl FnOnce(&mut Row) -> R) -> Result<R, Full> {
        let words = K::words(&self.parts, key);
        let fields = self.fields;
        let mut result = None;
        self.owner
            .with_table(self.number, |table| {
                table.upsert(&words, now_ns(), |values| {
                    // A panic must not leave the table's bookkeeping behind.
                    result = Some(catch_unwind(AssertUnwindSafe(|| change(&mut Row { values, fields }))));
                })
            })
            .map_err(|error| match error {
                TableError::Full(rows) => Full { rows },
                TableError::Key(_) => Full { rows: 0 },
            })?;
        match result {
            Some(Ok(value)) => Ok(value),
            Some(Err(panic)) => resume_unwind(panic),
            None => Err(Full { rows: 0 }),
        }
    }

    /// Frees the row of `key`; false where there is none.
    ///
    /// # Panics
    /// If called from within a commit of the same region.
    #[allow(clippy::must_use_candidate)] // often it does not matter
    pub fn remove(&self, key: K::Value<'_>) -> bool {
        let words = K::words(&self.parts, key);
        self.owner.with_table(self.number, |table| table.remove(&words, now_ns()))
    }

    /// Whether there is a row for `key`.
    #[must_use]
    pub fn contains(&self, key: K::Value<'_>) -> bool {
        let words = K::words(&self.parts, key);
        self.owner.with_table(self.number, |table| table.contains(&words))
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owner.with_table(self.number, |table| table.len())
    }

    /// True where there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K> Sealed for Rows<K> {}
impl<K: Key> Published for Rows<K> {
    type Handle = Self;
    #[allow(private_interfaces)]
    fn handle(owner: &Arc<Owner>, token: Token<Self>) -> Self {
        let parts = owner.0.key_parts(token.at).into();
        Self { owner: owner.clone(), number: token.at, parts, fields: token.fields, key: PhantomData }
    }
}
