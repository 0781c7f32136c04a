// SPDX-License-Identifier: Apache-2.0
//! What UTC is taken for where rows go by age, since a clock may be wrong for a while.
//!
//! It follows the clock [`FOLLOWING`] times as fast as time passes, ahead and back, and is never ahead of it: a clock
//! that is a year ahead for a day makes rows go ten days too early when it is ahead again, and none before. Restarts
//! begin where the last process was, which is noted each hour beside the gaps: rows of a wrong time say nothing. A clock
//! that is far behind lets nothing go, and is believed at once when it is right again: no time before [`LEAST_NS`] is
//! followed.

use crate::gaps::GapLog;

const FOLLOWING: u64 = 10;
/// 2020: this program is younger.
const LEAST_NS: u64 = 1_577_836_800_000_000_000;
/// So far it goes before it is noted.
const NOTED_EACH_NS: u64 = 3_600_000_000_000;

pub(super) struct Trusted {
    pub(super) utc_ns: u64,
    /// When it last followed, steady ns; 0: not yet.
    followed_ns: u64,
}

impl Trusted {
    /// As it was noted, or else as of the last row that is there.
    pub(super) fn new(noted_ns: u64, newest_ns: Option<u64>) -> Self {
        Self { utc_ns: if noted_ns > 0 { noted_ns } else { newest_ns.unwrap_or(0) }, followed_ns: 0 }
    }

    /// What UTC is taken for where the clock shows `utc_ns`.
    pub(super) fn follow(&mut self, utc_ns: u64, steady_ns: u64) -> u64 {
        let passed_ns = if self.followed_ns == 0 { 0 } else { steady_ns.saturating_sub(self.followed_ns) };
        let way_ns = passed_ns.saturating_mul(FOLLOWING);
        let (least_ns, most_ns) = (self.utc_ns.saturating_sub(way_ns), self.utc_ns.saturating_add(way_ns));
        self.utc_ns = if self.utc_ns < LEAST_NS { utc_ns } else { utc_ns.clamp(least_ns, most_ns) };
        self.followed_ns = steady_ns;
        self.utc_ns.min(utc_ns)
    }

    /// Notes how far it is, now and then.
    pub(super) fn note(&self, log: &mut GapLog) {
        if self.utc_ns.abs_diff(log.clock_ns()) >= NOTED_EACH_NS {
            log.note_clock(self.utc_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: u64 = 3_600_000_000_000;
    const YEAR_NS: u64 = 8_766 * HOUR_NS;
    const NOW_NS: u64 = 1_795_000_000_000_000_000;

    #[test]
    fn a_clock_that_is_ahead_is_followed_slowly_also_by_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = GapLog::open(dir.path()).unwrap();
        let mut trusted = Trusted::new(log.clock_ns(), Some(NOW_NS));
        assert_eq!(trusted.follow(NOW_NS, 1), NOW_NS);
        trusted.note(&mut log);
        assert_eq!(trusted.follow(NOW_NS + YEAR_NS, 1 + HOUR_NS), NOW_NS + 10 * HOUR_NS);
        trusted.note(&mut log);
        log.write().unwrap();
        // Its rows have the time that the clock showed.
        let (log, _) = GapLog::open(dir.path()).unwrap();
        let mut trusted = Trusted::new(log.clock_ns(), Some(NOW_NS + YEAR_NS));
        assert_eq!(trusted.follow(NOW_NS + YEAR_NS, 1), NOW_NS + 10 * HOUR_NS);
        // Right again: never ahead of it, and back in as long as it was wrong.
        assert_eq!(trusted.follow(NOW_NS + HOUR_NS, 2), NOW_NS + HOUR_NS);
        trusted.follow(NOW_NS + 2 * HOUR_NS, 2 + HOUR_NS);
        assert_eq!(trusted.follow(NOW_NS + YEAR_NS, 2 + HOUR_NS), NOW_NS + 2 * HOUR_NS);
    }

    #[test]
    fn a_clock_that_was_far_behind_is_believed_when_it_is_right() {
        let mut trusted = Trusted::new(0, Some(5 * HOUR_NS));
        assert_eq!(trusted.follow(6 * HOUR_NS, 1), 6 * HOUR_NS);
        assert_eq!(trusted.follow(NOW_NS, 2), NOW_NS);
        // Behind for an hour: nothing goes meanwhile, and it is back after another.
        assert_eq!(trusted.follow(HOUR_NS, 2 + HOUR_NS), HOUR_NS);
        assert_eq!(trusted.follow(NOW_NS + 2 * HOUR_NS, 2 + 2 * HOUR_NS), NOW_NS);
    }
}
