// SPDX-License-Identifier: Apache-2.0
//! What queries give: columns of f64, one value a step.

use crate::labels::Labels;
pub(crate) use crate::source::STALE as HOLE;
use crate::source::STALE_BITS;

/// Times at which a query is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The first, ns since 1970.
    pub start_ns: i64,
    /// From one to the next, ns.
    pub step_ns: i64,
    /// How many.
    pub count: usize,
}

impl Grid {
    /// The time of a step.
    #[must_use]
    pub fn time_ns(&self, step: usize) -> i64 {
        // A grid is made of times that fit: between its first and its last everything does.
        self.start_ns + self.step_ns * i64::try_from(step).unwrap_or(i64::MAX)
    }

    pub(crate) fn last_ns(&self) -> i64 {
        self.time_ns(self.count.saturating_sub(1))
    }
}

/// A series of an answer.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it is called.
    pub labels: Labels,
    /// One value a step. Steps that have none hold the stale marker: [`is_hole`].
    pub values: Vec<f64>,
    /// The name no longer says what the values are, but whoever is still to match by it may.
    pub(crate) drop_name: bool,
}

/// Whether a step has no value.
#[must_use]
pub fn is_hole(value: f64) -> bool {
    value.to_bits() == STALE_BITS
}

/// Samples as they were stored.
#[derive(Clone, Debug)]
pub struct Samples {
    /// What the series is called.
    pub labels: Labels,
    /// ns since 1970, rising.
    pub times_ns: Vec<i64>,
    /// As many.
    pub values: Vec<f64>,
    pub(crate) drop_name: bool,
}

/// What a query gives.
#[derive(Clone, Debug)]
pub enum Value {
    /// A number a step.
    Scalar(Vec<f64>),
    /// Text.
    String(String),
    /// Series; each has a value at one step at least. With one step they are in the order that the query gives them,
    /// with more in that of their labels.
    Vector(Vec<Series>),
    /// What a range selector gives, at one step only. In the order of their labels.
    Matrix(Vec<Samples>),
}

/// Seconds, as exact as f64 can be: whole milliseconds as Prometheus divides them, so that both round alike.
#[must_use]
#[allow(clippy::cast_precision_loss)] // times to the millisecond fit
pub fn seconds(ns: i64) -> f64 {
    match ns % 1_000_000 {
        0 => (ns / 1_000_000) as f64 / 1_000.0,
        _ => (ns / 1_000_000_000) as f64 + (ns % 1_000_000_000) as f64 / 1e9,
    }
}
