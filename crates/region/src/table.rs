// SPDX-License-Identifier: Apache-2.0
//! Tables: rows in guarded blocks (docs/format/table.md).
//!
//! One [`Table`] writes a group; it keeps the index from key to row in private memory, so that a lookup never reads what others could change.
//! Readers take [`rows`] from a payload that passed [`crate::guard::check`]. Cost: an update is one commit of one block.

use crate::block::{GUARDED_FIRST, Identity};
use crate::guard::{self, Payload};
use crate::limits::{BLOCK_WORDS, GUARDED_SLOTS};
use crate::sync::{AtomicU64, Ordering};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// Type of a key part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyType {
    /// UTF-8, NUL padded.
    Text,
    /// Number.
    U64,
    /// IPv6 address, or IPv4 mapped into it.
    Address,
}

/// One part of a table's key: a label of every row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPart {
    /// Label name.
    pub name: String,
    /// Type.
    #[serde(rename = "type")]
    pub kind: KeyType,
    /// Space of a text; 0 for the others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl KeyPart {
    /// Words that the part takes in a row.
    #[must_use]
    pub fn words(&self) -> usize {
        match self.kind {
            KeyType::Text => (self.bytes as usize).div_ceil(8),
            KeyType::U64 => 1,
            KeyType::Address => 2,
        }
    }

    /// The part's label value, from its words in a row.
    #[must_use]
    pub fn label(&self, words: &[u64]) -> String {
        match self.kind {
            KeyType::Text => text_of(words),
            KeyType::U64 => words[0].to_string(),
            KeyType::Address => {
                let bytes: [u8; 16] = std::array::from_fn(|i| words[i / 8].to_le_bytes()[i % 8]);
                Ipv6Addr::from(bytes).to_canonical().to_string()
            }
        }
    }
}

/// A text from words: up to the first NUL, bad UTF-8 replaced.
#[must_use]
pub fn text_of(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Puts a text into words, NUL padded, cut at a character's end where it is too long.
pub fn put_text(words: &mut [u64], text: &str) {
    let most = words.len() * 8;
    let end = (0..=text.len().min(most)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let bytes = &text.as_bytes()[..end];
    for (i, word) in words.iter_mut().enumerate() {
        *word = u64::from_le_bytes(std::array::from_fn(|j| bytes.get(i * 8 + j).copied().unwrap_or(0)));
    }
}

/// A key part's value.
#[derive(Clone, Copy, Debug)]
pub enum KeyValue<'a> {
    /// For `text`.
    Text(&'a str),
    /// For `u64`.
    U64(u64),
    /// For `address`.
    Address(IpAddr),
}

/// Packs a key. Parts and values must agree in number and type.
///
/// # Errors
/// [`TableError::Key`] with the number of the first part that does not agree.
pub fn pack_key(parts: &[KeyPart], values: &[KeyValue]) -> Result<Vec<u64>, TableError> {
    if parts.len() != values.len() {
        return Err(TableError::Key(parts.len().min(values.len())));
    }
    let mut words = Vec::with_capacity(8);
    for (number, (part, value)) in parts.iter().zip(values).enumerate() {
        let from = words.len();
        words.resize(from + part.words(), 0);
        match (part.kind, value) {
            (KeyType::Text, KeyValue::Text(text)) => put_text(&mut words[from..], text),
            (KeyType::U64, KeyValue::U64(n)) => words[from] = *n,
            (KeyType::Address, KeyValue::Address(address)) => {
                let octets = match address {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                    IpAddr::V6(v6) => v6.octets(),
                };
                for (word, bytes) in words[from..].iter_mut().zip(octets.chunks_exact(8)) {
                    *word = u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
                }
            }
            _ => return Err(TableError::Key(number)),
        }
    }
    Ok(words)
}

/// Why a table refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// All rows are live.
    #[error("the table is full: all {0} rows are live; remove rows or give its group more blocks")]
    Full(usize),
    /// The key does not have the schema's shape.
    #[error("key part {0} does not agree with the schema")]
    Key(usize),
}

/// Shape of a table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Words of the key.
    pub key_words: usize,
    /// Words of the values.
    pub value_words: usize,
}

/// In word 0 of a row, above its generation: the row is live (docs/format/table.md).
pub const LIVE: u64 = 1 << 32;

/// Row generation after the one in a row's word 0: 32 bits, 0 left out because it means "never used".
fn next_generation(word: u64) -> u64 {
    match (word + 1) & 0xffff_ffff {
        0 => 1,
        next => next,
    }
}

impl Layout {
    /// Words of a row.
    #[must_use]
    pub fn row_words(self) -> usize {
        1 + self.key_words + self.value_words
    }

    /// Rows in one block.
    #[must_use]
    pub fn rows_per_block(self) -> usize {
        GUARDED_SLOTS / self.row_words()
    }

    /// Block of the group and first payload word of a row.
    #[must_use]
    pub fn place(self, row: usize) -> (usize, usize) {
        let per_block = self.rows_per_block();
        (row / per_block, row % per_block * self.row_words())
    }
}

/// A live row of an accepted payload.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Place in the block, from 0.
    pub index: usize,
    /// Row generation.
    pub generation: u32,
    /// Key words.
    pub key: &'a [u64],
    /// Value words.
    pub values: &'a [u64],
}

/// The live rows of one block's payload.
#[allow(clippy::cast_possible_truncation)] // the low half is meant
pub fn rows(layout: Layout, payload: &[u64]) -> impl Iterator<Item = Row<'_>> {
    let rows = payload.chunks_exact(layout.row_words()).take(layout.rows_per_block());
    rows.enumerate().filter(|(_, words)| words[0] >> 32 == LIVE >> 32 && words[0] as u32 != 0).map(
        move |(index, words)| Row {
            index,
            generation: words[0] as u32,
            key: &words[1..=layout.key_words],
            values: &words[1 + layout.key_words..],
        },
    )
}

/// The writer of a table's blocks.
pub struct Table<M> {
    layout: Layout,
    memory: M,
    first: Identity,
    index: HashMap<Box<[u64]>, usize>,
    free: Vec<usize>,
}

/// The values of a row under commit.
pub struct RowValues<'p, 'a> {
    payload: &'p mut Payload<'a>,
    at: usize,
    len: usize,
}

impl RowValues<'_, '_> {
    /// Stores value slot `slot`.
    ///
    /// # Panics
    /// If the row has no such slot.
    pub fn set(&mut self, slot: usize, value: u64) {
        assert!(slot < self.len, "slot {slot} of a row with {}", self.len);
        self.payload.set(self.at + slot, value);
    }

    /// What is stored there.
    ///
    /// # Panics
    /// If the row has no such slot.
    #[must_use]
    pub fn get(&self, slot: usize) -> u64 {
        assert!(slot < self.len, "slot {slot} of a row with {}", self.len);
        self.payload.get(self.at + slot)
    }
}

impl<M: AsRef<[AtomicU64]>> Table<M> {
    /// Takes over the group's `memory`, whose first block has identity `first`. All rows begin free; every block is committed once, so that an
    /// empty table is readable.
    ///
    /// # Panics
    /// If `memory` is not whole blocks.
    #[must_use]
    pub fn new(layout: Layout, memory: M, first: Identity, time_ns: u64) -> Self {
        let words = memory.as_ref().len();
        assert_eq!(words % BLOCK_WORDS, 0);
        let blocks = words / BLOCK_WORDS;
        let free = (0..blocks * layout.rows_per_block()).rev().collect();
        let table = Self { layout, memory, first, index: HashMap::new(), free };
        for block in 0..blocks {
            table.commit(block, time_ns, |payload| {
                for at in (0..layout.rows_per_block()).map(|row| row * layout.row_words()) {
                    let generation = payload.get(at) & 0xffff_ffff;
                    payload.set(at, generation);
                }
            });
        }
        table
    }

    fn commit<R>(&self, block: usize, time_ns: u64, fill: impl FnOnce(&mut Payload) -> R) -> R {
        let words = &self.memory.as_ref()[block * BLOCK_WORDS..][..BLOCK_WORDS];
        let index = u16::try_from(usize::from(self.first.index) + block).expect("a region has at most 65536 blocks");
        guard::commit(words, self.first.at(index), time_ns, fill)
    }

    /// Number of live rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// True where no row is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Whether there is a row for this key.
    #[must_use]
    pub fn contains(&self, key: &[u64]) -> bool {
        self.index.contains_key(key)
    }

    /// Changes the row of `key`, or makes one (with values of 0 before `fill`).
    ///
    /// # Errors
    /// [`TableError::Full`], [`TableError::Key`] where the key has another length than the layout's.
    pub fn upsert(&mut self, key: &[u64], time_ns: u64, fill: impl FnOnce(&mut RowValues)) -> Result<(), TableError> {
        if key.len() != self.layout.key_words {
            return Err(TableError::Key(0));
        }
        let known = self.index.get(key).copied();
        let row = match known {
            Some(row) => row,
            None => self.free.pop().ok_or(TableError::Full(self.index.len()))?,
        };
        let (block, at) = self.layout.place(row);
        let layout = self.layout;
        self.commit(block, time_ns, |payload| {
            if known.is_none() {
                let generation = next_generation(payload.get(at));
                payload.set(at, LIVE | generation);
                payload.set_all(at + 1, key);
                (0..layout.value_words).for_each(|i| payload.set(at + 1 + layout.key_words + i, 0));
            }
            fill(&mut RowValues { payload, at: at + 1 + layout.key_words, len: layout.value_words });
        });
        if known.is_none() {
            self.index.insert(key.into(), row);
        }
        Ok(())
    }

    /// Frees the row of `key`; false where there is none.
    pub fn remove(&mut self, key: &[u64], time_ns: u64) -> bool {
        let Some(row) = self.index.remove(key) else { return false };
        let (block, at) = self.layout.place(row);
        let layout = self.layout;
        self.commit(block, time_ns, |payload| {
            let generation = payload.get(at) & 0xffff_ffff;
            payload.set(at, generation);
            (1..layout.row_words()).for_each(|i| payload.set(at + i, 0));
        });
        self.free.push(row);
        true
    }

    /// Frees every row whose key `keep` does not want.
    pub fn retain(&mut self, time_ns: u64, mut keep: impl FnMut(&[u64]) -> bool) {
        let gone: Vec<Box<[u64]>> = self.index.keys().filter(|key| !keep(key)).cloned().collect();
        gone.iter().for_each(|key| {
            self.remove(key, time_ns);
        });
    }

    /// Row generation of a key's row; for tests and diagnosis.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // the low half is meant
    pub fn generation(&self, key: &[u64]) -> Option<u32> {
        let (block, at) = self.layout.place(*self.index.get(key)?);
        Some(self.memory.as_ref()[block * BLOCK_WORDS + GUARDED_FIRST + at].load(Ordering::Relaxed) as u32)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::block::Block;

    fn parts() -> Vec<KeyPart> {
        vec![
            KeyPart { name: "device".into(), kind: KeyType::Text, bytes: 8 },
            KeyPart { name: "peer".into(), kind: KeyType::Address, bytes: 0 },
            KeyPart { name: "port".into(), kind: KeyType::U64, bytes: 0 },
        ]
    }

    fn key(device: &str, port: u64) -> Vec<u64> {
        let peer = KeyValue::Address("10.1.2.3".parse().unwrap());
        pack_key(&parts(), &[KeyValue::Text(device), peer, KeyValue::U64(port)]).unwrap()
    }

    fn shared(blocks: usize) -> Vec<AtomicU64> {
        (0..blocks * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    const ME: Identity = Identity { region: 1, generation: 9, index: 2 };
    const LAYOUT: Layout = Layout { key_words: 4, value_words: 36 };

    /// (block, index) -> (generation, labels, first value) of all live rows, as a reader sees them.
    fn read(words: &[AtomicU64]) -> Vec<(usize, usize, u32, Vec<String>, u64)> {
        let mut out = Vec::new();
        for (number, words) in words.chunks_exact(BLOCK_WORDS).enumerate() {
            let mut block = Block::default();
            block.copy_from(words);
            let accepted = guard::check(&block, ME.at(2 + u16::try_from(number).unwrap())).unwrap();
            for row in rows(LAYOUT, accepted.payload()) {
                let mut at = 0;
                let parts = parts();
                let labels = parts.iter().map(|part| {
                    at += part.words();
                    part.label(&row.key[at - part.words()..at])
                });
                out.push((number, row.index, row.generation, labels.collect(), row.values[0]));
            }
        }
        out
    }

    #[test]
    fn rows_come_go_and_never_return_as_the_old_ones() {
        let words = shared(2);
        let mut table = Table::new(LAYOUT, &words, ME, 1);
        assert!(read(&words).is_empty());
        for port in 0..6 {
            table.upsert(&key("eth0", port), 2, |v| v.set(0, port * 10)).unwrap();
        }
        assert_eq!(table.upsert(&key("eth1", 0), 2, |_| ()), Err(TableError::Full(6)));
        let seen = read(&words);
        assert_eq!(seen.len(), 6);
        assert_eq!(seen[1], (0, 1, 1, vec!["eth0".into(), "10.1.2.3".into(), "1".into()], 10));
        assert!(table.remove(&key("eth0", 1), 3));
        assert!(!table.remove(&key("eth0", 1), 3));
        table.upsert(&key("eth0", 1), 4, |v| assert_eq!(v.get(0), 0)).unwrap();
        assert_eq!(read(&words)[1].2, 2, "the row is a new one although its key is the same");
        table.retain(5, |k| k == key("eth0", 3));
        assert_eq!(read(&words).len(), 1);
        assert_eq!(table.generation(&key("eth0", 3)), Some(1));
    }

    #[test]
    fn texts_are_cut_at_a_characters_end() {
        let mut words = [0; 1];
        put_text(&mut words, "abcdef\u{20ac}");
        assert_eq!(text_of(&words), "abcdef");
        put_text(&mut words, "abcde\u{20ac}");
        assert_eq!(text_of(&words), "abcde\u{20ac}");
    }

    #[test]
    fn a_table_is_a_map() {
        bolero::check!().with_type::<Vec<(bool, u8)>>().for_each(|ops| {
            let words = shared(1);
            let mut table = Table::new(LAYOUT, &words, ME, 1);
            let mut model = std::collections::BTreeMap::new();
            for (number, (insert, name)) in ops.iter().enumerate() {
                let port = u64::from(*name % 5);
                if *insert {
                    let result = table.upsert(&key("d", port), 1, |v| v.set(0, number as u64));
                    if result.is_ok() {
                        model.insert(port, number as u64);
                    } else {
                        assert_eq!(model.len(), 3);
                    }
                } else {
                    assert_eq!(table.remove(&key("d", port), 1), model.remove(&port).is_some());
                }
            }
            let mut got: Vec<_> =
                read(&words).into_iter().map(|row| (row.3[2].parse::<u64>().unwrap(), row.4)).collect();
            got.sort_unstable();
            assert_eq!(got, model.into_iter().collect::<Vec<_>>());
        });
    }
}
