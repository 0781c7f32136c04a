// SPDX-License-Identifier: Apache-2.0
//! Ratios of pairs, with what can be said of them.

use crate::report::median;

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

/// Chance of an interval to lie wholly on one side of the true median.
const TAIL: f64 = 0.025;
/// Beyond, 2^-n is no number any more.
pub(crate) const MAX_RATIOS: usize = 1000;

/// The interval between the k-th smallest and the k-th largest ratio, with the largest k for which fair coins would put
/// fewer than k of them on one side of the median in at most 2.5 % of cases (sign test; Conover, Practical
/// Nonparametric Statistics, 3.2). It assumes nothing of the distribution. The median, because disturbances by the rest
/// of the machine are few, large, and to one side. Fewer than 6 ratios say nothing: the interval is everything.
pub(crate) fn interval(ratios: &[f64]) -> Option<Interval> {
    let count = ratios.len();
    if count == 0 || count > MAX_RATIOS {
        return None;
    }
    let mut sorted = ratios.to_vec();
    let median = median(&mut sorted);
    // The chance of exactly `index` of `count`, and of at most that many.
    let mut exactly = 0.5f64.powi(i32::try_from(count).ok()?);
    let (mut at_most, mut k) = (exactly, 0);
    while at_most <= TAIL {
        k += 1;
        exactly *= (count - k + 1) as f64 / k as f64;
        at_most += exactly;
    }
    let (low, high) = if k == 0 { (0.0, f64::INFINITY) } else { (sorted[k - 1], sorted[count - k]) };
    Some(Interval { median, low, high })
}

/// xorshift64*: the order of runs is the same each time.
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
    fn ranks_are_those_of_the_tables() {
        // Tables of the sign test: 6 ratios: 1st and 6th; 10: 2nd and 9th; 20: 6th and 15th; 60: 22nd and 39th.
        for (count, low, high) in [(6, 1.0, 6.0), (10, 2.0, 9.0), (20, 6.0, 15.0), (60, 22.0, 39.0)] {
            let ratios: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            let median = f64::from(count + 1) / 2.0;
            assert_eq!(interval(&ratios), Some(Interval { median, low, high }), "{count}");
        }
        assert_eq!(interval(&[1.0; MAX_RATIOS]), Some(Interval { median: 1.0, low: 1.0, high: 1.0 }));
        assert_eq!(interval(&[]), None);
        assert!(interval(&[0.5; 5]).unwrap().includes_one(), "5 say nothing, however clear they look");
        assert!(!interval(&[0.5; 6]).unwrap().includes_one());
    }

    #[test]
    fn disturbances_do_not_move_the_median() {
        let mut ratios = vec![1.0; 57];
        ratios.extend([0.3, 0.2, 0.1]);
        assert_eq!(interval(&ratios), Some(Interval { median: 1.0, low: 1.0, high: 1.0 }));
    }

    #[test]
    fn nineteen_of_twenty_intervals_hold_the_truth() {
        // Skewed: products of three, median near 0.1; the true one from many draws.
        let mut random = Random(7);
        let mut draw = || (0..3).map(|_| random.below(1_000_000) as f64 / 1e6).product::<f64>();
        let mut many: Vec<f64> = (0..100_001).map(|_| draw()).collect();
        let truth = median(&mut many);
        let held = (0..1000).filter(|_| {
            let ratios: Vec<f64> = (0..60).map(|_| draw()).collect();
            interval(&ratios).is_some_and(|found| (found.low..=found.high).contains(&truth))
        });
        let held = held.count();
        assert!((930..=990).contains(&held), "{held} of 1000");
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
