// SPDX-License-Identifier: Apache-2.0
//! A store in a directory of its own, and what is asked of it.

use std::sync::Arc;

use onlooker_framestore::client::{Appender, Description};
use onlooker_framestore::layout::{Layout, Part};
use onlooker_framestore::types::{Line, TrackId};
use onlooker_framestore::{Config, Store, Writer, open};
use onlooker_promql::histogram::Histogram;
use onlooker_promql::labels::Labels;
use onlooker_promql::limits::{Budget, Cancel, Limits};
use onlooker_promql::source::{Newest, STALE, SeriesSource as _, Span};
use onlooker_promql::value::Value;
use onlooker_promql::{Options, Query, Times};
use onlooker_region::schema::Metric;
use onlooker_series::exposition::number;
use onlooker_series::series::{Form, Series};

use crate::StoreSource;

/// UTC ns at which all tests begin.
pub(crate) const T0: u64 = 1_700_000_000_000_000_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000 * MS;

pub(crate) fn pair(name: &str, value: &str) -> (String, String) {
    (name.into(), value.into())
}

pub(crate) fn gauge(name: &str) -> Series {
    Series::new(name, Metric::Gauge, Form::Float)
}

/// Parts of a host's agent, each of some series.
pub(crate) fn description(host: &str, parts: Vec<Vec<Series>>) -> Description {
    let parts = parts.into_iter().enumerate().map(|(at, series)| Part::new(&format!("part{at}"), 0, series).shared());
    Description {
        host: host.into(),
        common: vec![pair("instance", host)],
        source: 0,
        region: Vec::new(),
        layout: Arc::new(Layout::new(parts.collect(), false)),
        texts: Vec::new(),
    }
}

/// Of a query that matches so many series at most.
pub(crate) fn budget(series: usize) -> Budget {
    Budget::new(Limits { series, ..Limits::default() }, Cancel::default(), None)
}

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) writer: Writer,
    pub(crate) appender: Appender,
    _dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::keeping_all(dir.path().join("store"), dir.path().join("ring"), 16 << 20, 1 << 30);
        let (store, writer, appender, _) = open(config).unwrap();
        Self { store, writer, appender, _dir: dir }
    }

    pub(crate) fn track(&mut self, description: &Description) -> TrackId {
        self.appender.track(description, T0).unwrap()
    }

    pub(crate) fn append(&mut self, track: TrackId, time_ns: u64, words: &[u64]) {
        self.appender.append(track, Line::ONLY, time_ns, words).unwrap();
    }

    /// Samples of all series that match, of a time after T0. What was appended is in heads then.
    pub(crate) fn samples(&mut self, selector: &str, after_ns: u64, until_ns: u64) -> Vec<(Labels, Vec<(u64, f64)>)> {
        self.writer.turn().unwrap();
        let source = StoreSource::new(&self.store);
        let [after_ns, until_ns] = [after_ns, until_ns].map(|ns| (T0 + ns).cast_signed());
        let span = Span { after_ns, until_ns };
        let found = source.select(&Query::selector(selector).unwrap(), span, &budget(1_000)).unwrap();
        let all = found.into_iter().map(|found| {
            let mut chunks = source.read(found.key, span).unwrap();
            let mut samples = Vec::new();
            while let Some(chunk) = chunks.next().unwrap() {
                assert_eq!(chunk.times_ns.len(), chunk.values.len());
                let times_ns = chunk.times_ns.iter().map(|time_ns| time_ns.cast_unsigned() - T0);
                samples.extend(times_ns.zip(chunk.values.iter().copied()));
            }
            assert!(samples.is_sorted_by(|one, next| one.0 < next.0), "{samples:?}");
            (found.labels, samples)
        });
        all.collect()
    }

    /// Histograms of the one series that matches.
    pub(crate) fn histograms(&mut self, selector: &str, after_ns: u64, until_ns: u64) -> Vec<Arc<Histogram>> {
        self.writer.turn().unwrap();
        let source = StoreSource::new(&self.store);
        let [after_ns, until_ns] = [after_ns, until_ns].map(|ns| (T0 + ns).cast_signed());
        let span = Span { after_ns, until_ns };
        let found = source.select(&Query::selector(selector).unwrap(), span, &budget(1)).unwrap();
        let (mut all, mut chunks) = (Vec::new(), source.read(found[0].key, span).unwrap());
        while let Some(chunk) = chunks.next().unwrap() {
            all.extend(chunk.histograms.iter().flatten().cloned());
        }
        all
    }

    /// What series have at a time after T0, looking back for so long: by their newest sample, where that is known, and
    /// by all samples. A series that has ended has nothing.
    pub(crate) fn newest(&mut self, selector: &str, at_ns: u64, back_ns: u64) -> Vec<[Option<(i64, f64)>; 2]> {
        self.writer.turn().unwrap();
        let source = StoreSource::new(&self.store);
        let until_ns = (T0 + at_ns).cast_signed();
        let span = Span { after_ns: until_ns - back_ns.cast_signed(), until_ns };
        let found = source.select(&Query::selector(selector).unwrap(), span, &budget(1_000)).unwrap();
        let all = found.into_iter().map(|found| {
            let (mut read, mut chunks) = (None, source.read(found.key, span).unwrap());
            while let Some(chunk) = chunks.next().unwrap() {
                let samples = chunk.times_ns.iter().copied().zip(chunk.values.iter().copied());
                read = samples.take_while(|(time_ns, _)| *time_ns <= until_ns).last().or(read);
            }
            let of_time =
                |(time_ns, value): &(i64, f64)| *time_ns > span.after_ns && value.to_bits() != STALE.to_bits();
            let newest = match source.newest(found.key, span).unwrap() {
                Newest::Unknown => read,
                Newest::Nothing => None,
                Newest::Sample { time_ns, value } => Some((time_ns, value)),
            };
            [newest, read].map(|sample| sample.filter(of_time))
        });
        all.collect()
    }

    /// What a query gives at a time after T0, each series as `{labels} value`; a histogram as Prometheus writes it.
    pub(crate) fn query(&mut self, text: &str, at_ns: u64) -> Vec<String> {
        self.writer.turn().unwrap();
        let times = Times::instant((T0 + at_ns).cast_signed());
        let query = Query::parse(text, times).unwrap();
        let answer = query.run(&StoreSource::new(&self.store), &Options::default()).unwrap();
        let Value::Vector(series) = answer.value else { panic!("{:?}", answer.value) };
        let value = |series: &onlooker_promql::value::Series| match series.histogram(0) {
            Some(histogram) => histogram.to_string(),
            None => number(series.values[0]),
        };
        series.iter().map(|series| format!("{} {}", series.labels, value(series))).collect()
    }
}
