// SPDX-License-Identifier: Apache-2.0
//! `onlooker store info`: what takes the room, and how far back it goes.

use super::{Dir, utc};
use crate::number::{span, with_unit};
use crate::output::{self, Table};
use crate::{End, Failure};
use onlooker_framestore::inspect::{Amount, HostShare, Survey, survey};
use onlooker_framestore::warm::Level;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;

/// Hosts in the table.
const HOSTS: usize = 10;

/// What takes the room, and how far back it goes; a controller may run
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    dir: Dir,
    /// One JSON document, with all hosts
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<End, Failure> {
    let dir = arguments.dir.there()?;
    let survey = survey(dir).map_err(super::StoreFailure::from)?;
    let mut out = output::stdout();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &document(dir, &survey)).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write(&mut out, dir, &survey)?;
    }
    out.flush()?;
    Ok(End::Done)
}

fn document(dir: &Path, survey: &Survey) -> Value {
    let ms = |ns: Option<u64>| ns.map(|ns| ns / 1_000_000);
    let amount = |amount: &Amount| {
        json!({
            "files": amount.files, "bytes": amount.bytes, "pieces": amount.pieces, "rows": amount.rows,
            "values": amount.values, "bytes_per_value": amount.bytes_per_value(),
            "from_ms": ms(amount.from_ns), "to_ms": ms(amount.to_ns),
        })
    };
    let mut levels = serde_json::Map::new();
    levels.extend(survey.levels.iter().map(|(level, of_level)| (level.name().to_owned(), amount(of_level))));
    let host = |host: &HostShare| {
        let HostShare { name, tracks, amount } = host;
        json!({
            "name": name, "tracks": tracks, "bytes": amount.bytes, "rows": amount.rows, "values": amount.values,
            "from_ms": ms(amount.from_ns), "to_ms": ms(amount.to_ns),
        })
    };
    let mut log = amount(&survey.log);
    log["rows_in_no_chunk"] = survey.log_only_rows.into();
    let times = survey.times_ns();
    json!({
        "dir": dir, "bytes": survey.bytes(),
        "from_ms": ms(times.map(|(from_ns, _)| from_ns)), "to_ms": ms(times.map(|(_, to_ns)| to_ns)),
        "log": log, "chunks": levels, "cold": amount(&survey.cold),
        "gaps": {"files": survey.gaps.files, "bytes": survey.gaps.bytes},
        "catalogue": {
            "files": survey.catalogue.files, "bytes": survey.catalogue.bytes,
            "hosts": survey.counts.hosts, "tracks": survey.counts.tracks, "lines": survey.counts.lines,
            "layouts": survey.counts.layouts, "parts": survey.counts.parts,
        },
        "hosts": survey.hosts.iter().map(host).collect::<Vec<_>>(),
    })
}

#[allow(clippy::cast_precision_loss)] // for people
fn bytes(bytes: u64) -> String {
    with_unit(bytes as f64, "bytes")
}

fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), utc::text)
}

fn write(out: &mut impl Write, dir: &Path, survey: &Survey) -> io::Result<()> {
    let times = survey.times_ns().map_or_else(
        || "no rows".to_owned(),
        |(from_ns, to_ns)| {
            let length = span(i128::from(to_ns) - i128::from(from_ns));
            format!("{length}, from {} to {} UTC", utc::text(from_ns), utc::text(to_ns))
        },
    );
    writeln!(out, "{}: {}, {times}\n", output::shown(&dir.to_string_lossy()), bytes(survey.bytes()))?;
    amounts(survey).write(out)?;
    let counts = survey.counts;
    writeln!(
        out,
        "\nThe catalogue has {} hosts, {} tracks, {} lines of tables, {} layouts, {} parts.",
        counts.hosts, counts.tracks, counts.lines, counts.layouts, counts.parts
    )?;
    writeln!(out, "Of the log's rows {} are in no chunk yet.", survey.log_only_rows)?;
    if let Some(ends) = rollups_end(survey) {
        writeln!(out, "Before the last row rollups end by {ends}.")?;
    }
    if !survey.hosts.is_empty() {
        writeln!(out)?;
        hosts(survey).write(out)?;
    }
    if survey.hosts.len() > HOSTS {
        writeln!(out, "and {} more", survey.hosts.len() - HOSTS)?;
    }
    Ok(())
}

/// How long before the last row of all each level ends that has rollups.
fn rollups_end(survey: &Survey) -> Option<String> {
    let (_, last_ns) = survey.times_ns()?;
    let end = |(level, amount): &(Level, Amount)| {
        let length = span(i128::from(last_ns) - i128::from(amount.to_ns?));
        (*level != Level::Raw).then(|| format!("{length} ({})", level.name()))
    };
    let ends: Vec<String> = survey.levels.iter().filter_map(end).collect();
    (!ends.is_empty()).then(|| ends.join(", "))
}

fn amounts(survey: &Survey) -> Table {
    let mut table =
        Table::new(&["WHAT", ">FILES", ">BYTES", ">PIECES", ">ROWS", ">VALUES", ">BYTES/VALUE", "FROM", "TO"]);
    let mut row = |what: &str, amount: &Amount| {
        let each = amount.bytes_per_value().map_or_else(|| "-".to_owned(), |each| format!("{each:.3}"));
        let number = |number: u64| if number == 0 { "-".to_owned() } else { number.to_string() };
        let [pieces, rows, values] = [amount.pieces, amount.rows, amount.values].map(number);
        let (from, to) = (time(amount.from_ns), time(amount.to_ns));
        table.row(vec![
            what.to_owned(),
            amount.files.to_string(),
            bytes(amount.bytes),
            pieces,
            rows,
            values,
            each,
            from,
            to,
        ]);
    };
    row("log", &survey.log);
    for (level, amount) in survey.levels.iter().filter(|(level, amount)| level.bucket_s() == 0 || amount.files > 0) {
        row(&format!("chunks {}", level.name()), amount);
    }
    row("cold", &survey.cold);
    row("catalogue", &survey.catalogue);
    row("gaps", &survey.gaps);
    table
}

fn hosts(survey: &Survey) -> Table {
    let mut table = Table::new(&["HOST", ">BYTES", ">SHARE", ">ROWS", ">VALUES", ">TRACKS", "FROM", "TO"]);
    let all = survey.bytes().max(1);
    for HostShare { name, tracks, amount } in survey.hosts.iter().take(HOSTS) {
        let name = match (name.as_str(), tracks) {
            ("", 0) => "(forgotten)".to_owned(),
            // Series of no host: what rules and the controller say.
            ("", _) => "(recorded)".to_owned(),
            (name, _) => output::shown(name),
        };
        #[allow(clippy::cast_precision_loss)] // for people
        let share = format!("{:.1} %", 100.0 * amount.bytes as f64 / all as f64);
        let (rows, values) = (amount.rows.to_string(), amount.values.to_string());
        let (from, to) = (time(amount.from_ns), time(amount.to_ns));
        table.row(vec![name, bytes(amount.bytes), share, rows, values, tracks.to_string(), from, to]);
    }
    table
}
