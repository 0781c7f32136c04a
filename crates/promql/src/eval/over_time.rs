// SPDX-License-Identifier: Apache-2.0
//! What is calculated of the samples of one window.
//!
//! What must be summed up exactly as Prometheus does looks at all samples of every window. What need not, slides: it
//! looks at each sample once.

use std::collections::VecDeque;

use super::arithmetic::{Kahan, Mean, quantile};
use super::slide::View;
use crate::error::QueryError;
use crate::source::Span;
use crate::value::{HOLE, seconds};

/// What a function is asked beside the samples.
pub(super) struct Ask {
    /// When the query is evaluated, ns.
    pub(super) time_ns: i64,
    /// The range, without what lies beyond its edges.
    pub(super) range: Span,
    pub(super) range_ns: i64,
    /// The function's other argument; 0 if it has none.
    pub(super) number: f64,
}

/// What a function makes of a window, or why it was stopped.
pub(super) type Folded = Result<f64, QueryError>;

/// A function of windows of one series, asked in their order. Of no samples it makes nothing.
pub(super) trait Fold {
    fn value(&mut self, view: &View<'_>, ask: &Ask) -> Folded;

    /// What it keeps from one window to the next.
    fn bytes(&self) -> usize {
        0
    }
}

/// Keeps nothing.
pub(super) struct Whole(pub(super) fn(&View<'_>, &Ask) -> Folded);

impl Fold for Whole {
    fn value(&mut self, view: &View<'_>, ask: &Ask) -> Folded {
        if view.values.is_empty() { Ok(HOLE) } else { (self.0)(view, ask) }
    }
}

/// Looks at the window's edges only.
pub(super) struct Ends(pub(super) fn(&View<'_>) -> f64);

impl Fold for Ends {
    fn value(&mut self, view: &View<'_>, _: &Ask) -> Folded {
        Ok(if view.values.is_empty() { HOLE } else { (self.0)(view) })
    }
}

#[allow(clippy::cast_precision_loss)] // counts of samples
pub(super) fn count(view: &View<'_>) -> f64 {
    view.values.len() as f64
}

pub(super) fn first(view: &View<'_>) -> f64 {
    view.values.first().copied().unwrap_or(HOLE)
}

pub(super) fn last(view: &View<'_>) -> f64 {
    view.values.last().copied().unwrap_or(HOLE)
}

/// The two last samples: what a counter, or else a gauge, went up by.
fn instant(view: &View<'_>, is_counter: bool) -> Option<(f64, f64)> {
    let ([.., before_ns, last_ns], [.., before, last]) = (view.times_ns, view.values) else { return None };
    let up = if is_counter && last < before { *last } else { last - before };
    (last_ns > before_ns).then(|| (up, seconds(last_ns - before_ns)))
}

pub(super) fn irate(view: &View<'_>) -> f64 {
    instant(view, true).map_or(HOLE, |(up, seconds)| up / seconds)
}

pub(super) fn idelta(view: &View<'_>) -> f64 {
    instant(view, false).map_or(HOLE, |(up, _)| up)
}

pub(super) fn sum(view: &View<'_>, _: &Ask) -> Folded {
    let mut sum = Kahan::default();
    view.all(|value| sum.add(value))?;
    Ok(if sum.sum.is_infinite() { sum.sum } else { sum.total() })
}

pub(super) fn avg(view: &View<'_>, _: &Ask) -> Folded {
    let mut mean = Mean::of(view.values[0]);
    view.each(1..view.values.len(), |_, value| mean.add(value))?;
    Ok(mean.value())
}

pub(super) fn stdvar(view: &View<'_>, _: &Ask) -> Folded {
    let (mut count, mut mean, mut squares) = (0.0, Kahan::default(), Kahan::default());
    view.all(|value| {
        count += 1.0;
        let off = value - mean.total();
        mean.add(off / count);
        squares.add(off * (value - mean.total()));
    })?;
    Ok(squares.total() / count)
}

pub(super) fn stddev(view: &View<'_>, ask: &Ask) -> Folded {
    stdvar(view, ask).map(f64::sqrt)
}

/// Has a copy of the window to put in order.
#[derive(Default)]
pub(super) struct Quantile(Vec<f64>);

impl Fold for Quantile {
    fn value(&mut self, view: &View<'_>, ask: &Ask) -> Folded {
        if view.values.is_empty() {
            return Ok(HOLE);
        }
        self.0.clear();
        self.0.extend_from_slice(view.values);
        quantile(ask.number, &mut self.0, view.budget)
    }

    fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<f64>()
    }
}

/// Slope a second, and the value at a time.
fn regression(view: &View<'_>, time_ns: i64) -> Result<Option<(f64, f64)>, QueryError> {
    let [first, _, ..] = view.values else { return Ok(None) };
    let mut is_flat = true;
    view.all(|value| is_flat &= value == *first)?;
    if is_flat {
        return Ok(Some(if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, *first) }));
    }
    let [mut x, mut y, mut xy, mut xx] = [Kahan::default(); 4];
    let mut n = 0.0;
    view.each(0..view.values.len(), |sample, value| {
        let at = seconds(view.times_ns[sample] - time_ns);
        n += 1.0;
        x.add(at);
        y.add(value);
        xy.add(at * value);
        xx.add(at * at);
    })?;
    let [x, y, xy, xx] = [x, y, xy, xx].map(Kahan::total);
    let slope = (xy - x * y / n) / (xx - x * x / n);
    Ok(Some((slope, y / n - slope * x / n)))
}

pub(super) fn deriv(view: &View<'_>, _: &Ask) -> Folded {
    // Near the samples: differences of large times are exact, their squares are not.
    Ok(regression(view, view.times_ns[0])?.map_or(HOLE, |(slope, _)| slope))
}

pub(super) fn predict_linear(view: &View<'_>, ask: &Ask) -> Folded {
    Ok(regression(view, ask.time_ns)?.map_or(HOLE, |(slope, now)| slope * ask.number + now))
}

/// How often neighbours in the window are what is counted.
pub(super) struct Pairs {
    pub(super) counts: fn(f64, f64) -> bool,
    /// Numbers of the later ones.
    at: VecDeque<usize>,
}

impl Pairs {
    pub(super) fn new(counts: fn(f64, f64) -> bool) -> Self {
        Self { counts, at: VecDeque::new() }
    }
}

pub(super) fn is_change(before: f64, after: f64) -> bool {
    after != before && !(after.is_nan() && before.is_nan())
}

pub(super) fn is_reset(before: f64, after: f64) -> bool {
    after < before
}

impl Fold for Pairs {
    #[allow(clippy::cast_precision_loss)] // counts of samples
    fn value(&mut self, view: &View<'_>, _: &Ask) -> Folded {
        while self.at.front().is_some_and(|at| *at <= view.first) {
            self.at.pop_front();
        }
        let fresh = view.fresh();
        view.each(fresh.start.max(1)..fresh.end, |at, value| {
            if (self.counts)(view.values[at - 1], value) {
                self.at.push_back(view.first + at);
            }
        })?;
        Ok(if view.values.is_empty() { HOLE } else { self.at.len() as f64 })
    }

    fn bytes(&self) -> usize {
        self.at.capacity() * size_of::<usize>()
    }
}

/// The largest value, or the least; NaN only if there is no other.
pub(super) struct Extreme {
    /// Whether one is beyond another.
    beyond: fn(f64, f64) -> bool,
    /// Values of which no later one is beyond, with their numbers: the first is the one of the window.
    stairs: VecDeque<(usize, f64)>,
}

impl Extreme {
    pub(super) fn max() -> Self {
        Self { beyond: |a, b| a > b, stairs: VecDeque::new() }
    }

    pub(super) fn min() -> Self {
        Self { beyond: |a, b| a < b, stairs: VecDeque::new() }
    }
}

impl Fold for Extreme {
    fn value(&mut self, view: &View<'_>, _: &Ask) -> Folded {
        while self.stairs.front().is_some_and(|(at, _)| *at < view.first) {
            self.stairs.pop_front();
        }
        view.each(view.fresh(), |at, value| {
            if value.is_nan() {
                return;
            }
            while self.stairs.back().is_some_and(|(_, last)| (self.beyond)(value, *last)) {
                self.stairs.pop_back();
            }
            self.stairs.push_back((view.first + at, value));
        })?;
        Ok(match self.stairs.front() {
            Some((_, value)) => *value,
            // All that are there are NaN.
            None => view.values.last().copied().unwrap_or(HOLE),
        })
    }

    fn bytes(&self) -> usize {
        self.stairs.capacity() * size_of::<(usize, f64)>()
    }
}
