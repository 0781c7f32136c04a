// SPDX-License-Identifier: Apache-2.0
//! What a field says of its elements: the sum that they go into, and the block whose time each has.

use onlooker_region::block::guarded_place;
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::{Field, Group, Kind, Sum};

/// The sum that a field's elements go into, if there is one. Of programs' regions nobody makes sums: what they cost a
/// reader is bounded by nothing that a program pays for.
#[must_use]
pub fn sum_of<'a>(entry: &RegionEntry, field: &'a Field) -> Option<&'a Sum> {
    sum_in(entry.identity.is_agents(), field)
}

pub(super) fn sum_in(is_agents: bool, field: &Field) -> Option<&Sum> {
    field.sum.as_ref().filter(|_| is_agents)
}

/// The block of a group whose time an element has; of other kinds than those with a time of their own, the first one.
pub(super) fn block_of(group: &Group, field: &Field, element: u32) -> usize {
    let stride = field.array.as_ref().map_or(0, |array| array.stride);
    let last = (field.slot + element * stride) as usize + field.slots() - 1;
    match group.kind {
        Kind::Guarded | Kind::Computed => guarded_place(last).0,
        Kind::Plain | Kind::Foreign | Kind::Table => 0,
    }
}
