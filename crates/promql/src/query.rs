// SPDX-License-Identifier: Apache-2.0
//! A query from text to answer.

use std::time::Instant;

use crate::eval::{Eval, Matrix, Node, sorted};
use crate::expr::{Edges, Expr, Select, When};
use crate::labels::{Labels, Matcher};
use crate::limits::{Budget, Cancel, Limits};
use crate::notes::Note;
use crate::parse::{self, ParseError};
use crate::source::{SeriesSource, SourceError};
use crate::value::{Grid, Samples, Series, Value};

/// When a query is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The first time, ns since 1970.
    pub start_ns: i64,
    /// Not later than this.
    pub end_ns: i64,
    /// From one to the next, ns; 0 where there is only one.
    pub step_ns: i64,
}

impl Times {
    /// Only one.
    #[must_use]
    pub fn instant(time_ns: i64) -> Self {
        Self { start_ns: time_ns, end_ns: time_ns, step_ns: 0 }
    }

    fn grid(self) -> Grid {
        let Self { start_ns, end_ns, step_ns } = self;
        let steps = match end_ns.saturating_sub(start_ns) {
            span_ns if span_ns < 0 => 0,
            span_ns if step_ns > 0 => (span_ns / step_ns).saturating_add(1),
            _ => 1,
        };
        Grid { start_ns, step_ns, count: usize::try_from(steps).unwrap_or(usize::MAX) }
    }
}

/// What holds for a query beside its text.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it may cost.
    pub limits: Limits,
    /// When it must be done.
    pub until: Option<Instant>,
    /// What stops it.
    pub cancel: Cancel,
    /// How far back the newest sample of a series is looked for, ns.
    pub lookback_ns: i64,
    /// Step of subqueries that name none, ns.
    pub subquery_step_ns: i64,
    /// Whether a series keeps its name until the end even where that says no longer what it is, so that it can be
    /// matched and grouped by; as Prometheus's feature `promql-delayed-name-removal`.
    pub delays_names: bool,
}

/// As Prometheus has them.
impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            until: None,
            cancel: Cancel::default(),
            lookback_ns: 300_000_000_000,
            subquery_step_ns: 60_000_000_000,
            delays_names: false,
        }
    }
}

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// It was stopped from outside.
    #[error("the query was cancelled")]
    Cancelled,
    /// It took too long.
    #[error("the query took longer than it may; ask for fewer series, a shorter time or a wider step")]
    Time,
    /// It matches too much.
    #[error("the query has more than {most} series; match fewer")]
    Series {
        /// What is allowed.
        most: usize,
    },
    /// It reads too much.
    #[error("the query reads more than {most} samples; ask for fewer series or a shorter time")]
    Samples {
        /// What is allowed.
        most: u64,
    },
    /// It, or a subquery of it, has too many steps.
    #[error("the query has more than {most} steps; ask for a shorter time or a wider step")]
    Steps {
        /// What is allowed.
        most: usize,
    },
    /// It holds too much at once.
    #[error("the query needs more than {most} bytes of memory; ask for fewer series or a wider step")]
    Bytes {
        /// What is allowed.
        most: usize,
    },
    /// What it asks for has no answer, with these data.
    #[error("{0}")]
    Invalid(String),
    /// The source failed.
    #[error("reading samples: {0}")]
    Source(SourceError),
}

/// A source that was stopped says by what.
impl From<SourceError> for QueryError {
    fn from(error: SourceError) -> Self {
        error.downcast::<Self>().map_or_else(Self::Source, |own| *own)
    }
}

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
        let expr = parse::parse(text, times)?;
        if times.step_ns > 0 && matches!(expr, Expr::Range(_) | Expr::String(_)) {
            return Err(ParseError::range_of(text, &expr));
        }
        Ok(Self { expr, times })
    }

    /// What a selector of series wants, as `match[]` has it: without a range, an offset or a time of its own.
    ///
    /// # Errors
    /// [`ParseError`].
    pub fn selector(text: &str) -> Result<Vec<Matcher>, ParseError> {
        match parse::parse(text, Times::instant(0))? {
            Expr::Select(Select { matchers, when, edges: Edges::Plain, .. }) if when == When::default() => Ok(matchers),
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

pub(crate) fn twins() -> QueryError {
    QueryError::Invalid("vector cannot contain metrics with the same labelset".to_owned())
}

#[cfg(test)]
mod tests;
