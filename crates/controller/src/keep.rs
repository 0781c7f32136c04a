// SPDX-License-Identifier: Apache-2.0
//! The thread that owns the store: makes tracks, seals, syncs, answers.
//!
//! The processing thread never waits for a disk: it asks for a track, goes on without it, and appends to the ring once it has been given its appender. Rows that
//! were read before that are not kept, and rows that find the ring full are counted.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onlooker_store::{
    Appender, Config, Gap, Kind, Recovery, Store, StoreError, TrackId, Writer, ring_bytes, ring_rows, steady_ns,
};

use crate::meta::Meta;
use shares::Shares;

mod shares;

/// Time between two syncs. With the time that rows wait for a tile: what a loss of power may cost at most.
const SEAL_INTERVAL: Duration = Duration::from_millis(250);

/// Rows wait so long for a whole tile, which packs better: two rows where one comes every second.
const MAX_LAG_NS: u64 = 1_250_000_000;

/// Tracks without hot memory that are tried again in one turn, at most.
const MAX_TRIES: usize = 256;
/// Orders that are obeyed in one turn, at most, before rows are sealed.
const MAX_ORDERS: usize = 4096;
/// A full disk is told of again when it had room for so long.
const CALM: Duration = Duration::from_secs(60);

const STOPPED_FILE: &str = "stopped";
/// Reason of the gap that a controller leaves which was told to stop.
const STOPPED: &str = "stopped";
/// Reason of the gap that one leaves which was killed, or whose machine was.
const DOWN: &str = "controller_down";

enum Order {
    Define(Definition),
    /// Nobody wants the track any more that was asked for by this tag.
    Cancel(u64),
    Retire(Vec<(TrackId, Appender)>),
    Gap(Gap),
    Stop,
}

/// What a track is asked for with.
struct Definition {
    tag: u64,
    columns: Vec<Kind>,
    meta: Meta,
    /// Rows of its ring.
    rows: u64,
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
    /// Tracks that wait for hot memory now.
    pub waiting_tracks: AtomicU64,
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
    waits: Receiver<u64>,
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
    /// Asks for a track with a row every `interval_ns` at most; [`Tracks::made`] will have it. Where there is no hot memory for it, [`Tracks::waits`] says so, and it
    /// is tried again until [`Tracks::cancel`].
    pub fn define(&self, tag: u64, columns: Vec<Kind>, meta: Meta, interval_ns: u64) {
        let rows = ring_rows(interval_ns);
        let _ = self.orders.send(Order::Define(Definition { tag, columns, meta, rows }));
    }

    /// The tag of a track that waits for hot memory, told once, and once more when it has been cancelled.
    pub fn waits(&self) -> Option<u64> {
        self.waits.try_recv().ok()
    }

    /// Nobody wants the track any more that waits by this tag.
    pub fn cancel(&self, tag: u64) {
        let _ = self.orders.send(Order::Cancel(tag));
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
        let (dir, shares) = (config.dir.clone(), Shares::of(config.hot_bytes));
        let (store, recovery) = Store::open(config)?;
        let mut left = left(&store.look(), &dir);
        let bare_ns = std::mem::take(&mut left.bare_ns);
        let (store, writer) = (store.store(), store);
        let counters = Arc::new(Counters::default());
        let (orders, todo) = channel();
        let (tell, made) = channel();
        let (tell_waits, waits) = channel();
        let thread = {
            let counters = counters.clone();
            let keeping = Keeping {
                writer,
                counters,
                tell,
                tell_waits,
                say: Box::new(say),
                shares,
                without_memory: BTreeMap::new(),
                last_tried: 0,
                waited_at: None,
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
        let tracks = Tracks { orders: orders.clone(), made, waits, left };
        Ok((Self { store, counters, orders, thread: Some(thread) }, tracks, recovery))
    }

    /// What it has been doing.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// The store, for reading. Its lock is never held while a disk is waited for.
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

/// Why a track is not made now.
#[derive(Debug, thiserror::Error)]
enum NoRoom {
    #[error(transparent)]
    Store(StoreError),
    #[error(
        "hot memory is scarce, and host {0} has more than its share of it: raise [store] hot_bytes or watch fewer of its regions"
    )]
    Share(String),
}

/// The thread's own.
struct Keeping {
    writer: Writer,
    counters: Arc<Counters>,
    tell: Sender<Made>,
    tell_waits: Sender<u64>,
    say: Box<dyn Fn(&str) + Send>,
    shares: Shares,
    /// Tracks that found no hot memory, by tag. They hold up nobody: some are tried after each seal, in turn.
    without_memory: BTreeMap<u64, Definition>,
    last_tried: u64,
    /// When tracks last waited.
    waited_at: Option<Instant>,
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
            let mut stop = matches!(order, Err(RecvTimeoutError::Disconnected));
            for order in order.into_iter().chain(todo.try_iter()).take(MAX_ORDERS) {
                stop |= matches!(order, Order::Stop);
                self.obey(order);
            }
            if let Err(error) = self.writer.flush() {
                self.counters.failed(Some(&error));
            }
            let now = Instant::now();
            if stop || now >= next_seal {
                self.turn(stop);
                // However long it took.
                next_seal = now + SEAL_INTERVAL;
            }
            if stop {
                return;
            }
        }
    }

    /// Seals, and then tries again what has failed before: that never holds up rows.
    fn turn(&mut self, is_last: bool) {
        let before_ns = if is_last { u64::MAX } else { steady_ns().saturating_sub(MAX_LAG_NS) };
        let result = self.seal(before_ns);
        self.tell(result.as_ref().err());
        if is_last {
            if result.is_ok() {
                // Without it the gap is only called something else.
                let mut options = File::options();
                let options = options.write(true).create(true).truncate(true).mode(0o600);
                let _ = options.open(self.dir.join(STOPPED_FILE)).and_then(|file| file.sync_all());
            }
            return;
        }
        self.retry_definitions();
    }

    /// A bounded number, in turn: those that are large must not hold up small ones.
    fn retry_definitions(&mut self) {
        let after = self.without_memory.range(self.last_tried + 1..);
        let tags: Vec<u64> = after.chain(self.without_memory.range(..=self.last_tried)).map(|(tag, _)| *tag).collect();
        for tag in tags.into_iter().take(MAX_TRIES) {
            self.last_tried = tag;
            if let Some(definition) = self.without_memory.remove(&tag) {
                let _ = self.define(definition);
            }
        }
        self.count_waiting();
    }

    fn count_waiting(&self) {
        self.counters.waiting_tracks.store(self.without_memory.len() as u64, Ordering::Relaxed);
    }

    fn seal(&mut self, before_ns: u64) -> Result<(), StoreError> {
        let sealed = self.writer.seal(before_ns)?;
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

    fn obey(&mut self, order: Order) {
        match order {
            Order::Define(definition) => {
                let tag = definition.tag;
                if let Err(error) = self.define(definition) {
                    // Told here and not with each try that fails again.
                    let _ = self.tell_waits.send(tag);
                    if self.waited_at.is_none_or(|at| at.elapsed() > CALM) {
                        (self.say)(&format!(
                            "store: {error}; what finds no room is not kept until there is some, all else is"
                        ));
                    }
                    self.waited_at = Some(Instant::now());
                    self.count_waiting();
                }
            }
            Order::Cancel(tag) => {
                if self.without_memory.remove(&tag).is_some() {
                    let _ = self.tell_waits.send(tag);
                }
                self.count_waiting();
            }
            Order::Retire(tracks) => self.retire(tracks),
            Order::Gap(gap) => {
                if let Err(error) = self.writer.gap(&gap) {
                    self.counters.failed(Some(&error));
                }
            }
            Order::Stop => {}
        }
    }

    /// Makes a track; one that there is no room for waits, which is the error.
    fn define(&mut self, definition: Definition) -> Result<(), NoRoom> {
        let made =
            match self.shares.may_take(&definition.meta.host, ring_bytes(definition.columns.len(), definition.rows)) {
                true => self
                    .writer
                    .define(&definition.columns, &definition.meta.pack(), definition.rows)
                    .map_err(NoRoom::Store),
                false => Err(NoRoom::Share(definition.meta.host.clone())),
            };
        let track = match made {
            Ok(track) => track,
            Err(error) => {
                self.without_memory.insert(definition.tag, definition);
                return Err(error);
            }
        };
        match self.writer.appender(track) {
            // Whoever asked may be gone; the track then waits for the next one in vain until it is retired.
            Some(appender) => {
                let left_ns = self.bare_ns.remove(&track);
                self.shares.take(definition.meta.host.into(), track, appender.ring_bytes());
                let _ = self.tell.send(Made { tag: definition.tag, track, appender, left_ns });
            }
            None => drop(self.waiting.insert(track, definition.tag)),
        }
        Ok(())
    }

    fn retire(&mut self, tracks: Vec<(TrackId, Appender)>) {
        for (track, appender) in tracks {
            let host = self.shares.give(track);
            self.writer.retire(track, appender);
            if let Some(tag) = self.waiting.remove(&track)
                && let Some(appender) = self.writer.appender(track)
            {
                host.into_iter().for_each(|host| self.shares.take(host, track, appender.ring_bytes()));
                let _ = self.tell.send(Made { tag, track, appender, left_ns: None });
            }
        }
    }
}

#[cfg(test)]
mod tests;
