// SPDX-License-Identifier: Apache-2.0
//! Evaluates a tree, node by node: each gives a column a series for all steps at once.
//!
//! | module | what |
//! |---|---|
//! | [`select`] | instant selectors: the newest sample of each step |
//! | [`share`] | the series of a selector, shared among threads |
//! | [`slide`], [`range`] | windows of a series, step by step; functions of them |
//! | [`over_time`], [`rate`], [`edges`] | what is calculated of one window |
//! | [`signature`], [`named`], [`args`] | which functions there are, by their names; arguments |
//! | [`functions`], [`math`], [`clock`], [`relabel`], [`buckets`] | functions of instant vectors |
//! | [`native`], [`native_range`], [`native_binary`] | native histograms: sums, ranges, operators |
//! | [`aggregate`], [`rank`] | aggregations: of columns, and those that look at all values of a step |
//! | [`binary`], [`matching`] | operators, and which series belong together |
//! | [`arithmetic`], [`order`] | sums, quantiles, orders of floats; sorting |

mod aggregate;
mod args;
mod arithmetic;
mod binary;
mod buckets;
mod clock;
mod edges;
mod functions;
mod matching;
mod math;
mod named;
mod native;
mod native_binary;
mod native_range;
mod order;
mod over_time;
mod range;
mod rank;
mod rate;
mod relabel;
mod select;
mod share;
mod signature;
mod slide;

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Deref;
use std::sync::Arc;

use crate::error::{QueryError, twins};
use crate::expr::{Expr, Range, RangeOf, Subquery};
use crate::labels::Labels;
use crate::limits::{Budget, Held};
use crate::notes::{Note, Notes};
use crate::options::Options;
use crate::source::SeriesSource;
use crate::value::{Grid, HOLE, Samples, Series, is_hole};

pub(crate) use order::sorted;
pub(crate) use signature::{Last, Signature, functions, signature};
use slide::Buffers;

/// What it costs to find a series by its labels.
const LABELS: usize = 50;

/// Series of one node. Its memory counts as long as it lives.
pub(crate) struct Matrix {
    pub(crate) series: Vec<Series>,
    held: Held,
}

impl Matrix {
    fn push(&mut self, series: Series) -> Result<(), QueryError> {
        self.held.grow(bytes(&series))?;
        self.series.push(series);
        Ok(())
    }

    fn push_if_any(&mut self, series: Series) -> Result<(), QueryError> {
        if series.is_empty() { Ok(()) } else { self.push(series) }
    }

    /// With those of another one.
    fn extend(&mut self, mut other: Self) {
        self.held.absorb(&mut other.held);
        self.series.append(&mut other.series);
    }

    /// Series in the order of their labels.
    fn by_labels(mut self, budget: &Budget) -> Result<Self, QueryError> {
        self.series = sorted(self.series, budget, &|a: &Series, b: &Series| a.labels.cmp(&b.labels))?;
        Ok(self)
    }

    /// Without series that have no value: their memory is given back.
    fn compact(mut self, budget: &Budget) -> Result<Self, QueryError> {
        for series in std::mem::take(&mut self.series) {
            budget.work(series.values.len())?;
            if series.is_empty() {
                self.held.shrink(bytes(&series));
            } else {
                self.series.push(series);
            }
        }
        Ok(self)
    }

    /// Drops all native histograms.
    fn floats(mut self, budget: &Budget) -> Result<Self, QueryError> {
        let mut is_changed = false;
        for series in self.series.iter_mut().filter(|series| !series.histograms.is_empty()) {
            let before = bytes(series);
            series.histograms = Vec::new();
            self.held.shrink(before - bytes(series));
            is_changed = true;
        }
        if is_changed { self.compact(budget) } else { Ok(self) }
    }

    /// Without names, which say no longer what the values are.
    fn unnamed(mut self, budget: &Budget) -> Result<Self, QueryError> {
        let mut is_renamed = false;
        for series in self.series.iter_mut().filter(|series| series.labels.has_metadata()) {
            budget.work(LABELS)?;
            series.labels = series.labels.without_metadata();
            is_renamed = true;
        }
        if is_renamed { self.join(budget) } else { Ok(self) }
    }

    /// Series with equal labels as one, where no step has two values.
    fn join(mut self, budget: &Budget) -> Result<Self, QueryError> {
        let count = self.series.len();
        if count < 2 {
            return Ok(self);
        }
        let _held = budget.hold(count * size_of::<(Labels, usize)>())?;
        let mut places: HashMap<Labels, usize> = HashMap::with_capacity(count);
        for one in std::mem::take(&mut self.series) {
            budget.work(LABELS)?;
            match places.entry(one.labels.clone()) {
                Entry::Vacant(free) => {
                    free.insert(self.series.len());
                    self.series.push(one);
                }
                Entry::Occupied(taken) => {
                    self.held.shrink(bytes(&one));
                    let mut is_twice = false;
                    let own = &mut self.series[*taken.get()];
                    if own.histograms.is_empty() && one.histograms.is_empty() {
                        budget.each_with(&mut own.values, &one.values, |own, other| {
                            if !is_hole(other) {
                                is_twice |= !is_hole(*own);
                                *own = other;
                            }
                        })?;
                    } else {
                        for step in (0..one.values.len()).filter(|step| one.has(*step)) {
                            budget.work(1)?;
                            is_twice |= own.has(step);
                            own.put(step, one.point(step));
                        }
                    }
                    if is_twice {
                        return Err(twins());
                    }
                }
            }
        }
        Ok(self)
    }
}

/// What a series takes in memory.
fn bytes(series: &Series) -> usize {
    let histograms = series.histograms.iter().flatten().map(|one| one.bytes()).sum::<usize>();
    let columns = series.values.len() * size_of::<f64>() + series.histograms.len() * size_of::<usize>();
    series.labels.bytes() + columns + histograms + size_of::<Series>()
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
    Samples(Vec<Samples>, Held),
}

pub(crate) struct Eval<'a> {
    source: &'a dyn SeriesSource,
    options: &'a Options,
    pub(crate) budget: Budget,
    notes: Notes,
    /// Of a series that was read to its end.
    spare: RefCell<Option<Buffers>>,
}

fn invalid<T>(text: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::Invalid(text.into()))
}

impl<'a> Eval<'a> {
    pub(crate) fn new(source: &'a dyn SeriesSource, options: &'a Options, budget: Budget) -> Self {
        Self { source, options, budget, notes: Notes::default(), spare: RefCell::default() }
    }

    pub(crate) fn into_notes(self) -> Vec<Note> {
        self.notes.into_vec()
    }

    pub(crate) fn eval(&mut self, expr: &Expr, grid: Grid) -> Result<Node, QueryError> {
        self.budget.look()?;
        Ok(match expr {
            Expr::Number(number) => Node::Scalar(self.numbers(grid, |_| number.value)?),
            Expr::String(text) => Node::String(text.clone()),
            Expr::Select(select) => Node::Matrix(self.select(select, grid)?),
            Expr::Range(range) => self.samples(range, grid)?,
            Expr::Negate(inner) => match self.eval(inner, grid)? {
                Node::Scalar(numbers) => Node::Scalar(numbers.map(|_, value| -value)),
                Node::Matrix(matrix) => Node::Matrix(self.negate(matrix)?),
                other => other,
            },
            Expr::Plus(inner) | Expr::Parentheses(inner) => self.eval(inner, grid)?,
            Expr::Binary(binary) => self.binary(binary, grid)?,
            Expr::Aggregate(aggregate) => Node::Matrix(self.aggregate(aggregate, grid)?),
            Expr::Call(call) => self.call(call, grid)?,
        })
    }

    /// Changes every number that is there, by its step; the name says no longer what it is.
    fn map(&self, matrix: Matrix, change: impl Fn(usize, f64) -> f64) -> Result<Matrix, QueryError> {
        let mut matrix = matrix.floats(&self.budget)?;
        for series in &mut matrix.series {
            self.budget.each(&mut series.values, |step, value| {
                if !is_hole(*value) {
                    *value = change(step, *value);
                }
            })?;
        }
        self.unnamed(matrix)
    }

    fn negate(&self, mut matrix: Matrix) -> Result<Matrix, QueryError> {
        for series in &mut matrix.series {
            // The sign of a hole is part of it.
            self.budget.each(&mut series.values, |_, value| *value = if is_hole(*value) { *value } else { -*value })?;
            self.budget.each(&mut series.histograms, |_, histogram| {
                if let Some(histogram) = histogram {
                    Arc::make_mut(histogram).multiply(-1.0);
                }
            })?;
        }
        self.unnamed(matrix)
    }

    /// Without names, which say no longer what the values are; or they go in the end.
    fn unnamed(&self, mut matrix: Matrix) -> Result<Matrix, QueryError> {
        if !self.options.delays_names {
            return matrix.unnamed(&self.budget);
        }
        matrix.series.iter_mut().for_each(|series| series.drops_name = true);
        Ok(matrix)
    }

    /// Without names that were to go in the end.
    pub(crate) fn without_delayed_names(&self, mut matrix: Matrix) -> Result<Matrix, QueryError> {
        let mut is_renamed = false;
        for series in matrix.series.iter_mut().filter(|series| series.drops_name) {
            self.budget.work(LABELS)?;
            series.labels = series.labels.without_metadata();
            is_renamed = true;
        }
        if is_renamed { matrix.join(&self.budget) } else { Ok(matrix) }
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
        let step_ns = step_ns.unwrap_or(self.options.subquery_step_ns).max(1);
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

    /// What the inside of a subquery gives.
    pub(super) fn inner(&mut self, expr: &Expr, grid: Grid) -> Result<Matrix, QueryError> {
        let before = self.notes.begin();
        let matrix = self.matrix(expr, grid);
        self.notes.end(before, false);
        matrix
    }

    /// The samples of a range, at the one step of an instant query.
    fn samples(&mut self, range: &Range, grid: Grid) -> Result<Node, QueryError> {
        match &range.of {
            RangeOf::Select(select) => self.range_of_select(select, range.range_ns, grid),
            RangeOf::Subquery(Subquery { expr, step_ns, .. }) => {
                let inner = self.inner_grid(range, *step_ns, grid)?;
                let matrix = self.inner(expr, inner)?;
                let Matrix { series, mut held } = self.without_delayed_names(matrix)?;
                let mut all = Vec::new();
                for Series { labels, values, histograms, .. } in series {
                    self.budget.work(values.len())?;
                    // Times beside the values; these are counted already.
                    let mut times_ns = Vec::new();
                    held.grow(values.len() * size_of::<i64>())?;
                    let there = values.iter().enumerate().filter(|(_, value)| !is_hole(**value));
                    times_ns.extend(there.map(|(step, _)| inner.time_ns(step)));
                    let mut values = values;
                    values.retain(|value| !is_hole(*value));
                    let histograms = histograms.into_iter().enumerate();
                    let histograms = histograms.filter_map(|(step, one)| Some((inner.time_ns(step), one?)));
                    let histograms: Vec<_> = histograms.collect();
                    if !values.is_empty() || !histograms.is_empty() {
                        all.push(Samples { labels, times_ns, values, histograms });
                    }
                }
                Ok(Node::Samples(all, held))
            }
        }
    }
}
