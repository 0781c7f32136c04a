// SPDX-License-Identifier: Apache-2.0
//! Who keeps a region open, and commits to it.
//!
//! A region lives as long as its [`crate::Region`] or any handle; then it is removed from the agent and its memory is
//! given back.

use crate::region::{Inner, Window, now_ns};
use crate::sdk::SDK;
use crate::switch::{block_words, identity_at};
use onlooker_region::block::GUARDED_FIRST;
use onlooker_region::guard;
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_region::table::Table;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What all handles of a region hold; the region ends with the last of them.
pub(crate) struct Owner(pub(crate) Arc<Inner>);

impl Owner {
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.0.place.words()
    }

    /// Commits block `index` of the region: `change` gets the first slots of its payload, in private memory, as they were committed last. What a
    /// panic in `change` leaves behind is never seen by a reader.
    pub(crate) fn commit<R>(&self, index: usize, slots: usize, change: impl FnOnce(&mut [u64]) -> R) -> R {
        let live = self.0.live.take();
        let words = block_words(self.words(), index);
        let mut payload = [0; BLOCK_WORDS];
        let payload = &mut payload[..slots];
        for (to, from) in payload.iter_mut().zip(&words[GUARDED_FIRST..]) {
            *to = from.load(Relaxed);
        }
        let result = change(payload);
        let identity = identity_at(live.identity, index);
        guard::commit(words, identity, now_ns(), |to| to.set_all(0, payload));
        result
    }

    /// Lets the owner of a table change it.
    pub(crate) fn with_table<R>(&self, number: usize, change: impl FnOnce(&mut Table<Window>) -> R) -> R {
        change(&mut self.0.live.take().tables[number])
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        SDK.retire(&self.0);
    }
}
