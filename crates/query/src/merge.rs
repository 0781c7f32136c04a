// SPDX-License-Identifier: Apache-2.0
//! The lanes of a series as one: times rise, one sample a time, and a marker only where no lane goes on.
//!
//! A lane goes on from its first sample to its marker. While a better one does, a worse one is not shown: what
//! `/metrics` shows at that time. Lanes of one rank follow one another, as after a change of a schema; where they
//! overlap, both are shown.

use std::sync::Arc;

use onlooker_promql::histogram::Histogram;
use onlooker_promql::source::{Chunk, Chunks, Newest, STALE, SourceError};
use onlooker_series::rank::Rank;

use crate::lane::{Lane, MOST};
use crate::newest::{self, Last};
use crate::plan::Lanes;
use crate::tracks::Tracks;

struct Source<'a> {
    lane: Lane<'a>,
    rank: Rank,
    goes_on: bool,
}

/// The newest sample that [`Merged`] would have until `to_ns`.
pub(crate) fn newest(tracks: &Tracks<'_>, lanes: &Lanes, time: (u64, u64)) -> Result<Newest, SourceError> {
    let (mut shown, mut ends): (Option<(Rank, u64, f64)>, _) = (None, Vec::new());
    for lane in lanes.iter() {
        match newest::of(tracks, lane, time, lanes.len() == 1)? {
            Last::Unknown => return Ok(Newest::Unknown),
            Last::Nothing => {}
            Last::Ended(end_ns) => ends.push((lane.rank, end_ns)),
            Last::GoesOn(time_ns, value) => {
                if shown.is_none_or(|(rank, of_ns, _)| lane.rank < rank || (lane.rank == rank && time_ns > of_ns)) {
                    shown = Some((lane.rank, time_ns, value));
                }
            }
        }
    }
    let Some((rank, time_ns, value)) = shown else { return Ok(Newest::Nothing) };
    // Until it had ended, another one was shown, perhaps later than that.
    if ends.iter().any(|(of, end_ns)| *of <= rank && *end_ns >= time_ns) {
        return Ok(Newest::Unknown);
    }
    Ok(Newest::Sample { time_ns: time_ns.cast_signed(), value })
}

pub(crate) struct Merged<'a> {
    sources: Vec<Source<'a>>,
    times_ns: Vec<i64>,
    values: Vec<f64>,
    /// As many, where samples are histograms.
    histograms: Vec<Option<Arc<Histogram>>>,
    last_ns: Option<i64>,
}

impl<'a> Merged<'a> {
    /// Without a time it is empty.
    pub(crate) fn new(tracks: &'a Tracks<'a>, lanes: &Lanes, time: Option<(u64, u64)>) -> Result<Self, SourceError> {
        let mut sources = Vec::new();
        if let Some(time) = time {
            // Whether a better one goes on at the beginning is known from what it had before.
            let is_shared = lanes.iter().any(|lane| lane.rank != lanes[0].rank);
            for (at, plan) in lanes.iter().enumerate() {
                let lane = Lane::new(tracks, lanes, at, time, is_shared)?;
                sources.push(Source { lane, rank: plan.rank, goes_on: false });
            }
        }
        Ok(Self { sources, times_ns: Vec::new(), values: Vec::new(), histograms: Vec::new(), last_ns: None })
    }

    /// Who has the earliest sample of all, and when another one has its next; of one time the best lane's come first.
    fn first(&mut self) -> Result<Option<(usize, i64)>, SourceError> {
        let (mut first, mut next_ns): (Option<(usize, i64)>, i64) = (None, i64::MAX);
        for (at, source) in self.sources.iter_mut().enumerate() {
            let Some((time_ns, _)) = source.lane.peek()? else { continue };
            match first {
                Some((_, first_ns)) if first_ns <= time_ns => next_ns = next_ns.min(time_ns),
                _ => {
                    next_ns = first.map_or(next_ns, |(_, first_ns)| next_ns.min(first_ns));
                    first = Some((at, time_ns));
                }
            }
        }
        Ok(first.map(|(at, _)| (at, next_ns)))
    }

    /// Takes the next sample of a source.
    fn take(&mut self, at: usize, time_ns: i64, value: f64) {
        let is_end = value.to_bits() == STALE.to_bits();
        let source = &mut self.sources[at];
        let histogram = source.lane.histogram(value);
        source.lane.advance();
        source.goes_on = !is_end;
        if self.last_ns.is_none_or(|last_ns| last_ns < time_ns) && self.is_shown(at, is_end) {
            self.last_ns = Some(time_ns);
            if histogram.is_some() || !self.histograms.is_empty() {
                self.histograms.resize(self.times_ns.len(), None);
                self.histograms.push(histogram.clone());
            }
            self.times_ns.push(time_ns);
            self.values.push(if histogram.is_some() { STALE } else { value });
        }
    }

    fn is_shown(&self, at: usize, is_end: bool) -> bool {
        let rank = self.sources[at].rank;
        let mut others = self.sources.iter().filter(|other| other.goes_on);
        if is_end { others.next().is_none() } else { others.all(|other| other.rank >= rank) }
    }
}

impl Chunks for Merged<'_> {
    fn next(&mut self) -> Result<Option<Chunk<'_>>, SourceError> {
        if self.sources.len() == 1 {
            return self.sources[0].lane.next();
        }
        self.times_ns.clear();
        self.values.clear();
        self.histograms.clear();
        while self.times_ns.len() < MOST
            && let Some((at, next_ns)) = self.first()?
        {
            let mut is_first = true;
            while let Some((time_ns, value)) = self.sources[at].lane.held()
                && (is_first || time_ns < next_ns)
            {
                self.take(at, time_ns, value);
                is_first = false;
            }
        }
        let chunk = Chunk { times_ns: &self.times_ns, values: &self.values, histograms: &self.histograms };
        Ok((!self.times_ns.is_empty()).then_some(chunk))
    }
}
