// SPDX-License-Identifier: Apache-2.0
//! What a host's values say together: the sums of its schemas (docs/format/schema.md, Sums).
//!
//! A block holds a few elements of an array and never their sum, so sums are made here, where all blocks are. Which fields go into which sum is worked out once
//! for a region and its schema; a reading then costs an addition a value, no text and no allocation. What a sum *replaces* is not shown beside it, or `sum()`
//! over the metric would count twice; the other sums have names of their own.
//!
//! Invariants: a sum has all elements of its schema, of one row generation, or there is none in that reading; it is never made of blocks older than those
//! before; and a sum of counters falls only where all of it began again (`sums`).

mod field;
mod shape;
mod sums;

use std::sync::Arc;

use onlooker_region::columns::{Plan, RowRef, Sample, Value};
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::Kind;
use onlooker_region::{Checked, Identity, SchemaId};

use crate::PATIENCE_READINGS;
use crate::in_order::InOrder;
use crate::series::group_number;
pub use field::sum_of;
pub use shape::Fate;
use shape::Shape;
use sums::Sums;
pub use sums::{Sum, Summed};

/// What a reading of a region gives.
pub enum Given<'a, 'r> {
    /// Values of a group, or of one row of it, that no sum replaces; never none.
    Values {
        /// Number of the group in the schema.
        group: u32,
        /// In the order of its fields.
        samples: &'r [Sample<'a>],
        /// How many there are where no block is missing.
        series: usize,
    },
    /// Sums, whole.
    Sum(Sum<'r>),
}

/// What a reading of a region gives whose names are known already: the same as [`Given`], in words.
pub enum Words<'r> {
    /// Those of [`Given::Values`].
    Values {
        /// Number of the group in the schema.
        group: u32,
        /// Number and generation of the table row.
        row: Option<(u32, u32)>,
        /// As [`fill`](crate::series::fill) has them.
        words: &'r [u64],
        /// Number of samples that they are of.
        series: usize,
        /// What tells its texts from others ([`texts_mark`]).
        texts: u64,
        /// When the first of them was acquired, CLOCK_BOOTTIME ns.
        time_ns: Option<u64>,
    },
    /// Sums, whole.
    Sum(Sum<'r>),
}

/// Memory that reading by words uses again, for all hosts.
#[derive(Debug, Default)]
pub struct Room {
    columns: Vec<u64>,
    kept: Vec<u64>,
}

/// Number and generation of a sample's table row.
#[must_use]
pub fn row_of(sample: &Sample<'_>) -> Option<(u32, u32)> {
    sample.row.as_ref().map(row_number)
}

fn row_number(row: &RowRef<'_>) -> (u32, u32) {
    (u32::try_from(row.number).unwrap_or(u32::MAX), row.generation)
}

/// What tells texts from others: 0 where there are none.
#[must_use]
pub fn texts_mark(samples: &[Sample<'_>]) -> u64 {
    let text = |sample: &Sample<'_>| match &sample.value {
        Value::Text(text) => Some(text_mark(text.as_bytes())),
        _ => None,
    };
    samples.iter().filter_map(text).fold(0, joined)
}

/// What tells the names of samples from others, elements too.
#[must_use]
pub fn names_mark(samples: &[Sample<'_>]) -> u64 {
    let name = |marks: u64, sample: &Sample<'_>| {
        let labels = sample.labels().into_iter().flat_map(|(name, value)| [name, value]);
        labels
            .map(|text| text_mark(text.as_bytes()))
            .fold(joined(marks, text_mark(sample.field.name.as_bytes())), joined)
    };
    samples.iter().fold(0, name)
}

/// The same of one, whose bytes may be no UTF-8 (FNV-1a).
fn text_mark(bytes: &[u8]) -> u64 {
    let step = |mark: u64, byte: u8| (mark ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    String::from_utf8_lossy(bytes).bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn joined(marks: u64, mark: u64) -> u64 {
    (marks.rotate_left(5) ^ mark).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Whether two samples of a region are of one group, and of one row of it.
#[must_use]
pub fn is_same(a: &Sample<'_>, b: &Sample<'_>) -> bool {
    std::ptr::eq(a.group, b.group) && row_of(a) == row_of(b)
}

/// The sums of one region.
pub struct Region {
    name: String,
    shape: Arc<Shape>,
    sets: Vec<Sums>,
    seen: u64,
}

impl Region {
    fn new(entry: &RegionEntry, plan: &Plan) -> Self {
        let shape = Shape::of(plan, entry.identity.is_agents());
        let sets = shape.sets.iter().map(|_| Sums::new()).collect();
        Self { name: entry.name.clone(), shape, sets, seen: 0 }
    }

    /// Takes the samples of a group, or of one row of it; says what else is to become of them.
    pub fn take(&mut self, group: usize, samples: &[Sample<'_>]) -> Fate {
        if let Some(set) = self.shape.feeds.get(group).copied().flatten() {
            self.sets[set].take(&self.shape.sets[set], group, samples);
        }
        self.shape.fates.get(group).copied().unwrap_or(Fate::Shown)
    }

    /// Those of a group's samples, or of one row's, that their sums do not replace.
    #[must_use]
    pub fn kept<'a>(&self, group: usize, samples: &[Sample<'a>]) -> Vec<Sample<'a>> {
        let replaced = self.shape.replaced.get(group).map_or(&[][..], Vec::as_slice);
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
        for (set, (sums, parts)) in (0..).zip(self.sets.iter_mut().zip(&self.shape.sets)) {
            sums.finish(parts, set, &mut give);
        }
    }

    /// Takes all groups of a region by their columns. Returns the number of values.
    fn take_words(
        &mut self,
        plan: &Plan,
        checked: Checked<'_, '_>,
        room: &mut Room,
        give: &mut impl FnMut(Words<'_>),
    ) -> usize {
        let (shape, sets) = (&*self.shape, &mut self.sets);
        let Room { columns: all, kept: room } = room;
        let mut values = 0;
        for (at, group) in plan.compiled().groups().iter().enumerate() {
            let (number, kept) = (u32::try_from(at).unwrap_or(u32::MAX), &shape.kept[at]);
            let mut take = |row: Option<RowRef<'_>>, columns: &[u64], time_ns: &dyn Fn(usize) -> Option<u64>| {
                values += kept.values;
                if let Some(set) = shape.feeds[at] {
                    sets[set].add(&shape.sets[set], at, row, columns, time_ns);
                }
                if kept.series > 0 {
                    let row = row.as_ref().map(row_number);
                    let texts = kept.texts.iter().map(|text| columns[*text]).fold(0, joined);
                    let (words, time_ns) = (kept.words(columns, room), time_ns(kept.block));
                    give(Words::Values { group: number, row, words, series: kept.series, texts, time_ns });
                }
            };
            if group.kind() == Kind::Table {
                checked.rows(at, text_mark, |row, columns, time_ns| take(Some(row), columns, &|_| Some(time_ns)));
                continue;
            }
            if all.len() < group.width() {
                all.resize(group.width(), 0);
            }
            let columns = &mut all[..group.width()];
            if checked.copy_group(at, columns, text_mark).is_some() {
                take(None, columns, &|block| checked.time_ns(at, block));
            }
        }
        values
    }
}

/// The sums of one host.
#[derive(Default)]
pub struct Derived {
    regions: InOrder<(u64, SchemaId), Region>,
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
            self.regions = InOrder::default();
            self.boot = boot;
        }
        let reading = self.reading;
        self.regions.retain(|_, region| reading - region.seen <= PATIENCE_READINGS);
    }

    /// Takes what was read of a region: gives what stays as it is, then the sums that are whole.
    pub fn read<'a>(
        &mut self,
        entry: &RegionEntry,
        plan: &Plan,
        samples: &[Sample<'a>],
        mut give: impl FnMut(Given<'a, '_>),
    ) {
        let (sums, schema) = (self.region(entry, plan), plan.schema());
        for samples in samples.chunk_by(is_same) {
            let group = group_number(schema, samples[0].group);
            let fate = sums.take(group as usize, samples);
            let series = sums.shape.kept.get(group as usize).map_or(0, |kept| kept.series);
            match fate {
                Fate::Shown => give(Given::Values { group, samples, series }),
                Fate::Replaced => {}
                Fate::Partly => match &*sums.kept(group as usize, samples) {
                    [] => {}
                    samples => give(Given::Values { group, samples, series }),
                },
            }
        }
        sums.finish(|sum| give(Given::Sum(sum)));
    }

    /// As [`Derived::read`], of a region whose blocks were all accepted, by words: nothing is allocated. Returns the
    /// number of values that were decoded.
    pub fn read_words(
        &mut self,
        entry: &RegionEntry,
        plan: &Plan,
        checked: Checked<'_, '_>,
        room: &mut Room,
        mut give: impl FnMut(Words<'_>),
    ) -> usize {
        let sums = self.region(entry, plan);
        let values = sums.take_words(plan, checked, room, &mut give);
        sums.finish(|sum| give(Words::Sum(sum)));
        values
    }

    /// The sums of a region. A region that was made anew goes on from where the last one of its name was.
    pub fn region(&mut self, entry: &RegionEntry, plan: &Plan) -> &mut Region {
        let key = (entry.identity.word(), entry.schema);
        let at = match self.regions.find(&key) {
            Some(at) => at,
            None => {
                let made = self.made(entry, plan);
                self.regions.insert(key, made)
            }
        };
        let region = self.regions.at_mut(at);
        region.seen = self.reading;
        region
    }

    fn made(&mut self, entry: &RegionEntry, plan: &Plan) -> Region {
        let mut made = Region::new(entry, plan);
        // A program's region has no sums, and takes none over, whatever it is called.
        let is_agents = |region: u64| Identity::from_word(region).is_some_and(Identity::is_agents);
        let is_before = |(key, old): &(&(u64, SchemaId), &Region)| {
            is_agents(key.0) && old.name == entry.name && old.seen < self.reading
        };
        let regions = || self.regions.iter().find(is_before).map(|(key, _)| *key);
        let before = entry.identity.is_agents().then(regions).flatten();
        if let Some(old) = before.and_then(|before| self.regions.remove(&before)) {
            let parts = made.shape.sets.iter().zip(&old.shape.sets);
            for ((new, old), (parts, olds)) in made.sets.iter_mut().zip(old.sets).zip(parts) {
                new.go_on_from(parts, old, olds);
            }
        }
        made
    }
}
