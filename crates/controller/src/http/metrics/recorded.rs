// SPDX-License-Identifier: Apache-2.0
//! What `/metrics` says of the controller and of its hosts, recorded with `up` of each host, so that queries and rules
//! find what was. A series that has gone from there ends. The same thread samples hosts' vitals.

use std::collections::HashSet;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onlooker_promql::labels::{Labels, NAME};
use onlooker_promql::source::STALE;
use onlooker_query::{NotRecorded, Recorder};
use onlooker_reader::clock::Moment;

use super::super::Shared;
use super::own::Lines;
use crate::fleet::{Sampler, VITALS_INTERVAL};
use crate::keep::{Counters, Ingest};
use crate::niceness::come_after_reading;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_secs(10);

/// The thread that records. Dropping it ends it.
pub struct Recording {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Recording {
    /// Starts it.
    ///
    /// # Errors
    /// No thread.
    pub fn start(shared: Shared, ingest: Arc<Ingest>) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let counters = shared.counters.clone();
        let to = || To {
            recorder: Recorder::new(usize::MAX),
            ingest: ingest.clone(),
            counters: counters.clone(),
            last: HashSet::new(),
        };
        let (mut own, mut of_vitals, mut sampler) = (to(), to(), Sampler::default());
        let thread = thread::Builder::new().name("own".into()).spawn(move || {
            come_after_reading();
            let (mut next, mut next_own) = (Instant::now(), Instant::now() + INTERVAL);
            while stopped.recv_timeout(next.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout)
            {
                sampler.sample(&shared.fleet, &shared.vitals);
                let mut vitals = Samples::default();
                shared.vitals.get().iter().for_each(|(name, vital)| vitals.vital(name, vital));
                of_vitals.record(vitals, Moment::now().utc_ns.cast_signed());
                if Instant::now() >= next_own {
                    next_own = Instant::now() + INTERVAL;
                    own.record(Samples::of(&shared), Moment::now().utc_ns.cast_signed());
                }
                // However long that took, a pause follows.
                next = Instant::now() + VITALS_INTERVAL;
            }
        })?;
        Ok(Self { thread: Some((stop, thread)) })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            // A panic there has been told already.
            let _ = thread.join();
        }
    }
}

#[derive(Default)]
struct Samples(Vec<(Labels, f64)>);

impl Lines for Samples {
    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push((Labels::new([(NAME, name)].into_iter().chain(labels.iter().copied())), value));
    }
}

impl Samples {
    fn of(shared: &Shared) -> Self {
        let mut all = Self::default();
        all.controller(shared);
        for host in shared.fleet.hosts().iter() {
            let figures = host.figures();
            all.host(host, &figures);
            let labels: Vec<_> = host.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            all.line("up", &labels, f64::from(u8::from(host.freshness(&figures).1)));
        }
        all
    }
}

/// Where they go.
struct To {
    recorder: Recorder,
    ingest: Arc<Ingest>,
    counters: Arc<Counters>,
    last: HashSet<Labels>,
}

impl To {
    fn record(&mut self, samples: Samples, time_ns: i64) {
        let now: HashSet<Labels> = samples.0.iter().map(|(labels, _)| labels.clone()).collect();
        let before = mem::replace(&mut self.last, now);
        let ended = before.difference(&self.last).map(|labels| (labels.clone(), STALE));
        for (labels, value) in ended.chain(samples.0) {
            // Hosts' rows wait for a sample at most. After the clock was set back there are none until it has caught up.
            let recorded = self.recorder.record(&mut self.ingest.appender(), &labels, time_ns, value);
            if matches!(recorded, Err(NotRecorded::Behind)) {
                self.counters.refused_rows.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use onlooker_promql::value::Value;
    use onlooker_promql::{Options, Query, Times};
    use onlooker_query::StoreSource;

    use super::*;
    use crate::keep::Keeper;

    #[test]
    fn what_is_not_said_any_more_ends() {
        let dir = tempfile::tempdir().unwrap();
        let config = crate::fleet::fixture::store_config(dir.path());
        let (keeper, ingest, _) = Keeper::start(config, |_| {}).unwrap();
        let (recorder, counters) = (Recorder::new(usize::MAX), keeper.counters());
        let mut to = To { recorder, ingest, counters, last: HashSet::new() };
        let begin_ns = Moment::now().utc_ns.cast_signed();
        let hosts = |names: &[&str]| {
            let mut samples = Samples::default();
            names.iter().for_each(|name| samples.line("up", &[("instance", name)], 1.0));
            samples
        };
        to.record(hosts(&["a", "b"]), begin_ns);
        to.record(hosts(&["a"]), begin_ns + 1);
        keeper.turns().turn(Duration::from_secs(60));
        let store = keeper.store();
        let up = |ns: i64| {
            let query = Query::parse("up", Times::instant(ns)).unwrap();
            match query.run(&StoreSource::new(&store), &Options::default()).unwrap().value {
                Value::Vector(all) => all.iter().map(|one| one.labels.get("instance").to_owned()).collect::<Vec<_>>(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((up(begin_ns), up(begin_ns + 1)), (vec!["a".to_owned(), "b".to_owned()], vec!["a".to_owned()]));
    }
}
