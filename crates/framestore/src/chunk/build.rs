// SPDX-License-Identifier: Apache-2.0
//! Rows to a chunk. They are kept as they come and transposed at the end.
//!
//! Taking a row is one copy, and one comparison with the first row: columns that never change need no transposing. The
//! others are transposed eight rows at a time, so that rows are read once, in order, and columns written by cache
//! lines.

use super::{Column, Contents, MAX_COLUMNS, Shape, Source, Values, max_rows, runs, write};
use crate::damage::Damage;
use crate::types::{LATE_NS, Line, TrackId};

/// Rows that are transposed at a time.
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
    /// Of each column the bits that are not the same in all rows.
    changes: Vec<u64>,
    /// The words of the row before the first one, if they are known.
    before: Vec<u64>,
    /// When the chunk before begins.
    begun_ns: u64,
    /// Room for columns.
    columns: Vec<u64>,
}

impl Builder {
    /// For rows of a track.
    ///
    /// # Panics
    /// If they are wider than [`MAX_COLUMNS`].
    #[must_use]
    pub fn new(track: TrackId, shape: Shape) -> Self {
        let (lines, times_ns, words, changes, before, columns) = Default::default();
        let nothing = Shape { columns: [].into(), is_table: false, bucket_s: 0 };
        let mut builder =
            Self { track, shape: nothing, mark: 0, lines, times_ns, words, changes, before, begun_ns: 0, columns };
        builder.restart(track, shape);
        builder
    }

    /// The same in the memory of an earlier builder, whose rows are forgotten: new memory for each track would cost as
    /// much as making its chunk.
    ///
    /// # Panics
    /// As [`Builder::new`].
    pub fn restart(&mut self, track: TrackId, shape: Shape) {
        assert!(shape.columns.len() <= MAX_COLUMNS, "layouts are narrower");
        self.lines.clear();
        self.times_ns.clear();
        self.words.clear();
        self.before.clear();
        self.changes.clear();
        self.changes.resize(shape.columns.len(), 0);
        (self.track, self.shape, self.mark, self.begun_ns) = (track, shape, 0, 0);
    }

    /// Says which row comes before the first one: times of parts that are the same in it are not new. It is for chunks
    /// of tracks with several parts.
    pub fn begin_after(&mut self, words: &[u64]) {
        self.before.clear();
        self.before.extend(words);
    }

    /// Says when the chunk begins whose rows come before the first one. Chunks are read by their beginnings, so this one
    /// begins later, whatever times its parts have: what had stood before a restart may be told with another time after
    /// it, since clocks are compared again. Only where a clock was set back it begins when it does.
    pub fn begin_behind(&mut self, time_ns: u64) {
        self.begun_ns = time_ns;
    }

    /// Words of the last row of the chunks that it has made, or of the one that was said to come before.
    #[must_use]
    pub fn last(&self) -> &[u64] {
        &self.before
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
        for ((changes, word), first) in self.changes.iter_mut().zip(words).zip(&self.words) {
            *changes |= word ^ first;
        }
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
        let span_ns = self.span_ns();
        let contents = Contents {
            track: self.track,
            shape: &self.shape,
            span_ns,
            mark: self.mark,
            lines: &lines,
            runs: &runs,
            times_ns: &times_ns,
        };
        let changing = |column: &usize| self.changes[*column] != 0;
        let varying: Vec<usize> = (0..self.changes.len()).filter(changing).collect();
        transpose(&self.words, self.shape.columns.len(), &order, &varying, &mut self.columns);
        let rows = order.len();
        let mut grid = Grid { first: &self.words, varying, asked: 0, columns: &self.columns, rows };
        let bytes = write(&contents, &mut grid);
        self.begun_ns = span_ns.0;
        self.begin_anew();
        Some(bytes.expect("rows that are there cannot be damaged"))
    }

    /// Forgets the rows but for the words of the last one.
    fn begin_anew(&mut self) {
        self.before.clear();
        self.before.extend(&self.words[self.words.len() - self.shape.columns.len()..]);
        self.lines.clear();
        self.times_ns.clear();
        self.words.clear();
        self.changes.fill(0);
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

    /// Earliest and latest of the rows' times and of the new ones of parts. Where nobody knows the row before, what the
    /// first one has of long ago is not new, either.
    fn span_ns(&self) -> (u64, u64) {
        let width = self.shape.columns.len();
        let of_rows = self.times_ns.iter().fold((u64::MAX, 0), |(from, to), time| (from.min(*time), to.max(*time)));
        let floor_ns = if of_rows.0 > self.begun_ns { self.begun_ns + 1 } else { 0 };
        let mut span = of_rows;
        for (number, _) in self.shape.columns.iter().enumerate().filter(|(_, column)| **column == Column::Time) {
            let first_ns = self.words[number];
            let is_old = first_ns < self.times_ns[0].saturating_sub(LATE_NS);
            let mut before = self.before.get(number).copied().unwrap_or(if is_old { first_ns } else { 0 });
            for time_ns in self.words[number..].iter().step_by(width) {
                if *time_ns != before && *time_ns != 0 {
                    span = (span.0.min((*time_ns).max(floor_ns)), span.1.max(*time_ns));
                }
                before = *time_ns;
            }
        }
        span
    }
}

/// Some columns of the rows, in an order of these, one after the other.
fn transpose(words: &[u64], width: usize, order: &[u32], columns: &[usize], out: &mut Vec<u64>) {
    let rows = order.len();
    out.resize(rows * columns.len(), 0);
    for (at, abreast) in order.chunks(ABREAST).enumerate() {
        let mut row = [&[][..]; ABREAST];
        for (row, number) in row.iter_mut().zip(abreast) {
            *row = &words[*number as usize * width..][..width];
        }
        for (number, column) in columns.iter().enumerate() {
            let to = &mut out[number * rows + at * ABREAST..][..abreast.len()];
            to.iter_mut().zip(row).for_each(|(to, row)| *to = row[*column]);
        }
    }
}

/// Rows as a source of columns.
struct Grid<'a> {
    first: &'a [u64],
    /// Columns that are not constant.
    varying: Vec<usize>,
    /// How many of them have been asked for.
    asked: usize,
    /// Their values.
    columns: &'a [u64],
    rows: usize,
}

impl Source for Grid<'_> {
    fn column(&mut self, number: usize) -> Result<Values<'_>, Damage> {
        if self.varying.get(self.asked) != Some(&number) {
            return Ok(Values::Constant(self.first[number]));
        }
        self.asked += 1;
        Ok(Values::Each(&self.columns[(self.asked - 1) * self.rows..][..self.rows]))
    }
}
