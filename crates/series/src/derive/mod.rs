// SPDX-License-Identifier: Apache-2.0
//! What a host's values say together: the sums of its schemas (docs/format/schema.md, Sums).
//!
//! A block holds a few elements of an array and never their sum, so sums are made here, where all blocks are. Which fields go into which sum is worked out once
//! for a region and its schema; a reading then costs an addition a value, no text and no allocation. What a sum *replaces* is not shown beside it, or `sum()`
//! over the metric would count twice; the other sums have names of their own.
//!
//! Invariants: a sum has all elements of its schema, of one row generation, or there is none in that reading; it is never made of blocks older than those
//! before; and a sum of counters falls only where all of it began again (`sums`).

mod sums;

use std::collections::{HashMap, HashSet};

use onlooker_region::columns::Sample;
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::{self, Field, Schema};
use onlooker_region::{Identity, SchemaId};

use crate::PATIENCE_READINGS;
use crate::series::group_number;
use sums::Sums;
pub use sums::{Sum, Summed};

/// The sum that a field's elements go into, if there is one. Of programs' regions nobody makes sums: what they cost a reader is bounded by nothing that a program pays for.
#[must_use]
pub fn sum_of<'a>(entry: &RegionEntry, field: &'a Field) -> Option<&'a schema::Sum> {
    field.sum.as_ref().filter(|_| entry.identity.is_agents())
}

/// What a reading of a region gives.
pub enum Given<'a, 'r> {
    /// Values of a group, or of one row of it, that no sum replaces; never none.
    Values {
        /// Number of the group in the schema.
        group: u32,
        /// In the order of its fields.
        samples: &'r [Sample<'a>],
    },
    /// Sums, whole.
    Sum(Sum<'r>),
}

/// Number and generation of a sample's table row.
#[must_use]
pub fn row_of(sample: &Sample<'_>) -> Option<(u32, u32)> {
    sample.row.as_ref().map(|row| (u32::try_from(row.number).unwrap_or(u32::MAX), row.generation))
}

/// Whether two samples of a region are of one group, and of one row of it.
#[must_use]
pub fn is_same(a: &Sample<'_>, b: &Sample<'_>) -> bool {
    std::ptr::eq(a.group, b.group) && row_of(a) == row_of(b)
}

/// What becomes of a group's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// They are shown.
    Shown,
    /// They are replaced by their sums.
    Replaced,
    /// Some are: [`Region::kept`].
    Partly,
}

/// The sums of one region.
pub struct Region {
    name: String,
    fates: Vec<Fate>,
    /// Of each group: which of its fields are replaced.
    replaced: Vec<Vec<bool>>,
    /// Which set of sums a group feeds.
    feeds: Vec<Option<usize>>,
    sets: Vec<Sums>,
    seen: u64,
}

impl Region {
    fn new(entry: &RegionEntry, schema: &Schema) -> Self {
        let mut region = Self {
            name: entry.name.clone(),
            fates: vec![Fate::Shown; schema.groups.len()],
            replaced: vec![Vec::new(); schema.groups.len()],
            feeds: vec![None; schema.groups.len()],
            sets: Vec::new(),
            seen: 0,
        };
        let mut members: Vec<(HashSet<&str>, bool, Vec<usize>)> = Vec::new();
        for (number, group) in schema.groups.iter().enumerate() {
            let sums = group.fields.iter().map(|field| sum_of(entry, field));
            let replaced: Vec<bool> = sums.clone().map(|sum| sum.is_some_and(schema::Sum::replaces)).collect();
            let named = group.fields.iter().zip(sums);
            let mut names: HashSet<&str> = named.filter_map(|(field, sum)| Some(field.sum_name(sum?))).collect();
            if names.is_empty() {
                continue;
            }
            region.fates[number] = match (replaced.contains(&true), replaced.contains(&false)) {
                (true, true) => Fate::Partly,
                (true, false) => Fate::Replaced,
                (false, _) => Fate::Shown,
            };
            region.replaced[number] = replaced;
            // Elements that are spread over groups are summed up together; a published twin repeats its group.
            let is_twin = group.twin_of.is_some();
            let shares = |(other, twin, _): &mut (HashSet<&str>, bool, Vec<usize>)| {
                *twin == is_twin && !other.is_disjoint(&names)
            };
            let shared: Vec<_> = members.extract_if(.., shares).collect();
            let mut groups = vec![number];
            for (others, _, of) in shared {
                names.extend(others);
                groups.extend(of);
            }
            groups.sort_unstable();
            members.push((names, is_twin, groups));
        }
        for (_, _, groups) in members {
            for group in &groups {
                region.feeds[*group] = Some(region.sets.len());
            }
            region.sets.push(Sums::new(entry, schema, &groups));
        }
        region
    }

    /// Takes the samples of a group, or of one row of it; says what else is to become of them.
    pub fn take(&mut self, group: usize, samples: &[Sample<'_>]) -> Fate {
        if let Some(set) = self.feeds.get(group).copied().flatten() {
            self.sets[set].take(group, samples);
        }
        self.fates.get(group).copied().unwrap_or(Fate::Shown)
    }

    /// Those of a group's samples, or of one row's, that their sums do not replace.
    #[must_use]
    pub fn kept<'a>(&self, group: usize, samples: &[Sample<'a>]) -> Vec<Sample<'a>> {
        let replaced = self.replaced.get(group).map_or(&[][..], Vec::as_slice);
        // Samples come field by field, in the order of the schema.
        let mut at = 0;
        let is_kept = |sample: &&Sample<'a>| {
            while sample.group.fields.get(at).is_some_and(|field| !std::ptr::eq(field, sample.field)) {
                at += 1;
            }
            !replaced.get(at).is_some_and(|replaced| *replaced)
        };
        samples.iter().filter(is_kept).cloned().collect()
    }

    /// Ends the reading of the region: hands over the sums that are whole.
    pub fn finish(&mut self, mut give: impl FnMut(Sum<'_>)) {
        for (set, sums) in (0..).zip(&mut self.sets) {
            sums.finish(set, &mut give);
        }
    }
}

/// The sums of one host.
#[derive(Default)]
pub struct Derived {
    regions: HashMap<(u64, SchemaId), Region>,
    boot: Option<[u8; 16]>,
    reading: u64,
}

impl std::fmt::Debug for Derived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Derived").field("regions", &self.regions.len()).finish_non_exhaustive()
    }
}

impl Derived {
    /// Begins a reading of the host in its boot `boot`.
    pub fn begin(&mut self, boot: Option<[u8; 16]>) {
        self.reading += 1;
        if self.boot != boot {
            // Everything counts from 0 again.
            self.regions.clear();
            self.boot = boot;
        }
        let reading = self.reading;
        self.regions.retain(|_, region| reading - region.seen <= PATIENCE_READINGS);
    }

    /// Takes what was read of a region: gives what stays as it is, then the sums that are whole.
    pub fn read<'a>(
        &mut self,
        entry: &RegionEntry,
        schema: &Schema,
        samples: &[Sample<'a>],
        mut give: impl FnMut(Given<'a, '_>),
    ) {
        let sums = self.region(entry, schema);
        for samples in samples.chunk_by(is_same) {
            let group = group_number(schema, samples[0].group);
            match sums.take(group as usize, samples) {
                Fate::Shown => give(Given::Values { group, samples }),
                Fate::Replaced => {}
                Fate::Partly => match &*sums.kept(group as usize, samples) {
                    [] => {}
                    samples => give(Given::Values { group, samples }),
                },
            }
        }
        sums.finish(|sum| give(Given::Sum(sum)));
    }

    /// The sums of a region. A region that was made anew goes on from where the last one of its name was.
    pub fn region(&mut self, entry: &RegionEntry, schema: &Schema) -> &mut Region {
        let key = (entry.identity.word(), entry.schema);
        if !self.regions.contains_key(&key) {
            let mut made = Region::new(entry, schema);
            // A program's region has no sums, and takes none over, whatever it is called.
            let is_agents = |region: u64| Identity::from_word(region).is_some_and(Identity::is_agents);
            let is_before = |key: &(u64, SchemaId), old: &Region| {
                is_agents(key.0) && old.name == entry.name && old.seen < self.reading
            };
            let mut regions = self.regions.iter().filter(|_| entry.identity.is_agents());
            let before = regions.find(|(key, old)| is_before(key, old));
            if let Some((old, _)) = before.map(|(key, old)| (*key, old)) {
                for (new, old) in
                    made.sets.iter_mut().zip(self.regions.remove(&old).into_iter().flat_map(|old| old.sets))
                {
                    new.go_on_from(old);
                }
            }
            self.regions.insert(key, made);
        }
        let region = self.regions.get_mut(&key).expect("just put in");
        region.seen = self.reading;
        region
    }
}
