// SPDX-License-Identifier: Apache-2.0
//! Fronts of chunks that queries read, checked and decoded once for all of them.
//!
//! A dashboard asks for other columns of the same chunks with each of its panels: where they are, and when their rows
//! were, is the same for all. So the fronts that were asked for last stay, up to so many bytes. They are no hold on a
//! file: what reads columns opens it.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::lock;
use super::recent::Recent;
use crate::damage::StoreError;
use crate::types::Line;
use crate::warm::{Front, Place};

/// Bytes of all of them.
const MOST_BYTES: usize = 48 << 20;

/// When rows were that stand line by line.
pub(super) struct RowTimes {
    pub(super) times_ns: Vec<u64>,
    /// The earliest and the latest.
    pub(super) span_ns: Option<(u64, u64)>,
    /// Ascending.
    lines: Vec<OfLine>,
}

/// The rows of a line.
struct OfLine {
    line: Line,
    rows: Range<usize>,
    /// What [`RowTimes::max_distance_ns`] says.
    max_distance_ns: Option<u64>,
}

impl RowTimes {
    /// Of rows with these times, so many of each line.
    pub(super) fn new(times_ns: Vec<u64>, lines: impl Iterator<Item = (Line, usize)>) -> Self {
        let mut end = 0;
        let of_line = |(line, rows): (Line, usize)| {
            let rows = end..(end + rows).min(times_ns.len());
            end = rows.end;
            let own = &times_ns[rows.clone()];
            let is_rising = own.is_sorted_by(|one, next| one < next);
            let max_distance_ns = is_rising.then(|| own.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(0));
            OfLine { line, rows, max_distance_ns }
        };
        let lines = lines.map(of_line).collect();
        let all = || times_ns.iter().copied();
        let span_ns = all().min().zip(all().max());
        Self { times_ns, span_ns, lines }
    }

    /// What it takes of memory.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + 8 * self.times_ns.capacity() + self.lines.capacity() * size_of::<OfLine>()
    }

    fn of_line(&self, line: Line) -> Option<&OfLine> {
        self.lines.binary_search_by_key(&line, |of| of.line).ok().map(|at| &self.lines[at])
    }

    /// Which rows are of a line.
    pub(super) fn rows_of(&self, line: Line) -> Range<usize> {
        self.of_line(line).map_or(0..0, |of| of.rows.clone())
    }

    /// The largest distance of two rows of a line that follow one another; `None`: one is not later than the one before.
    pub(super) fn max_distance_ns(&self, line: Line) -> Option<u64> {
        self.of_line(line).map_or(Some(0), |of| of.max_distance_ns)
    }
}

/// A chunk's front, and when its rows were.
pub(super) struct Known {
    pub(super) front: Front,
    pub(super) times: RowTimes,
}

impl Known {
    fn read(place: &Place) -> Result<Self, StoreError> {
        let front = place.front()?;
        let chunk = place.chunk_of(&front)?;
        let mut times_ns = Vec::with_capacity(chunk.head().rows);
        chunk.times(&mut times_ns).map_err(|damage| place.damaged(damage))?;
        let times = RowTimes::new(times_ns, chunk.lines());
        Ok(Self { front, times })
    }

    pub(super) fn bytes(&self) -> usize {
        self.front.bytes() + self.times.bytes()
    }
}

/// By a chunk's arrival.
pub(super) struct Fronts(Mutex<Recent<(u32, u32), Arc<Known>>>);

impl Default for Fronts {
    fn default() -> Self {
        Self(Mutex::new(Recent::new(MOST_BYTES)))
    }
}

impl Fronts {
    /// Of a chunk of raw rows.
    pub(super) fn of(&self, place: &Place) -> Result<Arc<Known>, StoreError> {
        let key = place.chunk().arrival();
        if let Some(known) = lock(&self.0).get(key) {
            return Ok(known);
        }
        // Others do not wait for the disk.
        let known = Arc::new(Known::read(place)?);
        lock(&self.0).keep(key, &known, known.bytes());
        Ok(known)
    }
}
