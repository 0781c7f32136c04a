// SPDX-License-Identifier: Apache-2.0
//! A map whose keys are asked for in the same order again and again, as what a host has is in each reading: then a
//! look is a comparison with the key behind the last one, and entries lie in memory in the order of their use.
//!
//! What is taken out leaves a gap in that order, until there are more gaps than entries.

use std::collections::BTreeMap;
use std::ops::RangeFrom;

/// The map.
#[derive(Clone, Debug)]
pub struct InOrder<K, V> {
    /// In the order in which they came.
    entries: Vec<Option<(K, V)>>,
    places: BTreeMap<K, usize>,
    /// Behind the entry that was asked for last.
    next: usize,
}

impl<K, V> Default for InOrder<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new(), places: BTreeMap::new(), next: 0 }
    }
}

impl<K: Copy + Ord, V> InOrder<K, V> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn entry(&self, at: usize) -> Option<(&K, &V)> {
        self.entries.get(at)?.as_ref().map(|(key, value)| (key, value))
    }

    /// All entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.places.values().filter_map(|at| self.entry(*at))
    }

    /// Those from a key on.
    pub fn range(&self, keys: RangeFrom<K>) -> impl Iterator<Item = (&K, &V)> {
        self.places.range(keys).filter_map(|(_, at)| self.entry(*at))
    }

    /// All values, in the order in which they came.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }

    /// All entries, in the order in which they came.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().flatten().map(|(key, value)| (&*key, value))
    }

    /// The same, and no more.
    pub fn into_entries(self) -> impl Iterator<Item = (K, V)> {
        self.entries.into_iter().flatten()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entry(*self.places.get(key)?).map(|(_, value)| value)
    }

    /// Begins from the front: the first entry is expected to be asked for next.
    pub fn rewind(&mut self) {
        self.next = 0;
    }

    /// Where a key's entry is; the one behind it is expected to be asked for next.
    pub fn find(&mut self, key: &K) -> Option<usize> {
        while self.entries.get(self.next).is_some_and(Option::is_none) {
            self.next += 1;
        }
        let is_at = |at: usize| self.entry(at).is_some_and(|(next, _)| next == key);
        // Or the same once more.
        let at = [self.next, self.next.wrapping_sub(1)].into_iter().find(|at| is_at(*at));
        let at = at.or_else(|| self.places.get(key).copied())?;
        self.next = at + 1;
        Some(at)
    }

    /// As [`InOrder::find`], the value.
    pub fn find_mut(&mut self, key: &K) -> Option<&mut V> {
        self.find(key).map(|at| self.at_mut(at))
    }

    /// The value of an entry that was just found.
    ///
    /// # Panics
    /// If there is none.
    pub fn at_mut(&mut self, at: usize) -> &mut V {
        &mut self.entries[at].as_mut().expect("it was just found").1
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = *self.places.get(key)?;
        self.entries[at].as_mut().map(|(_, value)| value)
    }

    /// Sets the value of a key that has none. Returns where it is.
    pub fn insert(&mut self, key: K, value: V) -> usize {
        let at = self.entries.len();
        self.places.insert(key, at);
        self.entries.push(Some((key, value)));
        self.next = at + 1;
        at
    }

    /// Leaves out what is not to be kept, and begins from the front.
    pub fn retain(&mut self, keep: impl Fn(&K, &V) -> bool) {
        self.next = 0;
        for entry in &mut self.entries {
            if let Some((key, _)) = entry.take_if(|(key, value)| !keep(key, value)) {
                self.places.remove(&key);
            }
        }
        self.close_gaps();
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (_, value) = self.entries[self.places.remove(key)?].take()?;
        self.close_gaps();
        Some(value)
    }

    fn close_gaps(&mut self) {
        if self.entries.len() > 2 * self.places.len() {
            let behind = self.entries.get(self.next..).unwrap_or_default().iter().flatten().count();
            self.entries.retain(Option::is_some);
            self.places = self.entries.iter().flatten().map(|(key, _)| *key).zip(0..).collect();
            self.next = self.entries.len() - behind;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_asked_for_it_answers_as_a_map() {
        bolero::check!().with_type::<Vec<(u8, u8)>>().for_each(|steps| {
            let (mut map, mut expected) = (InOrder::<u8, u8>::default(), BTreeMap::<u8, u8>::new());
            for (step, key) in steps {
                let key = key % 16;
                if step % 16 > 12 {
                    map.rewind();
                }
                match step % 8 {
                    0 => assert_eq!(map.remove(&key), expected.remove(&key)),
                    1 => {
                        map.retain(|_, value| value % 3 != key % 3);
                        expected.retain(|_, value| *value % 3 != key % 3);
                    }
                    2..=4 if !expected.contains_key(&key) => {
                        let at = map.insert(key, *step);
                        assert_eq!(map.at_mut(at), step);
                        expected.insert(key, *step);
                    }
                    5 => assert_eq!(map.get_mut(&key), expected.get_mut(&key)),
                    _ => {
                        let found = map.find(&key).map(|at| *map.at_mut(at));
                        assert_eq!(found.as_ref(), expected.get(&key));
                    }
                }
                assert_eq!(map.get(&key), expected.get(&key));
                let all: BTreeMap<u8, u8> = map.iter().map(|(key, value)| (*key, *value)).collect();
                assert!(map.iter().is_sorted());
                assert!(map.range(key..).eq(expected.range(key..)));
                assert_eq!(map.values_mut().count(), expected.len());
                assert_eq!((map.len(), map.is_empty(), all), (expected.len(), expected.is_empty(), expected.clone()));
            }
        });
    }
}
