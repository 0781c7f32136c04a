// SPDX-License-Identifier: Apache-2.0
//! READs a second that one source gets: a token bucket for each, of one second's worth. Sans-IO; a fixed number of sources.

use std::collections::HashMap;
use std::net::IpAddr;

/// Sources that are told apart. When more are active, the one that has been quiet for longest is forgotten.
const MAX_SOURCES: usize = 256;
const NS_PER_S: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Billionths of a READ, so that no fraction is lost.
    level: u64,
    last_ns: u64,
}

/// Buckets of all sources.
#[derive(Debug)]
pub struct Rates {
    reads_per_s: u64,
    buckets: HashMap<IpAddr, Bucket>,
}

impl Rates {
    /// So many READs a second for each source.
    #[must_use]
    pub fn new(reads_per_s: u32) -> Self {
        Self { reads_per_s: u64::from(reads_per_s), buckets: HashMap::new() }
    }

    /// How many of `wanted` READs `source` may have now; they are taken from its bucket.
    pub fn take(&mut self, source: IpAddr, wanted: u32, now_ns: u64) -> u32 {
        let full = self.reads_per_s * NS_PER_S;
        if !self.buckets.contains_key(&source) && self.buckets.len() >= MAX_SOURCES {
            let quiet = self.buckets.iter().min_by_key(|(_, bucket)| bucket.last_ns).map(|(source, _)| *source);
            quiet.map(|quiet| self.buckets.remove(&quiet));
        }
        let bucket = self.buckets.entry(source).or_insert(Bucket { level: full, last_ns: now_ns });
        let passed = now_ns.saturating_sub(bucket.last_ns).min(NS_PER_S);
        bucket.level = (bucket.level + passed * self.reads_per_s).min(full);
        bucket.last_ns = bucket.last_ns.max(now_ns);
        let granted = u32::try_from(bucket.level / NS_PER_S).unwrap_or(u32::MAX).min(wanted);
        bucket.level -= u64::from(granted) * NS_PER_S;
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn a_source_gets_its_rate_and_no_other_is_touched() {
        let mut rates = Rates::new(10);
        assert_eq!(rates.take(source(1), 25, 0), 10);
        assert_eq!(rates.take(source(1), 1, 0), 0);
        assert_eq!(rates.take(source(2), 3, 0), 3);
        assert_eq!(rates.take(source(1), 9, NS_PER_S / 2), 5);
        assert_eq!(rates.take(source(1), 99, 100 * NS_PER_S), 10, "what is not used is not saved up");
    }

    #[test]
    fn over_any_second_nobody_gets_more_than_two_seconds_worth() {
        bolero::check!().with_type::<Vec<(u8, u32)>>().for_each(|steps| {
            let (mut rates, mut now_ns, mut got, mut begin_ns) = (Rates::new(100), 0u64, 0u64, 0u64);
            for (wanted, wait_ns) in steps {
                now_ns += u64::from(*wait_ns);
                if now_ns - begin_ns > NS_PER_S {
                    (got, begin_ns) = (0, now_ns);
                }
                got += u64::from(rates.take(source(1), u32::from(*wanted), now_ns));
                assert!(got <= 200);
            }
        });
    }

    #[test]
    fn the_table_does_not_grow() {
        let mut rates = Rates::new(1);
        for number in 0..2000 {
            rates.take(source(number), 1, u64::from(number));
        }
        assert_eq!(rates.buckets.len(), MAX_SOURCES);
        assert_eq!(rates.take(source(1999), 1, 2000), 0, "the latest are remembered");
    }
}
