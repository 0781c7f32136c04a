// SPDX-License-Identifier: Apache-2.0
//! Kernel metrics from procfs, sysfs and netlink in guarded blocks, with node_exporter's names, labels and units.
//!
//! One region per group, so that a reader can read each at its own rate; what a group reads, its schema and its sample
//! are in `procfs.rs` of its folder ([`crate::groups`]). A [`Set`] of groups is written by whoever owns it and samples
//! each as often as it is worth: what is expensive has a shortest interval of its own
//! ([`crate::groups::Group::shortest_interval`]). What this host has not got (no sensors, no such file) is a group or a
//! metric less, with the reason, never an error. A sample of the frequent groups allocates nothing but a row's key when
//! a device is new. Cost: the kernel's for the file (30-100 us) plus 100 ns a block; docs/agent.md has it by group.

mod draft;
pub(crate) mod listed;
pub(crate) mod metric;
pub(crate) mod rows;
pub(crate) mod scrape;
mod set;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

use onlooker_region::block::Identity;
use onlooker_region::guard::commit;
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_region::map::{Map, MapError};
use onlooker_region::schema::{Field, Group};
use onlooker_region::{Block, Schema};
use onlooker_responder::clock::boot_time_ns;

use crate::procfs::LINE_BYTES;

pub use draft::{Draft, Sampled};
use scrape::Scrapes;
pub use set::Set;

/// Why a group of kernel metrics is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// What it reads is not here.
    #[error("{0}")]
    Source(#[from] io::Error),
    /// Nothing in it was understood, or there is none of it.
    #[error("this host has none")]
    Nothing,
    /// Its schema has no room for it.
    #[error("it does not fit a schema: {0}")]
    Schema(String),
    /// Its memory.
    #[error("memory for kernel metrics: {0}")]
    Memory(#[from] MapError),
}

/// Metrics that are computed: by name and constant labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Covered(BTreeSet<(String, BTreeMap<String, String>)>);

impl Covered {
    /// All metrics of a computed region's class.
    pub fn add(&mut self, schema: &Schema) {
        let fields = schema.groups.iter().flat_map(|group| &group.fields);
        self.0.extend(fields.map(|field| (field.name.clone(), field.labels.clone())));
    }

    fn has(&self, field: &Field) -> bool {
        self.0.contains(&(field.name.clone(), field.labels.clone()))
    }
}

/// What a sample could not do, and what it has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loss {
    /// Files that could not be read.
    pub failed: u64,
    /// Devices without a row, series without a place.
    pub rows_dropped: u64,
    /// There are other series than the region has places for.
    pub changed: bool,
}

/// What a group is made for.
pub(crate) struct Ask<'a> {
    /// Metrics that are computed, for what is left beside them.
    pub(crate) computed: Option<&'a Covered>,
}

impl Ask<'_> {
    /// Whether a field is not computed.
    pub(crate) fn is_left(&self, field: &Field) -> bool {
        self.computed.is_none_or(|computed| !computed.has(field))
    }
}

/// A network device's name as keys of tables have it.
pub type DeviceKey = [u64; 2];

/// What a sample is made with.
pub(crate) struct Context<'a> {
    pub(crate) now_ns: u64,
    pub(crate) buffer: &'a mut [u8; LINE_BYTES],
    /// Devices that have a computed row, if that is known.
    pub(crate) computed: Option<&'a [DeviceKey]>,
    pub(crate) loss: Loss,
    pub(crate) scrapes: &'a mut Scrapes,
    /// What an operator should know of the group; told once, when it is made.
    pub(crate) notes: Vec<String>,
}

impl<'a> Context<'a> {
    /// For now, without a computed row known of.
    pub(crate) fn new(buffer: &'a mut [u8; LINE_BYTES], scrapes: &'a mut Scrapes) -> Self {
        let (computed, loss, notes) = (None, Loss::default(), Vec::new());
        Self { now_ns: boot_time_ns(), buffer, computed, loss, scrapes, notes }
    }
}

/// A group as its file has made it.
pub(crate) struct Made {
    /// Its blocks; none where all of it is computed.
    pub(crate) groups: Vec<Group>,
    pub(crate) sampler: Box<dyn Sampler>,
}

/// Takes samples of a group.
pub(crate) trait Sampler: Send {
    /// The group has memory now.
    fn begin(&mut self, place: &Place, schema: &Schema, now_ns: u64) {
        let _ = (place, schema, now_ns);
    }

    /// Takes one. What cannot be read leaves its blocks as they were: their time tells their age.
    ///
    /// # Errors
    /// As the system has it.
    fn sample(&mut self, place: &Place, context: &mut Context) -> io::Result<()>;

    /// Whether it wants to know which devices have a computed row.
    fn wants_devices(&self) -> bool {
        false
    }
}

/// Where a group's blocks are.
pub(crate) struct Place {
    pub(crate) memory: Map,
    pub(crate) identity: Identity,
    /// Blocks of each of the schema's groups.
    groups: Vec<Range<usize>>,
}

impl Place {
    pub(crate) fn new(memory: Map, identity: Identity, schema: &Schema) -> Self {
        let blocks = |(first, group): (u32, &Group)| first as usize..(first + group.blocks) as usize;
        let groups = schema.placed_groups().map(blocks).collect();
        Self { memory, identity, groups }
    }

    fn identity(&self, block: usize) -> Identity {
        self.identity.at(u16::try_from(block).unwrap_or(u16::MAX))
    }

    /// Writes a block, beginning at its first slot.
    pub(crate) fn put(&self, block: usize, now_ns: u64, values: &[u64]) {
        let words = &self.memory.words()[block * BLOCK_WORDS..][..BLOCK_WORDS];
        commit(words, self.identity(block), now_ns, |payload| payload.set_all(0, values));
    }

    /// What is in its memory.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let block = |words: &[AtomicU64]| {
            let mut block = Block::default();
            block.copy_from(words);
            block
        };
        self.memory.words().chunks_exact(BLOCK_WORDS).map(block).collect()
    }

    /// Memory of one of the schema's groups.
    pub(crate) fn group(&self, number: usize) -> (Map, Identity) {
        let blocks = self.groups[number].clone();
        let identity = self.identity(blocks.start);
        (self.memory.window(blocks.start * BLOCK_WORDS..blocks.end * BLOCK_WORDS), identity)
    }
}

#[cfg(test)]
pub(crate) mod tests;
