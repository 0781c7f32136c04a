// SPDX-License-Identifier: Apache-2.0
//! What was asked for last, up to so many bytes: what was not asked for longest goes first.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

pub(super) struct Recent<K, V> {
    most_bytes: usize,
    bytes: usize,
    turn: u64,
    all: HashMap<K, Entry<V>>,
    by_turn: BTreeMap<u64, K>,
}

struct Entry<V> {
    turn: u64,
    bytes: usize,
    value: V,
}

impl<K: Copy + Eq + Hash, V: Clone> Recent<K, V> {
    pub(super) fn new(most_bytes: usize) -> Self {
        let (all, by_turn) = Default::default();
        Self { most_bytes, bytes: 0, turn: 0, all, by_turn }
    }

    /// Bytes that all of them have.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&mut self, key: K) -> Option<V> {
        let entry = self.all.get_mut(&key)?;
        self.by_turn.remove(&entry.turn);
        self.turn += 1;
        entry.turn = self.turn;
        self.by_turn.insert(entry.turn, key);
        Some(entry.value.clone())
    }

    /// Keeps one that is so large now.
    pub(super) fn keep(&mut self, key: K, value: &V, bytes: usize) {
        if self.all.get(&key).is_some_and(|entry| entry.bytes == bytes) {
            return;
        }
        self.remove(key);
        if bytes > self.most_bytes {
            return;
        }
        while self.bytes + bytes > self.most_bytes
            && let Some((_, oldest)) = self.by_turn.first_key_value()
        {
            self.remove(*oldest);
        }
        self.turn += 1;
        self.by_turn.insert(self.turn, key);
        self.all.insert(key, Entry { turn: self.turn, bytes, value: value.clone() });
        self.bytes += bytes;
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.by_turn.clear();
        self.bytes = 0;
    }

    fn remove(&mut self, key: K) {
        if let Some(entry) = self.all.remove(&key) {
            self.by_turn.remove(&entry.turn);
            self.bytes -= entry.bytes;
        }
    }
}
