// SPDX-License-Identifier: Apache-2.0
//! The columns of a rollup, one after the other.

use std::ops::Range;

use onlooker_series::rate::Growth;

use super::sample::{OfPart, Sample, Sampled};
use super::{Fold, Plan, RATE_BITS, Step};
use crate::chunk::{Joined, NAN, Source, Values, increase, is_nan, rank, unrank};
use crate::damage::Damage;
use crate::types::Kind;

/// Some rows of a rollup as a source of columns.
pub(super) struct Folding<'a, 'b> {
    plan: &'a Plan,
    sampled: &'a Sampled,
    joined: &'a mut Joined<'b>,
    rows: Range<usize>,
    /// Times of the chunks' rows.
    times_ns: Vec<u64>,
    out: Vec<u64>,
}

impl<'a, 'b> Folding<'a, 'b> {
    pub(super) fn new(
        plan: &'a Plan,
        sampled: &'a Sampled,
        joined: &'a mut Joined<'b>,
        rows: Range<usize>,
    ) -> Result<Self, Damage> {
        let times_ns = joined.times()?.to_vec();
        Ok(Self { plan, sampled, joined, rows, times_ns, out: Vec::new() })
    }
}

impl Source for Folding<'_, '_> {
    fn column(&mut self, number: usize) -> Result<Values<'_>, Damage> {
        let step = self.plan.steps[number];
        if let Some(value) = step.from.map(|from| self.joined.constant(from)).transpose()?.flatten() {
            if let Some(value) = step.fold.of_constant(value) {
                return Ok(Values::Constant(value));
            }
            if matches!(step.fold, Fold::Rate { .. }) {
                // What it takes to know that is the same for all such columns of a part, and little.
                let has_step = |samples: &[Sample]| samples.iter().any(|sample| sample.rate > 0.0);
                let rate = |samples: &[Sample]| if has_step(samples) { 0 } else { NAN };
                step.fill(self.sampled, self.rows.clone(), &[], &mut self.out, rate);
                return Ok(Values::Each(&self.out));
            }
        }
        let values = match step.from {
            Some(from) => self.joined.values(from)?,
            None => &self.times_ns,
        };
        step.fill(self.sampled, self.rows.clone(), values, &mut self.out, |samples| step.fold.of(samples, values));
        Ok(Values::Each(&self.out))
    }
}

impl Step {
    fn fill(
        &self,
        sampled: &Sampled,
        rows: Range<usize>,
        values: &[u64],
        out: &mut Vec<u64>,
        of: impl Fn(&[Sample]) -> u64,
    ) {
        let OfPart { samples, groups } = &sampled.parts[self.part];
        let fold = |at: usize| of(&samples[groups[at].samples.clone()]);
        let mut at = groups.partition_point(|group| group.row < rows.start);
        let (mut line, mut word) = (usize::MAX, 0);
        out.clear();
        for row in rows {
            let of_row = sampled.rows[row].0;
            if groups.get(at).is_some_and(|group| group.row == row) {
                word = fold(at);
                at += 1;
            } else if !self.fold.is_kept() {
                word = 0;
            } else if line != of_row {
                // The row before is in another chunk, or there is none.
                let before = at.checked_sub(1).filter(|before| groups[*before].line == of_row);
                word = before.map_or(values[sampled.firsts[of_row]], fold);
            }
            line = of_row;
            out.push(word);
        }
    }
}

impl Fold {
    /// Whether a part that is not new has the word of the row before.
    fn is_kept(self) -> bool {
        matches!(self, Self::Last | Self::Least(_) | Self::Largest(_) | Self::Before | Self::First)
    }

    /// The word of all rows if all values are the same, and the rows do not matter.
    fn of_constant(self, value: u64) -> Option<u64> {
        match self {
            Self::Last | Self::Before | Self::First => Some(value),
            Self::Least(kind) | Self::Largest(kind) => (kind != Kind::Float || !is_nan(value)).then_some(value),
            Self::Increase | Self::FloatIncrease => Some(0),
            Self::Add | Self::Sum(_) => (value == 0).then_some(0),
            Self::Rate { .. } | Self::Number => None,
        }
    }

    fn of(self, samples: &[Sample], values: &[u64]) -> u64 {
        let mut each = samples.iter().map(|sample| values[sample.row]);
        let add = |sum: u64, number: u64| sum.wrapping_add(number);
        match self {
            Self::Last => each.next_back().unwrap_or(0),
            Self::Least(kind) => extreme(kind, each, |best, rank| rank < best),
            Self::Largest(kind) => extreme(kind, each, |best, rank| rank > best),
            Self::Sum(kind) => {
                let sum = each.fold(0.0, |sum, word| sum + float(kind, word));
                if sum.is_nan() { NAN } else { sum.to_bits() }
            }
            Self::Add => each.fold(0, add),
            Self::FloatIncrease => {
                let steps = samples.iter().filter_map(|sample| Some((values[sample.before?], values[sample.row])));
                steps.map(|(before, value)| float_increase(before, value)).fold(0.0, |sum, step| sum + step).to_bits()
            }
            Self::Before => samples.first().map_or(0, |sample| values[sample.before.unwrap_or(sample.row)]),
            Self::First => each.next().unwrap_or(0),
            Self::Number => samples.len() as u64,
            Self::Increase => {
                let steps = samples.iter().filter_map(|sample| Some((values[sample.before?], values[sample.row])));
                steps.map(|(before, value)| increase(before, value)).fold(0, add)
            }
            Self::Rate { of: Kind::Float, is_greatest } => {
                // Whatever a float counter that is below zero does, its rate is not.
                let step =
                    |before, value| Some(float_increase(before, value)).filter(|step| *step > 0.0).unwrap_or(0.0);
                extreme_rate(samples, values, is_greatest, step)
            }
            Self::Rate { is_greatest, .. } => {
                extreme_rate(samples, values, is_greatest, |before, value| increase(before, value) as f64)
            }
        }
    }
}

/// The least or the greatest rate of those that are known, by what a counter went up by in a step.
fn extreme_rate(samples: &[Sample], values: &[u64], is_greatest: bool, step: impl Fn(u64, u64) -> f64) -> u64 {
    let known = samples.iter().filter(|sample| sample.rate > 0.0);
    let rates = known.filter_map(|sample| Some(step(values[sample.before?], values[sample.row]) * sample.rate));
    let rate = rates.reduce(if is_greatest { f64::max } else { f64::min });
    rate.map_or(NAN, |rate| with_few_bits(rate, is_greatest))
}

/// The next number with few bits, of one that is at least 0.
fn with_few_bits(rate: f64, is_up: bool) -> u64 {
    let others = (1 << (f64::MANTISSA_DIGITS - 1 - RATE_BITS)) - 1;
    (if is_up { rate.to_bits() + others } else { rate.to_bits() }) & !others
}

fn extreme(kind: Kind, words: impl Iterator<Item = u64>, is_better: impl Fn(u64, u64) -> bool) -> u64 {
    let numbers = words.filter(|word| kind != Kind::Float || !is_nan(*word)).map(|word| rank(kind, word));
    let best = numbers.reduce(|best, rank| if is_better(best, rank) { rank } else { best });
    best.map_or(NAN, |rank| unrank(kind, rank))
}

/// What a float counter has gone up by from one value to the next.
pub(super) fn float_increase(before: u64, value: u64) -> f64 {
    let step = Growth::of(f64::from_bits(before), f64::from_bits(value)).increase;
    if step.is_finite() { step } else { 0.0 }
}

fn float(kind: Kind, word: u64) -> f64 {
    match kind {
        Kind::Integer { signed: true } => word.cast_signed() as f64,
        Kind::Integer { signed: false } | Kind::Counter => word as f64,
        Kind::Float => f64::from_bits(word),
    }
}
