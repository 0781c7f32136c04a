// SPDX-License-Identifier: Apache-2.0
//! Reading back: samples of some columns of a track, gaps, and what is damaged.
//!
//! What is in heads is copied under the lock; chunks are read without it, and of each only the columns that are asked for.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use super::columns::Buffers;
use super::decoded::{Decoded, Key, Piece};
use super::grown::Grown;
use super::samples::Samples;
use super::visit::{Columns, Sample, Visit};
use super::{DAMAGED, Store, lock};
use crate::damage::StoreError;
use crate::head::{Head, Snapshot};
use crate::types::{Gap, Line, TrackId};
use crate::warm::{Extent, Level, Place};

/// Rows in memory, decoded before or not yet.
enum InMemory {
    Decoded(Key, Rc<Piece>),
    Rows(Key, Snapshot),
}

impl InMemory {
    /// Columns that are `wanted` are decoded at once with the rows' times.
    fn decoded(self, grown: &Arc<Grown>, wanted: &Columns) -> (Key, Rc<Piece>) {
        match self {
            Self::Decoded(key, piece) => (key, piece),
            Self::Rows(key, rows) => {
                let columns = wanted.words.iter().copied().chain(wanted.time);
                (key, Piece::of_head(grown, wanted.track, rows, columns.collect()).into())
            }
        }
    }
}

/// Rows from the newest back.
struct Back<'a, V> {
    wanted: &'a Columns,
    from_ns: u64,
    to_ns: u64,
    visit: V,
    row: Vec<u64>,
}

impl<V: FnMut(u64, &[u64]) -> ControlFlow<()>> Back<'_, V> {
    /// Rows of a piece; `None`: they are not in order, or some before them, the last of which has `before_ns`, are later.
    fn take(&mut self, piece: &Piece, before_ns: Option<u64>) -> Result<Option<ControlFlow<()>>, StoreError> {
        let (line, times) = (self.wanted.line, piece.times());
        let is_after = before_ns < times.span_ns.map(|(first_ns, _)| first_ns);
        if !is_after || times.max_distance_ns(line).is_none() {
            return Ok(None);
        }
        let (rows, times_ns) = (times.rows_of(line), &times.times_ns);
        let until = rows.start + times_ns[rows.clone()].partition_point(|time_ns| *time_ns <= self.to_ns);
        let mut words = None;
        for at in (rows.start..until).rev().take_while(|at| times_ns[*at] >= self.from_ns) {
            let words = match &mut words {
                Some(words) => words,
                none => none.insert(piece.columns(&self.wanted.words)?),
            };
            self.row.clear();
            self.row.extend(words.iter().map(|column| column.at(at)));
            if (self.visit)(times_ns[at], &self.row).is_break() {
                return Ok(Some(ControlFlow::Break(())));
            }
        }
        Ok(Some(ControlFlow::Continue(())))
    }
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
        mut visit: impl FnMut(u64, &[u64]) -> ControlFlow<()>,
    ) -> Result<Vec<Gap>, StoreError> {
        let visit = &mut |sample: &Sample<'_>| visit(sample.time_ns, sample.words);
        Ok(self.read_with(None, wanted, from_ns, to_ns, visit)?.0)
    }

    /// As [`Store::read`], by what is decoded already, if anything is to be kept; and whether the visitor wants more.
    pub(super) fn read_with(
        &self,
        decoded: Option<&Decoded>,
        wanted: &Columns,
        from_ns: u64,
        to_ns: u64,
        visit: &mut impl Visit,
    ) -> Result<(Vec<Gap>, ControlFlow<()>), StoreError> {
        let (chunks, in_memory) = self.pieces(decoded, wanted.track, from_ns, to_ns)?;
        let mut samples = Samples::new(wanted, from_ns, to_ns, visit);
        let (mut buffers, mut damaged) = (Buffers::default(), Vec::new());
        for place in &chunks {
            let taken = match decoded {
                None => samples.take_chunk(place, &mut buffers),
                Some(decoded) => decoded.with_chunk(&self.0.fronts, place, |piece| {
                    let is_taken = samples.take_thinned(&self.0.thinned, place, piece)?;
                    if is_taken { Ok(()) } else { samples.take_piece(piece) }
                }),
            };
            match taken {
                Ok(()) => {}
                Err(StoreError::Damaged { .. }) => {
                    let (from_ns, to_ns) = (place.chunk().from_ns, place.chunk().to_ns);
                    let (track, reason) = (wanted.track, DAMAGED.to_owned());
                    damaged.push(Gap { track, of: None, from_ns, to_ns, reason });
                }
                Err(error) => return Err(error),
            }
            if samples.flow.is_break() {
                return Ok((damaged, samples.flow));
            }
        }
        for rows in in_memory {
            match (rows, decoded) {
                (InMemory::Rows(_, rows), None) => samples.take_snapshot(&rows),
                (rows, decoded) => {
                    let (key, piece) = rows.decoded(&self.0.grown, wanted);
                    samples.take_piece(&piece)?;
                    decoded.iter().for_each(|decoded| decoded.keep(key, &piece));
                }
            }
            if samples.flow.is_break() {
                break;
            }
        }
        Ok((damaged, samples.flow))
    }

    /// Chunks and heads that may have samples of a time.
    fn pieces(
        &self,
        decoded: Option<&Decoded>,
        track: TrackId,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<(Vec<Place>, Vec<InMemory>), StoreError> {
        let known = |key: Key, rows: &dyn Fn() -> Snapshot| {
            let piece = decoded.and_then(|decoded| decoded.get(key));
            piece.map_or_else(|| InMemory::Rows(key, rows()), |piece| InMemory::Decoded(key, piece))
        };
        let rows = lock(&self.0.rows);
        let chunks = self.0.chunks.between(Level::Raw, track, from_ns, to_ns)?;
        let heads = rows.tracks.get(&track).map(|of| {
            let of_cut = |rows: &Snapshot| known(Key::of_snapshot(rows), &|| rows.clone());
            let of_head = |head: &Head| known(Key::of_head(head), &|| head.snapshot());
            of.heads(&chunks, from_ns, to_ns, of_cut, of_head)
        });
        Ok((chunks, heads.unwrap_or_default()))
    }

    /// Gives rows of a line between two times (UTC ns, both included) to `visit`, the newest first, until it breaks: the
    /// row's time, its words. `false`: they are not to be had so, or not all, and what was given does not count. Times
    /// fall, rows are damaged, or have gone and a rollup is left.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn read_back(
        &self,
        decoded: &Decoded,
        wanted: &Columns,
        from_ns: u64,
        to_ns: u64,
        mut visit: impl FnMut(u64, &[u64]) -> ControlFlow<()>,
    ) -> Result<bool, StoreError> {
        if self.raw_since_ns(wanted.track) > from_ns {
            return Ok(false);
        }
        let (chunks, in_memory) = self.pieces(Some(decoded), wanted.track, from_ns, to_ns)?;
        let last_of_chunks_ns = |chunks: &[Place]| chunks.iter().map(|place| place.chunk().to_ns).max();
        let mut back = Back { wanted, from_ns, to_ns, row: Vec::new(), visit: &mut visit };
        let mut before_ns = last_of_chunks_ns(&chunks);
        let mut heads = Vec::new();
        for rows in in_memory {
            let (key, piece) = rows.decoded(&self.0.grown, wanted);
            let last_ns = piece.times().span_ns.map(|(_, last_ns)| last_ns);
            heads.push((key, piece, before_ns));
            before_ns = before_ns.max(last_ns);
        }
        for (key, piece, before_ns) in heads.iter().rev() {
            let taken = back.take(piece, *before_ns)?;
            decoded.keep(*key, piece);
            match taken {
                Some(ControlFlow::Continue(())) => {}
                other => return Ok(other.is_some()),
            }
        }
        for (at, place) in chunks.iter().enumerate().rev() {
            let before_ns = last_of_chunks_ns(&chunks[..at]);
            match decoded.with_chunk(&self.0.fronts, place, |piece| back.take(piece, before_ns)) {
                Ok(Some(ControlFlow::Continue(()))) => {}
                Ok(other) => return Ok(other.is_some()),
                Err(StoreError::Damaged { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Gives all rows of a track between two times (UTC ns, both included) to `visit`, whatever their line, with the
    /// row's own time. In a chunk they come line by line. Returns gaps for what is damaged.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn rows(
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
            // As in `Samples::take_snapshot`.
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

    /// The same of the chunks and heads that may have rows between two times (UTC ns, both included).
    #[must_use]
    pub fn extent_between(&self, track: TrackId, from_ns: u64, to_ns: u64) -> Option<Extent> {
        let in_memory = lock(&self.0.rows).tracks.get(&track).and_then(|track| track.extent_between(from_ns, to_ns));
        let in_chunks = self.0.chunks.extent_between(Level::Raw, track, from_ns, to_ns);
        in_memory.into_iter().chain(in_chunks).reduce(Extent::joined)
    }

    /// Earliest and latest time that there are rows of a track, or rollups of them.
    #[must_use]
    pub fn time_of(&self, track: TrackId) -> Option<(u64, u64)> {
        let in_memory = lock(&self.0.rows).tracks.get(&track).and_then(super::rows::Track::extent);
        let chunks = &self.0.chunks;
        let of = |level| Some((chunks.first_ns(level, track, 0, false)?, chunks.newest_ns(level, track)?));
        let times = in_memory.map(|rows| (rows.from_ns, rows.to_ns)).into_iter();
        times.chain(Level::ALL.into_iter().filter_map(of)).reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
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
