// SPDX-License-Identifier: Apache-2.0
//! How the columns of a chunk come back from a cold file.
//!
//! ```text
//! 0       all of the body follows
//! 1       the least row group (LEB128, as all), number of strips, these, and the bytes of columns that no strip has
//! strip   first row, number of rows; number of runs and the rows of each: without anything new, with, without, ..;
//!         number of pieces, these
//! piece   column, row group less the least, first row there, what it is (1), and where the strip begins without
//!         anything new the word that it has until then
//! ```
//! A strip is a part of rows, or the rows of a line. In rows that have something new a column has the next value of its
//! piece, in others the value of the row before.

use std::collections::HashMap;
use std::sync::Arc;

use crate::chunk::{Chunk, Contents, MAX_COLUMNS, MAX_ROWS, Source, Values, runs, write};
use crate::cold::{Group, Spot};
use crate::damage::{Damage, StoreError};
use crate::framing::bytes::{Input, put_unsigned};

const VERBATIM: u8 = 0;
const STRIPS: u8 = 1;
/// Instead of the decimal of a spot: times.
pub(super) const TIME: u8 = u8::MAX;

/// Where what a chunk is made of comes from.
pub(super) trait Origin {
    fn group(&self, number: u32) -> Result<Arc<Group>, StoreError>;

    /// Of what is wrong with the recipe.
    fn damaged(&self, damage: Damage) -> StoreError;
}

/// Rows of a chunk that have their samples side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Strip {
    pub(super) first: usize,
    pub(super) rows: usize,
    /// Rows without anything new, and with, by turns.
    pub(super) runs: Vec<usize>,
    pub(super) pieces: Vec<Piece>,
}

/// A column of a strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) column: usize,
    pub(super) spot: Spot,
    /// Of the rows before the first that has something new.
    pub(super) lead: u64,
}

impl Strip {
    /// Appends the values of a piece.
    pub(super) fn restore(&self, piece: &Piece, group: &Group, values: &mut Vec<u64>) -> Result<(), Damage> {
        let count = self.runs.iter().skip(1).step_by(2).sum();
        let words;
        let mut new = if piece.spot.decimal == TIME {
            group.times(piece.spot.first, count)?
        } else {
            words = group.words(piece.spot.first, count, piece.spot.decimal)?;
            &words[..]
        };
        let mut last = piece.lead;
        for (at, rows) in self.runs.iter().enumerate() {
            if at % 2 == 0 {
                values.extend(std::iter::repeat_n(last, *rows));
            } else {
                let (some, rest) = new.split_at_checked(*rows).ok_or(Damage::Wrong("the rows of a strip"))?;
                values.extend(some);
                last = some.last().copied().unwrap_or(last);
                new = rest;
            }
        }
        Ok(())
    }
}

/// What is said of a chunk beside its front.
#[derive(Debug)]
pub(super) struct Recipe<'a> {
    strips: Vec<Strip>,
    /// Of columns of strips the strips, and the number of the piece in each.
    places: HashMap<usize, Vec<(usize, usize)>>,
    /// Columns of no strip, one behind the other; without strips the body.
    bytes: &'a [u8],
    is_verbatim: bool,
}

pub(super) fn put_verbatim(body: &[u8], out: &mut Vec<u8>) {
    out.push(VERBATIM);
    out.extend(body);
}

/// `bytes`: columns that no strip has.
pub(super) fn put(strips: &[Strip], bytes: &[u8], out: &mut Vec<u8>) {
    let groups = strips.iter().flat_map(|strip| &strip.pieces).map(|piece| piece.spot.group);
    let least = groups.min().unwrap_or(0);
    out.push(STRIPS);
    put_unsigned(least.into(), out);
    put_unsigned(strips.len() as u64, out);
    for Strip { first, rows, runs, pieces } in strips {
        for number in [*first, *rows, runs.len()].iter().chain(runs).chain([&pieces.len()]) {
            put_unsigned(*number as u64, out);
        }
        for Piece { column, spot, lead } in pieces {
            put_unsigned(*column as u64, out);
            put_unsigned((spot.group - least).into(), out);
            put_unsigned(spot.first.into(), out);
            out.push(spot.decimal);
            if runs[0] > 0 {
                put_unsigned(*lead, out);
            }
        }
    }
    out.extend(bytes);
}

impl<'a> Recipe<'a> {
    pub(super) fn parse(bytes: &'a [u8], chunk: &Chunk) -> Result<Self, Damage> {
        let mut input = Input(bytes);
        match input.byte()? {
            VERBATIM => {
                let (strips, places) = Default::default();
                return Ok(Self { strips, places, bytes: input.0, is_verbatim: true });
            }
            STRIPS => {}
            _ => return Err(Damage::Wrong("a recipe")),
        }
        let least = input.count(u32::MAX as usize)?;
        let strips = input.count(MAX_ROWS.max(MAX_COLUMNS))?;
        let strips: Result<Vec<_>, Damage> =
            (0..strips).map(|_| take_strip(&mut input, least, chunk.head().rows)).collect();
        let (strips, mut places) = (strips?, HashMap::<usize, Vec<_>>::new());
        for (strip, Strip { pieces, .. }) in strips.iter().enumerate() {
            for (at, piece) in pieces.iter().enumerate() {
                places.entry(piece.column).or_default().push((strip, at));
            }
        }
        Ok(Self { strips, places, bytes: input.0, is_verbatim: false })
    }

    /// Appends the values of a column.
    pub(super) fn column(
        &self,
        chunk: &Chunk,
        number: usize,
        values: &mut Vec<u64>,
        origin: &dyn Origin,
    ) -> Result<(), StoreError> {
        let (begin, rows) = (values.len(), chunk.head().rows);
        if let Some(value) = chunk.constant(number).map_err(|damage| origin.damaged(damage))? {
            values.resize(begin + rows, value);
            return Ok(());
        }
        let Some(places) = self.places.get(&number) else {
            return self.bytes_of(chunk, number, values).map_err(|damage| origin.damaged(damage));
        };
        for (strip, at) in places {
            let strip = &self.strips[*strip];
            let piece = &strip.pieces[*at];
            if strip.first != values.len() - begin {
                return Err(origin.damaged(Damage::Wrong("the rows of a strip")));
            }
            strip.restore(piece, &*origin.group(piece.spot.group)?, values).map_err(|damage| origin.damaged(damage))?;
        }
        if values.len() - begin == rows { Ok(()) } else { Err(origin.damaged(Damage::Wrong("the rows of a strip"))) }
    }

    /// The values of a column that stands here as it was.
    fn bytes_of(&self, chunk: &Chunk, number: usize, values: &mut Vec<u64>) -> Result<(), Damage> {
        let range = chunk.range(number..number + 1)?;
        let mut at = range.start;
        if !self.is_verbatim {
            at = 0;
            for column in 0..number {
                at += if self.places.contains_key(&column) { 0 } else { chunk.range(column..column + 1)?.len() };
            }
        }
        let bytes = self.bytes.get(at..at + range.len()).ok_or(Damage::Wrong("where a column is"))?;
        chunk.checked_column(number, range.start, bytes, values)
    }

    /// Appends the chunk.
    pub(super) fn whole(
        &self,
        front: &[u8],
        chunk: &Chunk,
        out: &mut Vec<u8>,
        origin: &dyn Origin,
    ) -> Result<(), StoreError> {
        if self.is_verbatim {
            out.extend(front);
            out.extend(self.bytes);
            return Ok(());
        }
        let head = chunk.head();
        let shape = chunk.shape().map_err(|damage| origin.damaged(damage))?;
        let (lines, runs) =
            runs(chunk.lines().filter(|_| head.is_table).map(|(line, rows)| (line, u32::try_from(rows).unwrap_or(0))));
        let mut times_ns = Vec::new();
        chunk.times(&mut times_ns).map_err(|damage| origin.damaged(damage))?;
        let contents = Contents {
            track: head.track,
            shape: &shape,
            span_ns: (head.from_ns, head.to_ns),
            mark: head.mark,
            lines: &lines,
            runs: &runs,
            times_ns: &times_ns,
        };
        let mut columns = Columns { recipe: self, chunk, origin, values: Vec::new(), failed: None };
        let written = write(&contents, &mut columns);
        out.extend(written.map_err(|damage| columns.failed.take().unwrap_or_else(|| origin.damaged(damage)))?);
        Ok(())
    }
}

fn take_strip(input: &mut Input, least: usize, all: usize) -> Result<Strip, Damage> {
    let wrong = Damage::Wrong("the rows of a strip");
    let (first, rows) = (input.count(all)?, input.count(all)?);
    let runs = input.count(2 * all + 2)?;
    let runs: Vec<usize> = (0..runs).map(|_| input.count(all)).collect::<Result<_, _>>()?;
    if runs.iter().sum::<usize>() != rows || first + rows > all {
        return Err(wrong);
    }
    let pieces = input.count(MAX_COLUMNS)?;
    let mut take_piece = || -> Result<Piece, Damage> {
        let column = input.count(MAX_COLUMNS)?;
        let half = |number: usize| u32::try_from(number).map_err(|_| wrong);
        let group = half(least + input.count(u32::MAX as usize)?)?;
        let (first, decimal) = (half(input.count(u32::MAX as usize)?)?, input.byte()?);
        let lead = if runs.first().is_some_and(|rows| *rows > 0) { input.unsigned()? } else { 0 };
        Ok(Piece { column, spot: Spot { group, first, decimal }, lead })
    };
    let pieces: Result<_, Damage> = (0..pieces).map(|_| take_piece()).collect();
    Ok(Strip { first, rows, pieces: pieces?, runs })
}

/// Columns that come back, as the source of a chunk.
struct Columns<'a> {
    recipe: &'a Recipe<'a>,
    chunk: &'a Chunk<'a>,
    origin: &'a dyn Origin,
    values: Vec<u64>,
    failed: Option<StoreError>,
}

impl Source for Columns<'_> {
    fn column(&mut self, number: usize) -> Result<Values<'_>, Damage> {
        if let Some(value) = self.chunk.constant(number)? {
            return Ok(Values::Constant(value));
        }
        self.values.clear();
        if let Err(error) = self.recipe.column(self.chunk, number, &mut self.values, self.origin) {
            self.failed = Some(error);
            return Err(Damage::Wrong("a column"));
        }
        Ok(Values::Each(&self.values))
    }
}

/// Columns of the body.
pub(super) fn body(chunk: &Chunk) -> Result<Vec<usize>, Damage> {
    let all = 0..chunk.head().columns;
    all.filter_map(|column| chunk.constant(column).map(|value| value.is_none().then_some(column)).transpose()).collect()
}
