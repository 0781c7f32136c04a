// SPDX-License-Identifier: Apache-2.0
//! Hosts in memory, read into a fleet by a clock that the test moves.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlooker_bootstrap::{Secret, Token};
use onlooker_reader::clock::{Moment, Relation, steady_ns};
use onlooker_reader::drive::read_host;
use onlooker_reader::{Frames, Limits, Pair, Session, Via};
use onlooker_targets::{Choice, Priority, Target};

use super::{Entity, Fleet, FleetSink};
use crate::keep::Keeper;
use crate::sink::{Reading, Sink as _, State};

#[path = "../../../reader/tests/common/memory.rs"]
#[allow(unreachable_pub, dead_code)]
pub(crate) mod memory;

#[path = "../../../reader/tests/common/stream.rs"]
#[allow(unreachable_pub, dead_code)]
pub(crate) mod stream;

#[path = "../../../reader/tests/common/direct.rs"]
#[allow(unreachable_pub)]
pub(crate) mod direct;

use direct::Direct;
pub(crate) use memory::{Host, Region};

/// UTC when the steady clock is 0.
const UTC_NS: u64 = 1_700_000_000_000_000_000;
/// What a host's boot clock is ahead of ours.
pub(crate) const AHEAD_NS: u64 = 1_000_000_000_000;
/// How far off a bootstrap may be.
pub(crate) const BOOTSTRAP_NS: u64 = 5_000_000;
/// What passes each time that the clock is looked at in a reading: a READ takes some of it.
const LOOK_NS: u64 = 50_000;

/// A fleet and what reads into it.
pub(crate) struct World {
    pub(crate) fleet: Arc<Fleet>,
    sink: FleetSink,
    now_ns: Arc<AtomicU64>,
    watched: HashMap<String, (Arc<Target>, Session, Relation)>,
    _keeper: Keeper,
    _dir: tempfile::TempDir,
}

/// A store in this directory that keeps all.
pub(crate) fn store_config(dir: &Path) -> onlooker_framestore::Config {
    onlooker_framestore::Config::keeping_all(dir.join("store"), dir.join("hot"), 4 << 20, 64 << 20)
}

impl World {
    pub(crate) fn new() -> Self {
        Self::of(Fleet::default())
    }

    pub(crate) fn of(fleet: Fleet) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (keeper, to, _) = Keeper::start(store_config(dir.path()), |_| {}).unwrap();
        let (fleet, now_ns) = (Arc::new(fleet), Arc::new(AtomicU64::new(steady_ns())));
        let now = now_ns.clone();
        let clock = move || {
            let steady_ns = now.load(Ordering::Relaxed);
            Moment { steady_ns, utc_ns: UTC_NS + steady_ns }
        };
        let sink = FleetSink::with_clock(fleet.clone(), to, keeper.counters(), Box::new(clock));
        Self { fleet, sink, now_ns, watched: HashMap::new(), _keeper: keeper, _dir: dir }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    /// A time of ours in UTC.
    pub(crate) fn utc_ns(steady_ns: u64) -> u64 {
        UTC_NS + steady_ns
    }

    pub(crate) fn pass(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Reads a host once.
    pub(crate) fn read(&mut self, name: &str, host: &Host) {
        let now = self.now_ns.clone();
        if !self.watched.contains_key(name) {
            let session = Session::new(&host.answer(1), Via::Tcp, 64, Limits::default());
            let at = |steady_ns| Moment { steady_ns, utc_ns: UTC_NS + steady_ns };
            let (first_ns, last_ns) = (self.now_ns() - BOOTSTRAP_NS, self.now_ns() + BOOTSTRAP_NS);
            // The host read its clock a little before the middle.
            let relation = Relation::new(self.now_ns() + AHEAD_NS - BOOTSTRAP_NS / 2, at(first_ns), at(last_ns));
            let target = Arc::new(target(name));
            self.sink.state(&target, State::Reading(Pair::TCP));
            self.watched.insert(name.to_owned(), (target, session, relation));
        }
        let (target, session, relation) = self.watched.get_mut(name).unwrap();
        session.select(|_, _| true);
        let began_ns = now.load(Ordering::Relaxed);
        read_host(&mut Direct::new(host), session, u64::MAX, || now.fetch_add(LOOK_NS, Ordering::Relaxed) + LOOK_NS)
            .unwrap();
        let mut frames = Frames::default();
        session.take(&mut frames);
        let reading = Reading {
            due_ns: began_ns,
            began_ns,
            ended_ns: now.load(Ordering::Relaxed),
            repeated: 0,
            frames,
            boot: Some([2; 16]),
            counters: None,
            relation: *relation,
        };
        self.sink.reading(&target.clone(), &reading);
    }

    /// The host was bootstrapped again: what it says of its clock now, within `half_ns`.
    pub(crate) fn renew(&mut self, name: &str, half_ns: u64) {
        let at = |steady_ns| Moment { steady_ns, utc_ns: UTC_NS + steady_ns };
        let now_ns = self.now_ns();
        let relation = Relation::new(now_ns + AHEAD_NS, at(now_ns - half_ns), at(now_ns + half_ns));
        self.watched.get_mut(name).unwrap().2 = relation;
    }

    /// The series that are shown of a host, with their numbers.
    pub(crate) fn shown(&self, name: &str) -> BTreeMap<String, f64> {
        let host = self.fleet.host(name).unwrap();
        let shown = host.look();
        let of = |entity: &Entity| -> Vec<(String, f64)> {
            entity
                .shown()
                .map(|(_, series, text)| (text.to_string(), series.number(shown.entities.row(entity)).unwrap()))
                .collect()
        };
        let all: Vec<(String, f64)> = shown.entities.iter().flat_map(|(_, entity)| of(entity)).collect();
        let count = all.len();
        let all: BTreeMap<String, f64> = all.into_iter().collect();
        assert_eq!(all.len(), count, "each series is shown once");
        all
    }
}

pub(crate) fn target(name: &str) -> Target {
    Target {
        name: name.into(),
        host: "127.0.0.1".into(),
        port: 1,
        token: Token { fingerprint: None, secret: Secret::new([7; 32]) },
        labels: BTreeMap::new(),
        interval: Duration::from_secs(1),
        priority: Priority::Normal,
        choice: Choice::Auto,
    }
}
