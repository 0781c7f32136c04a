// SPDX-License-Identifier: Apache-2.0
//! The thread that owns the store: makes tracks, seals, syncs, answers.
//!
//! The processing thread never waits for a disk: it asks for a track, goes on without it, and appends to the ring once it has been given its appender. Rows that
//! were read before that are not kept, and rows that find the ring full are counted.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onlooker_store::{Appender, Config, Gap, Kind, Recovery, Store, StoreError, TrackId};
use onlooker_transport::clock::Moment;

use crate::meta::Meta;

/// Time between two syncs. With the time that rows wait for a tile: what a loss of power may cost at most.
const SEAL_INTERVAL: Duration = Duration::from_millis(500);

/// Rows wait so long for a whole tile, which packs better.
const MAX_LAG_NS: u64 = 1_000_000_000;

/// Orders that wait for the disk to work again, at most: then gaps are forgotten.
const MAX_RETRIES: usize = 100_000;
/// A full disk is told of again when it had room for so long.
const CALM: Duration = Duration::from_secs(60);

const STOPPED_FILE: &str = "stopped";
/// Reason of the gap that a controller leaves which was told to stop.
const STOPPED: &str = "stopped";
/// Reason of the gap that one leaves which was killed, or whose machine was.
const DOWN: &str = "controller_down";

enum Order {
    Define { tag: u64, columns: Vec<Kind>, meta: Meta },
    Retire(Vec<(TrackId, Appender)>),
    Gap(Gap),
    Stop,
}

/// A track that was asked for.
pub struct Made {
    /// What the one who asked calls it.
    pub tag: u64,
    /// The track.
    pub track: TrackId,
    /// For its rows.
    pub appender: Appender,
    /// Its hot rows were lost with their file: the time of the last row that is left, ns.
    pub left_ns: Option<u64>,
}

/// What the store has been doing.
#[derive(Debug, Default)]
pub struct Counters {
    /// Rows sealed.
    pub rows: AtomicU64,
    /// Values taken, in rows.
    pub values: AtomicU64,
    /// Rows that found their ring full.
    pub refused_rows: AtomicU64,
    /// Segments that were deleted, the oldest, to keep within the limit or the disk.
    pub dropped_segments: AtomicU64,
    /// Failures of the disk.
    pub failures: AtomicU64,
    last_error: Mutex<Option<String>>,
}

impl Counters {
    /// What is wrong with the store now.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }

    fn failed(&self, error: Option<&StoreError>) {
        self.failures.fetch_add(u64::from(error.is_some()), Ordering::Relaxed);
        *lock(&self.last_error) = error.map(ToString::to_string);
    }
}

/// The processing thread's side.
pub struct Tracks {
    orders: Sender<Order>,
    made: Receiver<Made>,
    left: Left,
}

/// What a controller before this one has left in the store.
#[derive(Debug, Default)]
struct Left {
    /// Time of the last row of each host, ns.
    newest_ns: HashMap<String, u64>,
    /// Time of the last row of each track that may have had others after it in hot memory, which is gone.
    bare_ns: HashMap<TrackId, u64>,
    /// Why there is nothing after it.
    reason: &'static str,
}

impl Tracks {
    /// Asks for a track; [`Tracks::made`] will have it.
    pub fn define(&self, tag: u64, columns: Vec<Kind>, meta: Meta) {
        let _ = self.orders.send(Order::Define { tag, columns, meta });
    }

    /// A track that was asked for, if one is ready.
    pub fn made(&self) -> Option<Made> {
        self.made.try_recv().ok()
    }

    /// Tracks get no more rows.
    pub fn retire(&self, tracks: Vec<(TrackId, Appender)>) {
        if !tracks.is_empty() {
            let _ = self.orders.send(Order::Retire(tracks));
        }
    }

    /// Time of the last row that a controller before this one has stored of a host, ns, and why there is none after it; told once.
    pub fn take_left(&mut self, host: &str) -> Option<(u64, &'static str)> {
        Some((self.left.newest_ns.remove(host)?, self.left.reason))
    }

    /// There are no rows for a time.
    pub fn gap(&self, gap: Gap) {
        let _ = self.orders.send(Order::Gap(gap));
    }
}

/// The store and its thread.
pub struct Keeper {
    store: Arc<Mutex<Store>>,
    counters: Arc<Counters>,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

/// A file in the store's directory says that the last controller ended as it was told to; it goes while one runs.
fn left(store: &Store, dir: &Path) -> Left {
    let reason = if fs::remove_file(dir.join(STOPPED_FILE)).is_ok() { STOPPED } else { DOWN };
    let mut newest_ns: HashMap<String, u64> = HashMap::new();
    let mut bare_ns = HashMap::new();
    for (track, _, meta) in store.tracks() {
        if let (Some(host), Some(time_ns)) = (Meta::host_of(meta), store.newest_ns(track)) {
            if reason == DOWN && !store.is_hot(track) {
                bare_ns.insert(track, time_ns);
            }
            let newest_ns = newest_ns.entry(host).or_default();
            *newest_ns = time_ns.max(*newest_ns);
        }
    }
    Left { newest_ns, bare_ns, reason }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keeper {
    /// Opens the store and starts its thread. `say` is told what an operator wants to know of the disk, once.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn start(config: Config, say: impl Fn(&str) + Send + 'static) -> Result<(Self, Tracks, Recovery), StoreError> {
        let dir = config.dir.clone();
        let (store, recovery) = Store::open(config)?;
        let mut left = left(&store, &dir);
        let bare_ns = std::mem::take(&mut left.bare_ns);
        let store = Arc::new(Mutex::new(store));
        let counters = Arc::new(Counters::default());
        let (orders, todo) = channel();
        let (tell, made) = channel();
        let thread = {
            let (store, counters) = (store.clone(), counters.clone());
            let keeping = Keeping {
                store,
                counters,
                tell,
                say: Box::new(say),
                retries: VecDeque::new(),
                waiting: HashMap::new(),
                bare_ns,
                has_failed: false,
                dropped_at: None,
                dir: dir.clone(),
            };
            let work = move || keeping.run(&todo);
            thread::Builder::new().name("store".into()).spawn(work)
        };
        let thread = thread.map_err(|source| StoreError::Io { operation: "start a thread for", path: dir, source })?;
        let tracks = Tracks { orders: orders.clone(), made, left };
        Ok((Self { store, counters, orders, thread: Some(thread) }, tracks, recovery))
    }

    /// What it has been doing.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// The store, for reading. Waits while a sync goes on.
    #[must_use]
    pub fn store(&self) -> Arc<Mutex<Store>> {
        self.store.clone()
    }
}

impl Drop for Keeper {
    /// Seals what is hot and makes it durable.
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic there has been told already.
            let _ = thread.join();
        }
    }
}

/// The thread's own.
struct Keeping {
    store: Arc<Mutex<Store>>,
    counters: Arc<Counters>,
    tell: Sender<Made>,
    say: Box<dyn Fn(&str) + Send>,
    /// What the disk did not take: it is tried again, and not forgotten for a while without room.
    retries: VecDeque<Order>,
    /// Who asked for tracks whose appender is with somebody who gives it back soon: a host that was forgotten and is watched again.
    waiting: HashMap<TrackId, u64>,
    bare_ns: HashMap<TrackId, u64>,
    has_failed: bool,
    /// When a full disk last cost a segment.
    dropped_at: Option<Instant>,
    dir: PathBuf,
}

impl Keeping {
    fn run(mut self, todo: &Receiver<Order>) {
        let mut next_seal = Instant::now() + SEAL_INTERVAL;
        loop {
            let order = todo.recv_timeout(next_seal.saturating_duration_since(Instant::now()));
            let stop = matches!(order, Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected));
            if let Ok(order) = order {
                self.obey_or_retry(order);
            }
            if stop || Instant::now() >= next_seal {
                let older_than_ns = if stop { u64::MAX } else { Moment::now().utc_ns.saturating_sub(MAX_LAG_NS) };
                let result = self.try_again().and_then(|()| self.seal(older_than_ns));
                self.tell(result.as_ref().err());
                if stop && result.is_ok() {
                    // Without it the gap is only called something else.
                    let _ = File::create(self.dir.join(STOPPED_FILE)).and_then(|file| file.sync_all());
                }
                next_seal = Instant::now() + SEAL_INTERVAL;
            }
            if stop {
                return;
            }
        }
    }

    fn obey_or_retry(&mut self, mut order: Order) {
        let store = self.store.clone();
        if let Err(error) = self.obey(&mut lock(&store), &mut order) {
            self.counters.failed(Some(&error));
            if self.retries.len() < MAX_RETRIES {
                self.retries.push_back(order);
            }
        }
    }

    fn try_again(&mut self) -> Result<(), StoreError> {
        let store = self.store.clone();
        let mut store = lock(&store);
        while let Some(mut order) = self.retries.pop_front() {
            if let Err(error) = self.obey(&mut store, &mut order) {
                self.retries.push_front(order);
                return Err(error);
            }
        }
        Ok(())
    }

    fn seal(&mut self, older_than_ns: u64) -> Result<(), StoreError> {
        let sealed = lock(&self.store).seal(older_than_ns)?;
        self.counters.rows.fetch_add(sealed.rows, Ordering::Relaxed);
        self.counters.dropped_segments.fetch_add(sealed.dropped_segments, Ordering::Relaxed);
        if sealed.dropped_for_room > 0 {
            if self.dropped_at.is_none_or(|at| at.elapsed() > CALM) {
                (self.say)(
                    "store: the disk is full: the oldest rows go, segment by segment, to make room for new ones",
                );
            }
            self.dropped_at = Some(Instant::now());
        }
        Ok(())
    }

    fn tell(&mut self, error: Option<&StoreError>) {
        self.counters.failed(error);
        let had_failed = std::mem::replace(&mut self.has_failed, error.is_some());
        match error {
            Some(error) if !had_failed => (self.say)(&format!(
                "store: {error}; it is tried again. Rows wait in memory meanwhile, and are gaps when there are too many"
            )),
            None if had_failed => (self.say)("store: works again"),
            _ => {}
        }
    }

    fn obey(&mut self, store: &mut Store, order: &mut Order) -> Result<(), StoreError> {
        match order {
            Order::Define { tag, columns, meta } => {
                let track = store.define(columns, &meta.pack())?;
                match store.appender(track) {
                    // Whoever asked may be gone; the track then waits for the next one in vain until it is retired.
                    Some(appender) => {
                        let left_ns = self.bare_ns.remove(&track);
                        let _ = self.tell.send(Made { tag: *tag, track, appender, left_ns });
                    }
                    None => drop(self.waiting.insert(track, *tag)),
                }
                Ok(())
            }
            Order::Retire(tracks) => {
                for (track, appender) in tracks.drain(..) {
                    store.retire(track, appender);
                    if let Some(tag) = self.waiting.remove(&track)
                        && let Some(appender) = store.appender(track)
                    {
                        let _ = self.tell.send(Made { tag, track, appender, left_ns: None });
                    }
                }
                Ok(())
            }
            Order::Gap(gap) => store.gap(gap.clone()),
            Order::Stop => Ok(()),
        }
    }
}
