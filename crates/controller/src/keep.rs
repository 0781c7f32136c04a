// SPDX-License-Identifier: Apache-2.0
//! The thread that owns the store: takes rows out of the ring, logs them, syncs, packs.
//!
//! Processing threads never wait for a disk: they append to the ring, and rows that find it full are counted.

mod cold;

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onlooker_framestore::client::Appender;
use onlooker_framestore::damage::StoreError;
use onlooker_framestore::{Config, Recovery, Store, Writer};

/// Time between two syncs: what a loss of power may cost at most, with the time of a sync.
const TURN: Duration = Duration::from_millis(250);
/// A full disk is told of again when it had room for so long.
const CALM: Duration = Duration::from_secs(60);

const STOPPED_FILE: &str = "stopped";
/// Reason of the gap that a controller leaves which was told to stop.
const STOPPED: &str = "stopped";
/// Reason of the gap that one leaves which was killed, or whose machine was.
const DOWN: &str = "controller_down";

/// What the store has been doing.
#[derive(Debug, Default)]
pub struct Counters {
    /// Rows logged.
    pub rows: AtomicU64,
    /// Values taken, in rows.
    pub values: AtomicU64,
    /// Rows that found the ring full.
    pub refused_rows: AtomicU64,
    /// Files that were deleted, the oldest, to keep within the limit or the disk.
    pub dropped_segments: AtomicU64,
    /// Failures of the disk.
    pub failures: AtomicU64,
    /// Files of rows that became cold files.
    pub cold_files: AtomicU64,
    /// Those that could not yet, by reason.
    cold_failures: [AtomicU64; cold::REASONS.len()],
    last_error: Mutex<Option<String>>,
}

impl Counters {
    /// What is wrong with the store now.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }

    /// How often a file of rows could not become a cold one, by reason.
    pub fn cold_failures(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        cold::REASONS.into_iter().zip(self.cold_failures.iter().map(count))
    }

    fn failed(&self, error: Option<&StoreError>) {
        self.failures.fetch_add(u64::from(error.is_some()), Ordering::Relaxed);
        *lock(&self.last_error) = error.map(ToString::to_string);
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a controller before this one has left in the store.
#[derive(Debug, Default)]
pub struct Left {
    newest_ns: HashMap<String, u64>,
    /// Why there is nothing after it.
    reason: &'static str,
}

impl Left {
    /// Time of a host's last row, ns, and why there is none after it; told once.
    fn take(&mut self, host: &str) -> Option<(u64, &'static str)> {
        Some((self.newest_ns.remove(host)?, self.reason))
    }

    /// A file in the store's directory says that the last controller ended as it was told to; it goes while one runs.
    fn of(store: &Store, dir: &Path) -> Self {
        let reason = if fs::remove_file(dir.join(STOPPED_FILE)).is_ok() { STOPPED } else { DOWN };
        Self { newest_ns: store.newest_of_hosts(), reason }
    }
}

/// Where the rows of all hosts go in. Processing threads share it: one holds a lock for as long as a row is copied.
pub struct Ingest {
    appender: Mutex<Appender>,
    left: Mutex<Left>,
}

impl Ingest {
    /// Into the store behind `appender`, of which a controller before this one has `left` something.
    #[must_use]
    pub fn new(appender: Appender, left: Left) -> Self {
        Self { appender: Mutex::new(appender), left: Mutex::new(left) }
    }

    pub(crate) fn appender(&self) -> MutexGuard<'_, Appender> {
        lock(&self.appender)
    }

    /// As [`Left::take`].
    pub(crate) fn left_of(&self, host: &str) -> Option<(u64, &'static str)> {
        lock(&self.left).take(host)
    }
}

/// The store and its thread.
pub struct Keeper {
    store: Store,
    counters: Arc<Counters>,
    keeping: Thread<Word>,
    cooling: Thread<()>,
}

/// What the store's thread is asked.
enum Word {
    Stop,
    /// To take up now what is in the ring, and to say when it has.
    Turn(Sender<()>),
}

/// Asks the store's thread to take up rows before it is time.
pub struct Turns(Sender<Word>);

impl Turns {
    /// Waits until queries find what has been appended, or for so long.
    pub(crate) fn turn(&self, wait: Duration) {
        let (done, is_done) = channel();
        if self.0.send(Word::Turn(done)).is_ok() {
            // A disk that hangs shows elsewhere.
            let _ = is_done.recv_timeout(wait);
        }
    }
}

type Thread<W> = Option<(Sender<W>, JoinHandle<()>)>;
type Say = Arc<Mutex<dyn Fn(&str) + Send>>;

impl Keeper {
    /// Opens the store and starts its thread. `say` is told what an operator wants to know of the disk, once.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn start(
        config: Config,
        say: impl Fn(&str) + Send + 'static,
    ) -> Result<(Self, Arc<Ingest>, Recovery), StoreError> {
        let (dir, has_cold) = (config.dir.clone(), config.cold_after_ns < u64::MAX);
        let (store, writer, appender, recovery) = onlooker_framestore::open(config)?;
        let left = Left::of(&store, &dir);
        let counters = Arc::new(Counters::default());
        let say: Say = Arc::new(Mutex::new(say));
        let keeping = {
            let (counters, dir, say) = (counters.clone(), dir.clone(), say.clone());
            let (has_failed, has_unknown, dropped_at) = (false, false, None);
            Keeping { writer, counters, say, has_failed, has_unknown, dropped_at, dir }
        };
        let failed = |source| StoreError::Io { operation: "start a thread for", path: dir.clone(), source };
        let cooling = cold::Cooling::new(store.cooler(), counters.clone(), say);
        let kept = start("store", move |words| keeping.run(words)).map_err(failed)?;
        let mut keeper = Self { store, counters, keeping: Some(kept), cooling: None };
        if has_cold {
            keeper.cooling = Some(start("cold", move |stopped| cooling.run(stopped)).map_err(failed)?);
        }
        let ingest = Arc::new(Ingest::new(appender, left));
        Ok((keeper, ingest, recovery))
    }

    /// What it has been doing.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// The store's thread has ended by itself: it has panicked, and nothing is stored any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.keeping.as_ref().is_none_or(|(_, thread)| thread.is_finished())
    }

    /// To be asked for rows at once.
    ///
    /// # Panics
    /// Never: the thread ends with the keeper.
    #[must_use]
    pub fn turns(&self) -> Turns {
        Turns(self.keeping.as_ref().expect("a thread").0.clone())
    }

    /// The store, for reading.
    #[must_use]
    pub fn store(&self) -> Store {
        self.store.clone()
    }
}

impl Drop for Keeper {
    /// Logs what is in the ring and makes it durable.
    fn drop(&mut self) {
        stop(self.cooling.take(), ());
        stop(self.keeping.take(), Word::Stop);
    }
}

fn stop<W>(thread: Thread<W>, word: W) {
    if let Some((words, thread)) = thread {
        let _ = words.send(word);
        // A panic there has been told already.
        let _ = thread.join();
    }
}

fn start<W: Send + 'static>(
    name: &str,
    run: impl FnOnce(&Receiver<W>) + Send + 'static,
) -> std::io::Result<(Sender<W>, JoinHandle<()>)> {
    let (words, asked) = channel();
    Ok((words, thread::Builder::new().name(name.into()).spawn(move || run(&asked))?))
}

/// The thread's own.
struct Keeping {
    writer: Writer,
    counters: Arc<Counters>,
    say: Say,
    has_failed: bool,
    /// It was told that rows were of no track.
    has_unknown: bool,
    /// When a full disk last cost a file.
    dropped_at: Option<Instant>,
    dir: PathBuf,
}

impl Keeping {
    fn run(mut self, words: &Receiver<Word>) {
        let mut next = Instant::now() + TURN;
        loop {
            let word = words.recv_timeout(next.saturating_duration_since(Instant::now()));
            let is_last = matches!(word, Ok(Word::Stop) | Err(RecvTimeoutError::Disconnected));
            // However long this one takes.
            next = Instant::now() + TURN;
            let result = self.turn();
            self.tell(result.as_ref().err());
            if let Ok(Word::Turn(done)) = word {
                // Whoever asked may have gone.
                let _ = done.send(());
            }
            if is_last {
                if result.is_ok() {
                    // Without it the gap is only called something else.
                    let mut options = File::options();
                    let options = options.write(true).create(true).truncate(true).mode(0o600);
                    let _ = options.open(self.dir.join(STOPPED_FILE)).and_then(|file| file.sync_all());
                }
                return;
            }
        }
    }

    fn turn(&mut self) -> Result<(), StoreError> {
        let turned = self.writer.turn()?;
        self.counters.rows.fetch_add(turned.rows, Ordering::Relaxed);
        self.counters.dropped_segments.fetch_add(turned.dropped_files, Ordering::Relaxed);
        if turned.unknown_rows > 0 && !std::mem::replace(&mut self.has_unknown, true) {
            let rows = turned.unknown_rows;
            lock(&self.say)(&format!("store: {rows} rows are of no track that is known, and lost; more are not told"));
        }
        if turned.dropped_for_room > 0 {
            if self.dropped_at.is_none_or(|at| at.elapsed() > CALM) {
                lock(&self.say)("store: the disk is full: the oldest rows go, file by file, to make room for new ones");
            }
            self.dropped_at = Some(Instant::now());
        }
        Ok(())
    }

    fn tell(&mut self, error: Option<&StoreError>) {
        self.counters.failed(error);
        let had_failed = std::mem::replace(&mut self.has_failed, error.is_some());
        match error {
            Some(error) if !had_failed => lock(&self.say)(&format!(
                "store: {error}; it is tried again. Rows wait in memory meanwhile, and are gaps when there are too many"
            )),
            None if had_failed => lock(&self.say)("store: works again"),
            _ => {}
        }
    }
}
