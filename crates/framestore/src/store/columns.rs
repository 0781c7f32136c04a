// SPDX-License-Identifier: Apache-2.0
//! Reading a chunk: columns that stand side by side at once, the rows of a line, or all of it.

use std::ops::Range;

use crate::chunk::Chunk;
use crate::damage::{Damage, StoreError};
use crate::types::{Line, TrackId};
use crate::warm::{self, Place};

/// Runs of columns that stand side by side: one read each.
pub(super) fn neighbours(columns: &[usize]) -> impl Iterator<Item = Range<usize>> {
    columns.chunk_by(|one, next| one + 1 == *next).map(|run| run[0]..run[0] + run.len())
}

/// Which rows of a chunk are of a line.
pub(super) fn rows_of(chunk: &Chunk, wanted: Line) -> Range<usize> {
    let mut begin = 0;
    let rows = chunk.lines().find_map(|(line, rows)| {
        let range = begin..begin + rows;
        begin = range.end;
        (line == wanted).then_some(range)
    });
    rows.unwrap_or_default()
}

/// Room for what is read of one chunk after the other.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) pieces: warm::Buffers,
    whole: Vec<u8>,
    pub(super) times_ns: Vec<u64>,
    pub(super) values: Vec<u64>,
}

impl Buffers {
    /// Reads all of a chunk: times, and values column after column. Returns its lines, and how many rows each has.
    pub(super) fn fill(&mut self, place: &Place, track: TrackId) -> Result<Vec<(Line, usize)>, StoreError> {
        let Self { whole, times_ns, values, .. } = self;
        times_ns.clear();
        values.clear();
        let chunk = place.read(whole)?;
        let mut decode = || {
            if chunk.head().track != track {
                return Err(Damage::Wrong("a chunk's track"));
            }
            chunk.times(times_ns)?;
            (0..chunk.head().columns).try_for_each(|column| chunk.column(column, values))
        };
        decode().map_err(|damage| place.damaged(damage))?;
        Ok(chunk.lines().collect())
    }
}
