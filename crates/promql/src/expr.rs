// SPDX-License-Identifier: Apache-2.0
//! A query's tree: what is evaluated, and beside it what is [`written`] only.
//!
//! For evaluation durations are calculated and `start()` and `end()` are times already. Printing takes neither.

use std::fmt;

use crate::labels::Matcher;
pub(crate) use crate::operator::Operator;
use crate::written::{self, Duration, Modifiers};

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Number(written::Number),
    String(String),
    Select(Select),
    Range(Box<Range>),
    Negate(Box<Expr>),
    /// With a `+` that changes nothing.
    Plus(Box<Expr>),
    Parentheses(Box<Expr>),
    Binary(Box<Binary>),
    Aggregate(Box<Aggregate>),
    Call(Call),
}

impl Expr {
    /// What is in all of its parentheses.
    pub(crate) fn bare(&self) -> &Self {
        let mut expr = self;
        while let Self::Parentheses(inner) = expr {
            expr = inner;
        }
        expr
    }
}

/// What an expression gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Scalar,
    Vector,
    Range,
    String,
}

/// As Prometheus's documentation calls it.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::Vector => "instant vector",
            Self::Range => "range vector",
            Self::String => "string",
        })
    }
}

/// A place in the query's text, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    /// Bytes.
    pub(crate) column: usize,
}

impl Place {
    pub(crate) fn new(query: &str, at: usize) -> Self {
        let before = &query[..at];
        let of_line = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: 1 + before.matches('\n').count(), column: 1 + at - of_line }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Which time is looked at instead of the step's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct When {
    /// `@`, ns since 1970.
    pub(crate) at_ns: Option<i64>,
    /// `offset`: so much earlier, ns.
    pub(crate) offset_ns: i64,
}

impl When {
    pub(crate) fn of(self, step_ns: i64) -> i64 {
        self.at_ns.unwrap_or(step_ns).saturating_sub(self.offset_ns)
    }
}

/// What is made of samples beyond a range's edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edges {
    /// Nothing: they are not looked at.
    Plain,
    /// `anchored`: the sample before the range is the value at its begin.
    Anchored,
    /// `smoothed`: between samples lie straight lines.
    Smoothed,
}

#[derive(Clone, Debug)]
pub(crate) struct Select {
    pub(crate) matchers: Vec<Matcher>,
    pub(crate) when: When,
    pub(crate) edges: Edges,
    pub(crate) at: Place,
    pub(crate) written: written::Select,
}

#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) of: RangeOf,
    pub(crate) range_ns: i64,
    pub(crate) written: Duration,
}

#[derive(Clone, Debug)]
pub(crate) enum RangeOf {
    Select(Select),
    Subquery(Subquery),
}

#[derive(Clone, Debug)]
pub(crate) struct Subquery {
    pub(crate) expr: Expr,
    pub(crate) step_ns: Option<i64>,
    pub(crate) when: When,
    pub(crate) written_step: Option<Duration>,
    pub(crate) modifiers: Modifiers,
}

impl Range {
    pub(crate) fn when(&self) -> When {
        match &self.of {
            RangeOf::Select(select) => select.when,
            RangeOf::Subquery(subquery) => subquery.when,
        }
    }

    pub(crate) fn edges(&self) -> Edges {
        match &self.of {
            RangeOf::Select(select) => select.edges,
            RangeOf::Subquery(_) => Edges::Plain,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) args: Vec<Expr>,
    pub(crate) at: Place,
    /// Of each argument.
    pub(crate) args_at: Vec<Place>,
}

/// On which side several series may match one of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Many {
    Neither,
    Left,
    Right,
}

#[derive(Clone, Debug)]
pub(crate) struct Matching {
    /// `on`, otherwise `ignoring`.
    pub(crate) on: bool,
    pub(crate) labels: Vec<String>,
    pub(crate) many: Many,
    /// Labels of the one side that the result gets.
    pub(crate) include: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) operator: Operator,
    pub(crate) left: Expr,
    pub(crate) right: Expr,
    pub(crate) matching: Matching,
    /// Otherwise nothing is matched.
    pub(crate) of_vectors: bool,
    pub(crate) to_bool: bool,
    pub(crate) at: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregation {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Group,
    Stddev,
    Stdvar,
    Quantile,
    TopK,
    BottomK,
    CountValues,
}

impl Aggregation {
    /// All of them, as they are written; those without one are experimental.
    pub(crate) const NAMES: [(&str, Option<Self>); 14] = [
        ("avg", Some(Self::Avg)),
        ("bottomk", Some(Self::BottomK)),
        ("count", Some(Self::Count)),
        ("count_values", Some(Self::CountValues)),
        ("group", Some(Self::Group)),
        ("limit_ratio", None),
        ("limitk", None),
        ("max", Some(Self::Max)),
        ("min", Some(Self::Min)),
        ("quantile", Some(Self::Quantile)),
        ("stddev", Some(Self::Stddev)),
        ("stdvar", Some(Self::Stdvar)),
        ("sum", Some(Self::Sum)),
        ("topk", Some(Self::TopK)),
    ];

    pub(crate) fn text(self) -> &'static str {
        Self::NAMES.iter().find(|(_, how)| *how == Some(self)).map_or("", |(text, _)| *text)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    pub(crate) how: Aggregation,
    pub(crate) expr: Expr,
    pub(crate) param: Option<Expr>,
    /// Of the first argument.
    pub(crate) at: Place,
    /// Of what is aggregated.
    pub(crate) expr_at: Place,
    /// `without`, otherwise `by`.
    pub(crate) without: bool,
    pub(crate) labels: Vec<String>,
}
