// SPDX-License-Identifier: Apache-2.0
//! What has to move when a region gets other memory, and how nothing is lost. No system calls: the caller exchanges the mapping in between.
//!
//! ```text
//! Plan::copy(old, new)     all words, identities, guarded blocks: `new` is complete
//! -- the region's pages are mapped over by the new memory; no thread can store into the old one any more --
//! Plan::settle(old, new)   what was added or set in `old` after it was copied
//! ```
//! Counters, up-down gauges and histograms are only ever added to (their types have no other operation), so the difference can be added to the new
//! word, whatever has been added there meanwhile. A gauge takes its last value of the old memory unless it was set anew already; a gauge set anew, in
//! those microseconds, to exactly the value that it had before shows the older of the two settings until it is set again.
//! Guarded blocks and tables are written under the region's lock, which the caller holds.

use onlooker_region::block::{self, GUARDED_FIRST, GUARDED_TIME, GUARDED_VERSION, Identity};
use onlooker_region::guard;
use onlooker_region::limits::BLOCK_WORDS;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How words are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// By additions.
    Adds,
    /// By stores.
    Sets,
}

/// The parts of a region's memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Words that threads change without a lock.
    pub(crate) spans: Vec<(Range<usize>, Class)>,
    /// Plain blocks, which begin with an identity.
    pub(crate) plain: Range<usize>,
    /// Guarded blocks that are groups of their own (tables are moved row by row).
    pub(crate) guarded: Range<usize>,
}

/// The words of [`Plan::spans`] as they were copied.
pub(crate) struct Copied(Vec<u64>);

/// Block `index` of a region's memory.
pub(crate) fn block_words(words: &[AtomicU64], index: usize) -> &[AtomicU64] {
    &words[index * BLOCK_WORDS..][..BLOCK_WORDS]
}

/// Identity of block `index`.
pub(crate) fn identity_at(identity: Identity, index: usize) -> Identity {
    identity.at(u16::try_from(index).unwrap_or(u16::MAX))
}

impl Plan {
    /// Makes `new` a copy of `old` that carries `identity`.
    pub(crate) fn copy(&self, old: &[AtomicU64], new: &[AtomicU64], identity: Identity) -> Copied {
        let mut copied = Vec::with_capacity(self.spans.iter().map(|(span, _)| span.len()).sum());
        for (span, _) in &self.spans {
            for (from, to) in old[span.clone()].iter().zip(&new[span.clone()]) {
                let word = from.load(Relaxed);
                to.store(word, Relaxed);
                copied.push(word);
            }
        }
        for index in self.plain.clone() {
            block::init_plain(block_words(new, index), identity_at(identity, index));
        }
        for index in self.guarded.clone() {
            let from = block_words(old, index);
            if from[GUARDED_VERSION].load(Relaxed) != 0 {
                let payload = &from[GUARDED_FIRST..BLOCK_WORDS - 1];
                let time_ns = from[GUARDED_TIME].load(Relaxed);
                guard::commit(block_words(new, index), identity_at(identity, index), time_ns, |to| {
                    payload.iter().enumerate().for_each(|(slot, word)| to.set(slot, word.load(Relaxed)));
                });
            }
        }
        Copied(copied)
    }

    /// Brings what happened in `old` after [`Plan::copy`] over to `new`, which other threads use already. Returns the number of words concerned.
    pub(crate) fn settle(&self, old: &[AtomicU64], new: &[AtomicU64], copied: &Copied) -> usize {
        let mut late = 0;
        let mut copied = copied.0.iter();
        for (span, class) in &self.spans {
            for ((from, to), was) in old[span.clone()].iter().zip(&new[span.clone()]).zip(&mut copied) {
                let last = from.load(Relaxed);
                if last == *was {
                    continue;
                }
                late += 1;
                match class {
                    Class::Adds => {
                        to.fetch_add(last.wrapping_sub(*was), Relaxed);
                    }
                    Class::Sets => {
                        // Where it fails the program has set the gauge since: its value is the newer one.
                        let _newer = to.compare_exchange(*was, last, Relaxed, Relaxed);
                    }
                }
            }
        }
        late
    }

    /// Puts everything that is only added to back to 0 (a forked worker that begins afresh).
    pub(crate) fn clear_additions(&self, words: &[AtomicU64]) {
        for (span, _) in self.spans.iter().filter(|(_, class)| *class == Class::Adds) {
            words[span.clone()].iter().for_each(|word| word.store(0, Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_region::Block;

    fn memory() -> Vec<AtomicU64> {
        (0..2 * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn plan() -> Plan {
        Plan { spans: vec![(1..4, Class::Adds), (4..6, Class::Sets)], plain: 0..1, guarded: 1..2 }
    }

    /// Any additions and settings, before the copy, between copy and exchange, and between exchange and settling.
    #[test]
    fn no_addition_is_lost_and_the_last_setting_wins() {
        bolero::check!().with_type::<Vec<(u8, u8, u64)>>().for_each(|ops| {
            let (old, new) = (memory(), memory());
            let mut added = [0u64; 3];
            // Distinct values, since a setting to the same value is what cannot be told apart.
            let mut last = [0u64; 2];
            let mut run = |stage: u8, words: &[AtomicU64]| {
                for (number, (_, word, n)) in ops.iter().enumerate().filter(|(_, (at, ..))| at % 3 == stage) {
                    let word = usize::from(word % 5);
                    if word < 3 {
                        words[1 + word].fetch_add(*n, Relaxed);
                        added[word] = added[word].wrapping_add(*n);
                    } else {
                        last[word - 3] = (u64::from(stage) * 1_000_000) + 1 + number as u64;
                        words[1 + word].store(last[word - 3], Relaxed);
                    }
                }
            };
            run(0, &old);
            let copied = plan().copy(&old, &new, Identity::first(1, 1));
            run(1, &old);
            run(2, &new);
            plan().settle(&old, &new, &copied);
            for (word, sum) in added.iter().enumerate() {
                assert_eq!(new[1 + word].load(Relaxed), *sum);
            }
            for (word, value) in last.iter().enumerate() {
                assert_eq!(new[4 + word].load(Relaxed), *value);
            }
        });
    }

    #[test]
    fn blocks_carry_the_new_identity_and_the_old_time() {
        let (old, new) = (memory(), memory());
        let (before, after) = (Identity::first(0, 1), Identity::first(7, 9));
        guard::commit(block_words(&old, 1), before.at(1), 1234, |payload| payload.set(5, 55));
        plan().copy(&old, &new, after);
        assert_eq!(new[0].load(Relaxed), after.word());
        let mut block = Block::default();
        block.copy_from(block_words(&new, 1));
        let accepted = guard::check(&block, after.at(1)).unwrap();
        assert_eq!((accepted.time_ns(), accepted.payload()[5]), (1234, 55));
    }

    #[test]
    fn a_block_that_was_never_committed_stays_unwritten() {
        let (old, new) = (memory(), memory());
        plan().copy(&old, &new, Identity::first(7, 9));
        assert!(new[BLOCK_WORDS..].iter().all(|word| word.load(Relaxed) == 0));
    }
}
