// SPDX-License-Identifier: Apache-2.0
//! Blocks of tables in which no row is live. A table has room for more than there is, so most of its blocks are such; who
//! reads often looks into them now and then only, and finds a new row there that much later. Most new rows come behind the
//! others, where they are found at once.

use onlooker_region::schema::Schema;
use onlooker_region::{Block, table};
use std::ops::Range;

/// How long blocks without a row are left alone, where there are no more of them than [`AT_ONCE`]; of more, as much longer.
const EMPTY_NS: u64 = 1_000_000_000;
const AT_ONCE: u64 = 64;

/// What a look at all of a region has found.
#[derive(Debug)]
pub(super) struct Occupied {
    pub(super) until_ns: u64,
    /// Blocks that are to be read until then, in order.
    pub(super) parts: Vec<Range<u32>>,
}

impl Occupied {
    /// `None`: the region has no tables. Always read are the first block of each group, since it tells the time, and those
    /// behind a block with rows.
    pub(super) fn of(schema: &Schema, memory: &[Block], asked_ns: u64) -> Option<Self> {
        let (mut parts, mut empty): (Vec<Range<u32>>, u64) = (Vec::new(), 0);
        let mut has_tables = false;
        for (first, group) in schema.placed_groups() {
            let layout = group.layout();
            has_tables |= layout.is_some();
            let has_rows = |block: u32| {
                let payload = memory[block as usize].payload();
                layout.is_none_or(|layout| table::rows(layout, payload).next().is_some())
            };
            for block in first..first + group.blocks {
                if block > first && !has_rows(block) && !has_rows(block - 1) {
                    empty += 1;
                    continue;
                }
                match parts.last_mut().filter(|last| last.end == block) {
                    Some(last) => last.end += 1,
                    None => parts.push(block..block + 1),
                }
            }
        }
        let until_ns = asked_ns.saturating_add(EMPTY_NS * empty.div_ceil(AT_ONCE).max(1));
        has_tables.then_some(Self { until_ns, parts })
    }
}
