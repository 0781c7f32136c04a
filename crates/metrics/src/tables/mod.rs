// SPDX-License-Identifier: Apache-2.0
//! Tables of what a host has many of: TCP connections ([`connections`]), control groups ([`cgroups`]), processes
//! ([`processes`]). Each is a [`Source`], which writes all of its rows when it is run; whoever owns it decides when
//! (docs/tables.md has the cost).

pub mod cgroups;
pub mod connections;
mod hash;
pub mod processes;
mod schema;
pub mod sheet;

use onlooker_region::Schema;
use onlooker_region::block::Identity;
use onlooker_region::guard::commit;
use onlooker_region::limits::{BLOCK_BYTES, BLOCK_WORDS};
use onlooker_region::map::Map;

/// A source of tables.
pub trait Source {
    /// Writes what there is now.
    ///
    /// # Errors
    /// What could not be read; the blocks stay as they are then, and their time tells their age.
    fn run(&mut self, now_ns: u64) -> Result<(), String>;

    /// What the last runs have cost and could not do, to be written by the source.
    fn told(&mut self) -> &mut Told;
}

/// What a source tells of itself in the first slots of its summary.
#[derive(Debug, Clone, Copy, Default)]
pub struct Told {
    /// Runs, failed ones included.
    pub runs: u64,
    /// Runs that failed.
    pub failed: u64,
    /// CPU time that they took, ns.
    pub run_ns: u64,
    /// Rows now.
    pub rows: u64,
    /// What has no row since all are taken.
    pub missing: u64,
}

/// Slots of [`Told`].
pub const TOLD_SLOTS: usize = 5;

impl Told {
    /// As slots.
    #[must_use]
    pub fn slots(&self) -> [u64; TOLD_SLOTS] {
        [self.runs, self.failed, self.run_ns, self.rows, self.missing]
    }
}

/// A region that a source writes, before it has memory.
pub struct Region {
    /// Name of the region and its class.
    pub name: &'static str,
    /// Its class.
    pub schema: Schema,
}

impl Region {
    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.schema.blocks()) * BLOCK_BYTES as u64
    }
}

/// A region's memory, and the identity of its first block.
#[derive(Debug, Clone)]
pub struct Ground {
    /// All its blocks.
    pub memory: Map,
    /// Of block 0.
    pub identity: Identity,
}

impl Ground {
    /// The blocks of a group, from block `first` on.
    #[must_use]
    pub fn group(&self, first: usize, blocks: usize) -> Self {
        let memory = self.memory.window(first * BLOCK_WORDS..(first + blocks) * BLOCK_WORDS);
        Self { memory, identity: self.identity.at(u16::try_from(first).unwrap_or(u16::MAX)) }
    }

    /// Writes the first slots of the first block.
    pub fn put(&self, values: &[u64], now_ns: u64) {
        let words = &self.memory.words()[..BLOCK_WORDS];
        commit(words, self.identity, now_ns, |payload| payload.set_all(0, values));
    }
}
