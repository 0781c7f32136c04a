// SPDX-License-Identifier: Apache-2.0
//! What a query may cost, and how it is stopped.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::query::QueryError;

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
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// The query ends with [`QueryError::Cancelled`], within milliseconds of its own work.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Units of work between two looks at the flag and at the clock. One is a sample or a value of a column, which takes
/// 1 to 50 ns: looks are less than 4 ms apart.
const LOOK_AFTER: u64 = 1 << 16;

pub(crate) struct Budget {
    pub(crate) limits: Limits,
    cancel: Cancel,
    until: Option<Instant>,
    work: Cell<u64>,
    samples: Cell<u64>,
    held: Rc<Cell<usize>>,
}

impl Budget {
    pub(crate) fn new(limits: Limits, cancel: Cancel, until: Option<Instant>) -> Self {
        Self { limits, cancel, until, work: Cell::default(), samples: Cell::default(), held: Rc::default() }
    }

    /// So much is about to be done.
    pub(crate) fn work(&self, units: usize) -> Result<(), QueryError> {
        let work = self.work.get() + units as u64;
        self.work.set(work);
        if work < LOOK_AFTER { Ok(()) } else { self.look() }
    }

    pub(crate) fn look(&self) -> Result<(), QueryError> {
        self.work.set(0);
        if self.cancel.0.load(Ordering::Relaxed) {
            return Err(QueryError::Cancelled);
        }
        match self.until {
            Some(until) if Instant::now() >= until => Err(QueryError::Time),
            _ => Ok(()),
        }
    }

    pub(crate) fn samples(&self, count: usize) -> Result<(), QueryError> {
        let samples = self.samples.get() + count as u64;
        self.samples.set(samples);
        if samples > self.limits.samples {
            return Err(QueryError::Samples { most: self.limits.samples });
        }
        self.work(count)
    }

    pub(crate) fn series(&self, count: usize) -> Result<(), QueryError> {
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
    pub(crate) fn hold(&self, bytes: usize) -> Result<Held, QueryError> {
        let mut held = Held { bytes: 0, all: self.held.clone(), most: self.limits.bytes };
        held.grow(bytes)?;
        Ok(held)
    }
}

/// Bytes of the query's budget.
pub(crate) struct Held {
    bytes: usize,
    all: Rc<Cell<usize>>,
    most: usize,
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), QueryError> {
        let all = self.all.get().saturating_add(bytes);
        if all > self.most {
            return Err(QueryError::Bytes { most: self.most });
        }
        self.all.set(all);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.set(self.all.get() - self.bytes);
    }
}
