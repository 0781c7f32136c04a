// SPDX-License-Identifier: Apache-2.0
//! Where buckets begin and end.

use super::{Buckets, Histogram, Scale};

/// A bucket with its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bucket {
    pub(super) lower: f64,
    pub(super) upper: f64,
    pub(super) count: f64,
}

/// A bucket as it is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Where it begins.
    pub lower: f64,
    /// Where it ends.
    pub upper: f64,
    /// Whether what is equal to the lower bound is in it.
    pub has_lower: bool,
    /// The same of the upper one.
    pub has_upper: bool,
    /// How many observations it has.
    pub count: f64,
}

/// 2 to a power, exact or rounded to zero or infinity.
fn power_of_two(exponent: i32) -> f64 {
    match exponent {
        1_024.. => f64::INFINITY,
        -1_022..=1_023 => f64::from_bits(u64::from((exponent + 1_023).unsigned_abs()) << 52),
        -1_074..=-1_023 => f64::from_bits(1 << (exponent + 1_074)),
        _ => 0.0,
    }
}

/// Where an exponential bucket ends. The bound of the largest finite numbers is the largest of these: beyond it lies
/// only the bucket of infinity.
pub(super) fn exponential(number: i32, schema: i8) -> f64 {
    if schema <= 0 {
        let exponent = i64::from(number) << -schema;
        return match i32::try_from(exponent) {
            Ok(1_024) => f64::MAX,
            Ok(exponent) => power_of_two(exponent),
            Err(_) if exponent > 0 => f64::INFINITY,
            Err(_) => 0.0,
        };
    }
    let (exponent, step) = (number >> schema, number & ((1 << schema) - 1));
    match (exponent, step) {
        (1_024, 0) => f64::MAX,
        (1_024.., _) => f64::INFINITY,
        _ => (f64::from(step) / f64::from(1 << schema)).exp2() * power_of_two(exponent),
    }
}

/// The bucket of a lower schema that holds this one.
pub(super) fn coarser(number: i32, from: i8, to: i8) -> i32 {
    ((number - 1) >> (from - to)) + 1
}

/// Bounds of a positive bucket, or of one with custom bounds.
pub(super) fn of(scale: &Scale, number: i32) -> (f64, f64) {
    match scale {
        Scale::Exponential { schema, .. } => (exponential(number - 1, *schema), exponential(number, *schema)),
        Scale::Custom(bounds) => {
            let at = |number: i32| usize::try_from(number).ok();
            let bound = |number| at(number).and_then(|at| bounds.get(at)).copied();
            (
                at(number - 1).map_or(f64::NEG_INFINITY, |_| bound(number - 1).unwrap_or(f64::INFINITY)),
                bound(number).unwrap_or(f64::INFINITY),
            )
        }
    }
}

impl Histogram {
    fn side<'a>(&'a self, buckets: &'a Buckets) -> impl DoubleEndedIterator<Item = Bucket> + 'a {
        let threshold = self.zero_threshold();
        buckets.iter().map(move |(number, count)| {
            let (lower, upper) = of(&self.scale, *number);
            // What lies in the bucket of zero does not belong to one beside it.
            let lower = if lower > 0.0 && lower < threshold { threshold } else { lower };
            Bucket { lower, upper, count: *count }
        })
    }

    pub(super) fn positives(&self) -> impl DoubleEndedIterator<Item = Bucket> {
        self.side(&self.positive)
    }

    /// From those near zero on.
    pub(super) fn negatives(&self) -> impl DoubleEndedIterator<Item = Bucket> {
        self.side(&self.negative).map(|Bucket { lower, upper, count }| Bucket { lower: -upper, upper: -lower, count })
    }

    pub(super) fn zero(&self) -> Option<Bucket> {
        let threshold = self.zero_threshold();
        (self.zero_count > 0.0).then_some(Bucket { lower: -threshold, upper: threshold, count: self.zero_count })
    }

    /// Buckets with observations, by their bounds.
    #[must_use]
    pub fn intervals(&self) -> Vec<Interval> {
        let is_custom = self.is_custom();
        let shown = |Bucket { lower, upper, count }: Bucket| {
            let has_lower = if is_custom { lower == f64::NEG_INFINITY } else { lower < 0.0 };
            Interval { lower, upper, has_lower, has_upper: is_custom || upper > 0.0, count }
        };
        let threshold = self.zero_threshold();
        let zero =
            Interval { lower: -threshold, upper: threshold, has_lower: true, has_upper: true, count: self.zero_count };
        let all = self.negatives().rev().map(shown).chain([zero]).chain(self.positives().map(shown));
        all.filter(|interval| interval.count != 0.0).collect()
    }

    /// All of them, by their bounds.
    pub(super) fn buckets(&self) -> Vec<Bucket> {
        self.negatives().rev().chain(self.zero()).chain(self.positives()).collect()
    }
}

impl<N> Histogram<N> {
    pub(super) fn zero_threshold(&self) -> f64 {
        if let Scale::Exponential { zero_threshold, .. } = self.scale { zero_threshold } else { 0.0 }
    }
}
