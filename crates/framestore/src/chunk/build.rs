// SPDX-License-Identifier: Apache-2.0
//! Rows to a chunk. They are kept as they come and transposed at the end, so that taking one is one copy.
//!
//! Columns that never change are found in one pass over the rows, and not transposed. The others are, eight at a time:
//! a row's cache line is read once for eight columns.

use super::{Column, Contents, MAX_COLUMNS, Shape, Source, Values, max_rows, runs, write};
use crate::damage::Damage;
use crate::types::{Line, TrackId};

/// Columns that are transposed at a time.
const ABREAST: usize = 8;

/// Makes chunks of one track's rows.
#[derive(Debug)]
pub struct Builder {
    track: TrackId,
    shape: Shape,
    mark: u64,
    lines: Vec<Line>,
    times_ns: Vec<u64>,
    words: Vec<u64>,
    /// The words of the row before the first one, if they are known.
    before: Vec<u64>,
}

impl Builder {
    /// For rows of a track.
    ///
    /// # Panics
    /// If they are wider than [`MAX_COLUMNS`].
    #[must_use]
    pub fn new(track: TrackId, shape: Shape) -> Self {
        assert!(shape.columns.len() <= MAX_COLUMNS, "layouts are narrower");
        let (lines, times_ns, words, before) = Default::default();
        Self { track, shape, mark: 0, lines, times_ns, words, before }
    }

    /// Says which row comes before the first one: times of parts that are the same in it are not new. It is for chunks
    /// of tracks with several parts.
    pub fn begin_after(&mut self, words: &[u64]) {
        self.before.clear();
        self.before.extend(words);
    }

    /// Notes in the next chunk what [`super::Head::mark`] gives back.
    pub fn mark(&mut self, mark: u64) {
        self.mark = mark;
    }

    /// Takes a row.
    ///
    /// # Panics
    /// If it has another width than the others, or [`Builder::is_full`].
    pub fn push(&mut self, line: Line, time_ns: u64, words: &[u64]) {
        assert!(words.len() == self.shape.columns.len() && !self.is_full(), "the caller's to see to");
        if self.shape.is_table {
            self.lines.push(line);
        }
        self.times_ns.push(time_ns);
        self.words.extend(words);
    }

    /// Rows that it has.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.times_ns.len()
    }

    /// Whether no further row fits.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.rows() >= max_rows(self.shape.columns.len())
    }

    /// The chunk of all rows, of which the builder has none afterwards; `None` without any.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        if self.times_ns.is_empty() {
            return None;
        }
        let order = self.order();
        let (lines, runs) = self.lines_and_runs(&order);
        let times_ns: Vec<u64> = order.iter().map(|row| self.times_ns[*row as usize]).collect();
        let contents = Contents {
            track: self.track,
            shape: &self.shape,
            span_ns: self.span_ns(),
            mark: self.mark,
            lines: &lines,
            runs: &runs,
            times_ns: &times_ns,
        };
        let bytes = write(&contents, &mut Grid::new(&self.words, self.shape.columns.len(), &order));
        let last = self.words.len() - self.shape.columns.len();
        self.before.clear();
        self.before.extend(&self.words[last..]);
        self.lines.clear();
        self.times_ns.clear();
        self.words.clear();
        Some(bytes.expect("rows that are there cannot be damaged"))
    }

    /// Numbers of the rows, by line and then as they came.
    fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0u32..).take(self.rows()).collect();
        if self.shape.is_table {
            order.sort_by_key(|row| self.lines[*row as usize]);
        }
        order
    }

    /// Lines of the rows in this order, and how many each has.
    fn lines_and_runs(&self, order: &[u32]) -> (Vec<Line>, Vec<u32>) {
        // A track that is no table has no lines here.
        runs(order.iter().filter_map(|row| self.lines.get(*row as usize)).map(|line| (*line, 1)))
    }

    /// Earliest and latest of the rows' times and of the new ones of parts.
    fn span_ns(&self) -> (u64, u64) {
        let width = self.shape.columns.len();
        let mut span = (u64::MAX, 0);
        let mut take = |time_ns: u64| span = (span.0.min(time_ns), span.1.max(time_ns));
        self.times_ns.iter().for_each(|time_ns| take(*time_ns));
        for (number, _) in self.shape.columns.iter().enumerate().filter(|(_, column)| **column == Column::Time) {
            let mut before = self.before.get(number).copied().unwrap_or(0);
            for time_ns in self.words[number..].iter().step_by(width) {
                if *time_ns != before && *time_ns != 0 {
                    take(*time_ns);
                }
                before = *time_ns;
            }
        }
        span
    }
}

/// Rows as a source of columns.
struct Grid<'a> {
    words: &'a [u64],
    width: usize,
    order: &'a [u32],
    /// Columns that are not constant.
    varying: Vec<usize>,
    /// How many of them have been asked for.
    asked: usize,
    /// The values of [`ABREAST`] of them.
    abreast: Vec<u64>,
}

impl<'a> Grid<'a> {
    fn new(words: &'a [u64], width: usize, order: &'a [u32]) -> Self {
        let mut changes = vec![0; width];
        let first = &words[..width];
        for row in words.chunks_exact(width.max(1)) {
            for ((changes, word), first) in changes.iter_mut().zip(row).zip(first) {
                *changes |= word ^ first;
            }
        }
        let varying = (0..width).filter(|number| changes[*number] != 0).collect();
        Self { words, width, order, varying, asked: 0, abreast: vec![0; ABREAST * order.len()] }
    }

    fn transpose(&mut self) {
        let rows = self.order.len();
        let numbers = &self.varying[self.asked..];
        let numbers = &numbers[..numbers.len().min(ABREAST)];
        for (at, row) in self.order.iter().enumerate() {
            let row = &self.words[*row as usize * self.width..][..self.width];
            for (abreast, number) in numbers.iter().enumerate() {
                self.abreast[abreast * rows + at] = row[*number];
            }
        }
    }
}

impl Source for Grid<'_> {
    fn column(&mut self, number: usize) -> Result<Values<'_>, Damage> {
        if self.varying.get(self.asked) != Some(&number) {
            return Ok(Values::Constant(self.words[number]));
        }
        if self.asked.is_multiple_of(ABREAST) {
            self.transpose();
        }
        let at = self.asked % ABREAST * self.order.len();
        self.asked += 1;
        Ok(Values::Each(&self.abreast[at..at + self.order.len()]))
    }
}
