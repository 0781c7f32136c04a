// SPDX-License-Identifier: Apache-2.0
//! What is estimated of observations from their buckets: within one they lie evenly, on a logarithmic scale if it is
//! exponential.

use super::Histogram;
use super::bounds::Bucket;
use crate::kahan::Kahan;

/// A value, and what observations of NaN did to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Estimate {
    Plain(f64),
    /// There are such observations: quantiles are too high, fractions without them.
    Skewed(f64),
    /// The value would be one of those.
    Lost,
}

impl Bucket {
    /// Which part lies below a value between its bounds, which are finite.
    pub(super) fn part_below(&self, value: f64, is_linear: bool) -> f64 {
        if is_linear {
            return (value - self.lower) / (self.upper - self.lower);
        }
        let [lower, upper, value_at] = [self.lower, self.upper, value].map(|bound| bound.abs().log2());
        if value > 0.0 { (value_at - lower) / (upper - lower) } else { 1.0 - (value_at - upper) / (lower - upper) }
    }

    fn has_zero(&self) -> bool {
        self.lower <= 0.0 && self.upper >= 0.0
    }
}

impl Histogram {
    /// The bucket of zero reaches only to zero where there is nothing on its other side.
    fn narrowed(&self, mut bucket: Bucket) -> Bucket {
        match (self.negative.is_empty(), self.positive.is_empty()) {
            (true, false) => bucket.lower = 0.0,
            (false, true) => bucket.upper = 0.0,
            _ => {}
        }
        bucket
    }

    pub(crate) fn quantile(&self, quantile: f64) -> Estimate {
        if quantile < 0.0 {
            return Estimate::Plain(f64::NEG_INFINITY);
        }
        if quantile > 1.0 {
            return Estimate::Plain(f64::INFINITY);
        }
        if self.count == 0.0 || quantile.is_nan() {
            return Estimate::Plain(f64::NAN);
        }
        let buckets = self.buckets();
        // From the nearer end: less is summed up. Observations of NaN are missing at the upper one.
        let is_forward = self.sum.is_nan() || quantile < 0.5;
        let mut rank = if is_forward { quantile * self.count } else { (1.0 - quantile) * self.count };
        let mut order: Box<dyn Iterator<Item = &Bucket>> =
            if is_forward { Box::new(buckets.iter()) } else { Box::new(buckets.iter().rev()) };
        let (mut bucket, mut count) = (Bucket { lower: 0.0, upper: 0.0, count: 0.0 }, 0.0);
        for own in order.by_ref().filter(|own| own.count != 0.0) {
            bucket = *own;
            count += own.count;
            if count >= rank {
                break;
            }
        }
        if self.is_custom() {
            if bucket.lower == f64::NEG_INFINITY {
                if bucket.upper <= 0.0 {
                    return Estimate::Plain(bucket.upper);
                }
                bucket.lower = 0.0;
            } else if bucket.upper == f64::INFINITY {
                return Estimate::Plain(bucket.lower);
            }
        } else if bucket.lower < 0.0 && bucket.upper > 0.0 {
            bucket = self.narrowed(bucket);
        }
        count = count.min(self.count);
        if count < rank {
            return if self.sum.is_nan() { Estimate::Lost } else { Estimate::Plain(bucket.upper) };
        }
        rank = if is_forward { rank - (count - bucket.count) } else { count - rank };
        let is_skewed = self.sum.is_nan() && count + order.map(|own| own.count).sum::<f64>() < self.count;
        let value = self.inside(bucket, rank / bucket.count);
        if is_skewed { Estimate::Skewed(value) } else { Estimate::Plain(value) }
    }

    /// Where a part of a bucket ends.
    fn inside(&self, bucket: Bucket, part: f64) -> f64 {
        let Bucket { lower, upper, .. } = bucket;
        if self.is_custom() || bucket.has_zero() {
            return lower + (upper - lower) * part;
        }
        let [from, to] = [lower, upper].map(|bound| bound.abs().log2());
        if lower > 0.0 { (from + (to - from) * part).exp2() } else { -(to + (from - to) * (1.0 - part)).exp2() }
    }

    /// Which part of all observations lies between two values.
    pub(crate) fn fraction(&self, lower: f64, upper: f64) -> Estimate {
        if self.count == 0.0 || lower.is_nan() || upper.is_nan() {
            return Estimate::Plain(f64::NAN);
        }
        if lower >= upper {
            return Estimate::Plain(0.0);
        }
        let buckets = self.buckets();
        let inside = buckets.iter().map(|bucket| bucket.count).sum::<f64>();
        let count = if self.sum.is_nan() { inside } else { self.count };
        let [from, to] = [lower, upper].map(|value| {
            let rank = self.rank(&buckets, value);
            rank.map_or(count, |rank| if rank > count { count } else { rank })
        });
        let fraction = (to - from) / self.count;
        let is_skewed = self.sum.is_nan() && inside < self.count;
        if is_skewed { Estimate::Skewed(fraction) } else { Estimate::Plain(fraction) }
    }

    /// How many observations are less than a value; `None`: all.
    fn rank(&self, buckets: &[Bucket], value: f64) -> Option<f64> {
        let mut rank = 0.0;
        for bucket in buckets {
            let mut bucket = *bucket;
            let is_zero = !self.is_custom() && bucket.has_zero();
            if is_zero {
                bucket = self.narrowed(bucket);
            } else if self.is_custom() && bucket.lower == f64::NEG_INFINITY && bucket.upper > 0.0 {
                bucket.lower = 0.0;
            }
            if bucket.lower >= value {
                return Some(rank);
            }
            if bucket.upper > value {
                let is_linear = self.is_custom() || is_zero;
                // Without a begin there is nothing to go by.
                return Some(match is_linear && bucket.lower == f64::NEG_INFINITY {
                    true => bucket.count,
                    false => rank + bucket.count * bucket.part_below(value, is_linear),
                });
            }
            rank += bucket.count;
        }
        None
    }

    pub(crate) fn variance(&self) -> f64 {
        let mean = self.sum / self.count;
        let mut squares = Kahan::default();
        for bucket in self.buckets().iter().filter(|bucket| bucket.count != 0.0) {
            let Bucket { lower, upper, count } = *bucket;
            let value = match () {
                () if self.is_custom() => f64::midpoint(lower, upper),
                () if bucket.has_zero() => 0.0,
                () => (lower * upper).sqrt().copysign(upper),
            };
            squares.add(count * (value - mean) * (value - mean));
        }
        squares.total() / self.count
    }
}
