// SPDX-License-Identifier: Apache-2.0
//! Rows of one series into no more points than a chart has, while they are read. Pure.
//!
//! Rows are points of their own until there are more than are wanted; then all go into buckets of one width, and what
//! comes later, too. So memory is that of the points, however many rows there are. Rows come in order of time, but
//! where they begin again earlier (another track, or a clock that was set): a *run* each.
//!
//! **Rates** are over the time between two points ([`onlooker_series::rate`]); times without the entity are missing as
//! gaps are. The least and the greatest of a bucket are from row to row.

use onlooker_framestore::Sample;
use onlooker_region::number::exported;
use onlooker_region::schema::Metric;
use onlooker_series::rank::{Precedence, Rank};
use onlooker_series::rate::{Growth, Missing, per_second};
use onlooker_series::series::{Form, Series};

/// An entity that takes another's place within so many usual distances of their rows was not missing.
const REPLACED: u64 = 3;

/// Rows of a bucket, or one row.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) first_ns: u64,
    /// Of its last row.
    pub(super) time_ns: u64,
    first: f64,
    pub(super) last: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// Of a counter, from `first` to its last row.
    increase: f64,
    /// Of a counter, from row to row, the one before `first` among them; NaN: not known.
    pub(super) slowest: f64,
    pub(super) fastest: f64,
    /// Of a histogram: number of the bucket and new observations since the point before.
    pub(super) fresh: Vec<(u32, u64)>,
    run: u32,
}

fn add(fresh: &mut Vec<(u32, u64)>, more: Vec<(u32, u64)>) {
    fresh.extend(more);
    fresh.sort_unstable_by_key(|(at, _)| *at);
    fresh.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        earlier.1 = if same { earlier.1.saturating_add(later.1) } else { earlier.1 };
        same
    });
}

impl Point {
    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.fresh)
    }

    /// Takes the point behind it in.
    fn join(&mut self, next: Self) {
        self.increase += Growth::of(self.last, next.first).increase + next.increase;
        (self.time_ns, self.last, self.run) = (next.time_ns, next.last, next.run);
        (self.min, self.max) = (self.min.min(next.min), self.max.max(next.max));
        (self.slowest, self.fastest) = (self.slowest.min(next.slowest), self.fastest.max(next.fastest));
        add(&mut self.fresh, next.fresh);
    }
}

/// Where a row is from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    /// Of several series of one text the least is shown.
    pub(super) rank: Rank,
    /// Number of its track.
    pub(super) track: usize,
    /// How to read it.
    pub(super) series: &'a Series,
}

/// A row that came before.
#[derive(Clone, Copy, Debug)]
struct Before {
    time_ns: u64,
    track: usize,
}

/// One series.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) series: Series,
    /// Its rows up to this time are durable.
    pub(super) durable_until_ns: u64,
    pub(super) points: Vec<Point>,
    width_ns: u64,
    /// Whether there were buckets of rollups among the rows.
    has_rolled: bool,
    run: u32,
    before: Option<Before>,
    /// Of a histogram: counts of the last row, and those of the last row of the point before.
    counts: Vec<u64>,
    closed: Option<Vec<u64>>,
    /// Times between two entities.
    holes: Vec<(u64, u64)>,
    /// Sum and number of the distances between two rows of one entity.
    distances: (u64, u64),
    precedence: Precedence,
    bytes: usize,
}

impl Fold {
    pub(super) fn new(series: Series) -> Self {
        Self {
            series,
            durable_until_ns: 0,
            points: Vec::new(),
            width_ns: 0,
            has_rolled: false,
            run: 0,
            before: None,
            counts: Vec::new(),
            closed: None,
            holes: Vec::new(),
            distances: (0, 0),
            precedence: Precedence::default(),
            bytes: 0,
        }
    }

    /// With buckets of this width from its first row on, as other series of the query have them already; 0: none yet.
    pub(super) fn within(series: Series, width_ns: u64) -> Self {
        Self { width_ns, ..Self::new(series) }
    }

    /// What it takes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + size_of_val(&*self.holes) + 2 * size_of_val(&*self.counts)
    }

    /// Takes a row, or a bucket of them. Ranks ascend.
    pub(super) fn push(&mut self, Source { rank, track, series }: Source<'_>, sample: &Sample<'_>) {
        let Sample { time_ns, words: row, bucket } = *sample;
        if !self.precedence.shows(rank, time_ns) {
            return;
        }
        // A host's next track begins with what of its last one has nothing new.
        if self.before.is_some_and(|before| before.time_ns == time_ns && before.track != track) {
            return;
        }
        let mut step_ns = 0;
        match self.before {
            Some(before) if before.time_ns >= time_ns => self.begin_run(),
            Some(before) if before.track != track => self.holes.push((before.time_ns, time_ns)),
            Some(before) => {
                step_ns = time_ns - before.time_ns;
                self.distances = (self.distances.0.saturating_add(step_ns), self.distances.1 + 1);
            }
            None => {}
        }
        self.before = Some(Before { time_ns, track });
        let number = |row: &[u64]| match series.form {
            Form::Text | Form::Histogram(_) => f64::NAN,
            _ => series.number(row).unwrap_or(f64::NAN),
        };
        let mut point = Point {
            first_ns: time_ns,
            time_ns,
            first: number(row),
            last: number(row),
            min: number(bucket.map_or(row, |bucket| bucket.least)),
            max: number(bucket.map_or(row, |bucket| bucket.largest)),
            increase: 0.0,
            slowest: f64::NAN,
            fastest: f64::NAN,
            fresh: Vec::new(),
            run: self.run,
        };
        if let Some(bucket) = bucket {
            self.has_rolled = true;
            (point.first, point.increase) = (number(bucket.before), number(bucket.increase));
            if let Some(Some((slowest, fastest))) = bucket.rates.get(series.at) {
                let shown = |rate| exported(rate, series.scale);
                (point.slowest, point.fastest) = (shown(*slowest), shown(*fastest));
            }
        } else if let Some(last) = self.points.last().filter(|_| step_ns > 0 && step_ns >= series.resolution_ns) {
            let rate = per_second(Growth::of(last.last, point.first).increase, 0, step_ns).unwrap_or(f64::NAN);
            (point.slowest, point.fastest) = (rate, rate);
        }
        if self.is_of_last(&point) {
            if let Some(last) = self.points.last_mut() {
                last.join(point);
            }
        } else {
            self.close();
            self.bytes += point.bytes();
            self.points.push(point);
        }
        if let Form::Histogram(_) = series.form
            && let Some((_, buckets)) = series.words(row).split_last()
        {
            self.counts.clear();
            self.counts.extend_from_slice(buckets);
        }
    }

    fn is_of_last(&self, point: &Point) -> bool {
        let bucket = |point: &Point| point.time_ns.checked_div(self.width_ns);
        let is_same = |last: &Point| last.run == point.run && bucket(last) == bucket(point);
        self.width_ns > 0 && self.points.last().is_some_and(is_same)
    }

    fn begin_run(&mut self) {
        self.close();
        (self.closed, self.before) = (None, None);
        self.run += 1;
    }

    /// Ends the last point of a histogram: what is new in it.
    fn close(&mut self) {
        let Some(last) = self.points.last_mut().filter(|_| !self.counts.is_empty()) else { return };
        if let Some(then) = &self.closed {
            let now = &self.counts;
            // Begun again: what is there is new.
            let is_reset = then.len() != now.len() || then.iter().zip(now).any(|(then, now)| now < then);
            let then = |at: usize| if is_reset { 0 } else { then[at] };
            let fresh = now.iter().enumerate().map(|(at, now)| (at, now - then(at))).filter(|(_, new)| *new > 0);
            let fresh = fresh.map(|(at, new)| (u32::try_from(at).unwrap_or(u32::MAX), new)).collect();
            let before = last.bytes();
            add(&mut last.fresh, fresh);
            last.fresh.shrink_to_fit();
            self.bytes += last.bytes() - before;
        }
        self.closed = Some(std::mem::take(&mut self.counts));
    }

    /// Buckets of this width from now on.
    pub(super) fn widen(&mut self, width_ns: u64) {
        self.close();
        self.width_ns = width_ns;
        self.join_neighbours(false);
    }

    fn join_neighbours(&mut self, across_runs: bool) {
        let mut joined: Vec<Point> = Vec::with_capacity(self.points.len().min(1024));
        for point in std::mem::take(&mut self.points) {
            let bucket = |point: &Point| point.time_ns.checked_div(self.width_ns);
            match joined.last_mut() {
                Some(last) if bucket(last) == bucket(&point) && (across_runs || last.run == point.run) => {
                    last.join(point)
                }
                _ => joined.push(point),
            }
        }
        self.points = joined;
        self.bytes = self.points.iter().map(Point::bytes).sum();
    }

    /// No more rows come: points in order of time.
    pub(super) fn finish(&mut self) {
        self.close();
        if self.run > 0 {
            self.points.sort_by_key(|point| point.time_ns);
            let changes =
                self.points.windows(2).filter(|two| two[0].run != two[1].run && two[0].time_ns < two[1].first_ns);
            self.holes.extend(changes.map(|two| (two[0].time_ns, two[1].first_ns)));
            if self.width_ns > 0 {
                self.join_neighbours(true);
            }
        }
        let usual_ns = self.distances.0.checked_div(self.distances.1).unwrap_or(0).max(self.series.resolution_ns);
        self.holes.retain(|(from, to)| to - from > usual_ns.saturating_mul(REPLACED));
    }

    /// The rate that each point ends with.
    pub(super) fn rates(&self, gaps: &Missing) -> Vec<Option<f64>> {
        let missing = gaps.with(&self.holes);
        let mut before: Option<&Point> = None;
        let mut rate = |point| {
            let then = before.replace(point)?;
            let increase = Growth::of(then.last, point.first).increase + point.increase;
            missing.rate(increase, then.time_ns, point.time_ns)
        };
        self.points.iter().map(&mut rate).collect()
    }

    /// Whether points may be of more than a row.
    pub(super) fn has_buckets(&self) -> bool {
        self.width_ns > 0 || self.has_rolled
    }

    /// The same of the least or the greatest from row to row, where there is a rate.
    pub(super) fn extremes(&self, rates: &[Option<f64>], of: impl Fn(&Point) -> f64) -> Vec<Option<f64>> {
        self.points.iter().zip(rates).map(|(point, rate)| rate.map(|_| of(point))).collect()
    }

    pub(super) fn is_counter(&self) -> bool {
        self.series.metric == Metric::Counter && !matches!(self.series.form, Form::Text | Form::Histogram(_))
    }
}

#[cfg(test)]
#[path = "../../../series/tests/rates/cases.rs"]
mod cases;

#[cfg(test)]
mod tests {
    use super::cases::{Case, cases};
    use super::*;
    use onlooker_region::histogram::Shape;
    use onlooker_region::schema::Acquisition;

    const MS: u64 = 1_000_000;

    fn series(metric: Metric, form: Form) -> Series {
        Series { acquisition: Acquisition::Sampled, ..Series::new("x", metric, form) }
    }

    fn counter() -> Fold {
        Fold::new(series(Metric::Counter, Form::Unsigned))
    }

    fn put(fold: &mut Fold, rank: u8, track: usize, time_ns: u64, row: &[u64]) {
        let series = fold.series.clone();
        let sample = Sample { time_ns, words: row, bucket: None };
        fold.push(Source { rank: Rank::Agents(rank), track, series: &series }, &sample);
    }

    fn gaps(of: &[(u64, u64)]) -> Missing {
        Missing::of(of.iter().map(|(from, to)| (from * MS, to * MS)))
    }

    fn shown(rates: &[Option<f64>]) -> Vec<String> {
        rates.iter().map(|rate| rate.map_or("-".into(), |rate| format!("{rate:.2}"))).collect()
    }

    #[test]
    fn rates_are_those_of_the_vectors() {
        for Case { what, rows, gaps: of, rates } in cases() {
            let mut fold = Fold::new(series(Metric::Counter, Form::Float));
            rows.iter().for_each(|(ms, value)| put(&mut fold, 0, 0, ms * MS, &[value.to_bits()]));
            fold.finish();
            assert_eq!(shown(&fold.rates(&gaps(&of))), shown(&rates), "{what}");
        }
    }

    #[test]
    fn resets_and_entities_that_were_gone() {
        let mut fold = counter();
        [100, 110, 4, 8]
            .iter()
            .enumerate()
            .for_each(|(n, value)| put(&mut fold, 0, 0, n as u64 * 1_000 * MS, &[*value]));
        // Another entity at once, and one after a minute.
        [3, 6].iter().enumerate().for_each(|(n, value)| put(&mut fold, 0, 1, (4 + n as u64) * 1_000 * MS, &[*value]));
        [9, 10].iter().enumerate().for_each(|(n, value)| put(&mut fold, 0, 2, (65 + n as u64) * 1_000 * MS, &[*value]));
        fold.finish();
        let none = Missing::default();
        assert_eq!(shown(&fold.rates(&none)), ["-", "10.00", "4.00", "4.00", "3.00", "3.00", "-", "1.00"]);
    }

    /// However the rows come, the same buckets: as points first, or folded from the start.
    #[test]
    fn buckets_are_the_same_whenever_they_begin() {
        bolero::check!().with_type::<(Vec<(u16, u8)>, u8)>().for_each(|(rows, at)| {
            let (mut late, mut early) = (counter(), counter());
            early.widen(100 * MS);
            let mut time_ns = 0;
            for (n, (step, value)) in rows.iter().enumerate() {
                time_ns += (u64::from(*step) + 1) * MS;
                put(&mut late, 0, 0, time_ns, &[u64::from(*value)]);
                put(&mut early, 0, 0, time_ns, &[u64::from(*value)]);
                if n == usize::from(*at) {
                    late.widen(100 * MS);
                }
            }
            late.widen(100 * MS);
            [&mut late, &mut early].into_iter().for_each(Fold::finish);
            assert_eq!(format!("{:?}", late.points), format!("{:?}", early.points));
            assert_eq!(late.rates(&Missing::default()), early.rates(&Missing::default()));
        });
    }

    #[test]
    fn a_better_series_hides_the_others() {
        let mut fold = Fold::new(series(Metric::Gauge, Form::Unsigned));
        [20, 30].iter().for_each(|t| put(&mut fold, 0, 0, t * MS, &[1]));
        [10, 25, 40].iter().for_each(|t| put(&mut fold, 3, 1, t * MS, &[2]));
        fold.finish();
        let got: Vec<(u64, f64)> = fold.points.iter().map(|point| (point.time_ns / MS, point.last)).collect();
        assert_eq!(got, [(10, 2.0), (20, 1.0), (30, 1.0), (40, 2.0)]);
    }

    #[test]
    fn a_histogram_costs_what_is_new_in_it() {
        let shape = Shape { grouping_power: 5, max_power: 63 };
        let mut fold = Fold::new(series(Metric::Histogram, Form::Histogram(shape)));
        let mut row = vec![0; shape.slots()];
        let points = 700;
        fold.widen(1_000 * MS);
        for n in 0..20_000u64 {
            row[usize::try_from(n % 50).unwrap()] += 1;
            put(&mut fold, 0, 0, n * 35 * MS, &row);
        }
        fold.finish();
        assert_eq!(fold.points.len(), points);
        let new: u64 = fold.points.iter().flat_map(|point| &point.fresh).map(|(_, new)| new).sum();
        // All but what the first point began with.
        assert!((19_960..20_000).contains(&new), "{new}");
        assert!(fold.bytes() < 1 << 20, "{} bytes of {} a row", fold.bytes(), shape.slots() * 8);
        // Set back to nothing: what is there is new.
        put(&mut fold, 0, 0, 20_000 * 35 * MS, &vec![1; shape.slots()]);
        fold.finish();
        assert_eq!(fold.points.last().unwrap().fresh.len(), shape.buckets());
    }
}
