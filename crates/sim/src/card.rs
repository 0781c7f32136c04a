// SPDX-License-Identifier: Apache-2.0
//! The controller's card: it sends requests one after the other, and keeps the state of so many queue pairs.
//!
//! Assumed: 10 ns a request, 100 ns more where the state is to be fetched from memory, which the card overlaps with
//! others; 1,024 queue pairs in its cache, the longest unused goes.

use std::collections::BTreeSet;

const POSTED_NS: u64 = 10;
const FETCHED_NS: u64 = 100;
const PAIRS: usize = 1_024;

pub(crate) struct Card {
    free_ns: u64,
    /// By queue pair: when it was last used.
    used: Vec<Option<u64>>,
    order: BTreeSet<(u64, usize)>,
    count: u64,
    pub(crate) fetched: u64,
}

impl Card {
    pub(crate) fn new(pairs: usize) -> Self {
        Self { free_ns: 0, used: vec![None; pairs], order: BTreeSet::new(), count: 0, fetched: 0 }
    }

    /// When a request that takes `wire_ns` has left.
    pub(crate) fn post(&mut self, pair: usize, now_ns: u64, wire_ns: u64) -> u64 {
        self.count += 1;
        let fetched_ns = match self.used[pair].replace(self.count) {
            Some(last) => {
                self.order.remove(&(last, pair));
                0
            }
            None => {
                self.fetched += 1;
                FETCHED_NS
            }
        };
        self.order.insert((self.count, pair));
        if self.order.len() > PAIRS
            && let Some((_, gone)) = self.order.pop_first()
        {
            self.used[gone] = None;
        }
        self.free_ns = self.free_ns.max(now_ns) + (POSTED_NS + fetched_ns).max(wire_ns);
        self.free_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_in_the_cache_is_fetched() {
        let mut card = Card::new(2_000);
        assert_eq!(card.post(0, 1_000, 5), 1_000 + POSTED_NS + FETCHED_NS);
        assert_eq!(card.post(0, 0, 5), 1_000 + 2 * POSTED_NS + FETCHED_NS);
        for pair in 1..PAIRS {
            card.post(pair, 0, 5);
        }
        assert_eq!((card.fetched, card.order.len()), (PAIRS as u64, PAIRS));
        card.post(0, 0, 5);
        card.post(1_999, 0, 5);
        assert_eq!(card.fetched, PAIRS as u64 + 1);
        card.post(0, 0, 5);
        card.post(1, 0, 5);
        assert_eq!(card.fetched, PAIRS as u64 + 2, "the longest unused had gone");
    }
}
