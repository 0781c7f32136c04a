// SPDX-License-Identifier: Apache-2.0
//! The view of the machine: what it does, then what is full and what is busy.

use super::super::advice;
use super::super::devices::{Disk, Interface, Mount, Tcp};
use super::super::machine::Machine;
use super::super::model::Model;
use super::super::text;
use super::super::theme::Theme;
use super::figures::{self, Cell, Column};
use super::machine::{bar, cpu_rows, cpus};
use super::{Pen, within};
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Columns that a table of devices needs to stand beside another.
const BESIDE: u16 = 58;
/// Blanks between two tables that stand beside each other.
const BETWEEN: u16 = 2;
/// Modes that are always named.
const MODES: [&str; 4] = ["user", "system", "iowait", "steal"];
/// What is less is not worth its place.
const LITTLE: f64 = 0.005;

/// Rows of a whole view without a limit.
pub(super) fn full_rows(machine: &Machine, width: u16) -> u16 {
    let tables = tables(machine, Theme::plain());
    let rows: usize = tables.iter().map(|table| table.rows.len() + 2).sum();
    cpu_rows(machine, width) + 6 + u16::try_from(rows).unwrap_or(u16::MAX)
}

pub(super) fn draw(pen: &mut Pen, model: &Model, now_ns: u64, theme: Theme) {
    let machine = Machine::of(model);
    if machine.is_empty() {
        for (y, line) in (0..).zip(advice::no_machine()) {
            pen.put(0, y, &line, theme.warn());
        }
        return;
    }
    let is_down = model.silent_ns(now_ns).is_some();
    let style = |style: Style| if is_down { theme.dim() } else { style };
    let mut y = if cpu_rows(&machine, pen.area.width) > 0 { cpus(pen, &machine, theme, &style) } else { 0 };
    for line in lines(&machine, theme) {
        let pieces: Vec<Cell> = line.into_iter().map(|(text, of)| (text, style(of))).collect();
        pen.line(y, &pieces);
        y += 1;
    }
    if let Some((used, total)) = machine.memory {
        memory(pen, y, &machine, (used, total), theme, &style);
        y += 1;
    }
    let tables = tables(&machine, theme);
    place(pen, y, &tables, theme, is_down);
}

/// What the processors do and wait for.
fn lines(machine: &Machine, theme: Theme) -> Vec<Vec<Cell>> {
    let plain = |text: String| (text, Style::new());
    let mut lines = Vec::new();
    if let Some(busy) = machine.busy() {
        let mut line = vec![
            (format!("CPU {}", text::share(Some(busy))), theme.bar(busy).patch(theme.strong())),
            plain(format!(" of {} CPUs ", machine.cpus.len())),
        ];
        // Those that are always named come first.
        let others = machine.modes.keys().map(String::as_str).filter(|mode| *mode != "idle" && !MODES.contains(mode));
        for mode in MODES.into_iter().chain(others) {
            let Some(part) = machine.modes.get(mode) else { continue };
            if MODES.contains(&mode) || *part >= LITTLE {
                let style = if *part >= LITTLE { Style::new() } else { theme.dim() };
                line.push((format!("  {mode} {}", text::share(Some(*part))), style));
            }
        }
        lines.push(line);
    }
    let load: Vec<String> = machine.load.iter().flatten().map(|load| format!("{load:.2}")).collect();
    let mut line = Vec::new();
    if !load.is_empty() {
        line.push(plain(format!("load {}", load.join(" "))));
    }
    if let Some(tasks) = machine.run_queue {
        line.push(plain(format!("   {tasks} running or waiting now")));
    }
    if !line.is_empty() {
        lines.push(line);
    }
    if !machine.pressure.is_empty() {
        let mut line = vec![plain("time waited for".into())];
        for (resource, pressure) in &machine.pressure {
            let is_some = pressure.waiting.is_some_and(|share| share >= 0.1);
            let all = pressure.stalled.filter(|share| *share >= LITTLE);
            let all = all.map_or_else(String::new, |share| format!(" (all tasks {})", text::share(Some(share))));
            let text = format!("  {resource} {}{all}", text::share(pressure.waiting));
            line.push((text, if is_some { theme.warn() } else { Style::new() }));
        }
        lines.push(line);
    }
    lines
}

fn memory(
    pen: &mut Pen,
    y: u16,
    machine: &Machine,
    (used, total): (f64, f64),
    theme: Theme,
    style: &dyn Fn(Style) -> Style,
) {
    let width = (pen.area.width / 2).clamp(24, 52).min(pen.area.width);
    let share = used / total;
    bar(pen, y, (0, width), "memory", share, &text::share(Some(share)), &style(theme.bar(share)));
    let said = format!("{} of {}", text::bytes(Some(used)), text::bytes(Some(total)));
    let x = pen.put(width + 1, y, &said, style(Style::new()));
    if let Some((used, total)) = machine.swap {
        let said = format!("swap {} of {}", text::share(Some(used / total)), text::bytes(Some(total)));
        pen.put(x + 3, y, &said, style(theme.fullness(used / total)));
    }
}

/// A table of devices.
struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    /// Said behind the title, and below a table without rows.
    note: Vec<Cell>,
}

fn tables(machine: &Machine, theme: Theme) -> Vec<Table> {
    let mut tables = Vec::new();
    if !machine.mounts.is_empty() {
        tables.push(mounts(&machine.mounts, theme));
    }
    if !machine.disks.is_empty() {
        tables.push(disks(machine, theme));
    }
    if !machine.network.is_empty() || !machine.tcp.is_empty() {
        tables.push(network(machine, theme));
    }
    tables
}

fn column(title: &str, width: u16, rank: u16) -> Column {
    Column { title: title.into(), width, rank, is_text: false }
}

fn words(title: &str, width: u16, rank: u16) -> Column {
    Column { is_text: true, ..column(title, width, rank) }
}

const BAR: u16 = 20;

fn mounts(all: &[Mount], theme: Theme) -> Table {
    let columns = vec![
        words("FILE SYSTEM", 20, 0),
        words("USED", BAR, 0),
        column("FREE", 8, 0),
        column("SIZE", 8, 1),
        column("INODES", 6, 2),
        words("TYPE", 9, 4),
        words("DEVICE", 18, 5),
    ];
    let row = |of: &Mount| {
        // An image is full by design.
        let share = of.share().filter(|_| !of.is_fixed());
        let full = |share: Option<f64>| theme.fullness(share.unwrap_or(0.0));
        let plain = Style::new();
        let others = if of.others > 0 { format!(" and {} more", of.others) } else { String::new() };
        let used = if of.is_fixed() { "read-only".into() } else { text::bar(share, usize::from(BAR)) };
        vec![
            (format!("{}{others}", of.mountpoint), full(share)),
            (used, if of.is_fixed() { theme.dim() } else { theme.bar(share.unwrap_or(0.0)) }),
            (text::bytes(of.available), full(share)),
            (text::bytes(of.size), plain),
            (text::share(of.inodes()), full(of.inodes())),
            (of.fstype.clone(), theme.dim()),
            (of.device.clone(), theme.dim()),
        ]
    };
    Table { columns, rows: all.iter().map(row).collect(), note: Vec::new() }
}

fn disks(machine: &Machine, theme: Theme) -> Table {
    let columns = vec![
        words("DISK", 12, 0),
        words("BUSY", BAR, 0),
        column("READ", 10, 0),
        column("WRITTEN", 10, 0),
        column("LATENCY", 8, 1),
        column("READS", 8, 3),
        column("WRITES", 8, 3),
        column("UNDER WAY", 9, 4),
    ];
    let row = |of: &Disk| {
        let plain = Style::new();
        vec![
            (of.device.clone(), plain),
            (text::bar(of.busy, usize::from(BAR)), theme.bar(of.busy.unwrap_or(0.0))),
            (text::bytes_rate(of.read), plain),
            (text::bytes_rate(of.written), plain),
            (text::seconds(of.wait()), plain),
            (text::rate(of.reads), plain),
            (text::rate(of.writes), plain),
            (text::count(of.queue), plain),
        ]
    };
    let note = machine.disk_traffic().filter(|_| machine.disks.len() > 1).map(|(read, written)| {
        format!("all disks: {} read, {} written", text::bytes_rate(Some(read)), text::bytes_rate(Some(written)))
    });
    let rows = machine.disks.iter().map(row).collect();
    Table { columns, rows, note: note.map(|note| (note, theme.dim())).into_iter().collect() }
}

fn network(machine: &Machine, theme: Theme) -> Table {
    let columns = vec![
        words("NETWORK", 12, 0),
        column("IN", 10, 0),
        column("OUT", 10, 0),
        column("ERRORS", 7, 0),
        column("DROPS", 7, 0),
        column("LOAD", 5, 2),
        column("PKTS IN", 8, 3),
        column("PKTS OUT", 8, 3),
    ];
    let row = |of: &Interface| {
        let plain = Style::new();
        let fault = |rate: Option<f64>| if rate.is_some_and(|rate| rate > 0.0) { theme.full() } else { plain };
        let name = if of.is_down() { format!("{} (down)", of.device) } else { of.device.clone() };
        vec![
            (name, if of.is_down() { theme.dim() } else { plain }),
            (text::bytes_rate(of.received), plain),
            (text::bytes_rate(of.sent), plain),
            (text::rate(of.errors), fault(of.errors)),
            (text::rate(of.drops), fault(of.drops)),
            (text::share(of.load()), theme.fullness(of.load().unwrap_or(0.0))),
            (text::rate(of.received_packets), plain),
            (text::rate(of.sent_packets), plain),
        ]
    };
    Table { columns, rows: machine.network.iter().map(row).collect(), note: tcp(&machine.tcp, theme) }
}

fn tcp(of: &Tcp, theme: Theme) -> Vec<Cell> {
    if of.is_empty() {
        return Vec::new();
    }
    let is_bad = of.retransmits().is_some_and(|share| share > Tcp::MANY_AGAIN);
    let is_full = of.overflows.is_some_and(|rate| rate > 0.0);
    let plain = Style::new();
    vec![
        (format!("TCP retransmits {}", text::fine_share(of.retransmits())), if is_bad { theme.full() } else { plain }),
        (format!("  timeouts {}", text::rate(of.timeouts)), plain),
        (format!("  accept queue full {}", text::rate(of.overflows)), if is_full { theme.full() } else { plain }),
        (format!("  {} established", text::count(of.established)), plain),
    ]
}

/// Rows that a table takes beside its own: the titles, and a note.
fn extra(table: &Table) -> u16 {
    1 + u16::from(!table.note.is_empty())
}

/// Places tables below, or beside, each other. Each says how many rows it has that there was no room for.
fn place(pen: &mut Pen, from: u16, tables: &[Table], theme: Theme, is_down: bool) {
    let count = u16::try_from(tables.len()).unwrap_or(1).max(1);
    let stacks = ((pen.area.width + BETWEEN) / (BESIDE + BETWEEN)).clamp(1, count);
    let height = pen.area.height.saturating_sub(from);
    let width = (pen.area.width + BETWEEN) / stacks - BETWEEN;
    // The first stack has the file systems; what follows is dealt to the others.
    let stack_of = |table: usize| (u16::try_from(table).unwrap_or(0)).min(stacks - 1);
    for stack in 0..stacks {
        let mine: Vec<&Table> =
            tables.iter().enumerate().filter(|(at, _)| stack_of(*at) == stack).map(|(_, table)| table).collect();
        let given = rows_for(&mine, height);
        // A blank line above each, where there is room for all.
        let taken: u16 = mine.iter().zip(&given).map(|(table, rows)| rows + extra(table)).sum();
        let gap = u16::from(height >= taken + u16::try_from(mine.len()).unwrap_or(0));
        let mut y = from;
        for (table, rows) in mine.iter().zip(given) {
            y += gap;
            let x = pen.area.x + stack * (width + BETWEEN);
            let area = Rect {
                x,
                y: pen.area.y + y,
                width,
                height: (rows + extra(table)).min(pen.area.height.saturating_sub(y)),
            };
            within(pen, area, &mut |pen| one(pen, table, rows, theme, is_down));
            y += rows + extra(table);
        }
    }
}

/// How many rows each table gets: one after the other, as long as there are some.
fn rows_for(tables: &[&Table], height: u16) -> Vec<u16> {
    let heads: u16 = tables.iter().map(|table| extra(table)).sum();
    let mut spare = height.saturating_sub(heads);
    let mut given = vec![0u16; tables.len()];
    loop {
        let before = spare;
        for (given, table) in given.iter_mut().zip(tables) {
            if spare > 0 && usize::from(*given) < table.rows.len() {
                *given += 1;
                spare -= 1;
            }
        }
        if spare == before {
            return given;
        }
    }
}

fn one(pen: &mut Pen, table: &Table, rows: u16, theme: Theme, is_down: bool) {
    let fitting = figures::fitting(&table.columns, pen.area.width);
    figures::titles(pen, 0, &table.columns, &fitting, theme);
    let hidden = table.rows.len().saturating_sub(usize::from(rows));
    if hidden > 0 {
        let title = format!("{} +{hidden} more", table.columns[0].title);
        pen.put(0, 0, &super::table::cut(&title, fitting.1), theme.warn());
    }
    let style = |style: Style| if is_down { theme.dim() } else { style };
    for (y, row) in (1..=rows).zip(&table.rows) {
        let cells: Vec<Cell> = row.iter().map(|(text, of)| (text.clone(), style(*of))).collect();
        figures::row(pen, y, &table.columns, &fitting, &cells);
    }
    let note: Vec<Cell> = table.note.iter().map(|(text, of)| (text.clone(), style(*of))).collect();
    pen.line(rows + 1, &note);
}
