// SPDX-License-Identifier: Apache-2.0
//! What a reader has decoded, so that its next series of the same rows does not decode them again.
//!
//! Whoever reads many series, such as a query, has a [`Decoded`] for as long as that takes. Of a chunk it has the front
//! and the columns that were asked for. A head is decoded row by row: of it there are the columns that were asked for
//! first, and when others are, all of them. It holds so many bytes at most; what was not asked for longest goes first.
//! A head that has grown since is another one.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;

use super::columns::neighbours;
use crate::damage::StoreError;
use crate::head::{Head, Snapshot};
use crate::types::{Line, TrackId};
use crate::warm::{Buffers, Place};

/// What a piece costs beside its words.
const PIECE_BYTES: usize = 512;
/// The same of a line: where it is, and how far its rows are apart.
const LINE_BYTES: usize = size_of::<(Line, Range<usize>)>() + 16;

/// By what a piece is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A chunk of raw rows, by its arrival.
    Chunk(u32, u32),
    /// A head: its track, earliest and latest time, rows, bytes.
    Head(TrackId, u64, u64, u32, usize),
}

impl Key {
    pub(super) fn of_chunk(place: &Place) -> Self {
        let (file, offset) = place.chunk().arrival();
        Self::Chunk(file, offset)
    }

    pub(super) fn of_head(track: TrackId, head: &Head) -> Self {
        Self::head(track, head.times_ns(), head.rows(), head.len_bytes())
    }

    pub(super) fn of_snapshot(track: TrackId, rows: &Snapshot) -> Self {
        Self::head(track, rows.times_ns(), rows.len(), rows.bytes().len())
    }

    fn head(track: TrackId, times_ns: Option<(u64, u64)>, rows: u32, bytes: usize) -> Self {
        let (from_ns, to_ns) = times_ns.unwrap_or_default();
        Self::Head(track, from_ns, to_ns, rows, bytes)
    }
}

/// Pieces that were decoded last.
#[derive(Default)]
pub struct Decoded {
    most_bytes: usize,
    kept: RefCell<Kept>,
}

#[derive(Default)]
struct Kept {
    bytes: usize,
    turn: u64,
    pieces: HashMap<Key, Entry>,
    by_turn: BTreeMap<u64, Key>,
}

struct Entry {
    turn: u64,
    bytes: usize,
    piece: Rc<Piece>,
}

impl Decoded {
    /// Keeps so many bytes at most.
    #[must_use]
    pub fn new(most_bytes: usize) -> Self {
        Self { most_bytes, ..Self::default() }
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.kept.borrow().bytes
    }

    pub(super) fn get(&self, key: Key) -> Option<Rc<Piece>> {
        let kept = &mut *self.kept.borrow_mut();
        let entry = kept.pieces.get_mut(&key)?;
        kept.by_turn.remove(&entry.turn);
        kept.turn += 1;
        entry.turn = kept.turn;
        kept.by_turn.insert(entry.turn, key);
        Some(entry.piece.clone())
    }

    /// Keeps a piece, as large as it is now.
    pub(super) fn keep(&self, key: Key, piece: &Rc<Piece>) {
        let (kept, bytes) = (&mut *self.kept.borrow_mut(), piece.bytes.get());
        if kept.pieces.get(&key).is_some_and(|entry| entry.bytes == bytes) {
            return;
        }
        kept.remove(key);
        if bytes > self.most_bytes {
            return;
        }
        while kept.bytes + bytes > self.most_bytes
            && let Some((_, oldest)) = kept.by_turn.first_key_value()
        {
            kept.remove(*oldest);
        }
        kept.turn += 1;
        kept.by_turn.insert(kept.turn, key);
        kept.pieces.insert(key, Entry { turn: kept.turn, bytes, piece: piece.clone() });
        kept.bytes += bytes;
    }

    /// Gives a chunk to `take`, and keeps what that has decoded of it.
    pub(super) fn with_chunk<T>(
        &self,
        place: &Place,
        take: impl FnOnce(&Piece) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let key = Key::of_chunk(place);
        let piece = self.get(key).map_or_else(|| Piece::of_chunk(place).map(Rc::new), Ok)?;
        let taken = take(&piece);
        self.keep(key, &piece);
        taken
    }
}

impl Kept {
    fn remove(&mut self, key: Key) {
        if let Some(entry) = self.pieces.remove(&key) {
            self.by_turn.remove(&entry.turn);
            self.bytes -= entry.bytes;
        }
    }
}

/// Where the values of a column are.
#[derive(Clone)]
pub(super) struct Column {
    words: Rc<Vec<u64>>,
    from: usize,
    stride: usize,
}

impl Column {
    pub(super) fn at(&self, row: usize) -> u64 {
        self.words[self.from + row * self.stride]
    }

    /// The values of some rows; `gathered` is for those that do not stand side by side.
    pub(super) fn of<'a>(&'a self, rows: Range<usize>, gathered: &'a mut Vec<u64>) -> &'a [u64] {
        if self.stride == 1 {
            return &self.words[self.from + rows.start..self.from + rows.end];
        }
        gathered.clear();
        gathered.extend(rows.map(|row| self.at(row)));
        gathered
    }
}

/// Rows of a chunk or of a head, line by line.
pub(super) struct Piece {
    rows: usize,
    lines: Vec<(Line, Range<usize>)>,
    /// Of lines, what [`Piece::max_distance_ns`] says.
    distances_ns: RefCell<HashMap<Line, Option<u64>>>,
    times_ns: OnceCell<Vec<u64>>,
    span_ns: OnceCell<Option<(u64, u64)>>,
    words: Words,
    /// Of memory.
    bytes: Cell<usize>,
}

/// By the first of neighbouring columns, how many they are, and their values.
type Runs = BTreeMap<usize, (usize, Rc<Vec<u64>>)>;

enum Words {
    /// What is read of a chunk.
    Chunk {
        place: Place,
        buffers: RefCell<Buffers>,
        runs: RefCell<Runs>,
    },
    Head(Box<HeadWords>),
}

/// What was decoded of a head.
struct HeadWords {
    rows: Snapshot,
    /// Where each row comes in a table's order by lines; empty: they are in order.
    order: Vec<usize>,
    /// The columns that were asked for first, one behind the other, each so long.
    first: Vec<usize>,
    first_words: Rc<Vec<u64>>,
    height: usize,
    /// Row by row.
    all: OnceCell<Rc<Vec<u64>>>,
}

impl HeadWords {
    /// Columns of [`HeadWords::first`], if all are among them.
    fn of_first(&self, wanted: &[usize]) -> Option<Vec<Column>> {
        let column = |number: &usize| {
            let at = self.first.iter().position(|first| first == number)?;
            Some(Column { words: self.first_words.clone(), from: at * self.height, stride: 1 })
        };
        wanted.iter().map(column).collect()
    }

    fn decode_all(&self) -> Vec<u64> {
        let width = self.rows.kinds().len();
        let mut words = Vec::with_capacity(self.rows.len() as usize * width);
        let _ = self.rows.rows(|_, _, row| words.extend_from_slice(row));
        if self.order.is_empty() {
            return words;
        }
        self.order.iter().flat_map(|at| &words[at * width..(at + 1) * width]).copied().collect()
    }
}

impl Piece {
    /// Of a chunk, of which the front is read.
    pub(super) fn of_chunk(place: &Place) -> Result<Self, StoreError> {
        let mut buffers = Buffers::default();
        let chunk = place.read_columns(0..0, &mut buffers, &mut Vec::new())?;
        let (rows, lines) = (chunk.head().rows, ranges(chunk.lines()));
        let bytes = buffers.bytes();
        let words = Words::Chunk { place: place.clone(), buffers: buffers.into(), runs: RefCell::default() };
        Ok(Self::new(rows, lines, OnceCell::new(), words, bytes))
    }

    fn new(
        rows: usize,
        lines: Vec<(Line, Range<usize>)>,
        times_ns: OnceCell<Vec<u64>>,
        words: Words,
        bytes: usize,
    ) -> Self {
        let bytes = Cell::new(PIECE_BYTES + lines.len() * LINE_BYTES + bytes);
        Self { rows, lines, distances_ns: RefCell::default(), times_ns, span_ns: OnceCell::new(), words, bytes }
    }

    /// Of a head, with some columns.
    pub(super) fn of_head(rows: Snapshot, first: Vec<usize>) -> Self {
        let height = rows.len() as usize;
        let (mut times_ns, mut words) = (Vec::with_capacity(height), vec![0; height * first.len()]);
        let mut lines = Vec::with_capacity(height);
        // They were encoded by this process, or looked at when they came out of the log.
        let _ = rows.rows(|line, time_ns, row| {
            let at = times_ns.len();
            first.iter().enumerate().for_each(|(column, number)| words[column * height + at] = row[*number]);
            times_ns.push(time_ns);
            lines.push(line);
        });
        let mut order = Vec::new();
        if rows.is_table() {
            order = (0..lines.len()).collect();
            order.sort_by_key(|at| lines[*at]);
            let sorted = |all: &[u64]| order.iter().map(|at| all[*at]).collect::<Vec<u64>>();
            times_ns = sorted(&times_ns);
            for column in words.chunks_mut(height.max(1)) {
                let values = sorted(column);
                column[..values.len()].copy_from_slice(&values);
            }
            lines.sort_unstable();
        }
        let lines = lines.chunk_by(|one, next| one == next).map(|run| (run[0], run.len()));
        let (count, lines) = (times_ns.len(), ranges(lines));
        let bytes = rows.bytes().len() + 8 * (count + words.len() + order.len());
        let first_words = words.into();
        let words = HeadWords { rows, order, first, first_words, height, all: OnceCell::new() };
        Self::new(count, lines, times_ns.into(), Words::Head(words.into()), bytes)
    }

    fn grow(&self, words: &[u64]) {
        self.bytes.set(self.bytes.get() + 8 * words.len());
    }

    /// Which rows are of a line.
    pub(super) fn rows_of(&self, line: Line) -> Range<usize> {
        let at = self.lines.binary_search_by_key(&line, |(line, _)| *line);
        at.map_or(0..0, |at| self.lines[at].1.clone())
    }

    /// Times of the rows.
    pub(super) fn times_ns(&self) -> Result<&[u64], StoreError> {
        if self.times_ns.get().is_none()
            && let Words::Chunk { place, buffers, .. } = &self.words
        {
            let (buffers, mut times_ns) = (&mut *buffers.borrow_mut(), Vec::with_capacity(self.rows));
            let chunk = place.read_columns(0..0, buffers, &mut Vec::new())?;
            chunk.times(&mut times_ns).map_err(|damage| place.damaged(damage))?;
            self.grow(&times_ns);
            let _ = self.times_ns.set(times_ns);
        }
        Ok(self.times_ns.get().map_or(&[], |times_ns| times_ns))
    }

    /// The earliest and the latest time of a row.
    pub(super) fn span_ns(&self) -> Result<Option<(u64, u64)>, StoreError> {
        let times_ns = self.times_ns()?;
        let times_ns = || times_ns.iter().copied();
        Ok(*self.span_ns.get_or_init(|| times_ns().min().zip(times_ns().max())))
    }

    /// The largest distance of two rows of a line that follow one another; `None`: one is not later than the one before.
    pub(super) fn max_distance_ns(&self, line: Line) -> Result<Option<u64>, StoreError> {
        let times_ns = &self.times_ns()?[self.rows_of(line)];
        let max_distance_ns = || {
            let is_rising = times_ns.is_sorted_by(|one, next| one < next);
            is_rising.then(|| times_ns.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(0))
        };
        Ok(*self.distances_ns.borrow_mut().entry(line).or_insert_with(max_distance_ns))
    }

    /// Columns; those that are missing are read, neighbours at once.
    pub(super) fn columns(&self, wanted: &[usize]) -> Result<Vec<Column>, StoreError> {
        let (place, buffers, runs) = match &self.words {
            Words::Chunk { place, buffers, runs } => (place, buffers, runs),
            Words::Head(head) => {
                if let Some(columns) = head.of_first(wanted) {
                    return Ok(columns);
                }
                let all = head.all.get_or_init(|| {
                    let all = head.decode_all();
                    self.grow(&all);
                    all.into()
                });
                let stride = head.rows.kinds().len();
                let column = |from: &usize| Column { words: all.clone(), from: *from, stride };
                return Ok(wanted.iter().map(column).collect());
            }
        };
        let runs = &mut *runs.borrow_mut();
        let find = |runs: &Runs, number: usize| {
            let (first, (count, words)) = runs.range(..=number).next_back()?;
            let from = (number - first) * self.rows;
            (number - first < *count).then(|| Column { words: words.clone(), from, stride: 1 })
        };
        let mut missing: Vec<usize> = wanted.iter().copied().filter(|number| find(runs, *number).is_none()).collect();
        missing.sort_unstable();
        missing.dedup();
        for run in neighbours(&missing) {
            let mut words = Vec::new();
            place.read_columns(run.clone(), &mut buffers.borrow_mut(), &mut words)?;
            self.grow(&words);
            runs.insert(run.start, (run.len(), words.into()));
        }
        Ok(wanted.iter().filter_map(|number| find(runs, *number)).collect())
    }
}

/// Where the rows of each line are that follow one another.
fn ranges(lines: impl Iterator<Item = (Line, usize)>) -> Vec<(Line, Range<usize>)> {
    let mut end = 0;
    let range = |(line, rows): (Line, usize)| {
        end += rows;
        (line, end - rows..end)
    };
    lines.map(range).collect()
}
