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
use crate::tracks::{Tracks, times};
use crate::window::Edges;

/// One of so many windows may be answered by all lanes: else all are.
const PARTS_ONE_OF: usize = 2;

/// Numbers of some lanes, in the order in which their rows end.
fn order(tracks: &Tracks<'_>, lanes: &[LanePlan], (from_ns, to_ns): (u64, u64)) -> Vec<usize> {
    let until = |lane: &LanePlan| tracks.store.extent_between(lane.track, from_ns, to_ns).map(|extent| extent.to_ns);
    let mut order: Vec<usize> = (0..lanes.len()).collect();
    if lanes.len() > 1 {
        order.sort_by_cached_key(|at| until(&lanes[*at]));
    }
    order
}

/// What was found.
pub(crate) struct Shown {
    best: Edges,
    /// Of windows with these numbers, rising, whose own begin at 0.
    parts: Vec<(Range<usize>, Edges)>,
}

impl Shown {
    /// `None`: no lane is the best, some have rows at the same time, or most of the time it does not go on.
    pub(crate) fn find(
        tracks: &Tracks<'_>,
        lanes: &Lanes,
        mut edges: Edges,
        budget: &Budget,
    ) -> Result<Option<Self>, SourceError> {
        let best = best(lanes);
        let (is_shared, mut parts) = (lanes.len() > best.len(), Vec::new());
        let mut end_ns = 0;
        if let Some(time) = times(edges.span()) {
            for number in order(tracks, best, time) {
                // Whether one goes on at the beginning is known from what it had before.
                let mut lane = Lane::new(tracks, lanes, number, time, is_shared)?;
                lane.read_edges(&mut edges, budget)?;
                let Some((first_ns, last_ns)) = lane.rows_ns() else { continue };
                if first_ns < end_ns {
                    return Ok(None);
                }
                end_ns = last_ns;
            }
        }
        if is_shared {
            parts = edges.paused();
        }
        let count: usize = parts.iter().map(|(windows, _)| windows.len()).sum();
        if best.is_empty() || count * PARTS_ONE_OF > edges.count_windows() {
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
