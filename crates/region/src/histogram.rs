// SPDX-License-Identifier: Apache-2.0
//! Log-linear histograms (docs/format/schema.md, "Histograms"): mergeable, relative error at most 2^-grouping_power.

use crate::number::exported;
use serde::{Deserialize, Serialize};

/// Shape of a histogram; only histograms of equal shape can be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Each power of two has 2^grouping_power buckets.
    pub grouping_power: u8,
    /// Values of 2^max_power and more count in the last bucket.
    pub max_power: u8,
}

/// A cumulative bucket as Prometheus has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cumulative {
    /// Upper bound (inclusive), in the scaled unit.
    pub le: f64,
    /// Records at or below it.
    pub count: u64,
}

impl Shape {
    /// Whether the powers are in range; how many buckets there may be is a limit of its own.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.grouping_power < self.max_power && self.max_power <= 64
    }

    /// Number of buckets.
    #[must_use]
    pub fn buckets(self) -> usize {
        (usize::from(self.max_power - self.grouping_power) + 1).saturating_mul(1 << self.grouping_power.min(63))
    }

    /// Slots in a group: the buckets and the sum.
    #[must_use]
    pub fn slots(self) -> usize {
        self.buckets().saturating_add(1)
    }

    /// Bucket of a value.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // below buckets(), which is at most 4096
    pub fn index(self, value: u64) -> usize {
        let g = u32::from(self.grouping_power);
        if value < 2 << g {
            return value as usize;
        }
        let power = value.ilog2();
        let index = (u64::from(power - g + 1) << g) + ((value - (1 << power)) >> (power - g));
        (index as usize).min(self.buckets() - 1)
    }

    /// Smallest and largest value of a bucket (the last one is open-ended in practice).
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // index is below 4096
    pub fn range(self, index: usize) -> (u64, u64) {
        let g = u32::from(self.grouping_power);
        let index = index as u64;
        if index < 2 << g {
            return (index, index);
        }
        let power = (index >> g) as u32 - 1 + g;
        let part = index & ((1 << g) - 1);
        let low = (1u64 << power) + (part << (power - g));
        (low, low + ((1u64 << (power - g)) - 1))
    }

    /// Cumulative buckets, one per power of two, for values scaled by `scale`; `+Inf` is the total and not in the list.
    ///
    /// # Panics
    /// If `buckets` is not [`Shape::buckets`] long.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a bound is as exact as a double is
    pub fn cumulative(self, buckets: &[u64], scale: f64) -> Vec<Cumulative> {
        assert_eq!(buckets.len(), self.buckets());
        let mut count = 0u64;
        let mut out = Vec::with_capacity(usize::from(self.max_power) + 1);
        for (index, bucket) in buckets[..buckets.len() - 1].iter().enumerate() {
            count = count.wrapping_add(*bucket);
            let high = self.range(index).1;
            if high.wrapping_add(1).is_power_of_two() {
                out.push(Cumulative { le: exported(high as f64, scale), count });
            }
        }
        out
    }
}

/// Adds `from` to `into`, bucket by bucket (and the sum, where both have it).
///
/// # Panics
/// If the lengths differ: shapes must be compared first.
pub fn merge(into: &mut [u64], from: &[u64]) {
    assert_eq!(into.len(), from.len());
    for (to, from) in into.iter_mut().zip(from) {
        *to = to.wrapping_add(*from);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::limits::MAX_HISTOGRAM_BUCKETS;

    fn shapes() -> impl Iterator<Item = Shape> {
        (0..12)
            .flat_map(|g| (g + 1..=64).map(move |n| Shape { grouping_power: g, max_power: n }))
            .filter(|s| s.is_valid() && s.buckets() <= MAX_HISTOGRAM_BUCKETS)
    }

    #[test]
    fn ranges_tile_the_values() {
        for shape in shapes() {
            let mut next = 0u64;
            for index in 0..shape.buckets() {
                let (low, high) = shape.range(index);
                assert_eq!((low, shape.index(low), shape.index(high)), (next, index, index), "{shape:?}");
                next = high.wrapping_add(1);
            }
            let end = 1u64.checked_shl(u32::from(shape.max_power)).unwrap_or(0);
            assert_eq!(next, end, "{shape:?}");
        }
    }

    #[test]
    fn a_value_lies_in_its_bucket_and_the_bucket_is_narrow() {
        bolero::check!().with_type::<(u8, u64)>().for_each(|(g, value)| {
            let shape = Shape { grouping_power: g % 6, max_power: 64 };
            let (low, high) = shape.range(shape.index(*value));
            assert!(low <= *value && *value <= high);
            assert!(high - low <= low >> shape.grouping_power);
        });
    }

    #[test]
    fn too_large_values_count_in_the_last_bucket() {
        let shape = Shape { grouping_power: 2, max_power: 10 };
        assert_eq!(shape.index(u64::MAX), shape.buckets() - 1);
        assert_eq!(shape.index(1023), shape.buckets() - 1);
        assert_ne!(shape.index(800), shape.buckets() - 1);
    }

    #[test]
    fn cumulative_buckets_count_all_but_the_last() {
        let shape = Shape { grouping_power: 1, max_power: 4 };
        let mut buckets = vec![0; shape.buckets()];
        for value in [0, 1, 3, 4, 7, 15, 99] {
            buckets[shape.index(value)] += 1;
        }
        let got: Vec<_> = shape.cumulative(&buckets, 1.0).iter().map(|c| (c.le, c.count)).collect();
        assert_eq!(got, [(0.0, 1), (1.0, 2), (3.0, 3), (7.0, 5)]);
    }
}
