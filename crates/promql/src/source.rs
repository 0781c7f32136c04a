// SPDX-License-Identifier: Apache-2.0
//! Where samples come from: the one trait that a store implements.
//!
//! Samples of a series are columns: times that rise, and values beside them. A series that ended has a stale marker
//! ([`STALE`]) as its last value, as in Prometheus.

use std::error::Error;
use std::sync::Arc;

use crate::error::QueryError;
use crate::histogram::Histogram;
use crate::labels::{Labels, Matcher};
use crate::limits::Budget;

/// The NaN that says that a series has ended. No arithmetic makes one: it is a signalling NaN.
pub const STALE: f64 = f64::from_bits(STALE_BITS);
pub(crate) const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Why a source could not give what was asked for.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// A source that was stopped says by what.
impl From<SourceError> for QueryError {
    fn from(error: SourceError) -> Self {
        error.downcast::<Self>().map_or_else(Self::Source, |own| *own)
    }
}

/// Times that are asked for, ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Later than this.
    pub after_ns: i64,
    /// Until this, included.
    pub until_ns: i64,
}

/// A series that a selector matches.
#[derive(Clone, Debug)]
pub struct Found {
    /// What the source knows it by: it comes back in [`SeriesSource::read`] before the next selection. Series are read
    /// in the order of their keys; those of which the upper 32 bits are the same share what is decoded for them.
    pub key: u64,
    /// What it is called.
    pub labels: Labels,
}

impl Found {
    /// Whether the source decodes less if the same thread reads both.
    pub(crate) fn is_neighbour(&self, other: &Self) -> bool {
        self.key >> 32 == other.key >> 32
    }
}

/// Samples of a series, in the order of their times.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// ns since 1970, rising, later than all of the chunk before.
    pub times_ns: &'a [i64],
    /// As many.
    pub values: &'a [f64],
    /// Empty, or as many: where there is a histogram, it is the sample, and the value is the stale marker.
    pub histograms: &'a [Option<Arc<Histogram>>],
}

/// The samples of one series, chunk by chunk.
pub trait Chunks {
    /// The next ones; `None`: there are no more. Chunks may be of any size, and reach beyond the times asked for.
    ///
    /// # Errors
    /// Whatever the source failed at; the query fails with it.
    fn next(&mut self) -> Result<Option<Chunk<'_>>, SourceError>;
}

/// Windows of a series that follow one another, each `range_ns` long and `step_ns` later than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The last time of the first, included.
    pub first_end_ns: i64,
    /// From one's end to the next one's.
    pub step_ns: i64,
    /// How many.
    pub count: usize,
    /// Times later than the end minus this are in a window.
    pub range_ns: i64,
    /// Whether it is wanted what a counter went up by.
    pub is_counter: bool,
}

/// What is known of a window that has samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many samples, stale markers not among them.
    pub count: u64,
    /// Time of the first, ns.
    pub first_ns: i64,
    /// Time of the last, ns.
    pub last_ns: i64,
    /// The first value.
    pub first: f64,
    /// The last one.
    pub last: f64,
    /// The last minus the first; of counters, where that is wanted, and what was lost each time that one began again,
    /// which it has if it went down.
    pub increase: f64,
}

/// The newest sample of a series in a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Newest {
    /// The source would have to read all: [`SeriesSource::read`] does.
    Unknown,
    /// There is none, or the series has ended since.
    Nothing,
    /// This one.
    Sample {
        /// ns since 1970.
        time_ns: i64,
        /// Its value.
        value: f64,
    },
}

/// Becomes a source on the thread that calls it.
pub type Shared<'a> = Box<dyn FnOnce() -> Box<dyn SeriesSource + 'a> + Send + 'a>;

/// Whoever has series.
pub trait SeriesSource {
    /// Series that match all of `matchers` and may have samples in `span`, in any order. The source asks `budget` before
    /// it works and holds, and for how many series there may be.
    ///
    /// # Errors
    /// Whatever the source failed at, or the budget said; the query fails with it.
    fn select(&self, matchers: &[Matcher], span: Span, budget: &Budget) -> Result<Vec<Found>, SourceError>;

    /// Samples of a series in `span`.
    ///
    /// # Errors
    /// Whatever the source failed at; the query fails with it.
    fn read<'a>(&'a self, key: u64, span: Span) -> Result<Box<dyn Chunks + 'a>, SourceError>;

    /// The newest sample of a series in `span`, as it would come out of [`SeriesSource::read`], where that is found
    /// without reading all: an instant selector needs no others. Where a value stands that was acquired long before,
    /// its time may be any of those at which it has been seen to stand.
    ///
    /// # Errors
    /// Whatever the source failed at; the query fails with it.
    fn newest(&self, _key: u64, _span: Span) -> Result<Newest, SourceError> {
        Ok(Newest::Unknown)
    }

    /// Whether [`SeriesSource::newest`] for each of some times in `span` that are `step_ns` apart costs less than all
    /// samples of the series do.
    ///
    /// # Errors
    /// Whatever the source failed at; the query fails with it.
    fn prefers_newest(&self, _key: u64, _span: Span, _step_ns: i64) -> Result<bool, SourceError> {
        Ok(false)
    }

    /// What makes this source on another thread, with what was selected last; `None`: only one thread may read it.
    fn share(&self) -> Option<Shared<'_>> {
        None
    }

    /// Answers `windows` without handing on their samples, of which `budget` is told: calls `take` with the number of
    /// each window that has samples, rising, and what is known of it. `false`: it cannot, the samples are to be read. It
    /// is asked only where a summary is enough.
    ///
    /// # Errors
    /// Whatever the source failed at, or the budget said; the query fails with it.
    fn summaries(
        &self,
        _key: u64,
        _windows: Windows,
        _budget: &Budget,
        _take: &mut dyn FnMut(usize, Summary),
    ) -> Result<bool, SourceError> {
        Ok(false)
    }

    /// The same of the last sample of each window, which is all that an instant selector needs: calls `take` with the
    /// window's number, time and value; where the series has ended since, that is a stale marker. A sample from before
    /// the window may come, too.
    ///
    /// # Errors
    /// Whatever the source failed at, or the budget said; the query fails with it.
    fn last_samples(
        &self,
        _key: u64,
        _windows: Windows,
        _budget: &Budget,
        _take: &mut dyn FnMut(usize, i64, f64),
    ) -> Result<bool, SourceError> {
        Ok(false)
    }
}
