// SPDX-License-Identifier: Apache-2.0
//! Functions of ranges that have native histograms.

use std::sync::Arc;

use super::edges;
use super::native::{Told, Total};
use super::over_time::{self, Ask};
use super::rate::{self, Kind, range_seconds};
use super::slide::View;
use crate::expr::Edges;
use crate::histogram::{Hint, Histogram, Scale};
use crate::source::Span;
use crate::value::{Point, is_hole, seconds};

/// A sample of a window.
#[derive(Clone, Copy)]
enum Sample<'a> {
    Float(f64),
    Native(&'a Histogram),
}

/// Samples of both kinds in the order of their times.
fn merged<'a>(view: &'a View<'_>) -> Vec<(i64, Sample<'a>)> {
    let floats = view.times_ns.iter().zip(view.values).map(|(time_ns, value)| (*time_ns, Sample::Float(*value)));
    let natives = view.native_times_ns.iter().zip(view.histograms);
    let natives = natives.map(|(time_ns, histogram)| (*time_ns, Sample::Native(histogram)));
    let mut all: Vec<_> = floats.chain(natives).collect();
    all.sort_by_key(|(time_ns, _)| *time_ns);
    all
}

/// What a function makes of a window with histograms; `value`: what it makes of the floats alone.
pub(super) fn value(
    (function, edges): (&str, Edges),
    view: &View<'_>,
    ask: &Ask,
    value: f64,
    told: Told<'_>,
) -> Option<Point> {
    let has_floats = !view.values.is_empty();
    match function {
        "rate" | "increase" | "delta" | "sum_over_time" | "avg_over_time" if has_floats => {
            told.notes.mixed(told.metric, told.at);
            None
        }
        "rate" | "increase" | "delta" => {
            let kind = Kind::of(function);
            match edges {
                Edges::Plain => rate(view, ask, kind, told),
                _ => extended(view, ask, kind, edges == Edges::Smoothed, told),
            }
            .map(Point::from)
        }
        "sum_over_time" | "avg_over_time" => {
            let (first, rest) = view.histograms.split_first()?;
            let mut total = Total::of(first, function == "avg_over_time");
            for other in rest {
                if total.add(other).is_none() {
                    told.notes.mixed_buckets(told.metric, told.at);
                    return None;
                }
            }
            Some(total.finish(told).into())
        }
        "irate" | "idelta" => instant(view, function == "irate", told),
        "changes" => pairs(view, ask, edges, over_time::is_change, |before, after| !after.is_same(before)),
        "resets" => pairs(view, ask, edges, over_time::is_reset, |before, after| after.is_reset_after(before)),
        #[allow(clippy::cast_precision_loss)] // counts of samples
        "count_over_time" => Some(Point::Float((view.values.len() + view.histograms.len()) as f64)),
        "present_over_time" | "absent_over_time" => Some(Point::Float(1.0)),
        "first_over_time" => {
            let is_native = !has_floats || view.native_times_ns[0] <= view.times_ns[0];
            Some(if is_native { Point::Histogram(view.histograms[0].clone()) } else { Point::Float(value) })
        }
        "last_over_time" => {
            let is_native = view.native_times_ns.last() >= view.times_ns.last();
            let last = view.histograms.last().filter(|_| is_native);
            Some(last.map_or(Point::Float(value), |last| Point::Histogram(last.clone())))
        }
        _ => {
            if has_floats {
                told.notes.ignored_in_range(told.metric, told.at);
            }
            (!is_hole(value)).then_some(Point::Float(value))
        }
    }
}

fn rate(view: &View<'_>, ask: &Ask, kind: Kind, told: Told<'_>) -> Option<Histogram> {
    let all = view.histograms;
    let [first, .., last] = all else { return None };
    let mut up = increase(all, kind.is_counter, told)?;
    let window = rate::Window {
        samples: all.len() as u64,
        first_ns: view.native_times_ns[0],
        last_ns: view.native_times_ns[all.len() - 1],
        first: first.count,
    };
    if !kind.is_counter && [first, last].iter().any(|one| one.hint != Hint::Gauge) {
        told.notes.no_native_gauge(told.metric, told.at);
    }
    up.multiply(rate::extension(&window, up.count, kind, ask));
    Some(up)
}

/// What was observed between the first and the last sample.
fn increase(all: &[Arc<Histogram>], is_counter: bool, told: Told<'_>) -> Option<Histogram> {
    let [first, .., last] = all else { return None };
    let middle = &all[1..all.len() - 1];
    if is_counter && all.iter().any(|one| one.hint == Hint::Gauge) {
        told.notes.no_native_counter(told.metric, told.at);
    }
    // Before a reset nothing needs to be known, not even which buckets there were.
    let nothing = Histogram::empty(match &all[1].scale {
        Scale::Exponential { schema, .. } => Scale::Exponential { schema: *schema, zero_threshold: 0.0 },
        custom @ Scale::Custom(_) => custom.clone(),
    });
    let first = if is_counter && all[1].is_reset_after(first) { &nothing } else { &**first };
    let middle = if is_counter { middle } else { &[] };
    if middle.iter().chain([last]).any(|one| one.is_custom() != first.is_custom()) {
        told.notes.mixed_buckets(told.metric, told.at);
        return None;
    }
    let mut up = Histogram::clone(last);
    if let Some(schema) = middle.iter().map(|one| &**one).chain([first, &**last]).filter_map(Histogram::schema).min() {
        up.reduce(schema);
    }
    told.subtract(&mut up, first)?;
    if is_counter {
        let mut before = first;
        for one in &all[1..] {
            if one.is_reset_after(before) {
                told.add(&mut up, before)?;
            }
            before = one;
        }
    }
    Some(up.with_hint(Hint::Gauge))
}

/// `irate` and `idelta`.
fn instant(view: &View<'_>, is_rate: bool, told: Told<'_>) -> Option<Point> {
    let all = merged(view);
    let [.., (before_ns, before), (last_ns, last)] = all.as_slice() else { return None };
    let seconds = seconds(last_ns - before_ns);
    match (before, last) {
        (Sample::Native(before), Sample::Native(last)) => {
            let gauges = [before, last].iter().filter(|one| one.hint == Hint::Gauge).count();
            if is_rate && gauges > 0 {
                told.notes.no_native_counter(told.metric, told.at);
            }
            if !is_rate && gauges < 2 {
                told.notes.no_native_gauge(told.metric, told.at);
            }
            let mut up = Histogram::clone(last);
            if !is_rate || !last.is_reset_after(before) {
                told.subtract(&mut up, before)?;
            }
            up.hint = Hint::Gauge;
            if is_rate {
                up.divide(seconds);
            }
            Some(up.into())
        }
        (Sample::Float(before), Sample::Float(last)) => {
            let up = if is_rate && last < before { *last } else { last - before };
            Some(Point::Float(if is_rate { up / seconds } else { up }))
        }
        _ => {
            told.notes.mixed(told.metric, told.at);
            None
        }
    }
}

/// How often neighbours are what is counted; a change of their kind is.
fn pairs(
    view: &View<'_>,
    ask: &Ask,
    edges: Edges,
    floats: fn(f64, f64) -> bool,
    natives: fn(&Histogram, &Histogram) -> bool,
) -> Option<Point> {
    let all = merged(view);
    let from = match edges {
        Edges::Plain => 0,
        _ => {
            let inside = all.partition_point(|(time_ns, _)| *time_ns <= ask.range.after_ns);
            if inside == all.len() {
                return None;
            }
            inside.saturating_sub(1)
        }
    };
    let counted = all[from..].windows(2).filter(|pair| match (pair[0].1, pair[1].1) {
        (Sample::Float(before), Sample::Float(after)) => floats(before, after),
        (Sample::Native(before), Sample::Native(after)) => natives(before, after),
        _ => true,
    });
    #[allow(clippy::cast_precision_loss)] // counts of samples
    Some(Point::Float(counted.count() as f64))
}

/// On the line between two samples; of a counter that began again, from nothing.
fn line(
    from: (i64, &Histogram),
    to: (i64, &Histogram),
    time_ns: i64,
    is_counter: bool,
    told: Told<'_>,
) -> Option<Histogram> {
    if time_ns == from.0 {
        return Some(from.1.clone());
    }
    let mut between = to.1.clone();
    if time_ns == to.0 {
        return Some(between);
    }
    let part = edges::part(from.0, to.0, time_ns);
    if is_counter && to.1.is_reset_after(from.1) {
        between.multiply(part);
        return Some(between);
    }
    told.subtract(&mut between, from.1)?;
    between.multiply(part);
    told.add(&mut between, from.1)?;
    Some(between)
}

/// The histogram at a time, as [`edges::between`].
pub(super) fn between(view: &View<'_>, time_ns: i64, told: Told<'_>) -> Option<Histogram> {
    if !view.values.is_empty() {
        told.notes.mixed(told.metric, told.at);
        return None;
    }
    let times_ns = view.native_times_ns;
    let next = times_ns.partition_point(|own_ns| *own_ns < time_ns);
    let sample = |at: usize| (times_ns[at], &*view.histograms[at]);
    match (next.checked_sub(1), times_ns.get(next)) {
        (_, Some(own_ns)) if *own_ns == time_ns => Some(sample(next).1.clone()),
        (Some(before), Some(_)) => {
            let (from, to) = (sample(before), sample(next));
            if from.1.is_custom() != to.1.is_custom() {
                told.notes.mixed_buckets(told.metric, told.at);
                return None;
            }
            let is_counter = [from.1, to.1].iter().any(|one| one.hint != Hint::Gauge);
            line(from, to, time_ns, is_counter, told)
        }
        // The hint is of the sample before, not of this time.
        (Some(before), None) => Some(sample(before).1.clone().with_hint(Hint::Unknown)),
        (None, _) => None,
    }
}

/// `rate`, `increase` and `delta` of a range with other edges.
fn extended(view: &View<'_>, ask: &Ask, kind: Kind, is_smoothed: bool, told: Told<'_>) -> Option<Histogram> {
    let Span { after_ns, until_ns } = ask.range;
    let times_ns = view.native_times_ns;
    let edges::Used { begins, ends } = edges::used(times_ns, ask.range, is_smoothed)?;
    let sample = |at: usize| (times_ns[at], &*view.histograms[at]);
    let inside = &view.histograms[begins..=ends];
    if inside.iter().any(|one| one.is_custom() != inside[0].is_custom()) {
        told.notes.mixed_buckets(told.metric, told.at);
        return None;
    }
    if kind.is_counter && inside.iter().any(|one| one.hint == Hint::Gauge) {
        told.notes.no_native_counter(told.metric, told.at);
    }
    let is_cut = is_smoothed && times_ns[begins] < after_ns;
    let left = match is_cut {
        true => line(sample(begins), sample(begins + 1), after_ns, kind.is_counter, told)?,
        false => sample(begins).1.clone(),
    };
    let right = match ends.checked_sub(1) {
        Some(before) if is_smoothed && times_ns[ends] > until_ns => {
            line(sample(before), sample(ends), until_ns, kind.is_counter, told)?
        }
        _ => sample(ends).1.clone(),
    };
    if !kind.is_counter && [&left, &right].iter().any(|one| one.hint != Hint::Gauge) {
        told.notes.no_native_gauge(told.metric, told.at);
    }
    let mut up = right.clone();
    told.subtract(&mut up, &left)?;
    if kind.is_counter {
        let (mut before, mut from) = (&left, begins + 1);
        // What the left edge lies on began again within the first two samples already.
        if is_cut && sample(begins + 1).1.is_reset_after(sample(begins).1) {
            (before, from) = (sample(begins + 1).1, begins + 2);
        }
        if from <= ends {
            for after in view.histograms[from..ends].iter().map(|one| &**one).chain([&right]) {
                if after.is_reset_after(before) {
                    told.add(&mut up, before)?;
                }
                before = after;
            }
        }
    }
    if kind.per_second {
        up.divide(range_seconds(ask.range_ns));
    }
    Some(up.with_hint(Hint::Gauge))
}
