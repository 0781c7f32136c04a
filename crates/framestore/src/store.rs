// SPDX-License-Identifier: Apache-2.0
//! Ring, heads, log, chunks and catalogue put together: rows go into the ring, from there into heads and the log, and become chunks when a head is full.
//!
//! The [`Writer`] has a thread of its own and does all that a disk can hold up, without a lock. Readers look at the [`Store`]: what they need of heads is copied
//! under a lock that the writer takes for moments only; chunks are read without one. The processing thread has the ring and the catalogue ([`crate::client`]) and
//! waits for neither. Who takes two locks takes the rows' first.
//!
//! Invariants: a row is in the ring until it is in the log's page cache, in a head until its chunk is written, and in the
//! log until that chunk is durable. A chunk's mark says up to which record of the ring its track's rows are in chunks: no
//! number of the ring comes again.

mod age;
mod clock;
mod coarse;
mod columns;
mod cool;
mod decoded;
mod due;
mod fronts;
mod grown;
mod holes;
mod interval;
mod look;
mod names;
mod open;
mod pack;
mod read;
mod recent;
mod roll;
mod rolling;
mod rows;
mod samples;
#[cfg(test)]
mod tests;
mod thinned;
mod to_cold;
mod turn;
mod visit;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use crate::catalogue::Known;
use crate::gaps::Gaps;
use crate::types::TrackId;
use crate::warm::{self, Level};
use due::Due;
use fronts::Fronts;
use grown::Grown;
use interval::Intervals;
use rows::Rows;

pub use cool::{Cooled, Cooler};
pub use decoded::Decoded;
pub use look::open_to_read;
pub use names::Named;
pub(crate) use names::PartOf;
pub use open::{Recovery, open};
pub(crate) use to_cold::{push_series, told};
pub use turn::{Turned, Writer};
pub use visit::{Bucket, Columns, Fall, Order, Run, Sample, Thinned, Thinner, Visit};

/// What queries keep decoded of heads, where nobody says how much: those of some hundred hosts.
pub const DECODED_BYTES: usize = 32 << 20;

/// Where and how large a store is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of its files, on a disk.
    pub dir: PathBuf,
    /// File of the ring, on tmpfs.
    pub ring: PathBuf,
    /// Bytes of the ring, taken at once.
    pub ring_bytes: u64,
    /// Bytes of all files on the disk; the oldest rows go first.
    pub max_bytes: u64,
    /// How long rows of each level are kept, ns; [`u64::MAX`]: as long as there is room.
    pub keep_ns: [u64; Level::ALL.len()],
    /// How old raw rows are when they may go into cold files, ns; [`u64::MAX`]: they never do.
    pub cold_after_ns: u64,
    /// Bytes that queries keep decoded of heads, all together. Whoever asks all hosts again and again, as rules do, decodes
    /// what has come since where there is room, and all of each head where there is none.
    pub decoded_bytes: usize,
}

impl Config {
    /// Of a store that keeps rows as long as there is room.
    #[must_use]
    pub fn keeping_all(dir: impl Into<PathBuf>, ring: impl Into<PathBuf>, ring_bytes: u64, max_bytes: u64) -> Self {
        let (keep_ns, cold_after_ns) = ([u64::MAX; Level::ALL.len()], u64::MAX);
        let decoded_bytes = DECODED_BYTES;
        Self { dir: dir.into(), ring: ring.into(), ring_bytes, max_bytes, keep_ns, cold_after_ns, decoded_bytes }
    }
}

/// Reason of the gap that damage leaves.
pub const DAMAGED: &str = "damaged";

/// What readers look at. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    known: Arc<RwLock<Known>>,
    chunks: warm::Reader,
    rows: Mutex<Rows>,
    gaps: Arc<Mutex<Gaps>>,
    due: Mutex<Due>,
    /// What queries know of chunks.
    fronts: Fronts,
    /// What they have seen of their samples.
    thinned: thinned::Cache,
    /// What they have decoded of heads.
    grown: Arc<Grown>,
    /// What they know of how far apart rows are.
    intervals: Intervals,
    figures: Figures,
}

/// How it goes, as of the last turn.
#[derive(Default)]
struct Figures {
    bytes: AtomicU64,
    ring_bytes: AtomicU64,
    /// Steady time before which all rows have come that are durable, ns.
    durable_ns: AtomicU64,
    /// Earliest time of a row or a bucket, UTC ns; 0: there is none.
    oldest_ns: AtomicU64,
    /// Of each level when the oldest window was over that is due, UTC ns; 0: none is.
    due_ns: [AtomicU64; Level::ALL.len()],
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn figure(figure: &AtomicU64) -> Option<u64> {
    Some(figure.load(Ordering::Relaxed)).filter(|figure| *figure > 0)
}

/// CLOCK_REALTIME, ns.
fn utc_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// CLOCK_MONOTONIC, ns.
fn steady_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

impl Store {
    /// What there is: hosts, tracks, series and their labels.
    pub fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of all files on the disk.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.figures.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the files of a level, without cold ones.
    #[must_use]
    pub fn level_bytes(&self, level: Level) -> u64 {
        let cold_bytes = if level == Level::Raw { self.cold_bytes() } else { 0 };
        self.0.chunks.bytes(level).saturating_sub(cold_bytes)
    }

    /// Bytes of cold files and what belongs to them.
    #[must_use]
    pub fn cold_bytes(&self) -> u64 {
        self.0.chunks.cold_bytes()
    }

    /// How long the oldest file of rows has been old enough for a cold file, and is none, ns; 0: there is none.
    #[must_use]
    pub fn cold_lag_ns(&self) -> u64 {
        lock(&self.0.due).oldest_ns().map_or(0, |due_ns| utc_ns().saturating_sub(due_ns))
    }

    /// Bytes of rows that are not in the log yet.
    #[must_use]
    pub fn hot_bytes(&self) -> u64 {
        self.0.figures.ring_bytes.load(Ordering::Relaxed)
    }

    /// Earliest time of a row, or of a bucket, UTC ns.
    #[must_use]
    pub fn oldest_ns(&self) -> Option<u64> {
        figure(&self.0.figures.oldest_ns)
    }

    /// How long a row may have been here that is not durable, ns.
    #[must_use]
    pub fn durable_lag_ns(&self) -> Option<u64> {
        figure(&self.0.figures.durable_ns).map(|durable_ns| steady_ns().saturating_sub(durable_ns))
    }

    /// How long ago the oldest window of a level was over that could be rolled up and is not, ns; 0: there is none.
    #[must_use]
    pub fn rollup_lag_ns(&self, level: Level) -> u64 {
        figure(&self.0.figures.due_ns[level as usize]).map_or(0, |due_ns| utc_ns().saturating_sub(due_ns))
    }

    /// Time up to which a track's rows are durable, UTC ns; 0: none is.
    #[must_use]
    pub fn durable_until_ns(&self, track: TrackId) -> u64 {
        let in_heads = lock(&self.0.rows).durable_until_ns(track);
        let in_chunks = || Level::ALL.iter().find_map(|level| self.0.chunks.newest_ns(*level, track));
        in_heads.or_else(in_chunks).unwrap_or(0)
    }

    /// Time of the last row of a track, UTC ns.
    #[must_use]
    pub fn newest_ns(&self, track: TrackId) -> Option<u64> {
        let in_heads = lock(&self.0.rows).newest_ns(track);
        in_heads.or_else(|| self.0.chunks.newest_ns(Level::Raw, track))
    }

    /// Bytes of memory that heads take.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        lock(&self.0.rows).head_bytes()
    }
}
