// SPDX-License-Identifier: Apache-2.0
//! Tables, values and counts, printed.

use std::io::Write as _;

use onlooker_dta::Geometry;
use onlooker_dta::key_write::Consensus;
use onlooker_telemetry::text::{Bytes, Format};
use onlooker_telemetry::{Asked, Table, counts, values};
use serde_json::json;

use super::{Collector, span};
use crate::{End, Failure, output};

pub(super) fn tables(collector: &Collector) -> Result<End, Failure> {
    let connected = collector.connect()?;
    let mut out = output::stdout();
    let mut shown = output::Table::new(&["NAME", ">NUMBER", "PRIMITIVE", ">PLACES", ">PAYLOAD", ">MIB", "MORE"]);
    for Table { name, number, geometry, .. } in &connected.tables {
        let places = 1u64 << geometry.slots_log2();
        let bytes = geometry.len_bytes();
        let (more, extra) = match geometry {
            Geometry::KeyWrite(table) => {
                let check = table.check_bytes();
                (format!("{check} bytes of check, {} an entry", table.entry_bytes()), ("check_bytes", check))
            }
            Geometry::Append(list) => (format!("{} entries a batch", list.batch), ("batch", list.batch.into())),
            Geometry::KeyIncrement(_) => ("two epochs".to_owned(), ("epochs", 2)),
        };
        if collector.json {
            let mut document = json!({
                "name": name, "number": number, "primitive": geometry.primitive(), "places": places,
                "payload_bytes": geometry.payload_bytes(), "bytes": bytes,
            });
            document[extra.0] = extra.1.into();
            writeln!(out, "{document}")?;
        }
        shown.row(vec![
            name.clone(),
            number.to_string(),
            geometry.primitive().to_owned(),
            places.to_string(),
            geometry.payload_bytes().to_string(),
            bytes.div_ceil(1 << 20).to_string(),
            more,
        ]);
    }
    if !collector.json && !connected.tables.is_empty() {
        shown.write(&mut out)?;
    }
    out.flush()?;
    if connected.tables.is_empty() {
        output::note(&format!(
            "{} has no telemetry tables; see [kernel.telemetry] in its agent.toml",
            connected.target
        ));
        return Ok(End::NothingMatched);
    }
    Ok(End::Done)
}

pub(super) fn get(
    collector: &Collector,
    table: &str,
    keys: &[Bytes],
    format: &Format,
    strict: bool,
) -> Result<End, Failure> {
    let mut connected = collector.connect()?;
    let table = connected.table(table)?;
    let consensus = if strict { Consensus::Strict } else { Consensus::Plurality };
    let asked = connected.ask(|memory| values(memory, &table, keys, consensus))?;
    let now_ns = connected.now_ns();
    let mut out = output::stdout();
    let mut shown = output::Table::new(&["KEY", "VALUE", ">AGE", ">COPIES", "NOTE"]);
    let mut found = 0;
    for (key, asked) in keys.iter().zip(&asked) {
        let name = Format::flow().show(&key.0);
        let (outcome, cells, more) = match asked {
            Asked::Empty => (
                "empty",
                ["-".to_owned(), "-".to_owned(), "0".to_owned(), "never written, or overwritten".to_owned()],
                json!({}),
            ),
            Asked::Conflict => {
                ("conflict", ["-".to_owned(), "-".to_owned(), "-".to_owned(), "copies differ".to_owned()], json!({}))
            }
            Asked::Value { payload, stamp, copies, is_disputed } => {
                found += 1;
                let (value, age_ns) = (format.show(payload), stamp.age_ns(now_ns));
                let note = if *is_disputed { "other copies differ" } else { "" };
                let cells = [value.clone(), span(age_ns), copies.to_string(), note.to_owned()];
                let more =
                    json!({"value": value, "age_ms": age_ns / 1_000_000, "copies": copies, "disputed": is_disputed});
                ("value", cells, more)
            }
        };
        if collector.json {
            let mut document = json!({"key": name, "outcome": outcome});
            if let (Some(to), Some(more)) = (document.as_object_mut(), more.as_object()) {
                to.extend(more.clone());
            }
            writeln!(out, "{document}")?;
        } else {
            shown.row([vec![name], cells.to_vec()].concat());
        }
    }
    if !collector.json {
        shown.write(&mut out)?;
    }
    out.flush()?;
    Ok(if found == 0 { End::NothingMatched } else { End::Done })
}

pub(super) fn count(collector: &Collector, table: &str, keys: &[Bytes], copies: u8) -> Result<End, Failure> {
    let mut connected = collector.connect()?;
    let table = connected.table(table)?;
    let (epoch, counted) = connected.ask(|memory| counts(memory, &table, keys, copies))?;
    let mut out = output::stdout();
    let mut shown = output::Table::new(&["KEY", ">NOW", ">EPOCH BEFORE"]);
    for (key, count) in keys.iter().zip(counted) {
        let name = Format::flow().show(&key.0);
        if collector.json {
            let (began, before) = (epoch.began_ns, epoch.before_began_ns);
            let document = json!({
                "key": name, "epoch": epoch.number, "began_utc_ns": began, "count": count.now,
                "before_began_utc_ns": before, "count_before": count.before,
            });
            writeln!(out, "{document}")?;
        } else {
            shown.row(vec![
                name,
                count.now.to_string(),
                count.before.map_or("-".to_owned(), |count| count.to_string()),
            ]);
        }
    }
    if !collector.json {
        shown.write(&mut out)?;
    }
    out.flush()?;
    Ok(End::Done)
}
