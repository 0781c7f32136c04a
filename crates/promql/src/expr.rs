// SPDX-License-Identifier: Apache-2.0
//! A query as it is evaluated: our own tree, so that what parses it can change.
//!
//! Durations are calculated and `start()` and `end()` are times already. Parentheses are gone.

use crate::labels::Matcher;

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Number(f64),
    String(String),
    Select(Select),
    Range(Box<Range>),
    Negate(Box<Expr>),
    Binary(Box<Binary>),
    Aggregate(Box<Aggregate>),
    Call(Call),
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
}

#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) of: RangeOf,
    pub(crate) range_ns: i64,
}

#[derive(Clone, Debug)]
pub(crate) enum RangeOf {
    Select(Select),
    Subquery { expr: Expr, step_ns: Option<i64>, when: When },
}

impl Range {
    pub(crate) fn when(&self) -> When {
        match &self.of {
            RangeOf::Select(select) => select.when,
            RangeOf::Subquery { when, .. } => *when,
        }
    }

    pub(crate) fn edges(&self) -> Edges {
        match &self.of {
            RangeOf::Select(select) => select.edges,
            RangeOf::Subquery { .. } => Edges::Plain,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) args: Vec<Expr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
    Atan2,
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    And,
    Or,
    Unless,
}

impl Operator {
    pub(crate) fn is_comparison(self) -> bool {
        use Operator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        matches!(self, Equal | NotEqual | Greater | Less | GreaterOrEqual | LessOrEqual)
    }
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
    pub(crate) to_bool: bool,
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

#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    pub(crate) how: Aggregation,
    pub(crate) expr: Expr,
    pub(crate) param: Option<Expr>,
    /// `without`, otherwise `by`.
    pub(crate) without: bool,
    pub(crate) labels: Vec<String>,
}
