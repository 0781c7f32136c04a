// SPDX-License-Identifier: Apache-2.0
//! UTC as rows carry it: our steady clock and an offset that follows the system's UTC.
//!
//! Hosts' clocks are related to our steady clock alone, which is never set; what UTC that is, is said here, once for
//! all hosts. While the system's clock is slewed the offset follows as slowly, so that rows stay in order; when it is
//! set, the offset is, too, and whoever keeps rows is told which times are now ambiguous or empty. Decisions are
//! functions of the moments given: nothing here reads a clock.

use onlooker_reader::clock::Moment;

/// The kernel slews by 500 ppm at most (adjtimex(2)); twice that follows any slew.
const SLEW_PPM: u64 = 1_000;
/// Beyond this the system's clock was set, ns: NTP slews what is less than 128 ms.
const STEP_NS: i128 = 100_000_000;

/// The system's clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Earlier end of the times between what it showed and what it shows, UTC ns.
    pub(crate) from_ns: u64,
    /// Later end.
    pub(crate) to_ns: u64,
}

/// The offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Utc {
    offset_ns: i128,
    at_ns: u64,
}

fn offset_ns(now: Moment) -> i128 {
    i128::from(now.utc_ns) - i128::from(now.steady_ns)
}

impl Utc {
    pub(crate) fn new(now: Moment) -> Self {
        Self { offset_ns: offset_ns(now), at_ns: now.steady_ns }
    }

    /// UTC of an instant of our steady clock, ns since 1970.
    pub(crate) fn of(&self, steady_ns: i128) -> u64 {
        u64::try_from((steady_ns.saturating_add(self.offset_ns)).max(0)).unwrap_or(u64::MAX)
    }

    /// Looks at the system's clock. A step is that of what is told from now on, which happened at `at_ns` by our steady
    /// clock.
    pub(crate) fn follow(&mut self, now: Moment, at_ns: u64) -> Option<Step> {
        let passed_ns = now.steady_ns.saturating_sub(self.at_ns);
        self.at_ns = now.steady_ns;
        let off_ns = offset_ns(now) - self.offset_ns;
        let most_ns = i128::from(passed_ns) * i128::from(SLEW_PPM) / 1_000_000;
        if off_ns.abs() <= STEP_NS {
            self.offset_ns += off_ns.clamp(-most_ns, most_ns);
            return None;
        }
        let shown_ns = self.of(at_ns.into());
        self.offset_ns = offset_ns(now);
        let shows_ns = self.of(at_ns.into());
        Some(Step { from_ns: shown_ns.min(shows_ns), to_ns: shown_ns.max(shows_ns) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: u64 = 3_600_000_000_000;

    fn follow(utc: &mut Utc, now: Moment) -> Option<Step> {
        utc.follow(now, now.steady_ns)
    }

    fn at(steady_ns: u64, utc_ns: u64) -> Moment {
        Moment { steady_ns, utc_ns }
    }

    #[test]
    fn a_slew_is_followed_and_a_step_is_told() {
        let mut utc = Utc::new(at(1_000, 10 * HOUR_NS));
        assert_eq!(utc.of(2_000), 10 * HOUR_NS + 1_000);
        // 300 us off after a second: within what a slew can do. 50 ms off: followed a millisecond a second.
        assert_eq!(follow(&mut utc, at(1_000_001_000, 10 * HOUR_NS + 1_000_300_000)), None);
        assert_eq!(utc.of(1_000_001_000), 10 * HOUR_NS + 1_000_300_000);
        assert_eq!(follow(&mut utc, at(2_000_001_000, 10 * HOUR_NS + 2_050_300_000)), None);
        assert_eq!(utc.of(2_000_001_000), 10 * HOUR_NS + 2_001_300_000);
        // Set back by an hour, then on by two.
        let now = at(2_000_001_000, 9 * HOUR_NS);
        assert_eq!(follow(&mut utc, now), Some(Step { from_ns: 9 * HOUR_NS, to_ns: 10 * HOUR_NS + 2_001_300_000 }));
        assert_eq!((follow(&mut utc, now), utc.of(2_000_001_000)), (None, 9 * HOUR_NS));
        let step = follow(&mut utc, at(2_000_001_000, 11 * HOUR_NS));
        assert_eq!(step, Some(Step { from_ns: 9 * HOUR_NS, to_ns: 11 * HOUR_NS }));
        assert_eq!(utc.of(i128::MIN), 0);
        // What happened half a second before the clock was set back, and is told after it.
        let (before_ns, now) = (1_500_001_000, at(2_000_001_000, 9 * HOUR_NS));
        let step = utc.follow(now, before_ns);
        assert_eq!(step, Some(Step { from_ns: 9 * HOUR_NS - 500_000_000, to_ns: 11 * HOUR_NS - 500_000_000 }));
    }

    /// Without a step, later instants never have earlier times, whatever the system's clock does.
    #[test]
    fn times_never_go_back_but_in_a_step() {
        bolero::check!().with_type::<Vec<(u16, i32)>>().for_each(|moves| {
            let (mut steady_ns, start) = (0, at(0, HOUR_NS));
            let mut utc = Utc::new(start);
            let mut last_ns = utc.of(0);
            for (passed, off) in moves {
                steady_ns += u64::from(*passed) * 1_000;
                let now = at(steady_ns, (HOUR_NS + steady_ns).saturating_add_signed(i64::from(*off)));
                let step = follow(&mut utc, now);
                let time_ns = utc.of(steady_ns.into());
                assert!(step.is_some() || time_ns >= last_ns);
                assert!(step.is_none_or(|step| step.to_ns - step.from_ns >= 100_000_000));
                last_ns = time_ns;
            }
        });
    }
}
