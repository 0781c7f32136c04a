// SPDX-License-Identifier: Apache-2.0
//! Quantiles and fractions of histograms. Of a classic one the series differ in the label `le`, each counts what is not
//! larger.

use std::collections::HashMap;

use super::args::arg;
use super::{Eval, LABELS, Matrix, sorted};
use crate::error::QueryError;
use crate::expr::{Call, Place};
use crate::histogram::Estimate;
use crate::labels::{BUCKET, Labels};
use crate::value::{Grid, HOLE, Series, is_hole};

/// Counts that differ by less, relatively, are taken to be equal: they come from sums of floats.
const SMALL: f64 = 1e-12;

#[derive(Clone, Copy)]
struct Bucket {
    /// Upper bound.
    bound: f64,
    /// So many are not larger.
    count: f64,
}

impl Eval<'_> {
    pub(super) fn histogram(&mut self, call: &Call, grid: Grid) -> Result<Matrix, QueryError> {
        let is_quantile = call.name == "histogram_quantile";
        let first = self.scalar(arg(call, 0)?, grid)?;
        let second = if is_quantile { None } else { Some(self.scalar(arg(call, 1)?, grid)?) };
        let last = if is_quantile { 1 } else { 2 };
        let (matrix, at) = (self.matrix(arg(call, last)?, grid)?, call.args_at[last]);
        if is_quantile {
            first.iter().for_each(|quantile| self.notes.quantile(*quantile, call.args_at[0]));
        }
        let classic = self.histograms(&matrix, at)?;
        let asked = Asked { first: &first, second: second.as_deref(), at };
        let (mut result, hidden) = self.native_estimates(&matrix, &classic, &asked)?;
        for (number, Histogram { labels, buckets }) in classic.into_iter().enumerate() {
            let hidden = hidden.get(&number);
            let mut values = self.holes(grid);
            let mut is_forced = false;
            let mut now = Vec::with_capacity(buckets.len());
            for (step, value) in values.iter_mut().enumerate() {
                self.budget.work(buckets.len())?;
                now.clear();
                let there = buckets.iter().map(|(bound, column)| Bucket { bound: *bound, count: column[step] });
                now.extend(there.filter(|bucket| !is_hole(bucket.count)));
                *value = match () {
                    () if now.is_empty() || hidden.is_some_and(|hidden| hidden[step]) => HOLE,
                    () => match &second {
                        None => quantile(first[step], &mut now, &mut is_forced),
                        Some(second) => fraction(first[step], second[step], &mut now),
                    },
                };
            }
            if is_forced {
                self.notes.forced_monotonicity(labels.name(), at);
            }
            result.push(Series::floats(labels, values))?;
        }
        let result = result.compact(&self.budget)?;
        self.unnamed(result)
    }

    /// Of native histograms, and at which steps classic ones must be left out, because there is a native one, too.
    /// There is no result of that either.
    fn native_estimates(
        &self,
        matrix: &Matrix,
        classic: &[Histogram<'_>],
        asked: &Asked<'_>,
    ) -> Result<(Matrix, HashMap<usize, Vec<bool>>), QueryError> {
        let (mut result, mut hidden) = (self.empty()?, HashMap::new());
        let natives: Vec<&Series> = matrix.series.iter().filter(|series| !series.histograms.is_empty()).collect();
        if natives.is_empty() {
            return Ok((result, hidden));
        }
        let places: HashMap<&Labels, usize> = classic.iter().enumerate().map(|(at, one)| (&one.labels, at)).collect();
        for series in natives {
            let metric = series.labels.name();
            let twin = places.get(&series.labels);
            let mut values = vec![HOLE; series.values.len()];
            for (step, value) in values.iter_mut().enumerate() {
                let Some(own) = series.histogram(step) else { continue };
                self.budget.work(own.bytes() / 16)?;
                let is_both = |twin: &&usize| classic[**twin].buckets.iter().any(|(_, column)| !is_hole(column[step]));
                if let Some(twin) = twin.filter(is_both) {
                    self.notes.classic_and_native(metric, asked.at);
                    hidden.entry(*twin).or_insert_with(|| vec![false; series.values.len()])[step] = true;
                    continue;
                }
                let (function, estimate, skew) = match asked.second {
                    None => ("histogram_quantile", own.quantile(asked.first[step]), "result is skewed higher"),
                    Some(upper) => {
                        let skew = "which are excluded from all fractions";
                        ("histogram_fraction", own.fraction(asked.first[step], upper[step]), skew)
                    }
                };
                let (number, told) = match estimate {
                    Estimate::Plain(number) => (number, None),
                    Estimate::Skewed(number) => (number, Some(skew)),
                    Estimate::Lost => (f64::NAN, Some("result is NaN")),
                };
                *value = number;
                if let Some(told) = told {
                    self.notes.nan_observations(function, told, metric, asked.at);
                }
            }
            result.push(Series::floats(series.labels.clone(), values))?;
        }
        Ok((result, hidden))
    }

    /// Histograms in the order in which their first series come.
    fn histograms<'m>(&mut self, matrix: &'m Matrix, at: Place) -> Result<Vec<Histogram<'m>>, QueryError> {
        let mut places: HashMap<Labels, usize> = HashMap::new();
        let mut histograms: Vec<Histogram<'m>> = Vec::new();
        for series in &matrix.series {
            self.budget.work(LABELS)?;
            if series.values.iter().all(|value| is_hole(*value)) {
                continue;
            }
            let label = series.labels.get(BUCKET);
            let Some(bound) = bound(label) else {
                self.notes.bucket_label(series.labels.name(), label, at);
                continue;
            };
            let labels = series.labels.with(BUCKET, "");
            let number = *places.entry(labels.clone()).or_insert(histograms.len());
            if number == histograms.len() {
                histograms.push(Histogram { labels, buckets: Vec::new() });
            }
            histograms[number].buckets.push((bound, &series.values));
        }
        for histogram in &mut histograms {
            let buckets = std::mem::take(&mut histogram.buckets);
            histogram.buckets = sorted(buckets, &self.budget, &|a, b| a.0.total_cmp(&b.0))?;
        }
        Ok(histograms)
    }
}

struct Histogram<'m> {
    labels: Labels,
    /// Upper bounds, rising, and counts a step.
    buckets: Vec<(f64, &'m [f64])>,
}

/// A quantile, or the bounds of a fraction, at each step.
struct Asked<'a> {
    first: &'a [f64],
    second: Option<&'a [f64]>,
    at: Place,
}

fn bound(label: &str) -> Option<f64> {
    label.parse::<f64>().ok().filter(|bound| !bound.is_nan())
}

/// Of buckets in the order of their bounds: with equal bounds added up. `None` if the last has a bound.
fn whole(buckets: &mut Vec<Bucket>) -> Option<()> {
    if buckets.last()?.bound != f64::INFINITY {
        return None;
    }
    buckets.dedup_by(|next, kept| {
        let is_same = next.bound == kept.bound;
        if is_same {
            kept.count += next.count;
        }
        is_same
    });
    Some(())
}

fn nearly(a: f64, b: f64) -> bool {
    let sum = a.abs() + b.abs();
    let apart = (a - b).abs();
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return apart < SMALL * f64::MIN_POSITIVE;
    }
    apart / sum.min(f64::MAX) < SMALL
}

/// Makes counts rise with bounds. Whether one fell by more than rounding explains.
fn rise(buckets: &mut [Bucket]) -> bool {
    let mut before = buckets[0].count;
    let mut is_forced = false;
    for bucket in &mut buckets[1..] {
        let is_small = nearly(before, bucket.count);
        if is_small || bucket.count < before {
            is_forced |= !is_small && bucket.count != before;
            bucket.count = before;
        } else {
            before = bucket.count;
        }
    }
    is_forced
}

fn quantile(quantile: f64, buckets: &mut Vec<Bucket>, is_forced: &mut bool) -> f64 {
    if quantile.is_nan() {
        return f64::NAN;
    }
    if !(0.0..=1.0).contains(&quantile) {
        return if quantile < 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    if whole(buckets).is_none() {
        return f64::NAN;
    }
    *is_forced |= rise(buckets);
    let [.., below, last] = buckets.as_slice() else { return f64::NAN };
    if last.count == 0.0 {
        return f64::NAN;
    }
    let mut rank = quantile * last.count;
    // Of a rank that is no number there is no such bucket.
    let reaches = |bucket: &Bucket| bucket.count >= rank;
    let at = buckets[..buckets.len() - 1].partition_point(|bucket| !reaches(bucket));
    if at == buckets.len() - 1 {
        return below.bound;
    }
    let Bucket { bound: end, mut count } = buckets[at];
    let mut start = 0.0;
    match at.checked_sub(1).map(|at| buckets[at]) {
        None if end <= 0.0 => return end,
        None => {}
        Some(before) => {
            start = before.bound;
            count -= before.count;
            rank -= before.count;
        }
    }
    start + (end - start) * (rank / count)
}

/// Which part of all lies between two values.
fn fraction(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    if whole(buckets).is_none() {
        return f64::NAN;
    }
    let all = buckets[buckets.len() - 1].count;
    if all == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    (below(upper, buckets, all) - below(lower, buckets, all)) / all
}

/// How many are less than a value.
fn below(value: f64, buckets: &[Bucket], all: f64) -> f64 {
    let mut start = if buckets[0].bound <= 0.0 { f64::NEG_INFINITY } else { 0.0 };
    let mut rank = 0.0;
    for bucket in buckets {
        if start >= value {
            return if rank > all { all } else { rank };
        }
        if bucket.bound > value {
            let inside = match start == f64::NEG_INFINITY {
                // A bucket without an end has nothing to go by.
                true => bucket.count,
                false => rank + (bucket.count - rank) * (value - start) / (bucket.bound - start),
            };
            return if inside > all { all } else { inside };
        }
        rank = bucket.count;
        start = bucket.bound;
    }
    all
}
