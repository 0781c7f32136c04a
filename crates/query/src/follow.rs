// SPDX-License-Identifier: Apache-2.0
//! All samples of chosen series, in slices of time, for whoever keeps them elsewhere: what PromQL would read, with the
//! same ends, the same values told again and the same one of several equal series.
//!
//! ```text
//! rows of a track since its cursor ─► part      Out, once a part: which samples there are, of all its series
//!                                               Own, once a series: what is taken of the rows
//!                                     thin      one sample a quantum
//!                                     holders   where tracks have the same series: merged by time and rank
//!                                     taker     whoever wants them
//! ```
//!
//! A follower belongs to one thread. A row is read once, whole; what its parts have in common is decided once a part.
//! Each track has a cursor of its own, so that a row that comes late goes with a later slice. Samples of a series come
//! in the order of their times; what is not later than the last one is left out.
//!
//! **Cost.** A slice reads the heads and chunks that touch it; 10 to 20 ns a sample. Memory: names of what goes on now,
//! some 300 bytes a series, and the rows of one track and slice.

mod holders;
mod part;
mod taker;
mod thin;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::marker::PhantomData;
use std::ops::ControlFlow;

use onlooker_framestore::catalogue::HostId;
use onlooker_framestore::damage::StoreError;
use onlooker_framestore::types::{Line, TrackId};
use onlooker_framestore::{Named, Store};
use onlooker_promql::labels::{BUCKET, Matcher, NAME};
use onlooker_promql::source::SourceError;
use onlooker_series::rank::Rank;
use onlooker_series::series::EntityKey;

use holders::Holders;
use part::{Block, Own, Part};
use taker::Nobody;
pub use taker::Taker;

use crate::exported::{Reading, each_name, exported};
use crate::select::Wanted;
use crate::tracks::{LINE_SILENCE_NS, MAX_SILENCE_NS, SILENCE_NS, Tracks};

/// What a track had so long before says what goes on; if that is nothing, what it had [`MAX_SILENCE_NS`] before.
const BEFORE_NS: u64 = LINE_SILENCE_NS;
/// How long a track may be silent is looked up again after this time: hosts are read faster or slower then.
const SILENCE_STANDS_NS: u64 = 60_000_000_000;

/// What became of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// The taker has broken it off: the follower is of no use any more.
    pub is_broken: bool,
    /// Chunks of rows that were damaged.
    pub damaged: u64,
}

/// Follows a store.
pub struct Follower<A> {
    store: Store,
    /// A series is followed that one of them takes; none: all are.
    wanted: Vec<Wanted>,
    /// One sample of a series in this time, the last.
    quantum_ns: u64,
    /// All rows up to here were handed on.
    done_ns: u64,
    is_first: bool,
    tracks: BTreeMap<TrackId, Track<A>>,
    holders: Holders<A>,
    /// Of regions of programs the first track, as far as it was looked for in this slice.
    oldest: HashMap<(HostId, u64), TrackId>,
}

struct Track<A> {
    cursor_ns: u64,
    /// None of its series is wanted.
    is_idle: bool,
    /// How long it may be silent, if it has no lines, and up to which time that stands.
    silence_ns: (u64, u64),
    lines: BTreeMap<Line, Vec<Part<A>>>,
}

impl<A: Clone> Follower<A> {
    /// Follows what one of `selectors` matches, or all without one, from behind `done_ns` on. Of each series one sample
    /// in `quantum_ns`.
    ///
    /// # Errors
    /// An expression that is none.
    pub fn new(store: Store, selectors: &[Vec<Matcher>], quantum_ns: u64, done_ns: u64) -> Result<Self, SourceError> {
        let wanted = selectors.iter().map(|matchers| Wanted::new(matchers)).collect::<Result<_, _>>()?;
        Ok(Self {
            store,
            wanted,
            quantum_ns: quantum_ns.max(1),
            done_ns,
            is_first: true,
            tracks: BTreeMap::new(),
            holders: Holders::new(),
            oldest: HashMap::new(),
        })
    }

    /// Up to when all rows were handed on, UTC ns.
    #[must_use]
    pub fn done_ns(&self) -> u64 {
        self.done_ns
    }

    /// Series that go on.
    #[must_use]
    pub fn series(&self) -> usize {
        self.holders.series()
    }

    /// Goes on where the oldest rows are, if all of a longer time than `least_ns` before have gone. Returns that time,
    /// both ends included. A shorter one may be that before the first row ever.
    pub fn skip_gone(&mut self, least_ns: u64) -> Option<(u64, u64)> {
        let tracks: Vec<TrackId> = self.store.known().tracks().collect();
        let first_ns = tracks.into_iter().filter_map(|track| Some(self.store.extent(track)?.from_ns)).min()?;
        let gone = (self.done_ns + 1, first_ns.checked_sub(1)?);
        (gone.0.saturating_add(least_ns) < gone.1).then(|| {
            self.done_ns = gone.1;
            gone
        })
    }

    /// Hands on all rows up to a time, UTC ns, that were not yet.
    ///
    /// # Errors
    /// [`StoreError::Io`]; the follower is of no use any more.
    pub fn advance<T: Taker<About = A>>(&mut self, to_ns: u64, taker: &mut T) -> Result<Slice, StoreError> {
        let mut slice = Slice::default();
        let since_ns = if self.is_first { self.done_ns.saturating_sub(MAX_SILENCE_NS) } else { self.done_ns };
        self.is_first = false;
        let mut tracks: Vec<TrackId> = self.store.known().tracks().collect();
        tracks.sort_unstable();
        for track in tracks {
            if !self.tracks.contains_key(&track) && self.store.newest_ns(track) > Some(since_ns) {
                slice.damaged += self.begin(track, taker)?;
            }
        }
        // Of several tracks that had a series before, which one is shown.
        let _ = self.holders.settle(self.quantum_ns, &mut Nobody(PhantomData));
        let tracks: Vec<TrackId> = self.tracks.keys().copied().collect();
        for id in tracks {
            let Some(mut track) = self.tracks.remove(&id) else { continue };
            let (flow, damaged) = self.follow(id, &mut track, to_ns, taker)?;
            slice.damaged += damaged;
            if flow.is_break() {
                slice.is_broken = true;
                return Ok(slice);
            }
            let is_over = track.lines.is_empty() && self.store.newest_ns(id) <= Some(to_ns);
            if !is_over {
                self.tracks.insert(id, track);
            }
        }
        self.oldest.clear();
        slice.is_broken = self.holders.settle(self.quantum_ns, taker).is_break();
        self.done_ns = to_ns;
        Ok(slice)
    }

    /// Whether a series of a track may be wanted.
    fn may_want(&self, track: TrackId) -> bool {
        let known = self.store.known();
        // Nobody who is forwarded to knows native histograms.
        if known.track(track).is_none_or(|track| track.source == EntityKey::RECORDED_NATIVE) {
            return false;
        }
        let Some(layout) = known.layout_of(track) else { return false };
        let mut is_wanted = self.wanted.is_empty();
        for series in layout.parts().iter().flat_map(|placed| &placed.part.series) {
            each_name(series, |name| is_wanted |= self.wanted.iter().any(|wanted| wanted.takes_name(name)));
        }
        is_wanted
    }

    /// Begins with a track: what it had just before says what goes on.
    fn begin<T: Taker<About = A>>(&mut self, id: TrackId, taker: &mut T) -> Result<u64, StoreError> {
        let (cursor_ns, is_idle) = (self.done_ns, !self.may_want(id));
        let mut track = Track { cursor_ns, is_idle, silence_ns: (0, 0), lines: BTreeMap::new() };
        let mut damaged = 0;
        if !track.is_idle && self.store.known().layout_of(id).is_some_and(|layout| !layout.is_table()) {
            self.enter(id, &mut track, &BTreeSet::from([Line::ONLY]), taker);
            track.is_idle = track.lines.values().all(Vec::is_empty);
        }
        if track.is_idle {
            track.lines.clear();
        } else {
            let mut blocks = BTreeMap::new();
            // Rows of a host that is read seldom are further back.
            for before_ns in [BEFORE_NS, MAX_SILENCE_NS] {
                if blocks.is_empty() {
                    (blocks, damaged) = self.rows(id, self.done_ns.saturating_sub(before_ns), self.done_ns)?;
                }
            }
            self.enter(id, &mut track, &blocks.keys().copied().collect(), taker);
            let of_rows_ns = self.silence_ns(id, &mut track, self.done_ns)?;
            for (line, block) in &blocks {
                for part in track.lines.get_mut(line).into_iter().flatten() {
                    part.feed(block, of_rows_ns);
                    part.out.pass(self.done_ns + 1);
                    let _ = part.give(block, self.quantum_ns, &mut self.holders, &mut Nobody(PhantomData));
                }
            }
        }
        self.tracks.insert(id, track);
        Ok(damaged)
    }

    fn silence_ns(&self, id: TrackId, track: &mut Track<A>, now_ns: u64) -> Result<u64, StoreError> {
        if now_ns >= track.silence_ns.1 {
            let silence_ns = Tracks::new(&self.store).silence_of_rows_ns(id, now_ns)?;
            track.silence_ns = (silence_ns, now_ns.saturating_add(SILENCE_STANDS_NS));
        }
        Ok(track.silence_ns.0)
    }

    /// Rows of a track of a time, line by line, and how many chunks of them were damaged.
    fn rows(&self, id: TrackId, from_ns: u64, to_ns: u64) -> Result<(BTreeMap<Line, Block>, u64), StoreError> {
        let mut blocks: BTreeMap<Line, Block> = BTreeMap::new();
        let damaged = self.store.rows(id, from_ns, to_ns, |line, time_ns, words| {
            let block = blocks.entry(line).or_default();
            block.times_ns.push(time_ns);
            block.words.extend_from_slice(words);
            ControlFlow::Continue(())
        })?;
        Ok((blocks, damaged.len() as u64))
    }

    /// Names the series of lines that are new.
    fn enter<T: Taker<About = A>>(&mut self, id: TrackId, track: &mut Track<A>, lines: &BTreeSet<Line>, taker: &mut T) {
        let new: BTreeSet<Line> = lines.iter().filter(|line| !track.lines.contains_key(line)).copied().collect();
        if new.is_empty() {
            return;
        }
        for named in self.store.series_of_track(id, &new) {
            let part = self.part(&named, taker);
            let parts = track.lines.entry(named.columns.line).or_default();
            parts.extend(part);
        }
    }

    fn part<T: Taker<About = A>>(&mut self, named: &Named, taker: &mut T) -> Option<Part<A>> {
        let (mut own, rank) = (Vec::new(), self.rank(named));
        let is_recorded = named.source == EntityKey::RECORDED;
        for series in &named.series {
            for exported in exported(series) {
                if !self.wanted.is_empty() && !self.wanted.iter().any(|wanted| wanted.takes(series, &exported)) {
                    continue;
                }
                let labels = series.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
                let more =
                    [(NAME.to_owned(), exported.name)].into_iter().chain(exported.le.map(|le| (BUCKET.to_owned(), le)));
                let Some((key, about)) = taker.name(labels.chain(more).collect(), series) else { continue };
                let holder = self.holders.lane(key.into(), rank, &about);
                let reading = if is_recorded { Reading::Recorded } else { exported.reading };
                let words = exported.words;
                own.push(Own { holder, about, words, reading });
            }
        }
        let is_line = named.columns.line != Line::ONLY;
        let floor_ns = self.done_ns.saturating_sub(SILENCE_NS);
        (!own.is_empty()).then(|| Part::new(own, is_line, is_recorded, named.columns.time, floor_ns))
    }

    /// Region by region the older one is shown, as in `select`.
    fn rank(&mut self, named: &Named) -> Rank {
        let track = named.columns.track;
        let rank = |since: TrackId| Rank::of_source(named.source, named.acquisition, since.0.into());
        if !matches!(rank(track), Rank::Programs { .. }) {
            return rank(track);
        }
        let host = {
            let known = self.store.known();
            known.track(track).and_then(|track| Some((track.host, known.host(track.host)?.0.to_owned())))
        };
        let Some((host, name)) = host else { return rank(track) };
        if !self.oldest.contains_key(&(host, named.source)) {
            let oldest = self.store.oldest_tracks(&name).into_iter();
            self.oldest.extend(oldest.map(|(source, track)| ((host, source), track)));
        }
        rank(self.oldest.get(&(host, named.source)).copied().unwrap_or(track))
    }

    /// Hands on a track's rows; what its rivals have, too, waits for the end of the slice.
    fn follow<T: Taker<About = A>>(
        &mut self,
        id: TrackId,
        track: &mut Track<A>,
        to_ns: u64,
        taker: &mut T,
    ) -> Result<(ControlFlow<()>, u64), StoreError> {
        if track.is_idle {
            return Ok((ControlFlow::Continue(()), 0));
        }
        let (blocks, damaged) = self.rows(id, track.cursor_ns + 1, to_ns)?;
        let newest_ns = blocks.values().flat_map(|block| block.times_ns.iter().copied()).max();
        track.cursor_ns = track.cursor_ns.max(newest_ns.unwrap_or(0));
        self.enter(id, track, &blocks.keys().copied().collect(), taker);
        let none = Block::default();
        let (mut over, of_rows_ns) = (Vec::new(), self.silence_ns(id, track, to_ns)?);
        for (line, parts) in &mut track.lines {
            let block = blocks.get(line).unwrap_or(&none);
            for part in &mut *parts {
                part.feed(block, of_rows_ns);
                part.out.pass(to_ns + 1);
                if part.give(block, self.quantum_ns, &mut self.holders, taker).is_break() {
                    return Ok((ControlFlow::Break(()), damaged));
                }
            }
            if block.times_ns.is_empty() && parts.iter().all(|part| !part.out.goes_on()) {
                over.push(*line);
            }
        }
        // A track that has rows later on is not over.
        if self.store.newest_ns(id) <= Some(to_ns) || over.iter().any(|line| *line != Line::ONLY) {
            for line in over {
                let parts = track.lines.remove(&line).unwrap_or_default();
                parts.iter().flat_map(|part| &part.own).for_each(|own| self.holders.leave(&own.holder));
            }
        }
        Ok((ControlFlow::Continue(()), damaged))
    }
}

#[cfg(test)]
mod tests;
