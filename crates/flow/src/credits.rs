// SPDX-License-Identifier: Apache-2.0
//! How many bytes may be asked for and not answered, over all hosts.
//!
//! READs are paced by whoever asks, so congestion is the reader's own doing: it is many answers meeting at one port. Their total is bounded, and the bound
//! gives way to the network: an answer marked CE (RFC 3168) takes a part of it, once a round trip; each round trip without one gives a
//! little back (additive increase, multiplicative decrease, RFC 5681 3.1 by its principle). A loss takes nothing: a host that is down, a
//! firewall and a responder's silent refusal look the same, and none of them is congestion. What is lost holds its bytes until its time-out.

use crate::Credit;

/// Parts of the total, at least.
const LEAST_PARTS: u64 = 8;

/// Bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Never more than this: what receive buffers and switch buffers take, bytes.
    pub most_bytes: u32,
    /// Never less: a few packets, so that congestion elsewhere cannot stop the watching.
    pub least_bytes: u32,
    /// Given back in a round trip without congestion, bytes.
    pub step_bytes: u32,
}

impl Limits {
    /// With at most so much.
    #[must_use]
    pub fn up_to(most_bytes: u32) -> Self {
        Self { most_bytes, least_bytes: (64 << 10).min(most_bytes), step_bytes: 64 << 10 }
    }

    /// No READ is to be longer: four fit the least total, so that one which nobody answers does not stop the others.
    #[must_use]
    pub fn longest_read_bytes(&self) -> u32 {
        self.least_bytes / 4
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::up_to(4 << 20)
    }
}

/// The bound as it is now.
#[derive(Clone, Debug)]
pub struct Credits {
    limits: Limits,
    total_bytes: u32,
    /// Until then the last change has not been felt yet.
    settled_ns: u64,
    congested: bool,
    /// Times that it gave way.
    pub decreases: u64,
}

impl Credits {
    /// Begins with everything allowed.
    ///
    /// # Panics
    /// If the least is more than the most.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        assert!(limits.least_bytes <= limits.most_bytes);
        Self { limits, total_bytes: limits.most_bytes, settled_ns: 0, congested: false, decreases: 0 }
    }

    /// Bytes in flight of all flows together.
    #[must_use]
    pub fn total_bytes(&self) -> u32 {
        self.total_bytes
    }

    /// What may be under way while so many hosts are in a reading, and `taken_bytes` are: of one at most `host_bytes`,
    /// its part of the total, and half of what is left. There are at least eight parts, and one more than hosts. What
    /// hosts do not answer they hold until its time-out, and it must leave something to those that come next, however
    /// many have stopped one after the other.
    #[must_use]
    pub fn credit(&self, host_bytes: u32, hosts: usize, taken_bytes: u64) -> Credit {
        let all_bytes = u64::from(self.total_bytes);
        let parts = (hosts as u64 + 1).max(LEAST_PARTS);
        let left_bytes = all_bytes.saturating_sub(taken_bytes);
        Credit { all_bytes, host_bytes: (all_bytes / parts).min(left_bytes / 2).min(host_bytes.into()) }
    }

    /// An answer came with a congestion mark.
    pub fn congestion(&mut self) {
        self.congested = true;
    }

    /// To be called now and then, with the round trip time seen: takes back or gives.
    pub fn advance(&mut self, now_ns: u64, round_trip_ns: u64) {
        if now_ns < self.settled_ns {
            return;
        }
        let Limits { most_bytes, least_bytes, step_bytes } = self.limits;
        if std::mem::take(&mut self.congested) {
            self.total_bytes = (self.total_bytes / 10 * 7).max(least_bytes);
            self.decreases += 1;
        } else {
            self.total_bytes = self.total_bytes.saturating_add(step_bytes).min(most_bytes);
        }
        self.settled_ns = now_ns + round_trip_ns.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { most_bytes: 1 << 20, least_bytes: 8 << 10, step_bytes: 16 << 10 };

    #[test]
    fn it_gives_way_once_a_round_trip_and_comes_back() {
        let mut credits = Credits::new(LIMITS);
        for now_ns in 0..100 {
            credits.congestion();
            credits.advance(now_ns, 50);
        }
        assert_eq!((credits.decreases, credits.total_bytes()), (2, (1 << 20) / 10 * 7 / 10 * 7));
        for turn in 0..100 {
            credits.advance(1000 + turn * 50, 50);
        }
        assert_eq!(credits.total_bytes(), LIMITS.most_bytes);
    }

    #[test]
    fn hosts_have_equal_parts_and_some_are_left_over() {
        let credits = Credits::new(LIMITS);
        assert_eq!(credits.credit(4 << 10, 1, 0), Credit { all_bytes: 1 << 20, host_bytes: 4 << 10 });
        assert_eq!(credits.credit(u32::MAX, 1, 0).host_bytes, 128 << 10);
        assert_eq!(credits.credit(u32::MAX, 63, 0), Credit { all_bytes: 1 << 20, host_bytes: 16 << 10 });
        assert_eq!(credits.credit(u32::MAX, 1, (1 << 20) - 512).host_bytes, 256, "half of what others have left");
        assert_eq!((LIMITS.longest_read_bytes(), Limits::up_to(8 << 10).longest_read_bytes()), (2 << 10, 2 << 10));
    }

    #[test]
    fn it_stays_between_its_limits() {
        bolero::check!().with_type::<Vec<(bool, u16, u16)>>().for_each(|steps| {
            let mut credits = Credits::new(LIMITS);
            let mut now_ns = 0;
            for (congested, pause, round_trip) in steps {
                now_ns += u64::from(*pause);
                if *congested {
                    credits.congestion();
                }
                credits.advance(now_ns, u64::from(*round_trip));
                assert!((LIMITS.least_bytes..=LIMITS.most_bytes).contains(&credits.total_bytes()));
            }
        });
    }
}
