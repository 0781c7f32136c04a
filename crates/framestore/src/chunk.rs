// SPDX-License-Identifier: Apache-2.0
//! A warm chunk: rows of one track, column by column.
//!
//! The store thread makes one of a full head ([`Builder`]) and of pieces of a rollup ([`merge`]); queries, rollups and
//! cold files read it ([`Chunk`]). A chunk says itself what its columns are, and one column costs one column: the
//! *front* says where each is, has the times and what is known without decoding, the *body* has the columns that are
//! not constant. A column that is constant, as most are, takes a bit and its value.
//!
//! Rows of a table are grouped by line, in the order of lines, and within a line in the order of arrival. So are the
//! values of its columns.
//!
//! ```text
//! 0   version (1)            16  earliest time (8)         44  bytes of lines (4)
//! 1   flags (1)              24  latest time (8)           48  bytes of times (4)
//! 2   rows (2)               32  mark (8)                  52  bytes of constants (4)
//! 4   track (4)              40  bucket of a rollup, s,    56  bytes of the front (4)
//! 8   columns (4)                0 of raw rows (4)         60  front's CRC-32C, over all but these 4
//! 12  lines (4)
//! 64  five planes of a bit for each column, in whole bytes each: three of what it is (0 unsigned, 1 signed,
//!     2 counter, 3 float, 4 time of a part, 5 float counter), whether it is in the body, and whether it is constant but not 0
//! ..  directory: of each column in the body where it ends (2, or 4 with flag 4) and its CRC-32C (4)
//! ..  lines, of tables only: their numbers, the rows of each; two columns (`column.rs`)
//! ..  times: a column; with flag 2 how many different ones there are, these, and the number of each row's, two columns
//! ..  constants that are not 0, a list (`list.rs`)
//! ..  statistics of each column in the body (`statistics.rs`), a list; zero padded to a multiple of 8
//! ..  body: columns
//! ```
//! Flags: 1 table, 2 times by number, 4 long ends. Numbers are little-endian. Earliest and latest are of the rows'
//! times and of all times of parts that are new.
//!
//! A part's values count from its first row that has a time (`layout.rs`: 0 while it never was); before, its words are
//! nothing.

mod build;
mod check;
mod head;
mod list;
mod merge;
mod statistics;
mod write;

use std::ops::Range;

pub use build::Builder;
pub use head::{Column, Head, Shape};
pub(crate) use merge::Joined;
pub use merge::merge;
pub use statistics::{Ends, Statistics, increase};
pub(crate) use statistics::{NAN, is_nan, rank, unrank};
pub(crate) use write::{Contents, Source, Values, runs, write};

use crate::column::{self, Input};
use crate::damage::Damage;
use crate::types::Line;

/// Largest number of rows.
pub const MAX_ROWS: usize = 4_096;
/// Largest number of columns.
pub const MAX_COLUMNS: usize = 65_536;
/// Largest number of words: what a builder holds, and somewhat less than what a chunk can take.
const MAX_WORDS: usize = 4 << 20;
/// Bytes that say where everything is.
pub const HEAD_BYTES: usize = 64;

const VERSION: u8 = 1;
const TABLE: u8 = 1;
const NUMBERED: u8 = 2;
const LONG: u8 = 4;
const PLANES: usize = 5;
const TIME: usize = 2;
const VARIES: usize = 3;
const CONSTANT: usize = 4;
/// Where the front's checksum is.
const SUM: usize = 60;

/// Largest number of rows that a chunk of so many columns may have.
#[must_use]
pub fn max_rows(columns: usize) -> usize {
    (MAX_WORDS / (columns + 1)).clamp(1, MAX_ROWS)
}

/// A chunk that is read.
#[derive(Clone, Debug)]
pub struct Chunk<'a> {
    head: Head,
    planes: &'a [u8],
    directory: &'a [u8],
    lines: Vec<Line>,
    /// Rows of each line, nothing where the track is no table.
    runs: Vec<u32>,
    times: &'a [u8],
    constants: &'a [u8],
    statistics: &'a [u8],
    body: &'a [u8],
}

/// Where a column's values are.
enum Place {
    Constant(u64),
    Body { number: usize, range: Range<usize> },
}

impl<'a> Chunk<'a> {
    /// Looks at a whole chunk's structure, not at its data.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Damage> {
        let front_bytes = Head::parse(bytes)?.front_bytes;
        let (front, body) = bytes.split_at_checked(front_bytes).ok_or(Damage::Wrong("a chunk's end"))?;
        let chunk = Self::parse_front(front)?;
        if chunk.body_bytes() != body.len() {
            return Err(Damage::Wrong("a chunk's end"));
        }
        Ok(Self { body, ..chunk })
    }

    /// Looks at the structure of a front. What is in the body is not to be had from it.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn parse_front(front: &'a [u8]) -> Result<Self, Damage> {
        let head = Head::parse(front)?;
        if front.len() != head.front_bytes {
            return Err(Damage::Wrong("a chunk's end"));
        }
        let mut input = Input(&front[HEAD_BYTES..]);
        let planes = input.take(PLANES * head.columns.div_ceil(8))?;
        let mut chunk = Self {
            head,
            planes,
            directory: &[],
            lines: Vec::new(),
            runs: Vec::new(),
            times: &[],
            constants: &[],
            statistics: &[],
            body: &[],
        };
        chunk.directory = input.take(chunk.rank(VARIES, head.columns) * chunk.entry_bytes())?;
        let lines = input.take(head.lines_bytes)?;
        chunk.times = input.take(head.times_bytes)?;
        chunk.constants = input.take(head.constants_bytes)?;
        chunk.statistics = input.0;
        if head.is_table {
            chunk.read_lines(lines)?;
        }
        Ok(chunk)
    }

    fn read_lines(&mut self, bytes: &[u8]) -> Result<(), Damage> {
        let mut numbers = Vec::new();
        let rest = column::decode(bytes, self.head.lines, &[], &mut numbers)?;
        let narrow = |number: &u64| u32::try_from(*number);
        let lines: Result<Vec<Line>, _> = numbers.iter().map(|number| narrow(number).map(Line)).collect();
        self.lines = lines.map_err(|_| Damage::Wrong("a chunk's lines"))?;
        numbers.clear();
        column::decode(rest, self.head.lines, &[], &mut numbers)?;
        let runs: Result<Vec<u32>, _> = numbers.iter().map(narrow).collect();
        self.runs = runs.map_err(|_| Damage::Wrong("a line's rows"))?;
        let rows = numbers.iter().fold(0, |all: u64, rows| all.saturating_add(*rows));
        if rows != self.head.rows as u64 || numbers.contains(&0) || !self.lines.is_sorted_by(|a, b| a < b) {
            return Err(Damage::Wrong("a chunk's lines"));
        }
        Ok(())
    }

    /// What its first bytes say.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// What its rows are.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn shape(&self) -> Result<Shape, Damage> {
        let columns: Result<_, Damage> = (0..self.head.columns).map(|number| self.what(number)).collect();
        Ok(Shape { columns: columns?, is_table: self.head.is_table, bucket_s: self.head.bucket_s })
    }

    /// What a column is.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn what(&self, number: usize) -> Result<Column, Damage> {
        if number >= self.head.columns {
            return Err(Damage::Wrong("a column's number"));
        }
        Column::of_code((0..=TIME).fold(0, |code, plane| code | usize::from(self.bit(plane, number)) << plane))
    }

    /// Lines, ascending, and how many rows each has; the only one where the track is no table.
    pub fn lines(&self) -> impl Iterator<Item = (Line, usize)> {
        let only = (!self.head.is_table).then_some((Line::ONLY, self.head.rows));
        only.into_iter().chain(self.lines.iter().copied().zip(self.runs.iter().map(|rows| *rows as usize)))
    }

    /// Appends the times of the rows, UTC ns.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn times(&self, times_ns: &mut Vec<u64>) -> Result<(), Damage> {
        let (rows, start) = (self.head.rows, times_ns.len());
        if self.head.flags & NUMBERED == 0 {
            return column::decode(self.times, rows, &self.runs, times_ns).map(|_| ());
        }
        let mut input = Input(self.times);
        let count = usize::try_from(input.unsigned()?).ok().filter(|count| *count <= rows);
        let mut different = Vec::new();
        let rest = column::decode(input.0, count.ok_or(Damage::Wrong("a chunk's times"))?, &[], &mut different)?;
        column::decode(rest, rows, &self.runs, times_ns)?;
        for time_ns in &mut times_ns[start..] {
            let number = usize::try_from(*time_ns).unwrap_or(usize::MAX);
            *time_ns = *different.get(number).ok_or(Damage::Wrong("a chunk's times"))?;
        }
        Ok(())
    }

    /// Appends a column's values.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn column(&self, number: usize, values: &mut Vec<u64>) -> Result<(), Damage> {
        self.column_in(number, 0, self.body, false, values)
    }

    /// The same from a piece of the body that begins at its byte `start`, and checked against the column's own
    /// checksum.
    pub(crate) fn checked_column(
        &self,
        number: usize,
        start: usize,
        piece: &[u8],
        values: &mut Vec<u64>,
    ) -> Result<(), Damage> {
        self.column_in(number, start, piece, true, values)
    }

    fn column_in(
        &self,
        number: usize,
        start: usize,
        piece: &[u8],
        is_checked: bool,
        values: &mut Vec<u64>,
    ) -> Result<(), Damage> {
        match self.place(number)? {
            Place::Constant(value) => {
                values.resize(values.len() + self.head.rows, value);
                Ok(())
            }
            Place::Body { number, range } => {
                let piece = range.start.checked_sub(start).and_then(|at| piece.get(at..)?.get(..range.len()));
                let bytes = piece.ok_or(Damage::Wrong("where a column is"))?;
                if is_checked && crc32c::crc32c(bytes) != self.entry(number).1 {
                    return Err(Damage::Checksum);
                }
                column::decode(bytes, self.head.rows, &self.runs, values).map(|_| ())
            }
        }
    }

    /// The value of a column that has one only.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn constant(&self, number: usize) -> Result<Option<u64>, Damage> {
        Ok(match self.place(number)? {
            Place::Constant(value) => Some(value),
            Place::Body { .. } => None,
        })
    }

    /// What is known of a column without decoding it; nothing of one that never had a value.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn statistics(&self, number: usize) -> Result<Option<Statistics>, Damage> {
        match self.place(number)? {
            Place::Constant(value) => {
                let time = (0..=number).rev().find(|number| self.what(*number) == Ok(Column::Time));
                let never = time.is_some_and(|time| !self.bit(VARIES, time) && !self.bit(CONSTANT, time));
                let kind = self.what(number)?.kind();
                Ok((!never).then(|| Statistics::constant(kind, value, self.head.is_table)))
            }
            Place::Body { number: in_body, .. } => {
                let count = self.directory.len() / self.entry_bytes();
                let mut input = list::seek(self.statistics, count, in_body, statistics::skip)?;
                statistics::take(self.what(number)?.kind(), &mut input)
            }
        }
    }

    /// Which bytes of the body some columns are in.
    ///
    /// # Errors
    /// [`Damage`].
    pub(crate) fn range(&self, columns: Range<usize>) -> Result<Range<usize>, Damage> {
        if columns.end > self.head.columns || columns.start > columns.end {
            return Err(Damage::Wrong("a column's number"));
        }
        let range = self.end_before(self.rank(VARIES, columns.start))..self.end_before(self.rank(VARIES, columns.end));
        Some(range).filter(|range| range.start <= range.end).ok_or(Damage::Wrong("where a column is"))
    }

    fn place(&self, number: usize) -> Result<Place, Damage> {
        let what = self.what(number)?;
        if self.bit(VARIES, number) {
            let number = self.rank(VARIES, number);
            let range = self.end_before(number)..self.end_before(number + 1);
            return Ok(Place::Body { number, range });
        }
        if !self.bit(CONSTANT, number) {
            return Ok(Place::Constant(0));
        }
        let (count, number) = (self.rank(CONSTANT, self.head.columns), self.rank(CONSTANT, number));
        let mut input = list::seek(self.constants, count, number, |input| input.unsigned().map(|_| ()))?;
        statistics::take_word(what.kind(), &mut input).map(Place::Constant)
    }

    fn plane(&self, plane: usize) -> &[u8] {
        let bytes = self.planes.len() / PLANES;
        &self.planes[plane * bytes..][..bytes]
    }

    fn bit(&self, plane: usize, column: usize) -> bool {
        self.plane(plane)[column / 8] >> (column % 8) & 1 == 1
    }

    /// How many columns before this one have their bit in a plane.
    fn rank(&self, plane: usize, column: usize) -> usize {
        let (words, rest) = self.plane(plane)[..column.div_ceil(8)].as_chunks::<8>();
        let ones = |bytes: [u8; 8], columns: usize| {
            let mask = if columns >= 64 { u64::MAX } else { (1 << columns) - 1 };
            (u64::from_le_bytes(bytes) & mask).count_ones() as usize
        };
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let whole = words.iter().enumerate().map(|(at, word)| ones(*word, column - at * 64));
        whole.sum::<usize>() + if rest.is_empty() { 0 } else { ones(last, column - words.len() * 64) }
    }

    fn entry_bytes(&self) -> usize {
        if self.head.flags & LONG > 0 { 8 } else { 6 }
    }

    /// Where a column of the body ends, and its checksum.
    fn entry(&self, number: usize) -> (usize, u32) {
        let entry = &self.directory[number * self.entry_bytes()..][..self.entry_bytes()];
        let (end, sum) = entry.split_at(self.entry_bytes() - 4);
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number: u32, byte| number << 8 | u32::from(*byte));
        (number(end) as usize, number(sum))
    }

    fn end_before(&self, number: usize) -> usize {
        if number == 0 { 0 } else { self.entry(number - 1).0 }
    }

    fn body_bytes(&self) -> usize {
        self.end_before(self.directory.len() / self.entry_bytes())
    }
}

/// Whether a front's bytes are what was written.
///
/// # Errors
/// [`Damage`].
pub(crate) fn check_front(front: &[u8]) -> Result<(), Damage> {
    let (sum, rest) = front.get(SUM..).and_then(<[u8]>::split_first_chunk).ok_or(Damage::Wrong("a chunk's end"))?;
    let own = crc32c::crc32c_append(crc32c::crc32c(&front[..SUM]), rest);
    if own == u32::from_le_bytes(*sum) { Ok(()) } else { Err(Damage::Checksum) }
}

#[cfg(test)]
mod tests;
