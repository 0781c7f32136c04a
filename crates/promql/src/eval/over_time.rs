// SPDX-License-Identifier: Apache-2.0
//! What is calculated of the samples of one window.
//!
//! What must be summed up exactly as Prometheus does looks at all samples of every window. What need not, slides: it
//! looks at each sample once.

use std::collections::VecDeque;

use super::arithmetic::{Kahan, Mean, quantile};
use super::slide::View;
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

/// A function of windows of one series, asked in their order. Of no samples it makes nothing.
pub(super) trait Fold {
    fn value(&mut self, view: &View<'_>, ask: &Ask) -> f64;

    /// Whether it looks at all samples of every window.
    fn rescans(&self) -> bool {
        false
    }
}

/// Looks at all samples.
pub(super) struct Whole(pub(super) fn(&View<'_>, &Ask) -> f64);

impl Fold for Whole {
    fn value(&mut self, view: &View<'_>, ask: &Ask) -> f64 {
        if view.values.is_empty() { HOLE } else { (self.0)(view, ask) }
    }

    fn rescans(&self) -> bool {
        true
    }
}

/// Looks at the window's edges only.
pub(super) struct Ends(pub(super) fn(&View<'_>, &Ask) -> f64);

impl Fold for Ends {
    fn value(&mut self, view: &View<'_>, ask: &Ask) -> f64 {
        if view.values.is_empty() { HOLE } else { (self.0)(view, ask) }
    }
}

#[allow(clippy::cast_precision_loss)] // counts of samples
pub(super) fn count(view: &View<'_>, _: &Ask) -> f64 {
    view.values.len() as f64
}

pub(super) fn first(view: &View<'_>, _: &Ask) -> f64 {
    view.values.first().copied().unwrap_or(HOLE)
}

pub(super) fn last(view: &View<'_>, _: &Ask) -> f64 {
    view.values.last().copied().unwrap_or(HOLE)
}

/// The two last samples: what a counter, or else a gauge, went up by.
fn instant(view: &View<'_>, is_counter: bool) -> Option<(f64, f64)> {
    let ([.., before_ns, last_ns], [.., before, last]) = (view.times_ns, view.values) else { return None };
    let up = if is_counter && last < before { *last } else { last - before };
    (last_ns > before_ns).then(|| (up, seconds(last_ns - before_ns)))
}

pub(super) fn irate(view: &View<'_>, _: &Ask) -> f64 {
    instant(view, true).map_or(HOLE, |(up, seconds)| up / seconds)
}

pub(super) fn idelta(view: &View<'_>, _: &Ask) -> f64 {
    instant(view, false).map_or(HOLE, |(up, _)| up)
}

pub(super) fn sum(view: &View<'_>, _: &Ask) -> f64 {
    let mut sum = Kahan::default();
    view.values.iter().for_each(|value| sum.add(*value));
    if sum.sum.is_infinite() { sum.sum } else { sum.total() }
}

pub(super) fn avg(view: &View<'_>, _: &Ask) -> f64 {
    let mut mean = Mean::of(view.values[0]);
    view.values[1..].iter().for_each(|value| mean.add(*value));
    mean.value()
}

pub(super) fn stdvar(view: &View<'_>, _: &Ask) -> f64 {
    let (mut count, mut mean, mut squares) = (0.0, Kahan::default(), Kahan::default());
    for value in view.values {
        count += 1.0;
        let off = value - mean.total();
        mean.add(off / count);
        squares.add(off * (value - mean.total()));
    }
    squares.total() / count
}

pub(super) fn stddev(view: &View<'_>, ask: &Ask) -> f64 {
    stdvar(view, ask).sqrt()
}

pub(super) fn quantile_of(view: &View<'_>, ask: &Ask) -> f64 {
    quantile(ask.number, &mut view.values.to_vec())
}

/// Slope a second, and the value at a time.
fn regression(view: &View<'_>, time_ns: i64) -> Option<(f64, f64)> {
    let [first, _, ..] = view.values else { return None };
    if view.values.iter().all(|value| value == first) {
        return Some(if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, *first) });
    }
    let [mut x, mut y, mut xy, mut xx] = [Kahan::default(); 4];
    let mut n = 0.0;
    for (own_ns, value) in view.times_ns.iter().zip(view.values) {
        let at = seconds(own_ns - time_ns);
        n += 1.0;
        x.add(at);
        y.add(*value);
        xy.add(at * value);
        xx.add(at * at);
    }
    let [x, y, xy, xx] = [x, y, xy, xx].map(Kahan::total);
    let slope = (xy - x * y / n) / (xx - x * x / n);
    Some((slope, y / n - slope * x / n))
}

pub(super) fn deriv(view: &View<'_>, _: &Ask) -> f64 {
    // Near the samples: differences of large times are exact, their squares are not.
    regression(view, view.times_ns[0]).map_or(HOLE, |(slope, _)| slope)
}

pub(super) fn predict_linear(view: &View<'_>, ask: &Ask) -> f64 {
    regression(view, ask.time_ns).map_or(HOLE, |(slope, now)| slope * ask.number + now)
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
    fn value(&mut self, view: &View<'_>, _: &Ask) -> f64 {
        while self.at.front().is_some_and(|at| *at <= view.first) {
            self.at.pop_front();
        }
        let fresh = (view.values.len() - view.fresh).max(1)..view.values.len();
        let counted = fresh.filter(|at| (self.counts)(view.values[at - 1], view.values[*at]));
        self.at.extend(counted.map(|at| view.first + at));
        if view.values.is_empty() { HOLE } else { self.at.len() as f64 }
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
    fn value(&mut self, view: &View<'_>, _: &Ask) -> f64 {
        while self.stairs.front().is_some_and(|(at, _)| *at < view.first) {
            self.stairs.pop_front();
        }
        for at in view.values.len() - view.fresh..view.values.len() {
            let value = view.values[at];
            if value.is_nan() {
                continue;
            }
            while self.stairs.back().is_some_and(|(_, last)| (self.beyond)(value, *last)) {
                self.stairs.pop_back();
            }
            self.stairs.push_back((view.first + at, value));
        }
        match self.stairs.front() {
            Some((_, value)) => *value,
            // All that are there are NaN.
            None => view.values.last().copied().unwrap_or(HOLE),
        }
    }
}
