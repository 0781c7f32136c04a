// SPDX-License-Identifier: Apache-2.0
//! Sums and orders of floats as Prometheus has them.

use std::cmp::Ordering;

/// A sum and what rounding lost of it (Kahan's, with Neumaier's improvement).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kahan {
    pub(super) sum: f64,
    pub(super) lost: f64,
}

impl Kahan {
    #[inline]
    pub(super) fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        if sum.is_infinite() {
            self.lost = 0.0;
        } else if self.sum.abs() >= value.abs() {
            self.lost += (self.sum - sum) + value;
        } else {
            self.lost += (value - sum) + self.sum;
        }
        self.sum = sum;
    }

    pub(super) fn total(self) -> f64 {
        self.sum + self.lost
    }
}

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
pub(super) fn quantile(quantile: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || quantile.is_nan() {
        return f64::NAN;
    }
    if quantile < 0.0 {
        return f64::NEG_INFINITY;
    }
    if quantile > 1.0 {
        return f64::INFINITY;
    }
    #[allow(clippy::cast_precision_loss)]
    let rank = quantile * (values.len() - 1) as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // an index
    let lower = rank.floor() as usize;
    let weight = rank - rank.floor();
    let (_, low, above) = values.select_nth_unstable_by(lower, |a, b| nan_first(*a, *b));
    let low = *low;
    if weight == 0.0 {
        return low;
    }
    let high = above.iter().copied().min_by(|a, b| nan_first(*a, *b)).unwrap_or(low);
    low * (1.0 - weight) + high * weight
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
