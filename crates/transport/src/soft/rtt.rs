// SPDX-License-Identifier: Apache-2.0
//! Round-trip times of one flow and the retransmission time-out that follows from them (RFC 6298).
//!
//! Every packet has a sequence number of its own, also when it repeats another, so that every sample is unambiguous: Karn's rule (RFC 6298 section 3)
//! is not needed, and a flow whose path is slower than its time-out learns it from its first answer, which comes late. Cost: some additions and one bucket per answer.

use super::wheel::TICK_NS;
use onlooker_region::histogram::Shape;

/// Shortest time-out: what a requester that shares its core may be late by itself.
pub const RTO_FLOOR_NS: u64 = 1_000_000;
/// Longest time-out, doublings included.
pub const RTO_CAP_NS: u64 = 1_000_000_000;
/// Time-out before the first sample.
pub const RTO_INITIAL_NS: u64 = 20_000_000;
/// Buckets of 12.5 % up to 1.07 s; more counts in the last one.
pub const RTT_SHAPE: Shape = Shape { grouping_power: 3, max_power: 30 };

/// What has been measured.
#[derive(Clone, Debug)]
pub struct Rtt {
    min_ns: u64,
    smoothed_ns: u64,
    variance_ns: u64,
    samples: u64,
    buckets: Box<[u64]>,
}

impl Default for Rtt {
    fn default() -> Self {
        let buckets = vec![0; RTT_SHAPE.buckets()].into();
        Self { min_ns: u64::MAX, smoothed_ns: 0, variance_ns: 0, samples: 0, buckets }
    }
}

impl Rtt {
    /// RFC 6298 2.2 and 2.3, with alpha 1/8 and beta 1/4.
    pub(crate) fn record(&mut self, rtt_ns: u64) {
        if self.samples == 0 {
            (self.smoothed_ns, self.variance_ns) = (rtt_ns, rtt_ns / 2);
        } else {
            self.variance_ns = self.variance_ns - self.variance_ns / 4 + self.smoothed_ns.abs_diff(rtt_ns) / 4;
            self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + rtt_ns / 8;
        }
        self.min_ns = self.min_ns.min(rtt_ns);
        self.samples += 1;
        self.buckets[RTT_SHAPE.index(rtt_ns)] += 1;
    }

    /// Time-out of a packet that was sent so many times before.
    #[must_use]
    pub fn rto_ns(&self, repeats: u8) -> u64 {
        let base_ns = match self.samples {
            0 => RTO_INITIAL_NS,
            _ => self.smoothed_ns.saturating_add(self.variance_ns.saturating_mul(4).max(TICK_NS)),
        };
        let base_ns = base_ns.clamp(RTO_FLOOR_NS, RTO_CAP_NS);
        (base_ns << repeats.min(7)).min(RTO_CAP_NS)
    }

    /// Shortest, if there was any.
    #[must_use]
    pub fn min_ns(&self) -> Option<u64> {
        (self.samples != 0).then_some(self.min_ns)
    }

    /// Exponential mean (SRTT).
    #[must_use]
    pub fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// Exponential mean of the deviation (RTTVAR).
    #[must_use]
    pub fn variance_ns(&self) -> u64 {
        self.variance_ns
    }

    /// How many.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Counts by [`RTT_SHAPE`].
    #[must_use]
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }
}

// A doubling of the longest time-out cannot overflow.
const _: () = assert!(RTO_CAP_NS < u64::MAX >> 7);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_rfc() {
        let mut rtt = Rtt::default();
        assert_eq!((rtt.rto_ns(0), rtt.rto_ns(1), rtt.rto_ns(200)), (RTO_INITIAL_NS, 2 * RTO_INITIAL_NS, RTO_CAP_NS));
        rtt.record(8_000_000);
        assert_eq!((rtt.smoothed_ns(), rtt.variance_ns(), rtt.rto_ns(0)), (8_000_000, 4_000_000, 24_000_000));
        rtt.record(16_000_000);
        assert_eq!((rtt.smoothed_ns(), rtt.variance_ns()), (9_000_000, 5_000_000));
        assert_eq!((rtt.min_ns(), rtt.samples(), rtt.buckets().iter().sum()), (Some(8_000_000), 2, 2_u64));
    }

    #[test]
    fn stays_between_floor_and_cap() {
        bolero::check!().with_type::<(Vec<u64>, u8)>().for_each(|(samples, repeats)| {
            let mut rtt = Rtt::default();
            for sample in samples {
                rtt.record(sample >> 4);
                assert!((RTO_FLOOR_NS..=RTO_CAP_NS).contains(&rtt.rto_ns(*repeats)));
                assert!(rtt.rto_ns(*repeats) >= rtt.rto_ns(0));
            }
            assert_eq!(rtt.buckets().iter().sum::<u64>(), rtt.samples());
        });
    }
}
