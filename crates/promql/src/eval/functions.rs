// SPDX-License-Identifier: Apache-2.0
//! Functions of instant vectors and of nothing: those that look at one value at a time, and where the others are.

use std::f64::consts::PI;

use super::args::arg;
use super::arithmetic::{largest, least, nan_last};
use super::math::OF_VALUE;
use super::named::named;
use super::signature::OF_RANGE;
use super::{Eval, Matrix, Node, Numbers, clock, invalid, relabel, sorted};
use crate::error::QueryError;
use crate::expr::{Call, Expr};
use crate::histogram::Histogram;
use crate::labels::Labels;
use crate::value::{Grid, HOLE, Series, is_hole, seconds};

impl Eval<'_> {
    pub(super) fn call(&mut self, call: &Call, grid: Grid) -> Result<Node, QueryError> {
        let name = call.name.as_str();
        if OF_RANGE.contains(&name) || matches!(name, "predict_linear" | "quantile_over_time") {
            return Ok(Node::Matrix(self.over_range(call, grid)?));
        }
        if let Some(change) = named(&OF_VALUE, name) {
            return Ok(Node::Matrix(self.of_matrix(call, grid, |_, value| change(value))?));
        }
        if let Some(of) = named(&clock::OF_TIME, name) {
            let matrix = match call.args.first() {
                Some(arg) => {
                    let matrix = self.matrix(arg, grid)?;
                    self.map(matrix, |_, value| clock::at(value, of))?
                }
                None => self.unlabelled(self.times(grid)?.map(|_, time| clock::at(time, of)))?,
            };
            return Ok(Node::Matrix(matrix));
        }
        Ok(match name {
            "time" => Node::Scalar(self.times(grid)?),
            "pi" => Node::Scalar(self.numbers(grid, |_| PI)?),
            "scalar" => Node::Scalar(self.as_scalar(arg(call, 0)?, grid)?),
            "vector" => {
                let values = self.scalar(arg(call, 0)?, grid)?;
                Node::Matrix(self.unlabelled(values)?)
            }
            "timestamp" => Node::Matrix(match arg(call, 0)? {
                Expr::Select(select) => self.timestamps(select, grid)?,
                other => {
                    let times = self.times(grid)?;
                    let mut matrix = self.matrix(other, grid)?;
                    for series in matrix.series.iter_mut().filter(|series| !series.histograms.is_empty()) {
                        let values = (0..grid.count).map(|step| if series.has(step) { times[step] } else { HOLE });
                        *series = Series { values: values.collect(), histograms: Vec::new(), ..series.clone() };
                    }
                    self.map(matrix, |step, _| times[step])?
                }
            }),
            "absent" => {
                let matrix = self.matrix(arg(call, 0)?, grid)?;
                Node::Matrix(self.absent(relabel::absent(arg(call, 0)?), &matrix, grid)?)
            }
            "clamp" | "clamp_min" | "clamp_max" => Node::Matrix(self.clamp(call, grid)?),
            "round" => {
                let to = match call.args.get(1) {
                    Some(to) => self.scalar(to, grid)?,
                    None => self.numbers(grid, |_| 1.0)?,
                };
                let matrix = self.matrix(arg(call, 0)?, grid)?;
                // By the inverse, which is exact where 0.1 is not.
                let round = |value: f64, inverse: f64| (value * inverse + 0.5).floor() / inverse;
                Node::Matrix(self.map(matrix, |step, value| round(value, 1.0 / to[step]))?)
            }
            "sort" | "sort_desc" => Node::Matrix(self.sort(call, grid)?),
            "label_replace" => Node::Matrix(self.label_replace(call, grid)?),
            "label_join" => Node::Matrix(self.label_join(call, grid)?),
            "histogram_quantile" | "histogram_fraction" => Node::Matrix(self.histogram(call, grid)?),
            "histogram_count" => Node::Matrix(self.without_buckets(call, grid, |one| one.count)?),
            "histogram_sum" => Node::Matrix(self.without_buckets(call, grid, |one| one.sum)?),
            "histogram_avg" => Node::Matrix(self.without_buckets(call, grid, |one| one.sum / one.count)?),
            "histogram_stdvar" => Node::Matrix(self.of_natives(call, grid, Histogram::variance)?),
            "histogram_stddev" => Node::Matrix(self.of_natives(call, grid, |one| one.variance().sqrt())?),
            _ => return invalid(format!("{name}() cannot be called")),
        })
    }

    fn of_matrix(&mut self, call: &Call, grid: Grid, change: impl Fn(usize, f64) -> f64) -> Result<Matrix, QueryError> {
        let matrix = self.matrix(arg(call, 0)?, grid)?;
        self.map(matrix, change)
    }

    /// A number of each histogram; other values are left out.
    fn of_natives(&mut self, call: &Call, grid: Grid, of: fn(&Histogram) -> f64) -> Result<Matrix, QueryError> {
        let matrix = self.matrix(arg(call, 0)?, grid)?;
        let mut numbers = self.empty()?;
        for series in matrix.series.iter().filter(|series| !series.histograms.is_empty()) {
            self.budget.work(series.histograms.iter().flatten().map(|one| one.bytes() / 16).sum())?;
            let values = series.histograms.iter().map(|one| one.as_deref().map_or(HOLE, of)).collect();
            numbers.push(Series::floats(series.labels.clone(), values))?;
        }
        let numbers = numbers.compact(&self.budget)?;
        self.unnamed(numbers)
    }

    /// The same where their buckets do not matter.
    fn without_buckets(&mut self, call: &Call, grid: Grid, of: fn(&Histogram) -> f64) -> Result<Matrix, QueryError> {
        let before = self.notes.begin();
        let numbers = self.of_natives(call, grid, of);
        self.notes.end(before, true);
        numbers
    }

    fn times(&self, grid: Grid) -> Result<Numbers, QueryError> {
        self.numbers(grid, |step| seconds(grid.time_ns(step)))
    }

    /// One series without labels.
    fn unlabelled(&self, numbers: Numbers) -> Result<Matrix, QueryError> {
        let mut matrix = self.empty()?;
        if !numbers.is_empty() {
            matrix.push(Series::floats(Labels::default(), numbers.into_vec()))?;
        }
        Ok(matrix)
    }

    fn as_scalar(&mut self, arg: &Expr, grid: Grid) -> Result<Numbers, QueryError> {
        let matrix = self.matrix(arg, grid)?;
        let mut only = self.numbers(grid, |_| HOLE)?;
        let mut is_more = vec![false; grid.count];
        for series in &matrix.series {
            self.budget.each(&mut only.values, |step, only| {
                let value = series.values[step];
                if !is_hole(value) {
                    is_more[step] |= !is_hole(*only);
                    *only = value;
                }
            })?;
        }
        Ok(only.map(|step, value| if is_more[step] || is_hole(value) { f64::NAN } else { value }))
    }

    /// 1 at all steps at which no series has a value.
    pub(super) fn absent(&self, labels: Labels, matrix: &Matrix, grid: Grid) -> Result<Matrix, QueryError> {
        let mut values = vec![1.0; grid.count];
        for series in &matrix.series {
            self.budget.each_with(&mut values, &series.values, |absent, value| {
                if !is_hole(value) {
                    *absent = HOLE;
                }
            })?;
            for (absent, _) in values.iter_mut().zip(&series.histograms).filter(|(_, one)| one.is_some()) {
                *absent = HOLE;
            }
        }
        let mut absent = self.empty()?;
        absent.push(Series::floats(labels, values))?;
        absent.compact(&self.budget)
    }

    fn clamp(&mut self, call: &Call, grid: Grid) -> Result<Matrix, QueryError> {
        let matrix = self.matrix(arg(call, 0)?, grid)?;
        let bound = self.scalar(arg(call, 1)?, grid)?;
        let (min, max) = match call.name.as_str() {
            "clamp_min" => (bound, self.numbers(grid, |_| f64::INFINITY)?),
            "clamp_max" => (self.numbers(grid, |_| f64::NEG_INFINITY)?, bound),
            _ => (bound, self.scalar(arg(call, 2)?, grid)?),
        };
        let clamped = self.map(matrix, |step, value| match max[step] < min[step] {
            true => HOLE,
            false => largest(min[step], least(max[step], value)),
        })?;
        clamped.compact(&self.budget)
    }

    fn sort(&mut self, call: &Call, grid: Grid) -> Result<Matrix, QueryError> {
        let mut matrix = self.matrix(arg(call, 0)?, grid)?;
        if grid.count > 1 {
            self.notes.sort_in_range(call.at);
        } else {
            matrix = matrix.floats(&self.budget)?;
            let descending = call.name == "sort_desc";
            let by_value = |a: &Series, b: &Series| nan_last(a.values[0], b.values[0], descending);
            matrix.series = sorted(matrix.series, &self.budget, &by_value)?;
        }
        Ok(matrix)
    }
}
