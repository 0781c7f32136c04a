// SPDX-License-Identifier: Apache-2.0
//! `/api/onlooker/v1/hosts/{host}/telemetry`: a collector's telemetry tables, what they have of keys, and entries of lists. READ from the collector's memory for each
//! request ([`crate::telemetry`]).

use std::str::FromStr as _;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use onlooker_dta::Geometry;
use onlooker_dta::append::Position;
use onlooker_dta::key_write::{Consensus, MAX_COPIES};
use onlooker_telemetry::text::{Bytes, Format};
use onlooker_telemetry::{AskError, Asked, Table, Tail, counts, values};
use serde_json::{Value, json};

use super::Shared;
use super::answer::{Failure, number, one, parameters};
use crate::telemetry::{Collector, TelemetryError};

/// Keys in a question.
const MAX_KEYS: usize = 256;
/// Batches of a list that are told where nothing says from where on.
const LAST_BATCHES: u64 = 64;

fn failure(error: &TelemetryError) -> Failure {
    match error {
        TelemetryError::NoTable(_) => Failure::new(StatusCode::NOT_FOUND, error.to_string()),
        TelemetryError::Ask(AskError::Primitive { .. }) => Failure::bad(error.to_string()),
        _ => Failure::new(StatusCode::BAD_GATEWAY, format!("its telemetry cannot be read: {error}")),
    }
}

/// Asks a host, on a thread that may block.
async fn ask<T: Send + 'static>(
    shared: Shared,
    host: &str,
    question: impl FnMut(&mut Collector) -> Result<T, TelemetryError> + Send + 'static,
) -> Result<T, Failure> {
    let host = shared.fleet.host(host).ok_or_else(|| Failure::no_host(host))?;
    let asking = move || shared.telemetry.ask(&host.target, shared.read_timeout, question);
    let asked = tokio::task::spawn_blocking(asking).await;
    let asked = asked.map_err(|_| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the question has failed"))?;
    asked.map_err(|error| failure(&error))
}

pub(super) async fn tables(State(shared): State<Shared>, Path(host): Path<String>) -> Result<Json<Value>, Failure> {
    let tables = ask(shared, &host, |collector| Ok(collector.tables().to_vec())).await?;
    let described = |table: &Table| {
        let Table { name, number, geometry, .. } = table;
        let mut told = json!({
            "name": name, "number": number, "primitive": geometry.primitive(),
            "places": 1u64 << geometry.slots_log2(), "payload_bytes": geometry.payload_bytes(), "bytes": geometry.len_bytes(),
        });
        match geometry {
            Geometry::KeyWrite(table) => told["check_bytes"] = table.check_bytes().into(),
            Geometry::Append(list) => told["batch"] = list.batch.into(),
            Geometry::KeyIncrement(_) => {}
        }
        told
    };
    Ok(Json(json!({ "tables": tables.iter().map(described).collect::<Vec<_>>() })))
}

/// `format=`, or hexadecimal digits.
fn format_of(pairs: &[(String, String)]) -> Result<Format, Failure> {
    let text = one(pairs, "format")?.unwrap_or("hex");
    Format::from_str(text).map_err(|what| Failure::bad(format!("`format` is `{text}`; it can be {what}")))
}

pub(super) async fn keys(
    State(shared): State<Shared>,
    Path((host, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Failure> {
    let pairs = parameters(query.as_deref(), &["key", "format", "strict", "copies"])?;
    let texts: Vec<&String> = pairs.iter().filter(|(name, _)| name == "key").map(|(_, value)| value).collect();
    if texts.is_empty() || texts.len() > MAX_KEYS {
        return Err(Failure::bad(format!("`key` is given {} times; it must be 1 to {MAX_KEYS}", texts.len())));
    }
    let keys: Vec<Bytes> = texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(Failure::bad)?;
    let format = format_of(&pairs)?;
    let consensus = match one(&pairs, "strict")? {
        None | Some("0") => Consensus::Plurality,
        Some("1") => Consensus::Strict,
        Some(other) => return Err(Failure::bad(format!("`strict` is `{other}`; it can be 0 or 1"))),
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within bounds
    let copies = number(&pairs, "copies", 1.0, MAX_COPIES.into())?.unwrap_or(2.0) as u8;
    let answer = ask(shared, &host, move |collector| {
        let table = collector.table(&name)?;
        let now_ns = collector.now_ns();
        if let Geometry::KeyIncrement(_) = table.geometry {
            let (epoch, counted) = counts(&mut collector.memory(), &table, &keys, copies)?;
            let told = keys.iter().zip(counted).map(|(key, count)| {
                json!({ "key": Format::flow().show(&key.0), "count": count.now, "count_before": count.before })
            });
            let (began_ms, before_ms) = (epoch.began_ns / 1_000_000, epoch.before_began_ns / 1_000_000);
            return Ok(json!({
                "epoch": epoch.number, "began_ms": began_ms, "before_began_ms": before_ms, "keys": told.collect::<Vec<_>>(),
            }));
        }
        let found = values(&mut collector.memory(), &table, &keys, consensus)?;
        let told = keys.iter().zip(found).map(|(key, asked)| {
            let key = Format::flow().show(&key.0);
            match asked {
                Asked::Empty => json!({ "key": key, "outcome": "empty" }),
                Asked::Conflict => json!({ "key": key, "outcome": "conflict" }),
                Asked::Value { payload, stamp, copies, is_disputed } => json!({
                    "key": key, "outcome": "value", "value": format.show(&payload), "copies": copies,
                    "age_ms": stamp.age_ns(now_ns) / 1_000_000, "disputed": is_disputed,
                }),
            }
        });
        Ok(json!({ "keys": told.collect::<Vec<_>>() }))
    });
    Ok(Json(answer.await?))
}

/// Where a reader is: numbers of the batch and the entry that come next.
fn position_of(text: &str) -> Option<Position> {
    let (batch, entry) = text.split_once('.')?;
    Some(Position { batch: batch.parse().ok()?, entry: entry.parse().ok()? })
}

pub(super) async fn entries(
    State(shared): State<Shared>,
    Path((host, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Failure> {
    let pairs = parameters(query.as_deref(), &["after", "format"])?;
    let format = format_of(&pairs)?;
    let after = match one(&pairs, "after")? {
        None => None,
        Some(text) => {
            let message = format!("`after` is `{text}`; it must be what an answer had as `next`");
            Some(position_of(text).ok_or_else(|| Failure::bad(message))?)
        }
    };
    let answer = ask(shared, &host, move |collector| {
        let table = collector.table(&name)?;
        let now_ns = collector.now_ns();
        let mut memory = collector.memory();
        let mut tail = match after {
            Some(position) => Tail::at(&table, position)?,
            None => Tail::back(&mut memory, &table, LAST_BATCHES)?,
        };
        let (mut entries, mut lost) = (Vec::new(), 0);
        // Each reading looks twice as far as the one before.
        for _ in 0..8 {
            let read = tail.read(&mut memory, &table)?;
            lost += read.lost;
            if read.entries.is_empty() {
                break;
            }
            entries.extend(read.entries);
        }
        let told = entries.iter().map(|(number, stamp, entry)| {
            json!({ "number": number, "age_ms": stamp.age_ns(now_ns) / 1_000_000, "entry": format.show(entry) })
        });
        let Position { batch, entry } = tail.position();
        Ok(json!({ "entries": told.collect::<Vec<_>>(), "lost": lost, "next": format!("{batch}.{entry}") }))
    });
    Ok(Json(answer.await?))
}
