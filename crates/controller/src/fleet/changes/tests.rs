// SPDX-License-Identifier: Apache-2.0
use super::super::fixture::target;
use super::super::{Fleet, Quota};
use super::*;
use std::collections::BTreeMap;

const START: u64 = 1_000_000;

/// A fleet, what is seen of it, and a clock that the test moves.
struct Watched {
    fleet: Fleet,
    targets: BTreeMap<String, Arc<Target>>,
    seen: Seen,
    now_ns: u64,
    /// Changes of states.
    turns: u64,
}

impl Watched {
    fn new() -> Self {
        let fleet = Fleet::within(Quota::default());
        Self { fleet, targets: BTreeMap::new(), seen: Seen::new(START), now_ns: 0, turns: 0 }
    }

    fn enter(&mut self, name: &str) {
        let target = Arc::new(target(name));
        self.fleet.enter(&target);
        self.targets.insert(name.to_owned(), target);
    }

    fn leave(&mut self, name: &str) {
        self.fleet.leave(name);
    }

    fn turn(&mut self, host: &Host, state: State) {
        self.turns += 1;
        let mut shown = host.look();
        (shown.state, shown.since_ns) = (state, self.turns);
    }

    fn since(&mut self, number: u64) -> Since {
        self.seen.look(&self.fleet.hosts(), self.now_ns);
        self.seen.since(number)
    }
}

/// What a page knows.
#[derive(Default)]
struct Copy {
    number: u64,
    hosts: BTreeMap<String, (State, u64)>,
}

fn known(host: &Host) -> (String, (State, u64)) {
    let shown = host.look();
    (host.target.name.clone(), (shown.state.clone(), shown.gaps.values().sum()))
}

impl Copy {
    fn ask(&mut self, watched: &mut Watched) -> usize {
        let Since { number, hosts, gone } = watched.since(self.number);
        let all = watched.fleet.hosts();
        let is_whole = hosts.is_none();
        let hosts = hosts.unwrap_or_else(|| all.to_vec());
        if is_whole {
            self.hosts.clear();
        }
        gone.iter().for_each(|name| drop(self.hosts.remove(name)));
        let count = hosts.len();
        self.hosts.extend(hosts.iter().map(|host| known(host)));
        self.number = number;
        count
    }
}

/// Whatever happens between two questions: what changed, applied to what a page had, is the whole.
#[test]
fn differences_applied_to_a_copy_give_the_whole() {
    bolero::check!().with_type::<Vec<(u8, u8)>>().for_each(|steps| {
        let (mut watched, mut seldom, mut often) = (Watched::new(), Copy::default(), Copy::default());
        for (what, which) in steps {
            let name = format!("h{}", which % 5);
            let host = watched.fleet.host(&name);
            match (what % 8, host) {
                (0, _) => watched.enter(&name),
                (1, _) => watched.leave(&name),
                (2, Some(host)) => watched.turn(&host, State::Silent("x".into())),
                (3, Some(host)) => watched.turn(&host, State::Failed("x".into())),
                (4, Some(host)) => *host.look().gaps.entry("timeout").or_default() += 1,
                (5, _) => {
                    often.ask(&mut watched);
                }
                (6, _) => {
                    seldom.ask(&mut watched);
                }
                _ => watched.now_ns += u64::from(*which) * 100_000_000,
            }
        }
        // Gaps that go on are told after a while.
        watched.now_ns += GAPS_NS;
        let whole: BTreeMap<_, _> = watched.fleet.hosts().iter().map(|host| known(host)).collect();
        for copy in [&mut seldom, &mut often] {
            copy.ask(&mut watched);
            assert_eq!(copy.hosts, whole);
            assert_eq!(copy.ask(&mut watched), 0, "nothing has changed since");
        }
    });
}

#[test]
fn readings_are_no_changes_and_gaps_that_go_on_are_seldom_one() {
    let mut watched = Watched::new();
    ["a", "b", "c"].iter().for_each(|name| watched.enter(name));
    let mut copy = Copy::default();
    assert_eq!(copy.ask(&mut watched), 3);
    let host = watched.fleet.host("b").unwrap();
    let mut told = 0;
    for _ in 0..20 {
        watched.now_ns += 500_000_000;
        let mut shown = host.look();
        (shown.cycles, shown.newest_ns) = (shown.cycles + 1, Some(watched.now_ns));
        *shown.gaps.entry("timeout").or_default() += 1;
        drop(shown);
        told += copy.ask(&mut watched);
    }
    assert_eq!(told, 2, "the first gap at once, and again after 5 s");
    // Within the time between two looks nobody looks.
    watched.turn(&host, State::Silent("gone".into()));
    assert_eq!(copy.ask(&mut watched), 0);
    watched.now_ns += LOOK_NS;
    assert_eq!(copy.ask(&mut watched), 1);
}

#[test]
fn numbers_of_others_and_of_long_ago_give_the_whole() {
    let mut watched = Watched::new();
    watched.enter("a");
    for number in [0, START - 1, START + 2, u64::MAX] {
        assert!(watched.since(number).hosts.is_none(), "{number}");
    }
    assert_eq!(watched.since(START).hosts.unwrap().len(), 1);
    let number = watched.since(0).number;
    // The same name, another target.
    watched.enter("a");
    let Since { hosts, gone, .. } = watched.since(number);
    assert!(hosts.unwrap().len() == 1 && gone.is_empty());
    // More than are remembered go at once.
    (0..=MAX_GONE).for_each(|at| watched.enter(&format!("x{at:05}")));
    let before = watched.since(0).number;
    (0..=MAX_GONE).for_each(|at| watched.leave(&format!("x{at:05}")));
    assert!(watched.since(before).hosts.is_none());
    let now = watched.since(0).number;
    assert!(watched.since(now).hosts.is_some_and(|hosts| hosts.is_empty()));
}
