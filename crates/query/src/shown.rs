// SPDX-License-Identifier: Apache-2.0
//! Edges of windows of a series, whichever of its lanes is shown.
//!
//! One lane is better than all others, or some that follow one another are, as after a restart of the agent: while one
//! goes on, worse ones are not shown. So these alone are read, and all lanes for those windows only in which none goes on
//! all the time, as while the controller did not run.

use std::ops::Range;

use onlooker_promql::limits::Budget;
use onlooker_promql::source::{Chunks as _, SourceError, Summary};

use crate::lane::Lane;
use crate::merge::Merged;
use crate::plan::{LanePlan, Lanes, best};
use crate::tracks::{MAX_SILENCE_NS, Tracks, times};
use crate::window::Edges;

/// One of so many windows may be answered by all lanes: else all are.
const PARTS_ONE_OF: usize = 2;

/// Which of some lanes has its rows when, one after the other. `None`: they have some at the same time.
fn turns(tracks: &Tracks<'_>, lanes: &[LanePlan], (from_ns, to_ns): (u64, u64)) -> Option<Vec<(usize, (u64, u64))>> {
    if lanes.len() == 1 {
        return Some(vec![(0, (from_ns, to_ns))]);
    }
    let extent =
        |lane: &LanePlan| tracks.store.extent_between(lane.track, from_ns.saturating_sub(MAX_SILENCE_NS), to_ns);
    let mut extents: Vec<_> = (0..).zip(lanes).filter_map(|(at, lane)| Some((at, extent(lane)?))).collect();
    extents.sort_by_key(|(_, extent)| extent.from_ns);
    let is_apart = extents.windows(2).all(|two| two[0].1.to_ns < two[1].1.from_ns);
    let ends = extents.iter().skip(1).map(|(_, next)| to_ns.min(next.from_ns - 1)).chain([to_ns]);
    let turns = extents.iter().zip(ends).map(|((at, extent), end_ns)| (*at, (from_ns.max(extent.from_ns), end_ns)));
    is_apart.then(|| turns.filter(|(_, (from_ns, end_ns))| from_ns <= end_ns).collect())
}

/// What was found.
pub(crate) struct Shown {
    best: Edges,
    /// Of windows with these numbers, rising, whose own begin at 0.
    parts: Vec<(Range<usize>, Edges)>,
}

impl Shown {
    /// `None`: no lane is the best, or most of the time it does not go on.
    pub(crate) fn find(
        tracks: &Tracks<'_>,
        lanes: &Lanes,
        mut edges: Edges,
        budget: &Budget,
    ) -> Result<Option<Self>, SourceError> {
        let best = best(lanes);
        let (is_shared, mut parts) = (lanes.len() > best.len(), Vec::new());
        let time = times(edges.span());
        let Some(turns) = time.map_or(Some(Vec::new()), |time| turns(tracks, best, time)) else { return Ok(None) };
        for (turn, (number, time)) in turns.into_iter().enumerate() {
            // Whether one goes on at the beginning is known from what it had before.
            Lane::new(tracks, lanes, number, time, is_shared && turn == 0)?.read_edges(&mut edges, budget)?;
        }
        if is_shared {
            parts = edges.paused();
        }
        let count: usize = parts.iter().map(|(windows, _)| windows.len()).sum();
        if best.is_empty() || !edges.is_rising() || count * PARTS_ONE_OF > edges.count_windows() {
            return Ok(None);
        }
        for (_, edges) in &mut parts {
            let mut merged = Merged::new(tracks, lanes, times(edges.span()))?;
            while let Some(chunk) = merged.next()? {
                budget.samples(chunk.times_ns.len())?;
                edges.put(chunk.times_ns, chunk.values);
            }
        }
        Ok(Some(Self { best: edges, parts }))
    }

    /// Gives what is known of each window that has samples.
    pub(crate) fn finish(self, take: &mut dyn FnMut(usize, Summary)) {
        let of = |edges: Edges, take: &mut dyn FnMut(usize, Summary)| edges.finish(take);
        self.give(of, take);
    }

    /// Gives the last sample until the end of each window, however long before, and not before there is one.
    pub(crate) fn finish_last(self, take: &mut dyn FnMut(usize, i64, f64)) {
        let of = |edges: Edges, take: &mut dyn FnMut(usize, (i64, f64))| {
            edges.finish_last(&mut |window, time_ns, value| take(window, (time_ns, value)));
        };
        self.give(of, &mut |window, (time_ns, value)| take(window, time_ns, value));
    }

    /// Gives what `of` makes of edges, window by window.
    fn give<T>(self, of: impl Fn(Edges, &mut dyn FnMut(usize, T)), take: &mut dyn FnMut(usize, T)) {
        if self.parts.is_empty() {
            return of(self.best, take);
        }
        let (ranges, parts): (Vec<_>, Vec<_>) = self.parts.into_iter().unzip();
        let mut all = Vec::new();
        let is_of_part = |window: &usize| ranges.iter().any(|windows| windows.contains(window));
        of(self.best, &mut |window, found| all.extend((!is_of_part(&window)).then_some((window, found))));
        for (windows, edges) in ranges.iter().zip(parts) {
            of(edges, &mut |window, found| all.push((windows.start + window, found)));
        }
        all.sort_by_key(|(window, _)| *window);
        all.into_iter().for_each(|(window, found)| take(window, found));
    }
}
