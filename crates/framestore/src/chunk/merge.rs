// SPDX-License-Identifier: Apache-2.0
//! Neighbouring chunks as one, column by column.

use super::{Chunk, Contents, Source, Values, max_rows, runs, write};
use crate::damage::Damage;
use crate::types::Line;

/// One chunk of neighbouring ones of a track, given in the order of arrival.
///
/// # Errors
/// [`Damage`]; also if they are not of one track and shape, or have more rows together than fit in one ([`max_rows`]).
pub fn merge(chunks: &[Chunk]) -> Result<Vec<u8>, Damage> {
    let mut joined = Joined::new(chunks)?;
    let head = chunks[0].head();
    if joined.rows > max_rows(head.columns) {
        return Err(Damage::Wrong("the number of rows to merge"));
    }
    let heads = || chunks.iter().map(Chunk::head);
    let from_ns = heads().fold(u64::MAX, |least, head| least.min(head.from_ns));
    let to_ns = heads().fold(0, |most, head| most.max(head.to_ns));
    let mark = heads().fold(0, |most, head| most.max(head.mark));
    let (times_ns, lines, runs) = (joined.times()?.to_vec(), joined.lines.clone(), joined.runs.clone());
    let shape = chunks[0].shape()?;
    let contents = Contents {
        track: head.track,
        shape: &shape,
        span_ns: (from_ns, to_ns),
        mark,
        lines: &lines,
        runs: &runs,
        times_ns: &times_ns,
    };
    write(&contents, &mut joined)
}

/// The rows of several chunks of a track as if they were one chunk of any length.
pub(crate) struct Joined<'a> {
    chunks: &'a [Chunk<'a>],
    pub(crate) rows: usize,
    /// Of tables.
    pub(crate) lines: Vec<Line>,
    /// Rows of each of them.
    pub(crate) runs: Vec<u32>,
    /// First row and rows of each line in each chunk, by line and then as they came.
    pieces: Vec<(usize, usize)>,
    /// Values of a column, chunk by chunk.
    as_stored: Vec<u64>,
    /// The same, line by line.
    by_line: Vec<u64>,
    /// Which column that is.
    held: Option<usize>,
}

impl<'a> Joined<'a> {
    /// # Errors
    /// [`Damage`] if they are none, or not of one track and shape.
    pub(crate) fn new(chunks: &'a [Chunk<'a>]) -> Result<Self, Damage> {
        let Some((first, others)) = chunks.split_first() else { return Err(Damage::Wrong("nothing")) };
        if others.iter().any(|other| !other.is_like(first)) {
            return Err(Damage::Wrong("what a neighbour has rows of"));
        }
        let (mut pieces, mut rows) = (Vec::new(), 0);
        for chunk in chunks {
            for (line, count) in chunk.lines() {
                pieces.push((line, rows, count));
                rows += count;
            }
        }
        pieces.sort_by_key(|(line, ..)| *line);
        let counts = pieces.iter().filter(|_| first.head().is_table);
        // A chunk has MAX_ROWS at most.
        let (lines, runs) = runs(counts.map(|(line, _, count)| (*line, u32::try_from(*count).unwrap_or(0))));
        let pieces = pieces.into_iter().map(|(_, start, count)| (start, count)).collect();
        Ok(Self { chunks, rows, lines, runs, pieces, as_stored: Vec::new(), by_line: Vec::new(), held: None })
    }

    /// Rows of each line, of the only one where the track is no table.
    pub(crate) fn rows_by_line(&self) -> Vec<usize> {
        if self.runs.is_empty() { vec![self.rows] } else { self.runs.iter().map(|rows| *rows as usize).collect() }
    }

    /// The rows' times.
    pub(crate) fn times(&mut self) -> Result<&[u64], Damage> {
        self.read(|chunk, times_ns| chunk.times(times_ns))?;
        Ok(self.in_order())
    }

    /// A column's values.
    pub(crate) fn values(&mut self, number: usize) -> Result<&[u64], Damage> {
        if self.held != Some(number) {
            self.read(|chunk, values| chunk.column(number, values))?;
            self.held = Some(number);
        }
        Ok(self.in_order())
    }

    /// The value of a column that has the same one everywhere.
    pub(crate) fn constant(&self, number: usize) -> Result<Option<u64>, Damage> {
        let constant = self.chunks[0].constant(number)?;
        for chunk in &self.chunks[1..] {
            if constant.is_none() || chunk.constant(number)? != constant {
                return Ok(None);
            }
        }
        Ok(constant)
    }

    fn read(&mut self, read: impl Fn(&Chunk, &mut Vec<u64>) -> Result<(), Damage>) -> Result<(), Damage> {
        self.held = None;
        self.as_stored.clear();
        for chunk in self.chunks {
            read(chunk, &mut self.as_stored)?;
        }
        self.by_line.clear();
        for (start, count) in self.pieces.iter().filter(|_| !self.runs.is_empty()) {
            self.by_line.extend(&self.as_stored[*start..start + count]);
        }
        Ok(())
    }

    fn in_order(&self) -> &[u64] {
        if self.runs.is_empty() { &self.as_stored } else { &self.by_line }
    }
}

impl Source for Joined<'_> {
    fn column(&mut self, number: usize) -> Result<Values<'_>, Damage> {
        match self.constant(number)? {
            Some(value) => Ok(Values::Constant(value)),
            None => self.values(number).map(Values::Each),
        }
    }
}

impl Chunk<'_> {
    /// Whether it has rows of the same track and shape.
    pub(crate) fn is_like(&self, other: &Chunk) -> bool {
        let of = |chunk: &Chunk| {
            let head = chunk.head;
            (head.track, head.columns, head.is_table, head.bucket_s)
        };
        of(self) == of(other) && (0..=super::TIME).all(|plane| self.plane(plane) == other.plane(plane))
    }
}
