// SPDX-License-Identifier: Apache-2.0
//! What queries give: columns of f64, one value a step, and of native histograms beside them where there are any.

use std::sync::Arc;

use crate::histogram::Histogram;
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
    /// Empty, or one a step: a step that has a histogram has no other value.
    pub histograms: Histograms,
    /// Whether its name, which says no longer what it is, goes in the end.
    pub(crate) drops_name: bool,
}

/// A column of histograms: empty, or one a step or sample. Most series have none.
pub type Histograms = Vec<Option<Arc<Histogram>>>;

/// What a series has at one step.
#[derive(Clone, Debug, PartialEq)]
pub enum Point {
    /// A number.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<Histogram>),
}

impl Point {
    /// The number; of a histogram 0, as Prometheus has it where it wants numbers.
    #[must_use]
    pub fn number(&self) -> f64 {
        if let Self::Float(value) = self { *value } else { 0.0 }
    }
}

impl From<f64> for Point {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<Histogram> for Point {
    fn from(histogram: Histogram) -> Self {
        Self::Histogram(Arc::new(histogram))
    }
}

impl Series {
    pub(crate) fn floats(labels: Labels, values: Vec<f64>) -> Self {
        Self { labels, values, histograms: Vec::new(), drops_name: false }
    }

    /// The histogram of a step.
    #[must_use]
    pub fn histogram(&self, step: usize) -> Option<&Arc<Histogram>> {
        self.histograms.get(step).and_then(Option::as_ref)
    }

    pub(crate) fn has(&self, step: usize) -> bool {
        !is_hole(self.values[step]) || self.histogram(step).is_some()
    }

    /// What there is at a step.
    #[must_use]
    pub fn point(&self, step: usize) -> Option<Point> {
        match self.histogram(step) {
            Some(histogram) => Some(Point::Histogram(histogram.clone())),
            None => (!is_hole(self.values[step])).then(|| Point::Float(self.values[step])),
        }
    }

    /// Gives a step another value, or none.
    pub(crate) fn put(&mut self, step: usize, point: Option<Point>) {
        let (value, histogram) = match point {
            None => (HOLE, None),
            Some(Point::Float(value)) => (value, None),
            Some(Point::Histogram(histogram)) => (HOLE, Some(histogram)),
        };
        self.values[step] = value;
        if histogram.is_some() && self.histograms.is_empty() {
            self.histograms = vec![None; self.values.len()];
        }
        if let Some(slot) = self.histograms.get_mut(step) {
            *slot = histogram;
        }
    }

    /// Whether no step has a value.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.iter().all(|value| is_hole(*value)) && self.histograms.iter().all(Option::is_none)
    }
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
    /// Histograms among them, by their times.
    pub histograms: Vec<(i64, Arc<Histogram>)>,
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
