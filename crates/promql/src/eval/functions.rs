// SPDX-License-Identifier: Apache-2.0
//! Functions of instant vectors and of nothing: which there are, and those that look at one value at a time.

use std::f64::consts::PI;

use super::arithmetic::{largest, least, nan_last};
use super::range::{OF_RANGE, OF_RANGE_AND_NUMBER};
use super::{Eval, Matrix, Node, Numbers, clock, invalid, relabel, sorted};
use crate::expr::{Call, Expr};
use crate::labels::Labels;
use crate::query::QueryError;
use crate::value::{Grid, HOLE, Series, is_hole, seconds};

/// Functions of one value.
fn of_value(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "abs" => f64::abs,
        "acos" => f64::acos,
        "acosh" => f64::acosh,
        "asin" => f64::asin,
        "asinh" => f64::asinh,
        "atan" => f64::atan,
        "atanh" => f64::atanh,
        "ceil" => f64::ceil,
        "cos" => f64::cos,
        "cosh" => f64::cosh,
        "deg" => |value| value * (180.0 / PI),
        "exp" => f64::exp,
        "floor" => f64::floor,
        "ln" => f64::ln,
        "log10" => f64::log10,
        "log2" => f64::log2,
        "rad" => |value| value * (PI / 180.0),
        "sgn" => |value| if value == 0.0 || value.is_nan() { value } else { value.signum() },
        "sin" => f64::sin,
        "sinh" => f64::sinh,
        "sqrt" => f64::sqrt,
        "tan" => f64::tan,
        "tanh" => f64::tanh,
        _ => return None,
    })
}

/// All others that [`Eval::call`] knows.
const OTHERS: [&str; 16] = [
    "absent",
    "clamp",
    "clamp_max",
    "clamp_min",
    "histogram_fraction",
    "histogram_quantile",
    "label_join",
    "label_replace",
    "pi",
    "round",
    "scalar",
    "sort",
    "sort_desc",
    "time",
    "timestamp",
    "vector",
];

/// Whether a function can be called.
pub(crate) fn is_function(name: &str) -> bool {
    let is_over_range = OF_RANGE.contains(&name) || OF_RANGE_AND_NUMBER.contains(&name);
    is_over_range || OTHERS.contains(&name) || of_value(name).is_some() || clock::of_time(name).is_some()
}

impl Eval<'_> {
    pub(super) fn call(&mut self, call: &Call, grid: Grid) -> Result<Node, QueryError> {
        let name = call.name.as_str();
        if OF_RANGE.contains(&name) || OF_RANGE_AND_NUMBER.contains(&name) {
            return Ok(Node::Matrix(self.over_range(call, grid)?));
        }
        if let Some(change) = of_value(name) {
            return Ok(Node::Matrix(self.matrix(arg(call, 0)?, grid)?.map(&self.budget, change)?));
        }
        if let Some(of) = clock::of_time(name) {
            let matrix = match call.args.first() {
                Some(arg) => self.matrix(arg, grid)?.map(&self.budget, |value| clock::at(value, of))?,
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
                    self.matrix(other, grid)?.map_steps(|step, _| times[step])
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
                Node::Matrix(matrix.map_steps(|step, value| round(value, 1.0 / to[step])))
            }
            "sort" | "sort_desc" => Node::Matrix(self.sort(call, grid)?),
            "label_replace" => Node::Matrix(self.label_replace(call, grid)?),
            "label_join" => Node::Matrix(self.label_join(call, grid)?),
            "histogram_quantile" | "histogram_fraction" => Node::Matrix(self.classic_histogram(call, grid)?),
            _ => return invalid(format!("{name}() cannot be called")),
        })
    }

    fn times(&self, grid: Grid) -> Result<Numbers, QueryError> {
        self.numbers(grid, |step| seconds(grid.time_ns(step)))
    }

    /// One series without labels.
    fn unlabelled(&self, numbers: Numbers) -> Result<Matrix, QueryError> {
        let mut matrix = self.empty()?;
        if !numbers.is_empty() {
            matrix.push(Series { labels: Labels::default(), values: numbers.into_vec(), drop_name: false })?;
        }
        Ok(matrix)
    }

    fn as_scalar(&mut self, arg: &Expr, grid: Grid) -> Result<Numbers, QueryError> {
        let matrix = self.matrix(arg, grid)?;
        let mut only = self.numbers(grid, |_| HOLE)?;
        let mut is_more = vec![false; grid.count];
        for series in &matrix.series {
            self.budget.work(grid.count)?;
            for (step, value) in series.values.iter().enumerate().filter(|(_, value)| !is_hole(**value)) {
                is_more[step] |= !is_hole(only[step]);
                only.values[step] = *value;
            }
        }
        Ok(only.map(|step, value| if is_more[step] || is_hole(value) { f64::NAN } else { value }))
    }

    /// 1 at all steps at which no series has a value.
    pub(super) fn absent(&self, labels: Labels, matrix: &Matrix, grid: Grid) -> Result<Matrix, QueryError> {
        let mut values = vec![1.0; grid.count];
        for series in &matrix.series {
            self.budget.work(grid.count)?;
            let there = values.iter_mut().zip(&series.values).filter(|(_, value)| !is_hole(**value));
            there.for_each(|(absent, _)| *absent = HOLE);
        }
        let mut absent = self.empty()?;
        absent.push(Series { labels, values, drop_name: false })?;
        Ok(absent.compact())
    }

    fn clamp(&mut self, call: &Call, grid: Grid) -> Result<Matrix, QueryError> {
        let matrix = self.matrix(arg(call, 0)?, grid)?;
        let bound = self.scalar(arg(call, 1)?, grid)?;
        let (min, max) = match call.name.as_str() {
            "clamp_min" => (bound, self.numbers(grid, |_| f64::INFINITY)?),
            "clamp_max" => (self.numbers(grid, |_| f64::NEG_INFINITY)?, bound),
            _ => (bound, self.scalar(arg(call, 2)?, grid)?),
        };
        let clamped = matrix.map_steps(|step, value| match max[step] < min[step] {
            true => HOLE,
            false => largest(min[step], least(max[step], value)),
        });
        Ok(clamped.compact())
    }

    fn sort(&mut self, call: &Call, grid: Grid) -> Result<Matrix, QueryError> {
        let mut matrix = self.matrix(arg(call, 0)?, grid)?;
        if grid.count > 1 {
            self.notes.sort_in_range();
        } else {
            let descending = call.name == "sort_desc";
            let by_value = |a: &Series, b: &Series| nan_last(a.values[0], b.values[0], descending);
            matrix.series = sorted(matrix.series, &self.budget, &by_value)?;
        }
        Ok(matrix)
    }
}

impl Matrix {
    /// As [`Matrix::map`], by step.
    fn map_steps(mut self, change: impl Fn(usize, f64) -> f64) -> Self {
        for series in &mut self.series {
            let there = series.values.iter_mut().enumerate().filter(|(_, value)| !is_hole(**value));
            there.for_each(|(step, value)| *value = change(step, *value));
            series.drop_name = true;
        }
        self
    }
}

pub(super) fn arg(call: &Call, at: usize) -> Result<&Expr, QueryError> {
    call.args.get(at).ok_or_else(|| QueryError::Invalid(format!("{}() has too few arguments", call.name)))
}

pub(super) fn text(call: &Call, at: usize) -> Result<&str, QueryError> {
    match arg(call, at)? {
        Expr::String(text) => Ok(text),
        _ => invalid(format!("{}() expects a string", call.name)),
    }
}
