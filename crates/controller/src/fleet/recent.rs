// SPDX-License-Identifier: Apache-2.0
//! Quantiles of the last minutes: what was hours ago, and how a controller began, says nothing of now.

use hdrhistogram::Histogram;

/// Two such pieces are kept: the newest is of at most so long, the other one of the time before, ns.
const PIECE_NS: u64 = 300_000_000_000;
/// What takes longer counts as this, us: 100 s.
const MAX_US: u64 = 100_000_000;

/// Times of the last five to ten minutes. Each piece has 256 bytes for each doubling of the longest of them from 0.2 ms on:
/// there are four pieces for each host.
#[derive(Debug)]
pub struct Recent {
    /// Of u16: 65,535 of each length are enough at 5 ms.
    now: Histogram<u16>,
    before: Histogram<u16>,
    since_ns: u64,
}

impl Default for Recent {
    fn default() -> Self {
        Self { now: piece(), before: piece(), since_ns: 0 }
    }
}

/// Without times: it grows with the longest.
fn piece() -> Histogram<u16> {
    Histogram::new(2).expect("two digits")
}

impl Recent {
    /// Takes one that ended at `now_ns`, which does not go back.
    pub fn record(&mut self, ns: u64, now_ns: u64) {
        if now_ns.saturating_sub(self.since_ns) >= PIECE_NS {
            // After a long silence what is there is not of the time before.
            let is_old = now_ns.saturating_sub(self.since_ns) >= 2 * PIECE_NS;
            let last = std::mem::replace(&mut self.now, piece());
            self.before = if is_old { piece() } else { last };
            self.since_ns = now_ns;
        }
        self.now.record((ns / 1_000).min(MAX_US)).expect("it grows, and 100 s is less than it can have");
    }

    /// These quantiles and the largest, ns; 0 where there is nothing.
    #[must_use]
    pub fn quantiles_ns<const N: usize>(&self, quantiles: [f64; N]) -> ([u64; N], u64) {
        let mut both = self.now.clone();
        both.add(&self.before).expect("it grows");
        let ns = |us: u64| us * 1_000;
        (quantiles.map(|quantile| ns(both.value_at_quantile(quantile))), ns(both.max()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn at(recent: &Recent) -> (u64, u64) {
        let ([median], max) = recent.quantiles_ns([0.5]);
        (median / 1_000_000, max / 1_000_000)
    }

    #[test]
    fn what_is_older_than_ten_minutes_does_not_count() {
        let mut recent = Recent::default();
        assert_eq!(at(&recent), (0, 0));
        let begin_ns = 5_000 * SECOND_NS;
        for second in 0..1_200 {
            let ms = if second < 200 { 800 } else { 20 };
            recent.record(ms * 1_000_000, begin_ns + second * SECOND_NS);
            match second {
                0..200 => assert_eq!(at(&recent), (802, 802), "two digits: at {second} s"),
                200..600 => assert_eq!(at(&recent).1, 802, "at {second} s"),
                _ => assert_eq!(at(&recent), (20, 20), "at {second} s"),
            }
        }
        recent.record(3_000_000, begin_ns + 4_000 * SECOND_NS);
        assert_eq!(at(&recent), (3, 3), "after a silence");
    }

    #[test]
    fn times_beyond_all_bounds_are_taken() {
        let mut recent = Recent::default();
        (0..70_000).for_each(|at_ns| recent.record(u64::MAX, at_ns));
        let ([median], max) = recent.quantiles_ns([0.5]);
        assert!(median >= MAX_US * 1_000 && max >= MAX_US * 1_000);
        assert!(size(&recent) <= 20 << 10, "{}", size(&recent));
    }

    fn size(recent: &Recent) -> usize {
        [&recent.now, &recent.before].into_iter().map(|piece| piece.distinct_values() * size_of::<u16>()).sum()
    }
}
