// SPDX-License-Identifier: Apache-2.0
//! Sums and averages of native histograms, and what is to be told of them.

use std::sync::Arc;

use super::aggregate::Group;
use super::{Eval, Matrix};
use crate::error::QueryError;
use crate::expr::{Aggregate, Aggregation, Place};
use crate::histogram::{Combined, Hint, Histogram};
use crate::kahan::Kahan;
use crate::notes::Notes;
use crate::value::{Point, Series, is_hole};

/// Whom notes are about.
#[derive(Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) notes: &'a Notes,
    pub(super) metric: &'a str,
    pub(super) at: Place,
}

impl Told<'_> {
    /// Takes another histogram from one. `None`: their buckets have nothing in common.
    pub(super) fn subtract(&self, own: &mut Histogram, other: &Histogram) -> Option<()> {
        self.combine(own.add(other, -1.0), "subtraction")
    }

    /// Adds another histogram to one; as [`Told::subtract`].
    pub(super) fn add(&self, own: &mut Histogram, other: &Histogram) -> Option<()> {
        self.combine(own.add(other, 1.0), "addition")
    }

    fn combine(&self, combined: Option<Combined>, operation: &str) -> Option<()> {
        match combined {
            None => {
                self.notes.mixed_buckets(self.metric, self.at);
                return None;
            }
            Some(combined) if combined.is_reconciled => self.notes.reconciled(operation, self.at),
            Some(_) => {}
        }
        Some(())
    }
}

/// A sum or an average of histograms.
pub(super) struct Total {
    sums: Histogram<Kahan>,
    is_average: bool,
    count: f64,
    /// From when on a sum would be too large.
    is_mean: bool,
    hints: [bool; 2],
    is_reconciled: bool,
}

impl Total {
    pub(super) fn of(first: &Histogram, is_average: bool) -> Self {
        let sums = first.sums();
        let mut total = Self { sums, is_average, count: 1.0, is_mean: false, hints: [false; 2], is_reconciled: false };
        total.see(first.hint);
        total
    }

    fn see(&mut self, hint: Hint) {
        self.hints[0] |= hint == Hint::Reset;
        self.hints[1] |= hint == Hint::NotReset;
    }

    /// `None`: exponential buckets and such with bounds of their own cannot be added.
    pub(super) fn add(&mut self, other: &Histogram) -> Option<()> {
        self.see(other.hint);
        self.count += 1.0;
        if !self.is_average {
            self.is_reconciled |= self.sums.add(other, 1.0)?.is_reconciled;
            return Some(());
        }
        if !self.is_mean {
            let mut sums = self.sums.clone();
            self.is_reconciled |= sums.add(other, 1.0)?.is_reconciled;
            if !sums.is_infinite() {
                self.sums = sums;
                return Some(());
            }
            self.is_mean = true;
            self.sums.divide(self.count - 1.0);
        }
        self.sums.multiply((self.count - 1.0) / self.count);
        let mut part = other.clone();
        part.divide(self.count);
        self.is_reconciled |= self.sums.add(&part, 1.0)?.is_reconciled;
        Some(())
    }

    /// The result, and what is to be told of it.
    pub(super) fn finish(mut self, told: Told<'_>) -> Histogram {
        self.tell(told);
        if self.is_average && !self.is_mean {
            self.sums.divide(self.count);
        }
        let mut total = self.sums.total();
        total.compact();
        total
    }

    fn tell(&self, told: Told<'_>) {
        if self.hints == [true; 2] {
            told.notes.reset_collision("aggregation", told.at);
        }
        if self.is_reconciled {
            told.notes.reconciled("aggregation", told.at);
        }
    }
}

impl Eval<'_> {
    pub(super) fn told<'t>(&'t self, metric: &'t str, at: Place) -> Told<'t> {
        Told { notes: &self.notes, metric, at }
    }

    /// Takes histograms of a group into its result, which is that of its floats so far.
    pub(super) fn natives(
        &self,
        aggregate: &Aggregate,
        group: &Group,
        matrix: &Matrix,
        result: &mut Series,
    ) -> Result<(), QueryError> {
        let natives: Vec<&Series> =
            group.members.iter().map(|at| &matrix.series[*at]).filter(|series| !series.histograms.is_empty()).collect();
        for step in 0..result.values.len() {
            self.budget.work(natives.len())?;
            let there = natives.iter().filter_map(|series| Some((series.labels.name(), series.histogram(step)?)));
            let there: Vec<(&str, &Arc<Histogram>)> = there.collect();
            if there.is_empty() {
                continue;
            }
            match aggregate.how {
                #[allow(clippy::cast_precision_loss)] // a count of series
                Aggregation::Count => {
                    let floats = if is_hole(result.values[step]) { 0.0 } else { result.values[step] };
                    result.values[step] = floats + there.len() as f64;
                }
                Aggregation::Group => result.values[step] = 1.0,
                Aggregation::Sum | Aggregation::Avg if !is_hole(result.values[step]) => {
                    self.notes.mixed_in_aggregation(aggregate.expr_at);
                    result.put(step, None);
                }
                Aggregation::Sum | Aggregation::Avg => {
                    self.budget.work(there.iter().map(|(_, one)| one.bytes() / 16).sum())?;
                    result.put(step, self.total(aggregate, &there).map(Point::from));
                }
                _ => self.ignored(aggregate),
            }
        }
        Ok(())
    }

    fn total(&self, aggregate: &Aggregate, all: &[(&str, &Arc<Histogram>)]) -> Option<Histogram> {
        let [(metric, first), rest @ ..] = all else { return None };
        let mut total = Total::of(first, aggregate.how == Aggregation::Avg);
        for (metric, other) in rest {
            if total.add(other).is_none() {
                self.notes.mixed_buckets(metric, aggregate.expr_at);
                total.tell(self.told(metric, aggregate.expr_at));
                return None;
            }
        }
        Some(total.finish(self.told(metric, aggregate.expr_at)))
    }

    /// Tells of an aggregation that it leaves histograms out.
    pub(super) fn ignores_natives(&self, aggregate: &Aggregate, matrix: &Matrix) {
        if matrix.series.iter().any(|series| series.histograms.iter().any(Option::is_some)) {
            self.ignored(aggregate);
        }
    }

    fn ignored(&self, aggregate: &Aggregate) {
        self.notes.ignored(&format!("{:?}", aggregate.how).to_lowercase(), aggregate.expr_at);
    }
}
