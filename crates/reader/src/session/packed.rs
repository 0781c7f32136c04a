// SPDX-License-Identifier: Apache-2.0
//! Packed blocks: the agent serves the fields of several of its regions once more, side by side in few blocks. Whoever
//! reads those leaves the regions alone; as long as the blocks stay silent, the regions are read as if they were not there.

use super::frame::Served;
use onlooker_region::control::{PACKED_REGION, RegionEntry};
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::schema::{Field, Group, Kind, Schema};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Which of the regions that are served has the packed blocks, and which others they stand for.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) region: usize,
    stands_for: Vec<usize>,
    /// Those.
    pub(super) entries: Arc<[Arc<RegionEntry>]>,
}

/// What tells the series of a field from others.
fn names(field: &Field) -> (&str, &BTreeMap<String, String>, u32, Option<&Vec<String>>) {
    (&field.name, &field.labels, field.elements(), field.array.as_ref().and_then(|array| array.values.as_ref()))
}

impl Packed {
    pub(super) fn of(served: &[Served]) -> Option<Self> {
        let is_agents = |served: &Served| served.entry.identity.is_agents();
        let region = served.iter().position(|one| is_agents(one) && one.entry.name == PACKED_REGION)?;
        let packed = &served[region];
        let plan = packed.plan.as_ref().ok()?;
        let is_whole = packed.entry.bytes == (plan.compiled().blocks() * BLOCK_BYTES) as u64;
        let fields = || plan.schema().groups.iter().flat_map(|group| &group.fields);
        let has: HashSet<_> = fields().map(names).collect();
        let is_in_it = |schema: &Schema| {
            let is_in_it = |group: &Group| {
                group.kind == Kind::Computed && group.fields.iter().map(names).all(|names| has.contains(&names))
            };
            schema.groups.iter().all(is_in_it)
        };
        let stands_for = |(number, one): (usize, &Served)| {
            let is_other = number != region && is_agents(one) && one.entry.labels == packed.entry.labels;
            (is_other && is_in_it(one.plan.as_ref().ok()?.schema())).then_some(number)
        };
        let stands_for: Vec<usize> = served.iter().enumerate().filter_map(stands_for).collect();
        let entries = stands_for.iter().map(|number| served[*number].entry.clone()).collect();
        is_whole.then_some(Self { region, stands_for, entries })
    }

    pub(super) fn stands_for(&self, region: usize) -> bool {
        self.stands_for.binary_search(&region).is_ok()
    }

    /// Whether all is chosen that it would bring.
    pub(super) fn is_chosen(&self, chosen: &[bool]) -> bool {
        self.stands_for.iter().chain([&self.region]).all(|region| chosen[*region])
    }
}
