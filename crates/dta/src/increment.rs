// SPDX-License-Identifier: Apache-2.0
//! Key-Increment: a counter for each key, never too small (paper D, section on Key-Increment).
//!
//! A report adds at N places that follow from its key, which other keys have a part of, too: the least of them is the answer, and it has
//! Count-Min's bounds. Counters are never cleared while somebody adds to them: there are two sets of them, and each epoch has the
//! other one. The one of the epoch before stands still, and is whole once all who had begun in it are done.
//!
//! Adds are atomic, 8 bytes, by one kind of writer: a processor's beside a device's lose some.

pub use onlooker_wire::dta::MAX_COPIES;

use crate::hash::{Hash, Seed};

/// Bytes before the counters: a block.
pub const HEADER_BYTES: usize = 1024;
/// Bytes of a counter.
pub const COUNTER_BYTES: usize = 8;

/// What a table of counters is like. Whoever asks it must know the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// What makes its hashes its own.
    pub seed: Seed,
    /// Each of its two sets has 2 to the power of so many counters, 2 to 32.
    pub slots_log2: u8,
}

/// Which set counts now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Epoch {
    /// Its number, from 0.
    pub number: u64,
    /// When it began, UTC ns; 0: it never did.
    pub began_ns: u64,
    /// When the one before began; 0: there was none.
    pub before_began_ns: u64,
}

impl Epoch {
    /// The one behind it, which begins at a time.
    #[must_use]
    pub const fn next(&self, now_ns: u64) -> Self {
        Self { number: self.number + 1, began_ns: now_ns, before_began_ns: self.began_ns }
    }

    /// As it lies at the beginning of the table.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let words = [self.number, self.began_ns, self.before_began_ns];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// From memory.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 24]) -> Self {
        let word = |at: usize| crate::seal::word(&bytes[at..at + 8]);
        Self { number: word(0), began_ns: word(8), before_began_ns: word(16) }
    }
}

impl Counters {
    /// Bytes of the table.
    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + 2 * self.set_bytes()
    }

    /// Bytes of one of its sets.
    #[must_use]
    pub const fn set_bytes(&self) -> u64 {
        (COUNTER_BYTES as u64) << self.slots_log2
    }

    /// Where an epoch's counters begin, bytes from the beginning of the table.
    #[must_use]
    pub const fn set_offset(&self, epoch: u64) -> u64 {
        HEADER_BYTES as u64 + (epoch & 1) * self.set_bytes()
    }

    /// A key's hash in this table.
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> Hash {
        Hash::of(&self.seed, key)
    }

    /// Where a copy of a key's counter is in an epoch, bytes from the beginning of the table.
    #[must_use]
    pub fn offset(&self, hash: &Hash, copy: u8, epoch: u64) -> u64 {
        self.set_offset(epoch) + hash.slot(copy, self.slots_log2) * COUNTER_BYTES as u64
    }

    /// What counters say of a key that is counted at so many places: the first of these.
    #[must_use]
    pub fn count(&self, copies: u8, counters: [u64; MAX_COPIES as usize]) -> u64 {
        let copies = usize::from(copies.clamp(1, MAX_COPIES));
        counters[..copies].iter().copied().min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bolero::check;

    use super::*;

    /// A table of bytes, as a translator adds to it and a query reads it.
    struct Memory(Counters, Vec<u8>);

    impl Memory {
        fn counter(&mut self, hash: &Hash, copy: u8, epoch: u64) -> &mut [u8; 8] {
            let from = usize::try_from(self.0.offset(hash, copy, epoch)).unwrap();
            self.1[from..].first_chunk_mut().unwrap()
        }

        fn add(&mut self, key: &[u8], copies: u8, epoch: u64, addend: u64) {
            let hash = self.0.hash(key);
            for copy in 0..copies {
                let counter = self.counter(&hash, copy, epoch);
                *counter = u64::from_le_bytes(*counter).wrapping_add(addend).to_le_bytes();
            }
        }

        fn count(&mut self, key: &[u8], copies: u8, epoch: u64) -> u64 {
            let hash = self.0.hash(key);
            let counters = [0, 1, 2, 3].map(|copy| u64::from_le_bytes(*self.counter(&hash, copy, epoch)));
            self.0.count(copies, counters)
        }
    }

    #[test]
    fn no_count_is_too_small_and_epochs_are_apart() {
        check!().with_type::<(Seed, u8, u8, Vec<(u8, u16, bool)>)>().for_each(|(seed, log2, copies, adds)| {
            let table = Counters { seed: *seed, slots_log2: 2 + log2 % 5 };
            let copies = 1 + copies % MAX_COPIES;
            let mut memory = Memory(table, vec![0; usize::try_from(table.len_bytes()).unwrap()]);
            let mut counted: HashMap<(u8, u64), u64> = HashMap::new();
            for (key, addend, is_later) in adds {
                let epoch = 8 + u64::from(*is_later);
                memory.add(&[*key], copies, epoch, (*addend).into());
                *counted.entry((*key, epoch)).or_default() += u64::from(*addend);
            }
            let of = |epoch: u64| counted.iter().filter(move |((_, of), _)| *of == epoch).map(|(_, count)| count).sum();
            let all: [u64; 2] = [of(8), of(9)];
            for ((key, epoch), count) in &counted {
                let found = memory.count(&[*key], copies, *epoch);
                assert!(found >= *count && found <= all[usize::from(*epoch == 9)], "{found} of {count}");
            }
            assert!(memory.1[..HEADER_BYTES].iter().all(|byte| *byte == 0), "the header is nobody's counter");
        });
    }

    /// With room for all, each key has what was added to it.
    #[test]
    fn counters_that_nobody_shares_are_right() {
        let table = Counters { seed: [3; 16], slots_log2: 16 };
        let mut memory = Memory(table, vec![0; usize::try_from(table.len_bytes()).unwrap()]);
        (0..200u64).for_each(|key| memory.add(&key.to_be_bytes(), 4, 1, key + 1));
        (0..200u64).for_each(|key| assert_eq!(memory.count(&key.to_be_bytes(), 4, 1), key + 1));
        assert_eq!(memory.count(b"never", 4, 1), 0);
        assert_eq!(memory.count(&5u64.to_be_bytes(), 4, 2), 0);
    }

    #[test]
    fn epochs_follow_one_another() {
        let first = Epoch { number: 0, began_ns: 5, before_began_ns: 0 };
        let second = first.next(9);
        assert_eq!(second, Epoch { number: 1, began_ns: 9, before_began_ns: 5 });
        assert_eq!(Epoch::from_bytes(&second.to_bytes()), second);
        let table = Counters { seed: [0; 16], slots_log2: 4 };
        assert_eq!([0, 1, 2].map(|epoch| table.set_offset(epoch)), [1024, 1024 + 128, 1024]);
        assert_eq!(table.len_bytes(), 1024 + 256);
    }
}
