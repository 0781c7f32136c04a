// SPDX-License-Identifier: Apache-2.0
//! The reading as JSON, for programs (docs/reading.md has the keys). Integers are exact; times are nanoseconds.

use super::directory::{Named, acquisitions, responders, type_name};
use super::samples::{Collected, Row};
use crate::host::Connection;
use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_reader::clock::{Relation, steady_ns};
use onlooker_reader::{Pair, Session};
use onlooker_region::columns::Value;
use onlooker_region::control::RegionEntry;
use onlooker_region::histogram::Shape;
use onlooker_region::limits::BLOCK_BYTES;
use serde::Serialize;
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

#[derive(Serialize)]
struct Host<'a> {
    name: &'a str,
    address: String,
    host_id: String,
    boot_id: String,
    agent: &'a str,
    /// Who answered the READs.
    via: &'static str,
    /// Who asked, and who answered.
    pair: String,
}

#[derive(Serialize)]
struct Clock {
    /// UTC of the host's boot clock's zero, ns since 1970.
    boot_utc_ns: Option<i64>,
    /// Bound of the error of every time and age in the document.
    error_ns: u64,
}

#[derive(Serialize)]
struct Region<'a> {
    id: u32,
    generation: u32,
    name: &'a str,
    labels: Map<String, serde_json::Value>,
    pid: u32,
    uid: u32,
    orphan: bool,
    blocks: u64,
    class: Option<&'a str>,
    schema: String,
    acquisition: Vec<&'static str>,
    responders: Vec<&'static str>,
    created_utc_ns: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<serde_json::Value>,
}

#[derive(Serialize)]
struct Sample<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    metric: &'static str,
    unit: &'a str,
    help: &'a str,
    labels: Map<String, serde_json::Value>,
    value: serde_json::Value,
    /// When the value was acquired.
    time_utc_ns: Option<i64>,
    /// At the time of the answer; 0 where the READ itself is the acquisition.
    age_ns: Option<i64>,
    resolution_ns: u64,
    region: u32,
    /// In tables: which row, and which of its lives. A row's number is used again, its generation is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<serde_json::Value>,
}

#[derive(Serialize)]
struct Reading<'a> {
    host: Host<'a>,
    clock: Clock,
    regions: Vec<Region<'a>>,
    samples: Vec<Sample<'a>>,
    left_out: u64,
    reads: serde_json::Value,
}

fn host(told: &Bootstrapped, pair: Pair) -> Host<'_> {
    let answer = &told.answer;
    Host {
        name: &answer.host,
        address: told.peer.to_string(),
        host_id: answer.host_id.to_string(),
        boot_id: answer.boot_id.to_string(),
        agent: &answer.agent,
        via: pair.via.kind(),
        pair: pair.to_string(),
    }
}

fn clock(relation: &Relation) -> Clock {
    Clock { boot_utc_ns: i64::try_from(relation.utc_ns(0)).ok(), error_ns: relation.error_ns(steady_ns()) }
}

fn labels(pairs: &[(String, String)]) -> Map<String, serde_json::Value> {
    pairs.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect()
}

fn region<'a>(entry: &'a RegionEntry, session: &'a Session, relation: &Relation) -> Region<'a> {
    Region {
        id: entry.identity.region,
        generation: entry.identity.generation,
        name: &entry.name,
        labels: labels(&entry.labels),
        pid: entry.pid,
        uid: entry.uid,
        orphan: entry.orphan,
        blocks: entry.bytes / BLOCK_BYTES as u64,
        class: session.schema(entry).map(|schema| schema.name.as_str()),
        schema: entry.schema.to_string(),
        acquisition: acquisitions(entry, session.schema(entry)),
        responders: responders(entry.responders),
        created_utc_ns: i64::try_from(relation.utc_ns(entry.created_ns)).ok(),
        problem: None,
        refused: Vec::new(),
    }
}

/// A number as JSON; what JSON has no number for becomes text, as Prometheus writes it.
fn number(value: f64) -> serde_json::Value {
    serde_json::Number::from_f64(value).map_or_else(|| crate::number::decimal(value).into(), Into::into)
}

fn value(value: &Value, scale: f64) -> serde_json::Value {
    let is_exact = scale.to_bits() == 1f64.to_bits();
    match value {
        Value::U64(count) if is_exact => (*count).into(),
        Value::I64(count) if is_exact => (*count).into(),
        Value::Text(text) => text.as_str().into(),
        Value::Histogram { buckets, shape, sum } => histogram(buckets, *shape, *sum, scale),
        other => number(other.scaled(scale)),
    }
}

/// Buckets that are not empty, with their inclusive bounds; the last bucket of the shape has no upper one.
fn histogram(buckets: &[u64], shape: Shape, sum: u64, scale: f64) -> serde_json::Value {
    let bound = |bound: u64| value(&Value::U64(bound), scale);
    let full = buckets.iter().enumerate().filter(|(_, count)| **count > 0);
    let buckets_json: Vec<_> = full
        .map(|(index, count)| {
            let (low, high) = shape.range(index);
            let high = (index + 1 < buckets.len()).then(|| bound(high));
            json!({"low": bound(low), "high": high, "count": count})
        })
        .collect();
    let count = buckets.iter().fold(0u64, |count, bucket| count.wrapping_add(*bucket));
    json!({"count": count, "sum": value(&Value::U64(sum), scale), "buckets": buckets_json})
}

fn sample<'a>(row: &'a Row, relation: &Relation) -> Sample<'a> {
    let (utc_ns, age_ns) = match row.time_ns {
        Some(time_ns) => (relation.utc_ns(time_ns), relation.age_ns(time_ns, row.answered_ns)),
        None => (relation.own_utc_ns(row.answered_ns), 0),
    };
    Sample {
        name: &row.name,
        metric: type_name(row.metric),
        unit: &row.unit,
        help: &row.help,
        labels: labels(&row.labels),
        value: value(&row.value, row.scale),
        time_utc_ns: i64::try_from(utc_ns).ok(),
        age_ns: i64::try_from(age_ns).ok(),
        resolution_ns: row.resolution_ns,
        region: row.entry.identity.region,
        row: row.row.map(|(number, generation)| json!({"number": number, "generation": generation})),
    }
}

fn document<'a>(told: &'a Bootstrapped, pair: Pair, session: &'a Session, collected: &'a Collected) -> Reading<'a> {
    let relation = &told.relation;
    let regions = session.frames().map(|frame| Region {
        problem: frame.problem().map(ToString::to_string),
        refused: frame.refused().iter().map(|r| json!({"block": r.block, "reason": r.reject.name()})).collect(),
        ..region(frame.entry(), session, relation)
    });
    let counters = session.counters();
    Reading {
        host: host(told, pair),
        clock: clock(relation),
        regions: regions.collect(),
        samples: collected.rows.iter().map(|row| sample(row, relation)).collect(),
        left_out: collected.left_out,
        reads: json!({
            "done": counters.reads, "blocks": counters.blocks, "failed": counters.failed, "retried": counters.retries,
            "refused": counters.refused, "rounds": counters.rounds, "refused_entries": counters.entries,
        }),
    }
}

fn line(out: &mut impl Write, value: &impl Serialize, pretty: bool) -> io::Result<()> {
    if pretty {
        serde_json::to_writer_pretty(&mut *out, value)?;
    } else {
        serde_json::to_writer(&mut *out, value)?;
    }
    writeln!(out)
}

/// One reading; in one line unless `pretty`.
pub(super) fn reading(
    out: &mut impl Write,
    connection: &Connection,
    collected: &Collected,
    pretty: bool,
) -> io::Result<()> {
    line(out, &document(connection.told(), connection.way.pair, &connection.session, collected), pretty)
}

/// The directory.
pub(super) fn regions(out: &mut impl Write, connection: &Connection) -> io::Result<()> {
    let (told, session) = (connection.told(), &connection.session);
    let regions: Vec<_> = session.directory().regions().map(|entry| region(entry, session, &told.relation)).collect();
    line(
        out,
        &json!({"host": host(told, connection.way.pair), "clock": clock(&told.relation), "regions": regions}),
        true,
    )
}

/// Names of metrics.
pub(super) fn names(out: &mut impl Write, names: &BTreeMap<&str, Named>) -> io::Result<()> {
    let metrics: Vec<_> = names
        .iter()
        .map(|(name, Named { field, help, ways })| {
            let served: Vec<_> = ways
                .iter()
                .map(|(acquisition, bits)| json!({"acquisition": acquisition, "responders": responders(*bits)}))
                .collect();
            json!({"name": name, "type": type_name(field.metric), "unit": field.unit, "help": help, "served": served})
        })
        .collect();
    line(out, &metrics, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{fixture, samples};
    use onlooker_series::derive::Derived;
    use std::time::Duration;

    fn told(host: &fixture::Host) -> Bootstrapped {
        Bootstrapped {
            answer: host.answer(1),
            peer: "127.0.0.1:7177".parse().unwrap(),
            local: "127.0.0.1".parse().unwrap(),
            relation: fixture::relation(),
            round_trip: Duration::ZERO,
        }
    }

    #[test]
    fn a_reading_is_one_document_with_exact_integers() {
        let host = fixture::host();
        let session = fixture::read(&host);
        let collected = samples::collect(&session, &[], &mut Derived::default());
        let mut out = Vec::new();
        let told = told(&host);
        line(&mut out, &document(&told, Pair::TCP, &session, &collected), false).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(r#""value":18446744073709551615"#), "{text}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["host"]["boot_id"], "02".repeat(16));
        assert_eq!(json["clock"]["boot_utc_ns"], 1_700_000_000_000_000_000i64 - 1_000_000_000_000);
        assert_eq!(json["regions"][0]["labels"], json!({"pid": "4321", "program": "my shop"}));
        let of = |name: &str| json["samples"].as_array().unwrap().iter().find(|s| s["name"] == name).unwrap().clone();
        let depth = of("queue_depth");
        assert_eq!((&depth["value"], &depth["age_ns"]), (&json!(-5), &json!(1_500_000_000)));
        assert_eq!(depth["time_utc_ns"], 1_699_999_999_500_000_000i64);
        assert_eq!(depth["labels"]["exported_pid"], "3");
        assert_eq!(of("shop_version")["value"], "v1 \"x\"\\\n");
        assert_eq!((&of("shop_version")["type"], &of("shop_version")["resolution_ns"]), (&json!("info"), &json!(5)));
        let latency = of("shop_latency_seconds");
        assert_eq!(
            (&latency["value"]["count"], &latency["unit"], &latency["age_ns"]),
            (&json!(7), &json!("seconds"), &json!(0))
        );
        let buckets = json!([{"low": 0.0, "high": 0.0, "count": 2}, {"low": 1e-9, "high": 1e-9, "count": 1}, {"low": 8e-9, "high": null, "count": 4}]);
        assert_eq!(latency["value"]["buckets"], buckets);
    }

    #[test]
    fn refused_blocks_and_problems_are_in_it() {
        let host = fixture::host();
        let healthy = fixture::read(&host);
        let entry = healthy.frames().next().unwrap().entry().clone();
        let torn = {
            let words = fixture::Host::new(16).control_words;
            words.set(0, 0, 3);
            words
        };
        host.memory.insert(entry.rkey, entry.va, torn);
        let session = fixture::read(&host);
        let collected = samples::collect(&session, &[], &mut Derived::default());
        let told = told(&host);
        let json = serde_json::to_value(document(&told, Pair::TCP, &session, &collected)).unwrap();
        assert_eq!(json["regions"][0]["refused"][0]["block"], 0);
        host.memory.remove(entry.rkey);
        let session = fixture::read(&host);
        let json = serde_json::to_value(document(
            &told,
            Pair::TCP,
            &session,
            &samples::collect(&session, &[], &mut Derived::default()),
        ))
        .unwrap();
        assert!(json["regions"][0]["problem"].as_str().unwrap().contains("access"));
    }

    #[test]
    fn what_json_cannot_say_is_text() {
        assert_eq!(value(&Value::F64(f64::NAN), 1.0), "NaN");
        assert_eq!(value(&Value::F64(f64::NEG_INFINITY), 1.0), "-Inf");
        assert_eq!(value(&Value::U64(3), 0.5), 1.5);
    }
}
