// SPDX-License-Identifier: Apache-2.0
//! Reading back: samples of some columns of a track, gaps, and what is damaged.
//!
//! What is in heads is copied under the lock; chunks are read without it, and of each only the columns that are asked for.

use std::ops::{ControlFlow, Range};

use super::{DAMAGED, Store, lock};
use crate::chunk::Chunk;
use crate::damage::{Damage, StoreError};
use crate::head::Snapshot;
use crate::types::{Gap, Line, TrackId};
use crate::warm::{self, Extent, Level, Place};

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

/// Samples in the order in which they came, each once.
struct Samples<'a, V> {
    wanted: &'a Columns,
    from_ns: u64,
    to_ns: u64,
    visit: V,
    last_ns: Option<u64>,
    row: Vec<u64>,
    flow: ControlFlow<()>,
}

impl<V: FnMut(u64, &[u64]) -> ControlFlow<()>> Samples<'_, V> {
    fn take(&mut self, time_ns: u64, word: impl Fn(usize) -> u64) {
        // A part that has nothing new has the time of the row before; one that never was has none.
        let is_new = time_ns > 0 && self.last_ns != Some(time_ns);
        if !is_new || !(self.from_ns..=self.to_ns).contains(&time_ns) || self.flow.is_break() {
            return;
        }
        self.last_ns = Some(time_ns);
        self.row.clear();
        self.row.extend((0..self.wanted.words.len()).map(word));
        self.flow = (self.visit)(time_ns, &self.row);
    }

    fn take_snapshot(&mut self, rows: &Snapshot) {
        let wanted = self.wanted;
        // They were encoded by this process, or looked at when they came out of the log.
        let _ = rows.rows(|line, time_ns, words| {
            if line == wanted.line {
                self.take(wanted.time.map_or(time_ns, |time| words[time]), |at| words[wanted.words[at]]);
            }
        });
    }

    fn take_chunk(&mut self, place: &Place, buffers: &mut Buffers) -> Result<(), StoreError> {
        let Buffers { pieces, times_ns, values, .. } = buffers;
        values.clear();
        for run in neighbours(&self.wanted.words) {
            place.read_columns(run, pieces, values)?;
        }
        times_ns.clear();
        let chunk = match self.wanted.time {
            Some(time) => place.read_columns(time..time + 1, pieces, times_ns)?,
            None => {
                let chunk = place.read_columns(0..0, pieces, times_ns)?;
                chunk.times(times_ns).map_err(|damage| place.damaged(damage))?;
                chunk
            }
        };
        let height = chunk.head().rows;
        for at in rows_of(&chunk, self.wanted.line) {
            self.take(times_ns[at], |column| values[column * height + at]);
        }
        Ok(())
    }
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

#[derive(Default)]
pub(super) struct Buffers {
    pub(super) pieces: warm::Buffers,
    whole: Vec<u8>,
    pub(super) times_ns: Vec<u64>,
    pub(super) values: Vec<u64>,
}

impl Buffers {
    /// Reads all of a chunk: times, and values column after column. Returns its lines, and how many rows each has.
    fn fill(&mut self, place: &Place, track: TrackId) -> Result<Vec<(Line, usize)>, StoreError> {
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

/// Runs of columns that stand side by side: one read each.
pub(super) fn neighbours(columns: &[usize]) -> impl Iterator<Item = Range<usize>> {
    columns.chunk_by(|one, next| one + 1 == *next).map(|run| run[0]..run[0] + run.len())
}

impl Store {
    /// Gives samples of a part between two times (UTC ns, both included) to `visit`, in the order in which they came,
    /// until it breaks. Returns gaps for what is damaged.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn read(
        &self,
        wanted: &Columns,
        from_ns: u64,
        to_ns: u64,
        visit: impl FnMut(u64, &[u64]) -> ControlFlow<()>,
    ) -> Result<Vec<Gap>, StoreError> {
        let (chunks, in_memory) = {
            let rows = lock(&self.0.rows);
            let chunks = self.0.chunks.between(Level::Raw, wanted.track, from_ns, to_ns)?;
            let in_memory = rows.tracks.get(&wanted.track).map(|track| track.in_memory(&chunks, from_ns, to_ns));
            (chunks, in_memory.unwrap_or_default())
        };
        let (row, flow) = (Vec::new(), ControlFlow::Continue(()));
        let mut samples = Samples { wanted, from_ns, to_ns, visit, last_ns: None, row, flow };
        let (mut buffers, mut damaged) = (Buffers::default(), Vec::new());
        for place in &chunks {
            match samples.take_chunk(place, &mut buffers) {
                Ok(()) => {}
                Err(StoreError::Damaged { .. }) => {
                    let (from_ns, to_ns) = (place.chunk().from_ns, place.chunk().to_ns);
                    let (track, reason) = (wanted.track, DAMAGED.to_owned());
                    damaged.push(Gap { track, of: None, from_ns, to_ns, reason });
                }
                Err(error) => return Err(error),
            }
            if samples.flow.is_break() {
                return Ok(damaged);
            }
        }
        in_memory.iter().for_each(|rows| samples.take_snapshot(rows));
        Ok(damaged)
    }

    /// Gives all rows of a track between two times (UTC ns, both included) to `visit`, whatever their line, with the
    /// row's own time. In a chunk they come line by line. Returns gaps for what is damaged.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn rows(
        &self,
        id: TrackId,
        from_ns: u64,
        to_ns: u64,
        mut visit: impl FnMut(Line, u64, &[u64]) -> ControlFlow<()>,
    ) -> Result<Vec<Gap>, StoreError> {
        let (chunks, in_memory) = {
            let rows = lock(&self.0.rows);
            let chunks = self.0.chunks.between(Level::Raw, id, from_ns, to_ns)?;
            let in_memory = rows.tracks.get(&id).map(|track| track.in_memory(&chunks, from_ns, to_ns));
            (chunks, in_memory.unwrap_or_default())
        };
        let is_wanted = |time_ns: u64| (from_ns..=to_ns).contains(&time_ns);
        let (mut buffers, mut row, mut damaged) = (Buffers::default(), Vec::new(), Vec::new());
        for place in &chunks {
            let lines = match buffers.fill(place, id) {
                Ok(lines) => lines,
                Err(StoreError::Damaged { .. }) => {
                    let (from_ns, to_ns) = (place.chunk().from_ns, place.chunk().to_ns);
                    damaged.push(Gap { track: id, of: None, from_ns, to_ns, reason: DAMAGED.to_owned() });
                    continue;
                }
                Err(error) => return Err(error),
            };
            let height = buffers.times_ns.len();
            let all = lines.into_iter().flat_map(|(line, rows)| std::iter::repeat_n(line, rows));
            for (at, line) in all.enumerate().filter(|(at, _)| is_wanted(buffers.times_ns[*at])) {
                row.clear();
                row.extend(buffers.values.iter().skip(at).step_by(height));
                if visit(line, buffers.times_ns[at], &row).is_break() {
                    return Ok(damaged);
                }
            }
        }
        let mut flow = ControlFlow::Continue(());
        for rows in &in_memory {
            // As in `take_snapshot`.
            let _ = rows.rows(|line, time_ns, words| {
                if flow.is_continue() && is_wanted(time_ns) {
                    flow = visit(line, time_ns, words);
                }
            });
        }
        Ok(damaged)
    }

    /// How much there is of a track.
    #[must_use]
    pub fn extent(&self, track: TrackId) -> Option<Extent> {
        let in_memory = lock(&self.0.rows).tracks.get(&track).and_then(super::rows::Track::extent);
        in_memory.into_iter().chain(self.0.chunks.extent(Level::Raw, track)).reduce(Extent::joined)
    }

    /// Gaps of a track that touch a time, whatever they concern.
    pub(crate) fn all_gaps(&self, track: TrackId, from_ns: u64, to_ns: u64) -> Vec<Gap> {
        lock(&self.0.gaps).all_between(track, from_ns, to_ns)
    }

    /// Gaps that touch a time and concern these columns.
    #[must_use]
    pub fn gaps(&self, wanted: &Columns, from_ns: u64, to_ns: u64) -> Vec<Gap> {
        let of = if wanted.line == Line::ONLY { wanted.part } else { wanted.line.0 };
        lock(&self.0.gaps).between(wanted.track, of, from_ns, to_ns)
    }
}
