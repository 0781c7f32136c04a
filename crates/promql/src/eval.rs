// SPDX-License-Identifier: Apache-2.0
//! Evaluates a tree, node by node: each gives a column a series for all steps at once.
//!
//! | module | what |
//! |---|---|
//! | [`select`] | instant selectors: the newest sample of each step |
//! | [`slide`], [`range`] | windows of a series, step by step; functions of them |
//! | [`over_time`], [`rate`], [`edges`] | what is calculated of one window |
//! | [`functions`], [`clock`], [`relabel`], [`buckets`] | functions of instant vectors |
//! | [`aggregate`], [`rank`] | aggregations: of columns, and those that look at all values of a step |
//! | [`binary`], [`matching`] | operators, and which series belong together |
//! | [`arithmetic`], [`order`] | sums, quantiles, orders of floats; sorting |

mod aggregate;
mod arithmetic;
mod binary;
mod buckets;
mod clock;
mod edges;
mod functions;
mod matching;
mod order;
mod over_time;
mod range;
mod rank;
mod rate;
mod relabel;
mod select;
mod slide;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Deref;

use crate::expr::{Expr, Range, RangeOf};
use crate::labels::Labels;
use crate::limits::{Budget, Held};
use crate::notes::{Note, Notes};
use crate::query::{Options, QueryError, twins};
use crate::source::SeriesSource;
use crate::value::{Grid, HOLE, Samples, Series, is_hole};

pub(crate) use functions::is_function;
pub(crate) use order::sorted;

/// What it costs to find a series by its labels.
const LABELS: usize = 50;

/// Series of one node. Its memory counts as long as it lives.
pub(crate) struct Matrix {
    pub(crate) series: Vec<Series>,
    held: Held,
}

impl Matrix {
    fn push(&mut self, series: Series) -> Result<(), QueryError> {
        self.held.grow(series.labels.bytes() + series.values.len() * size_of::<f64>() + size_of::<Series>())?;
        self.series.push(series);
        Ok(())
    }

    /// Without series that have no value.
    fn compact(mut self) -> Self {
        self.series.retain(|series| !series.values.iter().all(|value| is_hole(*value)));
        self
    }

    /// Changes every value that is there; the name says no longer what it is.
    fn map(mut self, budget: &Budget, change: impl Fn(f64) -> f64) -> Result<Self, QueryError> {
        for series in &mut self.series {
            budget.work(series.values.len())?;
            series.values.iter_mut().filter(|value| !is_hole(**value)).for_each(|value| *value = change(*value));
            series.drop_name = true;
        }
        Ok(self)
    }

    /// As an answer, names dropped that say no longer what the values are.
    pub(crate) fn into_named(self) -> Vec<Series> {
        let mut series = self.series;
        for one in series.iter_mut().filter(|one| one.drop_name) {
            one.labels = one.labels.without_metadata();
        }
        series
    }
}

/// Series with equal labels as one, where no step has two values.
pub(crate) fn join(series: Vec<Series>, budget: &Budget) -> Result<Vec<Series>, QueryError> {
    let mut places: HashMap<Labels, usize> = HashMap::with_capacity(series.len());
    let mut joined: Vec<Series> = Vec::with_capacity(series.len());
    for one in series {
        budget.work(LABELS)?;
        match places.entry(one.labels.clone()) {
            Entry::Vacant(free) => {
                free.insert(joined.len());
                joined.push(one);
            }
            Entry::Occupied(taken) => {
                for (own, other) in joined[*taken.get()].values.iter_mut().zip(one.values) {
                    match (is_hole(*own), is_hole(other)) {
                        (_, true) => {}
                        (true, false) => *own = other,
                        (false, false) => return Err(twins()),
                    }
                }
            }
        }
    }
    Ok(joined)
}

/// A number a step. Its memory counts as long as it lives.
pub(crate) struct Numbers {
    values: Vec<f64>,
    _held: Held,
}

impl Numbers {
    pub(crate) fn into_vec(self) -> Vec<f64> {
        self.values
    }

    fn map(mut self, change: impl Fn(usize, f64) -> f64) -> Self {
        self.values.iter_mut().enumerate().for_each(|(step, value)| *value = change(step, *value));
        self
    }
}

impl Deref for Numbers {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.values
    }
}

/// What a node gives.
pub(crate) enum Node {
    Scalar(Numbers),
    String(String),
    Matrix(Matrix),
    /// Of a range at the root.
    Samples(Vec<Samples>),
}

pub(crate) struct Eval<'a> {
    source: &'a dyn SeriesSource,
    lookback_ns: i64,
    subquery_step_ns: i64,
    pub(crate) budget: Budget,
    notes: Notes,
}

fn invalid<T>(text: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::Invalid(text.into()))
}

impl<'a> Eval<'a> {
    pub(crate) fn new(source: &'a dyn SeriesSource, options: &Options, budget: Budget) -> Self {
        let Options { lookback_ns, subquery_step_ns, .. } = *options;
        Self { source, lookback_ns, subquery_step_ns, budget, notes: Notes::default() }
    }

    pub(crate) fn into_notes(self) -> Vec<Note> {
        self.notes.into_vec()
    }

    pub(crate) fn eval(&mut self, expr: &Expr, grid: Grid) -> Result<Node, QueryError> {
        self.budget.look()?;
        Ok(match expr {
            Expr::Number(number) => Node::Scalar(self.numbers(grid, |_| *number)?),
            Expr::String(text) => Node::String(text.clone()),
            Expr::Select(select) => Node::Matrix(self.select(select, grid)?),
            Expr::Range(range) => Node::Samples(self.samples(range, grid)?),
            Expr::Negate(inner) => match self.eval(inner, grid)? {
                Node::Scalar(numbers) => Node::Scalar(numbers.map(|_, value| -value)),
                Node::Matrix(matrix) => Node::Matrix(matrix.map(&self.budget, |value| -value)?),
                other => other,
            },
            Expr::Binary(binary) => self.binary(binary, grid)?,
            Expr::Aggregate(aggregate) => Node::Matrix(self.aggregate(aggregate, grid)?),
            Expr::Call(call) => self.call(call, grid)?,
        })
    }

    fn matrix(&mut self, expr: &Expr, grid: Grid) -> Result<Matrix, QueryError> {
        match self.eval(expr, grid)? {
            Node::Matrix(matrix) => Ok(matrix),
            _ => invalid("expected type instant vector"),
        }
    }

    fn scalar(&mut self, expr: &Expr, grid: Grid) -> Result<Numbers, QueryError> {
        match self.eval(expr, grid)? {
            Node::Scalar(numbers) => Ok(numbers),
            _ => invalid("expected type scalar"),
        }
    }

    fn empty(&self) -> Result<Matrix, QueryError> {
        Ok(Matrix { series: Vec::new(), held: self.budget.hold(0)? })
    }

    fn numbers(&self, grid: Grid, of: impl Fn(usize) -> f64) -> Result<Numbers, QueryError> {
        let _held = self.budget.hold(grid.count * size_of::<f64>())?;
        self.budget.work(grid.count)?;
        Ok(Numbers { values: (0..grid.count).map(of).collect(), _held })
    }

    fn holes(&self, grid: Grid) -> Vec<f64> {
        vec![HOLE; grid.count]
    }

    /// When the inside of a subquery is evaluated for `grid`: at whole multiples of its step.
    fn inner_grid(&self, range: &Range, step_ns: Option<i64>, grid: Grid) -> Result<Grid, QueryError> {
        let step_ns = step_ns.unwrap_or(self.subquery_step_ns).max(1);
        let when = range.when();
        let begin_ns = when.of(grid.start_ns).saturating_sub(range.range_ns);
        let until_ns = when.of(grid.last_ns());
        // The first one later than the begin.
        let start_ns = begin_ns.div_euclid(step_ns).saturating_add(1).saturating_mul(step_ns);
        let span_ns = until_ns.saturating_sub(start_ns);
        let steps = if span_ns < 0 { 0 } else { (span_ns / step_ns).saturating_add(1) };
        let count = usize::try_from(steps).unwrap_or(usize::MAX);
        self.budget.steps(count, self.budget.limits.subquery_steps)?;
        Ok(Grid { start_ns, step_ns, count })
    }

    /// The samples of a range, at the one step of an instant query.
    fn samples(&mut self, range: &Range, grid: Grid) -> Result<Vec<Samples>, QueryError> {
        match &range.of {
            RangeOf::Select(select) => self.range_of_select(select, range.range_ns, grid),
            RangeOf::Subquery { expr, step_ns, .. } => {
                let inner = self.inner_grid(range, *step_ns, grid)?;
                let Node::Matrix(matrix) = self.eval(expr, inner)? else { return Ok(Vec::new()) };
                Ok(matrix.series.into_iter().filter_map(|series| as_samples(series, inner)).collect())
            }
        }
    }
}

fn as_samples(series: Series, grid: Grid) -> Option<Samples> {
    let there = series.values.iter().enumerate().filter(|(_, value)| !is_hole(**value));
    let (times_ns, values): (Vec<i64>, Vec<f64>) = there.map(|(step, value)| (grid.time_ns(step), *value)).unzip();
    (!values.is_empty()).then_some(Samples { labels: series.labels, times_ns, values, drop_name: series.drop_name })
}
