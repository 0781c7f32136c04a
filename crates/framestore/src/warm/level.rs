// SPDX-License-Identifier: Apache-2.0
//! Resolutions that chunks are kept in, and the lengths of time that they are made in.

use crate::types::SECOND_NS;

/// Length of a window of each level, s; of raw rows, of a piece of the level behind it.
const LENGTHS_S: [u64; Level::ALL.len()] = [60, 600, 3_600, 21_600];

/// A resolution that chunks are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// As the rows were acquired.
    Raw,
    /// Rolled up to 1 s.
    Second,
    /// Rolled up to 10 s.
    TenSeconds,
    /// Rolled up to 60 s.
    Minute,
}

impl Level {
    /// All of them, the finest first.
    pub const ALL: [Self; 4] = [Self::Raw, Self::Second, Self::TenSeconds, Self::Minute];

    /// Width of its buckets, s; 0 of raw rows.
    #[must_use]
    pub fn bucket_s(self) -> u32 {
        match self {
            Self::Raw => 0,
            Self::Second => 1,
            Self::TenSeconds => 10,
            Self::Minute => 60,
        }
    }

    /// In a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Second => "1s",
            Self::TenSeconds => "10s",
            Self::Minute => "60s",
        }
    }

    pub(crate) fn window_ns(self) -> u64 {
        LENGTHS_S[self as usize] * SECOND_NS
    }

    /// What is rolled up at once.
    pub(crate) fn piece_ns(self) -> u64 {
        self.finer().next().map_or(1, Self::window_ns)
    }

    /// The coarsest first; the last one is raw.
    pub(crate) fn finer(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().rev().filter(move |level| *level < self)
    }
}
