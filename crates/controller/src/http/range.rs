// SPDX-License-Identifier: Apache-2.0
//! `/api/onlooker/v1/hosts/{host}/range`: what was stored, in no more points than a chart has.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use onlooker_framestore::damage::StoreError;
use onlooker_framestore::rollup::WIDTHS_S;
use onlooker_framestore::types::Gap;
use onlooker_framestore::{Columns, Named, Store};
use onlooker_reader::clock::Moment;
use onlooker_region::columns::Value as Sample;
use onlooker_series::rank::Rank;
use onlooker_series::rate::Missing;
use onlooker_series::series::{Form, Series};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::Shared;
use super::answer::{Failure, Wanted, ms, ns, number, one, parameters};
use super::fold::{Fold, Point, Source};
use super::limits::{Limits, Refusal};
use super::turns::Gone;

const DEFAULT_POINTS: f64 = 1_000.0;
const MAX_POINTS: f64 = 5_000.0;
const MAX_SERIES: usize = 200;
const DEFAULT_SPAN_NS: u64 = 60_000_000_000;
/// Memory of a query beside the columns of one chunk: its points.
const MAX_FOLDED_BYTES: usize = 24 << 20;
/// Its answer's text.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// A query reads so long.
const MAX_TIME: Duration = Duration::from_secs(20);
/// Rows between two looks at the clock.
const LOOK_ROWS: u32 = 256;

/// On a thread that may block, in its turn ([`super::turns`]).
pub(super) async fn range(
    State(shared): State<Shared>,
    Path(host): Path<String>,
    Extension(gone): Extension<Gone>,
    RawQuery(query): RawQuery,
) -> Result<impl IntoResponse, Failure> {
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
    let text = Query { store: &shared.store, span, gone, until: Instant::now() + MAX_TIME }.answer(&host, wanted);
    let text = text.map_err(|stop| stop.told(&shared.limits))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text))
}

#[derive(Clone, Copy)]
struct Span {
    from_ns: u64,
    to_ns: u64,
    points: usize,
}

impl Span {
    /// Whole buckets of rollups, or milliseconds, and begun at multiples since 1970, so that requests for neighbouring
    /// times agree, and what is made of rollups with what is made of rows.
    fn wide_ns(self) -> u64 {
        let least_ns = (self.to_ns - self.from_ns).div_ceil(self.points as u64).next_multiple_of(1_000_000);
        let rolled = WIDTHS_S.map(|width_s| u64::from(width_s) * 1_000_000_000);
        least_ns.next_multiple_of(rolled.into_iter().rfind(|width_ns| *width_ns <= least_ns).unwrap_or(1))
    }
}

/// Why there is no answer.
enum Stop {
    Failed(Failure),
    Time,
    Bytes,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("store: {error}")))
    }
}

impl Stop {
    fn told(self, limits: &Limits) -> Failure {
        match self {
            Self::Failed(failure) => failure,
            Self::Time => limits.busy(Refusal::QueryTime),
            Self::Bytes => {
                limits.count(Refusal::QueryBytes);
                let most = MAX_ANSWER_BYTES >> 20;
                Failure::bad(format!(
                    "the answer would be longer than {most} MiB; ask for fewer series or for fewer `points`"
                ))
            }
        }
    }
}

/// Rows of a track that have series that are asked for: of one part, or of one line of a table.
struct Taken {
    columns: Columns,
    rank: Rank,
    /// Where they are among those that are asked for; their words are those of `columns`.
    series: Vec<(usize, Series)>,
}

struct Query<'a> {
    store: &'a Store,
    span: Span,
    gone: Gone,
    until: Instant,
}

impl Query<'_> {
    fn has_time(&self) -> bool {
        !self.gone.is() && Instant::now() < self.until
    }

    fn answer(&self, host: &str, mut wanted: Wanted) -> Result<Vec<u8>, Stop> {
        // What is asked for twice is told once.
        let mut known = HashSet::new();
        wanted.series.retain(|text| known.insert(text.clone()));
        let tracks = self.tracks(host, &mut wanted)?;
        let mut folds: Vec<Option<Fold>> = wanted.series.iter().map(|_| None).collect();
        let mut gaps: Vec<Gap> = Vec::new();
        let mut width_ns = 0;
        for (number, taken) in tracks.iter().enumerate() {
            self.read(number, taken, &mut folds, &mut width_ns, &mut gaps)?;
            join(&mut gaps);
        }
        let mut folds: Vec<_> = wanted.series.into_iter().zip(folds).collect();
        folds.iter_mut().filter_map(|(_, fold)| fold.as_mut()).for_each(Fold::finish);
        let missing = Missing::of(gaps.iter().map(|gap| (gap.from_ns, gap.to_ns)));
        write(width_ns, folds, &missing, &gaps).map_err(|_| Stop::Bytes)
    }

    /// What of the host's tracks is asked for, the best first; of one rank, the oldest first.
    fn tracks(&self, host: &str, wanted: &mut Wanted) -> Result<Vec<Taken>, Stop> {
        let Span { from_ns, to_ns, .. } = self.span;
        let mut all = self.store.series_between(host, from_ns, to_ns);
        let mut texts = texts_of(&all);
        // Of one that has nothing of this time the answer says what it is.
        if !wanted.series.iter().all(|text| texts.iter().flatten().any(|there| there == text)) {
            all = self.store.series_of(host);
            texts = texts_of(&all);
        }
        let names = all.iter().zip(&texts).flat_map(|(named, texts)| named.series.iter().zip(texts));
        wanted.expand(names.map(|(series, text)| (&*series.name, text.as_str())))?;
        let mut taken: Vec<Taken> = Vec::new();
        // Regions are as old as the first of their tracks, also if that has nothing of this time.
        let oldest = self.store.oldest_tracks(host);
        for (named, texts) in all.into_iter().zip(&texts) {
            let since = oldest.get(&named.source).unwrap_or(&named.columns.track).0.into();
            let rank = Rank::of_source(named.source, named.acquisition, since);
            let mut words = Vec::new();
            let mine = named.series.into_iter().zip(texts).filter_map(|(series, text)| {
                let place = wanted.series.iter().position(|wanted| wanted == text)?;
                let first = words.len();
                words.extend((series.at..).take(series.form.words()));
                Some((place, Series { at: first, ..series }))
            });
            let series: Vec<(usize, Series)> = mine.collect();
            if !series.is_empty() {
                taken.push(Taken { columns: Columns { words, ..named.columns }, rank, series });
            }
        }
        taken.sort_by_key(|taken| (taken.rank, taken.columns.track));
        Ok(taken)
    }

    fn read(
        &self,
        number: usize,
        taken: &Taken,
        folds: &mut [Option<Fold>],
        width_ns: &mut u64,
        gaps: &mut Vec<Gap>,
    ) -> Result<(), Stop> {
        let Span { from_ns, to_ns, points } = self.span;
        gaps.extend(self.store.gaps(&taken.columns, from_ns, to_ns));
        let durable_until_ns = self.store.durable_until_ns(taken.columns.track);
        for (at, series) in &taken.series {
            let fold = folds[*at].get_or_insert_with(|| Fold::within(series.clone(), *width_ns));
            fold.durable_until_ns = fold.durable_until_ns.max(durable_until_ns);
        }
        let mut bytes: usize = folds.iter().flatten().map(Fold::bytes).sum::<usize>() + size_of_val(&**gaps);
        let mut stop = None;
        let mut until_look = 0;
        let wide_ns = self.span.wide_ns();
        let damaged = self.store.read_coarse(&taken.columns, wide_ns, from_ns, to_ns, |sample| {
            if until_look == 0 {
                until_look = LOOK_ROWS;
                stop = (!self.has_time()).then_some(Stop::Time);
            }
            until_look -= 1;
            for (at, series) in &taken.series {
                let Some(fold) = &mut folds[*at] else { continue };
                let before = fold.bytes();
                fold.push(Source { rank: taken.rank, track: number, series }, sample);
                bytes = bytes.saturating_add(fold.bytes()).saturating_sub(before);
                if *width_ns == 0 && fold.points.len() > points {
                    *width_ns = wide_ns;
                    folds.iter_mut().flatten().for_each(|fold| fold.widen(*width_ns));
                    bytes = folds.iter().flatten().map(Fold::bytes).sum();
                }
            }
            if bytes > MAX_FOLDED_BYTES {
                stop = Some(Stop::Bytes);
            }
            if stop.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        gaps.extend(damaged);
        stop.map_or(Ok(()), Err)
    }
}

/// Texts of all series.
fn texts_of(all: &[Named]) -> Vec<Vec<String>> {
    all.iter().map(|named| named.series.iter().map(Series::text).collect()).collect()
}

/// In order, and those that touch and have one reason as one.
fn join(gaps: &mut Vec<Gap>) {
    gaps.sort_by_key(|gap| (gap.from_ns, Reverse(gap.to_ns)));
    gaps.dedup_by(|later, earlier| {
        let same = later.from_ns <= earlier.to_ns && later.reason == earlier.reason;
        earlier.to_ns = if same { earlier.to_ns.max(later.to_ns) } else { earlier.to_ns };
        same
    });
}

/// Text that is no longer than it may be.
struct Text(Vec<u8>);

impl Write for Text {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.0.len() + piece.len() > MAX_ANSWER_BYTES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Serialize)]
struct Lack<'a> {
    from_ms: f64,
    to_ms: f64,
    reason: &'a str,
}

impl<'a> Lack<'a> {
    fn of(gap: &'a Gap) -> Self {
        Self { from_ms: ms(gap.from_ns), to_ms: ms(gap.to_ns), reason: &gap.reason }
    }
}

fn write(width_ns: u64, folds: Vec<(String, Option<Fold>)>, missing: &Missing, gaps: &[Gap]) -> io::Result<Vec<u8>> {
    let mut text = Text(Vec::new());
    write!(text, "{{\"bucket_ms\":{},\"series\":[", ms(width_ns))?;
    for (at, (name, fold)) in folds.into_iter().enumerate() {
        text.write_all(if at == 0 { b"" } else { b"," })?;
        serde_json::to_writer(&mut text, &Drawn { name, fold, missing })?;
    }
    text.write_all(b"],\"gaps\":")?;
    serde_json::to_writer(&mut text, &gaps.iter().map(Lack::of).collect::<Vec<_>>())?;
    text.write_all(b"}")?;
    Ok(text.0)
}

/// A series as charts want it.
struct Drawn<'a> {
    name: String,
    fold: Option<Fold>,
    missing: &'a Missing,
}

impl Serialize for Drawn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("series", &self.name)?;
        let Some(fold) = &self.fold else {
            map.serialize_entry("type", &None::<()>)?;
            map.serialize_entry("t_ms", &[0.0; 0])?;
            return map.end();
        };
        map.serialize_entry("type", &fold.series.metric)?;
        map.serialize_entry("unit", &*fold.series.unit)?;
        map.serialize_entry("durable_until_ms", &ms(fold.durable_until_ns))?;
        map.serialize_entry("t_ms", &Each(&fold.points, |point: &Point| ms(point.time_ns)))?;
        match fold.series.form {
            Form::Text => {}
            Form::Histogram(shape) => {
                let used = used(fold);
                let bound = |number: u64| Sample::U64(number).scaled(fold.series.scale);
                let range = |at: &u32| shape.range(*at as usize);
                map.serialize_entry("lows", &Each(&used, |at: &u32| bound(range(at).0)))?;
                map.serialize_entry("bounds", &Each(&used, |at: &u32| bound(range(at).1)))?;
                map.serialize_entry("counts", &Each(&fold.points, |point: &Point| dense(point, &used)))?;
            }
            _ => {
                map.serialize_entry("last", &Each(&fold.points, |point: &Point| point.last))?;
                if fold.is_counter() {
                    let rates = fold.rates(self.missing);
                    map.serialize_entry("rate", &rates)?;
                    if fold.has_buckets() {
                        map.serialize_entry("rate_min", &fold.extremes(&rates, |point| point.slowest))?;
                        map.serialize_entry("rate_max", &fold.extremes(&rates, |point| point.fastest))?;
                    }
                } else {
                    map.serialize_entry("min", &Each(&fold.points, |point: &Point| point.min))?;
                    map.serialize_entry("max", &Each(&fold.points, |point: &Point| point.max))?;
                }
            }
        }
        map.end()
    }
}

/// Something of each.
struct Each<'a, T, F>(&'a [T], F);

impl<T, U: Serialize, F: Fn(&T) -> U> Serialize for Each<'_, T, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(&self.1))
    }
}

/// The buckets of a histogram that anything was counted in.
fn used(fold: &Fold) -> Vec<u32> {
    let Form::Histogram(shape) = fold.series.form else { return Vec::new() };
    let mut is_used = vec![false; shape.buckets()];
    for (at, _) in fold.points.iter().flat_map(|point| &point.fresh) {
        // Another track's may have had more of them.
        is_used.get_mut(*at as usize).into_iter().for_each(|is_used| *is_used = true);
    }
    (0..).zip(&is_used).filter(|(_, is_used)| **is_used).map(|(at, _)| at).collect()
}

/// New observations by the buckets that are used.
fn dense(point: &Point, used: &[u32]) -> Vec<u64> {
    let mut fresh = point.fresh.iter().peekable();
    let of = |at: &u32| fresh.next_if(|(mine, _)| mine == at).map_or(0, |(_, new)| *new);
    used.iter().map(of).collect()
}

#[cfg(test)]
mod tests;
