// SPDX-License-Identifier: Apache-2.0
//! Sums over the elements of groups that share some: one set of sums, or one for each row of a table.
//!
//! Counters: a part that falls has begun again, as a CPU's may that went and came back, or is missing after a new installation on fewer CPUs. What it had
//! counted stays in the sum, unless all parts have begun anew: then the thing itself has (a device of the same name), and its sum does so, too.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use onlooker_region::columns::{Plan, RowRef, Sample, Value};
use onlooker_region::schema::{Acquisition, Group, Metric, Type};

use super::field::{block_of, sum_in};
use crate::PATIENCE_READINGS;
use crate::in_order::InOrder;
use crate::series::{Form, Series};

/// A metric that is summed up.
#[derive(Clone, Debug)]
pub struct Summed {
    /// Name of the sum.
    pub name: String,
    /// Its help.
    pub help: String,
    /// Counter or gauge.
    pub metric: Metric,
    /// An element that goes hands its part to another: what falls there is not lost.
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

    /// Its series, whose word is at `at` in the row.
    #[must_use]
    pub fn series(&self, at: usize) -> Series {
        Series {
            name: self.name.as_str().into(),
            labels: self.labels.clone().into_iter().collect::<Vec<_>>().into(),
            metric: self.metric,
            unit: self.unit.as_str().into(),
            help: self.help.as_str().into(),
            scale: self.scale,
            resolution_ns: self.resolution_ns,
            acquisition: self.acquisition,
            form: if self.signed { Form::Signed } else { Form::Unsigned },
            at,
        }
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

/// Row number of what is no table.
const NO_ROW: u32 = u32::MAX;

/// What a set of sums is made of: the same for all regions of a schema.
pub(super) struct Parts {
    /// By group and field: where its elements begin among a row's parts.
    firsts: Vec<Vec<Option<usize>>>,
    /// By group: the same for columns.
    copies: Vec<Vec<Copies>>,
    /// By group: its blocks that have parts, each with its place among a row's times.
    times: Vec<Vec<Time>>,
    /// Of each part: the place of its time.
    time_of: Vec<usize>,
    metrics: Vec<Summed>,
    /// Which element each part is, as a number in `names`.
    elements: Vec<u32>,
    /// Label values of elements.
    names: Vec<String>,
    /// Where each metric's parts begin; then their number.
    begins: Vec<usize>,
}

/// Columns of a group that are parts.
struct Copies {
    columns: Range<usize>,
    /// The first one's.
    part: usize,
}

/// The time of a block, which is that of all parts in it.
struct Time {
    /// Its number in the group.
    block: usize,
    at: usize,
}

/// A set of sums of one region.
pub(super) struct Sums {
    rows: InOrder<u32, Row>,
    reading: u64,
}

/// One set of sums and what it is made of.
struct Row {
    generation: u32,
    spoilt: bool,
    /// Whether there were sums before, and whether the times of their blocks are known.
    has_last: bool,
    has_times: bool,
    /// Which half of its memory is that of the reading under way.
    is_odd: bool,
    filled: usize,
    began: u64,
    /// As [`Memory`] has it: all in one piece, since nothing of it is in a cache when a host's next reading comes.
    memory: Box<[u64]>,
    labels: Vec<(String, String)>,
}

/// The memory of a row; parts stand metric by metric.
struct Memory<'a> {
    /// Parts of the reading under way.
    next: &'a mut [u64],
    /// Of the last sums.
    last: &'a mut [u64],
    /// Times of the blocks of the reading under way.
    next_times: &'a mut [u64],
    times: &'a mut [u64],
    /// What parts had counted that began anew.
    base: &'a mut [u64],
    /// The sums.
    words: &'a mut [u64],
}

impl Parts {
    /// Of groups of the agent's regions.
    pub(super) fn new(plan: &Plan, groups: &[usize]) -> Self {
        let schema = plan.schema();
        let mut metrics: Vec<Summed> = Vec::new();
        let mut known = HashMap::new();
        let mut firsts: Vec<Vec<Option<usize>>> = schema.groups.iter().map(|_| Vec::new()).collect();
        // Each metric's fields: group, number in it.
        let mut fields: Vec<Vec<(usize, usize)>> = Vec::new();
        for number in groups {
            let group = &schema.groups[*number];
            firsts[*number] = vec![None; group.fields.len()];
            for (at, field) in group.fields.iter().enumerate() {
                let Some(sum) = sum_in(true, field).filter(|_| field.array.is_some()) else { continue };
                let (name, labels) = (field.sum_name(sum), field.sum_labels(sum));
                let metric = *known.entry((name, labels)).or_insert(metrics.len());
                if metric == metrics.len() {
                    fields.push(Vec::new());
                    metrics.push(Summed {
                        name: name.to_owned(),
                        help: field.sum_help(sum).to_owned(),
                        metric: field.metric,
                        is_handed_over: sum.handed_over,
                        signed: field.kind == Type::I64,
                        unit: field.unit.clone(),
                        scale: field.scale,
                        resolution_ns: field.resolution_ns,
                        acquisition: group.acquisition,
                        labels: labels.clone(),
                    });
                }
                fields[metric].push((*number, at));
            }
        }
        let (mut elements, mut begins) = (Vec::new(), vec![0]);
        let mut numbers: HashMap<String, u32> = HashMap::new();
        for fields in fields {
            for (group, at) in fields {
                firsts[group][at] = Some(elements.len());
                let array = schema.groups[group].fields[at].array.iter();
                for value in array.flat_map(|array| (0..array.count).map(|element| array.value(element))) {
                    let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
                    elements.push(*numbers.entry(value).or_insert(next));
                }
            }
            begins.push(elements.len());
        }
        let mut names: Vec<(u32, String)> = numbers.into_iter().map(|(name, number)| (number, name)).collect();
        names.sort_unstable();
        let names = names.into_iter().map(|(_, name)| name).collect();
        let mut time_of = vec![0; elements.len()];
        let (mut copies, mut times, mut count) = (Vec::new(), Vec::new(), 0);
        for (group, firsts) in firsts.iter().enumerate() {
            copies.push(places(plan, group, firsts));
            let blocks = blocks(&schema.groups[group], firsts, count, &mut time_of);
            count += blocks.len();
            times.push(blocks);
        }
        Self { firsts, copies, times, time_of, metrics, elements, names, begins }
    }

    fn len(&self) -> usize {
        self.elements.len()
    }

    fn times(&self) -> usize {
        self.times.iter().map(Vec::len).sum()
    }

    fn memory_words(&self) -> usize {
        2 * (self.len() + self.times() + self.metrics.len())
    }
}

/// Where the parts of a group stand: `firsts` has those of its fields.
fn places(plan: &Plan, number: usize, firsts: &[Option<usize>]) -> Vec<Copies> {
    let (compiled, mut copies) = (&plan.compiled().groups()[number], Vec::<Copies>::new());
    for (at, first) in firsts.iter().enumerate() {
        let Some(first) = first else { continue };
        let (columns, part) = (compiled.columns(at), *first);
        match copies.last_mut() {
            Some(last) if last.columns.end == columns.start && last.part + last.columns.len() == part => {
                last.columns.end = columns.end;
            }
            _ => copies.push(Copies { columns, part }),
        }
    }
    copies
}

/// The blocks of a group that have parts; their times stand behind `count` others. Says for each part which it is.
fn blocks(group: &Group, firsts: &[Option<usize>], count: usize, time_of: &mut [usize]) -> Vec<Time> {
    let mut times = Vec::<Time>::new();
    for (field, first) in group.fields.iter().zip(firsts) {
        let Some(first) = first else { continue };
        for element in 0..field.elements() {
            let block = block_of(group, field, element);
            let known = times.iter().find(|time| time.block == block).map(|time| time.at);
            let at = known.unwrap_or(count + times.len());
            if known.is_none() {
                times.push(Time { block, at });
            }
            time_of[first + element as usize] = at;
        }
    }
    times
}

impl Sums {
    pub(super) fn new() -> Self {
        Self { rows: InOrder::default(), reading: 1 }
    }

    pub(super) fn take(&mut self, parts: &Parts, group: usize, samples: &[Sample<'_>]) {
        let Some(first) = samples.first() else { return };
        let Some(row) = self.row(parts, first.row.as_ref()) else { return };
        let firsts = &parts.firsts[group];
        let memory = row.memory(parts);
        let mut filled = 0;
        // Samples come field by field, in the order of the schema.
        let mut at = 0;
        for sample in samples {
            while sample.group.fields.get(at).is_some_and(|field| !std::ptr::eq(field, sample.field)) {
                at += 1;
            }
            let Some(Some(first)) = firsts.get(at) else { continue };
            let word = match &sample.value {
                Value::U64(value) => *value,
                Value::I64(value) => value.cast_unsigned(),
                _ => continue,
            };
            let place = first + sample.element as usize;
            memory.next[place] = word;
            filled += 1;
            memory.next_times[parts.time_of[place]] = sample.time_ns.unwrap_or(0);
        }
        row.filled += filled;
    }

    /// As [`Sums::take`], by the columns of a group or of one of its rows. `time_ns` is that of a block of the group.
    pub(super) fn add(
        &mut self,
        parts: &Parts,
        group: usize,
        row: Option<RowRef<'_>>,
        columns: &[u64],
        time_ns: impl Fn(usize) -> Option<u64>,
    ) {
        let Some(row) = self.row(parts, row.as_ref()) else { return };
        let memory = row.memory(parts);
        let mut filled = 0;
        for Copies { columns: from, part } in &parts.copies[group] {
            memory.next[*part..][..from.len()].copy_from_slice(&columns[from.clone()]);
            filled += from.len();
        }
        for time in &parts.times[group] {
            memory.next_times[time.at] = time_ns(time.block).unwrap_or(0);
        }
        row.filled += filled;
    }

    /// The row of this reading that values belong to.
    fn row(&mut self, parts: &Parts, of: Option<&RowRef<'_>>) -> Option<&mut Row> {
        let (number, generation) = match of {
            Some(row) => (u32::try_from(row.number).unwrap_or(NO_ROW - 1), row.generation),
            None => (NO_ROW, 0),
        };
        let known = self.rows.find(&number).filter(|at| self.rows.at_mut(*at).generation == generation);
        let at = match known {
            Some(at) => at,
            None => self.enter(parts, number, generation, of)?,
        };
        let (row, reading) = (self.rows.at_mut(at), self.reading);
        if row.began != reading {
            (row.began, row.filled, row.spoilt) = (reading, 0, false);
        }
        Some(row)
    }

    /// Makes room for a row of a generation that was not seen yet, and says where it is. `None` where this reading has
    /// met another one under its number: what was taken of it is void.
    fn enter(&mut self, parts: &Parts, number: u32, generation: u32, of: Option<&RowRef<'_>>) -> Option<usize> {
        if let Some(row) = self.rows.get_mut(&number)
            && row.began == self.reading
        {
            row.spoilt = true;
            return None;
        }
        let labels: Vec<(String, String)> = of.into_iter().flat_map(RowRef::labels).collect();
        // The same thing, made anew or in another place, goes on.
        let before = self.rows.iter().find(|(_, row)| row.labels == labels && row.began < self.reading);
        let before = before.map(|(number, _)| *number).and_then(|number| self.rows.remove(&number));
        // Where another thing had this number.
        self.rows.remove(&number);
        let row = match before {
            Some(before) => Row { generation, has_times: false, ..before },
            None => Row::new(parts, generation, labels),
        };
        Some(self.rows.insert(number, row))
    }

    pub(super) fn finish(&mut self, parts: &Parts, set: u32, give: &mut impl FnMut(Sum<'_>)) {
        let reading = self.reading;
        for (number, row) in self.rows.iter_mut() {
            if row.began != reading || row.spoilt || row.filled != parts.len() {
                continue;
            }
            let (has_last, has_times) = (row.has_last, row.has_times);
            let memory = row.memory(parts);
            // A copy from before: what it lacks would be taken for a fall.
            if has_times && memory.next_times.iter().zip(&*memory.times).any(|(next_ns, last_ns)| next_ns < last_ns) {
                continue;
            }
            for (at, metric) in parts.metrics.iter().enumerate() {
                let mine = parts.begins[at]..parts.begins[at + 1];
                let next = &memory.next[mine.clone()];
                if metric.is_kept() && has_last {
                    memory.base[at] = carried(memory.base[at], &memory.last[mine], next);
                }
                memory.words[at] = next.iter().fold(memory.base[at], |sum, part| sum.wrapping_add(*part));
            }
            let time_ns = memory.next_times.iter().copied().min();
            // What was last is overwritten in the next reading.
            (row.has_last, row.has_times, row.is_odd) = (true, true, !row.is_odd);
            give(Sum {
                set,
                row: (*number != NO_ROW).then_some((*number, row.generation)),
                row_labels: &row.labels,
                metrics: &parts.metrics,
                words: &row.memory[row.memory.len() - parts.metrics.len()..],
                time_ns,
            });
        }
        self.rows.retain(|_, row| reading - row.began <= PATIENCE_READINGS);
        self.reading += 1;
    }

    /// Takes over what sums of the same name were, made of other CPUs perhaps. Those that are missing now have counted what they have.
    pub(super) fn go_on_from(&mut self, parts: &Parts, old: Sums, olds: &Parts) {
        let names = |parts: &Parts| parts.metrics.iter().map(|metric| metric.name.clone()).collect::<Vec<_>>();
        if names(parts) != names(olds) {
            return;
        }
        let numbers: HashMap<&String, u32> = parts.names.iter().zip(0..).collect();
        let number_of = |old_number: &u32| numbers.get(&olds.names[*old_number as usize]).copied();
        // Where each old part is now.
        let mut moved: Vec<Option<usize>> = Vec::with_capacity(olds.elements.len());
        for at in 0..parts.metrics.len() {
            let mine = parts.begins[at]..parts.begins[at + 1];
            let places: HashMap<u32, usize> = parts.elements[mine.clone()].iter().copied().zip(mine).collect();
            let theirs = &olds.elements[olds.begins[at]..olds.begins[at + 1]];
            moved.extend(theirs.iter().map(|number| places.get(&number_of(number)?).copied()));
        }
        for (number, mut before) in old.rows.into_entries().filter(|(_, row)| row.has_last) {
            let mut row = Row::new(parts, before.generation, std::mem::take(&mut before.labels));
            row.has_last = true;
            let (now, before) = (row.memory(parts), before.memory(olds));
            now.base.copy_from_slice(before.base);
            for (at, metric) in parts.metrics.iter().enumerate() {
                let theirs = olds.begins[at]..olds.begins[at + 1];
                for (place, count) in moved[theirs.clone()].iter().zip(&before.last[theirs]) {
                    match place {
                        Some(place) => now.last[*place] = *count,
                        None if metric.is_kept() => now.base[at] = now.base[at].wrapping_add(*count),
                        None => {}
                    }
                }
            }
            self.rows.insert(number, row);
        }
    }
}

impl Row {
    fn new(parts: &Parts, generation: u32, labels: Vec<(String, String)>) -> Self {
        Self {
            generation,
            spoilt: false,
            has_last: false,
            has_times: false,
            is_odd: false,
            filled: 0,
            began: 0,
            memory: vec![0; parts.memory_words()].into(),
            labels,
        }
    }

    fn memory(&mut self, parts: &Parts) -> Memory<'_> {
        let (even, rest) = self.memory.split_at_mut(parts.len());
        let (odd, rest) = rest.split_at_mut(parts.len());
        let times = parts.times();
        let (even_times, rest) = rest.split_at_mut(times);
        let (odd_times, rest) = rest.split_at_mut(times);
        let (base, words) = rest.split_at_mut(parts.metrics.len());
        if self.is_odd {
            Memory { next: odd, last: even, next_times: odd_times, times: even_times, base, words }
        } else {
            Memory { next: even, last: odd, next_times: even_times, times: odd_times, base, words }
        }
    }
}

/// What is to be added to the parts `next` of a counter whose parts were `last`.
fn carried(base: u64, last: &[u64], next: &[u64]) -> u64 {
    let fallen = || last.iter().zip(next).filter(|(last, next)| next < last);
    if fallen().next().is_none() {
        return base;
    }
    if fallen().count() == last.iter().filter(|last| **last > 0).count() {
        return 0;
    }
    fallen().fold(base, |sum, (last, _)| sum.wrapping_add(*last))
}
