// SPDX-License-Identifier: Apache-2.0
//! What a killed agent's successor keeps: only what ledger and the responder's table agree on. No I/O.
//!
//! A kill can fall between any two steps of a region's life; the order of the steps (docs/decisions/0009) makes each state that is left one of these:
//!
//! | ledger | responder's table | then |
//! |---|---|---|
//! | published | the same | the region goes on; its entry is put right if it is not |
//! | hidden, or published | nothing, or something else | not (yet) or no longer a region; its range rests, since its program may still write |
//! | nothing | a region | it is taken out |

use std::collections::{BTreeMap, BTreeSet, HashMap};

use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::slab::{PAGE_BYTES, Range};
use onlooker_responder::{Kind, Region};

use super::ledger::{FIRST_USER_SLAB, Record, Role, Source};

/// Slab of the agent's own regions.
pub const OWN_SLAB: u32 = 1;

/// What is there.
#[derive(Debug)]
pub struct Found<'a> {
    /// The ledger's records.
    pub records: Vec<Record>,
    /// The responder's table, by rkey.
    pub regions: HashMap<u32, Region>,
    /// Users' slabs: index by uid.
    pub slabs: &'a BTreeMap<u32, u32>,
    /// Bytes of every slab that is there, by index.
    pub slab_bytes: &'a BTreeMap<u32, u64>,
    /// Key of the control region.
    pub control_rkey: u32,
}

/// What to do with it.
#[derive(Debug, Default)]
pub struct Plan {
    /// Regions that go on.
    pub keep: Vec<Record>,
    /// Ranges of slabs (by index) that a program may still write to.
    pub rest: Vec<(u32, Range)>,
    /// Records to be removed.
    pub forget: Vec<u32>,
    /// Regions to be taken out of the responder's table, by rkey.
    pub remove: Vec<u32>,
}

/// Decides.
#[must_use]
pub fn decide(found: Found<'_>) -> Plan {
    let Found { mut records, regions, slabs, slab_bytes, control_rkey } = found;
    let mut plan = Plan::default();
    // Newer ones give way where two claim the same, which no order of steps brings about.
    records.sort_by_key(|record| (record.entry.created_ns, record.number()));
    let (mut slots, mut rkeys) = (BTreeSet::new(), BTreeSet::from([control_rkey]));
    let mut ranges: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for record in records {
        let free = match record.keep.source {
            Source::Slab { slab, range } => {
                let owned = match record.keep.role {
                    Role::Program => slab >= FIRST_USER_SLAB && slabs.get(&record.entry.uid) == Some(&slab),
                    Role::Own => slab == OWN_SLAB,
                };
                let within = owned && is_within(range, slab_bytes.get(&slab).copied(), record.entry.bytes);
                within && take(&mut ranges, slab, range)
            }
            Source::Computed { .. } => record.keep.role == Role::Own,
        };
        let registered = free && regions.get(&record.entry.rkey) == Some(&expected(&record));
        let unique = |slot| registered && slots.insert(slot) && rkeys.insert(record.entry.rkey);
        if record.slot().is_some_and(unique) {
            plan.keep.push(record);
            continue;
        }
        plan.forget.push(record.number());
        if let (true, Source::Slab { slab, range }) = (free, record.keep.source) {
            plan.rest.push((slab, range));
        }
    }
    let kept = plan.keep.iter().map(|record| record.entry.rkey).chain([control_rkey]).collect::<BTreeSet<u32>>();
    plan.remove = regions.into_keys().filter(|rkey| !kept.contains(rkey)).collect();
    plan
}

/// As the responder's table must have it.
#[must_use]
pub fn expected(record: &Record) -> Region {
    let kind = match record.keep.source {
        Source::Slab { slab, range } => {
            Kind::Memory { slab, first_block: u32::try_from(range.offset / BLOCK_BYTES as u64).unwrap_or(u32::MAX) }
        }
        Source::Computed { collector } => Kind::Computed { collector, identity: record.entry.identity.word() },
    };
    Region { va: record.entry.va, blocks: record.keep.schema.blocks, kind }
}

fn is_within(range: Range, slab_bytes: Option<u64>, region_bytes: u64) -> bool {
    let whole = range.offset.is_multiple_of(PAGE_BYTES) && range.bytes.is_multiple_of(PAGE_BYTES);
    let end = range.offset.checked_add(range.bytes);
    whole && range.bytes >= region_bytes && end.is_some_and(|end| slab_bytes.is_some_and(|bytes| end <= bytes))
}

/// Whether nobody has any of it yet.
fn take(ranges: &mut BTreeMap<(u32, u64), u64>, slab: u32, range: Range) -> bool {
    let end = range.offset + range.bytes;
    let before = ranges.range((slab, 0)..(slab, end)).next_back();
    let free = before.is_none_or(|(_, other_end)| *other_end <= range.offset);
    if free {
        ranges.insert((slab, range.offset), end);
    }
    free
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Stage;
    use super::super::ledger::tests::record;
    use super::*;

    const CONTROL: u32 = 5;

    fn plan(records: Vec<Record>, registered: &[&Record]) -> Plan {
        let mut regions: HashMap<u32, Region> =
            registered.iter().map(|record| (record.entry.rkey, expected(record))).collect();
        regions.insert(CONTROL, Region { va: 0, blocks: 64, kind: Kind::Memory { slab: 0, first_block: 0 } });
        let (slabs, slab_bytes) =
            (BTreeMap::from([(1000, 2)]), BTreeMap::from([(0, 65_536), (1, 65_536), (2, 65_536)]));
        decide(Found { records, regions, slabs: &slabs, slab_bytes: &slab_bytes, control_rkey: CONTROL })
    }

    fn numbers(records: &[Record]) -> Vec<u32> {
        records.iter().map(Record::number).collect()
    }

    #[test]
    fn what_all_agree_on_goes_on() {
        let (a, b) = (record(17, 0, 0), record(18, 1, 4096));
        let mut own = record(1, 5, 0);
        own.keep.role = Role::Own;
        own.keep.source = Source::Slab { slab: OWN_SLAB, range: Range { offset: 0, bytes: 4096 } };
        let mut computed = record(2, 6, 0);
        computed.keep.role = Role::Own;
        computed.keep.source = Source::Computed { collector: 3 };
        let all = vec![a.clone(), b.clone(), own.clone(), computed.clone()];
        let plan = plan(all, &[&a, &b, &own, &computed]);
        assert_eq!(numbers(&plan.keep), [1, 2, 17, 18]);
        assert!(plan.rest.is_empty() && plan.forget.is_empty() && plan.remove.is_empty());
    }

    #[test]
    fn every_half_done_step_is_undone() {
        let mut hidden = record(17, 0, 0);
        hidden.stage = Stage::Hidden;
        // Between the table and the ledger, when it was published.
        let undone = plan(vec![hidden.clone()], &[&hidden]);
        assert!(undone.keep.is_empty());
        assert_eq!((undone.forget, undone.remove), (vec![17], vec![1017]));
        assert_eq!(undone.rest, [(2, Range { offset: 0, bytes: 4096 })], "its program may still write");
        // Between the ledger and the table, when it ended.
        let ended = record(18, 1, 4096);
        let undone = plan(vec![], &[&ended]);
        assert_eq!((undone.keep.len(), undone.remove), (0, vec![1018]));
        let undone = plan(vec![ended], &[]);
        assert_eq!((undone.keep.len(), undone.forget, undone.remove.len()), (0, vec![18], 0));
    }

    #[test]
    fn contradictions_are_not_kept() {
        let good = record(17, 0, 0);
        let with = |change: &dyn Fn(&mut Record)| {
            let mut other = record(18, 1, 4096);
            other.entry.created_ns = 100;
            change(&mut other);
            let plan = plan(vec![other.clone(), good.clone()], &[&good, &other]);
            assert!(numbers(&plan.keep).contains(&17), "the older one stays");
            plan
        };
        assert_eq!(with(&|_| ()).keep.len(), 2);
        let range = |slab, offset, bytes| Source::Slab { slab, range: Range { offset, bytes } };
        let changes: [&dyn Fn(&mut Record); 8] = [
            &|other| other.stage = Stage::Published { slot: 0 },
            &|other| other.keep.source = range(2, 0, 4096),
            &|other| other.keep.source = range(2, 65_536, 4096),
            &|other| other.keep.source = range(2, u64::MAX - 4095, 4096),
            &|other| other.keep.source = range(2, 8192, 0),
            &|other| other.keep.source = range(1, 4096, 4096),
            &|other| other.entry.uid = 1001,
            &|other| other.keep.source = Source::Computed { collector: 3 },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert_eq!(numbers(&with(change).keep), [17], "change {number}");
        }
        // The table has another region under its key.
        let mut moved = record(18, 1, 4096);
        moved.keep.source = range(2, 8192, 4096);
        let plan = plan(vec![record(18, 1, 4096)], &[&moved]);
        assert_eq!((plan.keep.len(), plan.remove), (0, vec![1018]));
    }
}
