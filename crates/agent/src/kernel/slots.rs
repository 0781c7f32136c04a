// SPDX-License-Identifier: Apache-2.0
//! Slots of collectors whose regions' classes change: operators' collectors, and packed blocks.
//!
//! Regions of an earlier agent go on while its successor installs its collectors, and each names a slot. So a collector
//! keeps its slot as long as its region's class is the same. What has changed gets a slot that no region names, and its
//! old region ends when the agent hears of the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use onlooker_region::schema::SchemaId;

use super::ledger::{Bytes, HEADER, Record, Role, Source};

/// A region of an earlier agent's that a collector computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    region: String,
    schema: SchemaId,
    slot: u32,
}

/// All of the ledger.
pub(super) fn standing(ledger: Vec<(u32, Bytes)>) -> Vec<Standing> {
    let records = ledger.into_iter().filter(|(number, _)| *number != HEADER);
    let records = records.filter_map(|(number, block)| Record::decode(number, &block));
    let computed = records.filter_map(|record| match (record.keep.role, record.keep.source) {
        (Role::Own, Source::Computed { collector }) => {
            Some(Standing { region: record.entry.name, schema: record.entry.schema, slot: collector })
        }
        _ => None,
    });
    computed.collect()
}

/// One of `slots` for each region, where there is one.
pub(super) fn assign(slots: Range<u32>, wanted: &[(&str, SchemaId)], standing: &[Standing]) -> Vec<Option<u32>> {
    let standing: Vec<&Standing> = standing.iter().filter(|one| slots.contains(&one.slot)).collect();
    let is_it = |one: &Standing, (region, schema): &(&str, SchemaId)| one.region == *region && one.schema == *schema;
    let kept: BTreeMap<&str, u32> = wanted
        .iter()
        .filter_map(|wanted| Some((wanted.0, standing.iter().find(|one| is_it(one, wanted))?.slot)))
        .collect();
    let named: BTreeSet<u32> = standing.iter().map(|one| one.slot).collect();
    let mut free = slots.filter(|slot| !named.contains(slot));
    wanted.iter().map(|(region, _)| kept.get(region).copied().or_else(|| free.next())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SchemaId = SchemaId([1; 16]);
    const B: SchemaId = SchemaId([2; 16]);
    const SLOTS: Range<u32> = 32..64;

    fn stands(region: &str, schema: SchemaId, slot: u32) -> Standing {
        Standing { region: region.into(), schema, slot }
    }

    #[test]
    fn a_slot_is_kept_with_its_class_and_given_to_nobody_else_before_its_region_has_ended() {
        let assign = |wanted: &[(&str, SchemaId)], standing: &[Standing]| assign(SLOTS, wanted, standing);
        assert_eq!(assign(&[("user_a", A), ("user_b", A)], &[]), [Some(32), Some(33)]);
        // What others have does not matter.
        let before = [stands("user_a", A, 32), stands("user_b", A, 33), stands("user_c", B, 20)];
        // One comes in front: the others stay where they are.
        assert_eq!(assign(&[("user_0", A), ("user_a", A), ("user_b", A)], &before), [Some(34), Some(32), Some(33)]);
        // One has another class, one has gone.
        assert_eq!(assign(&[("user_b", B), ("user_c", A)], &before), [Some(34), Some(35)]);
    }

    #[test]
    fn there_is_an_end_to_slots() {
        let names: Vec<String> = (0..33).map(|number| format!("user_{number}")).collect();
        let wanted: Vec<(&str, SchemaId)> = names.iter().map(|name| (name.as_str(), A)).collect();
        let slots = assign(SLOTS, &wanted, &[]);
        assert_eq!((slots[31], slots[32]), (Some(63), None));
    }
}
