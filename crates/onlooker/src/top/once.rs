// SPDX-License-Identifier: Apache-2.0
//! One view as text or JSON, without a terminal.

use super::entities;
use super::grid::{Cell, Row, columns};
use super::kind::Kind;
use super::listing::Column;
use super::machine::Machine;
use super::model::Model;
use super::reader::Reader;
use super::series::Series;
use super::theme::Theme;
use super::view::View;
use super::{Arguments, screen};
use crate::suggest::nearest;
use crate::{End, Failure, output};
use onlooker_reader::clock::steady_ns;
use onlooker_region::columns::Value;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// How long it reads at least, so that there are rates.
const LEAST: Duration = Duration::from_millis(1_100);
/// How long it waits for rates of a table that is sampled seldom: at most so much beyond two of its intervals.
const GRACE: Duration = Duration::from_secs(2);
/// How long it waits for rates of processors that are sampled, which agents do every second by default.
const MACHINE: Duration = Duration::from_secs(5);
/// Lines that are printed at most.
const ROWS: u16 = 2_000;

/// Reads, prints, ends.
pub(super) fn run(reader: &Reader, mut view: View, arguments: &Arguments) -> Result<End, Failure> {
    view.series.is_whole = true;
    view.programs.is_whole = true;
    let begin = Instant::now();
    let is_down = loop {
        std::thread::sleep(Duration::from_millis(10));
        let mut model = reader.model();
        if model.down.is_some() || reader.has_ended() {
            break true;
        }
        let rows = view.listing().map(|listing| listing.rows(&model)).unwrap_or_default();
        view.in_view = rows.into_iter().map(|index| model.series[index].key.region).collect();
        model.follow(view.kind, &view.in_view, view.region());
        if model.readings >= 2 && begin.elapsed() >= LEAST && has_rates(&model, view.kind, begin.elapsed()) {
            break false;
        }
    };
    let model = reader.model();
    if let Some(why) = nothing(&mut view, &model) {
        output::note(&why);
        return Ok(if is_down { End::Incomplete } else { End::NothingMatched });
    }
    let mut out = output::stdout();
    if arguments.json {
        writeln!(out, "{}", as_json(&mut view, &model))?;
    } else {
        for line in as_text(&mut view, &model, arguments.width) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()?;
    Ok(if is_down { End::Incomplete } else { End::Done })
}

/// Whether the view has rates, or will have none in time.
fn has_rates(model: &Model, kind: Kind, passed: Duration) -> bool {
    if kind == Kind::Machine {
        let machine = Machine::of(model);
        return passed >= MACHINE || machine.cpus.is_empty() || machine.busy().is_some();
    }
    let Some(table) = kind.table().filter(|table| model.has(table)) else { return true };
    let most = entities::interval_ns(model, kind).map_or(GRACE, |ns| GRACE + 2 * Duration::from_nanos(ns));
    let is_known = |series: &Series| series.is_agents() && series.region == table && series.motion.rate().is_some();
    // The rates of the table itself come before those of its rows.
    passed >= most || model.series.iter().any(|series| series.key.row.is_some() && is_known(series))
}

/// Why nothing is shown of what was asked for; `None` where something is, or nothing was.
fn nothing(view: &mut View, model: &Model) -> Option<String> {
    let names: BTreeSet<&str> = model.regions.iter().map(|(of, _)| of.name.as_str()).collect();
    if let Some(region) = view.region().filter(|region| !names.contains(region)) {
        let hint = match nearest(region, names.into_iter()).as_slice() {
            [] => format!("`onlooker read {} --regions` shows all", model.target),
            near => format!("did you mean {}?", near.join(", ")),
        };
        return Some(format!("no region `{}`: {hint}", output::shown(region)));
    }
    let region = view.region().map_or_else(String::new, |region| format!(" of region {region}"));
    let search = view.filter().map(|filter| output::shown(filter.trim())).filter(|search| !search.is_empty())?;
    if let Some(grid) = view.grid() {
        let is_there = model.has(grid.kind.table().unwrap_or_default());
        let rows = grid.rows(model, &Machine::default());
        return (is_there && rows.is_empty()).then(|| format!("no row of {} has {search}", grid.kind.name()));
    }
    let listing = view.listing()?;
    let all = model.series.iter().filter(|series| listing.has(series)).count();
    let is_empty = listing.rows(model).is_empty();
    is_empty.then(|| format!("no series{region} has all of these words: {search} ({all} series are there)"))
}

/// The view without its footer: keys are of no use here, nor is what is said of the chosen row.
fn as_text(view: &mut View, model: &Model, width: u16) -> Vec<String> {
    let now_ns = steady_ns();
    let (height, footer) = screen::full_height(view, model, width, now_ns);
    let height = height.saturating_add(footer).min(ROWS);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let area = buffer.area;
    screen::draw(view, model, now_ns, Theme::plain(), area, &mut buffer);
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    let mut lines: Vec<String> = (0..height.saturating_sub(footer)).map(line).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

fn as_json(view: &mut View, model: &Model) -> Json {
    let cost = &model.costs[view.kind as usize];
    let machine = Machine::of(model);
    let mut all = json!({
        "host": model.told.as_ref().map(|told| told.name.clone()),
        "view": view.kind.name(),
        "interval_ns": u64::try_from(model.interval.as_nanos()).unwrap_or(u64::MAX),
        "read": { "bytes": cost.bytes, "readings": cost.readings, "bytes_per_second": cost.rate() },
        "gaps": model.gaps,
    });
    if let Some(grid) = view.grid() {
        let table = grid.kind.table().unwrap_or_default();
        let rows: Vec<Json> = grid.rows(model, &machine).iter().map(|row| of_row(grid.kind, row)).collect();
        all["published"] = model.has(table).into();
        all["rows_missing"] = entities::missing(model, grid.kind).into();
        all["rows"] = rows.into();
    } else if let Some(listing) = view.listing() {
        let rows = listing.rows(model).into_iter().map(|index| of_series(&model.series[index]));
        all["rows"] = rows.collect();
    } else {
        all["machine"] = of_machine(&machine);
    }
    all
}

fn of_row(kind: Kind, row: &Row) -> Json {
    let shown = columns(kind).zip(&row.cells).filter_map(|(column, cell)| match cell {
        Cell::Text(text) => Some((column.id.to_owned(), Json::from(text.clone()))),
        Cell::Number(number) => Some((column.id.to_owned(), Json::from(*number))),
        Cell::Past(_) => None,
    });
    Json::Object(shown.collect::<Map<String, Json>>())
}

fn of_series(series: &Series) -> Json {
    let labels: Map<String, Json> =
        series.pairs.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let value = match &series.value {
        Value::Text(text) => Json::from(text.as_str()),
        Value::Histogram { .. } => Json::from(series.value_text()),
        _ => Json::from(series.scaled()),
    };
    json!({
        "name": series.name, "labels": labels, "region": series.region, "program": series.program, "value": value,
        Column::Rate.name(): series.motion.rate(), Column::Change.name(): series.motion.change(),
    })
}

fn of_machine(of: &Machine) -> Json {
    let bytes =
        |used: Option<(f64, f64)>| used.map(|(used, total)| json!({ "used_bytes": used, "total_bytes": total }));
    json!({
        "cpu": {
            "busy": of.busy(), "modes": of.modes,
            "cpus": of.cpus.iter().map(|(cpu, busy)| json!({ "cpu": cpu, "busy": busy })).collect::<Vec<_>>(),
        },
        "load": of.load, "run_queue": of.run_queue, "memory": bytes(of.memory), "swap": bytes(of.swap),
        "pressure": of.pressure.iter()
            .map(|(resource, of)| ((*resource).to_owned(), json!({ "waiting": of.waiting, "stalled": of.stalled })))
            .collect::<Map<String, Json>>(),
        "filesystems": of.mounts.iter().map(|of| json!({
            "mountpoint": of.mountpoint, "device": of.device, "fstype": of.fstype, "used_share": of.share(), "used_bytes": of.used(),
            "available_bytes": of.available, "size_bytes": of.size, "inodes_share": of.inodes(), "is_fixed": of.is_fixed(),
        })).collect::<Vec<_>>(),
        "disks": of.disks.iter().map(|of| json!({
            "device": of.device, "busy": of.busy, "read_bytes_per_second": of.read, "written_bytes_per_second": of.written,
            "latency_seconds": of.wait(),
        })).collect::<Vec<_>>(),
        "network": of.network.iter().map(|of| json!({
            "device": of.device, "in_bytes_per_second": of.received, "out_bytes_per_second": of.sent,
            "errors_per_second": of.errors, "drops_per_second": of.drops,
        })).collect::<Vec<_>>(),
        "traffic": of.traffic().map(|(received, sent)| json!({ "in_bytes_per_second": received, "out_bytes_per_second": sent })),
        "tcp": { "retransmitted_share": of.tcp.retransmits(), "established": of.tcp.established },
    })
}
