// SPDX-License-Identifier: Apache-2.0
//! A query from text to answer.

use crate::error::{QueryError, twins};
use crate::eval::{Eval, Matrix, Node, sorted};
use crate::expr::{Edges, Expr, Select};
use crate::labels::{Labels, Matcher};
use crate::limits::Budget;
use crate::notes::Note;
use crate::options::Options;
use crate::parse::{self, ParseError};
use crate::source::SeriesSource;
use crate::times::Times;
use crate::value::{Grid, Samples, Series, Value};

/// What a query gives.
#[derive(Clone, Debug)]
pub struct Answer {
    /// When it was evaluated.
    pub grid: Grid,
    /// What it gave.
    pub value: Value,
    /// What is to be told beside it.
    pub notes: Vec<Note>,
}

/// A query that can be run.
#[derive(Clone, Debug)]
pub struct Query {
    expr: Expr,
    times: Times,
}

impl Query {
    /// Of its text, for these times: durations may be calculated from them.
    ///
    /// # Errors
    /// [`ParseError`].
    pub fn parse(text: &str, times: Times) -> Result<Self, ParseError> {
        let expr = parse::parse(text, Some(times))?;
        if times.step_ns > 0 && matches!(expr.bare(), Expr::Range(_) | Expr::String(_)) {
            return Err(ParseError::range_of(text, &expr));
        }
        Ok(Self { expr, times })
    }

    /// What a selector of series wants, as `match[]` has it: without a range, an offset or a time of its own.
    ///
    /// # Errors
    /// [`ParseError`].
    pub fn selector(text: &str) -> Result<Vec<Matcher>, ParseError> {
        match parse::parse(text, None)? {
            Expr::Select(Select { matchers, edges: Edges::Plain, written, .. }) if written.modifiers.is_none() => {
                Ok(matchers)
            }
            _ => Err(ParseError::wrong(text, 0..text.len(), "no selector of series")),
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn run(&self, source: &dyn SeriesSource, options: &Options) -> Result<Answer, QueryError> {
        let grid = self.times.grid();
        let budget = Budget::new(options.limits, options.cancel.clone(), options.until);
        budget.steps(grid.count, options.limits.steps)?;
        let mut eval = Eval::new(source, options, budget);
        let node = match eval.eval(&self.expr, grid)? {
            Node::Matrix(matrix) => Node::Matrix(eval.without_delayed_names(matrix)?),
            other => other,
        };
        let value = match node {
            Node::Scalar(numbers) => Value::Scalar(numbers.into_vec()),
            Node::String(text) => Value::String(text),
            Node::Samples(samples, _held) => {
                let samples = sorted(samples, &eval.budget, &|a: &Samples, b: &Samples| a.labels.cmp(&b.labels))?;
                no_twins(samples.iter().map(|one| &one.labels))?;
                Value::Matrix(samples)
            }
            Node::Matrix(Matrix { series, .. }) if self.times.step_ns > 0 => {
                let series = sorted(series, &eval.budget, &|a: &Series, b: &Series| a.labels.cmp(&b.labels))?;
                no_twins(series.iter().map(|one| &one.labels))?;
                Value::Vector(series)
            }
            Node::Matrix(Matrix { series, .. }) => {
                let labels = series.iter().map(|one| &one.labels).collect();
                no_twins(sorted(labels, &eval.budget, &|a: &&Labels, b: &&Labels| a.cmp(b))?.into_iter())?;
                Value::Vector(series)
            }
        };
        Ok(Answer { grid, value, notes: eval.into_notes() })
    }
}

/// Of labels in order.
fn no_twins<'a>(labels: impl Iterator<Item = &'a Labels>) -> Result<(), QueryError> {
    let mut before = None;
    for labels in labels {
        if before.replace(labels) == Some(labels) {
            return Err(twins());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
