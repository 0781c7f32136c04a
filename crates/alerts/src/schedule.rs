// SPDX-License-Identifier: Apache-2.0
//! When a group is evaluated: at times that are its interval apart, and whose place in it its name decides. So groups
//! of one interval do not come all at once, and after a restart they come at the same times.
//!
//! One that comes late is evaluated for its newest time only; those before were missed, and are counted. So a group
//! that takes longer than its interval never piles up.

/// The times of one group. ns since 1970.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    interval_ns: i64,
    phase_ns: i64,
    next_ns: i64,
}

impl Schedule {
    /// Of a group with this key: it begins with the first of its times after `now_ns`.
    #[must_use]
    pub(crate) fn new(interval_ns: i64, key: &str, now_ns: i64) -> Self {
        let interval_ns = interval_ns.max(1);
        let phase_ns = (fnv(key) % interval_ns.unsigned_abs()).cast_signed();
        let mut schedule = Self { interval_ns, phase_ns, next_ns: now_ns };
        schedule.next_ns = schedule.newest(now_ns).saturating_add(interval_ns);
        schedule
    }

    /// When it is due.
    #[must_use]
    pub(crate) fn next_ns(&self) -> i64 {
        self.next_ns
    }

    /// If it is due: the time to evaluate for, and how many were missed before it.
    pub(crate) fn due(&mut self, now_ns: i64) -> Option<(i64, u64)> {
        if now_ns < self.next_ns {
            // The clock was set back: nobody waits until it has come there again.
            let newest_ns = self.newest(now_ns);
            self.next_ns = self.next_ns.min(newest_ns.saturating_add(self.interval_ns));
            return None;
        }
        let time_ns = self.newest(now_ns);
        let missed = (time_ns - self.next_ns) / self.interval_ns;
        self.next_ns = time_ns.saturating_add(self.interval_ns);
        Some((time_ns, missed.unsigned_abs()))
    }

    /// The newest of its times.
    fn newest(&self, now_ns: i64) -> i64 {
        let since_ns = (now_ns - self.phase_ns).rem_euclid(self.interval_ns);
        now_ns - since_ns
    }
}

/// FNV-1a: the same in every process and version.
fn fnv(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    /// However late somebody looks: times rise by whole intervals, and each is evaluated or counted.
    #[test]
    fn every_time_is_evaluated_or_counted_and_none_piles_up() {
        bolero::check!().with_type::<(u16, Vec<u32>)>().for_each(|(interval, waits)| {
            let interval_ns = i64::from(*interval).max(1) * 1_000_000;
            let (begin_ns, mut now_ns) = (1_795_300_000 * S, 1_795_300_000 * S);
            let mut schedule = Schedule::new(interval_ns, "f;g", begin_ns);
            let first_ns = schedule.next_ns();
            assert!(begin_ns < first_ns && first_ns <= begin_ns + interval_ns);
            let (mut last_ns, mut count) = (first_ns - interval_ns, 0);
            for wait in waits {
                now_ns += i64::from(*wait) * 1_000;
                if let Some((time_ns, missed)) = schedule.due(now_ns) {
                    count += missed.cast_signed() + 1;
                    assert!(time_ns <= now_ns && now_ns < time_ns + interval_ns);
                    assert_eq!(time_ns, last_ns + (missed.cast_signed() + 1) * interval_ns);
                    last_ns = time_ns;
                    assert!(schedule.due(now_ns).is_none());
                }
                assert_eq!(first_ns + count * interval_ns, schedule.next_ns());
            }
        });
    }

    #[test]
    fn groups_are_spread_and_come_at_the_same_times_after_a_restart() {
        let at = |key: &str, now_ns| Schedule::new(60 * S, key, now_ns).next_ns() % (60 * S);
        let keys: Vec<String> = (0..100).map(|group| format!("rules.yml;group{group}")).collect();
        let mut seconds: Vec<i64> = keys.iter().map(|key| at(key, 1_795_300_000 * S) / S).collect();
        assert_eq!(at("f;g", 1_795_300_000 * S), at("f;g", 1_795_399_999 * S + 7));
        seconds.sort_unstable();
        seconds.dedup();
        assert!(seconds.len() > 30, "{seconds:?}");
    }

    #[test]
    fn a_clock_that_was_set_back_stops_nobody() {
        let mut schedule = Schedule::new(S, "", 1_000 * S);
        while schedule.due(1_010 * S).is_some() {}
        assert!(schedule.due(500 * S).is_none());
        assert!(schedule.next_ns() <= 501 * S);
        assert!(schedule.due(501 * S).is_some());
    }
}
