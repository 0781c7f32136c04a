// SPDX-License-Identifier: Apache-2.0
//! What a chunk says before its data: whose rows, when, and what their columns are.

use std::sync::Arc;

use super::{HEAD_BYTES, LONG, MAX_COLUMNS, MAX_ROWS, NUMBERED, TABLE, VERSION};
use crate::damage::Damage;
use crate::layout::Layout;
use crate::types::{Kind, TrackId};

/// What a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Words of a kind.
    Value(Kind),
    /// Floats that only go up, except at a reset. Only rollups say so: of rows their layout does.
    FloatCounter,
    /// Counters, integers or floats, of which rollups also have the least and the greatest rate. Only they say so.
    Rated {
        /// Floats.
        is_float: bool,
    },
    /// When the columns up to the next one of these were acquired, UTC ns.
    Time,
}

impl Column {
    pub(super) fn code(self) -> usize {
        match self {
            Self::Value(Kind::Integer { signed: false }) => 0,
            Self::Value(Kind::Integer { signed: true }) => 1,
            Self::Value(Kind::Counter) => 2,
            Self::Value(Kind::Float) => 3,
            Self::Time => 4,
            Self::FloatCounter => 5,
            Self::Rated { is_float } => 6 + usize::from(is_float),
        }
    }

    pub(super) fn of_code(code: usize) -> Result<Self, Damage> {
        match code {
            0 => Ok(Self::Value(Kind::Integer { signed: false })),
            1 => Ok(Self::Value(Kind::Integer { signed: true })),
            2 => Ok(Self::Value(Kind::Counter)),
            3 => Ok(Self::Value(Kind::Float)),
            4 => Ok(Self::Time),
            5 => Ok(Self::FloatCounter),
            6 | 7 => Ok(Self::Rated { is_float: code == 7 }),
            _ => Err(Damage::Wrong("what a column is")),
        }
    }

    /// How its words are packed and compared.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Value(kind) => kind,
            Self::FloatCounter | Self::Rated { is_float: true } => Kind::Float,
            Self::Rated { is_float: false } => Kind::Counter,
            Self::Time => Kind::Integer { signed: false },
        }
    }
}

/// What the rows of a chunk are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its columns.
    pub columns: Arc<[Column]>,
    /// Whether the rows are of many lines.
    pub is_table: bool,
    /// Width of the buckets that a rollup has rows of, s; 0: the rows are raw.
    pub bucket_s: u32,
}

impl Shape {
    /// Raw rows of a layout.
    #[must_use]
    pub fn of(layout: &Layout) -> Self {
        let mut columns: Vec<Column> = layout.kinds().iter().map(|kind| Column::Value(*kind)).collect();
        for time in layout.parts().iter().filter_map(|part| part.time) {
            columns[time] = Column::Time;
        }
        Self { columns: columns.into(), is_table: layout.is_table(), bucket_s: 0 }
    }
}

/// What a chunk's first [`HEAD_BYTES`] say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Whose rows.
    pub track: TrackId,
    /// How many.
    pub rows: usize,
    /// Their width.
    pub columns: usize,
    /// Lines that have rows; 1 where the track is no table.
    pub lines: usize,
    /// Earliest time, UTC ns.
    pub from_ns: u64,
    /// Latest time, UTC ns.
    pub to_ns: u64,
    /// Whatever the maker wanted to know later, such as up to where in the ring the rows went.
    pub mark: u64,
    /// Width of a rollup's buckets, s; 0 of raw rows.
    pub bucket_s: u32,
    /// Whether the rows are of many lines.
    pub is_table: bool,
    /// Bytes before the body.
    pub front_bytes: usize,
    pub(super) flags: u8,
    pub(super) lines_bytes: usize,
    pub(super) times_bytes: usize,
    pub(super) constants_bytes: usize,
}

impl Head {
    /// From the beginning of a chunk.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Damage> {
        let bytes: &[u8; HEAD_BYTES] = bytes.first_chunk().ok_or(Damage::Wrong("a chunk's end"))?;
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let (rows, flags) = (usize::from(u16::from_le_bytes([bytes[2], bytes[3]])), bytes[1]);
        let head = Self {
            track: TrackId(half(4)),
            rows,
            columns: half(8) as usize,
            lines: half(12) as usize,
            from_ns: word(16),
            to_ns: word(24),
            mark: word(32),
            bucket_s: half(40),
            is_table: flags & TABLE > 0,
            front_bytes: half(56) as usize,
            flags,
            lines_bytes: half(44) as usize,
            times_bytes: half(48) as usize,
            constants_bytes: half(52) as usize,
        };
        if bytes[0] != VERSION || flags > (TABLE | NUMBERED | LONG) {
            return Err(Damage::Wrong("a chunk's version"));
        }
        let has_lines = if head.is_table { (1..=rows).contains(&head.lines) } else { head.lines == 1 };
        if !(1..=MAX_ROWS).contains(&rows) || head.columns > MAX_COLUMNS || !has_lines || head.from_ns > head.to_ns {
            return Err(Damage::Wrong("a chunk's size"));
        }
        Ok(head)
    }
}
