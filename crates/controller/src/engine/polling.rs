// SPDX-License-Identifier: Apache-2.0
//! Whether the engine's thread, with nothing to do until an answer comes, looks for it again at once, or sleeps.
//!
//! To sleep and to be woken costs microseconds and makes the answer late by as many; to look costs all the time until
//! it comes. The published system has a thread for each, and gives hosts with fewer than 32 READs a cycle to the one
//! that polls (PAPERS, B3). Here one thread does both by turns: it polls while such a host has READs under way, and
//! sleeps while only others have. So there is one total of what is in flight, and nothing is shared between threads.

/// How the engine's thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It sleeps.
    Sleep,
    /// It polls while READs are under way.
    Poll,
    /// It polls while hosts with few READs a reading have READs under way.
    Hybrid,
}

/// Hosts with fewer READs a reading than this have few.
pub const MANY_READS: u32 = 32;
/// What is not used of the budget is kept for so long, ns.
const KEPT_NS: f64 = 100_000_000.0;

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnderWay {
    /// Nothing that will come soon.
    Nothing,
    /// READs of hosts that have many.
    OfMany,
    /// READs of hosts that have few, among others.
    OfFew,
}

/// What was decided, and what is left of the budget.
#[derive(Debug)]
pub struct Polling {
    waiting: Waiting,
    /// Of a core.
    budget: f64,
    /// That may be spent now.
    left_ns: f64,
    /// Of the last decision, and whether it was to poll.
    last: (u64, bool),
}

impl Polling {
    /// `percent` of a core may be spent on polling.
    #[must_use]
    pub fn new(waiting: Waiting, percent: u8) -> Self {
        Self { waiting, budget: f64::from(percent) / 100.0, left_ns: 0.0, last: (0, false) }
    }

    /// Whether it looks again at once.
    pub fn again(&mut self, under_way: UnderWay, now_ns: u64) -> bool {
        let (last_ns, has_polled) = self.last;
        #[allow(clippy::cast_precision_loss)] // shares of a second
        let passed_ns = now_ns.saturating_sub(last_ns) as f64;
        let spent_ns = if has_polled { passed_ns } else { 0.0 };
        self.left_ns = (self.left_ns + passed_ns * self.budget - spent_ns).min(KEPT_NS * self.budget);
        let is_wanted = match self.waiting {
            Waiting::Sleep => false,
            Waiting::Poll => under_way != UnderWay::Nothing,
            Waiting::Hybrid => under_way == UnderWay::OfFew,
        };
        let again = is_wanted && (self.left_ns > 0.0 || self.budget >= 1.0);
        self.last = (now_ns, again);
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_polls_for_few_reads_and_polling_for_all() {
        for (waiting, polls) in [
            (Waiting::Sleep, [false; 3]),
            (Waiting::Poll, [false, true, true]),
            (Waiting::Hybrid, [false, false, true]),
        ] {
            let mut polling = Polling::new(waiting, 50);
            polling.again(UnderWay::Nothing, 1_000_000_000);
            for (under_way, polls) in [UnderWay::Nothing, UnderWay::OfMany, UnderWay::OfFew].into_iter().zip(polls) {
                assert_eq!(polling.again(under_way, 1_000_001_000), polls, "{waiting:?} {under_way:?}");
            }
        }
    }

    #[test]
    fn no_more_of_a_core_is_spent_than_the_budget() {
        for (percent, least_ns, most_ns) in [(25, 245_000_000, 280_000_000), (100, 999_000_000, 1_000_000_000)] {
            let mut polling = Polling::new(Waiting::Hybrid, percent);
            polling.again(UnderWay::Nothing, 1_000_000_000);
            let mut spent_ns = 0;
            for turn in 1..=1_000_000 {
                spent_ns += if polling.again(UnderWay::OfFew, 1_000_000_000 + turn * 1_000) { 1_000 } else { 0 };
            }
            assert!((least_ns..=most_ns).contains(&spent_ns), "{percent} %: {spent_ns}");
        }
    }
}
