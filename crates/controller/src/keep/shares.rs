// SPDX-License-Identifier: Apache-2.0
//! Who may have more of the hot memory: a few hosts that take all they can must leave some to hosts that come later.
//!
//! Owned by the store's thread. A host that would have more than a [`SMALL`]th of all of it must leave a [`RESERVE`]th; one that has less must leave as much as it has.
//! So hosts with much never touch the last eighth, and it takes many with little to use it up. Cost: two look-ups a track that comes or goes.

use std::collections::HashMap;
use std::sync::Arc;

use onlooker_store::TrackId;

/// A host with more than this part of the whole has much: 8 MiB of the default, where a host with everything on has 2.
const SMALL: u64 = 64;
/// This part is not for hosts that have much.
const RESERVE: u64 = 8;

/// What hosts have of it, in bytes.
pub(super) struct Shares {
    most_bytes: u64,
    taken_bytes: u64,
    hosts: HashMap<Arc<str>, u64>,
    tracks: HashMap<TrackId, (Arc<str>, u64)>,
}

impl Shares {
    /// Of so many bytes.
    pub(super) fn of(most_bytes: u64) -> Self {
        Self { most_bytes, taken_bytes: 0, hosts: HashMap::new(), tracks: HashMap::new() }
    }

    /// Whether a host may have so much more.
    pub(super) fn may_take(&self, host: &str, bytes: u64) -> bool {
        let had = self.hosts.get(host).copied().unwrap_or(0).saturating_add(bytes);
        let left = self.most_bytes.saturating_sub(self.taken_bytes.saturating_add(bytes));
        left >= if had > self.most_bytes / SMALL { self.most_bytes / RESERVE } else { had }
    }

    /// A host has a track's ring.
    pub(super) fn take(&mut self, host: Arc<str>, track: TrackId, bytes: u64) {
        self.taken_bytes += bytes;
        *self.hosts.entry(host.clone()).or_default() += bytes;
        self.tracks.insert(track, (host, bytes));
    }

    /// It has it no more; whose it was.
    pub(super) fn give(&mut self, track: TrackId) -> Option<Arc<str>> {
        let (host, bytes) = self.tracks.remove(&track)?;
        self.taken_bytes -= bytes;
        if let Some(had) = self.hosts.get_mut(&host) {
            *had -= bytes;
            if *had == 0 {
                self.hosts.remove(&host);
            }
        }
        Some(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::TypeGenerator;
    use std::collections::BTreeMap;

    const MOST: u64 = 1 << 20;

    #[derive(Debug, Clone, TypeGenerator)]
    enum Step {
        /// In 512ths of the whole.
        Take {
            host: u8,
            part: u8,
        },
        Give {
            which: u16,
        },
    }

    fn host(number: u8) -> Arc<str> {
        format!("host-{}", number % 24).into()
    }

    #[test]
    fn whatever_hosts_take_who_has_little_finds_some() {
        bolero::check!().with_type::<Vec<Step>>().for_each(|steps| {
            let mut shares = Shares::of(MOST);
            let mut tracks: BTreeMap<u32, (Arc<str>, u64)> = BTreeMap::new();
            for (number, step) in (0..).zip(steps) {
                match *step {
                    Step::Take { host: which, part } => {
                        let (host, bytes) = (host(which), u64::from(part) * MOST / 512);
                        if shares.may_take(&host, bytes) {
                            shares.take(host.clone(), TrackId(number), bytes);
                            tracks.insert(number, (host, bytes));
                        }
                    }
                    Step::Give { which } => {
                        let at = usize::from(which) % tracks.len().max(1);
                        if let Some(track) = tracks.keys().nth(at).copied() {
                            let (host, _) = tracks.remove(&track).unwrap();
                            assert_eq!(shares.give(TrackId(track)), Some(host));
                        }
                    }
                }
                let mut had: BTreeMap<&str, u64> = BTreeMap::new();
                tracks.values().for_each(|(host, bytes)| *had.entry(host).or_default() += bytes);
                let taken: u64 = had.values().sum();
                assert!(taken <= MOST && taken == shares.taken_bytes);
                // Only those that have little are in the last eighth.
                let little: u64 = had.values().filter(|bytes| **bytes <= MOST / SMALL).sum();
                let left = MOST - taken;
                assert!(left + little >= MOST / RESERVE);
                let new = (left / 2).min(MOST / SMALL);
                assert!(shares.may_take("new", new), "{left} are left");
            }
        });
    }

    #[test]
    fn five_that_take_all_they_can_leave_an_eighth() {
        let mut shares = Shares::of(MOST);
        let mut track = 0;
        // As much as quotas let them.
        for host in ["a", "b", "c", "d", "e"].map(Arc::<str>::from) {
            while shares.may_take(&host, 4096) && shares.hosts.get(&host).copied().unwrap_or(0) < MOST / 4 {
                track += 1;
                shares.take(host.clone(), TrackId(track), 4096);
            }
        }
        let left = MOST - shares.taken_bytes;
        assert!(left >= MOST / RESERVE - MOST / SMALL, "{left}");
        assert!(shares.may_take("honest", MOST / SMALL));
    }
}
