// SPDX-License-Identifier: Apache-2.0
//! A table of processes or of control groups.

use super::super::entities;
use super::super::grid::{Cell, Column, Format, Grid, Row, columns};
use super::super::kind::Kind;
use super::super::machine::Machine;
use super::super::model::Model;
use super::super::text;
use super::super::theme::Theme;
use super::table::line;
use super::{Pen, figures};
use crate::number::span;
use ratatui::style::Style;

/// Rows above the table's own: what it has, and its titles.
pub(super) const HEAD_ROWS: u16 = 2;

/// Draws it; gives what is to be said of the chosen row.
pub(super) fn draw(pen: &mut Pen, grid: &mut Grid, model: &Model, now_ns: u64, theme: Theme) -> Option<String> {
    let machine = Machine::of(model);
    let rows = grid.rows(model, &machine);
    summary(pen, grid, model, &machine, &rows, theme);
    if rows.is_empty() {
        for (y, line) in (1..).zip(nothing(model, grid)) {
            pen.put(0, y, &line, theme.warn());
        }
        return None;
    }
    let all: Vec<&Column> = columns(grid.kind).collect();
    // A column of texts that are all empty says nothing: processes that share a row have no pid.
    let is_said = |index: usize| {
        let is_empty = |row: &Row| matches!(&row.cells[index], Cell::Text(text) if text.is_empty());
        let is_one = |row: &Row| !row.entity.pid.is_empty() && matches!(row.cells[index], Cell::Number(Some(1.0)));
        match all[index].id {
            "processes" => !rows.iter().all(is_one),
            _ => !all[index].is_text() || index == 0 || !rows.iter().all(is_empty),
        }
    };
    let said: Vec<usize> = (0..all.len()).filter(|index| is_said(*index)).collect();
    let shown: Vec<figures::Column> = said.iter().map(|index| heading(all[*index], *index, grid)).collect();
    let fitting = figures::fitting(&shown, pen.area.width);
    figures::titles(pen, 1, &shown, &fitting, theme);
    let height = usize::from(pen.area.height.saturating_sub(HEAD_ROWS));
    let position = grid.position(&rows);
    grid.chosen.scroll(position, rows.len(), height);
    let is_down = model.silent_ns(now_ns).is_some();
    for (y, (place, row)) in (HEAD_ROWS..).zip(rows.iter().enumerate().skip(grid.chosen.top).take(height)) {
        let cells: Vec<figures::Cell> = said
            .iter()
            .map(|index| {
                let (text, style) = cell(all[*index], &row.cells[*index], &machine, theme);
                (text, if is_down || row.entity.is_old { theme.dim() } else { style })
            })
            .collect();
        figures::row(pen, y, &shown, &fitting, &cells);
        if place == position {
            pen.style_row(y, theme.selected());
        }
    }
    rows.get(position).map(said_of)
}

/// In full what a narrow column may have cut.
fn said_of(row: &Row) -> String {
    let of = &row.entity;
    let parts = [&of.name, &of.pid, &of.runtime, &of.path];
    parts.into_iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join("  ")
}

fn heading(column: &Column, index: usize, grid: &Grid) -> figures::Column {
    let is_upward = column.is_text() != grid.is_turned;
    let mark = if grid.sort != index {
        ""
    } else if is_upward {
        "^"
    } else {
        "v"
    };
    figures::Column {
        title: format!("{}{mark}", column.title),
        width: column.width,
        rank: column.rank,
        is_text: matches!(column.format, Format::Text | Format::Past),
    }
}

/// How many there are, and how busy the machine is that they share.
fn summary(pen: &mut Pen, grid: &Grid, model: &Model, machine: &Machine, rows: &[Row], theme: Theme) {
    let Some(what) = (match grid.kind {
        Kind::Processes => Some(if rows.iter().any(|row| !row.entity.pid.is_empty()) { "processes" } else { "names" }),
        Kind::Containers => Some("control groups"),
        Kind::Machine | Kind::Programs | Kind::Series => None,
    }) else {
        return;
    };
    let mut pieces = Vec::new();
    if model.has(grid.kind.table().unwrap_or_default()) {
        pieces.push((format!("{} {what}", rows.len()), theme.strong()));
        if !grid.filter.is_empty() {
            pieces.push((format!(" with `{}`", grid.filter), theme.warn()));
        }
        let missing = entities::missing(model, grid.kind);
        if missing > 0.0 {
            pieces.push((format!(", {missing} without a row"), theme.warn()));
        }
        pieces.push(("   ".into(), Style::new()));
    }
    let is_known = |row: &Row| row.entity.get(entities::Measure::Cpu).is_some();
    if !rows.is_empty() && !rows.iter().any(is_known) {
        let wait =
            entities::interval_ns(model, grid.kind).map_or_else(String::new, |ns| format!(" ({})", span(ns.into())));
        pieces.push((format!("rates at the agent's next look{wait}   "), theme.warn()));
    }
    if let Some(busy) = machine.busy() {
        let cpus = machine.cpus.len();
        pieces.push((format!("CPU {} of {cpus}", text::share(Some(busy))), theme.bar(busy)));
    }
    if let Some((used, total)) = machine.memory {
        let said = format!("   memory {} of {}", text::share(Some(used / total)), text::bytes(Some(total)));
        pieces.push((said, theme.bar(used / total)));
    }
    if let [Some(load), ..] = machine.load {
        pieces.push((format!("   load {load:.2}"), Style::new()));
    }
    pen.line(0, &pieces);
}

/// Why there are no rows, and what to do.
fn nothing(model: &Model, grid: &Grid) -> Vec<String> {
    let table = grid.kind.table().unwrap_or_default();
    if !model.has(table) {
        return super::super::advice::off(table);
    }
    if grid.filter.is_empty() {
        return vec!["No rows yet: the agent writes them every few seconds while somebody reads.".into()];
    }
    vec![format!("Nothing has `{}`; Esc shows all.", grid.filter)]
}

fn cell(column: &Column, cell: &Cell, machine: &Machine, theme: Theme) -> figures::Cell {
    let number = match cell {
        Cell::Text(text) => return (text.clone(), Style::new()),
        Cell::Past(past) => return (line(past, 0.0, usize::from(column.width)), theme.line()),
        Cell::Number(number) => *number,
    };
    let is_some = number.is_some_and(|number| number > 0.0);
    #[allow(clippy::cast_precision_loss)] // a count of processors
    let cpus = machine.cpus.len().max(1) as f64;
    match column.format {
        Format::Text | Format::Past => (String::new(), Style::new()),
        Format::Cores => (text::cores(number), theme.bar(number.unwrap_or(0.0) / cpus).patch(theme.strong())),
        Format::Bytes => (text::bytes(number), Style::new()),
        Format::BytesRate => (text::bytes_rate(number), Style::new()),
        Format::Growth => (text::growth(number), if is_some { theme.warn() } else { Style::new() }),
        Format::Share => (text::share(number), theme.fullness(number.unwrap_or(0.0))),
        Format::Wait | Format::Held => (text::share(number), if is_some { theme.warn() } else { Style::new() }),
        Format::Fault => (text::count(number), if is_some { theme.full() } else { Style::new() }),
        Format::Count => (text::count(number), Style::new()),
        Format::Rate => (text::rate(number), Style::new()),
    }
}
