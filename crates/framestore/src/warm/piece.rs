// SPDX-License-Identifier: Apache-2.0
//! What of a level's pieces is there. A piece is what is rolled up at once: one chunk, or of a large table several, of
//! which a kill or damage may leave some.
//!
//! The last chunk's mark says how many they are. They are written one behind the other: a piece is whole if its last
//! chunk is there, and so many before it. Where it was made or written again, after a kill or a failed sync, the last
//! one that is whole counts. What else there is of its time is what kills have left, and counts where nothing whole is,
//! without copies. Marks of an earlier version do not count: all that is before them belongs to them.

use std::collections::BTreeMap;

use super::entry::{COUNTED, ChunkRef, MARKED};
use super::shelf::{Reader, Shelf};
use super::{Level, Place};
use crate::damage::StoreError;
use crate::types::TrackId;

/// What there is of a piece, or of neighbouring ones that were made one chunk.
#[derive(Debug)]
pub(crate) struct Piece<T = Place> {
    pub(crate) chunks: Vec<T>,
    /// All of it is there.
    pub(crate) is_whole: bool,
    /// Earliest and latest time of a row.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

impl<T> Piece<T> {
    /// The time that it covers, in whole multiples of a length.
    pub(crate) fn span(&self, unit_ns: u64) -> (u64, u64) {
        span(self.from_ns, self.to_ns, unit_ns)
    }
}

/// The whole multiples of a length that have these two times and what is between them.
pub(crate) fn span(from_ns: u64, to_ns: u64, unit_ns: u64) -> (u64, u64) {
    (from_ns - from_ns % unit_ns, (to_ns - to_ns % unit_ns).saturating_add(unit_ns - 1))
}

impl ChunkRef {
    /// How many chunks its piece has, if it is the last one; 0: a mark that does not count.
    fn count(&self, shelf: &Shelf) -> Option<usize> {
        let counted = || shelf.counts.get(&self.arrival()).copied().unwrap_or(1);
        let is_counted = self.rows_and_mark & COUNTED > 0;
        (self.rows_and_mark & MARKED > 0).then(|| if is_counted { counted() } else { 0 })
    }
}

impl Piece<ChunkRef> {
    /// Of what has been written of a time.
    fn new(all: &[ChunkRef], shelf: &Shelf) -> Self {
        let (chunks, is_whole) = match all {
            // Most often.
            [one] => (vec![*one], one.count(shelf).is_some_and(|count| count <= 1)),
            all => Self::of_several(all.to_vec(), shelf),
        };
        let from_ns = chunks.iter().map(|chunk| chunk.from_ns).min().unwrap_or(0);
        let to_ns = chunks.iter().map(|chunk| chunk.to_ns).max().unwrap_or(0);
        Self { chunks, is_whole, from_ns, to_ns }
    }

    /// Those of them that are the last thing that is whole, or else all, and whether they are whole.
    fn of_several(mut all: Vec<ChunkRef>, shelf: &Shelf) -> (Vec<ChunkRef>, bool) {
        all.sort_unstable_by_key(ChunkRef::arrival);
        let (mut whole, mut before) = (None, Vec::new());
        for chunk in &all {
            before.push(*chunk);
            if let Some(count) = chunk.count(shelf) {
                let first = before.len().checked_sub(count);
                let group = first.map(|first| if count == 0 { once(&before, shelf) } else { before.split_off(first) });
                whole = group.or(whole);
                before.clear();
            }
        }
        whole.map_or_else(|| (once(&all, shelf), false), |whole| (whole, true))
    }
}

/// These without those that are copies of others of them.
fn once(chunks: &[ChunkRef], shelf: &Shelf) -> Vec<ChunkRef> {
    let is_there = |of: &(u32, u32)| chunks.iter().any(|chunk| chunk.arrival() == *of);
    let is_copy = |chunk: &ChunkRef| shelf.copies.get(&chunk.arrival()).is_some_and(is_there);
    chunks.iter().filter(|chunk| !is_copy(chunk)).copied().collect()
}

impl Shelf {
    /// Pieces of a track that have some time between two, both included, by their beginnings.
    fn pieces(&self, track: TrackId, from_ns: u64, to_ns: u64) -> Vec<Piece<ChunkRef>> {
        let unit_ns = self.level.piece_ns();
        let (from_ns, to_ns) = span(from_ns, to_ns, unit_ns);
        let chunks: Vec<ChunkRef> = self.between(track, from_ns, to_ns).collect();
        let of_one = chunks.chunk_by(|one, next| one.from_ns / unit_ns == next.from_ns / unit_ns);
        // Several that became one chunk may have such a beginning in the middle.
        let mut whole_to_ns = 0;
        let is_needed = |piece: &Piece<ChunkRef>| {
            if piece.is_whole {
                whole_to_ns = piece.to_ns.max(whole_to_ns);
            }
            piece.is_whole || piece.from_ns > whole_to_ns
        };
        of_one.map(|chunks| Piece::new(chunks, self)).filter(is_needed).collect()
    }
}

impl Reader {
    /// What a level of rollups has of a track between two times, both included, by the beginnings of pieces.
    ///
    /// # Errors
    /// [`StoreError::Io`] if a file cannot be opened.
    pub(crate) fn pieces(
        &self,
        level: Level,
        track: TrackId,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<Vec<Piece>, StoreError> {
        self.0.look(level, |shelf| {
            let opened = |piece: Piece<ChunkRef>| {
                let Piece { chunks, is_whole, from_ns, to_ns } = piece;
                Ok(Piece { chunks: self.0.places(shelf, chunks)?, is_whole, from_ns, to_ns })
            };
            shelf.pieces(track, from_ns, to_ns).into_iter().map(opened).collect()
        })
    }

    /// Times of which a level of rollups has pieces that are whole, or those of which it has only a part: in whole
    /// multiples of `unit_ns`, ascending, those that touch as one.
    pub(crate) fn covered(
        &self,
        level: Level,
        track: TrackId,
        unit_ns: u64,
        (from_ns, to_ns): (u64, u64),
        is_whole: bool,
    ) -> Vec<(u64, u64)> {
        let mut covered = Vec::new();
        let pieces = self.0.look(level, |shelf| shelf.pieces(track, from_ns, to_ns));
        let pieces = pieces.into_iter().filter(|piece| piece.is_whole == is_whole);
        pieces.for_each(|piece| join(&mut covered, piece.span(unit_ns)));
        covered
    }

    /// Times of which a file of a level of rollups has chunks, by track: in whole pieces, ascending, those that touch as
    /// one.
    pub(crate) fn in_file(&self, level: Level, number: u32) -> Vec<(TrackId, u64, u64)> {
        let mut times: BTreeMap<TrackId, Vec<(u64, u64)>> = BTreeMap::new();
        self.0.look(level, |shelf| {
            for (track, chunk) in shelf.of_file(number) {
                join(times.entry(track).or_default(), span(chunk.from_ns, chunk.to_ns, level.piece_ns()));
            }
        });
        let of_track =
            |(track, times): (TrackId, Vec<(u64, u64)>)| times.into_iter().map(move |time| (track, time.0, time.1));
        times.into_iter().flat_map(of_track).collect()
    }
}

/// Takes a time that begins behind the beginning of those that are there.
fn join(times: &mut Vec<(u64, u64)>, (begin_ns, end_ns): (u64, u64)) {
    match times.last_mut() {
        Some((_, last_ns)) if begin_ns <= last_ns.saturating_add(1) => *last_ns = end_ns.max(*last_ns),
        _ => times.push((begin_ns, end_ns)),
    }
}
