// SPDX-License-Identifier: Apache-2.0
//! Which regions a reading fetches. What is on the screen is read every time; the rest, which search and order need, now
//! and then; and one table not at all until somebody looks at it. A host with a table of all its connections would
//! else send megabytes a reading for rows that nobody sees.

use std::collections::{HashMap, HashSet};

/// Between two readings of what is out of view.
pub(super) const REST_NS: u64 = 5_000_000_000;
/// Regions that are read only when asked for by name: the controller's default, for the same reason.
const ASKED_FOR: [&str; 1] = ["tcp_connections"];

/// Regions are known by their identity words.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// In view, or part of what is said of the machine.
    followed: HashSet<u64>,
    /// The only region that is shown.
    asked: Option<String>,
    /// When each region was read last.
    read: HashMap<u64, u64>,
}

impl Pace {
    pub(super) fn follow(&mut self, followed: HashSet<u64>, asked: Option<&str>) {
        self.followed = followed;
        if self.asked.as_deref() != asked {
            self.asked = asked.map(str::to_owned);
        }
    }

    /// Whether a reading at `now_ns` is to fetch it.
    pub(super) fn wants(&self, region: u64, name: &str, now_ns: u64) -> bool {
        let is_due = |read_ns: &u64| now_ns.saturating_sub(*read_ns) >= REST_NS;
        !self.leaves_out(name) && (self.followed.contains(&region) || self.read.get(&region).is_none_or(is_due))
    }

    pub(super) fn leaves_out(&self, name: &str) -> bool {
        ASKED_FOR.contains(&name) && self.asked.as_deref() != Some(name)
    }

    pub(super) fn was_read(&mut self, region: u64, now_ns: u64) {
        self.read.insert(region, now_ns);
    }

    /// Forgets those that the host has no longer.
    pub(super) fn keep(&mut self, regions: &HashSet<u64>) {
        self.read.retain(|region, _| regions.contains(region));
    }

    /// When it was read last; `None`: never, or it is gone.
    pub(super) fn read_ns(&self, region: u64) -> Option<u64> {
        self.read.get(&region).copied()
    }

    /// Read now and then: what it says is old by design.
    pub(super) fn is_seldom(&self, region: u64) -> bool {
        !self.followed.is_empty() && !self.followed.contains(&region)
    }

    /// How many of the host's regions every reading fetches.
    pub(super) fn followed(&self) -> usize {
        self.followed.iter().filter(|region| self.read.contains_key(region)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_view_is_read_always_the_rest_seldom_and_connections_when_asked_for() {
        let mut pace = Pace::default();
        assert!(pace.wants(1, "a", 0) && pace.wants(2, "b", 0), "all once");
        assert!(!pace.wants(3, "tcp_connections", 0));
        (1..3).for_each(|region| pace.was_read(region, 0));
        pace.follow([1].into(), None);
        assert!(pace.wants(1, "a", 1) && !pace.wants(2, "b", REST_NS - 1) && pace.wants(2, "b", REST_NS));
        assert!(pace.wants(4, "new", 1));
        pace.follow([3].into(), Some("tcp_connections"));
        assert!(pace.wants(3, "tcp_connections", 1));
        pace.keep(&[2].into());
        assert!((pace.read_ns(1), pace.read_ns(2), pace.followed()) == (None, Some(0), 0));
    }
}
