// SPDX-License-Identifier: Apache-2.0
//! Native histograms: how many observations fell into each of many buckets, as one value of a series.
//!
//! | module | what |
//! |---|---|
//! | `bounds` | where buckets begin and end |
//! | `combine` | sums and differences, also of histograms with other buckets; whether a counter began again |
//! | `estimate` | quantiles, fractions and variances |
//! | `trim` | a histogram without what lies above or below a value |
//! | `text` | as Prometheus writes one |
//!
//! Buckets are exponential, or have bounds of their own. Empty buckets are not kept, so equal histograms are equal
//! field by field.

mod bounds;
mod combine;
mod estimate;
mod text;
mod trim;

use std::mem::size_of_val;
use std::sync::Arc;

pub use bounds::Interval;
pub(crate) use combine::Combined;
pub(crate) use estimate::Estimate;
pub(crate) use trim::Keep;

use crate::kahan::{Kahan, Number};

/// The widest exponential buckets: each ends at 65,536 times the bound before.
pub const MIN_SCHEMA: i8 = -4;
/// The narrowest: 256 of them double the bound.
pub const MAX_SCHEMA: i8 = 8;

/// What is known of a histogram's counts beside those of the sample before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    /// Nothing.
    #[default]
    Unknown,
    /// They began again at 0.
    Reset,
    /// They went on.
    NotReset,
    /// They are no counter's.
    Gauge,
}

/// Bounds of buckets.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Bucket `i` ends at 2 to the power of `i / 2^schema`, where bucket `i + 1` begins; the upper bound belongs to it.
    Exponential {
        /// [`MIN_SCHEMA`] to [`MAX_SCHEMA`].
        schema: i8,
        /// The bucket of zero holds what is not further away from it.
        zero_threshold: f64,
    },
    /// Bucket `i` ends at bound `i`, the last one has no end. These rise and are finite.
    Custom(Arc<[f64]>),
}

/// Numbers of buckets and how many observations each has, in the order of the numbers.
pub type Buckets<N = f64> = Vec<(i32, N)>;

/// A native histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram<N = f64> {
    /// Where buckets begin and end.
    pub scale: Scale,
    /// All observations, those of NaN, which no exponential bucket holds, among them.
    pub count: N,
    /// What was observed, summed up.
    pub sum: N,
    /// Observations near zero; only exponential ones have that.
    pub zero_count: N,
    /// Of observations above zero, or of all with custom bounds.
    pub positive: Buckets<N>,
    /// Of observations below zero, by their distance from it; only exponential ones have these.
    pub negative: Buckets<N>,
    /// What is known of the counter.
    pub hint: Hint,
}

impl Histogram {
    /// Without observations.
    #[must_use]
    pub fn empty(scale: Scale) -> Self {
        let (positive, negative) = (Vec::new(), Vec::new());
        Self { scale, count: 0.0, sum: 0.0, zero_count: 0.0, positive, negative, hint: Hint::Unknown }
    }

    /// Drops buckets without observations.
    pub fn compact(&mut self) {
        self.positive.retain(|(_, count)| *count != 0.0);
        self.negative.retain(|(_, count)| *count != 0.0);
    }

    /// As a counter's or gauge's value it is the same, bit by bit. The hint does not matter.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let same = |a: f64, b: f64| a.to_bits() == b.to_bits();
        let all =
            |a: &Buckets, b: &Buckets| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && same(a.1, b.1));
        self.scale == other.scale
            && same(self.count, other.count)
            && same(self.sum, other.sum)
            && same(self.zero_count, other.zero_count)
            && all(&self.positive, &other.positive)
            && all(&self.negative, &other.negative)
    }

    /// What it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let bounds = if let Scale::Custom(bounds) = &self.scale { size_of_val(&**bounds) } else { 0 };
        size_of::<Self>() + bounds + (self.positive.len() + self.negative.len()) * size_of::<(i32, f64)>()
    }

    /// How narrow buckets are, if they are exponential.
    pub(crate) fn schema(&self) -> Option<i8> {
        if let Scale::Exponential { schema, .. } = self.scale { Some(schema) } else { None }
    }

    /// To be summed up.
    pub(crate) fn sums(&self) -> Histogram<Kahan> {
        self.convert(Kahan::of)
    }

    pub(crate) fn with_hint(mut self, hint: Hint) -> Self {
        self.hint = hint;
        self
    }
}

impl Histogram<Kahan> {
    /// What was summed up.
    pub(crate) fn total(&self) -> Histogram {
        self.convert(Kahan::total)
    }

    /// Whether a sum is too large for f64.
    pub(crate) fn is_infinite(&self) -> bool {
        let is_infinite = |number: Kahan| number.sum.is_infinite();
        let any = |buckets: &Buckets<Kahan>| buckets.iter().any(|(_, count)| is_infinite(*count));
        [self.count, self.sum, self.zero_count].into_iter().any(is_infinite)
            || any(&self.positive)
            || any(&self.negative)
    }
}

impl<N> Histogram<N> {
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.scale, Scale::Custom(_))
    }
}

impl<N: Number> Histogram<N> {
    fn convert<M>(&self, of: impl Fn(N) -> M) -> Histogram<M> {
        let all = |buckets: &Buckets<N>| buckets.iter().map(|(number, count)| (*number, of(*count))).collect();
        Histogram {
            scale: self.scale.clone(),
            count: of(self.count),
            sum: of(self.sum),
            zero_count: of(self.zero_count),
            positive: all(&self.positive),
            negative: all(&self.negative),
            hint: self.hint,
        }
    }

    fn each(&mut self, change: impl Fn(&mut N)) {
        let buckets = self.positive.iter_mut().chain(&mut self.negative).map(|(_, count)| count);
        [&mut self.count, &mut self.sum, &mut self.zero_count].into_iter().chain(buckets).for_each(change);
    }

    /// All of it so many times. What is less than 0 is no counter's.
    pub(crate) fn multiply(&mut self, factor: f64) {
        self.each(|number| number.scale(factor));
        if factor < 0.0 {
            self.hint = Hint::Gauge;
        }
        self.drop_empty();
    }

    /// That part of all of it. By zero: without buckets.
    pub(crate) fn divide(&mut self, divisor: f64) {
        self.each(|number| number.divide(divisor));
        if divisor == 0.0 {
            self.positive.clear();
            self.negative.clear();
        }
        if divisor < 0.0 {
            self.hint = Hint::Gauge;
        }
        self.drop_empty();
    }

    fn drop_empty(&mut self) {
        self.positive.retain(|(_, count)| !count.is_zero());
        self.negative.retain(|(_, count)| !count.is_zero());
    }
}

#[cfg(test)]
mod tests;
