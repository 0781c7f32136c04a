// SPDX-License-Identifier: Apache-2.0
//! Sums and orders of floats as Prometheus has them.

use std::cmp::Ordering;

use crate::error::QueryError;
pub(super) use crate::kahan::Kahan;
use crate::limits::{Budget, PIECE};

/// An average: a sum as long as that is finite, from then on a mean that is corrected value by value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mean {
    sum: Kahan,
    count: f64,
    is_mean: bool,
}

impl Mean {
    pub(super) fn of(first: f64) -> Self {
        Self { sum: Kahan { sum: first, lost: 0.0 }, count: 1.0, is_mean: false }
    }

    #[inline]
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1.0;
        if !self.is_mean {
            let mut sum = self.sum;
            sum.add(value);
            if !sum.sum.is_infinite() {
                self.sum = sum;
                return;
            }
            self.is_mean = true;
            self.sum.sum /= self.count - 1.0;
            self.sum.lost /= self.count - 1.0;
        }
        let weight = (self.count - 1.0) / self.count;
        self.sum.sum *= weight;
        self.sum.lost *= weight;
        self.sum.add(value / self.count);
    }

    pub(super) fn value(self) -> f64 {
        let count = if self.is_mean { 1.0 } else { self.count };
        self.sum.sum / count + self.sum.lost / count
    }
}

/// NaN is less than all others.
pub(super) fn nan_first(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// NaN comes after all others, whichever way these go.
pub(super) fn nan_last(a: f64, b: f64, descending: bool) -> Ordering {
    let order = a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
    if descending && !a.is_nan() && !b.is_nan() { order.reverse() } else { order }
}

/// The quantile of values, which it reorders.
pub(super) fn quantile(quantile: f64, values: &mut [f64], budget: &Budget) -> Result<f64, QueryError> {
    if values.is_empty() || quantile.is_nan() {
        return Ok(f64::NAN);
    }
    if quantile < 0.0 {
        return Ok(f64::NEG_INFINITY);
    }
    if quantile > 1.0 {
        return Ok(f64::INFINITY);
    }
    #[allow(clippy::cast_precision_loss)]
    let rank = quantile * (values.len() - 1) as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // an index
    let lower = rank.floor() as usize;
    let weight = rank - rank.floor();
    select(values, lower, budget)?;
    let low = values[lower];
    // Times 0 an infinite one is no number.
    if weight == 0.0 {
        return Ok(low);
    }
    let above = &mut values[lower + 1..];
    let mut high = above[0];
    budget.each(above, |_, value| {
        if nan_first(*value, high).is_lt() {
            high = *value;
        }
    })?;
    Ok(low * (1.0 - weight) + high * weight)
}

/// Puts at its place what lies there when all are in order, what is less before it, what is more behind it. As
/// `select_nth_unstable_by`, but it can be stopped.
fn select(values: &mut [f64], at: usize, budget: &Budget) -> Result<(), QueryError> {
    let (mut from, mut to) = (0, values.len());
    while to - from > PIECE {
        let mut tried: Vec<f64> = values[from..to].iter().step_by((to - from) / 64).copied().collect();
        let middle = tried.len() / 2;
        let pivot = *tried.select_nth_unstable_by(middle, |a, b| nan_first(*a, *b)).1;
        // Less than the pivot, equal to it, not looked at yet, more.
        let (mut equal, mut next, mut more) = (from, from, to);
        while next < more {
            budget.work(1)?;
            match nan_first(values[next], pivot) {
                Ordering::Less => {
                    values.swap(equal, next);
                    (equal, next) = (equal + 1, next + 1);
                }
                Ordering::Equal => next += 1,
                Ordering::Greater => {
                    more -= 1;
                    values.swap(next, more);
                }
            }
        }
        match at {
            _ if at < equal => to = equal,
            _ if at >= more => from = more,
            _ => return Ok(()),
        }
    }
    budget.work(to - from)?;
    values[from..to].select_nth_unstable_by(at - from, |a, b| nan_first(*a, *b));
    Ok(())
}

/// Infinity, even beside NaN; otherwise NaN if one is; 0 rather than -0.
pub(super) fn largest(a: f64, b: f64) -> f64 {
    match () {
        () if a == f64::INFINITY || b == f64::INFINITY => f64::INFINITY,
        () if a.is_nan() || b.is_nan() => f64::NAN,
        () if a == 0.0 && b == 0.0 => a + b,
        () => a.max(b),
    }
}

/// As [`largest`], the other way.
pub(super) fn least(a: f64, b: f64) -> f64 {
    -largest(-a, -b)
}
