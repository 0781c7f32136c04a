// SPDX-License-Identifier: Apache-2.0
//! The thread that owns the store: makes tracks, seals, syncs, answers.
//!
//! The reading thread never waits for a disk: it asks for a track, goes on without it, and appends to the ring once it has been given its appender. Rows that
//! were read before that are not kept, and rows that find the ring full are counted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onlooker_store::{Appender, Config, Gap, Kind, Recovery, Store, StoreError, TrackId};
use onlooker_transport::clock::Moment;

/// Time between two syncs. With the time that rows wait for a tile: what a loss of power may cost at most.
const SEAL_INTERVAL: Duration = Duration::from_millis(500);

/// Rows wait so long for a whole tile, which packs better.
const MAX_LAG_NS: u64 = 1_000_000_000;

enum Order {
    Define { tag: u64, columns: Vec<Kind>, meta: Vec<u8> },
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
}

/// What the store has been doing.
#[derive(Debug, Default)]
pub struct Counters {
    /// Rows sealed.
    pub rows: AtomicU64,
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

/// The reading thread's side.
pub struct Tracks {
    orders: Sender<Order>,
    made: Receiver<Made>,
}

impl Tracks {
    /// Asks for a track; [`Tracks::made`] will have it.
    pub fn define(&self, tag: u64, columns: Vec<Kind>, meta: Vec<u8>) {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keeper {
    /// Opens the store and starts its thread.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn start(config: Config) -> Result<(Self, Tracks, Recovery), StoreError> {
        let dir = config.dir.clone();
        let (store, recovery) = Store::open(config)?;
        let store = Arc::new(Mutex::new(store));
        let counters = Arc::new(Counters::default());
        let (orders, todo) = channel();
        let (tell, made) = channel();
        let thread = {
            let (store, counters) = (store.clone(), counters.clone());
            let work = move || run(&store, &counters, &todo, &tell);
            thread::Builder::new().name("store".into()).spawn(work)
        };
        let thread = thread.map_err(|source| StoreError::Io { operation: "start a thread for", path: dir, source })?;
        let tracks = Tracks { orders: orders.clone(), made };
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

/// Who asked for tracks whose appender is with somebody who gives it back soon: a host that was forgotten and is watched again.
type Waiting = HashMap<TrackId, u64>;

fn run(store: &Mutex<Store>, counters: &Counters, todo: &Receiver<Order>, tell: &Sender<Made>) {
    let mut waiting = Waiting::new();
    let mut next_seal = Instant::now() + SEAL_INTERVAL;
    loop {
        let order = todo.recv_timeout(next_seal.saturating_duration_since(Instant::now()));
        let stop = matches!(order, Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected));
        if let Ok(order) = order
            && let Err(error) = obey(&mut lock(store), order, &mut waiting, tell)
        {
            counters.failed(Some(&error));
        }
        if stop || Instant::now() >= next_seal {
            let older_than_ns = if stop { u64::MAX } else { Moment::now().utc_ns.saturating_sub(MAX_LAG_NS) };
            match lock(store).seal(older_than_ns) {
                Ok(sealed) => {
                    counters.rows.fetch_add(sealed.rows, Ordering::Relaxed);
                    counters.dropped_segments.fetch_add(sealed.dropped_segments, Ordering::Relaxed);
                    counters.failed(None);
                }
                Err(error) => counters.failed(Some(&error)),
            }
            next_seal = Instant::now() + SEAL_INTERVAL;
        }
        if stop {
            return;
        }
    }
}

fn obey(store: &mut Store, order: Order, waiting: &mut Waiting, tell: &Sender<Made>) -> Result<(), StoreError> {
    match order {
        Order::Define { tag, columns, meta } => {
            let track = store.define(&columns, &meta)?;
            match store.appender(track) {
                // Whoever asked may be gone; the track then waits for the next one in vain until it is retired.
                Some(appender) => drop(tell.send(Made { tag, track, appender })),
                None => drop(waiting.insert(track, tag)),
            }
            Ok(())
        }
        Order::Retire(tracks) => {
            for (track, appender) in tracks {
                store.retire(track, appender);
                if let Some(tag) = waiting.remove(&track)
                    && let Some(appender) = store.appender(track)
                {
                    let _ = tell.send(Made { tag, track, appender });
                }
            }
            Ok(())
        }
        Order::Gap(gap) => store.gap(gap),
        Order::Stop => Ok(()),
    }
}
