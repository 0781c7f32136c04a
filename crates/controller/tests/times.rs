// SPDX-License-Identifier: Apache-2.0
//! Times of rows over a real agent: while the clock is set back and on, and over the time that no controller ran.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use onlooker_bootstrap::Token;
use onlooker_controller::Running;
use onlooker_controller::engine::Config;
use onlooker_controller::fleet::{Fleet, FleetSink};
use onlooker_controller::keep::Keeper;
use onlooker_framestore::types::Gap;
use onlooker_framestore::{Named, Store};
use onlooker_reader::clock::Moment;
use onlooker_targets::{Choice, Priority, Target};
use onlooker_testbed::{Agent, until};

const INTERVAL: Duration = Duration::from_millis(20);
const HOUR_NS: i64 = 3_600_000_000_000;

fn store_config(dir: &Path) -> onlooker_framestore::Config {
    onlooker_framestore::Config::keeping_all(dir.join("store"), dir.join("hot"), 4 << 20, 64 << 20)
}

fn target_of(agent: &Agent) -> Arc<Target> {
    Arc::new(Target {
        name: "host".into(),
        host: "127.0.0.1".into(),
        port: agent.port(),
        token: Token::parse(&agent.token()).unwrap(),
        labels: BTreeMap::new(),
        interval: INTERVAL,
        priority: Priority::Normal,
        choice: Choice::Auto,
    })
}

/// Engine, fleet and store, with a clock that can be set.
struct World {
    engine: Option<Running<FleetSink>>,
    fleet: Arc<Fleet>,
    off_ns: Arc<AtomicI64>,
    keeper: Keeper,
}

impl World {
    fn start(dir: &Path, agent: &Agent) -> Self {
        let (keeper, to, _) = Keeper::start(store_config(dir), |_| {}).unwrap();
        let (fleet, off_ns) = (Arc::new(Fleet::default()), Arc::new(AtomicI64::new(0)));
        let off = off_ns.clone();
        let clock = move || {
            let now = Moment::now();
            Moment { utc_ns: now.utc_ns.saturating_add_signed(off.load(Ordering::Relaxed)), ..now }
        };
        let sink = FleetSink::with_clock(fleet.clone(), to, keeper.counters(), Box::new(clock));
        let engine = Running::start(Config::default(), vec![sink]).unwrap();
        engine.orders().watch(target_of(agent));
        Self { engine: Some(engine), fleet, off_ns, keeper }
    }

    /// Waits for readings, and gives the time of the newest values.
    fn read(&self, more: u64) -> u64 {
        let cycles = || self.fleet.host("host").map_or(0, |host| host.look().cycles);
        let before = cycles();
        until("readings", || (cycles() >= before + more).then_some(()));
        self.fleet.host("host").and_then(|host| host.look().newest_ns()).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let ended = self.engine.take().map(Running::stop);
        assert!(std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

/// Parts and lines that have some number of samples, with their times in the order of appending.
fn times(store: &Store, at_least: usize) -> Vec<(Named, Vec<u64>)> {
    let of = |named: Named| {
        let mut times = Vec::new();
        let damaged = store.read(&named.columns, 0, u64::MAX, |time_ns, _| {
            times.push(time_ns);
            ControlFlow::Continue(())
        });
        assert_eq!(damaged.unwrap(), []);
        (named, times)
    };
    store.series_of("host").into_iter().map(of).filter(|(_, times)| times.len() >= at_least).collect()
}

fn gaps(store: &Store, named: &Named) -> Vec<Gap> {
    store.gaps(&named.columns, 0, u64::MAX)
}

fn opened(dir: &Path) -> Store {
    onlooker_framestore::open(store_config(dir)).unwrap().0
}

#[test]
fn a_clock_that_is_set_leaves_a_mark_and_no_row_is_lost() {
    let (agent, dir) = (Agent::start(), tempfile::tempdir().unwrap());
    let world = World::start(dir.path(), &agent);
    let first_ns = world.read(40);
    world.off_ns.store(-HOUR_NS, Ordering::Relaxed);
    let second_ns = world.read(40);
    world.off_ns.store(HOUR_NS, Ordering::Relaxed);
    let third_ns = world.read(40);
    let hour_ns = HOUR_NS.cast_unsigned();
    assert!(second_ns < first_ns - hour_ns / 2 && third_ns > first_ns + hour_ns / 2, "what is live follows the clock");
    let counters = world.keeper.counters();
    drop(world);

    let store = opened(dir.path());
    assert_eq!(counters.refused_rows.load(Ordering::Relaxed), 0);
    let words = |named: &Named| named.series.iter().map(|series| series.form.words()).sum::<usize>();
    let kept: usize = times(&store, 0).iter().map(|(named, times)| times.len() * words(named)).sum();
    // What stays in a row when its layout changes is in both tracks.
    let taken = counters.values.load(Ordering::Relaxed);
    assert!(kept as u64 >= taken && taken > 0, "{kept} of {taken} values");
    // A busy machine reads some of them late, and leaves those out.
    let is_in_all = |times: &[u64]| {
        [first_ns, second_ns, third_ns]
            .iter()
            .all(|at_ns| times.iter().any(|time_ns| time_ns.abs_diff(*at_ns) < hour_ns / 2))
    };
    let tracks: Vec<_> = times(&store, 3).into_iter().filter(|(_, times)| is_in_all(times)).collect();
    assert!(tracks.len() > 3, "{}", tracks.len());
    for (named, times) in tracks {
        let steps: Vec<bool> = times
            .windows(2)
            .filter(|pair| pair[1].abs_diff(pair[0]) > hour_ns / 2)
            .map(|pair| pair[1] > pair[0])
            .collect();
        assert_eq!(steps, [false, true], "back and on again");
        let back = times.windows(2).filter(|pair| pair[1] <= pair[0]).count();
        assert_eq!(back, 1, "rows are in order but for the step");
        let marks: Vec<_> = gaps(&store, &named).into_iter().filter(|gap| gap.reason == "clock_step").collect();
        assert_eq!(marks.len(), 2);
        assert!(marks[0].to_ns - marks[0].from_ns > hour_ns - 1_000_000_000, "what is ambiguous is marked");
        assert!(marks[1].to_ns - marks[1].from_ns > 2 * hour_ns - 1_000_000_000, "what is empty is marked");
    }
}

#[test]
fn the_time_without_a_controller_is_a_gap_that_says_why() {
    let (agent, dir) = (Agent::start(), tempfile::tempdir().unwrap());
    drop({
        let world = World::start(dir.path(), &agent);
        world.read(20);
        world
    });
    drop({
        let world = World::start(dir.path(), &agent);
        world.read(20);
        world
    });
    // As it is after a kill: nobody has said that it was to stop.
    fs::remove_file(dir.path().join("store/stopped")).unwrap();
    drop({
        let world = World::start(dir.path(), &agent);
        world.read(20);
        world
    });
    let store = opened(dir.path());
    let mut seen = BTreeSet::new();
    for (named, times) in times(&store, 40) {
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
        let gaps: Vec<_> = gaps(&store, &named).into_iter().filter(|gap| gap.reason != "late").collect();
        let count = |reason: &str| gaps.iter().filter(|gap| gap.reason == reason).count();
        assert_eq!((count("stopped"), count("controller_down")), (1, 1), "{gaps:?}");
        // Between the last row before and the first one after; there is a row on either side and none within.
        for gap in gaps.iter().filter(|gap| ["stopped", "controller_down"].contains(&gap.reason.as_str())) {
            assert!(times.iter().all(|time_ns| *time_ns <= gap.from_ns || *time_ns + 100_000_000 >= gap.to_ns));
            assert!(gap.from_ns < gap.to_ns);
        }
        seen.extend(named.series.iter().map(|series| series.name.to_string()));
    }
    assert!(seen.contains("node_memory_MemFree_bytes"), "{seen:?}");
}

#[test]
fn hot_rows_that_are_lost_lie_in_the_gap() {
    let (agent, dir) = (Agent::start(), tempfile::tempdir().unwrap());
    drop({
        let world = World::start(dir.path(), &agent);
        world.read(20);
        world
    });
    let before_ns = opened(dir.path()).newest_of_hosts()["host"];
    // As after a kill whose ring was lost.
    fs::remove_file(dir.path().join("store/stopped")).unwrap();
    fs::remove_file(dir.path().join("hot")).unwrap();
    drop({
        let world = World::start(dir.path(), &agent);
        world.read(20);
        world
    });
    let store = opened(dir.path());
    let moving = times(&store, 25);
    assert!(!moving.is_empty());
    for (named, _) in moving {
        let down = gaps(&store, &named).into_iter().filter(|gap| gap.reason == "controller_down");
        assert_eq!(down.map(|gap| gap.from_ns).collect::<Vec<_>>(), [before_ns], "from the last row");
    }
}
