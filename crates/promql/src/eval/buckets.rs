// SPDX-License-Identifier: Apache-2.0
//! Classic histograms: series of one histogram differ in the label `le`, each counts what is not larger.

use std::collections::HashMap;

use super::functions::arg;
use super::{Eval, LABELS, Matrix};
use crate::expr::Call;
use crate::labels::{BUCKET, Labels};
use crate::query::QueryError;
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
    pub(super) fn classic_histogram(&mut self, call: &Call, grid: Grid) -> Result<Matrix, QueryError> {
        let is_quantile = call.name == "histogram_quantile";
        let first = self.scalar(arg(call, 0)?, grid)?;
        let second = if is_quantile { None } else { Some(self.scalar(arg(call, 1)?, grid)?) };
        let matrix = self.matrix(arg(call, if is_quantile { 1 } else { 2 })?, grid)?;
        if is_quantile {
            first.iter().for_each(|quantile| self.notes.quantile(*quantile));
        }
        let mut result = self.empty()?;
        for Histogram { labels, buckets, drop_name } in self.histograms(&matrix)? {
            let mut values = self.holes(grid);
            let mut is_forced = false;
            let mut now = Vec::with_capacity(buckets.len());
            for (step, value) in values.iter_mut().enumerate() {
                self.budget.work(buckets.len())?;
                now.clear();
                let there = buckets.iter().map(|(bound, column)| Bucket { bound: *bound, count: column[step] });
                now.extend(there.filter(|bucket| !is_hole(bucket.count)));
                *value = match () {
                    () if now.is_empty() => HOLE,
                    () => match &second {
                        None => quantile(first[step], &mut now, &mut is_forced),
                        Some(second) => fraction(first[step], second[step], &mut now),
                    },
                };
            }
            if is_forced {
                self.notes.forced_monotonicity(labels.name());
            }
            result.push(Series { labels, values, drop_name })?;
        }
        Ok(result.compact())
    }

    /// Histograms in the order in which their first series come.
    fn histograms<'m>(&mut self, matrix: &'m Matrix) -> Result<Vec<Histogram<'m>>, QueryError> {
        let mut places: HashMap<Labels, usize> = HashMap::new();
        let mut histograms: Vec<Histogram<'m>> = Vec::new();
        for series in &matrix.series {
            self.budget.work(LABELS)?;
            let label = series.labels.get(BUCKET);
            let Some(bound) = bound(label) else {
                self.notes.bucket_label(series.labels.name(), label);
                continue;
            };
            let labels = series.labels.with(BUCKET, "");
            let at = *places.entry(labels.clone()).or_insert(histograms.len());
            if at == histograms.len() {
                histograms.push(Histogram { labels, buckets: Vec::new(), drop_name: true });
            }
            histograms[at].buckets.push((bound, &series.values));
        }
        for histogram in &mut histograms {
            histogram.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        Ok(histograms)
    }
}

struct Histogram<'m> {
    labels: Labels,
    /// Upper bounds, rising, and counts a step.
    buckets: Vec<(f64, &'m [f64])>,
    drop_name: bool,
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
    let at = buckets[..buckets.len() - 1].partition_point(|bucket| bucket.count < rank || bucket.count.is_nan());
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
