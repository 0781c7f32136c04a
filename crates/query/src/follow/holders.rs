// SPDX-License-Identifier: Apache-2.0
//! Who has a series: one lane, or several that are merged by time and rank at the end of a slice.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use onlooker_series::rank::Rank;

use super::taker::Taker;
use super::thin::{is_end, thin};

/// A lane that has a series.
pub(super) struct Holder {
    /// All lanes of the series share it.
    pub(super) key: Arc<[u8]>,
    number: usize,
    lane: u64,
    rank: Rank,
}

/// A series, whoever has it.
#[derive(Clone, Copy, Default)]
struct One {
    lanes: u32,
    last_ns: u64,
    /// The lane that goes on, as long as it is alone.
    alone: Option<(u64, Rank)>,
}

/// A series that several tracks have.
struct Rivals<A> {
    key: Arc<[u8]>,
    about: A,
    going: Vec<(u64, Rank)>,
    samples: Vec<(u64, Rank, u64, f64)>,
}

/// All lanes of all series that go on.
pub(super) struct Holders<A> {
    names: HashMap<Arc<[u8]>, usize>,
    series: Vec<One>,
    free: Vec<usize>,
    lanes: u64,
    rivals: BTreeMap<usize, Rivals<A>>,
}

impl<A: Clone> Holders<A> {
    pub(super) fn new() -> Self {
        Self { names: HashMap::new(), series: Vec::new(), free: Vec::new(), lanes: 0, rivals: BTreeMap::new() }
    }

    /// Series that somebody has.
    pub(super) fn series(&self) -> usize {
        self.names.len()
    }

    /// A new lane of a series.
    pub(super) fn lane(&mut self, key: Arc<[u8]>, rank: Rank, about: &A) -> Holder {
        self.lanes += 1;
        if let Some((key, number)) = self.names.get_key_value(&key) {
            let (key, number) = (key.clone(), *number);
            let one = &mut self.series[number];
            one.lanes += 1;
            let going = one.alone.take().into_iter().collect();
            let rivals = || Rivals { key: key.clone(), about: about.clone(), going, samples: Vec::new() };
            self.rivals.entry(number).or_insert_with(rivals);
            return Holder { key, number, lane: self.lanes, rank };
        }
        let one = One { lanes: 1, ..One::default() };
        let number = match self.free.pop() {
            Some(number) => {
                self.series[number] = one;
                number
            }
            None => {
                self.series.push(one);
                self.series.len() - 1
            }
        };
        self.names.insert(key.clone(), number);
        Holder { key, number, lane: self.lanes, rank }
    }

    /// A lane is over.
    pub(super) fn leave(&mut self, holder: &Holder) {
        let one = &mut self.series[holder.number];
        one.lanes -= 1;
        // What rivals have in hand still goes, at the end of the slice.
        if one.lanes == 0 && !self.rivals.contains_key(&holder.number) {
            self.names.remove(&holder.key);
            self.free.push(holder.number);
        }
    }

    /// Notes whether a lane goes on, for rivals that may come.
    pub(super) fn remember(&mut self, holder: &Holder, goes_on: bool) {
        let one = &mut self.series[holder.number];
        if one.lanes == 1 {
            one.alone = goes_on.then_some((holder.lane, holder.rank));
        }
    }

    /// Keeps a lane's samples for the end of the slice, where it has rivals. `false`: it has none.
    pub(super) fn keep(&mut self, holder: &Holder, samples: impl Iterator<Item = (u64, f64)>) -> bool {
        let Some(rivals) = self.rivals.get_mut(&holder.number) else { return false };
        rivals.samples.extend(samples.map(|(time_ns, value)| (time_ns, holder.rank, holder.lane, value)));
        true
    }

    /// Of a series the time of the last sample that was handed on.
    pub(super) fn last_ns(&mut self, holder: &Holder) -> &mut u64 {
        &mut self.series[holder.number].last_ns
    }

    /// Hands on what several tracks have had, as `merge` shows it.
    pub(super) fn settle<T: Taker<About = A>>(&mut self, quantum_ns: u64, taker: &mut T) -> ControlFlow<()> {
        let mut over = Vec::new();
        for (number, Rivals { key, about, going, samples }) in &mut self.rivals {
            let one = &mut self.series[*number];
            samples.sort_by_key(|(time_ns, rank, lane, _)| (*time_ns, *rank, *lane));
            let mut shown: Vec<(u64, f64)> = Vec::new();
            for (time_ns, rank, lane, value) in samples.drain(..) {
                going.retain(|(own, _)| *own != lane);
                let is_shown = if is_end(value) {
                    going.is_empty()
                } else {
                    going.push((lane, rank));
                    going.iter().all(|(_, other)| *other >= rank)
                };
                let last_ns = shown.last().map_or(one.last_ns, |(last_ns, _)| *last_ns);
                if is_shown && time_ns > last_ns {
                    shown.push((time_ns, value));
                }
            }
            let mut before_ns = one.last_ns;
            thin(&mut shown, quantum_ns, &mut before_ns, is_end);
            if let Some((last_ns, _)) = shown.last() {
                one.last_ns = *last_ns;
                let mut samples = shown.iter().map(|(time_ns, value)| (time_ns.cast_signed(), *value));
                taker.take(key, about, &mut samples)?;
            }
            if one.lanes == 0 {
                over.push(*number);
            }
        }
        for number in over {
            if let Some(rivals) = self.rivals.remove(&number) {
                self.names.remove(&rivals.key);
                self.free.push(number);
            }
        }
        ControlFlow::Continue(())
    }
}
