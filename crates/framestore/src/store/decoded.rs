// SPDX-License-Identifier: Apache-2.0
//! What a reader has decoded, so that its next series of the same rows does not decode them again.
//!
//! Whoever reads many series, such as a query, has a [`Decoded`] for as long as that takes. Of a chunk it has the columns
//! that were asked for; its front is known to all (`fronts.rs`). A head can be decoded row by row only, as a whole: that is done once for all
//! queries (`grown.rs`). Of tables what is kept are the columns that were asked for, and some behind them: twice as many
//! each time that one is missing. It holds so many bytes at most; what was not asked for longest goes first. A head that
//! has grown since is another one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::columns::neighbours;
use super::fronts::{Fronts, Known, RowTimes};
use super::grown::{Grown, Values};
use super::recent::Recent;
use crate::damage::StoreError;
use crate::head::{Head, Snapshot};
use crate::types::{Line, TrackId};
use crate::warm::{Place, Window};

/// What a piece costs beside its words.
const PIECE_BYTES: usize = 512;
/// Columns of a head that are decoded at once when one is missing for the first time.
const AHEAD: usize = 8;

/// By what a piece is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A chunk of raw rows, by its arrival.
    Chunk(u32, u32),
    /// A head, by its number and how many rows it has.
    Head(u64, u32),
}

impl Key {
    pub(super) fn of_chunk(place: &Place) -> Self {
        let (file, offset) = place.chunk().arrival();
        Self::Chunk(file, offset)
    }

    pub(super) fn of_head(head: &Head) -> Self {
        Self::Head(head.number(), head.rows())
    }

    pub(super) fn of_snapshot(rows: &Snapshot) -> Self {
        Self::Head(rows.number(), rows.len())
    }
}

/// Pieces that were decoded last.
pub struct Decoded {
    kept: RefCell<Recent<Key, Rc<Piece>>>,
}

impl Decoded {
    /// Keeps so many bytes at most.
    #[must_use]
    pub fn new(most_bytes: usize) -> Self {
        Self { kept: Recent::new(most_bytes).into() }
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.kept.borrow().bytes()
    }

    /// Forgets all: what is read next has none of it.
    pub fn clear(&self) {
        self.kept.borrow_mut().clear();
    }

    pub(super) fn get(&self, key: Key) -> Option<Rc<Piece>> {
        self.kept.borrow_mut().get(key)
    }

    /// Keeps a piece, as large as it is now.
    pub(super) fn keep(&self, key: Key, piece: &Rc<Piece>) {
        self.kept.borrow_mut().keep(key, piece, piece.bytes.get());
    }

    /// Gives a chunk to `take`, and keeps what that has decoded of it.
    pub(super) fn with_chunk<T>(
        &self,
        fronts: &Fronts,
        place: &Place,
        take: impl FnOnce(&Piece) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let key = Key::of_chunk(place);
        let piece = self.get(key).map_or_else(|| Piece::of_chunk(fronts, place).map(Rc::new), Ok)?;
        let taken = take(&piece);
        self.keep(key, &piece);
        taken
    }
}

/// Where the values of a column are.
#[derive(Clone)]
pub(super) struct Column {
    words: Rc<Vec<u64>>,
    from: usize,
}

impl Column {
    pub(super) fn at(&self, row: usize) -> u64 {
        self.words[self.from + row]
    }

    /// The values of some rows.
    pub(super) fn of(&self, rows: Range<usize>) -> &[u64] {
        &self.words[self.from + rows.start..self.from + rows.end]
    }
}

/// Rows of a chunk or of a head, line by line.
pub(super) struct Piece {
    origin: Origin,
    runs: RefCell<Runs>,
    /// Of memory.
    bytes: Cell<usize>,
}

/// By the first of neighbouring columns, how many they are, and their values, column after column.
type Runs = BTreeMap<usize, (usize, Rc<Vec<u64>>)>;

/// Where columns that are missing come from.
enum Origin {
    Chunk { place: Place, known: Arc<Known>, window: RefCell<Window> },
    Head(Rows, RowTimes),
}

/// Encoded rows of a head.
struct Rows {
    rows: Snapshot,
    /// Where what other queries have decoded is, and the head's track.
    grown: Arc<Grown>,
    track: TrackId,
    /// Of a table, which row comes where by its line; empty: they are in order.
    order: Vec<usize>,
    /// Columns that are decoded at once next time.
    ahead: Cell<usize>,
}

/// Decodes the rows of a head: `each` gets all lines and times; values of runs of columns come back.
fn decode(rows: &Snapshot, runs: &[Range<usize>], mut each: impl FnMut(Line, u64)) -> Vec<Vec<u64>> {
    let height = rows.len() as usize;
    let mut all: Vec<Vec<u64>> = runs.iter().map(|run| vec![0; run.len() * height]).collect();
    let mut at = 0;
    // They were encoded by this process, or looked at when they came out of the log.
    let _ = rows.rows(|line, time_ns, row| {
        each(line, time_ns);
        for (run, words) in runs.iter().zip(&mut all) {
            row[run.clone()].iter().enumerate().for_each(|(column, word)| words[column * height + at] = *word);
        }
        at += 1;
    });
    all
}

/// The same with the line of each, and which row comes where by them.
fn decode_lines(rows: &Snapshot, runs: &[Range<usize>]) -> (Vec<Line>, Vec<usize>, Values) {
    let height = rows.len() as usize;
    let (mut lines, mut times_ns) = (Vec::with_capacity(height), Vec::with_capacity(height));
    let all = decode(rows, runs, |line, time_ns| {
        lines.push(line);
        times_ns.push(time_ns);
    });
    let mut order = Vec::new();
    if rows.is_table() {
        order = (0..lines.len()).collect();
        order.sort_by_key(|at| lines[*at]);
        lines.sort_unstable();
    }
    (lines, order, (times_ns, all))
}

impl Rows {
    fn sort(&self, words: &mut [u64]) {
        if !self.order.is_empty() {
            let sorted: Vec<u64> = self.order.iter().map(|at| words[*at]).collect();
            words[..sorted.len()].copy_from_slice(&sorted);
        }
    }

    /// Sorts each column of a run.
    fn sorted(&self, mut run: Vec<u64>) -> Vec<u64> {
        run.chunks_mut((self.rows.len() as usize).max(1)).for_each(|column| self.sort(column));
        run
    }

    /// A run that begins as `wanted` does and has what may be asked for next; another run begins at `end`.
    fn read_ahead(&self, wanted: &Range<usize>, end: Option<usize>) -> (Range<usize>, Vec<u64>) {
        let run = std::slice::from_ref(wanted);
        if let Some(words) = self.grown.values(self.track, &self.rows, run).and_then(|(_, mut runs)| runs.pop()) {
            return (wanted.clone(), words);
        }
        let ahead = self.ahead.replace(self.ahead.get().saturating_mul(2));
        let end = (wanted.start + ahead).min(self.rows.kinds().len()).min(end.unwrap_or(usize::MAX));
        let run = wanted.start..wanted.end.max(end);
        let words = decode(&self.rows, std::slice::from_ref(&run), |_, _| {}).pop();
        (run, self.sorted(words.unwrap_or_default()))
    }
}

impl Piece {
    /// Of a chunk.
    fn of_chunk(fronts: &Fronts, place: &Place) -> Result<Self, StoreError> {
        let known = fronts.of(place)?;
        let bytes = known.bytes();
        Ok(Self::new(Origin::Chunk { place: place.clone(), known, window: RefCell::default() }, bytes))
    }

    fn new(origin: Origin, bytes: usize) -> Self {
        Self { origin, runs: RefCell::default(), bytes: Cell::new(PIECE_BYTES + bytes) }
    }

    /// Of a track's head, with some columns.
    pub(super) fn of_head(grown: &Arc<Grown>, track: TrackId, rows: Snapshot, mut wanted: Vec<usize>) -> Self {
        wanted.sort_unstable();
        wanted.dedup();
        let runs: Vec<_> = neighbours(&wanted).collect();
        let height = rows.len() as usize;
        let (lines, order, (mut times_ns, all)) = match grown.values(track, &rows, &runs) {
            Some(values) => (vec![Line::ONLY; height], Vec::new(), values),
            None => decode_lines(&rows, &runs),
        };
        let rows = Rows { rows, grown: grown.clone(), track, order, ahead: Cell::new(AHEAD) };
        rows.sort(&mut times_ns);
        let times = RowTimes::new(times_ns, lines.chunk_by(|one, next| one == next).map(|run| (run[0], run.len())));
        let bytes = rows.rows.bytes().len() + times.bytes() + 8 * rows.order.len();
        let all: Runs =
            runs.into_iter().zip(all).map(|(run, words)| (run.start, (run.len(), rows.sorted(words).into()))).collect();
        let piece = Self::new(Origin::Head(rows, times), bytes);
        all.values().for_each(|(_, words)| piece.grow(words));
        piece.runs.replace(all);
        piece
    }

    fn grow(&self, words: &[u64]) {
        self.bytes.set(self.bytes.get() + 8 * words.len());
    }

    /// When its rows were.
    pub(super) fn times(&self) -> &RowTimes {
        match &self.origin {
            Origin::Chunk { known, .. } => &known.times,
            Origin::Head(_, times) => times,
        }
    }

    /// Columns; those that are missing are read, neighbours at once.
    pub(super) fn columns(&self, wanted: &[usize]) -> Result<Vec<Column>, StoreError> {
        let (runs, rows) = (&mut *self.runs.borrow_mut(), self.times().times_ns.len());
        let find = |runs: &Runs, number: usize| {
            let (first, (count, words)) = runs.range(..=number).next_back()?;
            let from = (number - first) * rows;
            (number - first < *count).then(|| Column { words: words.clone(), from })
        };
        let mut missing: Vec<usize> = wanted.iter().copied().filter(|number| find(runs, *number).is_none()).collect();
        missing.sort_unstable();
        missing.dedup();
        for run in neighbours(&missing) {
            let (run, words) = match &self.origin {
                Origin::Chunk { place, known, window } => {
                    let (window, mut words) = (&mut *window.borrow_mut(), Vec::with_capacity(run.len() * rows));
                    let before = window.bytes();
                    place.columns(&known.front, run.clone(), window, &mut words)?;
                    self.bytes.set(self.bytes.get() + window.bytes() - before);
                    (run, words)
                }
                Origin::Head(rows, _) => {
                    let next = runs.range(run.start + 1..).next().map(|(first, _)| *first);
                    rows.read_ahead(&run, next)
                }
            };
            self.grow(&words);
            runs.insert(run.start, (run.len(), words.into()));
        }
        Ok(wanted.iter().filter_map(|number| find(runs, *number)).collect())
    }
}

#[cfg(test)]
mod tests {
    use bolero::check;

    use super::*;
    use crate::types::Kind;

    const WIDTH: usize = 40;

    /// Whatever columns are asked for, in whatever order, of rows of whatever lines.
    #[test]
    fn columns_of_a_head_are_those_of_its_rows() {
        check!().with_type::<(bool, Vec<u8>, Vec<Vec<u8>>)>().for_each(|(is_table, lines, asked)| {
            let mut head = Head::new(vec![Kind::Counter; WIDTH].into(), *is_table);
            let mut rows: Vec<(Line, u64, Vec<u64>)> = Vec::new();
            for (at, line) in (1_u64..).zip(lines) {
                let line = if *is_table { Line(u32::from(line % 5)) } else { Line::ONLY };
                let words: Vec<u64> = (0..WIDTH as u64).map(|column| column * 1_000 + at / (1 + column % 3)).collect();
                head.push(line, at, &words).unwrap();
                rows.push((line, at, words));
            }
            rows.sort_by_key(|(line, ..)| *line);
            let asked =
                asked.iter().map(|few| few.iter().map(|number| usize::from(*number) % WIDTH).collect::<Vec<_>>());
            let grown = Grown::new(1 << 20).into();
            let piece = Piece::of_head(&grown, TrackId(0), head.snapshot(), asked.clone().next().unwrap_or_default());
            let before = piece.bytes.get();
            assert_eq!(piece.times().times_ns, rows.iter().map(|(_, time_ns, _)| *time_ns).collect::<Vec<_>>());
            for wanted in asked {
                let columns = piece.columns(&wanted).unwrap();
                assert_eq!(columns.len(), wanted.len());
                for (column, number) in columns.iter().zip(&wanted) {
                    let values: Vec<u64> = rows.iter().map(|(.., words)| words[*number]).collect();
                    assert_eq!(column.of(0..rows.len()), values, "column {number}");
                }
            }
            for line in rows.iter().map(|(line, ..)| *line) {
                let of_line = rows.iter().filter(|(of, ..)| *of == line).count();
                let range = piece.times().rows_of(line);
                assert!(range.len() == of_line && rows[range].iter().all(|(of, ..)| *of == line));
            }
            assert!(piece.bytes.get() >= before);
        });
    }

    #[test]
    fn of_a_table_what_was_asked_for_first_is_all_there_is() {
        let mut head = Head::new(vec![Kind::Counter; WIDTH].into(), true);
        (0..100).for_each(|at| head.push(Line(1), at, &[at; WIDTH]).unwrap());
        let piece = Piece::of_head(&Grown::new(1 << 20).into(), TrackId(0), head.snapshot(), vec![7, 3, 7]);
        let columns = || piece.runs.borrow().values().map(|(count, _)| count).sum::<usize>();
        piece.columns(&[3, 7]).unwrap();
        assert_eq!(columns(), 2);
        piece.columns(&[8]).unwrap();
        assert_eq!(columns(), 2 + AHEAD);
        piece.columns(&[8 + AHEAD]).unwrap();
        assert_eq!(columns(), 2 + AHEAD + 2 * AHEAD);
        // Up to the next one that is there.
        piece.columns(&[0]).unwrap();
        assert_eq!(columns(), 2 + AHEAD + 2 * AHEAD + 3);
    }
}
