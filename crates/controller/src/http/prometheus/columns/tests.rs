// SPDX-License-Identifier: Apache-2.0
use std::sync::Arc;

use onlooker_promql::histogram::{Histogram, Scale};
use onlooker_promql::labels::Matcher;
use onlooker_promql::limits::Budget;
use onlooker_promql::source::{Chunks, Found, STALE, SeriesSource, SourceError, Span};
use onlooker_promql::value::{Series, is_hole};
use onlooker_promql::{Options, Query, Times};
use serde_json::{Value as Json, json};

use super::super::json::written as text;
use super::*;

/// What queries make by themselves is enough.
struct Nothing;

impl SeriesSource for Nothing {
    fn select(&self, _: &[Matcher], _: Span, _: &Budget) -> Result<Vec<Found>, SourceError> {
        Ok(Vec::new())
    }

    fn read<'a>(&'a self, _: u64, _: Span) -> Result<Box<dyn Chunks + 'a>, SourceError> {
        Err("there is nothing to read".into())
    }
}

const MS: i64 = 1_000_000;

fn answer(query: &str, [start_ms, end_ms, step_ms]: [i64; 3]) -> Answer {
    let times = Times { start_ns: start_ms * MS, end_ns: end_ms * MS, step_ns: step_ms * MS };
    Query::parse(query, times).unwrap().run(&Nothing, &Options::default()).unwrap()
}

/// From 1.5 s to 3 s.
fn quarters(query: &str) -> Answer {
    answer(query, [1500, 3000, 250])
}

fn series(answer: &mut Answer) -> &mut Vec<Series> {
    let Value::Vector(all) = &mut answer.value else { panic!("no vector") };
    all
}

/// Head, and the columns that follow.
fn taken(bytes: &[u8]) -> (Json, Vec<Vec<f64>>) {
    let (length, rest) = bytes.split_at(LENGTH_BYTES);
    let (head, values) = rest.split_at(u32::from_le_bytes(length.try_into().unwrap()) as usize);
    assert_eq!((LENGTH_BYTES + head.len()) % VALUE_BYTES, 0);
    let head: Json = serde_json::from_slice(head).unwrap();
    let size = |name: &str| usize::try_from(head["data"][name].as_u64().unwrap()).unwrap();
    assert_eq!(values.len(), size("series") * size("steps") * VALUE_BYTES);
    let values: Vec<f64> =
        values.chunks_exact(VALUE_BYTES).map(|value| f64::from_le_bytes(value.try_into().unwrap())).collect();
    let columns = values.chunks(size("steps")).map(<[f64]>::to_vec).collect();
    (head, columns)
}

/// What JSON says, put together again of columns: numbers as Rust writes them.
fn as_json(bytes: &[u8]) -> Json {
    let (mut head, columns) = taken(bytes);
    let data = head["data"].as_object_mut().unwrap();
    let mut number = |name: &str| data.remove(name).unwrap().as_f64().unwrap();
    let [start_ms, step_ms, _, _] = ["start_ms", "step_ms", "steps", "series"].map(&mut number);
    let all = data["result"].as_array_mut().unwrap();
    assert_eq!(all.len(), columns.len());
    for (one, column) in all.iter_mut().zip(columns) {
        let steps = (0u32..).zip(column).filter(|(_, value)| !is_hole(*value));
        let pair = |(step, value): (u32, f64)| json!([(start_ms + f64::from(step) * step_ms) / 1e3, value.to_string()]);
        let values: Vec<Json> = steps.map(pair).collect();
        if !values.is_empty() {
            one["values"] = values.into();
        }
    }
    head
}

fn parsed(text: &str) -> Json {
    let mut answer: Json = serde_json::from_str(text).unwrap();
    for one in answer["data"]["result"].as_array_mut().unwrap() {
        for pair in one.get_mut("values").and_then(Json::as_array_mut).into_iter().flatten() {
            let value: f64 = pair[1].as_str().unwrap().parse().unwrap();
            *pair = json!([pair[0].as_f64().unwrap(), value.to_string()]);
        }
    }
    answer
}

#[test]
fn an_answer_is_byte_for_byte_what_the_dashboards_tests_read() {
    let example: Json = serde_json::from_str(include_str!("example.json")).unwrap();
    let times = ["start_ms", "end_ms", "step_ms"].map(|name| example[name].as_i64().unwrap());
    let written = written(&answer(example["query"].as_str().unwrap(), times), usize::MAX, None).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let head = example["head"].as_str().unwrap();
    let (front, values) = written.split_at(LENGTH_BYTES + head.len());
    assert_eq!(std::str::from_utf8(&front[LENGTH_BYTES..]).unwrap(), head);
    assert_eq!(hex(&front[..LENGTH_BYTES]), example["length"]);
    let columns = example["columns"].as_array().unwrap().iter().flat_map(|column| column.as_array().unwrap());
    let columns: String = columns.map(|value| value.as_str().unwrap()).collect();
    assert_eq!(hex(values), columns);
}

#[test]
fn columns_say_what_json_says() {
    for (query, count) in [
        ("1", 1),
        ("time()", 1),
        ("NaN", 1),
        ("vector(1) / 0", 1),
        ("-(vector(1) / 0)", 1),
        ("vector(time()) * 0.1", 1),
        // Values at some steps only.
        ("vector(time()) > 2", 1),
        ("label_replace(vector(time()) < 2, \"a\", \"é\\\"\", \"\", \"\") or vector(2)", 2),
        // Series without any are none.
        ("vector(time()) > 9", 0),
        ("label_replace(vector(time()) > 9, \"a\", \"b\", \"\", \"\") or vector(2)", 1),
        ("absent_over_time(x[5m])", 1),
        ("x", 0),
        // With a warning.
        ("quantile(2, vector(1))", 1),
    ] {
        let answer = quarters(query);
        for (most, stats) in [(usize::MAX, None), (1, Some(r#"{"timings":{"evalTotalTime":0.5}}"#))] {
            let columns = as_json(&written(&answer, most, stats).unwrap());
            assert_eq!(columns, parsed(&text(&answer, true, most, stats).unwrap()), "{query}");
            assert_eq!(columns["data"]["result"].as_array().unwrap().len(), count.min(most), "{query}");
            assert_eq!(columns["warnings"].is_array(), count > most || query.starts_with("quantile"), "{columns}");
        }
    }
}

#[test]
fn what_is_not_told_is_said() {
    let answer = quarters("label_replace(vector(1), \"a\", \"b\", \"\", \"\") or vector(2)");
    let (head, columns) = taken(&written(&answer, 1, None).unwrap());
    assert_eq!((columns, &head["data"]["result"]), (vec![vec![2.0; 7]], &json!([{"metric": {}}])));
    assert_eq!(head["warnings"], json!(["results truncated due to limit"]));
    assert!(taken(&written(&answer, 2, None).unwrap()).0["warnings"].is_null());
}

#[test]
fn only_one_nan_is_a_hole() {
    let mut answer = quarters("vector(1)");
    let other = f64::from_bits(STALE.to_bits() | 1 << 51);
    let values = vec![f64::NAN, -f64::NAN, STALE, other, f64::INFINITY, -0.0, f64::from_bits(1)];
    series(&mut answer)[0].values.clone_from(&values);
    let (_, columns) = taken(&written(&answer, 1, None).unwrap());
    let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&columns[0]), bits(&values));
    let holes: Vec<usize> = (0..7).filter(|step| is_hole(columns[0][*step])).collect();
    assert_eq!((holes, STALE.to_bits()), (vec![2], 0x7ff0_0000_0000_0002));
}

#[test]
fn what_is_no_column_of_doubles_has_none() {
    let mut answer = quarters("label_replace(vector(1), \"a\", \"b\", \"\", \"\") or vector(2)");
    let histogram = Histogram::empty(Scale::Exponential { schema: 0, zero_threshold: 0.25 });
    // Room for histograms is none yet.
    series(&mut answer)[1].histograms = vec![None; 7];
    assert!(written(&answer, usize::MAX, None).is_some());
    series(&mut answer)[1].histograms[3] = Some(Arc::new(histogram));
    assert!(written(&answer, usize::MAX, None).is_none());
    assert!(written(&answer, 1, None).is_some(), "it is not told");
    answer.value = Value::String("a".into());
    assert!(written(&answer, usize::MAX, None).is_none());
    answer.value = Value::Matrix(Vec::new());
    assert!(written(&answer, usize::MAX, None).is_none());
}

/// A page of memory that nobody looks into costs none.
#[test]
fn what_would_be_too_long_goes_as_json() {
    let mut answer = quarters("vector(1)");
    let most = (64 << 20) / VALUE_BYTES;
    answer.grid.count = most;
    series(&mut answer)[0].values = vec![0.0; most];
    assert!(written(&answer, usize::MAX, None).is_none());
    answer.grid.count = usize::MAX;
    assert!(written(&answer, usize::MAX, None).is_none());
}

#[test]
fn times_are_exact() {
    let written = |ns| {
        let mut out = String::new();
        milliseconds(&mut out, ns);
        out
    };
    for (ns, text) in [
        (0, "0"),
        (1_795_300_000_000_000_000, "1795300000000"),
        (1_795_300_000_000_000_001, "1795300000000.000001"),
        (10_500_000, "10.5"),
        (-1_500_000, "-1.5"),
        (-1, "-0.000001"),
        (i64::MIN, "-9223372036854.775808"),
    ] {
        assert_eq!(written(ns), text);
    }
}
