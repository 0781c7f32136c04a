// SPDX-License-Identifier: Apache-2.0
//! The reader's clocks, and how a host's clock relates to them.

use crate::Via;
use rustix::time::{ClockId, clock_gettime};

/// How much two disciplined clocks may drift apart: the kernel slews each by at most 500 ppm (adjtimex(2)).
const DRIFT_PPM: u64 = 1_000;

/// Readings of two clocks this far apart, ns, are one instant: what three calls of clock_gettime take on a slow machine.
const MOMENT_APART_NS: u64 = 10_000;
/// How often they are read at most.
const MOMENT_TRIES: usize = 5;

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The reader's steady clock (CLOCK_BOOTTIME: it goes on while the machine is suspended, as hosts do).
#[must_use]
pub fn steady_ns() -> u64 {
    clock_ns(ClockId::Boottime)
}

/// One instant on both clocks of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Steady clock.
    pub steady_ns: u64,
    /// Since 1970, UTC.
    pub utc_ns: u64,
}

impl Moment {
    /// Now. The two clocks cannot be read at once: whoever loses the CPU between them reads them again.
    #[must_use]
    pub fn now() -> Self {
        let mut best: Option<(u64, Self)> = None;
        for _ in 0..MOMENT_TRIES {
            let before_ns = steady_ns();
            let utc_ns = clock_ns(ClockId::Realtime);
            let apart_ns = steady_ns().saturating_sub(before_ns);
            if best.is_none_or(|(least_ns, _)| apart_ns < least_ns) {
                best = Some((apart_ns, Self { steady_ns: before_ns + apart_ns / 2, utc_ns }));
            }
            if apart_ns <= MOMENT_APART_NS {
                break;
            }
        }
        best.map_or(Self { steady_ns: 0, utc_ns: 0 }, |(_, moment)| moment)
    }
}

/// A host's boot clock against the reader's clocks.
///
/// The host read its clock somewhere between the reader's sending of the request and its receiving of the answer; so the middle is wrong by at most
/// half of that time, plus what the clocks drift apart since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relation {
    host_ns: u64,
    middle: Moment,
    half_ns: u64,
}

impl Relation {
    /// From the host's boot clock in an answer and the instants around it.
    #[must_use]
    pub fn new(host_ns: u64, sent: Moment, received: Moment) -> Self {
        let half_ns = received.steady_ns.saturating_sub(sent.steady_ns).div_ceil(2);
        let middle =
            Moment { steady_ns: sent.steady_ns.saturating_add(half_ns), utc_ns: sent.utc_ns.saturating_add(half_ns) };
        Self { host_ns, middle, half_ns }
    }

    /// Bound of the error of everything below, at the instant `steady_ns` of the reader.
    #[must_use]
    pub fn error_ns(&self, steady_ns: u64) -> u64 {
        self.half_ns + steady_ns.abs_diff(self.middle.steady_ns) / 1_000_000 * DRIFT_PPM
    }

    /// The one of both that is known better at the instant `steady_ns` of the reader.
    #[must_use]
    pub fn or_better(self, other: Self, steady_ns: u64) -> Self {
        if other.error_ns(steady_ns) < self.error_ns(steady_ns) { other } else { self }
    }

    /// UTC of a time of the host's boot clock, ns since 1970. Wide, since the host may say anything.
    #[must_use]
    pub fn utc_ns(&self, host_ns: u64) -> i128 {
        i128::from(self.middle.utc_ns) + i128::from(host_ns) - i128::from(self.host_ns)
    }

    /// UTC of an instant of the reader's own steady clock.
    #[must_use]
    pub fn own_utc_ns(&self, steady_ns: u64) -> i128 {
        i128::from(self.middle.utc_ns) + i128::from(steady_ns) - i128::from(self.middle.steady_ns)
    }

    /// The reader's steady clock at a time of the host's boot clock. Wide, since the host may say anything.
    #[must_use]
    pub fn steady_ns(&self, host_ns: u64) -> i128 {
        i128::from(self.middle.steady_ns) + i128::from(host_ns) - i128::from(self.host_ns)
    }

    /// How old a time of the host's boot clock is at the instant `steady_ns` of the reader; negative where it seems to lie ahead.
    #[must_use]
    pub fn age_ns(&self, host_ns: u64, steady_ns: u64) -> i128 {
        let host_now = i128::from(self.host_ns) + i128::from(steady_ns) - i128::from(self.middle.steady_ns);
        host_now - i128::from(host_ns)
    }
}

/// Bound of the clock's error at which a host is asked for it again, ns: over TCP its agent wakes up at every READ anyway; elsewhere that is all that wakes it.
const TCP_ERROR_NS: u64 = 5_000_000;
const ERROR_NS: u64 = 60_000_000;
/// A host is not asked again sooner, ns: one that refuses, or is further away than that.
const PAUSE_NS: u64 = 5_000_000_000;

/// When a host may be asked for its clock again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wear {
    not_before_ns: u64,
}

impl Wear {
    /// Whether it is time to ask.
    #[must_use]
    pub fn is_due(self, relation: &Relation, via: Via, now_ns: u64) -> bool {
        let most_ns = if via == Via::Tcp { TCP_ERROR_NS } else { ERROR_NS };
        now_ns >= self.not_before_ns && relation.error_ns(now_ns) > most_ns
    }

    /// It is asked, or need not be.
    pub fn put_off(&mut self, now_ns: u64) {
        self.not_before_ns = now_ns + PAUSE_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_wrong_by_half_the_round_trip() {
        let at = |steady_ns| Moment { steady_ns, utc_ns: steady_ns + 1_000_000_000 };
        let relation = Relation::new(500, at(2_000), at(2_400));
        assert_eq!(relation.utc_ns(500), 1_000_002_200);
        assert_eq!(relation.utc_ns(0), 1_000_001_700);
        assert_eq!((relation.steady_ns(500), relation.steady_ns(900)), (2_200, 2_600));
        assert_eq!((relation.age_ns(500, 2_200), relation.age_ns(900, 2_200)), (0, -400));
        assert_eq!(relation.own_utc_ns(2_300), 1_000_002_300);
        assert_eq!(relation.error_ns(2_400), 200);
        assert_eq!(relation.error_ns(1_000_002_200), 200 + 1_000_000, "1 ms a second");
    }

    #[test]
    fn any_time_of_a_host_is_taken() {
        bolero::check!().with_type::<[u64; 6]>().for_each(|&[host, a, b, utc, other, now]| {
            let relation =
                Relation::new(host, Moment { steady_ns: a, utc_ns: utc }, Moment { steady_ns: b, utc_ns: utc });
            let _ = (relation.utc_ns(other), relation.age_ns(other, now), relation.error_ns(now));
        });
    }

    #[test]
    fn the_clocks_go_on() {
        let (first, second) = (Moment::now(), Moment::now());
        let offset_ns = |moment: Moment| i128::from(moment.utc_ns) - i128::from(moment.steady_ns);
        assert!((offset_ns(first) - offset_ns(second)).abs() < 10_000_000);
        assert!(first.steady_ns > 0 && second.steady_ns >= first.steady_ns && first.utc_ns > 1_600_000_000_000_000_000);
    }

    #[test]
    fn who_does_not_answer_is_not_asked_all_the_time() {
        const MS: u64 = 1_000_000;
        let at = |steady_ns| Moment { steady_ns, utc_ns: steady_ns };
        let (relation, mut wear) = (Relation::new(MS, at(0), at(MS)), Wear::default());
        assert!(!wear.is_due(&relation, Via::Tcp, 4_000 * MS) && wear.is_due(&relation, Via::Tcp, 6_000 * MS));
        wear.put_off(6_000 * MS);
        assert!(!wear.is_due(&relation, Via::Tcp, 10_000 * MS) && wear.is_due(&relation, Via::Tcp, 11_000 * MS));
        assert!(!wear.is_due(&relation, Via::Kernel, 11_000 * MS) && wear.is_due(&relation, Via::Verbs, 61_000 * MS));
    }
}
