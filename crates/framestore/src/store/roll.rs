// SPDX-License-Identifier: Apache-2.0
//! Rollups: rows that are in chunks become rows of 1 s, 10 s and 60 s, in the writer's turns, a piece at a time.
//!
//! A level's *windows* are whole multiples of a length in UTC ([`Level`]), and are rolled up piece by piece; pieces are
//! the windows of the level before. A window is due when it is over and no row of its time is in memory any more, where
//! a sample may come [`LATE_NS`] later than it was acquired. One that comes later still, since a clock was set back, is
//! in raw rows only. Pieces of a window are merged: of a minute each they took 0.48 bytes a series and second, of ten
//! minutes 0.37, before there were rates. Raw chunks are not: from 512 rows to 1,024 is 2 %, at 1 s. Cost: 6 ns a raw
//! value for all levels, where all counters move.
//!
//! **After a kill** nothing is there twice, and nothing is missing. What is done is what the pieces of the level say
//! that are whole (`warm/piece.rs`); before the first rows that are left, those of coarser levels. One of which only a
//! part is there is made again, as a whole, and from then on that part does not count; unless it has what cannot be made
//! again. Gaps that were found are written before what has them. Nothing is synced here: rows go by age only when what
//! was made of them is durable (`age.rs`).
//!
//! **A clock that was ahead** leaves chunks of a time that has not come. So the next window is the first one of which
//! there is none, whatever there is behind it, and ends where there is some of it. Rolling up goes on where it was, and
//! of the pieces in which the clock was set later rows are in finer levels only.
//!
//! **What is not rolled up.** Events, which are no numbers; a window whose rows would hardly be fewer (those of a host
//! that is read each second have no level of 1 s); what would be too old at once; tracks whose rows of a rollup would be
//! wider than a chunk may be; tracks that lived for less than [`LEAST_BUCKETS`]: a program that makes its region anew
//! each second has a track each second, and nobody asks for those after months. Windows that are left out after a look
//! at their rows are noted beside the gaps: no restart looks again. Readers find what a level has, and look into the
//! others for what it has not (`coarse.rs`).
//!
//! **Damage.** Where a level that a piece is made of cannot be read, it is made of a finer one that has as much. What
//! none has is not in the rollup, and a gap.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::holes::gap;
use super::rolling::{Job, Rolling};
use super::rows::Track;
use super::turn::Writer;
use super::{lock, steady_ns};
use crate::chunk::{Chunk, Column, Head, max_rows, merge};
use crate::damage::{Damage, StoreError};
use crate::framing::HEADER_BYTES;
use crate::gaps::of_level;
use crate::layout::Layout;
use crate::rollup::{fits, raw_shape, roll};
use crate::types::{LATE_NS, Line, SECOND_NS, TrackId};
use crate::warm::{self, Level, Place};

/// A chunk behind which there was nothing for so long says nothing of what a counter has done since.
const BEFORE_NS: u64 = 900 * SECOND_NS;
/// Buckets that a track lives at least, to be rolled up.
const LEAST_BUCKETS: u64 = 4;
/// A turn rolls up for so long, and then a piece more at most.
const MOST_TIME: Duration = Duration::from_millis(50);
/// Tracks are looked through so often.
const LOOK_NS: u64 = if cfg!(test) { 1 } else { 30 * SECOND_NS };

impl Writer {
    /// Rolls up what is due.
    ///
    /// # Errors
    /// [`StoreError::Io`]; the next turn tries again.
    pub(super) fn roll(&mut self) -> Result<(), StoreError> {
        let (begin, now_ns) = (Instant::now(), steady_ns());
        let Rolling { queue, due, looked_ns, .. } = &self.rolling;
        if queue.is_empty() && due.is_empty() && now_ns.saturating_sub(*looked_ns) >= LOOK_NS {
            self.rolling.looked_ns = now_ns;
            self.look_through();
        }
        while begin.elapsed() < MOST_TIME && self.roll_some()? {}
        Ok(())
    }

    /// Rolls up a piece, or looks whether a track has something to be rolled up; false: nothing is left. All tracks are
    /// looked at before a level is made, so that the oldest window comes first.
    fn roll_some(&mut self) -> Result<bool, StoreError> {
        if let Some(mut job) = self.rolling.job.take() {
            self.roll_piece(&mut job)?;
            if job.at_ns < job.end_ns {
                self.rolling.job = Some(job);
            } else {
                self.finish(job)?;
                // What it lacks, and then itself: the next level may be made of it in this turn.
                self.gaps.write()?;
                self.warm.write()?;
            }
            return Ok(true);
        }
        let Rolling { queue, due, .. } = &mut self.rolling;
        let next = queue.front().copied().filter(|(level, _)| due.first().is_none_or(|(of, ..)| of == level));
        if let Some((level, track)) = next {
            queue.pop_front();
            let end_ns = self.due(level, track).map(|job| job.end_ns);
            self.rolling.due.extend(end_ns.map(|end_ns| (level, end_ns, track)));
            return Ok(true);
        }
        let Some((level, _, track)) = due.pop_first() else { return Ok(false) };
        self.rolling.job = self.due(level, track);
        Ok(true)
    }

    /// When the oldest window of a level was over that is due and is not rolled up, as far as tracks were looked at.
    pub(super) fn oldest_due_ns(&self, level: Level) -> Option<u64> {
        let Rolling { due, job, .. } = &self.rolling;
        let waiting = due.range((level, 0, TrackId(0))..).next().filter(|(of, ..)| *of == level);
        let under_way = job.as_ref().filter(|job| job.level == level).map(|job| job.end_ns);
        waiting.map(|(_, end_ns, _)| *end_ns).into_iter().chain(under_way).min()
    }

    fn look_through(&mut self) {
        let reader = self.warm.reader();
        let tracks: HashSet<TrackId> = Level::Minute.finer().flat_map(|level| reader.tracks(level)).collect();
        self.rolling.done_ns.retain(|(_, track), _| tracks.contains(track));
        let mut tracks: Vec<TrackId> = tracks.into_iter().collect();
        let known = self.catalogue.look();
        let is_rolled = |layout: &Arc<Layout>| !layout.are_events() && fits(layout);
        tracks.retain(|track| known.layout_of(*track).is_some_and(is_rolled));
        drop(known);
        tracks.sort_unstable();
        let levels = Level::ALL.into_iter().skip(1);
        self.rolling.queue = levels.flat_map(|level| tracks.iter().map(move |track| (level, *track))).collect();
    }

    /// The next window of a track, if it is over.
    fn due(&mut self, level: Level, track: TrackId) -> Option<Job> {
        let Range { start: at_ns, end: end_ns } = self.next(level, track)?;
        let finer = level.finer().next()?;
        let is_due = end_ns <= self.complete_ns(finer, track) && self.is_worth_it(level, track);
        let is_kept = end_ns - at_ns < level.window_ns();
        is_due.then(|| Job { level, track, from_ns: at_ns, at_ns, end_ns, pieces: Vec::new(), is_kept })
    }

    fn is_worth_it(&self, level: Level, track: TrackId) -> bool {
        let reader = self.warm.reader();
        let first_ns = Level::ALL.into_iter().filter_map(|level| reader.first_ns(level, track, 0, false)).min();
        let in_chunks = Level::ALL.into_iter().filter_map(|level| reader.newest_ns(level, track)).max();
        let last_ns = lock(&self.shared.rows).newest_ns(track).max(in_chunks).unwrap_or(0);
        last_ns.saturating_sub(first_ns.unwrap_or(last_ns)) >= LEAST_BUCKETS * u64::from(level.bucket_s()) * SECOND_NS
    }

    /// The next window that has rows, or what of one is not there yet.
    fn next(&mut self, level: Level, track: TrackId) -> Option<Range<u64>> {
        let (reader, window_ns, now_ns) = (self.warm.reader(), level.window_ns(), self.utc_ns());
        let known_ns = self.rolling.done_ns.get(&(level, track)).copied();
        let kept_ns = self.trusted.utc_ns.min(now_ns).saturating_sub(self.config.keep_ns[level as usize]);
        let kept_ns = kept_ns - kept_ns % window_ns;
        let mut done_ns = known_ns.filter(|known_ns| *known_ns <= now_ns).unwrap_or(0).max(kept_ns);
        let come_ns = self.complete_ns(Level::Raw, track);
        let there_of = |of: Level, to_ns| reader.covered(of, track, level.piece_ns(), (done_ns, to_ns), true);
        let mut there = there_of(level, come_ns);
        there.extend(self.gaps.left_out(level.bucket_s(), track, done_ns));
        // What coarser levels have, a power loss may have taken from this one: it is made again. But not of the rest of
        // rows that have gone.
        let begin_ns = level.finer().filter_map(|finer| reader.first_ns(finer, track, 0, false)).min();
        let whole_ns = begin_ns.unwrap_or(0).div_ceil(level.piece_ns()).saturating_mul(level.piece_ns()).min(come_ns);
        if done_ns < whole_ns {
            let coarser = Level::ALL.into_iter().filter(|of| *of > level);
            let coarser = coarser.flat_map(|of| there_of(of, whole_ns - 1));
            there.extend(coarser.map(|(from_ns, to_ns)| (from_ns, to_ns.min(whole_ns - 1))));
        }
        there.sort_unstable();
        let mut there = there.into_iter().peekable();
        let next = loop {
            let first_ns = |finer| reader.first_ns(finer, track, done_ns, false);
            let Some(first_ns) = level.finer().filter_map(first_ns).min() else { break None };
            let at_ns = done_ns.max(first_ns - first_ns % window_ns);
            while there.next_if(|(_, last_ns)| *last_ns < at_ns).is_some() {}
            let end_ns = (at_ns / window_ns + 1) * window_ns;
            match there.peek() {
                Some((from_ns, last_ns)) if *from_ns <= at_ns => done_ns = last_ns + 1,
                there => break Some(at_ns..there.map_or(end_ns, |(from_ns, _)| end_ns.min(*from_ns))),
            }
        };
        self.done(level, track, done_ns);
        next
    }

    /// Notes up to when a level is done, as far as all rows have come.
    fn done(&mut self, level: Level, track: TrackId, done_ns: u64) {
        let come_ns = self.complete_ns(Level::Raw, track);
        self.rolling.done_ns.insert((level, track), done_ns.min(come_ns - come_ns % level.piece_ns()));
    }

    /// Before this time a level is complete.
    fn complete_ns(&mut self, level: Level, track: TrackId) -> u64 {
        let Some(finer) = level.finer().next() else {
            let in_memory = lock(&self.shared.rows).tracks.get(&track).and_then(Track::extent);
            return in_memory.map_or(u64::MAX, |rows| rows.from_ns).min(self.utc_ns()).saturating_sub(LATE_NS);
        };
        let complete_ns = self.complete_ns(finer, track);
        self.next(level, track).map_or(complete_ns, |next| next.start.min(complete_ns))
    }

    fn roll_piece(&mut self, job: &mut Job) -> Result<(), StoreError> {
        let Job { level, track, at_ns: from_ns, .. } = *job;
        let reader = self.warm.reader();
        let length_ns = level.piece_ns();
        let to_ns = (from_ns / length_ns + 1) * length_ns;
        let has_rows =
            |of: &Level| reader.first_ns(*of, track, from_ns, false).is_some_and(|first_ns| first_ns < to_ns);
        let source = level.finer().find(has_rows).unwrap_or(Level::Raw);
        let (mut source, mut read) = (source, read_piece(&reader, source, track, from_ns, to_ns)?);
        if !read.is_whole() {
            let begin_ns = |of: Level| reader.first_ns(of, track, from_ns, false).unwrap_or(u64::MAX);
            let has_as_much =
                |of: &Level| begin_ns(*of) < begin_ns(source).saturating_add(u64::from(source.bucket_s()) * SECOND_NS);
            for finer in source.finer().filter(has_as_much).collect::<Vec<_>>() {
                let instead = read_piece(&reader, finer, track, from_ns, to_ns)?;
                if instead.is_whole() {
                    (source, read) = (finer, instead);
                    break;
                }
            }
        }
        read.damaged.iter().for_each(|(from_ns, to_ns)| self.gaps.push_new(&gap(track, *from_ns, *to_ns)));
        // They were checked when they were read.
        let chunks: Vec<Chunk> = read.chunks.iter().filter_map(|bytes| Chunk::parse(bytes).ok()).collect();
        job.at_ns = to_ns;
        job.is_kept |= source > Level::Raw;
        // It was looked at when the track was queued.
        let Some(raw) = self.catalogue.look().layout_of(track).map(|layout| raw_shape(layout)) else { return Ok(()) };
        match roll(&chunks, &raw, from_ns, to_ns, level.bucket_s()) {
            Ok(rolled) if rolled.is_empty() => {
                // Where rows have gone already, rollups have what comes next.
                let begins = |of: Level| reader.first_ns(of, track, to_ns, of == Level::Raw);
                let begins = level.finer().filter_map(begins);
                let next_ns = first_row_ns(&chunks, to_ns).into_iter().chain(begins).min().unwrap_or(0);
                // Parts that are not new have times of long ago.
                let free_ns = next_ns.saturating_sub(LATE_NS);
                job.at_ns = to_ns.max(free_ns - free_ns % length_ns);
                if !read.damaged.is_empty() {
                    self.leave_out(level, track, from_ns..job.at_ns.min(job.end_ns));
                }
            }
            Ok(rolled) => {
                if self.has_more(level, track, from_ns..to_ns, &rolled)? {
                    self.leave_out(level, track, from_ns..to_ns);
                } else {
                    job.pieces.push(rolled);
                }
            }
            Err(_) => {
                self.gaps.push_new(&gap(track, from_ns, to_ns - 1));
                self.leave_out(level, track, from_ns..to_ns);
            }
        }
        Ok(())
    }

    /// Whether what a level has of a piece has samples that these chunks have not: some of what they were made of has
    /// gone or is damaged.
    fn has_more(
        &self,
        level: Level,
        track: TrackId,
        time_ns: Range<u64>,
        rolled: &[Vec<u8>],
    ) -> Result<bool, StoreError> {
        let there = self.warm.reader().pieces(level, track, time_ns.start, time_ns.end - 1)?;
        let (mut of_rolled, mut bytes) = (HashMap::new(), Vec::new());
        for place in there.iter().flat_map(|piece| &piece.chunks) {
            if of_rolled.is_empty() {
                // They were written a moment ago.
                let chunks = rolled.iter().filter_map(|bytes| Chunk::parse(bytes).ok());
                of_rolled.extend(chunks.filter_map(|chunk| samples(&chunk).ok()).flatten());
            }
            let samples =
                place.read(&mut bytes).and_then(|chunk| samples(&chunk).map_err(|damage| place.damaged(damage)));
            match samples {
                Ok(samples) if samples.iter().any(|(row, count)| of_rolled.get(row).is_none_or(|of| of < count)) => {
                    return Ok(true);
                }
                Ok(_) | Err(StoreError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Notes that a level has nothing of a time on purpose, also for those who run after a restart.
    fn leave_out(&mut self, level: Level, track: TrackId, time_ns: Range<u64>) {
        self.gaps.leave_out(&of_level(track, level.bucket_s(), time_ns.start, time_ns.end - 1));
    }

    /// A window is done.
    fn finish(&mut self, job: Job) -> Result<(), StoreError> {
        let Job { level, track, from_ns, at_ns, end_ns, pieces, is_kept } = job;
        let damaged = |damage| StoreError::Damaged { path: self.config.dir.clone(), offset: 0, damage };
        if is_kept || !is_hardly_fewer(&pieces).map_err(damaged)? {
            for chunk in merged(pieces, level.piece_ns()).map_err(damaged)? {
                self.warm.append(level, &chunk).map_err(damaged)?;
            }
        } else {
            self.leave_out(level, track, from_ns..end_ns);
        }
        self.done(level, track, end_ns.max(at_ns));
        self.rolling.queue.push_front((level, track));
        Ok(())
    }
}

/// What a level has of a piece.
#[derive(Default)]
struct Read {
    chunks: Vec<Vec<u8>>,
    /// Times of those that are damaged, and of pieces that are not whole.
    damaged: Vec<(u64, u64)>,
}

impl Read {
    /// Nothing is damaged, and all chunks have the same columns: those of a program before this one may have others.
    fn is_whole(&self) -> bool {
        // They were checked when they were read.
        let mut chunks = self.chunks.iter().filter_map(|bytes| Chunk::parse(bytes).ok());
        let first = chunks.next();
        self.damaged.is_empty() && chunks.all(|chunk| first.as_ref().is_some_and(|first| chunk.is_like(first)))
    }
}

fn read_piece(
    reader: &warm::Reader,
    level: Level,
    track: TrackId,
    from_ns: u64,
    to_ns: u64,
) -> Result<Read, StoreError> {
    let mut read = Read::default();
    let places = if level == Level::Raw {
        reader.between(level, track, from_ns.saturating_sub(BEFORE_NS), to_ns - 1)?
    } else {
        let pieces = reader.pieces(level, track, from_ns, to_ns - 1)?;
        let parts = pieces.iter().filter(|piece| !piece.is_whole);
        read.damaged.extend(parts.map(|piece| piece.span(level.piece_ns())));
        pieces.into_iter().flat_map(|piece| piece.chunks).collect()
    };
    for place in with_one_before(places, from_ns) {
        let mut bytes = Vec::new();
        match place.read(&mut bytes).map(drop) {
            Ok(()) => read.chunks.push(bytes.split_off(HEADER_BYTES)),
            Err(StoreError::Damaged { .. }) => read.damaged.push((place.chunk().from_ns, place.chunk().to_ns)),
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Chunks in the order of arrival, of those from before a time only the last.
fn with_one_before(mut places: Vec<Place>, from_ns: u64) -> Vec<Place> {
    places.sort_by_key(|place| place.chunk().arrival());
    let is_before = |place: &&Place| place.chunk().to_ns < from_ns;
    let last = places.iter().rfind(is_before).map(|place| place.chunk().arrival());
    places.retain(|place| !is_before(&place) || Some(place.chunk().arrival()) == last);
    places
}

/// Earliest time of a row, not before this one.
fn first_row_ns(chunks: &[Chunk], from_ns: u64) -> Option<u64> {
    let mut times_ns = Vec::new();
    // They were checked when they were read.
    chunks.iter().for_each(|chunk| _ = chunk.times(&mut times_ns));
    times_ns.into_iter().filter(|time_ns| *time_ns >= from_ns).min()
}

/// Of each part of a rollup how many samples its rows are of.
fn counts(chunk: &Chunk) -> Result<Vec<Vec<u64>>, Damage> {
    let mut counts = Vec::new();
    for column in 0..chunk.head().columns {
        // It stands behind the part's time.
        if chunk.what(column)? == Column::Time {
            let mut of_part = Vec::new();
            chunk.column(column + 1, &mut of_part)?;
            counts.push(of_part);
        }
    }
    Ok(counts)
}

/// How many samples of all parts each row of a rollup is of.
fn samples(chunk: &Chunk) -> Result<HashMap<(Line, u64), u64>, Damage> {
    let (mut times_ns, counts) = (Vec::new(), counts(chunk)?);
    chunk.times(&mut times_ns)?;
    let lines = chunk.lines().flat_map(|(line, rows)| std::iter::repeat_n(line, rows));
    let of_row = |(at, row): (usize, (Line, u64))| (row, counts.iter().map(|of_part| of_part[at]).sum::<u64>());
    Ok(lines.zip(times_ns).enumerate().map(of_row).collect())
}

/// Whether three buckets of four have one sample only.
fn is_hardly_fewer(pieces: &[Vec<Vec<u8>>]) -> Result<bool, Damage> {
    let (mut rows, mut samples) = (0, 0);
    for bytes in pieces.iter().flatten() {
        let chunk = Chunk::parse(bytes)?;
        rows += chunk.head().rows as u64;
        samples += counts(&chunk)?.iter().map(|of_part| of_part.iter().sum::<u64>()).max().unwrap_or(0);
    }
    Ok(rows * 4 > samples * 3)
}

/// Neighbouring pieces of one chunk each as one chunk: one that spans a time without rows would say that it has that,
/// where a clock was ahead and rows of it come later. Of a piece of several, each stays as it is, so that it is the
/// same when the piece is made again.
fn merged(pieces: Vec<Vec<Vec<u8>>>, piece_ns: u64) -> Result<Vec<Vec<u8>>, Damage> {
    let (mut all, mut group, mut rows, mut next_mark) = (Vec::new(), Vec::<Vec<u8>>::new(), 0, 0);
    for mut piece in pieces {
        let head = piece.first().map(|chunk| Head::parse(chunk)).transpose()?;
        let is_one = piece.len() == 1;
        // Those of a program before this one may have other columns.
        let is_like = |one: &[u8], other: &[u8]| Ok(Chunk::parse(one)?.is_like(&Chunk::parse(other)?));
        let is_like = group.last().zip(piece.first()).map_or(Ok(true), |(last, piece)| is_like(last, piece))?;
        let fits = head.filter(|head| is_one && is_like && rows + head.rows <= max_rows(head.columns));
        let fits = fits.filter(|head| rows == 0 || head.mark == next_mark);
        if fits.is_none() {
            all.extend(merge_some(&group)?);
            (group, rows) = (Vec::new(), 0);
        }
        match head.filter(|_| is_one) {
            Some(head) => {
                (rows, next_mark) = (rows + head.rows, head.mark + piece_ns);
                group.append(&mut piece);
            }
            None => all.append(&mut piece),
        }
    }
    all.extend(merge_some(&group)?);
    Ok(all)
}

fn merge_some(group: &[Vec<u8>]) -> Result<Option<Vec<u8>>, Damage> {
    if group.is_empty() {
        return Ok(None);
    }
    let chunks: Result<Vec<Chunk>, Damage> = group.iter().map(|bytes| Chunk::parse(bytes)).collect();
    merge(&chunks?).map(Some)
}

#[cfg(test)]
mod tests;
