// SPDX-License-Identifier: Apache-2.0
//! A host that is forgotten leaves nothing open and no gap; one that comes again under its name goes on with its history.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use onlooker_bootstrap::Token;
use onlooker_controller::engine::Config;
use onlooker_controller::fleet::{Fleet, FleetSink};
use onlooker_controller::keep::Keeper;
use onlooker_controller::{Running, State};
use onlooker_framestore::Named;
use onlooker_reader::clock::Moment;
use onlooker_targets::{Choice, Priority, Target};
use onlooker_testbed::{Agent, until};

/// A part or a line, and the times of its samples.
type Track = (Named, Vec<u64>);

const INTERVAL: Duration = Duration::from_millis(20);

fn target(agent: &Agent, interval: Duration) -> Arc<Target> {
    Arc::new(Target {
        name: "host".into(),
        host: "127.0.0.1".into(),
        port: agent.port(),
        token: Token::parse(&agent.token()).unwrap(),
        labels: BTreeMap::new(),
        interval,
        priority: Priority::Normal,
        choice: Choice::Auto,
    })
}

#[test]
fn a_forgotten_host_leaves_nothing_open_and_no_gap() {
    let agent = Agent::start();
    let dir = tempfile::tempdir().unwrap();
    let config =
        onlooker_framestore::Config::keeping_all(dir.path().join("store"), dir.path().join("hot"), 4 << 20, 64 << 20);
    let (keeper, to, _) = Keeper::start(config, |_| {}).unwrap();
    let store = keeper.store();
    let fleet = Arc::new(Fleet::default());
    let sinks = (0..2).map(|_| FleetSink::new(fleet.clone(), to.clone(), keeper.counters())).collect();
    let engine = Running::start(Config::default(), sinks).unwrap();
    let all = || -> Vec<Track> {
        let times = |named: Named| {
            let mut times_ns = Vec::new();
            let read = store.read(&named.columns, 0, u64::MAX, |time_ns, _| {
                times_ns.push(time_ns);
                ControlFlow::Continue(())
            });
            read.unwrap();
            (named, times_ns)
        };
        store.series_of("host").into_iter().map(times).collect()
    };
    let total = || all().iter().map(|(_, rows)| rows.len()).sum::<usize>();

    engine.orders().watch(target(&agent, INTERVAL));
    until("rows", || (total() > 200).then_some(()));
    engine.orders().forget("host");
    until("it leaves the fleet", || fleet.host("host").is_none().then_some(()));
    let forgotten_ns = Moment::now().utc_ns;
    let before = all();
    std::thread::sleep(Duration::from_millis(700));

    // The same name again, twice at once and at another pace: the tracks are the same ones and go on.
    for millis in [30, 40, 50] {
        engine.orders().watch(target(&agent, Duration::from_millis(millis)));
    }
    let watched_ns = Moment::now().utc_ns;
    let goes_on = || {
        let now = all();
        let grown = |(of, rows): &Track| {
            let is_grown = |(other, later): &Track| {
                other.columns == of.columns && later.len() > rows.len() && later.starts_with(rows)
            };
            now.iter().any(is_grown)
        };
        // Some rows never change again: the load's do.
        before.iter().filter(|track| grown(track)).count() > 2 && total() > 400
    };
    until("the same tracks go on", || goes_on().then_some(()));
    let host = fleet.host("host").unwrap();
    assert_eq!(host.target.interval, Duration::from_millis(50));
    assert!(matches!(host.look().state, State::Reading(_)));
    engine.stop().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    for (of, _) in &before {
        let in_between: Vec<_> = store
            .gaps(&of.columns, forgotten_ns + 50_000_000, watched_ns)
            .into_iter()
            .filter(|gap| gap.to_ns > forgotten_ns + 50_000_000 && gap.from_ns < watched_ns)
            .collect();
        assert!(in_between.is_empty(), "nobody asked then: {in_between:?}");
    }
}
