// SPDX-License-Identifier: Apache-2.0
//! Reading no finer than is needed: samples of a time from rollups, as far as there are some, and from raw rows.
//!
//! Of each piece of time the coarsest level is read whose buckets are not wider than what is asked for; where that has
//! nothing, the next finer one, down to raw rows. Where those are gone, the finest that is left is.
//!
//! A chunk of a rollup that is damaged counts as one that is not there: other levels are asked for its time, and what
//! they do not have is a gap. So is a time that no level has and of which a file of a rollup has lost chunks. Of a piece
//! that is not whole in any level what there is is read, and the rest is a gap.

use std::cell::OnceCell;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::columns::{Buffers, neighbours, rows_of};
use super::decoded::Decoded;
use super::holes::gap;
use super::visit::{Bucket, Columns, Sample, Visit};
use super::{Store, lock};
use crate::chunk::{Column, Shape};
use crate::damage::{Damage, StoreError};
use crate::layout::Layout;
use crate::rollup::{earlier_shapes, raw_shape, rollup_columns};
use crate::types::{Gap, Kind, LATE_NS, Line, SECOND_NS, TrackId};
use crate::warm::{Level, Piece, Place, span};

/// Where a rollup has what is asked for.
struct Plan {
    /// Columns of a row of the rollup.
    width: usize,
    /// The part's time; how many samples there are stands behind it.
    time: usize,
    /// All that is known of the words.
    columns: Vec<usize>,
    /// Which of `columns` has the last value of each word, and what that is.
    words: Vec<(usize, Column)>,
}

impl Plan {
    /// All that is asked for is in the shape.
    fn new(shape: &Shape, wanted: &Columns) -> Self {
        let rolled = rollup_columns(&shape.columns);
        let mut firsts = vec![0; shape.columns.len()];
        for (at, column) in rolled.iter().enumerate().rev() {
            if let Some(source) = column.source {
                firsts[source] = at;
            }
        }
        let (mut columns, mut words) = (Vec::new(), Vec::new());
        for word in &wanted.words {
            let (first, column) = (firsts[*word], shape.columns[*word]);
            words.push((columns.len(), column));
            let of_word = rolled[first..].iter().take_while(|rolled| rolled.source == Some(*word));
            columns.extend(first..first + of_word.count());
        }
        // Who asks for it as a word wants all rows, also those in which the part has nothing new.
        let is_time = |word: &usize| shape.columns[*word] == Column::Time;
        let time = wanted.time.or_else(|| wanted.words.iter().copied().find(is_time));
        let time = time.map_or(0, |time| firsts[time]);
        Self { width: rolled.len(), time, columns, words }
    }
}

/// The same of rollups as they are made now, and as they were made earlier: each has more columns than the next.
struct Plans(Vec<Plan>);

impl Plans {
    fn new(layout: &Layout, wanted: &Columns) -> Self {
        let mut shapes = vec![raw_shape(layout)];
        shapes.extend(earlier_shapes(layout));
        shapes.dedup();
        Self(shapes.iter().map(|shape| Plan::new(shape, wanted)).collect())
    }

    /// Which one chunks with so many columns are read by.
    fn find(&self, columns: usize) -> Option<usize> {
        self.0.iter().position(|plan| plan.width == columns)
    }
}

/// Words of a bucket, one field after the other.
#[derive(Default)]
struct Row {
    last: Vec<u64>,
    least: Vec<u64>,
    largest: Vec<u64>,
    increase: Vec<u64>,
    before: Vec<u64>,
    rates: Vec<Option<(f64, f64)>>,
}

impl Row {
    fn fill(&mut self, plan: &Plan, value: impl Fn(usize) -> u64) {
        let Self { last, least, largest, increase, before, rates } = self;
        [&mut *last, least, largest, increase, before].into_iter().for_each(Vec::clear);
        rates.clear();
        for (at, column) in &plan.words {
            let word = value(*at);
            let (low, high, more, since) = match column {
                Column::Value(Kind::Counter) | Column::Rated { is_float: false } => {
                    (word, word, value(at + 1), word.saturating_sub(value(at + 1)))
                }
                Column::FloatCounter | Column::Rated { is_float: true } => (word, word, value(at + 2), value(at + 1)),
                Column::Time => (word, word, 0, word),
                Column::Value(_) => (value(at + 1), value(at + 2), 0, word),
            };
            last.push(word);
            least.push(low);
            largest.push(high);
            increase.push(more);
            before.push(since);
            rates.push(match column {
                Column::Rated { is_float } => {
                    let slowest = at + 2 + usize::from(*is_float);
                    let rates = [slowest, slowest + 1].map(|at| f64::from_bits(value(at)));
                    (!rates[0].is_nan()).then_some(rates.into())
                }
                _ => None,
            });
        }
    }

    fn sample(&self, time_ns: u64) -> Sample<'_> {
        let Self { last, least, largest, increase, before, rates } = self;
        Sample { time_ns, words: last, bucket: Some(Bucket { least, largest, increase, before, rates }) }
    }
}

/// Reads buckets of a track.
struct Buckets<'a, V> {
    wanted: &'a Columns,
    decoded: Option<&'a Decoded>,
    /// Made for the first rollup that is read: most often there is none.
    plans: OnceCell<Plans>,
    layout: Arc<Layout>,
    buffers: Buffers,
    row: Row,
    visit: &'a mut V,
}

impl<V: Visit> Buckets<'_, V> {
    /// Gives the buckets of a chunk to the visitor; of one that is damaged none.
    fn take(&mut self, place: &Place, from_ns: u64, to_ns: u64) -> Result<ControlFlow<()>, StoreError> {
        let (rows, by) = self.fill(place)?;
        let Self { wanted, plans, layout, buffers: Buffers { times_ns, values, .. }, row, visit, .. } = self;
        let plan = &plans.get_or_init(|| Plans::new(layout, wanted)).0[by];
        let height = times_ns.len() / 2;
        let (times_ns, counts) = times_ns.split_at(height);
        for at in rows {
            if counts[at] == 0 || !(from_ns..=to_ns).contains(&times_ns[at]) {
                continue;
            }
            row.fill(plan, |column| values[column * height + at]);
            if visit.sample(&row.sample(times_ns[at])).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads what is wanted of a chunk. Returns which rows are of the line, and by which plan they are.
    fn fill(&mut self, place: &Place) -> Result<(Range<usize>, usize), StoreError> {
        let Self { wanted, plans, layout, buffers: Buffers { pieces, times_ns, values, .. }, .. } = self;
        let plans = plans.get_or_init(|| Plans::new(layout, wanted));
        values.clear();
        let by = plans.find(place.read_columns(0..0, pieces, values)?.head().columns);
        let by = by.ok_or_else(|| place.damaged(Damage::Wrong("a rollup's columns")))?;
        let plan = &plans.0[by];
        for run in neighbours(&plan.columns) {
            place.read_columns(run, pieces, values)?;
        }
        times_ns.clear();
        let chunk = place.read_columns(plan.time..plan.time + 2, pieces, times_ns)?;
        Ok((rows_of(&chunk, wanted.line), by))
    }

    fn take_all<'p>(
        &mut self,
        mut places: impl Iterator<Item = &'p Place>,
        (from_ns, to_ns): (u64, u64),
    ) -> Result<ControlFlow<()>, StoreError> {
        let taken = places.try_for_each(|place| match self.take(place, from_ns, to_ns) {
            Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
            Ok(flow) => ControlFlow::Break(Ok(flow)),
            Err(error) => ControlFlow::Break(Err(error)),
        });
        taken.break_value().unwrap_or(Ok(ControlFlow::Continue(())))
    }

    /// Takes all of these chunks, or none if some are damaged: these.
    fn try_take<'p>(
        &mut self,
        places: &'p [Place],
        time: (u64, u64),
    ) -> Result<Result<ControlFlow<()>, Vec<&'p Place>>, StoreError> {
        let mut damaged = Vec::new();
        // One that is alone gives nothing if it is damaged.
        for place in places.iter().filter(|_| places.len() > 1) {
            match self.fill(place) {
                Err(StoreError::Damaged { .. }) => damaged.push(place),
                filled => _ = filled?,
            }
        }
        if !damaged.is_empty() {
            return Ok(Err(damaged));
        }
        match self.take_all(places.iter(), time) {
            Err(StoreError::Damaged { .. }) if places.len() == 1 => Ok(Err(vec![&places[0]])),
            taken => taken.map(Ok),
        }
    }
}

impl Store {
    /// As [`Store::read`], but of a time of which there are rollups with buckets of `width_ns` at most, or no raw rows
    /// any more, a sample for each bucket.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn read_coarse(
        &self,
        wanted: &Columns,
        width_ns: u64,
        from_ns: u64,
        to_ns: u64,
        mut visit: impl FnMut(&Sample<'_>) -> ControlFlow<()>,
    ) -> Result<Vec<Gap>, StoreError> {
        self.read_coarse_with(None, wanted, width_ns, from_ns, to_ns, &mut visit)
    }

    /// As [`Store::read_coarse`] with no width, by what is decoded already: what of raw rows is decoded for it is kept.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn read_decoded(
        &self,
        decoded: &Decoded,
        wanted: &Columns,
        from_ns: u64,
        to_ns: u64,
        visit: &mut impl Visit,
    ) -> Result<Vec<Gap>, StoreError> {
        self.read_coarse_with(Some(decoded), wanted, 0, from_ns, to_ns, visit)
    }

    fn read_coarse_with(
        &self,
        decoded: Option<&Decoded>,
        wanted: &Columns,
        width_ns: u64,
        from_ns: u64,
        to_ns: u64,
        visit: &mut impl Visit,
    ) -> Result<Vec<Gap>, StoreError> {
        let Some(layout) = self.known().layout_of(wanted.track).cloned() else { return Ok(Vec::new()) };
        let width = layout.kinds().len();
        if wanted.words.iter().chain(&wanted.time).any(|word| *word >= width) {
            return Ok(Vec::new());
        }
        let (plans, buffers, row) = Default::default();
        let mut buckets = Buckets { wanted, decoded, plans, layout, buffers, row, visit };
        let answers = self.levels(wanted.track, width_ns, (from_ns, to_ns), &[]);
        let mut gaps = self.lost(wanted.track, &answers.left);
        // Who has heard enough is told of all gaps that are known.
        let _ = self.answer(&mut buckets, width_ns, answers, &[], &mut gaps)?;
        Ok(gaps)
    }

    /// Reads what `answers` says. Times of damaged chunks are answered by other levels than these, and their own.
    fn answer<V: Visit>(
        &self,
        buckets: &mut Buckets<'_, V>,
        width_ns: u64,
        answers: Answers,
        without: &[Level],
        gaps: &mut Vec<Gap>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let (wanted, mut flow) = (buckets.wanted, ControlFlow::Continue(()));
        for Answer { level, from_ns, to_ns, is_whole } in answers.levels {
            if level == Level::Raw {
                let (lost, wants) = self.read_with(buckets.decoded, wanted, from_ns, to_ns, buckets.visit)?;
                gaps.extend(lost);
                flow = wants;
            } else {
                let without: Vec<Level> = without.iter().copied().chain([level]).collect();
                let mut pieces = self.0.chunks.pieces(level, wanted.track, from_ns, to_ns)?;
                // What has become whole since counts in any case.
                pieces.retain(|piece| piece.is_whole || !is_whole);
                for piece in pieces.iter().filter(|piece| !piece.is_whole) {
                    gaps.extend(missing(wanted, piece, clipped(piece.span(level.piece_ns()), (from_ns, to_ns))));
                }
                let mut places: Vec<Place> = pieces.into_iter().flat_map(|piece| piece.chunks).collect();
                // A line that goes on in the next chunk of its piece is told in order.
                places.sort_by_key(|place| (place.chunk().from_ns / level.piece_ns(), place.chunk().arrival()));
                for places in side_by_side(&places, level.piece_ns()) {
                    flow = match buckets.try_take(places, (from_ns, to_ns))? {
                        Ok(flow) => flow,
                        Err(damaged) => {
                            let time = clipped(covered(places, level.piece_ns()), (from_ns, to_ns));
                            let other = self.levels(wanted.track, width_ns, time, &without);
                            self.instead(buckets, width_ns, (places, &damaged, time), other, &without, gaps)?
                        }
                    };
                    if flow.is_break() {
                        break;
                    }
                }
            }
            if flow.is_break() {
                break;
            }
        }
        Ok(flow)
    }

    /// Reads other levels instead of chunks of which some are damaged, unless these are all that is left of a part of
    /// the time, or others have parts of pieces only: then the good ones of them.
    fn instead<V: Visit>(
        &self,
        buckets: &mut Buckets<'_, V>,
        width_ns: u64,
        (places, damaged, time): (&[Place], &[&Place], (u64, u64)),
        other: Answers,
        without: &[Level],
        gaps: &mut Vec<Gap>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let is_all = other.left.is_empty() && other.levels.iter().all(|answer| answer.is_whole);
        let is_instead = is_all || damaged.len() == places.len();
        let whole = [time];
        let lost = if is_instead { &other.left[..] } else { &whole };
        gaps.extend(damaged.iter().flat_map(|place| gaps_of(buckets.wanted.track, place, lost)));
        if is_instead {
            return self.answer(buckets, width_ns, other, without, gaps);
        }
        let is_good = |place: &&Place| !damaged.iter().any(|bad| bad.chunk() == place.chunk());
        buckets.take_all(places.iter().filter(is_good), time)
    }

    /// Gaps of times that no level has, where rollups are lost.
    fn lost(&self, track: TrackId, left: &[(u64, u64)]) -> Vec<Gap> {
        let gaps = lock(&self.0.gaps);
        let of_time = |(from_ns, to_ns): &(u64, u64)| {
            let (from_ns, to_ns) = (*from_ns, *to_ns);
            let clipped = move |gap: Gap| Gap { from_ns: gap.from_ns.max(from_ns), to_ns: gap.to_ns.min(to_ns), ..gap };
            gaps.lost(track, from_ns, to_ns).into_iter().map(clipped)
        };
        left.iter().flat_map(of_time).collect()
    }

    /// Which level to read, of which time, ascending, without some.
    fn levels(&self, track: TrackId, width_ns: u64, (from_ns, to_ns): (u64, u64), without: &[Level]) -> Answers {
        let bucket_ns = |level: Level| u64::from(level.bucket_s()) * SECOND_NS;
        // Buckets that are not whole within that time are left to finer levels.
        let fine = Level::ALL.into_iter().rev().filter(|level| bucket_ns(*level) <= width_ns);
        let fine = fine.map(|level| (level, bucket_ns(level).max(1), true));
        let any = Level::ALL.into_iter().map(|level| (level, 1, true));
        // What of a piece is there is better than nothing.
        let parts = Level::ALL.into_iter().skip(1).map(|level| (level, 1, false));
        let (mut left, mut levels) = (vec![(from_ns, to_ns)], Vec::new());
        for (level, unit_ns, is_whole) in fine.chain(any).chain(parts).filter(|(level, ..)| !without.contains(level)) {
            if left.is_empty() {
                break;
            }
            let mut covered = match level {
                Level::Raw => vec![(self.raw_since_ns(track), u64::MAX)],
                _ => self.0.chunks.covered(level, track, level.piece_ns(), (from_ns, to_ns), is_whole),
            };
            let begin_ns = from_ns.div_ceil(unit_ns).saturating_mul(unit_ns);
            let end_ns = to_ns.saturating_add(1) / unit_ns * unit_ns;
            covered.iter_mut().for_each(|time| *time = (time.0.max(begin_ns), time.1.min(end_ns.saturating_sub(1))));
            covered.retain(|(begin_ns, end_ns)| begin_ns <= end_ns);
            let mut take = |from_ns, to_ns| levels.push(Answer { level, from_ns, to_ns, is_whole });
            left = left.into_iter().flat_map(|time| uncovered(time, &covered, &mut take)).collect();
        }
        levels.sort_unstable_by_key(|answer| answer.from_ns);
        Answers { levels, left }
    }

    /// Since when there are raw rows, or nothing but raw rows.
    pub(super) fn raw_since_ns(&self, track: TrackId) -> u64 {
        let in_memory = lock(&self.0.rows).tracks.get(&track).and_then(super::rows::Track::extent);
        let in_memory = in_memory.map(|rows| rows.from_ns.saturating_sub(LATE_NS));
        let first_ns = |level: &Level| self.0.chunks.first_ns(*level, track, 0, false);
        let raw_ns = in_memory.into_iter().chain(first_ns(&Level::Raw)).min().unwrap_or(u64::MAX);
        let rolled_ns = Level::ALL[1..].iter().filter_map(first_ns).min().unwrap_or(u64::MAX);
        let has_lost = || !lock(&self.0.gaps).lost(track, 0, raw_ns).is_empty();
        if rolled_ns < raw_ns || has_lost() { raw_ns } else { 0 }
    }
}

/// Who has what.
struct Answers {
    levels: Vec<Answer>,
    /// Times that no level has.
    left: Vec<(u64, u64)>,
}

/// A level, and the time that it is read of.
struct Answer {
    level: Level,
    from_ns: u64,
    to_ns: u64,
    /// Of pieces that are whole; else of what there is of others.
    is_whole: bool,
}

/// Where something of a piece's time may be missing: a line of a table may be in any of its chunks.
fn missing(wanted: &Columns, piece: &Piece, time: (u64, u64)) -> Vec<Gap> {
    let is_table = wanted.line != Line::ONLY;
    let chunks = piece.chunks.iter().filter(|_| !is_table).map(Place::chunk);
    let there: Vec<(u64, u64)> = chunks.map(|chunk| (chunk.from_ns, chunk.to_ns)).collect();
    let left = uncovered(time, &there, &mut |_, _| {});
    left.into_iter().map(|(from_ns, to_ns)| gap(wanted.track, from_ns, to_ns)).collect()
}

/// Those of these times that a damaged chunk has lost.
fn gaps_of(track: TrackId, place: &Place, times: &[(u64, u64)]) -> Vec<Gap> {
    let of_chunk = (place.chunk().from_ns, place.chunk().to_ns);
    let times = times.iter().map(|time| clipped(*time, of_chunk)).filter(|(from_ns, to_ns)| from_ns <= to_ns);
    times.map(|(from_ns, to_ns)| gap(track, from_ns, to_ns)).collect()
}

fn clipped(time: (u64, u64), to: (u64, u64)) -> (u64, u64) {
    (time.0.max(to.0), time.1.min(to.1))
}

/// What these chunks cover, in whole multiples of a length.
fn covered(places: &[Place], unit_ns: u64) -> (u64, u64) {
    let from_ns = places.iter().map(|place| place.chunk().from_ns).min().unwrap_or(0);
    let to_ns = places.iter().map(|place| place.chunk().to_ns).max().unwrap_or(0);
    span(from_ns, to_ns, unit_ns)
}

/// Groups of chunks of one piece, as those of a large table, which may have lines of different times; they ascend.
fn side_by_side(places: &[Place], piece_ns: u64) -> impl Iterator<Item = &[Place]> {
    let mut last_piece = 0;
    places.chunk_by(move |one, next| {
        last_piece = last_piece.max(one.chunk().to_ns / piece_ns);
        next.chunk().from_ns / piece_ns <= last_piece
    })
}

/// What of a time is not covered; what is goes to `take`. `covered` ascends.
fn uncovered((from_ns, to_ns): (u64, u64), covered: &[(u64, u64)], take: &mut impl FnMut(u64, u64)) -> Vec<(u64, u64)> {
    let (mut left, mut at_ns) = (Vec::new(), from_ns);
    for (begin_ns, end_ns) in covered.iter().filter(|(begin_ns, end_ns)| *end_ns >= from_ns && *begin_ns <= to_ns) {
        if *begin_ns > at_ns {
            left.push((at_ns, begin_ns - 1));
        }
        take(at_ns.max(*begin_ns), to_ns.min(*end_ns));
        if *end_ns >= to_ns {
            return left;
        }
        at_ns = at_ns.max(end_ns + 1);
    }
    left.push((at_ns, to_ns));
    left
}
