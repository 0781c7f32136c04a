// SPDX-License-Identifier: Apache-2.0
//! What a lane has at one time, by looking at its last rows only: what [`lane`](crate::lane) says of all of them.

use std::ops::ControlFlow;

use onlooker_framestore::types::Line;
use onlooker_promql::source::SourceError;

use crate::lane::split;
use crate::out::{REPEAT_NS, end_ns};
use crate::plan::LanePlan;
use crate::tracks::{MAX_SILENCE_NS, Tracks};

/// What a lane has at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Last {
    /// All rows are to be read to know.
    Unknown,
    Nothing,
    /// It has ended, not later than this.
    Ended(u64),
    /// It goes on, and this is its newest sample.
    GoesOn(u64, f64),
}

/// What a lane has at `to_ns`, of its rows since `from_ns`. If no other lane depends on when it has ended, it `is_alone`.
pub(crate) fn of(
    tracks: &Tracks<'_>,
    lane: &LanePlan,
    (from_ns, to_ns): (u64, u64),
    is_alone: bool,
) -> Result<Last, SourceError> {
    if lane.is_read_whole() {
        return Ok(Last::Unknown);
    }
    let (columns, has_time) = lane.rows();
    let (is_line, silence_ns) = (columns.line != Line::ONLY, tracks.silence_ns(&columns, to_ns)?);
    let from_ns = match (is_alone, is_line) {
        // If there is no row in that time it has ended.
        (true, false) => from_ns.max(to_ns.saturating_sub(silence_ns)),
        (true, true) => from_ns,
        (false, _) => from_ns.min(to_ns.saturating_sub(MAX_SILENCE_NS)),
    };
    // A sample comes with a row that is later.
    let last_ns = if has_time { to_ns.saturating_add(silence_ns) } else { to_ns };
    let mut sample: Option<(u64, f64)> = None;
    let (mut row_ns, mut distance_ns): (Option<u64>, u64) = (None, u64::MAX);
    let mut next_ns = 0;
    let is_told = tracks.store.read_back(&tracks.decoded, &columns, from_ns, last_ns, |time_ns, words| {
        let (sample_ns, words) = split(time_ns, words, has_time);
        let is_in_time = (1..=to_ns).contains(&sample_ns);
        let is_new = is_in_time && sample.is_none_or(|(newest_ns, _)| newest_ns < sample_ns);
        if is_new {
            sample = Some((sample_ns, lane.reading.value(words)));
        }
        if time_ns > to_ns {
            return ControlFlow::Continue(());
        }
        match row_ns {
            None => {
                row_ns = Some(time_ns);
                // A value that stands for long is told again.
                if let Some((told_ns, _)) = &mut sample
                    && time_ns.saturating_sub(*told_ns) >= REPEAT_NS
                {
                    *told_ns = time_ns;
                }
            }
            Some(_) if is_line => distance_ns = distance_ns.min(next_ns - time_ns),
            Some(_) => {}
        }
        next_ns = time_ns;
        let last_ns = row_ns.unwrap_or(time_ns);
        let is_known = !is_line || end_ns(last_ns, silence_ns, u64::MAX) > to_ns || {
            // A lesser distance makes the end earlier.
            distance_ns < u64::MAX && end_ns(last_ns, silence_ns, distance_ns) <= to_ns
        };
        if is_known && (sample.is_some() || sample_ns == 0) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    let end_ns = row_ns.map(|row_ns| end_ns(row_ns, silence_ns, distance_ns)).filter(|end_ns| *end_ns <= to_ns);
    Ok(match (sample, end_ns) {
        _ if !is_told => Last::Unknown,
        (None, _) => Last::Nothing,
        (Some((sample_ns, _)), Some(end_ns)) if sample_ns <= end_ns => Last::Ended(end_ns),
        // A later row still has what was over then, perhaps.
        (Some((sample_ns, _)), None) if row_ns.is_none() && sample_ns.saturating_add(silence_ns) < to_ns => {
            Last::Unknown
        }
        (Some((sample_ns, value)), _) => Last::GoesOn(sample_ns, value),
    })
}
