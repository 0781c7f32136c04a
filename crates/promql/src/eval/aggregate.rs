// SPDX-License-Identifier: Apache-2.0
//! Aggregations that take one value after the other, column by column: a group's series are added to one column of
//! accumulators.

use std::collections::HashMap;

use super::arithmetic::{Kahan, Mean};
use super::{Eval, LABELS, Matrix, invalid};
use crate::error::QueryError;
use crate::expr::{Aggregate, Aggregation, Expr};
use crate::labels::Labels;
use crate::limits::{Budget, Held};
use crate::value::{Grid, HOLE, Series, is_hole};

/// Series that are aggregated into one.
pub(super) struct Group {
    pub(super) labels: Labels,
    /// Which of the matrix.
    pub(super) members: Vec<usize>,
}

/// What a group is called that a series with these labels belongs to.
pub(super) fn group_of(aggregate: &Aggregate, labels: &Labels) -> Labels {
    match aggregate.without {
        true => labels.without_metadata_and(&aggregate.labels),
        false if aggregate.labels.is_empty() => Labels::default(),
        false => labels.keep(&aggregate.labels),
    }
}

/// In the order in which their first series come. Their memory counts as long as they live.
pub(super) struct Groups {
    pub(super) groups: Vec<Group>,
    _held: Held,
}

pub(super) fn groups(aggregate: &Aggregate, matrix: &Matrix, budget: &Budget) -> Result<Groups, QueryError> {
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut held = budget.hold(matrix.series.len() * size_of::<usize>())?;
    for (member, series) in matrix.series.iter().enumerate() {
        budget.work(LABELS)?;
        let labels = group_of(aggregate, &series.labels);
        let at = *places.entry(labels.clone()).or_insert(groups.len());
        if at == groups.len() {
            held.grow(labels.bytes() + size_of::<(Labels, usize)>() + size_of::<Group>())?;
            groups.push(Group { labels, members: Vec::new() });
        }
        groups[at].members.push(member);
    }
    Ok(Groups { groups, _held: held })
}

/// What a group's values at one step become.
trait Accumulator: Copy {
    fn first(value: f64) -> Self;
    fn add(&mut self, value: f64);
    fn value(self) -> f64;
}

impl Accumulator for Kahan {
    fn first(value: f64) -> Self {
        Self { sum: value, lost: 0.0 }
    }

    fn add(&mut self, value: f64) {
        Self::add(self, value);
    }

    fn value(self) -> f64 {
        self.total()
    }
}

impl Accumulator for Mean {
    fn first(value: f64) -> Self {
        Self::of(value)
    }

    fn add(&mut self, value: f64) {
        Self::add(self, value);
    }

    fn value(self) -> f64 {
        Self::value(self)
    }
}

/// NaN only if all are.
#[derive(Clone, Copy)]
struct Extreme<const IS_MAX: bool>(f64);

impl<const IS_MAX: bool> Accumulator for Extreme<IS_MAX> {
    fn first(value: f64) -> Self {
        Self(value)
    }

    fn add(&mut self, value: f64) {
        let is_beyond = if IS_MAX { self.0 < value } else { self.0 > value };
        if is_beyond || self.0.is_nan() {
            self.0 = value;
        }
    }

    fn value(self) -> f64 {
        self.0
    }
}

#[derive(Clone, Copy)]
struct Count(f64);

impl Accumulator for Count {
    fn first(_: f64) -> Self {
        Self(1.0)
    }

    fn add(&mut self, _: f64) {
        self.0 += 1.0;
    }

    fn value(self) -> f64 {
        self.0
    }
}

/// 1 for a group that is there.
#[derive(Clone, Copy)]
struct One;

impl Accumulator for One {
    fn first(_: f64) -> Self {
        Self
    }

    fn add(&mut self, _: f64) {}

    fn value(self) -> f64 {
        1.0
    }
}

/// Welford's.
#[derive(Clone, Copy)]
struct Variance<const IS_ROOT: bool> {
    count: f64,
    mean: f64,
    squares: f64,
}

impl<const IS_ROOT: bool> Accumulator for Variance<IS_ROOT> {
    fn first(value: f64) -> Self {
        Self { count: 1.0, mean: value, squares: if value.is_finite() { 0.0 } else { f64::NAN } }
    }

    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let off = value - self.mean;
        self.mean += off / self.count;
        self.squares += off * (value - self.mean);
    }

    fn value(self) -> f64 {
        let variance = self.squares / self.count;
        if IS_ROOT { variance.sqrt() } else { variance }
    }
}

impl Eval<'_> {
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate, grid: Grid) -> Result<Matrix, QueryError> {
        let written = aggregate.param.as_ref().map(Expr::bare);
        let param = match written {
            None | Some(Expr::String(_)) => self.numbers(grid, |_| 0.0)?,
            Some(param) => self.scalar(param, grid)?,
        };
        let matrix = self.matrix(&aggregate.expr, grid)?;
        match aggregate.how {
            Aggregation::Sum => self.columns::<Kahan>(aggregate, &matrix, grid),
            Aggregation::Avg => self.columns::<Mean>(aggregate, &matrix, grid),
            Aggregation::Min => self.columns::<Extreme<false>>(aggregate, &matrix, grid),
            Aggregation::Max => self.columns::<Extreme<true>>(aggregate, &matrix, grid),
            Aggregation::Count => self.columns::<Count>(aggregate, &matrix, grid),
            Aggregation::Group => self.columns::<One>(aggregate, &matrix, grid),
            Aggregation::Stdvar => self.columns::<Variance<false>>(aggregate, &matrix, grid),
            Aggregation::Stddev => self.columns::<Variance<true>>(aggregate, &matrix, grid),
            Aggregation::Quantile => self.quantiles(aggregate, &param, &matrix, grid),
            Aggregation::TopK | Aggregation::BottomK => self.best(aggregate, &param, matrix, grid),
            Aggregation::CountValues => match written {
                Some(Expr::String(label)) if label.is_empty() => invalid(format!("invalid label name {label:?}")),
                Some(Expr::String(label)) => self.count_values(aggregate, label, &matrix, grid),
                _ => invalid("count_values() expects a label"),
            },
        }
    }

    fn columns<A: Accumulator>(
        &self,
        aggregate: &Aggregate,
        matrix: &Matrix,
        grid: Grid,
    ) -> Result<Matrix, QueryError> {
        let mut result = self.empty()?;
        let _scratch = self.budget.hold(grid.count * size_of::<Option<A>>())?;
        let mut column: Vec<Option<A>> = vec![None; grid.count];
        let groups = groups(aggregate, matrix, &self.budget)?;
        for group in groups.groups {
            let members = &group.members;
            column.fill(None);
            for member in members {
                self.budget.each_with(&mut column, &matrix.series[*member].values, |slot, value| match slot {
                    _ if is_hole(value) => {}
                    Some(own) => own.add(value),
                    None => *slot = Some(A::first(value)),
                })?;
            }
            let values = column.iter().map(|slot| slot.map_or(HOLE, A::value)).collect();
            let mut series = Series::floats(group.labels.clone(), values);
            if members.iter().any(|member| !matrix.series[*member].histograms.is_empty()) {
                self.natives(aggregate, &group, matrix, &mut series)?;
            }
            series.drops_name = members.iter().any(|member| matrix.series[*member].drops_name);
            result.push(series)?;
        }
        result.compact(&self.budget)
    }
}
