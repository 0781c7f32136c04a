// SPDX-License-Identifier: Apache-2.0
//! Heads that queries read, decoded once for all of them.
//!
//! A head can be decoded row by row only, as a whole, and grows with each row: every query would decode all of it for the
//! newest ones. So the columns that were asked for last stay decoded, and what has come since is decoded behind them.
//! Tables, whose rows have an order of their own, are not here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::lock;
use super::recent::Recent;
use crate::damage::Damage;
use crate::head::{Snapshot, Walk};
use crate::types::TrackId;

/// Columns of a head that are decoded at once when one is missing for the first time; next time twice as many.
const AHEAD: usize = 8;
const MOST_AHEAD: usize = 16;
/// Columns of a head: with more, those before are forgotten. A dashboard asks for some of each of 20 metrics.
const MOST_COLUMNS: usize = 512;
/// A column that nobody has asked for in so many calls is forgotten: of thousands of hosts, what was decoded ahead must not
/// take the room of what rules ask for each time.
const PATIENCE_CALLS: u32 = 64;

/// Heads by their tracks.
pub(super) struct Grown(Mutex<Recent<TrackId, Arc<Mutex<Rows>>>>);

/// The rows of a head that were decoded.
struct Rows {
    /// The head's.
    number: u64,
    walk: Walk,
    times_ns: Vec<u64>,
    columns: BTreeMap<usize, Column>,
    ahead: usize,
    calls: u32,
}

#[derive(Default)]
struct Column {
    values: Vec<u64>,
    /// Number of the last call that asked for it.
    asked: u32,
}

/// Times of rows, and values of each run of columns, column after column.
pub(super) type Values = (Vec<u64>, Vec<Vec<u64>>);

impl Grown {
    /// Keeps so many bytes at most.
    pub(super) fn new(most_bytes: usize) -> Self {
        Self(Mutex::new(Recent::new(most_bytes)))
    }

    /// Rows of a track's head. `None`: they are of a table, of a head that was cut meanwhile, or damaged.
    pub(super) fn values(&self, track: TrackId, rows: &Snapshot, runs: &[Range<usize>]) -> Option<Values> {
        if rows.is_table() {
            return None;
        }
        let known = lock(&self.0).get(track);
        let known = known.unwrap_or_else(|| Arc::new(Mutex::new(Rows::new(rows))));
        let (values, bytes) = {
            let mut of_head = lock(&known);
            (of_head.values(rows, runs), of_head.bytes())
        };
        lock(&self.0).keep(track, &known, bytes);
        values
    }

    /// How many rows of a track's head are decoded.
    #[cfg(test)]
    pub(super) fn rows_of(&self, track: TrackId) -> Option<usize> {
        lock(&self.0).get(track).map(|rows| lock(&rows).times_ns.len())
    }
}

impl Rows {
    fn new(rows: &Snapshot) -> Self {
        let (times_ns, columns) = Default::default();
        Self { number: rows.number(), walk: Walk::new(rows), times_ns, columns, ahead: AHEAD, calls: 0 }
    }

    fn bytes(&self) -> usize {
        let words: usize = self.columns.values().map(|column| column.values.capacity()).sum();
        size_of::<Self>() + (words + self.times_ns.capacity()) * 8 + self.walk.bytes()
    }

    fn values(&mut self, rows: &Snapshot, runs: &[Range<usize>]) -> Option<Values> {
        if rows.number() < self.number {
            return None;
        }
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(PATIENCE_CALLS) {
            self.columns.retain(|_, column| self.calls.wrapping_sub(column.asked) < PATIENCE_CALLS);
        }
        if rows.number() > self.number {
            self.number = rows.number();
            self.begin(rows);
        }
        if runs.iter().any(|run| self.columns.range(run.clone()).count() < run.len()) {
            self.add(rows, runs);
        }
        if self.go_on(rows).is_err() {
            self.begin(rows);
            return None;
        }
        let count = rows.len() as usize;
        let times_ns = self.times_ns.get(..count)?.to_vec();
        let mut of_run = |run: &Range<usize>| {
            let mut all = Vec::with_capacity(run.len() * count);
            for (_, column) in self.columns.range_mut(run.clone()) {
                column.asked = self.calls;
                all.extend_from_slice(&column.values[..count]);
            }
            all
        };
        Some((times_ns, runs.iter().map(&mut of_run).collect()))
    }

    /// Nothing is decoded any more.
    fn begin(&mut self, rows: &Snapshot) {
        self.walk = Walk::new(rows);
        self.times_ns.clear();
        self.columns.values_mut().for_each(|column| column.values.clear());
    }

    /// From now on with these columns, and some behind them.
    fn add(&mut self, rows: &Snapshot, runs: &[Range<usize>]) {
        let (ahead, width) = (self.ahead, rows.kinds().len());
        self.ahead = (ahead * 2).min(MOST_AHEAD);
        let wanted = || runs.iter().flat_map(|run| run.start..run.end.max((run.start + ahead).min(width)));
        if self.columns.len() + wanted().count() > MOST_COLUMNS {
            self.columns.clear();
        }
        let asked = self.calls;
        wanted().for_each(|column| self.columns.entry(column).or_default().asked = asked);
        self.begin(rows);
    }

    /// Decodes what has come since.
    fn go_on(&mut self, rows: &Snapshot) -> Result<(), Damage> {
        let Self { walk, times_ns, columns, .. } = self;
        walk.go_on(rows, |time_ns, words| {
            times_ns.push(time_ns);
            columns.iter_mut().for_each(|(number, column)| column.values.push(words[*number]));
        })
    }
}

#[cfg(test)]
mod tests {
    use bolero::check;

    use super::*;
    use crate::head::Head;
    use crate::types::{Kind, Line};

    const WIDTH: usize = 200;

    /// Whatever is asked for, of heads that grow, are cut, and of which some rows are asked for again.
    #[test]
    fn values_are_those_of_the_rows() {
        check!().with_type::<Vec<(u8, u8, Vec<u8>)>>().for_each(|steps| {
            let (grown, track) = (Grown::new(1 << 20), TrackId(7));
            let mut head = Head::new(vec![Kind::Counter; WIDTH].into(), false);
            let (mut rows, mut sequence, mut before) = (Vec::new(), 0u64, None);
            for (what, more, asked) in steps {
                if what % 7 == 0 {
                    before = (head.rows() > 0).then(|| (head.take(), std::mem::take(&mut rows)));
                }
                for _ in 0..more % 20 {
                    sequence += 1;
                    let words: Vec<u64> = (0..WIDTH as u64).map(|column| sequence / (1 + column % 9)).collect();
                    head.push(Line::ONLY, 1_000 + sequence, &words).unwrap();
                    rows.push(words);
                }
                let mut columns: Vec<usize> = asked.iter().map(|column| usize::from(*column) % WIDTH).collect();
                columns.sort_unstable();
                columns.dedup();
                let runs: Vec<_> = columns.iter().map(|column| *column..*column + 1).collect();
                let is_old = what % 3 == 0 && before.is_some();
                let (snapshot, rows) = match &before {
                    Some((snapshot, rows)) if is_old => (snapshot.clone(), rows),
                    _ => (head.snapshot(), &rows),
                };
                let Some((times_ns, values)) = grown.values(track, &snapshot, &runs) else {
                    assert!(is_old || snapshot.is_empty());
                    continue;
                };
                assert_eq!(times_ns.len(), rows.len());
                for (column, values) in columns.iter().zip(values) {
                    assert_eq!(values, rows.iter().map(|words| words[*column]).collect::<Vec<_>>(), "column {column}");
                }
            }
            assert!(lock(&grown.0).bytes() <= 1 << 20);
        });
    }
}
