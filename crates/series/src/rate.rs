// SPDX-License-Identifier: Apache-2.0
//! Rates of counters: the rule for everybody who shows one.
//!
//! A rate is an increase over the time between two acquisitions; when the values were read does not matter. A counter
//! that fell began again at 0, so that its value is its increase (as Prometheus has it). There is no rate where nobody
//! knows what the counter did: where gaps make up more than [`MAX_MISSING`] of that time.
//!
//! `ui/src/series.ts` has the same rule for what it draws live; `tests/rates/rates.json` holds the two together.

use onlooker_region::columns::Value;
use onlooker_region::number::exported;

/// Of the time between two values: more, and it is the gap's time and not the values' own. One reading that is missing
/// is half of it.
pub const MAX_MISSING: f64 = 2.0 / 3.0;

/// What a counter did from one value to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// How much it grew, scaled.
    pub increase: f64,
    /// It fell: it began again in between.
    pub is_reset: bool,
}

impl Growth {
    /// Between two exported numbers.
    #[must_use]
    pub fn of(then: f64, now: f64) -> Self {
        let is_reset = now < then;
        Self { increase: if is_reset { now } else { now - then }, is_reset }
    }

    /// Between two stored values: whole numbers too large for a double are subtracted first.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // differences are small; what is larger is for people
    pub fn of_values(then: &Value, now: &Value, scale: f64) -> Self {
        match (then, now) {
            (Value::U64(then), Value::U64(now)) => {
                let (increase, is_reset) = now.checked_sub(*then).map_or((*now, true), |more| (more, false));
                Self { increase: exported(increase as f64, scale), is_reset }
            }
            (then, now) => Self::of(then.scaled(scale), now.scaled(scale)),
        }
    }
}

/// An increase between two times of acquisition, ns, as a rate per second; `None` unless time has passed.
#[must_use]
#[allow(clippy::cast_precision_loss)] // a rate
pub fn per_second(increase: f64, from_ns: u64, to_ns: u64) -> Option<f64> {
    let passed_ns = to_ns.checked_sub(from_ns).filter(|passed_ns| *passed_ns > 0)?;
    Some(increase / (passed_ns as f64 / 1e9))
}

/// Times about which nothing is known, ns: ascending and apart from each other.
#[derive(Clone, Debug, Default)]
pub struct Missing(Vec<(u64, u64)>);

impl Missing {
    /// Of these times, in any order; they may overlap.
    #[must_use]
    pub fn of(times: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut all: Vec<(u64, u64)> = times.filter(|(from, to)| from < to).collect();
        all.sort_unstable();
        all.dedup_by(|later, earlier| {
            let touches = later.0 <= earlier.1;
            earlier.1 = if touches { earlier.1.max(later.1) } else { earlier.1 };
            touches
        });
        Self(all)
    }

    /// These and more.
    #[must_use]
    pub fn with(&self, more: &[(u64, u64)]) -> Self {
        Self::of(self.0.iter().chain(more).copied())
    }

    /// As [`per_second`]; also `None` where too much of the time between is missing.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a share
    pub fn rate(&self, increase: f64, from_ns: u64, to_ns: u64) -> Option<f64> {
        let rate = per_second(increase, from_ns, to_ns)?;
        (self.within_ns(from_ns, to_ns) as f64 <= MAX_MISSING * (to_ns - from_ns) as f64).then_some(rate)
    }

    fn within_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let first = self.0.partition_point(|(_, to)| *to <= from_ns);
        let touching = self.0[first..].iter().take_while(|(from, _)| *from < to_ns);
        touching.map(|(from, to)| to.min(&to_ns) - from.max(&from_ns)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_counters_grow_by_their_exact_difference() {
        let of = |then, now| Growth::of_values(&Value::U64(then), &Value::U64(now), 1.0);
        assert_eq!(of(u64::MAX - 3, u64::MAX), Growth { increase: 3.0, is_reset: false });
        assert_eq!(of(1 << 60, 7), Growth { increase: 7.0, is_reset: true });
        let float = Growth::of_values(&Value::F64(2.0), &Value::F64(1.5), 2.0);
        assert_eq!(float, Growth { increase: 3.0, is_reset: true });
    }

    #[test]
    fn what_is_no_number_makes_no_rate_out_of_a_whole_counter() {
        assert!(Growth::of(f64::NAN, 1e9).increase.is_nan() && Growth::of(1e9, f64::NAN).increase.is_nan());
    }

    #[test]
    fn there_is_no_rate_over_no_time() {
        assert_eq!((per_second(1.0, 5, 5), per_second(1.0, 6, 5)), (None, None));
        assert_eq!(per_second(3.0, 0, 2_000_000_000), Some(1.5));
    }
}
