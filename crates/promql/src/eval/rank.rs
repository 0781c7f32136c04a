// SPDX-License-Identifier: Apache-2.0
//! Aggregations that look at all values of a step: `quantile`, `topk`, `bottomk`, `count_values`.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::aggregate::{Group, group_of, groups};
use super::arithmetic::{nan_last, quantile};
use super::{Eval, Matrix, invalid, sorted};
use crate::error::QueryError;
use crate::expr::{Aggregate, Aggregation};
use crate::labels::Labels;
use crate::value::{Grid, HOLE, Series, is_hole};

impl Eval<'_> {
    pub(super) fn quantiles(
        &mut self,
        aggregate: &Aggregate,
        param: &[f64],
        matrix: &Matrix,
        grid: Grid,
    ) -> Result<Matrix, QueryError> {
        param.iter().for_each(|quantile| self.notes.quantile(*quantile, aggregate.at));
        self.ignores_natives(aggregate, matrix);
        let mut result = self.empty()?;
        let mut now = Vec::new();
        let groups = groups(aggregate, matrix, &self.budget)?;
        for Group { labels, members } in groups.groups {
            let mut values = self.holes(grid);
            for (step, value) in values.iter_mut().enumerate() {
                self.budget.work(members.len())?;
                now.clear();
                let all = members.iter().map(|member| matrix.series[*member].values[step]);
                now.extend(all.filter(|value| !is_hole(*value)));
                if !now.is_empty() {
                    *value = quantile(param[step], &mut now, &self.budget)?;
                }
            }
            let drops_name = members.iter().any(|member| matrix.series[*member].drops_name);
            result.push(Series { drops_name, ..Series::floats(labels, values) })?;
        }
        result.compact(&self.budget)
    }

    /// `topk` and `bottomk`: at one step in their order, otherwise the series as they came.
    pub(super) fn best(
        &mut self,
        aggregate: &Aggregate,
        param: &[f64],
        matrix: Matrix,
        grid: Grid,
    ) -> Result<Matrix, QueryError> {
        self.ignores_natives(aggregate, &matrix);
        let mut matrix = matrix.floats(&self.budget)?;
        let descending = aggregate.how == Aggregation::TopK;
        let groups = groups(aggregate, &matrix, &self.budget)?;
        let counts = counts(param, matrix.series.len())?;
        let mut now: Vec<(f64, usize)> = Vec::new();
        let mut order = Vec::new();
        for Group { members, .. } in &groups.groups {
            for (step, most) in counts.iter().copied().enumerate() {
                self.budget.work(members.len())?;
                now.clear();
                now.extend(members.iter().map(|member| (matrix.series[*member].values[step], *member)));
                now.retain(|(value, _)| !is_hole(*value));
                let best = |a: &(f64, usize), b: &(f64, usize)| -> Ordering {
                    nan_last(a.0, b.0, descending).then(a.1.cmp(&b.1))
                };
                if most > 0 && most < now.len() {
                    now.select_nth_unstable_by(most - 1, best);
                }
                for (_, member) in &now[most.min(now.len())..] {
                    matrix.series[*member].values[step] = HOLE;
                }
                now.truncate(most);
                if grid.count == 1 {
                    now = sorted(now, &self.budget, &best)?;
                    order.extend(now.iter().map(|(_, member)| *member));
                }
            }
        }
        if grid.count == 1 {
            let mut all: Vec<Option<Series>> = std::mem::take(&mut matrix.series).into_iter().map(Some).collect();
            matrix.series = order.into_iter().filter_map(|member| all[member].take()).collect();
        }
        matrix.compact(&self.budget)
    }

    pub(super) fn count_values(
        &mut self,
        aggregate: &Aggregate,
        label: &str,
        matrix: &Matrix,
        grid: Grid,
    ) -> Result<Matrix, QueryError> {
        let mut by = aggregate.clone();
        if !by.without {
            by.labels.push(label.to_owned());
        }
        let mut places: HashMap<Labels, usize> = HashMap::new();
        let mut result = self.empty()?;
        for series in &matrix.series {
            // The value before and where it is counted: most values stay as they are.
            let mut before: Option<(u64, usize)> = None;
            self.budget.work(grid.count)?;
            for step in (0..grid.count).filter(|step| series.has(*step)) {
                let (value, histogram) = (series.values[step], series.histogram(step));
                let at = match before {
                    Some((bits, at)) if bits == value.to_bits() && histogram.is_none() => at,
                    _ => {
                        self.budget.work(100)?;
                        let text = histogram.map_or_else(|| text(value), |histogram| histogram.to_string());
                        let labels = group_of(&by, &series.labels.with(label, &text));
                        match places.get(&labels) {
                            Some(at) => *at,
                            None => {
                                let at = result.series.len();
                                places.insert(labels.clone(), at);
                                result.push(Series::floats(labels, self.holes(grid)))?;
                                self.budget.series(at + 1)?;
                                at
                            }
                        }
                    }
                };
                before = histogram.is_none().then_some((value.to_bits(), at));
                let count = &mut result.series[at].values[step];
                *count = if is_hole(*count) { 1.0 } else { *count + 1.0 };
            }
        }
        Ok(result)
    }
}

/// A value as a label has it: never with an exponent.
fn text(value: f64) -> String {
    if value.is_infinite() { if value > 0.0 { "+Inf".into() } else { "-Inf".into() } } else { value.to_string() }
}

/// How many are kept a step.
fn counts(param: &[f64], series: usize) -> Result<Vec<usize>, QueryError> {
    #[allow(clippy::cast_precision_loss)]
    const MOST: f64 = i64::MAX as f64;
    let is_none = |value: &f64| *value < 1.0;
    if !param.iter().all(is_none) {
        if param.iter().any(|value| value.is_nan()) {
            return invalid("Parameter value is NaN");
        }
        for value in param {
            if *value <= -MOST {
                return invalid(format!("Scalar value {value:e} underflows int64"));
            }
            if *value >= MOST {
                return invalid(format!("Scalar value {value:e} overflows int64"));
            }
        }
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
    Ok(param.iter().map(|value| (*value as usize).min(series)).collect())
}
