// SPDX-License-Identifier: Apache-2.0
//! Prometheus' own test of PromQL speaks to this program: a request a line on standard input, an answer a line on
//! standard output. What it appends goes through a real store, in a directory that goes with the program.
//!
//! Values are their 64 bits in hexadecimal, since NaNs differ; times are ms since 1970. Its scripts begin at 1970 and
//! before, where the store has no rows: all that is stored is [`LATER_NS`] later than it is told.
#![allow(clippy::print_stdout)] // it is how it answers

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::num::ParseIntError;

use onlooker_framestore::client::Appender;
use onlooker_framestore::{Config, Store, Writer, open};
use onlooker_promql::histogram::{Buckets, Hint, Histogram, Scale};
use onlooker_promql::labels::{Labels, Matcher};
use onlooker_promql::limits::Budget;
use onlooker_promql::source::{Chunk, Chunks, Found, SeriesSource, SourceError, Span};
use onlooker_promql::value::{Series, Value, is_hole};
use onlooker_promql::{Answer, Options, Query, Times, formatted, tree};
use onlooker_query::{Recorder, StoreSource};
use serde::{Deserialize, Serialize};

const MS: i64 = 1_000_000;
/// More than any script looks back.
const LATER_NS: i64 = 1_000_000_000_000_000_000;
/// Samples between two turns of the store's writer: fewer than the ring has room for.
const BETWEEN_TURNS: usize = 1_000;
/// Schema of histograms with custom bounds.
const CUSTOM: i8 = -53;
const HINTS: [Hint; 4] = [Hint::Unknown, Hint::Reset, Hint::NotReset, Hint::Gauge];

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    /// A new, empty store.
    Open,
    Append {
        samples: Vec<Sample>,
    },
    Query {
        text: String,
        start_ms: i64,
        end_ms: i64,
        /// 0: an instant query.
        step_ms: i64,
        /// As Prometheus with its feature `promql-delayed-name-removal`.
        delays_names: bool,
    },
    /// A query's text and tree, as they are printed.
    Print {
        text: String,
    },
}

#[derive(Deserialize)]
struct Sample {
    labels: Vec<(String, String)>,
    time_ms: i64,
    bits: String,
    /// In place of the bits.
    histogram: Option<Native>,
}

/// A native histogram; all numbers but those of buckets are bits.
#[derive(Default, Deserialize, Serialize)]
struct Native {
    schema: i8,
    custom: Vec<String>,
    zero_threshold: String,
    zero_count: String,
    count: String,
    sum: String,
    positive: Vec<(i32, String)>,
    negative: Vec<(i32, String)>,
    /// As Prometheus numbers them.
    hint: usize,
}

#[derive(Default, Serialize)]
struct Told {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// `scalar`, `string`, `vector`, `matrix`.
    kind: &'static str,
    text: String,
    series: Vec<Points>,
    notes: Vec<String>,
    tree: serde_json::Value,
}

#[derive(Serialize)]
struct Points {
    labels: Vec<(String, String)>,
    points: Vec<(i64, String)>,
    histograms: Vec<(i64, Native)>,
}

/// The store, with times as the scripts have them.
struct Earlier<'a>(StoreSource<'a>);

struct EarlierChunks<'a> {
    chunks: Box<dyn Chunks + 'a>,
    times_ns: Vec<i64>,
}

fn later(span: Span) -> Span {
    Span { after_ns: span.after_ns.saturating_add(LATER_NS), until_ns: span.until_ns.saturating_add(LATER_NS) }
}

impl SeriesSource for Earlier<'_> {
    fn select(&self, matchers: &[Matcher], span: Span, budget: &Budget) -> Result<Vec<Found>, SourceError> {
        self.0.select(matchers, later(span), budget)
    }

    fn read<'a>(&'a self, key: u64, span: Span) -> Result<Box<dyn Chunks + 'a>, SourceError> {
        let chunks = self.0.read(key, later(span))?;
        Ok(Box::new(EarlierChunks { chunks, times_ns: Vec::new() }))
    }
}

impl Chunks for EarlierChunks<'_> {
    fn next(&mut self) -> Result<Option<Chunk<'_>>, SourceError> {
        let Some(chunk) = self.chunks.next()? else { return Ok(None) };
        self.times_ns = chunk.times_ns.iter().map(|time_ns| time_ns - LATER_NS).collect();
        Ok(Some(Chunk { times_ns: &self.times_ns, ..chunk }))
    }
}

struct World {
    store: Store,
    writer: Writer,
    appender: Appender,
    recorder: Recorder,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> Result<Self, Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let config = Config::keeping_all(dir.path().join("store"), dir.path().join("ring"), 16 << 20, 1 << 30);
        let (store, writer, appender, _) = open(config)?;
        Ok(Self { store, writer, appender, recorder: Recorder::new(usize::MAX), _dir: dir })
    }

    fn append(&mut self, samples: &[Sample]) -> Result<(), Box<dyn Error>> {
        for some in samples.chunks(BETWEEN_TURNS) {
            for sample in some {
                let labels = Labels::new(sample.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
                let time_ns = sample.time_ms * MS + LATER_NS;
                match &sample.histogram {
                    Some(native) => {
                        let histogram = native.histogram()?;
                        self.recorder.record_histogram(&mut self.appender, &labels, time_ns, &histogram)?;
                    }
                    None => self.recorder.record(&mut self.appender, &labels, time_ns, value(&sample.bits)?)?,
                }
            }
            self.writer.turn()?;
        }
        Ok(())
    }

    fn query(&self, text: &str, times: Times, delays_names: bool) -> Result<Told, Box<dyn Error>> {
        let options = Options { delays_names, ..Options::default() };
        let answer = Query::parse(text, times)?.run(&Earlier(StoreSource::new(&self.store)), &options)?;
        Ok(told(answer, times.step_ns > 0))
    }
}

fn bits(value: f64) -> String {
    format!("{:x}", value.to_bits())
}

fn value(bits: &str) -> Result<f64, ParseIntError> {
    u64::from_str_radix(bits, 16).map(f64::from_bits)
}

impl Native {
    fn of(histogram: &Histogram) -> Self {
        let buckets = |all: &Buckets| all.iter().map(|(number, count)| (*number, bits(*count))).collect();
        let (schema, custom, zero_threshold) = match &histogram.scale {
            Scale::Exponential { schema, zero_threshold } => (*schema, Vec::new(), *zero_threshold),
            Scale::Custom(bounds) => (CUSTOM, bounds.iter().copied().map(bits).collect(), 0.0),
        };
        Self {
            schema,
            custom,
            zero_threshold: bits(zero_threshold),
            zero_count: bits(histogram.zero_count),
            count: bits(histogram.count),
            sum: bits(histogram.sum),
            positive: buckets(&histogram.positive),
            negative: buckets(&histogram.negative),
            hint: HINTS.iter().position(|hint| *hint == histogram.hint).unwrap_or_default(),
        }
    }

    fn histogram(&self) -> Result<Histogram, ParseIntError> {
        let buckets = |all: &[(i32, String)]| -> Result<Buckets, ParseIntError> {
            all.iter().map(|(number, count)| Ok((*number, value(count)?))).collect()
        };
        let scale = match self.schema {
            CUSTOM => Scale::Custom(self.custom.iter().map(|bound| value(bound)).collect::<Result<_, _>>()?),
            schema => Scale::Exponential { schema, zero_threshold: value(&self.zero_threshold)? },
        };
        let mut histogram = Histogram {
            scale,
            count: value(&self.count)?,
            sum: value(&self.sum)?,
            zero_count: value(&self.zero_count)?,
            positive: buckets(&self.positive)?,
            negative: buckets(&self.negative)?,
            hint: HINTS.get(self.hint).copied().unwrap_or_default(),
        };
        histogram.compact();
        Ok(histogram)
    }
}

fn pairs(labels: &Labels) -> Vec<(String, String)> {
    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn told(Answer { grid, value, notes }: Answer, is_range: bool) -> Told {
    let steps = |values: &[f64]| -> Vec<(i64, String)> {
        let points = values.iter().enumerate().filter(|(_, value)| !is_hole(**value));
        points.map(|(step, value)| (grid.time_ns(step) / MS, bits(*value))).collect()
    };
    let notes = notes.iter().map(ToString::to_string).collect();
    let (kind, text, series) = match value {
        Value::String(text) => ("string", text, Vec::new()),
        Value::Scalar(values) => {
            let kind = if is_range { "matrix" } else { "scalar" };
            (kind, String::new(), vec![Points { labels: Vec::new(), points: steps(&values), histograms: Vec::new() }])
        }
        Value::Vector(series) => {
            let kind = if is_range { "matrix" } else { "vector" };
            let natives = |one: &Series| {
                let all = one.histograms.iter().enumerate();
                all.filter_map(|(step, own)| Some((grid.time_ns(step) / MS, Native::of(own.as_ref()?)))).collect()
            };
            let points = |one: &Series| Points {
                labels: pairs(&one.labels),
                points: steps(&one.values),
                histograms: natives(one),
            };
            (kind, String::new(), series.iter().map(points).collect())
        }
        Value::Matrix(all) => {
            let points = all.iter().map(|one| Points {
                labels: pairs(&one.labels),
                points: one.times_ns.iter().zip(&one.values).map(|(ns, value)| (ns / MS, bits(*value))).collect(),
                histograms: one.histograms.iter().map(|(ns, own)| (ns / MS, Native::of(own))).collect(),
            });
            ("matrix", String::new(), points.collect())
        }
    };
    Told { kind, text, series, notes, ..Told::default() }
}

fn obey(world: &mut World, line: &str) -> Result<Told, Box<dyn Error>> {
    match serde_json::from_str(line)? {
        Request::Open => *world = World::new()?,
        Request::Append { samples } => world.append(&samples)?,
        Request::Query { text, start_ms, end_ms, step_ms, delays_names } => {
            let times = Times { start_ns: start_ms * MS, end_ns: end_ms * MS, step_ns: step_ms * MS };
            return world.query(&text, times, delays_names);
        }
        Request::Print { text } => return Ok(Told { text: formatted(&text)?, tree: tree(&text)?, ..Told::default() }),
    }
    Ok(Told::default())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut world = World::new()?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let told =
            obey(&mut world, &line?).unwrap_or_else(|error| Told { error: Some(error.to_string()), ..Told::default() });
        serde_json::to_writer(&mut out, &told)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}
