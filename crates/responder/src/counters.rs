// SPDX-License-Identifier: Apache-2.0
//! The responder's counters: how every packet that was ours left it. Written by the BPF programs per processor, summed here.

use crate::intf::Exit;

/// Sums over all processors, since loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    pub(crate) exits: [u64; Exit::COUNT],
}

impl Counters {
    /// Packets that left this way.
    #[must_use]
    pub fn get(&self, exit: Exit) -> u64 {
        self.exits[exit as usize]
    }

    /// Each exit and its count.
    pub fn iter(&self) -> impl Iterator<Item = (Exit, u64)> + '_ {
        Exit::ALL.iter().map(|&exit| (exit, self.get(exit)))
    }

    /// What was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Counters) -> Counters {
        Counters { exits: std::array::from_fn(|index| self.exits[index].wrapping_sub(before.exits[index])) }
    }
}
