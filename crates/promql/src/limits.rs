// SPDX-License-Identifier: Apache-2.0
//! What a query may cost, and how it is stopped.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crate::error::QueryError;

/// What one query may cost at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Series that one selector matches, or one node has.
    pub series: usize,
    /// Samples read, all selectors together.
    pub samples: u64,
    /// Steps of a query.
    pub steps: usize,
    /// Steps of a subquery.
    pub subquery_steps: usize,
    /// Memory held at any time by columns, labels and windows.
    pub bytes: usize,
}

/// Steps as Prometheus's API has them; the others are for a machine with some GiB that others use, too.
impl Default for Limits {
    fn default() -> Self {
        Self { series: 100_000, samples: 500_000_000, steps: 11_000, subquery_steps: 1_000_000, bytes: 512 << 20 }
    }
}

/// Stops a query from another thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    is_cancelled: Arc<AtomicBool>,
    #[cfg(test)]
    pub(crate) looks: Arc<Looks>,
}

/// How often a query looked, and at which look it is cancelled.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Looks {
    pub(crate) count: std::sync::atomic::AtomicU64,
    pub(crate) cancel_at: std::sync::atomic::AtomicU64,
}

/// Of whoever has such a flag already: it is true once the query is to end.
impl From<Arc<AtomicBool>> for Cancel {
    fn from(flag: Arc<AtomicBool>) -> Self {
        Self {
            is_cancelled: flag,
            #[cfg(test)]
            looks: Arc::default(),
        }
    }
}

impl Cancel {
    /// The query ends with [`QueryError::Cancelled`], within milliseconds of its own work.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the query is to end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    fn looked(&self) {
        let count = self.looks.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == self.looks.cancel_at.load(Ordering::Relaxed) {
            self.cancel();
        }
    }
}

/// Units of work between two looks at the flag and at the clock. One is a sample or a value of a column, which takes
/// 1 to 50 ns: looks are less than 4 ms apart.
pub(crate) const LOOK_AFTER: u64 = 1 << 16;
/// Work of opening a series, whatever there is in it.
pub(crate) const SERIES: usize = 1 << 10;
/// Values of which a loop takes so many between two calls of [`Budget::work`].
pub(crate) const PIECE: usize = 1 << 12;

/// What one query has used of what it may: it asks here before it does more.
pub struct Budget {
    pub(crate) limits: Limits,
    cancel: Cancel,
    until: Option<Instant>,
    work: Cell<u64>,
    used: Arc<Used>,
}

/// What all threads of a query have used.
#[derive(Debug, Default)]
struct Used {
    samples: AtomicU64,
    held: AtomicUsize,
}

impl Budget {
    /// Nothing is used; `until` is when it must be done.
    #[must_use]
    pub fn new(limits: Limits, cancel: Cancel, until: Option<Instant>) -> Self {
        Self { limits, cancel, until, work: Cell::default(), used: Arc::default() }
    }

    /// The same budget, for another thread of the query.
    pub(crate) fn share(&self) -> Self {
        let Self { limits, cancel, until, used, .. } = self;
        Self { limits: *limits, cancel: cancel.clone(), until: *until, work: Cell::default(), used: used.clone() }
    }

    /// So much is about to be done, in units of 1 to 50 ns.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`], [`QueryError::Time`].
    pub fn work(&self, units: usize) -> Result<(), QueryError> {
        let work = self.work.get() + units as u64;
        self.work.set(work);
        if work < LOOK_AFTER { Ok(()) } else { self.look() }
    }

    /// Looks at once whether the query is to end.
    ///
    /// # Errors
    /// As [`Budget::work`].
    pub fn look(&self) -> Result<(), QueryError> {
        self.work.set(0);
        #[cfg(test)]
        self.cancel.looked();
        if self.cancel.is_cancelled() {
            return Err(QueryError::Cancelled);
        }
        match self.until {
            Some(until) if Instant::now() >= until => Err(QueryError::Time),
            _ => Ok(()),
        }
    }

    /// Gives each of these to `take`, with its place, and looks in between.
    pub(crate) fn each<T>(&self, items: &mut [T], mut take: impl FnMut(usize, &mut T)) -> Result<(), QueryError> {
        for (piece, items) in items.chunks_mut(PIECE).enumerate() {
            self.work(items.len())?;
            for (at, item) in items.iter_mut().enumerate() {
                take(piece * PIECE + at, item);
            }
        }
        Ok(())
    }

    /// Gives each of these with what lies at its place on the other side to `take`, and looks in between.
    pub(crate) fn each_with<T, U: Copy>(
        &self,
        items: &mut [T],
        others: &[U],
        mut take: impl FnMut(&mut T, U),
    ) -> Result<(), QueryError> {
        for (items, others) in items.chunks_mut(PIECE).zip(others.chunks(PIECE)) {
            self.work(items.len())?;
            items.iter_mut().zip(others).for_each(|(item, other)| take(item, *other));
        }
        Ok(())
    }

    /// So many samples of the source are read.
    ///
    /// # Errors
    /// [`QueryError::Samples`], and as [`Budget::work`].
    pub fn samples(&self, count: usize) -> Result<(), QueryError> {
        let samples = self.used.samples.fetch_add(count as u64, Ordering::Relaxed) + count as u64;
        if samples > self.limits.samples {
            return Err(QueryError::Samples { most: self.limits.samples });
        }
        self.work(count)
    }

    /// A selector matches so many.
    ///
    /// # Errors
    /// [`QueryError::Series`].
    pub fn series(&self, count: usize) -> Result<(), QueryError> {
        if count > self.limits.series {
            return Err(QueryError::Series { most: self.limits.series });
        }
        Ok(())
    }

    pub(crate) fn steps(&self, count: usize, most: usize) -> Result<(), QueryError> {
        if count > most {
            return Err(QueryError::Steps { most });
        }
        Ok(())
    }

    /// Memory that is given back when what is returned is dropped.
    ///
    /// # Errors
    /// [`QueryError::Bytes`].
    pub fn hold(&self, bytes: usize) -> Result<Held, QueryError> {
        let mut held = Held { bytes: 0, used: self.used.clone(), most: self.limits.bytes };
        held.grow(bytes)?;
        Ok(held)
    }
}

/// Bytes of the query's budget.
#[derive(Debug)]
pub struct Held {
    bytes: usize,
    used: Arc<Used>,
    most: usize,
}

impl Held {
    /// Grows to this, if it is less.
    pub(crate) fn reach(&mut self, bytes: usize) -> Result<(), QueryError> {
        self.grow(bytes.saturating_sub(self.bytes))
    }

    /// Gives so much back.
    pub fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.used.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes over what another one of the same query holds.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// So much more.
    ///
    /// # Errors
    /// [`QueryError::Bytes`].
    pub fn grow(&mut self, bytes: usize) -> Result<(), QueryError> {
        let grown = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.most);
        let held = self.used.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
        held.map_err(|_| QueryError::Bytes { most: self.most })?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.used.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
