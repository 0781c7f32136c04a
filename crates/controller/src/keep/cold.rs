// SPDX-License-Identifier: Apache-2.0
//! The thread that makes cold files of old rows: with the lowest priority, and idle most of the time, so that it takes
//! neither processor nor disk from those who have something to do now.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use onlooker_framestore::damage::StoreError;
use onlooker_framestore::framing::files::is_disk_full;
use onlooker_framestore::{Cooled, Cooler};

use super::{Counters, Say, lock};

/// How often it is looked whether something is old enough.
const LOOK: Duration = Duration::from_secs(5);
/// Idle so many times as long as at work.
const IDLE: u32 = 3;
/// At work so long at a time.
const WORK: Duration = Duration::from_millis(5);
/// Time after a failure, and at most, if it fails again and again.
const FIRST_WAIT: Duration = Duration::from_secs(10);
const LAST_WAIT: Duration = Duration::from_secs(600);
/// The kernel's largest.
const NICE: i32 = 19;

/// Why a file is not converted: there is no room, it is damaged, it cannot be read or written.
pub(super) const REASONS: [&str; 3] = ["disk_full", "damaged", "disk"];

fn reason(error: &StoreError) -> usize {
    match error {
        error if is_disk_full(error) => 0,
        StoreError::Io { .. } => 2,
        _ => 1,
    }
}

pub(super) struct Cooling {
    cooler: Cooler,
    counters: Arc<Counters>,
    say: Say,
    /// How long it waits after the next failure.
    wait: Duration,
}

impl Cooling {
    pub(super) fn new(cooler: Cooler, counters: Arc<Counters>, say: Say) -> Self {
        Self { cooler, counters, say, wait: FIRST_WAIT }
    }

    pub(super) fn run(mut self, stopped: &Receiver<()>) {
        // With another priority it is as right, only less polite.
        let _ = rustix::process::setpriority_process(None, NICE);
        let mut pause = LOOK;
        while is_running(stopped, pause) {
            let mut since = Instant::now();
            let goes_on = || {
                let worked = since.elapsed();
                let goes_on = worked < WORK || is_running(stopped, worked * IDLE);
                if worked >= WORK {
                    since = Instant::now();
                }
                goes_on
            };
            let outcome = self.cooler.turn(goes_on);
            pause = self.tell(&outcome);
        }
    }

    /// Counts what became of a turn; says a failure once, and that it is over. Returns when the next turn is due.
    fn tell(&mut self, outcome: &Result<Cooled, StoreError>) -> Duration {
        match outcome {
            Ok(Cooled::File(_)) => {
                self.counters.cold_files.fetch_add(1, Ordering::Relaxed);
                if std::mem::replace(&mut self.wait, FIRST_WAIT) > FIRST_WAIT {
                    lock(&self.say)("store: cold files are made again");
                }
                Duration::ZERO
            }
            Ok(Cooled::Nothing | Cooled::Stopped) => LOOK,
            Err(error) => {
                self.counters.cold_failures[reason(error)].fetch_add(1, Ordering::Relaxed);
                let wait = self.wait;
                if wait == FIRST_WAIT {
                    lock(&self.say)(&format!("store: no cold file was made: {error}. Rows stay as they are meanwhile"));
                }
                self.wait = (wait * 2).min(LAST_WAIT);
                wait
            }
        }
    }
}

/// Waits; false: it is to stop.
fn is_running(stopped: &Receiver<()>, pause: Duration) -> bool {
    matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::ops::ControlFlow;
    use std::path::{Path, PathBuf};
    use std::time::SystemTime;

    use onlooker_framestore::client::Description;
    use onlooker_framestore::layout::{Layout, Part};
    use onlooker_framestore::types::Line;
    use onlooker_framestore::warm::Level;
    use onlooker_framestore::{Columns, Store};
    use onlooker_region::schema::Metric;
    use onlooker_series::series::{Form, Series};

    use super::*;
    use crate::keep::Keeper;

    fn config(dir: &Path, cold_after_ns: u64) -> onlooker_framestore::Config {
        onlooker_framestore::Config {
            cold_after_ns,
            ..onlooker_framestore::Config::keeping_all(dir.join("store"), dir.join("ring"), 1 << 20, 64 << 20)
        }
    }

    #[test]
    fn failures_are_counted_by_reason_said_once_and_tried_again_later_and_later() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), 1);
        // Its own thread has nothing to do, and ends when it is told to.
        let (keeper, _, _) = Keeper::start(config, |_| {}).unwrap();
        let said = Arc::new(std::sync::Mutex::new(Vec::new()));
        let say: Say = Arc::new(std::sync::Mutex::new({
            let said = said.clone();
            move |text: &str| said.lock().unwrap().push(text.to_owned())
        }));
        let counters = Arc::new(Counters::default());
        let mut cooling = Cooling::new(keeper.store().cooler(), counters.clone(), say);
        let failed = |kind: io::ErrorKind| {
            Err(StoreError::Io { operation: "write", path: PathBuf::from("x"), source: kind.into() })
        };
        let waits: Vec<u64> = (0..8).map(|_| cooling.tell(&failed(io::ErrorKind::StorageFull)).as_secs()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600]);
        cooling.tell(&failed(io::ErrorKind::PermissionDenied));
        let counts: Vec<_> = counters.cold_failures().collect();
        assert_eq!(counts, [("disk_full", 8), ("damaged", 0), ("disk", 1)]);
        assert_eq!(cooling.tell(&Ok(Cooled::File(7))), Duration::ZERO);
        assert_eq!(cooling.tell(&failed(io::ErrorKind::StorageFull)), FIRST_WAIT);
        let said = said.lock().unwrap();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].contains("no cold file was made: cannot write x") && said[1].contains("again"), "{said:?}");
    }

    /// Samples of a host's first series.
    fn samples(store: &Store, host: &str) -> Vec<(u64, Vec<u64>)> {
        let named = store.series_of(host).remove(0);
        let wanted = Columns { words: vec![named.series[0].at], ..named.columns };
        let mut samples = Vec::new();
        let gaps = store.read(&wanted, 0, u64::MAX, |time_ns, words| {
            samples.push((time_ns, words.to_vec()));
            ControlFlow::Continue(())
        });
        assert_eq!(gaps.unwrap(), []);
        samples
    }

    /// Waits until a store is so.
    fn wait(store: &Store, what: &str, is_so: impl Fn(&Store) -> bool) {
        let end = Instant::now() + Duration::from_secs(120);
        while !is_so(store) {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn old_rows_become_parquet_and_are_read_as_before() {
        const ROWS: u64 = 700;
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), 3_600_000_000_000);
        let own = vec![Series::new("packets_total", Metric::Counter, Form::Unsigned)];
        let description = Description {
            host: "a".into(),
            common: vec![("instance".into(), "a:1".into())],
            source: 0,
            region: Vec::new(),
            layout: Arc::new(Layout::new(vec![Part::new("nic", 0, own).shared()], false)),
            texts: Vec::new(),
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let from_ns = u64::try_from(now.as_nanos()).unwrap() - 3 * 86_400_000_000_000;
        let row = |at: u64| (from_ns + at * 10_000_000_000, vec![at * 3]);
        let expected: Vec<(u64, Vec<u64>)> = (0..ROWS).map(row).collect();
        let files = |of: &str, ending: &str| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(dir.path().join("store").join(of)).into_iter().flatten();
            let paths = entries.map(|entry| entry.unwrap().path());
            paths.filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
        };
        {
            let (keeper, ingest, _) = Keeper::start(config.clone(), |_| {}).unwrap();
            let mut appender = ingest.appender();
            let track = appender.track(&description, from_ns).unwrap();
            for (time_ns, words) in &expected {
                appender.append(track, Line::ONLY, *time_ns, words).unwrap();
            }
            appender.end(track);
            wait(&keeper.store(), "no chunk was made", |store| store.level_bytes(Level::Raw) > 0);
        }
        // The file that was written is ended now.
        let (keeper, _, _) = Keeper::start(config, |_| {}).unwrap();
        let (store, counters) = (keeper.store(), keeper.counters());
        assert_eq!(samples(&store, "a"), expected);
        wait(&store, "no cold file was made", |_| counters.cold_files.load(Ordering::Relaxed) > 0);
        assert_eq!((store.level_bytes(Level::Raw), store.cold_lag_ns()), (0, 0));
        assert_eq!(files("cold", ".parquet").len(), 1);
        assert_eq!((files("warm", ".outline").len(), files("warm", ".chunks").iter().filter(is_raw).count()), (1, 0));
        assert_eq!(samples(&store, "a"), expected);
        assert_eq!(counters.cold_failures().map(|(_, count)| count).sum::<u64>(), 0);
    }

    fn is_raw(path: &&PathBuf) -> bool {
        path.file_name().unwrap().to_str().unwrap().starts_with("raw-")
    }
}
