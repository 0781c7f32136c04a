// SPDX-License-Identifier: Apache-2.0
//! What time the values of one reading have in common.
//!
//! The groups of a host are acquired some microseconds after each other, each at a time of its own. In a file they have
//! the time of one of them, so that SQL joins what was read together, and beside it how much later, or earlier, each
//! was acquired: nothing is lost, and a few bits that vary are all that a group costs.

use std::collections::HashMap;
use std::sync::Arc;

/// What was acquired within so much of each other is of one reading.
pub(super) const MAX_OFFSET_NS: u64 = 2_000_000;

/// The readings of all hosts of a file.
#[derive(Default)]
pub(super) struct Readings {
    by_instance: HashMap<Arc<str>, Vec<u64>>,
}

impl Readings {
    /// The times of the readings that these are of, each another one. A time that no reading is near to is its own; so
    /// are all, where they are not in order.
    pub(super) fn of(&mut self, instance: &Arc<str>, times: &[u64]) -> Vec<u64> {
        let known = self.by_instance.entry(instance.clone()).or_default();
        let (mut readings, mut new) = (Vec::with_capacity(times.len()), Vec::new());
        let (mut at, mut last) = (0, 0);
        for time in times {
            while known.get(at).is_some_and(|reading| reading + MAX_OFFSET_NS < *time) {
                at += 1;
            }
            // The nearest of those that are near enough.
            while known.get(at + 1).is_some_and(|next| next.abs_diff(*time) < known[at].abs_diff(*time)) {
                at += 1;
            }
            // One that the time before has taken is not for this one, too.
            let is_near = |reading: &u64| *reading > last && reading.abs_diff(*time) <= MAX_OFFSET_NS;
            let near = known[at.min(known.len())..].iter().take(2).copied().find(is_near);
            let reading = near.unwrap_or(*time);
            if reading <= last {
                return times.to_vec();
            }
            if near.is_none() {
                new.push(reading);
            }
            last = reading;
            readings.push(reading);
        }
        if !new.is_empty() {
            known.extend(new);
            known.sort_unstable();
        }
        readings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_together_has_one_time() {
        let mut readings = Readings::default();
        let host: Arc<str> = "a".into();
        let first = [10_000_000, 20_000_300, 30_000_100, 50_000_000];
        assert_eq!(readings.of(&host, &first), first);
        assert_eq!(readings.of(&host, &[10_000_040, 20_000_000, 30_000_900, 49_000_000]), first);
        // One that is missing, one that nobody has had, and one between two.
        assert_eq!(
            readings.of(&host, &[11_000_000, 30_000_000, 40_000_000, 60_000_000]),
            [10_000_000, 30_000_100, 40_000_000, 60_000_000]
        );
        assert_eq!(readings.of(&host, &[40_000_007, 48_500_000, 60_000_007]), [40_000_000, 50_000_000, 60_000_000]);
        // Another host's are others.
        assert_eq!(readings.of(&"b".into(), &[10_000_040]), [10_000_040]);
        // Two where there was one reading; not in order.
        assert_eq!(readings.of(&host, &[19_999_000, 20_001_000]), [20_000_300, 20_001_000]);
        let fast = [10_000_001, 10_000_002, 10_000_003];
        assert_eq!(readings.of(&host, &fast), [10_000_000, 10_000_002, 10_000_003]);
        let backwards = [20_000_000, 10_000_000];
        assert_eq!(readings.of(&host, &backwards), backwards);
        assert_eq!(readings.of(&host, &[0, 0]), [0, 0]);
    }

    #[test]
    fn any_times_are_near_their_readings() {
        bolero::check!().with_type::<Vec<Vec<u32>>>().for_each(|all| {
            let mut readings = Readings::default();
            for times in all {
                let mut times: Vec<u64> = times.iter().map(|time| u64::from(*time) * 3).collect();
                times.sort_unstable();
                let of = readings.of(&"a".into(), &times);
                assert!(of == times || of.is_sorted_by(|a, b| a < b));
                assert!(of.iter().zip(&times).all(|(of, time)| of.abs_diff(*time) <= MAX_OFFSET_NS));
            }
        });
    }
}
