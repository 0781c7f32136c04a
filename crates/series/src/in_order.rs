// SPDX-License-Identifier: Apache-2.0
//! A map whose keys are asked for in the same order again and again, as a host's regions are in each reading: then a
//! look is a comparison with the key behind the last one, and entries lie in memory in the order of their use.

use std::collections::HashMap;
use std::hash::Hash;

/// The map.
#[derive(Clone, Debug)]
pub struct InOrder<K, V> {
    entries: Vec<(K, V)>,
    places: HashMap<K, usize>,
    /// Behind the entry that was asked for last.
    next: usize,
}

impl<K, V> Default for InOrder<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new(), places: HashMap::new(), next: 0 }
    }
}

impl<K: Copy + Eq + Hash, V> InOrder<K, V> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.entries.iter()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.places.get(key).map(|at| &self.entries[*at].1)
    }

    /// Where a key's entry is; the one behind it is expected to be asked for next.
    pub fn find(&mut self, key: &K) -> Option<usize> {
        let is_next = self.entries.get(self.next).is_some_and(|(next, _)| next == key);
        let at = if is_next { self.next } else { *self.places.get(key)? };
        self.next = at + 1;
        Some(at)
    }

    /// The value of an entry that was just found.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn at_mut(&mut self, at: usize) -> &mut V {
        &mut self.entries[at].1
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.places.get(key).map(|at| &mut self.entries[*at].1)
    }

    /// Sets the value of a key that has none. Returns where it is.
    pub fn insert(&mut self, key: K, value: V) -> usize {
        let at = self.entries.len();
        self.places.insert(key, at);
        self.entries.push((key, value));
        self.next = at + 1;
        at
    }

    /// Leaves out what is not to be kept, and begins from the front.
    pub fn retain(&mut self, keep: impl Fn(&K, &V) -> bool) {
        let before = self.entries.len();
        self.entries.retain(|(key, value)| keep(key, value));
        self.next = 0;
        if self.entries.len() < before {
            self.places = self.entries.iter().enumerate().map(|(at, (key, _))| (*key, at)).collect();
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.places.remove(key)?;
        self.places.values_mut().filter(|place| **place > at).for_each(|place| *place -= 1);
        Some(self.entries.remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn whatever_is_asked_for_it_answers_as_a_map() {
        bolero::check!().with_type::<Vec<(u8, u8)>>().for_each(|steps| {
            let (mut map, mut expected) = (InOrder::<u8, u8>::default(), BTreeMap::<u8, u8>::new());
            for (step, key) in steps {
                let key = key % 16;
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
                let all: BTreeMap<u8, u8> = map.iter().copied().collect();
                assert_eq!((map.len(), map.is_empty(), all), (expected.len(), expected.is_empty(), expected.clone()));
            }
        });
    }
}
