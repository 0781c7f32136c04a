// SPDX-License-Identifier: Apache-2.0
//! The engine against real agents: each host at its pace, whatever the others do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use onlooker_bootstrap::Token;
use onlooker_controller::engine::{Config, Orders};
use onlooker_controller::{Gap, Reading, Running, Sink, State};
use onlooker_reader::Pair;
use onlooker_reader::clock::Relation;
use onlooker_targets::{Choice, Priority, Target};
use onlooker_testbed::{Agent, PATIENCE, free_port, until};

const INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
enum Event {
    Reading { due_ns: u64, regions: Vec<String>, values: usize, relation: Relation },
    Gap(Gap),
    State(State),
    Gone,
}

struct Recorder(Sender<(String, Event)>);

impl Recorder {
    fn send(&self, target: &Target, event: Event) {
        // The test may have seen enough.
        let _ = self.0.send((target.name.clone(), event));
    }
}

impl Sink for Recorder {
    fn reading(&mut self, target: &Arc<Target>, reading: &Reading) {
        assert!(reading.due_ns <= reading.began_ns && reading.began_ns <= reading.ended_ns);
        let mut values = 0;
        reading.frames.iter().for_each(|frame| frame.decode(|_| values += 1));
        let regions = reading.frames.iter().map(|frame| frame.entry().name.clone()).collect();
        self.send(target, Event::Reading { due_ns: reading.due_ns, regions, values, relation: reading.relation });
    }

    fn gap(&mut self, target: &Arc<Target>, gap: Gap) {
        self.send(target, Event::Gap(gap));
    }

    fn state(&mut self, target: &Arc<Target>, state: State) {
        self.send(target, Event::State(state));
    }

    fn gone(&mut self, target: &Arc<Target>) {
        self.send(target, Event::Gone);
    }
}

fn target(name: &str, port: u16, token: Token) -> Arc<Target> {
    Arc::new(Target {
        name: name.into(),
        host: "127.0.0.1".into(),
        port,
        token,
        labels: BTreeMap::new(),
        interval: INTERVAL,
        priority: Priority::Normal,
        choice: Choice::Auto,
    })
}

fn target_of(agent: &Agent, name: &str) -> Arc<Target> {
    target(name, agent.port(), Token::parse(&agent.token()).unwrap())
}

/// An engine and what it tells.
struct Watched {
    engine: Option<Running<Recorder>>,
    events: Receiver<(String, Event)>,
}

impl Watched {
    fn start() -> Self {
        Self::start_with(Config::default())
    }

    fn start_with(config: Config) -> Self {
        let (send, events) = channel();
        let config = Config { timeout: Duration::from_millis(500), ..config };
        Self { engine: Some(Running::start(config, vec![Recorder(send)]).unwrap()), events }
    }

    fn orders(&self) -> &Orders {
        self.engine.as_ref().expect("runs until dropped").orders()
    }

    /// The first event of a host for which `wanted` has an answer.
    fn wait<T>(&self, host: &str, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.events.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok((name, event)) if name == host => {
                    if let Some(found) = wanted(event) {
                        return found;
                    }
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => panic!("{host}: not seen in time"),
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let ended = self.engine.take().map(Running::stop);
        assert!(std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

#[test]
fn regions_that_are_skipped_are_not_read() {
    let agent = Agent::start();
    let skip = ["node_load".to_owned(), "no_such_region".to_owned()];
    let running = Watched::start_with(Config { skip: skip.into(), ..Config::default() });
    running.orders().watch(target_of(&agent, "one"));
    let regions = running.wait("one", |event| match event {
        Event::Reading { regions, .. } if !regions.is_empty() => Some(regions),
        _ => None,
    });
    assert!(regions.contains(&"node_cpu".to_owned()) && !regions.contains(&"node_load".to_owned()), "{regions:?}");
    assert_eq!(Config::default().skip.as_ref(), ["tcp_connections"]);
}

#[test]
fn each_host_is_read_at_its_pace_and_a_dead_one_harms_nobody() {
    let (one, two) = (Agent::start(), Agent::start());
    let running = Watched::start();
    running.orders().watch(target_of(&one, "one"));
    running.orders().watch(target_of(&two, "two"));
    running.orders().watch(target("dead", free_port(), target_of(&one, "one").token.clone()));
    // In whatever order.
    let mut settled = BTreeSet::new();
    while settled.len() < 3 {
        let (host, event) = running.events.recv_timeout(PATIENCE).expect("all are tried in time");
        let expected = match event {
            Event::State(State::Reading(pair)) => host != "dead" && pair == Pair::TCP,
            Event::State(State::Failed(_)) => host == "dead",
            _ => false,
        };
        if expected {
            settled.insert(host);
        }
    }
    let interval_ns = u64::try_from(INTERVAL.as_nanos()).unwrap();
    // Long enough that batches of READs have been numbered past 256. A busy machine gets one such time of several.
    until("three seconds as they should be", || {
        let (mut due, mut gaps, mut is_whole) = (BTreeMap::<String, Vec<u64>>::new(), 0, true);
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            match running.events.recv_timeout(PATIENCE).unwrap() {
                (host, Event::Reading { due_ns, regions, values, .. }) => {
                    assert!(regions.contains(&"node_load".to_owned()), "{regions:?}");
                    is_whole &= values > 20;
                    due.entry(host).or_default().push(due_ns);
                }
                (host, Event::Gap(gap)) => gaps += u64::from(host == "dead") * gap.due_times,
                (_, Event::State(_) | Event::Gone) => {}
            }
        }
        assert_eq!(due.keys().collect::<Vec<_>>(), ["one", "two"]);
        // All on the grid; how many of them are met depends on who else uses this machine.
        let on_grid = |times: &Vec<u64>| {
            times.windows(2).all(|pair| pair[1] > pair[0] && (pair[1] - pair[0]).is_multiple_of(interval_ns))
        };
        assert!(due.values().all(on_grid), "{due:?}");
        (is_whole && gaps > 10 && due.values().all(|times| times.len() > 75)).then_some(())
    });
}

/// Over TCP nothing is computed at the READ: after some seconds the clock is known no better than by milliseconds, and a bootstrap tells it again. Readings go on meanwhile.
#[test]
fn a_host_over_tcp_is_asked_for_its_clock_again() {
    let agent = Agent::start();
    let running = Watched::start();
    running.orders().watch(target_of(&agent, "one"));
    // A machine that is too busy for a READ has it asked for everything again: that does not count.
    until("another relation while it is read", || {
        let mut first = None;
        running.wait("one", |event| match event {
            Event::Reading { relation, .. } => (*first.get_or_insert(relation) != relation).then_some(Some(())),
            Event::State(State::Failed(_) | State::Silent(_)) => Some(None),
            _ => None,
        })
    });
}

#[test]
fn who_asks_for_a_device_is_told_what_is_missing_and_gets_nothing_else() {
    let agent = Agent::start();
    let running = Watched::start();
    let target = Target { choice: Choice::Verbs, ..(*target_of(&agent, "host")).clone() };
    running.orders().watch(Arc::new(target));
    for _ in 0..2 {
        // On a busy machine other attempts may fail sooner, for want of time.
        running.wait("host", |event| match event {
            Event::State(State::Failed(error)) => error.contains("offers no verbs responder").then_some(()),
            Event::State(State::Reading(pair)) => panic!("it is read by {pair}"),
            _ => None,
        });
    }
}

#[test]
fn a_host_that_goes_has_gaps_with_a_reason_and_comes_back() {
    let mut agent = Agent::start();
    let running = Watched::start();
    running.orders().watch(target_of(&agent, "host"));
    running.wait("host", |event| matches!(event, Event::Reading { .. }).then_some(()));
    agent.kill();
    let reason = running.wait("host", |event| match event {
        Event::Gap(gap) if gap.reason != "late" => Some(gap.reason),
        _ => None,
    });
    assert!(["lost", "timeout", "connecting", "unreachable"].contains(&reason), "{reason}");
    agent.run();
    running.wait("host", |event| matches!(event, Event::State(State::Reading(_))).then_some(()));
    running.wait("host", |event| matches!(event, Event::Reading { .. }).then_some(()));
    running.orders().forget("host");
    running.wait("host", |event| matches!(event, Event::Gone).then_some(()));
    // Nothing follows.
    assert!(running.events.recv_timeout(INTERVAL * 20).is_err());
    running.orders().watch(target_of(&agent, "host"));
    running.wait("host", |event| matches!(event, Event::Reading { .. }).then_some(()));
}
