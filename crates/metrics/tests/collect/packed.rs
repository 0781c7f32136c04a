// SPDX-License-Identifier: Apache-2.0
//! Packed blocks against the groups' own.

use std::collections::{BTreeMap, BTreeSet};

use onlooker_metrics::collect::{InstalledGroup, Packed, packed, remove};
use onlooker_metrics::groups::Group;
use onlooker_region::block::Identity;
use onlooker_responder::{Exit, Kind, Region};

use crate::regions::{Collecting, between, values_of};
use crate::support::{Ask, Outcome, SIDES, Side, VA};

const RKEY: u32 = 300;
const SLOT: u32 = packed::SLOTS.start;

fn identity() -> Identity {
    Identity::first(SLOT, 0x78)
}

/// All groups, and their packed region.
fn packing() -> (Collecting, Packed) {
    let groups: Vec<Group> = Group::computed().collect();
    let collecting = Collecting::new(&groups);
    let packed = Packed::of(&collecting.installed.groups).expect("load and memory have a block each on every machine");
    let responder = &collecting.rig.responder;
    packed.install(responder, SLOT).unwrap_or_else(|error| panic!("{error}"));
    let kind = Kind::Computed { collector: SLOT, identity: identity().word() };
    responder.add_region(RKEY, &Region { va: VA, blocks: packed.schema.blocks(), kind }).unwrap();
    (collecting, packed)
}

#[test]
fn packed_values_are_those_of_the_groups() {
    let (collecting, packed) = packing();
    let is_member = |group: &&InstalledGroup| packed.collectors.contains(&group.slot);
    let members: Vec<Group> = collecting.installed.groups.iter().filter(is_member).map(|group| group.group).collect();
    let alone: u32 = members.iter().map(|group| collecting.group(*group).blocks).sum();
    assert!(packed.schema.blocks() < alone, "{} blocks in place of {alone}", packed.schema.blocks());
    let of_groups = |side: Side| -> BTreeMap<String, f64> {
        members.iter().flat_map(|group| collecting.read(*group, side)).collect()
    };
    for side in SIDES {
        // A gauge may be elsewhere between two looks, and at another instant it is not.
        let mut unlike: BTreeSet<String> = of_groups(side).into_keys().collect();
        let mut why = BTreeMap::new();
        for _ in 0..200 {
            let before = of_groups(side);
            let blocks = collecting.blocks_of(RKEY, packed.schema.blocks(), identity(), side);
            let values = values_of(&packed.schema, identity(), &blocks);
            let after = of_groups(side);
            assert!(values.keys().eq(before.keys()), "{side:?}: other series");
            unlike.retain(|series| {
                let found = between(values[series], before[series], after[series], 1e-9);
                found.map_err(|reason| why.insert(series.clone(), reason)).is_err()
            });
            if unlike.is_empty() {
                break;
            }
        }
        assert!(unlike.is_empty(), "{side:?}: {unlike:?}: {why:?}");
    }
}

#[test]
fn without_one_of_its_groups_a_packed_block_is_not_answered() {
    let (collecting, packed) = packing();
    let asked = |side: Side| -> Vec<Outcome> {
        let blocks = 0..u64::from(packed.schema.blocks());
        blocks.map(|block| collecting.rig.run(side, &Ask::v4().rkey(RKEY).at(1024 * block, 1024).frame())).collect()
    };
    let all_answered = |side| asked(side).iter().all(|outcome| matches!(outcome, Outcome::Answer(_)));
    assert!(SIDES.into_iter().all(all_answered));
    remove(&collecting.rig.responder, &[Group::MEMORY]);
    for side in SIDES {
        let refused = asked(side).into_iter().filter(|outcome| !matches!(outcome, Outcome::Answer(_)));
        assert_eq!(refused.collect::<Vec<_>>(), [Outcome::Drop(Exit::CollectorRefused)], "{side:?}");
    }
    // The pieces that were left over do not leak into other requests.
    let cpu = collecting.read(Group::CPU, Side::Tc);
    assert!(cpu.values().any(|value| *value > 0.0));
}
