// SPDX-License-Identifier: Apache-2.0
//! RESULT lines, figures for scripts, and figures of samples.

/// Prints `RESULT` lines and remembers whether one failed.
#[derive(Debug, Default)]
pub(crate) struct Results {
    has_failed: bool,
}

impl Results {
    /// A figure with its bound in words, and whether it holds.
    pub(crate) fn line(&mut self, name: &str, value: &str, unit: &str, expected: &str, pass: bool) {
        let verdict = if pass { "pass" } else { "fail" };
        println!("RESULT {name} {value} {unit} (expected {expected}) {verdict}");
        self.has_failed |= !pass;
    }

    /// A figure that must not exceed a bound.
    pub(crate) fn at_most(&mut self, name: &str, value: f64, unit: &str, bound: f64) {
        self.line(name, &format!("{value:.2}"), unit, &format!("<= {bound}"), value <= bound);
    }

    /// A figure that must reach a bound.
    pub(crate) fn at_least(&mut self, name: &str, value: f64, unit: &str, bound: f64) {
        self.line(name, &format!("{value:.2}"), unit, &format!(">= {bound}"), value >= bound);
    }

    pub(crate) fn passed(&self) -> bool {
        !self.has_failed
    }
}

/// A figure, for a script that makes RESULT lines of several.
pub(crate) fn figure(name: &str, value: f64, unit: &str) {
    println!("figure {name} {value:.4} {unit}");
}

/// The middle of samples, or the mean of both middles; and quartiles.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

/// Sorts; there must be samples.
pub(crate) fn spread(samples: &mut [f64]) -> Spread {
    let median = median(samples);
    Spread { low: samples[samples.len() / 4], median, high: samples[samples.len() * 3 / 4] }
}

/// Sorts; the middle, or the mean of both middles. There must be samples.
pub(crate) fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    let half = samples.len() / 2;
    if samples.len().is_multiple_of(2) { f64::midpoint(samples[half - 1], samples[half]) } else { samples[half] }
}

/// The value below which `share` of sorted samples lie; `None` without samples.
pub(crate) fn percentile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length is an index")]
    let index = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(index.saturating_sub(1)).or(sorted.last()).copied()
}

/// Nanoseconds with a unit that fits. `u64::MAX` is a sample that never came.
pub(crate) fn time(ns: u64) -> String {
    match ns {
        u64::MAX => "lost".to_owned(),
        0..100_000 => format!("{:.1} us", ns as f64 / 1e3),
        100_000..1_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        1_000_000..100_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.0} ms", ns as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let sorted: Vec<u32> = (1..=1000).collect();
        assert_eq!(percentile(&sorted, 0.5), Some(500));
        assert_eq!(percentile(&sorted, 0.999), Some(999));
        assert_eq!(percentile(&sorted, 1.0), Some(1000));
        assert_eq!(percentile(&[7], 0.001), Some(7));
        assert_eq!(percentile::<u32>(&[], 0.5), None);
    }

    #[test]
    fn times_have_units() {
        let shown = [1_500, 250_000, 1_250_000, 2_000_000_000, u64::MAX].map(time);
        assert_eq!(shown, ["1.5 us", "250 us", "1.25 ms", "2000 ms", "lost"]);
    }
}
