// SPDX-License-Identifier: Apache-2.0
//! Samples of a part for whoever wants them: of chunks, of heads, and of what is decoded, each once.

use std::ops::ControlFlow;

use super::columns::{Buffers, neighbours, rows_of};
use super::decoded::{Column, Piece};
use super::fronts::RowTimes;
use super::thinned::Cache;
use super::visit::{Columns, Run, Sample, Visit};
use crate::damage::StoreError;
use crate::head::Snapshot;
use crate::types::Line;
use crate::warm::Place;

/// Takes rows in the order in which they came.
pub(super) struct Samples<'a, V> {
    wanted: &'a Columns,
    from_ns: u64,
    to_ns: u64,
    visit: &'a mut V,
    last_ns: Option<u64>,
    row: Vec<u64>,
    /// Whether the visitor wants more.
    pub(super) flow: ControlFlow<()>,
}

impl<'a, V: Visit> Samples<'a, V> {
    /// Of a time, both ends included.
    pub(super) fn new(wanted: &'a Columns, from_ns: u64, to_ns: u64, visit: &'a mut V) -> Self {
        let (row, flow) = (Vec::new(), ControlFlow::Continue(()));
        Self { wanted, from_ns, to_ns, visit, last_ns: None, row, flow }
    }

    fn take(&mut self, time_ns: u64, word: impl Fn(usize) -> u64) {
        // A part that has nothing new has the time of the row before; one that never was has none.
        let is_new = time_ns > 0 && self.last_ns != Some(time_ns);
        if !is_new || !(self.from_ns..=self.to_ns).contains(&time_ns) || self.flow.is_break() {
            return;
        }
        self.last_ns = Some(time_ns);
        self.row.clear();
        self.row.extend((0..self.wanted.words.len()).map(word));
        self.flow = self.visit.sample(&Sample { time_ns, words: &self.row, bucket: None });
    }

    pub(super) fn take_snapshot(&mut self, rows: &Snapshot) {
        let wanted = self.wanted;
        // They were encoded by this process, or looked at when they came out of the log.
        let _ = rows.rows(|line, time_ns, words| {
            if line == wanted.line {
                self.take(wanted.time.map_or(time_ns, |time| words[time]), |at| words[wanted.words[at]]);
            }
        });
    }

    pub(super) fn take_chunk(&mut self, place: &Place, buffers: &mut Buffers) -> Result<(), StoreError> {
        let Buffers { pieces, times_ns, values, .. } = buffers;
        values.clear();
        for run in neighbours(&self.wanted.words) {
            place.read_columns(run, pieces, values)?;
        }
        times_ns.clear();
        let chunk = match self.wanted.time {
            Some(time) => place.read_columns(time..time + 1, pieces, times_ns)?,
            None => {
                let chunk = place.read_columns(0..0, pieces, times_ns)?;
                chunk.times(times_ns).map_err(|damage| place.damaged(damage))?;
                chunk
            }
        };
        let height = chunk.head().rows;
        for at in rows_of(&chunk, self.wanted.line) {
            self.take(times_ns[at], |column| values[column * height + at]);
        }
        Ok(())
    }

    /// The same of what is decoded.
    pub(super) fn take_piece(&mut self, piece: &Piece) -> Result<(), StoreError> {
        let wanted = self.wanted;
        let words = piece.columns(&wanted.words)?;
        if wanted.time.is_none() && self.take_rows(piece.times(), &words) {
            return Ok(());
        }
        let time = wanted.time.map(|time| piece.columns(&[time])).transpose()?.and_then(|mut columns| columns.pop());
        let times = piece.times();
        for row in times.rows_of(wanted.line) {
            let time_ns = time.as_ref().map_or_else(|| times.times_ns[row], |time| time.at(row));
            self.take(time_ns, |at| words[at].at(row));
        }
        Ok(())
    }

    /// Samples of a chunk next to the lines of a grid, if that is enough.
    pub(super) fn take_thinned(&mut self, cache: &Cache, place: &Place, piece: &Piece) -> Result<bool, StoreError> {
        let Some(thinner) = self.visit.thinner() else { return Ok(false) };
        if self.wanted.time.is_some() || self.wanted.line != Line::ONLY {
            return Ok(false);
        }
        let Some(column) = cache.of(place, piece, thinner)? else { return Ok(false) };
        let samples = column.thinned();
        let is_taken = self.visit.thinned(&samples);
        if is_taken {
            self.last_ns = Some(samples.rows_ns.1);
        }
        Ok(is_taken)
    }

    /// All rows at once, if the visitor takes them so.
    fn take_rows(&mut self, times: &RowTimes, words: &[Column]) -> bool {
        let Some(max_distance_ns) = times.max_distance_ns(self.wanted.line) else { return false };
        let (rows, times_ns) = (times.rows_of(self.wanted.line), &times.times_ns);
        let until = |time_ns: u64| rows.start + times_ns[rows.clone()].partition_point(|own_ns| *own_ns < time_ns);
        // Of most pieces all is wanted: who looks for where it begins touches times that nobody else does.
        let is_in_time =
            |at: usize| times_ns.get(at).is_some_and(|time_ns| (self.from_ns..=self.to_ns).contains(time_ns));
        let wanted = match is_in_time(rows.start) && is_in_time(rows.end.saturating_sub(1)) {
            true => rows.clone(),
            false => until(self.from_ns)..until(self.to_ns.saturating_add(1)),
        };
        let times_ns = &times_ns[wanted.clone()];
        let (Some(first_ns), Some(last_ns)) = (times_ns.first(), times_ns.last()) else { return true };
        if *first_ns == 0 || self.last_ns == Some(*first_ns) {
            return false;
        }
        let taken = self.visit.run(&Run { times_ns, max_distance_ns, words, first: wanted.start });
        if let Some(flow) = taken {
            (self.flow, self.last_ns) = (flow, Some(*last_ns));
        }
        taken.is_some()
    }
}
