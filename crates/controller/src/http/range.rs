// SPDX-License-Identifier: Apache-2.0
//! `/api/v1/hosts/{host}/range`: what was stored, in no more points than a chart has.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use onlooker_region::columns::Value as Sample;
use onlooker_region::schema::Metric;
use onlooker_store::{Gap, Store, StoreError, TrackId};
use onlooker_transport::clock::Moment;
use serde_json::{Value, json};

use super::Shared;
use super::answer::{Failure, Wanted, ms, ns, number, one, parameters};
use crate::fleet::rank;
use crate::meta::Meta;
use crate::series::{Form, Series};

const DEFAULT_POINTS: f64 = 1_000.0;
const MAX_POINTS: f64 = 5_000.0;
const MAX_SERIES: usize = 200;
/// Rows that one answer looks at, so that nobody can ask for a year of 10 ms.
const MAX_ROWS: usize = 20_000_000;
const DEFAULT_SPAN_NS: u64 = 60_000_000_000;

pub(super) async fn range(
    State(shared): State<Shared>,
    Path(host): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Failure> {
    let pairs = parameters(query.as_deref(), &["series", "match", "from_ms", "to_ms", "points"])?;
    let most_ms = ms(u64::MAX);
    let to_ns = number(&pairs, "to_ms", 0.0, most_ms)?.map_or_else(|| Moment::now().utc_ns, ns);
    let from_ns = number(&pairs, "from_ms", 0.0, most_ms)?.map_or(to_ns.saturating_sub(DEFAULT_SPAN_NS), ns);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within bounds
    let points = number(&pairs, "points", 2.0, MAX_POINTS)?.unwrap_or(DEFAULT_POINTS) as usize;
    one(&pairs, "points")?;
    let wanted = Wanted::of(&pairs, MAX_SERIES)?;
    if from_ns >= to_ns {
        return Err(Failure::bad("`from_ms` must lie before `to_ms`"));
    }
    let span = Span { from_ns, to_ns, points };
    // Reads files.
    let work = move || answer(&shared.store, &host, wanted, span);
    tokio::task::spawn_blocking(work).await.map_err(|error| internal(&error))?.map(Json)
}

fn internal(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, format!("store: {error}"))
}

#[derive(Clone, Copy)]
struct Span {
    from_ns: u64,
    to_ns: u64,
    points: usize,
}

/// A series and its rows: time and words.
struct Rows {
    series: Series,
    rows: Vec<(u64, Vec<u64>)>,
    /// They are durable up to this time.
    durable_until_ns: u64,
}

/// What was found of a series.
struct Found {
    series: Series,
    /// By rank: those of one rank are of one entity after the other.
    rows: BTreeMap<u8, Vec<(u64, Vec<u64>)>>,
    /// Its rows up to this time are durable.
    durable_until_ns: u64,
}

impl Found {
    /// One row of rows: where a better series of the same text has rows, from its first to its last, the others' do not count, as they are not shown live.
    fn merged(self) -> Rows {
        let mut all: Vec<(u64, Vec<u64>)> = Vec::new();
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for mut rows in self.rows.into_values() {
            rows.retain(|(time_ns, _)| !taken.iter().any(|(first, last)| (first..=last).contains(&time_ns)));
            let times = || rows.iter().map(|(time_ns, _)| *time_ns);
            taken.extend(times().min().zip(times().max()));
            all.append(&mut rows);
        }
        all.sort_by_key(|(time_ns, _)| *time_ns);
        Rows { series: self.series, rows: all, durable_until_ns: self.durable_until_ns }
    }
}

/// A track with series that are asked for.
struct Taken {
    /// Of its region.
    region: String,
    /// Where they are among those that are asked for.
    series: Vec<(usize, Series)>,
    rows: onlooker_store::Rows,
}

fn answer(store: &Mutex<Store>, host: &str, mut wanted: Wanted, span: Span) -> Result<Value, Failure> {
    let mut found: BTreeMap<usize, Found> = BTreeMap::new();
    let mut gaps: Vec<Gap> = Vec::new();
    let taken = take(store, host, &mut wanted, span, &mut found, &mut gaps)?;
    let wanted = wanted.series;
    // From here on without the store: it goes on while files are read.
    let mut budget = MAX_ROWS;
    for Taken { region, series: mine, rows } in taken {
        let read = rows.read(|_, time_ns, row| {
            for (at, series) in &mine {
                if let Some(found) = found.get_mut(at) {
                    let rows = found.rows.entry(rank(series.acquisition, &region)).or_default();
                    rows.push((time_ns, series.words(row).to_vec()));
                    budget = budget.saturating_sub(1);
                }
            }
            if budget > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        gaps.extend(read.map_err(|error: StoreError| internal(&error))?);
        if budget == 0 {
            break;
        }
    }
    if budget == 0 {
        let message = format!("more than {MAX_ROWS} rows lie in this time; ask for a shorter one or for fewer series");
        return Err(Failure::bad(message));
    }
    gaps.sort_by_key(|gap| (gap.from_ns, gap.to_ns));
    gaps.dedup_by(|later, earlier| {
        let same = later.from_ns <= earlier.to_ns && later.reason == earlier.reason;
        earlier.to_ns = if same { earlier.to_ns.max(later.to_ns) } else { earlier.to_ns };
        same
    });
    let found: BTreeMap<usize, Rows> = found.into_iter().map(|(at, found)| (at, found.merged())).collect();
    let most = found.values().map(|found| found.rows.len()).max().unwrap_or(0);
    // Whole milliseconds, and begun at multiples since 1970, so that requests for neighbouring times agree.
    let wide_ns = (span.to_ns - span.from_ns).div_ceil(span.points as u64).next_multiple_of(1_000_000);
    let bucket_ns = if most > span.points { wide_ns } else { 0 };
    let series: Vec<Value> =
        wanted.iter().enumerate().map(|(at, text)| points(text, found.get(&at), &gaps, bucket_ns)).collect();
    let gaps: Vec<Value> = gaps
        .iter()
        .map(|gap| json!({ "from_ms": ms(gap.from_ns), "to_ms": ms(gap.to_ns), "reason": gap.reason }))
        .collect();
    Ok(json!({ "bucket_ms": ms(bucket_ns), "series": series, "gaps": gaps }))
}

/// Under the store's lock: which tracks have what is asked for, how far they are durable, and their gaps.
fn take(
    store: &Mutex<Store>,
    host: &str,
    wanted: &mut Wanted,
    span: Span,
    found: &mut BTreeMap<usize, Found>,
    gaps: &mut Vec<Gap>,
) -> Result<Vec<Taken>, Failure> {
    let store = store.lock().unwrap_or_else(PoisonError::into_inner);
    let tracks: Vec<(TrackId, Meta)> = tracks_of(&store, host).collect();
    let texts: Vec<Vec<String>> =
        tracks.iter().map(|(_, meta)| meta.series.iter().map(Series::text).collect()).collect();
    let named = tracks.iter().zip(&texts).flat_map(|((_, meta), texts)| meta.series.iter().zip(texts));
    wanted.expand(named.map(|(series, text)| (&*series.name, text.as_str())))?;
    let mut taken = Vec::new();
    for ((track, meta), texts) in tracks.into_iter().zip(&texts) {
        let series: Vec<(usize, Series)> = texts
            .iter()
            .zip(meta.series)
            .filter_map(|(text, series)| Some((wanted.series.iter().position(|wanted| wanted == text)?, series)))
            .collect();
        if series.is_empty() {
            continue;
        }
        gaps.extend(store.gaps(track, span.from_ns, span.to_ns));
        for (at, series) in &series {
            let mine = found.entry(*at).or_insert_with(|| Found {
                series: series.clone(),
                rows: BTreeMap::new(),
                durable_until_ns: 0,
            });
            mine.durable_until_ns = mine.durable_until_ns.max(store.durable_until_ns(track).unwrap_or(0));
        }
        let rows = store.rows(track, span.from_ns, span.to_ns).map_err(|error| internal(&error))?;
        taken.push(Taken { region: meta.region, series, rows });
    }
    Ok(taken)
}

/// The tracks that the store has of a host.
fn tracks_of<'a>(store: &'a Store, host: &str) -> impl Iterator<Item = (TrackId, Meta)> + 'a {
    let is_mine = Meta::is_of(host);
    store.tracks().filter_map(move |(track, _, meta)| Some((track, is_mine(meta).then(|| Meta::unpack(meta))??)))
}

/// The rows of each bucket, or each row by itself.
fn buckets(found: &Rows, bucket_ns: u64) -> impl Iterator<Item = &[(u64, Vec<u64>)]> {
    let number = move |time_ns: u64| time_ns.checked_div(bucket_ns);
    found.rows.chunk_by(move |a, b| bucket_ns > 0 && number(a.0) == number(b.0))
}

fn points(text: &str, found: Option<&Rows>, gaps: &[Gap], bucket_ns: u64) -> Value {
    let Some(found) = found else { return json!({ "series": text, "type": null, "t_ms": [] }) };
    let mut value = json!({ "series": text, "type": found.series.metric, "unit": found.series.unit });
    let times: Vec<f64> = buckets(found, bucket_ns).filter_map(|rows| rows.last()).map(|row| ms(row.0)).collect();
    value["t_ms"] = times.into();
    value["durable_until_ms"] = ms(found.durable_until_ns).into();
    match found.series.form {
        Form::Histogram(_) => heat(found, bucket_ns, &mut value),
        Form::Text => {}
        _ if found.series.metric == Metric::Counter => rates(found, gaps, bucket_ns, &mut value),
        _ => extremes(found, bucket_ns, &mut value),
    }
    value
}

fn extremes(found: &Rows, bucket_ns: u64, value: &mut Value) {
    let one = Series { at: 0, ..found.series.clone() };
    let number = |words: &[u64]| one.number(words).unwrap_or(f64::NAN);
    let (mut last, mut min, mut max) = (Vec::new(), Vec::new(), Vec::new());
    for rows in buckets(found, bucket_ns) {
        let numbers = || rows.iter().map(|(_, words)| number(words));
        last.push(numbers().next_back());
        min.push(numbers().reduce(f64::min));
        max.push(numbers().reduce(f64::max));
    }
    (value["last"], value["min"], value["max"]) = (last.into(), min.into(), max.into());
}

fn rates(found: &Rows, gaps: &[Gap], bucket_ns: u64, value: &mut Value) {
    let one = Series { at: 0, ..found.series.clone() };
    let number = |words: &[u64]| one.number(words).unwrap_or(f64::NAN);
    let (mut last, mut rate) = (Vec::new(), Vec::new());
    let mut before: Option<(u64, f64)> = None;
    for rows in buckets(found, bucket_ns) {
        let begun = before;
        let mut increase = 0.0;
        for (time_ns, words) in rows {
            let now = number(words);
            if let Some((_, then)) = before {
                // A counter that falls has begun anew at 0.
                increase += if now >= then { now - then } else { now };
            }
            before = Some((*time_ns, now));
        }
        let Some((end_ns, end)) = before else { continue };
        last.push(end);
        let gap = |from_ns: u64| gaps.iter().any(|gap| gap.from_ns < end_ns && gap.to_ns > from_ns);
        let passed = begun.filter(|(begin_ns, _)| *begin_ns < end_ns && !gap(*begin_ns));
        #[allow(clippy::cast_precision_loss)]
        rate.push(passed.map(|(begin_ns, _)| increase / ((end_ns - begin_ns) as f64 / 1e9)));
    }
    (value["last"], value["rate"]) = (last.into(), rate.into());
}

/// New observations by value, for a heat map.
fn heat(found: &Rows, bucket_ns: u64, value: &mut Value) {
    let one = Series { at: 0, ..found.series.clone() };
    let counts_of = |words: &[u64]| match one.value(words) {
        Some(Sample::Histogram { buckets, .. }) => buckets,
        _ => Vec::new(),
    };
    let mut before: Option<Vec<u64>> = None;
    let mut new: Vec<Vec<u64>> = Vec::new();
    for (_, words) in buckets(found, bucket_ns).filter_map(|rows| rows.last()) {
        let counts = counts_of(words);
        new.push(match &before {
            // Begun anew: what is there is new.
            Some(before) if before.iter().zip(&counts).any(|(then, now)| now < then) => counts.clone(),
            Some(before) => before.iter().zip(&counts).map(|(then, now)| now - then).collect(),
            None => vec![0; counts.len()],
        });
        before = Some(counts);
    }
    let Form::Histogram(shape) = found.series.form else { return };
    let used: Vec<usize> = (0..shape.buckets()).filter(|at| new.iter().any(|counts| counts[*at] > 0)).collect();
    let bound = |number: u64| Sample::U64(number).scaled(found.series.scale);
    value["lows"] = used.iter().map(|at| bound(shape.range(*at).0)).collect::<Vec<f64>>().into();
    value["bounds"] = used.iter().map(|at| bound(shape.range(*at).1)).collect::<Vec<f64>>().into();
    value["counts"] =
        new.iter().map(|counts| used.iter().map(|at| counts[*at]).collect::<Vec<u64>>()).collect::<Vec<_>>().into();
}
