// SPDX-License-Identifier: Apache-2.0
//! Blocks of tables in which no row is live. A table has room for more than there is, so most of its blocks are such; who
//! reads often looks into them once a second only, and finds a new row there that much later.

use onlooker_region::schema::Schema;
use onlooker_region::{Block, table};
use std::ops::Range;

/// How long a block without a row is left alone.
const EMPTY_NS: u64 = 1_000_000_000;

/// What a look at all of a region has found.
#[derive(Debug)]
pub(super) struct Occupied {
    pub(super) until_ns: u64,
    /// Blocks that are to be read until then, in order.
    pub(super) parts: Vec<Range<u32>>,
}

impl Occupied {
    /// `None`: the region has no tables. The first block of each group is always read, since it tells the time.
    pub(super) fn of(schema: &Schema, memory: &[Block], asked_ns: u64) -> Option<Self> {
        let mut parts: Vec<Range<u32>> = Vec::new();
        let mut has_tables = false;
        for (first, group) in schema.placed_groups() {
            let layout = group.layout();
            has_tables |= layout.is_some();
            for block in first..first + group.blocks {
                let payload = memory[block as usize].payload();
                if block > first && layout.is_some_and(|layout| table::rows(layout, payload).next().is_none()) {
                    continue;
                }
                match parts.last_mut().filter(|last| last.end == block) {
                    Some(last) => last.end += 1,
                    None => parts.push(block..block + 1),
                }
            }
        }
        has_tables.then_some(Self { until_ns: asked_ns.saturating_add(EMPTY_NS), parts })
    }
}
