// SPDX-License-Identifier: Apache-2.0
//! `</` and `>/`: a histogram without observations above or below a value. What they summed up to is estimated anew
//! from what is left.

use super::bounds::Bucket;
use super::{Buckets, Histogram};

/// What is left of a bucket, and where it lies on average.
#[derive(Clone, Copy)]
struct Left {
    count: f64,
    middle: f64,
}

/// Which side of a value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Below,
    Above,
}

fn middle(lower: f64, upper: f64, is_linear: bool) -> f64 {
    match (lower.is_infinite(), upper.is_infinite()) {
        (true, true) => 0.0,
        (true, false) => {
            if upper > 0.0 {
                upper / 2.0
            } else {
                upper
            }
        }
        (false, true) => lower,
        (false, false) if is_linear => f64::midpoint(lower, upper),
        (false, false) => (lower * upper).abs().sqrt().copysign(lower + upper),
    }
}

fn trim(bucket: Bucket, at: f64, keep: Keep, is_linear: bool) -> Left {
    let Bucket { lower, upper, count } = bucket;
    let (is_whole, is_cut) = match keep {
        Keep::Below => (upper <= at, lower < at),
        Keep::Above => (lower >= at, upper > at),
    };
    match () {
        () if is_whole => Left { count, middle: middle(lower, upper, is_linear) },
        () if !is_cut => Left { count: 0.0, middle: 0.0 },
        () if lower == f64::NEG_INFINITY => without_begin(bucket, at, keep),
        () if upper == f64::INFINITY => {
            // How far it reaches is not known: nothing of it is surely below, all of it may be above.
            let count = if keep == Keep::Above && at >= lower { count } else { 0.0 };
            Left { count, middle: at }
        }
        () => {
            let below = match () {
                () if at <= lower => 0.0,
                () if at >= upper => count,
                () => count * bucket.part_below(at, is_linear),
            };
            match keep {
                Keep::Below => Left { count: below, middle: middle(lower, at, is_linear) },
                Keep::Above => Left { count: count - below, middle: middle(at, upper, is_linear) },
            }
        }
    }
}

/// The first of custom buckets, with `at` inside. If it ends above zero, it begins there.
fn without_begin(bucket: Bucket, at: f64, keep: Keep) -> Left {
    let Bucket { upper, count, .. } = bucket;
    let ends_above = upper > 0.0 && upper.is_finite();
    match keep {
        Keep::Below if at > 0.0 && ends_above => Left { count: count * at / upper, middle: at / 2.0 },
        Keep::Below if upper <= 0.0 => Left { count, middle: at },
        Keep::Above if at == f64::NEG_INFINITY => Left { count, middle: 0.0 },
        Keep::Above if at >= 0.0 && ends_above => {
            Left { count: count * (1.0 - at / upper), middle: f64::midpoint(at, upper) }
        }
        _ => Left { count: 0.0, middle: 0.0 },
    }
}

/// The bucket of zero, which begins or ends there if there is nothing on that side.
fn trim_zero(bucket: Bucket, at: f64, keep: Keep, has_negative: bool, has_positive: bool) -> Left {
    let lower = if has_positive && !has_negative { 0.0 } else { bucket.lower };
    let upper = if has_negative && !has_positive { 0.0 } else { bucket.upper };
    let (is_gone, is_whole) = match keep {
        Keep::Below => (at <= lower, at >= upper),
        Keep::Above => (at >= upper, at <= lower),
    };
    let (from, to) = if keep == Keep::Below { (lower, at) } else { (at, upper) };
    match () {
        () if keep == Keep::Below && is_gone => Left { count: 0.0, middle: 0.0 },
        () if is_whole => Left { count: bucket.count, middle: f64::midpoint(lower, upper) },
        () if is_gone => Left { count: 0.0, middle: 0.0 },
        () => Left { count: bucket.count * ((to - from) / (upper - lower)), middle: f64::midpoint(from, to) },
    }
}

impl Histogram {
    /// Without observations on the other side of a value.
    pub(crate) fn trimmed(&self, at: f64, keep: Keep) -> Self {
        let mut trimmed = self.clone();
        let (mut count, mut sum, mut is_trimmed) = (0.0, 0.0, false);
        let mut take = |slot: &mut f64, left: Left| {
            count += left.count;
            sum += left.middle * left.count;
            is_trimmed |= *slot != left.count;
            *slot = left.count;
        };
        let is_linear = self.is_custom();
        let sides: [(&mut Buckets, Vec<Bucket>); 2] =
            [(&mut trimmed.positive, self.positives().collect()), (&mut trimmed.negative, self.negatives().collect())];
        for (slots, buckets) in sides {
            for ((_, slot), bucket) in slots.iter_mut().zip(buckets) {
                take(slot, trim(bucket, at, keep, is_linear));
            }
        }
        if let Some(zero) = self.zero() {
            let left = trim_zero(zero, at, keep, !self.negative.is_empty(), !self.positive.is_empty());
            take(&mut trimmed.zero_count, left);
        }
        if is_trimmed {
            (trimmed.count, trimmed.sum) = (count, sum);
            trimmed.compact();
        }
        trimmed
    }
}
