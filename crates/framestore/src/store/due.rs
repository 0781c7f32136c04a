// SPDX-License-Identifier: Apache-2.0
//! Which raw files are old enough to become cold ones: the store thread says it, `cool.rs` takes the first.

use std::collections::{BTreeMap, BTreeSet};

/// Raw files that are old enough, and since when, UTC ns.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) files: BTreeMap<u32, u64>,
    /// Those that cannot be converted.
    given_up: BTreeSet<u32>,
}

impl Due {
    pub(super) fn set(&mut self, files: impl Iterator<Item = (u32, u64)>) {
        self.files = files.filter(|(number, _)| !self.given_up.contains(number)).collect();
    }

    pub(super) fn oldest_ns(&self) -> Option<u64> {
        self.files.values().min().copied()
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.files.keys().next().copied()
    }

    /// It is converted, or has gone.
    pub(super) fn remove(&mut self, number: u32) {
        self.files.remove(&number);
    }

    /// It cannot be converted.
    pub(super) fn give_up(&mut self, number: u32) {
        self.given_up.insert(number);
    }
}
