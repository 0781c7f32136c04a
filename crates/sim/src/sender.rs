// SPDX-License-Identifier: Apache-2.0
//! A host's card: answers leave in the order of the requests, at its link's rate, or slower after marks.
//!
//! DCQCN (Zhu et al., SIGCOMM 2015) with its published parameters: a marked answer brings a congestion notification, one
//! in 50 us at most; each cuts the rate by half of alpha. Every 55 us without one the rate goes half the way back to
//! where it was, and after five such times the target rises by a fixed step.

/// Notifications are this far apart at least, ns.
const NOTIFIED_NS: u64 = 50_000;
/// The rate recovers so often, ns.
const RECOVERS_NS: u64 = 55_000;
/// Half ways back before the target rises.
const FAST_STEPS: u32 = 5;
/// Weight of what is new in alpha.
const GAIN: f64 = 1.0 / 256.0;
/// The target rises by that, parts of the link: 40 Mbit/s of 200 Gbit/s.
const RISE: f64 = 0.000_2;
/// Never slower, parts of the link: 10 Mbit/s.
const LEAST: f64 = 0.000_05;

pub(crate) struct Sender {
    /// Answers that wait.
    pub(crate) waiting: u64,
    /// An event will send the next.
    pub(crate) is_busy: bool,
    /// It sends nothing before.
    pub(crate) next_ns: u64,
    /// Parts of the link.
    rate: f64,
    target: f64,
    alpha: f64,
    notified_ns: Option<u64>,
    recovered_ns: u64,
    steps: u32,
}

impl Sender {
    pub(crate) fn new() -> Self {
        let (rate, target, alpha) = (1.0, 1.0, 1.0);
        Self {
            waiting: 0,
            is_busy: false,
            next_ns: 0,
            rate,
            target,
            alpha,
            notified_ns: None,
            recovered_ns: 0,
            steps: 0,
        }
    }

    /// A marked answer of its has come to the controller.
    pub(crate) fn marked(&mut self, now_ns: u64) {
        self.recover(now_ns);
        if self.notified_ns.is_some_and(|at_ns| now_ns < at_ns + NOTIFIED_NS) {
            return;
        }
        self.target = self.rate;
        self.rate = (self.rate * (1.0 - self.alpha / 2.0)).max(LEAST);
        self.alpha = (1.0 - GAIN) * self.alpha + GAIN;
        (self.notified_ns, self.recovered_ns, self.steps) = (Some(now_ns), now_ns, 0);
    }

    /// From one answer to the next that is `wire_ns` long, ns.
    pub(crate) fn gap_ns(&mut self, now_ns: u64, wire_ns: u64) -> u64 {
        self.recover(now_ns);
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "microseconds"
        )]
        let gap_ns = (wire_ns as f64 / self.rate) as u64;
        gap_ns
    }

    fn recover(&mut self, now_ns: u64) {
        while self.rate < 1.0 && now_ns >= self.recovered_ns + RECOVERS_NS {
            self.recovered_ns += RECOVERS_NS;
            self.alpha *= 1.0 - GAIN;
            self.steps += 1;
            if self.steps > FAST_STEPS {
                self.target = (self.target + RISE).min(1.0);
            }
            self.rate = f64::midpoint(self.rate, self.target);
            if self.rate > 0.999 {
                self.rate = 1.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_halves_the_rate_and_it_comes_back() {
        let mut sender = Sender::new();
        assert_eq!(sender.gap_ns(0, 100), 100);
        sender.marked(1_000);
        sender.marked(2_000);
        assert_eq!(sender.gap_ns(3_000, 100), 200, "one notification in 50 us");
        sender.marked(51_000);
        assert_eq!(sender.gap_ns(51_000, 100), 400);
        assert_eq!(sender.gap_ns(51_000 + RECOVERS_NS, 100), 266, "half the way to a half");
        assert!(sender.gap_ns(1_000_000_000, 100) < 110, "{}", sender.rate);
    }
}
