// SPDX-License-Identifier: Apache-2.0
//! Which regions a reading fetches: those that the view follows, and no others. Only the view of all series looks at
//! the rest, which its search and order
//! need: what is on the screen every time, the others now and then, and one table not at all until somebody asks for
//! it. A host with a
//! table of all its connections would else send megabytes a reading for rows that nobody sees.

use super::kind::{Kind, Region};
use std::collections::{HashMap, HashSet};

/// Between two readings of what is out of view.
pub(super) const REST_NS: u64 = 5_000_000_000;
/// Regions that are read only when asked for by name: the controller's default, for the same reason.
const ASKED_FOR: [&str; 1] = ["tcp_connections"];

/// Regions are known by their identity words.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// What is looked at.
    kind: Kind,
    /// Regions of series in sight.
    in_view: HashSet<u64>,
    /// The only region that is shown.
    asked: Option<String>,
    /// When each region was read last.
    read: HashMap<u64, u64>,
}

impl Pace {
    pub(super) fn follow(&mut self, kind: Kind, in_view: &HashSet<u64>, asked: Option<&str>) {
        self.kind = kind;
        self.in_view.clone_from(in_view);
        if self.asked.as_deref() != asked {
            self.asked = asked.map(str::to_owned);
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether every reading fetches it.
    pub(super) fn follows(&self, region: &Region) -> bool {
        let is_seen = self.kind == Kind::Series && self.in_view.contains(&region.word);
        !self.leaves_out(&region.name) && (self.kind.follows(region) || is_seen)
    }

    /// Whether a reading at `now_ns` is to fetch it.
    pub(super) fn wants(&self, region: &Region, now_ns: u64) -> bool {
        let is_due = |read_ns: &u64| now_ns.saturating_sub(*read_ns) >= REST_NS;
        let is_rest = self.kind == Kind::Series && self.read.get(&region.word).is_none_or(is_due);
        !self.leaves_out(&region.name) && (self.follows(region) || is_rest)
    }

    /// Whether the view of all series passes it over.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents(word: u64, name: &str) -> Region {
        Region { word, name: name.into(), is_agents: true }
    }

    #[test]
    fn of_all_series_what_is_in_view_is_read_always_the_rest_seldom_and_connections_when_asked_for() {
        let (a, b, connections) = (agents(1, "a"), agents(2, "b"), agents(3, "tcp_connections"));
        let mut pace = Pace::default();
        pace.follow(Kind::Series, &HashSet::new(), None);
        assert!(pace.wants(&a, 0) && pace.wants(&b, 0), "all once");
        assert!(!pace.wants(&connections, 0));
        (1..3).for_each(|region| pace.was_read(region, 0));
        pace.follow(Kind::Series, &[1].into(), None);
        assert!(pace.wants(&a, 1) && !pace.wants(&b, REST_NS - 1) && pace.wants(&b, REST_NS));
        assert!(pace.wants(&agents(4, "new"), 1));
        pace.follow(Kind::Series, &[3].into(), Some("tcp_connections"));
        assert!(pace.wants(&connections, 1));
        pace.keep(&[2].into());
        assert!((pace.read_ns(1), pace.read_ns(2)) == (None, Some(0)));
    }

    #[test]
    fn a_view_reads_what_it_shows_and_nothing_else() {
        let program = Region { word: 9, name: "shop".into(), is_agents: false };
        // A program may call its region as the agent's are called.
        let liar = Region { word: 10, name: "processes".into(), is_agents: false };
        let all = [
            agents(1, "node_cpu"),
            agents(2, "node_memory_sampled"),
            agents(3, "node_filesystem"),
            agents(4, "processes"),
            agents(5, "cgroups"),
            agents(6, "node_interrupts"),
            agents(7, "tcp_connections"),
            program,
            liar,
        ];
        for (kind, wanted) in [
            (Kind::Machine, &[1, 2, 3][..]),
            (Kind::Processes, &[1, 2, 4]),
            (Kind::Containers, &[1, 2, 5]),
            (Kind::Programs, &[9, 10]),
            (Kind::Series, &[1, 2, 3, 4, 5, 6, 9, 10]),
        ] {
            let mut pace = Pace::default();
            // What was in sight in another view does not matter.
            pace.follow(kind, &[6].into(), None);
            let wants = |now_ns| -> Vec<u64> {
                all.iter().filter(|region| pace.wants(region, now_ns)).map(|region| region.word).collect()
            };
            assert_eq!((wants(0), wants(100 * REST_NS)), (wanted.to_vec(), wanted.to_vec()), "{kind:?}");
        }
    }
}
