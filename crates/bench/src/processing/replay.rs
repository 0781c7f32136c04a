// SPDX-License-Identifier: Apache-2.0
//! Takes readings as processing threads do, and makes their rows durable as the store's does.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use onlooker_checks::Rules;
use onlooker_checks::config::Checks;
use onlooker_controller::fleet::{Fleet, FleetSink};
use onlooker_controller::keep::{Counters, Ingest, Left};
use onlooker_controller::{Reading, Sink as _};
use onlooker_framestore::{Config, Writer};
use onlooker_reader::clock::Moment;
use onlooker_targets::Target;

use crate::allocations::allocations;
use crate::machine::thread_cpu_ns;
use crate::report::figure;

/// UTC when the steady clock is 0.
const UTC_NS: u64 = 1_700_000_000_000_000_000;

/// What was done.
#[derive(Default)]
pub(crate) struct Work {
    readings: usize,
    frames: usize,
    values: u64,
    /// Readings that have allocated: something came or went, or a block was torn.
    allocating: usize,
    take_ns: u64,
    store_ns: u64,
}

impl Work {
    pub(crate) fn add(&mut self, more: &Self) {
        self.readings += more.readings;
        self.frames += more.frames;
        self.values += more.values;
        self.allocating += more.allocating;
        self.take_ns += more.take_ns;
        self.store_ns += more.store_ns;
    }

    pub(crate) fn tell(&self, name: &str) {
        let values = self.values as f64;
        let one = |what: &str, value: f64, unit: &str| figure(&format!("processing_{name}{what}"), value, unit);
        one("", values * 1e3 / (self.take_ns + self.store_ns) as f64, "M_values_a_core_second");
        one("_take", self.take_ns as f64 / values, "ns_a_value");
        one("_store", self.store_ns as f64 / values, "ns_a_value");
        one("_values", values / self.readings as f64, "values_a_reading");
        one("_frames", self.frames as f64 / self.readings as f64, "frames_a_reading");
        one("_allocating", self.allocating as f64 / self.readings as f64, "of_readings");
    }
}

/// A host's reading.
pub(crate) type Told<'a> = (&'a Arc<Target>, &'a Reading);

/// A fleet and a store.
pub(crate) struct Replay {
    threads: Vec<Thread>,
    counters: Arc<Counters>,
    writer: Writer,
}

/// What a processing thread has.
struct Thread {
    sink: FleetSink,
    now_ns: Arc<AtomicU64>,
}

impl Thread {
    fn new(ingest: &Arc<Ingest>, counters: &Arc<Counters>) -> Self {
        let now_ns = Arc::new(AtomicU64::new(0));
        let now = now_ns.clone();
        let clock = move || {
            let steady_ns = now.load(Ordering::Relaxed);
            Moment { steady_ns, utc_ns: UTC_NS + steady_ns }
        };
        // As a controller has them that is configured as shipped.
        let rules = Rules::new(&Checks::default()).expect("the shipped rules are good ones");
        let fleet = Arc::new(Fleet::default().judged_by(rules));
        Self { sink: FleetSink::with_clock(fleet, ingest.clone(), counters.clone(), Box::new(clock)), now_ns }
    }

    fn take(&mut self, (target, reading): Told<'_>) {
        self.now_ns.store(reading.ended_ns, Ordering::Relaxed);
        self.sink.reading(target, reading);
    }
}

impl Replay {
    pub(crate) fn new(directory: &Path, threads: usize) -> Result<Self> {
        let ring = Path::new("/dev/shm").join(format!("bench-processing-{}", std::process::id()));
        let config = Config::keeping_all(directory, &ring, 64 << 20, 8 << 30);
        let (_, writer, appender, _) = onlooker_framestore::open(config)?;
        // It is mapped; nobody else needs its name.
        std::fs::remove_file(ring)?;
        let (counters, ingest) = (Arc::default(), Arc::new(Ingest::new(appender, Left::default())));
        let threads = (0..threads).map(|_| Thread::new(&ingest, &counters)).collect();
        Ok(Self { threads, counters, writer })
    }

    /// Takes readings on this thread; their rows become durable together.
    pub(crate) fn take<'a>(&mut self, readings: impl Iterator<Item = Told<'a>>) -> Result<Work> {
        let readings: Vec<_> = readings.collect();
        let frames = readings.iter().map(|(_, reading)| reading.frames.iter().count()).sum();
        let mut work = Work { readings: readings.len(), frames, ..Work::default() };
        let values = self.counters.values.load(Ordering::Relaxed);
        let begin_ns = thread_cpu_ns();
        for told in readings {
            let before = allocations();
            self.threads[0].take(told);
            work.allocating += usize::from(allocations() > before);
        }
        work.take_ns = thread_cpu_ns() - begin_ns;
        let begin_ns = thread_cpu_ns();
        self.writer.turn()?;
        work.store_ns = thread_cpu_ns() - begin_ns;
        work.values = self.counters.values.load(Ordering::Relaxed) - values;
        Ok(work)
    }

    /// Takes each thread's readings, on all threads at once or on this one, thread by thread. Returns how long that took;
    /// making their rows durable comes afterwards.
    pub(crate) fn take_by_threads(&mut self, readings: &[Vec<Told<'_>>], at_once: bool) -> Result<Duration> {
        let begin = Instant::now();
        let work = self.threads.iter_mut().zip(readings);
        let take =
            |(thread, readings): (&mut Thread, &Vec<Told<'_>>)| readings.iter().for_each(|told| thread.take(*told));
        if at_once {
            std::thread::scope(|scope| work.for_each(|work| drop(scope.spawn(move || take(work)))));
        } else {
            work.for_each(take);
        }
        let took = begin.elapsed();
        self.writer.turn()?;
        Ok(took)
    }
}
