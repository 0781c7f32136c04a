// SPDX-License-Identifier: Apache-2.0
//! Sums over the CPUs of groups that share their metrics: one set of sums, or one for each row of a table.
//!
//! Counters: a part that falls has begun anew, as a CPU's may that went and came back, or is missing after a new installation on fewer CPUs. What it had
//! counted stays in the sum, unless all parts have begun anew: then the thing itself has (a device of the same name), and its sum does so, too.

use std::collections::BTreeMap;

use onlooker_region::columns::{Sample, Value};
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::{Acquisition, Metric, Schema, Type};

use super::{HANDED_OVER, Rule, rule, summable};
use crate::fleet::PATIENCE_READINGS;

/// A metric that is summed up.
#[derive(Clone, Debug)]
pub struct Summed {
    /// Name of the sum.
    pub name: String,
    /// Its help.
    pub help: String,
    /// Counter or gauge.
    pub metric: Metric,
    /// A CPU that goes offline hands its part to another: what falls there is not lost.
    pub is_handed_over: bool,
    /// Whether its word is a signed number.
    pub signed: bool,
    /// Unit.
    pub unit: String,
    /// What it is to be multiplied with.
    pub scale: f64,
    /// How finely it moves, ns.
    pub resolution_ns: u64,
    /// How its parts get there.
    pub acquisition: Acquisition,
    /// Labels of all parts.
    pub labels: BTreeMap<String, String>,
}

impl Summed {
    /// The value that a word of its sum is.
    #[must_use]
    pub fn value(&self, word: u64) -> Value {
        if self.signed { Value::I64(word.cast_signed()) } else { Value::U64(word) }
    }

    /// Whether what a part had counted stays in the sum when it begins anew.
    fn is_kept(&self) -> bool {
        self.metric == Metric::Counter && !self.is_handed_over
    }
}

/// Sums of one reading, whole.
pub struct Sum<'a> {
    /// Number of the set within its region.
    pub set: u32,
    /// Row and generation, in tables.
    pub row: Option<(u32, u32)>,
    /// Labels of the row.
    pub row_labels: &'a [(String, String)],
    /// What each word is.
    pub metrics: &'a [Summed],
    /// The sums.
    pub words: &'a [u64],
    /// When the oldest part was acquired, the host's boot clock, ns.
    pub time_ns: Option<u64>,
}

/// Where a field's elements go: the sum, and each element's CPU.
struct Part {
    metric: usize,
    places: Vec<usize>,
}

/// Row number of what is no table.
const NO_ROW: u32 = u32::MAX;

pub(super) struct Sums {
    /// Parts by group and field.
    parts: Vec<Vec<Option<Part>>>,
    metrics: Vec<Summed>,
    cpus: Vec<String>,
    rows: BTreeMap<u32, Row>,
    reading: u64,
}

/// One set of sums and what it is made of; values stand metric by metric.
#[derive(Default)]
struct Row {
    generation: u32,
    labels: Vec<(String, String)>,
    /// Of the reading under way.
    next: Vec<u64>,
    next_times: Vec<u64>,
    filled: usize,
    spoilt: bool,
    began: u64,
    /// Of the last sums; empty before the first.
    last: Vec<u64>,
    times: Vec<u64>,
    /// What parts had counted that began anew.
    base: Vec<u64>,
    words: Vec<u64>,
}

impl Sums {
    pub(super) fn new(entry: &RegionEntry, schema: &Schema, groups: &[usize]) -> Self {
        let mut cpus: Vec<String> = Vec::new();
        let mut metrics: Vec<Summed> = Vec::new();
        let mut parts: Vec<Vec<Option<Part>>> = schema.groups.iter().map(|_| Vec::new()).collect();
        for number in groups {
            let group = &schema.groups[*number];
            for field in &group.fields {
                let part =
                    summable(entry, group, field).zip(rule(field)).map(|(array, Rule { name, help, labels, .. })| {
                        let metric = metrics.iter().position(|other| other.name == name && other.labels == labels);
                        let metric = metric.unwrap_or_else(|| {
                            metrics.push(Summed {
                                is_handed_over: name.starts_with(HANDED_OVER),
                                name,
                                help,
                                metric: field.metric,
                                signed: field.kind == Type::I64,
                                unit: field.unit.clone(),
                                scale: field.scale,
                                resolution_ns: field.resolution_ns,
                                acquisition: group.acquisition,
                                labels,
                            });
                            metrics.len() - 1
                        });
                        let place = |element| {
                            let cpu = array.value(element);
                            cpus.iter().position(|other| *other == cpu).unwrap_or_else(|| {
                                cpus.push(cpu);
                                cpus.len() - 1
                            })
                        };
                        Part { metric, places: (0..array.count).map(place).collect() }
                    });
                parts[*number].push(part);
            }
        }
        Self { parts, metrics, cpus, rows: BTreeMap::new(), reading: 1 }
    }

    pub(super) fn take(&mut self, group: usize, samples: &[Sample<'_>]) {
        let Some(first) = samples.first() else { return };
        let (number, generation) = match &first.row {
            Some(row) => (u32::try_from(row.number).unwrap_or(NO_ROW - 1), row.generation),
            None => (NO_ROW, 0),
        };
        let known = self.rows.get(&number).is_some_and(|row| row.generation == generation);
        if !known && !self.enter(number, generation, first) {
            return;
        }
        let (parts, width, reading) = (&self.parts[group], self.cpus.len(), self.reading);
        let Some(row) = self.rows.get_mut(&number) else { return };
        if row.began != reading {
            (row.began, row.filled, row.spoilt) = (reading, 0, false);
        }
        // Samples come field by field, in the order of the schema.
        let mut at = 0;
        for sample in samples {
            while sample.group.fields.get(at).is_some_and(|field| !std::ptr::eq(field, sample.field)) {
                at += 1;
            }
            let Some(Some(part)) = parts.get(at) else { continue };
            let word = match &sample.value {
                Value::U64(value) => *value,
                Value::I64(value) => value.cast_unsigned(),
                _ => continue,
            };
            let Some(place) = part.places.get(sample.element as usize) else { continue };
            let time_ns = sample.time_ns.unwrap_or(0);
            row.next[part.metric * width + place] = word;
            row.next_times[*place] = time_ns;
            row.filled += 1;
            // A copy from before: what it lacks would be taken for a fall.
            row.spoilt |= row.times.get(*place).is_some_and(|last_ns| time_ns < *last_ns);
        }
    }

    /// Makes room for a row of a generation that was not seen yet. False where this reading has met another one under its number: what was taken of it is void.
    fn enter(&mut self, number: u32, generation: u32, first: &Sample<'_>) -> bool {
        if let Some(row) = self.rows.get_mut(&number)
            && row.began == self.reading
        {
            row.spoilt = true;
            return false;
        }
        let mut labels = first.labels();
        let own = first.field.labels.len() + usize::from(first.field.array.is_some());
        labels.truncate(labels.len() - own.min(labels.len()));
        // The same thing, made anew or in another place, goes on.
        let before = self.rows.iter().find(|(_, row)| row.labels == labels && row.began < self.reading);
        let before = before.map(|(number, _)| *number).and_then(|number| self.rows.remove(&number)).unwrap_or_default();
        let (width, words) = (self.cpus.len(), self.metrics.len());
        let fresh = Row {
            generation,
            labels,
            next: vec![0; width * words],
            next_times: vec![0; width],
            words: vec![0; words],
            base: if before.base.is_empty() { vec![0; words] } else { before.base },
            last: before.last,
            ..Row::default()
        };
        self.rows.insert(number, fresh);
        true
    }

    pub(super) fn finish(&mut self, set: u32, give: &mut impl FnMut(Sum<'_>)) {
        let (width, reading) = (self.cpus.len(), self.reading);
        for (number, row) in &mut self.rows {
            if row.began != reading || row.spoilt || row.filled != width * self.metrics.len() {
                continue;
            }
            for (at, metric) in self.metrics.iter().enumerate() {
                let mine = at * width..(at + 1) * width;
                let next = &row.next[mine.clone()];
                let last = row.last.get(mine).unwrap_or(&[]);
                if metric.is_kept() {
                    row.base[at] = carried(row.base[at], last, next);
                }
                row.words[at] = next.iter().fold(row.base[at], |sum, part| sum.wrapping_add(*part));
            }
            row.last.clone_from(&row.next);
            row.times.clone_from(&row.next_times);
            give(Sum {
                set,
                row: (*number != NO_ROW).then_some((*number, row.generation)),
                row_labels: &row.labels,
                metrics: &self.metrics,
                words: &row.words,
                time_ns: row.times.iter().copied().min(),
            });
        }
        self.rows.retain(|_, row| reading - row.began <= PATIENCE_READINGS);
        self.reading += 1;
    }

    /// Takes over what sums of the same name were, made of other CPUs perhaps. Those that are missing now have counted what they have.
    pub(super) fn go_on_from(&mut self, old: Sums) {
        let names = |sums: &Self| sums.metrics.iter().map(|metric| metric.name.clone()).collect::<Vec<_>>();
        if names(self) != names(&old) {
            return;
        }
        let (width, words) = (self.cpus.len(), self.metrics.len());
        for (number, before) in old.rows.into_iter().filter(|(_, row)| !row.last.is_empty()) {
            let mut row =
                Row { generation: before.generation, labels: before.labels, base: before.base, ..Row::default() };
            row.last = vec![0; width * words];
            for (at, metric) in self.metrics.iter().enumerate() {
                for (cpu, count) in old.cpus.iter().zip(&before.last[at * old.cpus.len()..]) {
                    match self.cpus.iter().position(|other| other == cpu) {
                        Some(place) => row.last[at * width + place] = *count,
                        None if metric.is_kept() => row.base[at] = row.base[at].wrapping_add(*count),
                        None => {}
                    }
                }
            }
            (row.next, row.next_times, row.words) = (vec![0; width * words], vec![0; width], vec![0; words]);
            self.rows.insert(number, row);
        }
    }
}

/// What is to be added to the parts `next` of a counter whose parts were `last`.
fn carried(base: u64, last: &[u64], next: &[u64]) -> u64 {
    let fallen = || last.iter().zip(next).filter(|(last, next)| next < last);
    let counted = last.iter().filter(|last| **last > 0).count();
    match fallen().count() {
        0 => base,
        fell if fell == counted => 0,
        _ => fallen().fold(base, |sum, (last, _)| sum.wrapping_add(*last)),
    }
}
