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
    use std::path::PathBuf;

    use super::*;
    use crate::keep::Keeper;

    #[test]
    fn failures_are_counted_by_reason_said_once_and_tried_again_later_and_later() {
        let dir = tempfile::tempdir().unwrap();
        let config = onlooker_framestore::Config {
            dir: dir.path().join("store"),
            ring: dir.path().join("ring"),
            ring_bytes: 1 << 20,
            max_bytes: 64 << 20,
            keep_ns: [u64::MAX; 4],
            cold_after_ns: 1,
        };
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
}
