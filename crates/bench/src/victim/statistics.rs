// SPDX-License-Identifier: Apache-2.0
//! Ratios of pairs, with what can be said of them.

/// The median of ratios and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// Whether nothing is shown: a ratio of 1 lies within.
    pub(crate) fn includes_one(self) -> bool {
        (self.low..=self.high).contains(&1.0)
    }
}

const RESAMPLES: usize = 10_000;

/// By bootstrap: medians of samples drawn with replacement, 10,000 times, the middle 95 % of them (percentile method, Efron 1979). The median, because
/// disturbances by the rest of the machine are few, large, and to one side. Deterministic.
pub(crate) fn bootstrap(ratios: &[f64]) -> Option<Interval> {
    if ratios.is_empty() {
        return None;
    }
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut drawn = vec![0.0; ratios.len()];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for one in &mut drawn {
            *one = ratios[random.below(ratios.len())];
        }
        medians.push(median(&mut drawn));
    }
    medians.sort_by(f64::total_cmp);
    let (low, high) = (medians[RESAMPLES / 40], medians[RESAMPLES - 1 - RESAMPLES / 40]);
    Some(Interval { median: median(&mut ratios.to_vec()), low, high })
}

/// Sorts; the middle, or the mean of both middles.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len().is_multiple_of(2) { f64::midpoint(values[half - 1], values[half]) } else { values[half] }
}

/// xorshift64*: the order of runs and the draws of the bootstrap are the same each time.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        usize::try_from((word * end as u64) >> 32).unwrap_or(0)
    }

    pub(crate) fn shuffle<T>(&mut self, values: &mut [T]) {
        for end in (2..=values.len()).rev() {
            values.swap(end - 1, self.below(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_narrows_with_the_root_of_the_number() {
        // Ratios of 0.9, off by up to a tenth of it.
        let mut random = Random(7);
        let mut ratios = |count: usize| -> Vec<f64> {
            (0..count).map(|_| 0.81 + 0.18 * random.below(1001) as f64 / 1000.0).collect()
        };
        let (few, many) = (bootstrap(&ratios(25)).unwrap(), bootstrap(&ratios(2500)).unwrap());
        for interval in [few, many] {
            assert!(interval.low <= interval.median && interval.median <= interval.high, "{interval:?}");
            assert!(interval.low < 0.9 && interval.high > 0.89 && !interval.includes_one(), "{interval:?}");
        }
        let narrowing = (few.high - few.low) / (many.high - many.low);
        assert!((4.0..25.0).contains(&narrowing), "{narrowing}");
        assert_eq!(bootstrap(&[]), None);
        assert!(bootstrap(&[0.9, 1.1, 0.95, 1.05]).unwrap().includes_one());
    }

    #[test]
    fn disturbances_do_not_move_the_median() {
        let mut ratios = vec![1.0; 57];
        ratios.extend([0.3, 0.2, 0.1]);
        assert_eq!(bootstrap(&ratios), Some(Interval { median: 1.0, low: 1.0, high: 1.0 }));
    }

    #[test]
    fn shuffling_keeps_all_and_reaches_every_order() {
        let mut seen = std::collections::BTreeSet::new();
        let mut random = Random(1);
        for _ in 0..200 {
            let mut values = [0, 1, 2];
            random.shuffle(&mut values);
            seen.insert(values);
        }
        assert_eq!(seen.len(), 6);
    }
}
