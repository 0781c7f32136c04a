// SPDX-License-Identifier: Apache-2.0
//! Log-linear histograms (docs/format/schema.md, "Histograms"): in a region ([`Histogram`]) and in globals ([`HistogramWords`]).
//!
//! A record is two atomic additions, to a bucket and to the sum, and loses nothing in a switch of memory.

use crate::open::{Published, Token};
use crate::owner::Owner;
use crate::plain::plain_word;
use crate::words::sealed::Sealed;
use onlooker_region::histogram::Shape;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Handle of a histogram in a region.
#[derive(Clone)]
pub struct Histogram {
    owner: Arc<Owner>,
    first: usize,
    sum: usize,
    shape: Shape,
}

impl Histogram {
    /// Counts `value`.
    #[inline]
    pub fn record(&self, value: u64) {
        let words = self.owner.words();
        words[plain_word(self.first + self.shape.index(value))].fetch_add(1, Relaxed);
        words[self.sum].fetch_add(value, Relaxed);
    }

    /// Values recorded so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        let words = self.owner.words();
        let bucket = |index: usize| words[plain_word(self.first + index)].load(Relaxed);
        (0..self.shape.buckets()).map(bucket).fold(0, u64::wrapping_add)
    }

    /// Their sum, modulo 2^64.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.owner.words()[self.sum].load(Relaxed)
    }
}

impl Sealed for Histogram {}
impl Published for Histogram {
    type Handle = Self;
    #[allow(private_interfaces)]
    fn handle(owner: &Arc<Owner>, token: Token<Self>) -> Self {
        let sum = plain_word(token.at + token.shape.buckets());
        Self { owner: owner.clone(), first: token.at, sum, shape: token.shape }
    }
}

/// A histogram in globals: `G` = grouping power, `N` = max power, `SLOTS` follows from both. Written as [`crate::histogram!`]`(3, 40)`.
#[repr(transparent)]
pub struct HistogramWords<const G: u8, const N: u8, const SLOTS: usize>([AtomicU64; SLOTS]);

/// Words of a histogram.
///
/// # Panics
/// In a constant expression, that is while compiling, if the powers are not 0 <= g < n <= 64 or the buckets more than 4096.
#[must_use]
pub const fn histogram_slots(grouping_power: u8, max_power: u8) -> usize {
    assert!(grouping_power < max_power && max_power <= 64 && grouping_power < 12, "not 0 <= g < n <= 64, g < 12");
    let buckets = ((max_power - grouping_power) as usize + 1) << grouping_power;
    assert!(buckets <= onlooker_region::limits::MAX_HISTOGRAM_BUCKETS, "more than 4096 buckets");
    buckets + 1
}

impl<const G: u8, const N: u8, const SLOTS: usize> HistogramWords<G, N, SLOTS> {
    pub(crate) const SHAPE: Shape = Shape { grouping_power: G, max_power: N };

    /// Empty.
    pub(crate) const fn new() -> Self {
        const { assert!(SLOTS == histogram_slots(G, N), "write histogram!(G, N)") };
        Self([const { AtomicU64::new(0) }; SLOTS])
    }

    /// Counts `value`.
    #[inline]
    pub fn record(&self, value: u64) {
        self.0[Self::SHAPE.index(value)].fetch_add(1, Relaxed);
        self.0[SLOTS - 1].fetch_add(value, Relaxed);
    }

    /// Values recorded so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0[..SLOTS - 1].iter().map(|bucket| bucket.load(Relaxed)).fold(0, u64::wrapping_add)
    }

    /// Their sum, modulo 2^64.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0[SLOTS - 1].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_region::limits::MAX_HISTOGRAM_BUCKETS;

    #[test]
    fn slots_are_those_of_the_shape() {
        for (g, n) in (0..12).flat_map(|g| (g + 1..=64).map(move |n| (g, n))) {
            let shape = Shape { grouping_power: g, max_power: n };
            if shape.buckets() <= MAX_HISTOGRAM_BUCKETS {
                assert_eq!(histogram_slots(g, n), shape.slots(), "{shape:?}");
            }
        }
    }

    #[test]
    fn a_histogram_of_globals_counts_like_its_shape() {
        static LATENCY: crate::histogram!(2, 10) = crate::HistogramWords::new();
        for value in [0, 5, 1023, 5000] {
            LATENCY.record(value);
        }
        assert_eq!((LATENCY.count(), LATENCY.sum()), (4, 6028));
        let shape = Shape { grouping_power: 2, max_power: 10 };
        assert_eq!(LATENCY.0[shape.buckets() - 1].load(Relaxed), 2, "too large values count in the last bucket");
    }
}
