// SPDX-License-Identifier: Apache-2.0
//! What is wanted of a track, and who takes it: sample by sample, bucket by bucket, or runs of raw rows at once.

use std::ops::ControlFlow;

use super::decoded::Column;
use crate::types::{Line, TrackId};

/// What is wanted of a track: words of one part, of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Which track.
    pub track: TrackId,
    /// Which line; [`Line::ONLY`] where it is no table.
    pub line: Line,
    /// Number of the part in the layout.
    pub part: u32,
    /// The part's time ([`crate::layout::Placed::time`]).
    pub time: Option<usize>,
    /// Which words of the row, in the order in which they are wanted.
    pub words: Vec<usize>,
}

/// A sample, or all samples of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// When it was acquired, the last one of a bucket, UTC ns.
    pub time_ns: u64,
    /// Its words that are asked for, the last ones of a bucket.
    pub words: &'a [u64],
    /// Of the samples of a bucket.
    pub bucket: Option<Bucket<'a>>,
}

/// What a bucket says of words beside the last ones.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'a> {
    /// The least; of counters the last.
    pub least: &'a [u64],
    /// The largest; of counters the last.
    pub largest: &'a [u64],
    /// Of counters what they went up by since the last sample before the bucket, as far as that is known; else 0.
    pub increase: &'a [u64],
    /// What `increase` counts from: of counters that value, or 0 where integers began again; else the last one.
    pub before: &'a [u64],
    /// Of counters the least and the greatest rate from one sample to the next, per second, as far as they are known.
    pub rates: &'a [Option<(f64, f64)>],
}

/// Raw rows of a line that follow one another, each later than the one before.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// When they were acquired, UTC ns; at least one.
    pub times_ns: &'a [u64],
    /// No two that follow one another are further apart.
    pub max_distance_ns: u64,
    pub(super) words: &'a [Column],
    /// Number of the first in its piece.
    pub(super) first: usize,
}

impl Run<'_> {
    /// The first `count` of them, or all.
    #[must_use]
    pub fn limited(&self, count: usize) -> Self {
        Self { times_ns: &self.times_ns[..count.clamp(1, self.times_ns.len())], ..*self }
    }

    /// How many words are asked for.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// The values of one of the words that are asked for, row by row.
    #[must_use]
    pub fn word(&self, number: usize) -> &[u64] {
        self.words[number].of(self.first..self.first + self.times_ns.len())
    }
}

/// What words are the greater by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// As u64.
    Unsigned,
    /// As i64.
    Signed,
    /// As f64; a NaN is neither less nor greater.
    Float,
}

impl Order {
    pub(super) fn is_less(self, one: u64, other: u64) -> bool {
        match self {
            Self::Unsigned => one < other,
            Self::Signed => one.cast_signed() < other.cast_signed(),
            Self::Float => f64::from_bits(one) < f64::from_bits(other),
        }
    }
}

/// Which samples are wanted where those next to the lines of a grid of times are enough.
#[derive(Clone, Copy, Debug)]
pub struct Thinner {
    /// The word that is their value.
    pub word: usize,
    /// The word that says when they were acquired, if that is not the row's time.
    pub time: Option<usize>,
    /// By what a value is less than the one before.
    pub order: Order,
    /// From one line of the grid to the next, ns; one is at 0 UTC.
    pub grid_ns: u64,
}

/// A value that is less than the one before.
#[derive(Clone, Copy, Debug)]
pub struct Fall {
    /// Number of the sample before.
    pub number: u32,
    /// Its word.
    pub before: u64,
    /// The word that is less.
    pub after: u64,
}

/// Of rows that follow one another, each later than the one before, samples next to the lines of a grid. A sample
/// is a row's that was acquired later than all of the rows before. With the last one up to a line (which includes that
/// time) goes the next one; the first and the last of all are there, too.
#[derive(Clone, Copy, Debug)]
pub struct Thinned<'a> {
    /// When the first row was, and the last one, UTC ns.
    pub rows_ns: (u64, u64),
    /// No two rows that follow one another are further apart.
    pub max_distance_ns: u64,
    /// No row is longer after the newest sample that it has.
    pub max_age_ns: u64,
    /// Which ones of all samples of these rows they are, from 0.
    pub numbers: &'a [u32],
    /// When they were acquired, UTC ns, rising.
    pub acquired_ns: &'a [u64],
    /// Their values.
    pub words: &'a [u64],
    /// Wherever the value was less than that of the sample before; `None`: in many places.
    pub falls: Option<&'a [Fall]>,
}

/// Whoever reads samples.
pub trait Visit {
    /// Takes one.
    fn sample(&mut self, sample: &Sample<'_>) -> ControlFlow<()>;

    /// If samples next to the lines of a grid are enough, which ones.
    fn thinner(&self) -> Option<Thinner> {
        None
    }

    /// Takes such samples of some rows, of which the first ones may be earlier than what is read, and the last ones later:
    /// these come again where somebody reads on. `false`: the rows are to come instead.
    fn thinned(&mut self, _samples: &Thinned<'_>) -> bool {
        false
    }

    /// Takes rows at once, all that it wants of them; `None`: they are to come one by one.
    fn run(&mut self, _run: &Run<'_>) -> Option<ControlFlow<()>> {
        None
    }
}

impl<V: FnMut(&Sample<'_>) -> ControlFlow<()>> Visit for V {
    fn sample(&mut self, sample: &Sample<'_>) -> ControlFlow<()> {
        self(sample)
    }
}
