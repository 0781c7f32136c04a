// SPDX-License-Identifier: Apache-2.0
//! `anchored` and `smoothed`: values at a range's very edges, from samples that lie beyond them.
//!
//! Anchored, the value at the begin is that of the last sample before it. Smoothed, values at both edges lie on
//! straight lines between samples. Samples are looked for as far beyond the edges as an instant selector looks back.

use super::over_time::{Ask, Folded};
use super::rate::{Kind, range_seconds};
use super::slide::View;
use crate::expr::Edges;
use crate::source::Span;
use crate::value::HOLE;

/// A range with what is looked at beyond its edges.
pub(super) fn wider(range: Span, edges: Edges, lookback_ns: i64) -> Span {
    let Span { mut after_ns, mut until_ns } = range;
    if edges != Edges::Plain {
        after_ns = after_ns.saturating_sub(lookback_ns);
    }
    if edges == Edges::Smoothed {
        until_ns = until_ns.saturating_add(lookback_ns);
    }
    Span { after_ns, until_ns }
}

/// How far a time is from one to the other.
#[allow(clippy::cast_precision_loss)] // distances of times in ns are exact below 104 days
pub(super) fn part(from_ns: i64, to_ns: i64, time_ns: i64) -> f64 {
    (time_ns - from_ns) as f64 / (to_ns - from_ns) as f64
}

/// On the line between two samples. A counter that went down rose from 0.
fn line(from: (i64, f64), to: (i64, f64), time_ns: i64, is_counter: bool) -> f64 {
    let start = if is_counter && to.1 < from.1 { 0.0 } else { from.1 };
    // Distances of times in ns are exact below 104 days.
    #[allow(clippy::cast_precision_loss)]
    let part = ((time_ns - from.0) as f64, (to.0 - from.0) as f64);
    start + (to.1 - start) * part.0 / part.1
}

/// The value at a time: a sample's, or on the line to the next one; after the last one its value.
pub(super) fn between(times_ns: &[i64], values: &[f64], time_ns: i64) -> f64 {
    let next = times_ns.partition_point(|own_ns| *own_ns < time_ns);
    match (next.checked_sub(1), times_ns.get(next)) {
        (_, Some(own_ns)) if *own_ns == time_ns => values[next],
        (Some(before), Some(_)) => {
            line((times_ns[before], values[before]), (times_ns[next], values[next]), time_ns, false)
        }
        (Some(before), None) => values[before],
        (None, _) => HOLE,
    }
}

/// Which samples a range with such edges uses: all from `begins` to `ends`.
pub(super) struct Used {
    pub(super) begins: usize,
    pub(super) ends: usize,
}

pub(super) fn used(times_ns: &[i64], range: Span, is_smoothed: bool) -> Option<Used> {
    let Span { after_ns, until_ns } = range;
    let last = times_ns.len().checked_sub(1)?;
    let begins = times_ns[..last].partition_point(|own_ns| *own_ns <= after_ns).saturating_sub(1);
    let ends = match is_smoothed {
        true => times_ns[..last].partition_point(|own_ns| *own_ns < until_ns),
        false => last,
    };
    let is_outside = times_ns[ends] <= after_ns || is_smoothed && times_ns[begins] > until_ns;
    (!is_outside).then_some(Used { begins, ends })
}

/// Values at both edges of a range, and which samples lie between.
struct Inner {
    left: f64,
    right: f64,
    from: usize,
    to: usize,
}

fn inner(times_ns: &[i64], values: &[f64], range: Span, is_smoothed: bool, is_counter: bool) -> Option<Inner> {
    let Span { after_ns, until_ns } = range;
    let Used { begins, ends } = used(times_ns, range, is_smoothed)?;
    let sample = |at: usize| (times_ns[at], values[at]);
    let left = match is_smoothed && times_ns[begins] < after_ns {
        true => line(sample(begins), sample(begins + 1), after_ns, is_counter),
        false => values[begins],
    };
    let right = match ends.checked_sub(1) {
        Some(before) if times_ns[ends] > until_ns && is_smoothed => {
            line(sample(before), sample(ends), until_ns, is_counter)
        }
        Some(before) if times_ns[ends] > until_ns => values[before],
        _ => values[ends],
    };
    let from = begins + usize::from(times_ns[begins] <= after_ns);
    let to = ends + usize::from(times_ns[ends] < until_ns);
    Some(Inner { left, right, from, to: to.max(from) })
}

fn up(view: &View<'_>, ask: &Ask, is_smoothed: bool, kind: Kind) -> Folded {
    let Some(Inner { left, right, from, to }) =
        inner(view.times_ns, view.values, ask.range, is_smoothed, kind.is_counter)
    else {
        return Ok(HOLE);
    };
    let mut up = right - left;
    if kind.is_counter {
        let mut resets = 0.0;
        let mut before = left;
        let mut take = |value: f64| {
            if value < before {
                resets += before;
            }
            before = value;
        };
        view.each(from..to, |_, value| take(value))?;
        take(right);
        up += resets;
    }
    Ok(if kind.per_second { up / range_seconds(ask.range_ns) } else { up })
}

/// The function of this name for a range with such edges.
pub(super) fn function(name: &str, edges: Edges) -> Option<fn(&View<'_>, &Ask) -> Folded> {
    Some(match (name, edges) {
        ("rate", Edges::Anchored) => |view, ask| up(view, ask, false, Kind::of("rate")),
        ("increase", Edges::Anchored) => |view, ask| up(view, ask, false, Kind::of("increase")),
        ("delta", Edges::Anchored) => |view, ask| up(view, ask, false, Kind::of("delta")),
        ("rate", Edges::Smoothed) => |view, ask| up(view, ask, true, Kind::of("rate")),
        ("increase", Edges::Smoothed) => |view, ask| up(view, ask, true, Kind::of("increase")),
        ("delta", Edges::Smoothed) => |view, ask| up(view, ask, true, Kind::of("delta")),
        ("changes", Edges::Anchored) => |view, ask| pairs(view, ask, super::over_time::is_change),
        ("resets", Edges::Anchored) => |view, ask| pairs(view, ask, super::over_time::is_reset),
        _ => return None,
    })
}

/// Names of the functions that such edges are for.
pub(super) fn functions(edges: Edges) -> &'static str {
    if edges == Edges::Anchored { "changes, delta, increase, rate, resets" } else { "delta, increase, rate" }
}

#[allow(clippy::cast_precision_loss)] // counts of samples
fn pairs(view: &View<'_>, ask: &Ask, counts: fn(f64, f64) -> bool) -> Folded {
    let inside = view.times_ns.partition_point(|own_ns| *own_ns <= ask.range.after_ns);
    if inside == view.times_ns.len() {
        return Ok(HOLE);
    }
    let mut count = 0;
    view.each(inside.max(1)..view.values.len(), |at, value| count += u64::from(counts(view.values[at - 1], value)))?;
    Ok(count as f64)
}

/// The samples of a range as a range selector shows them: with those edges one at each.
pub(super) fn cut(times_ns: &[i64], values: &[f64], range: Span, edges: Edges) -> (Vec<i64>, Vec<f64>) {
    if edges == Edges::Plain {
        return (times_ns.to_vec(), values.to_vec());
    }
    let Some(Inner { left, right, from, to }) = inner(times_ns, values, range, edges == Edges::Smoothed, false) else {
        return (Vec::new(), Vec::new());
    };
    let times_ns = [&[range.after_ns], &times_ns[from..to], &[range.until_ns]].concat();
    (times_ns, [&[left], &values[from..to], &[right]].concat())
}
