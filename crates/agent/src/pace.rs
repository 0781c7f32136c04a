// SPDX-License-Identifier: Apache-2.0
//! How often the main thread samples for readers whom nobody announces. Nobody tells the agent that the kernel has
//! answered READs, so it looks at a counter when a sample is due: while there were none it takes none, and waits twice as
//! long up to a minute. Functions of time and counts given to them.

/// Longest pause between two looks at the counter while nobody reads.
const LONGEST_PAUSE_NS: u64 = 60_000_000_000;

/// When to look next, and whether to sample then.
#[derive(Debug)]
pub(crate) struct Pace {
    interval_ns: u64,
    pause_ns: u64,
    sampled_ns: u64,
    next_ns: u64,
    answered: u64,
    is_woken: bool,
}

impl Pace {
    /// When to look next.
    pub(crate) const fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// READs answered when it was last looked.
    pub(crate) const fn answered(&self) -> u64 {
        self.answered
    }

    /// The next look is not before then.
    pub(crate) fn not_before(&mut self, at_ns: u64) {
        self.next_ns = self.next_ns.max(at_ns);
        // A reader that begins waits as long.
        self.sampled_ns = self.sampled_ns.max(at_ns.saturating_sub(self.interval_ns));
    }

    pub(crate) fn new(interval_ns: u64) -> Self {
        Self { interval_ns, pause_ns: interval_ns, sampled_ns: 0, next_ns: u64::MAX, answered: 0, is_woken: false }
    }

    /// A sample was taken now; from here on it is looked who reads.
    pub(crate) fn begin(&mut self, now_ns: u64, answered: u64) {
        let next_ns = now_ns.saturating_add(self.interval_ns);
        *self = Self { sampled_ns: now_ns, next_ns, answered, ..Self::new(self.interval_ns) };
    }

    pub(crate) fn wake(&mut self, now_ns: u64) {
        self.is_woken = true;
        self.next_ns = self.next_ns.min(self.sampled_ns.saturating_add(self.interval_ns).max(now_ns));
    }

    /// Whether to sample now that it is due: if there were READs since the last look, or somebody begins.
    pub(crate) fn is_wanted(&mut self, now_ns: u64, answered: u64) -> bool {
        let is_wanted = answered != self.answered || self.is_woken;
        (self.answered, self.is_woken) = (answered, false);
        if is_wanted {
            (self.pause_ns, self.sampled_ns) = (self.interval_ns, now_ns);
        } else {
            self.pause_ns = self.pause_ns.saturating_mul(2).min(LONGEST_PAUSE_NS.max(self.interval_ns));
        }
        self.next_ns = now_ns.saturating_add(self.pause_ns);
        is_wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_reads_and_pauses_grow_to_a_minute() {
        const S: u64 = 1_000_000_000;
        let mut pace = Pace::new(5 * S);
        pace.begin(100 * S, 7);
        let mut steps = Vec::new();
        for _ in 0..6 {
            let now_ns = pace.next_ns;
            assert!(!pace.is_wanted(now_ns, 7));
            steps.push((pace.next_ns - now_ns) / S);
        }
        assert_eq!(steps, [10, 20, 40, 60, 60, 60]);
        let now_ns = pace.next_ns;
        assert!(pace.is_wanted(now_ns, 8), "somebody has read");
        assert_eq!(pace.next_ns, now_ns + 5 * S);
        assert!(!pace.is_wanted(now_ns + 5 * S, 8));
        // A reader that begins does not wait for the end of a pause, nor is there a sample for each of many.
        pace.wake(now_ns + 6 * S);
        assert_eq!(pace.next_ns, now_ns + 6 * S);
        assert!(pace.is_wanted(now_ns + 6 * S, 8));
        pace.wake(now_ns + 7 * S);
        assert_eq!(pace.next_ns, now_ns + 11 * S);
        // Intervals beyond a minute stay what they are.
        let mut pace = Pace::new(90 * S);
        pace.begin(0, 0);
        assert!(!pace.is_wanted(90 * S, 0));
        assert_eq!(pace.next_ns, 180 * S);
    }
}
