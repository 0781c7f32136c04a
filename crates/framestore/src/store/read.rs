// SPDX-License-Identifier: Apache-2.0
//! Reading back: samples of some columns of a track, gaps, and what is damaged.
//!
//! What is in heads is copied under the lock; chunks are read without it, and of each only the columns that are asked for.

use std::ops::{ControlFlow, Range};
use std::rc::Rc;

use super::coarse::Sample;
use super::decoded::{Column, Decoded, Key, Piece};
use super::{DAMAGED, Store, lock};
use crate::chunk::Chunk;
use crate::damage::{Damage, StoreError};
use crate::head::{Head, Snapshot};
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

/// Raw rows of a line that follow one another, each later than the one before.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// When they were acquired, UTC ns; at least one.
    pub times_ns: &'a [u64],
    /// No two that follow one another are further apart.
    pub max_distance_ns: u64,
    words: &'a [Column],
    /// Number of the first in its piece.
    first: usize,
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

    /// The values of one of the words that are asked for, row by row; `gathered` is a buffer.
    #[must_use]
    pub fn word<'a>(&'a self, number: usize, gathered: &'a mut Vec<u64>) -> &'a [u64] {
        self.words[number].of(self.first..self.first + self.times_ns.len(), gathered)
    }
}

/// Whoever reads samples.
pub trait Visit {
    /// Takes one.
    fn sample(&mut self, sample: &Sample<'_>) -> ControlFlow<()>;

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

/// Samples in the order in which they came, each once.
struct Samples<'a, V> {
    wanted: &'a Columns,
    from_ns: u64,
    to_ns: u64,
    visit: &'a mut V,
    last_ns: Option<u64>,
    row: Vec<u64>,
    flow: ControlFlow<()>,
}

impl<V: Visit> Samples<'_, V> {
    fn take(&mut self, time_ns: u64, word: impl Fn(usize) -> u64) {
        // A part that has nothing new has the time of the row before; one that never was has none.
        let is_new = time_ns > 0 && self.last_ns != Some(time_ns);
        if !is_new || !(self.from_ns..=self.to_ns).contains(&time_ns) || self.flow.is_break() {
            return;
        }
        self.last_ns = Some(time_ns);
        self.row.clear();
        self.row.extend((0..self.wanted.words.len()).map(word));
        self.flow = self.visit.sample(&Sample { time_ns, words: &self.row, bucket: None });
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

    /// The same of what is decoded.
    fn take_piece(&mut self, piece: &Piece) -> Result<(), StoreError> {
        let wanted = self.wanted;
        let words = piece.columns(&wanted.words)?;
        if wanted.time.is_none() && self.take_rows(piece, &words)? {
            return Ok(());
        }
        let time = wanted.time.map(|time| piece.columns(&[time])).transpose()?.and_then(|mut columns| columns.pop());
        let times_ns = if time.is_none() { piece.times_ns()? } else { &[] };
        for row in piece.rows_of(wanted.line) {
            let time_ns = time.as_ref().map_or_else(|| times_ns[row], |time| time.at(row));
            self.take(time_ns, |at| words[at].at(row));
        }
        Ok(())
    }

    /// All rows at once, if the visitor takes them so.
    fn take_rows(&mut self, piece: &Piece, words: &[Column]) -> Result<bool, StoreError> {
        let Some(max_distance_ns) = piece.max_distance_ns(self.wanted.line)? else { return Ok(false) };
        let (rows, times_ns) = (piece.rows_of(self.wanted.line), piece.times_ns()?);
        let until = |time_ns: u64| rows.start + times_ns[rows.clone()].partition_point(|own_ns| *own_ns < time_ns);
        let wanted = until(self.from_ns)..until(self.to_ns.saturating_add(1));
        let times_ns = &times_ns[wanted.clone()];
        let (Some(first_ns), Some(last_ns)) = (times_ns.first(), times_ns.last()) else { return Ok(true) };
        if *first_ns == 0 || self.last_ns == Some(*first_ns) {
            return Ok(false);
        }
        let taken = self.visit.run(&Run { times_ns, max_distance_ns, words, first: wanted.start });
        if let Some(flow) = taken {
            (self.flow, self.last_ns) = (flow, Some(*last_ns));
        }
        Ok(taken.is_some())
    }
}

/// Rows in memory, decoded before or not yet.
enum InMemory {
    Decoded(Rc<Piece>),
    Rows(Key, Snapshot),
}

impl InMemory {
    fn decoded(self, decoded: Option<&Decoded>) -> Rc<Piece> {
        match self {
            Self::Decoded(piece) => piece,
            Self::Rows(key, rows) => {
                let piece = Rc::new(Piece::of_head(&rows));
                decoded.iter().for_each(|decoded| decoded.keep(key, &piece));
                piece
            }
        }
    }
}

impl Decoded {
    /// Gives a chunk to `take`, and keeps what that has decoded of it.
    fn with_chunk<T>(
        &self,
        place: &Place,
        take: impl FnOnce(&Piece) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let key = Key::of_chunk(place);
        let piece = self.get(key).map_or_else(|| Piece::of_chunk(place).map(Rc::new), Ok)?;
        let taken = take(&piece);
        self.keep(key, &piece);
        taken
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
        let (line, times_ns) = (self.wanted.line, piece.times_ns()?);
        let is_after = before_ns < piece.span_ns()?.map(|(first_ns, _)| first_ns);
        if !is_after || piece.max_distance_ns(line)?.is_none() {
            return Ok(None);
        }
        let rows = piece.rows_of(line);
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
        let (row, flow) = (Vec::new(), ControlFlow::Continue(()));
        let mut samples = Samples { wanted, from_ns, to_ns, visit, last_ns: None, row, flow };
        let (mut buffers, mut damaged) = (Buffers::default(), Vec::new());
        for place in &chunks {
            let taken = match decoded {
                None => samples.take_chunk(place, &mut buffers),
                Some(decoded) => decoded.with_chunk(place, |piece| samples.take_piece(piece)),
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
                (rows, decoded) => samples.take_piece(&rows.decoded(decoded))?,
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
            piece.map_or_else(|| InMemory::Rows(key, rows()), InMemory::Decoded)
        };
        let rows = lock(&self.0.rows);
        let chunks = self.0.chunks.between(Level::Raw, track, from_ns, to_ns)?;
        let heads = rows.tracks.get(&track).map(|of| {
            let of_cut = |rows: &Snapshot| known(Key::of_snapshot(track, rows), &|| rows.clone());
            let of_head = |head: &Head| known(Key::of_head(track, head), &|| head.snapshot());
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
            let piece = rows.decoded(Some(decoded));
            let last_ns = piece.span_ns()?.map(|(_, last_ns)| last_ns);
            heads.push((piece, before_ns));
            before_ns = before_ns.max(last_ns);
        }
        for (piece, before_ns) in heads.iter().rev() {
            match back.take(piece, *before_ns)? {
                Some(ControlFlow::Continue(())) => {}
                other => return Ok(other.is_some()),
            }
        }
        for (at, place) in chunks.iter().enumerate().rev() {
            let before_ns = last_of_chunks_ns(&chunks[..at]);
            match decoded.with_chunk(place, |piece| back.take(piece, before_ns)) {
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
