// SPDX-License-Identifier: Apache-2.0
//! Times of rows over a real agent: while the clock is set back and on, and over the time that no controller ran.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use onlooker_bootstrap::Token;
use onlooker_controller::Running;
use onlooker_controller::engine::Config;
use onlooker_controller::fleet::{Fleet, FleetSink};
use onlooker_controller::keep::Keeper;
use onlooker_reader::clock::Moment;
use onlooker_store::{Store, TrackId};
use onlooker_targets::{Choice, Target};
use onlooker_testbed::{Agent, until};

const INTERVAL: Duration = Duration::from_millis(20);
const HOUR_NS: i64 = 3_600_000_000_000;

fn store_config(dir: &Path) -> onlooker_store::Config {
    onlooker_store::Config {
        dir: dir.join("store"),
        hot: dir.join("hot"),
        hot_bytes: 16 << 20,
        tile_rows: 64,
        segment_bytes: 1 << 20,
        max_bytes: 64 << 20,
    }
}

fn target_of(agent: &Agent) -> Arc<Target> {
    Arc::new(Target {
        name: "host".into(),
        host: "127.0.0.1".into(),
        port: agent.port(),
        token: Token::parse(&agent.token()).unwrap(),
        labels: BTreeMap::new(),
        interval: INTERVAL,
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
        let (keeper, tracks, _) = Keeper::start(store_config(dir), |_| {}).unwrap();
        let (fleet, off_ns) = (Arc::new(Fleet::default()), Arc::new(AtomicI64::new(0)));
        let off = off_ns.clone();
        let clock = move || {
            let now = Moment::now();
            Moment { utc_ns: now.utc_ns.saturating_add_signed(off.load(Ordering::Relaxed)), ..now }
        };
        let sink = FleetSink::with_clock(fleet.clone(), tracks, keeper.counters(), Box::new(clock));
        let engine = Running::start(Config::default(), sink).unwrap();
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

/// Times of the rows of all tracks that have some number of them, in the order of appending.
fn times(store: &Store, at_least: usize) -> Vec<(TrackId, Vec<u64>)> {
    let ids: Vec<TrackId> = store.tracks().map(|(id, _)| id).collect();
    let of = |id| {
        let mut times = Vec::new();
        store.read(id, 0, u64::MAX, |_, time_ns, _| times.push(time_ns)).unwrap();
        (id, times)
    };
    ids.into_iter().map(of).filter(|(_, times)| times.len() >= at_least).collect()
}

fn reasons(store: &Store, track: TrackId) -> Vec<String> {
    store.gaps(track, 0, u64::MAX).map(|gap| gap.reason).collect()
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

    let (writer, _) = Store::open(store_config(dir.path())).unwrap();
    let store = writer.look();
    let columns: BTreeMap<TrackId, usize> =
        store.tracks().map(|(id, described)| (id, described.unpack().unwrap().kinds().len())).collect();
    let kept: usize = times(&store, 0).iter().map(|(id, times)| times.len() * columns[id]).sum();
    assert_eq!(counters.refused_rows.load(Ordering::Relaxed), 0);
    assert_eq!(kept as u64, counters.values.load(Ordering::Relaxed), "all that was taken is there");
    // A busy machine reads some of them late, and leaves those out.
    let is_in_all = |times: &[u64]| {
        [first_ns, second_ns, third_ns]
            .iter()
            .all(|at_ns| times.iter().any(|time_ns| time_ns.abs_diff(*at_ns) < hour_ns / 2))
    };
    let tracks: Vec<_> = times(&store, 3).into_iter().filter(|(_, times)| is_in_all(times)).collect();
    assert!(tracks.len() > 3, "{}", tracks.len());
    for (track, times) in tracks {
        let steps: Vec<bool> = times
            .windows(2)
            .filter(|pair| pair[1].abs_diff(pair[0]) > hour_ns / 2)
            .map(|pair| pair[1] > pair[0])
            .collect();
        assert_eq!(steps, [false, true], "back and on again");
        let back = times.windows(2).filter(|pair| pair[1] <= pair[0]).count();
        assert_eq!(back, 1, "rows are in order but for the step");
        let marks: Vec<_> = store.gaps(track, 0, u64::MAX).filter(|gap| gap.reason == "clock_step").collect();
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
    let (writer, _) = Store::open(store_config(dir.path())).unwrap();
    let store = writer.look();
    let mut seen = BTreeSet::new();
    for (track, times) in times(&store, 40) {
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
        let reasons = reasons(&store, track);
        assert_eq!(reasons.iter().filter(|reason| *reason == "stopped").count(), 1, "{reasons:?}");
        assert_eq!(reasons.iter().filter(|reason| *reason == "controller_down").count(), 1, "{reasons:?}");
        let gaps: Vec<_> = store.gaps(track, 0, u64::MAX).filter(|gap| gap.reason != "late").collect();
        // Between the last row before and the first one after; there is a row on either side and none within.
        for gap in gaps.iter().filter(|gap| ["stopped", "controller_down"].contains(&gap.reason.as_str())) {
            assert!(times.iter().all(|time_ns| *time_ns <= gap.from_ns || *time_ns + 100_000_000 >= gap.to_ns));
            assert!(gap.from_ns < gap.to_ns);
        }
        let (_, described) = store.tracks().find(|(id, _)| *id == track).unwrap();
        seen.insert(described.unpack().unwrap().region);
    }
    assert!(seen.contains("node_memory"), "{seen:?}");
}

#[test]
fn hot_rows_that_are_lost_lie_in_the_gap() {
    let (agent, dir) = (Agent::start(), tempfile::tempdir().unwrap());
    let config = store_config(dir.path());
    drop({
        let world = World::start(dir.path(), &agent);
        world.read(20);
        world
    });
    let last_ns = |config| {
        let (writer, _) = Store::open(config).unwrap();
        let store = writer.look();
        let tracks: Vec<TrackId> = store.tracks().map(|(id, _)| id).collect();
        tracks.into_iter().filter_map(|id| Some((id, store.newest_ns(id)?))).collect::<BTreeMap<_, _>>()
    };
    let before = last_ns(config.clone());
    // As after a kill whose hot rows were lost: one track's rows end earlier than the others'.
    fs::remove_file(dir.path().join("store/stopped")).unwrap();
    fs::remove_file(dir.path().join("hot")).unwrap();
    drop({
        let world = World::start(dir.path(), &agent);
        world.read(20);
        world
    });
    let (writer, _) = Store::open(config).unwrap();
    let store = writer.look();
    let moving = times(&store, 25);
    assert!(!moving.is_empty());
    for (track, _) in moving {
        let from: Vec<u64> = store
            .gaps(track, 0, u64::MAX)
            .filter(|gap| gap.reason == "controller_down")
            .map(|gap| gap.from_ns)
            .collect();
        assert_eq!(from, [before[&track]], "from its own last row");
    }
}
