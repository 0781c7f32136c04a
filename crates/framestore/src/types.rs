// SPDX-License-Identifier: Apache-2.0
//! The few names that every part of the store has in common.

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// So much later than it was acquired a sample may come, ns.
pub(crate) const LATE_NS: u64 = 60_000_000_000;

/// Number of a track: rows of one host that have one layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(pub u32);

/// Number of a row of a table within its track: what lives and dies as one. [`Line::ONLY`] where the track is no table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(pub u32);

impl Line {
    /// The one of a track that is no table.
    pub const ONLY: Self = Self(0);
}

/// What a column's words are: which forms are tried for it and what its statistics mean, not what can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Sizes, identities, times, numbers of texts: u64, or i64 as its bits. Min and max are of i64 if `signed`.
    Integer {
        /// Whether the words are i64.
        signed: bool,
    },
    /// A counter: u64 that only goes up, except at a reset. Its increase is summed up.
    Counter,
    /// f64 as its bits.
    Float,
}

/// Rows of a track that are not there, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Which track.
    pub track: TrackId,
    /// Which line of a table, or which part of other rows; `None`: all of it.
    pub of: Option<u32>,
    /// The first time, UTC ns.
    pub from_ns: u64,
    /// The last time, UTC ns.
    pub to_ns: u64,
    /// In a word.
    pub reason: String,
}
