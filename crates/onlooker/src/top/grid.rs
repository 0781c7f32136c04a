// SPDX-License-Identifier: Apache-2.0
//! Tables of entities: what their columns are, and which rows come first.

use super::chosen::Chosen;
use super::entities::{self, Entity, Measure as M};
use super::kind::Kind;
use super::listing::Place;
use super::machine::Machine;
use super::model::Model;
use super::natural::natural;
use ratatui::crossterm::event::KeyCode;
use std::cmp::Ordering;

/// What stands in a cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Text(String),
    /// `None`: not known, or not yet.
    Number(Option<f64>),
    /// The last steps.
    Past(Vec<Option<f64>>),
}

/// How it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    /// CPUs in use.
    Cores,
    Bytes,
    BytesRate,
    /// By how many bytes it grew.
    Growth,
    /// A part of something, which may not be full.
    Share,
    /// A part of the time: the less the better.
    Wait,
    /// A part of the time in which it was held back, of all its tasks together.
    Held,
    /// What is bad as soon as there is any.
    Fault,
    Count,
    Rate,
    Past,
}

/// A column.
#[derive(Debug)]
pub(super) struct Column {
    /// As `--sort` and JSON have it; of numbers with the unit.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) width: u16,
    /// 0: always shown; of the others the lower ones first, while there is room.
    pub(super) rank: u16,
    pub(super) format: Format,
    get: fn(&Entity, &Machine) -> Cell,
}

const fn column(
    id: &'static str,
    title: &'static str,
    width: u16,
    rank: u16,
    format: Format,
    get: fn(&Entity, &Machine) -> Cell,
) -> Column {
    Column { id, title, width, rank, format, get }
}

/// The first is the name, which has the width that the others leave.
static PROCESSES: [Column; 15] = [
    column("name", "PROCESS", 20, 0, Format::Text, |of, _| Cell::Text(of.name.clone())),
    column("pid", "PID", 8, 0, Format::Text, |of, _| Cell::Text(of.pid.clone())),
    column("runtime", "RUNTIME", 10, 0, Format::Text, |of, _| Cell::Text(of.runtime.clone())),
    column("cpu_cores", "CPU", 6, 0, Format::Cores, |of, _| Cell::Number(of.get(M::Cpu))),
    column("user_cores", "USER", 6, 110, Format::Cores, |of, _| Cell::Number(of.get(M::User))),
    column("system_cores", "SYSTEM", 6, 110, Format::Cores, |of, _| Cell::Number(of.get(M::System))),
    column("memory_bytes", "MEMORY", 8, 0, Format::Bytes, |of, _| Cell::Number(of.get(M::Memory))),
    column("memory_share", "%MEM", 5, 100, Format::Share, |of, machine| Cell::Number(of.memory_share(machine))),
    column("growth_bytes", "1 MIN", 9, 0, Format::Growth, |of, _| Cell::Number(of.get(M::Growth))),
    column("read_bytes_per_second", "READ", 10, 0, Format::BytesRate, |of, _| Cell::Number(of.io(M::Read))),
    column("written_bytes_per_second", "WRITTEN", 10, 0, Format::BytesRate, |of, _| Cell::Number(of.io(M::Written))),
    column("threads", "THREADS", 7, 110, Format::Count, |of, _| Cell::Number(of.get(M::Threads))),
    column("states", "STATE", 14, 140, Format::Text, |of, _| Cell::Text(states(of))),
    column("major_faults_per_second", "FAULTS", 8, 140, Format::Rate, |of, _| Cell::Number(of.get(M::MajorFaults))),
    column("processes", "PROCS", 5, 105, Format::Count, |of, _| Cell::Number(of.get(M::Processes))),
];

static CONTAINERS: [Column; 16] = [
    column("name", "CONTROL GROUP", 36, 0, Format::Text, |of, _| Cell::Text(group_name(of))),
    column("runtime", "RUNTIME", 10, 100, Format::Text, |of, _| Cell::Text(of.runtime.clone())),
    column("cpu_cores", "CPU", 6, 0, Format::Cores, |of, _| Cell::Number(of.get(M::Cpu))),
    column("throttled_share", "HELD", 5, 0, Format::Held, |of, _| Cell::Number(of.get(M::Throttled))),
    column("memory_bytes", "MEMORY", 8, 0, Format::Bytes, |of, _| Cell::Number(of.get(M::Memory))),
    column("limit_bytes", "LIMIT", 8, 0, Format::Bytes, |of, _| {
        Cell::Number(of.get(M::Limit).filter(|limit| *limit > 0.0))
    }),
    column("memory_share", "%MEM", 5, 0, Format::Share, |of, machine| Cell::Number(of.memory_share(machine))),
    column("read_bytes_per_second", "READ", 10, 0, Format::BytesRate, |of, _| Cell::Number(of.get(M::Read))),
    column("written_bytes_per_second", "WRITTEN", 10, 0, Format::BytesRate, |of, _| Cell::Number(of.get(M::Written))),
    column("growth_bytes", "1 MIN", 9, 110, Format::Growth, |of, _| Cell::Number(of.get(M::Growth))),
    column("oom_kills", "KILLS", 5, 110, Format::Fault, |of, _| Cell::Number(of.get(M::Kills))),
    column("cpu_pressure", "CPU?", 5, 150, Format::Wait, |of, _| Cell::Number(of.get(M::CpuPressure))),
    column("memory_pressure", "MEM?", 5, 150, Format::Wait, |of, _| Cell::Number(of.get(M::MemoryPressure))),
    column("io_pressure", "I/O?", 5, 150, Format::Wait, |of, _| Cell::Number(of.get(M::IoPressure))),
    column("tasks", "TASKS", 6, 150, Format::Count, |of, _| Cell::Number(of.get(M::Threads))),
    column("path", "PATH", 40, 190, Format::Text, |of, _| Cell::Text(of.path.clone())),
];

/// In the widest terminals: how CPU time went.
static PAST: Column = column("past", "CPU, LAST 60 s", 30, 150, Format::Past, |of, _| Cell::Past(of.past.clone()));

fn group_name(of: &Entity) -> String {
    match (of.name.is_empty(), of.path.is_empty()) {
        (false, _) => of.name.clone(),
        (true, false) => of.path.clone(),
        (true, true) => "/".to_owned(),
    }
}

/// `disk 2, running`: those that are neither asleep nor idle.
fn states(of: &Entity) -> String {
    let is_one = of.get(M::Processes).is_some_and(|processes| processes <= 1.0);
    let text = |(state, count): &(String, f64)| if is_one { state.clone() } else { format!("{state} {count}") };
    of.states.iter().map(text).collect::<Vec<_>>().join(", ")
}

impl Column {
    pub(super) fn is_text(&self) -> bool {
        self.format == Format::Text
    }
}

/// What it is called.
pub(super) fn title(of: &Entity) -> String {
    [&group_name(of), &of.pid].map(String::as_str).join(" ").trim_end().to_owned()
}

/// One entity as a row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) entity: Entity,
    /// For each of the table's columns.
    pub(super) cells: Vec<Cell>,
}

/// All columns of a view's table, the spark line last.
pub(super) fn columns(kind: Kind) -> impl Iterator<Item = &'static Column> {
    own(kind).iter().chain(std::iter::once(&PAST))
}

fn own(kind: Kind) -> &'static [Column] {
    if kind == Kind::Containers { &CONTAINERS } else { &PROCESSES }
}

/// The order, the filter and the chosen row of a view's table.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) kind: Kind,
    /// Number of the column that it is sorted by.
    pub(super) sort: usize,
    pub(super) is_turned: bool,
    pub(super) filter: String,
    pub(super) chosen: Chosen<Place>,
}

impl Grid {
    pub(super) fn of(kind: Kind) -> Self {
        let mut grid = Self { kind, sort: 0, is_turned: false, filter: String::new(), chosen: Chosen::default() };
        grid.sort_by("cpu_cores");
        grid
    }

    /// Names of columns that it can be sorted by.
    pub(super) fn sorts(kind: Kind) -> impl Iterator<Item = &'static str> {
        own(kind).iter().map(|column| column.id)
    }

    /// Whether there is such a column.
    pub(super) fn sort_by(&mut self, id: &str) -> bool {
        let Some(at) = own(self.kind).iter().position(|column| column.id == id) else { return false };
        if self.sort == at {
            self.is_turned = !self.is_turned;
        } else {
            (self.sort, self.is_turned) = (at, false);
        }
        self.chosen.forget();
        true
    }

    /// The rows that match, in order.
    pub(super) fn rows(&self, model: &Model, machine: &Machine) -> Vec<Row> {
        let filter = self.filter.to_lowercase();
        let words: Vec<&str> = filter.split_whitespace().collect();
        let is_shown = |entity: &Entity| {
            let text = if words.is_empty() { String::new() } else { entity.words() };
            words.iter().all(|word| text.contains(word))
        };
        let row = |entity: Entity| {
            let cells = columns(self.kind).map(|column| (column.get)(&entity, machine)).collect();
            Row { entity, cells }
        };
        let mut rows: Vec<Row> = entities::of(model, self.kind).into_iter().filter(is_shown).map(row).collect();
        rows.sort_by(|a, b| {
            let order = compare(&a.cells[self.sort], &b.cells[self.sort]);
            let order = if self.is_turned { order.reverse() } else { order };
            // Of equals the larger one comes first, then by name.
            let memory = |row: &Row| row.entity.get(M::Memory).unwrap_or(0.0);
            order.then_with(|| memory(b).total_cmp(&memory(a))).then_with(|| natural(&a.entity.name, &b.entity.name))
        });
        rows
    }

    /// Place of the chosen row among `rows`.
    pub(super) fn position(&self, rows: &[Row]) -> usize {
        self.chosen.position(rows.iter().map(|row| &row.entity.place))
    }

    fn next_column(&mut self, back: bool) {
        let all = own(self.kind);
        let step = if back { all.len() - 1 } else { 1 };
        self.sort_by(all[(self.sort + step) % all.len()].id);
    }

    /// Whether the key means something here.
    pub(super) fn key(&mut self, key: KeyCode, model: &Model) -> bool {
        if Chosen::<Place>::is_move(key) {
            let rows = self.rows(model, &Machine::of(model));
            let places: Vec<Place> = rows.iter().map(|row| row.entity.place).collect();
            self.chosen.go(key, &places);
            return true;
        }
        match key {
            KeyCode::Char('c') => drop(self.sort_by("cpu_cores")),
            KeyCode::Char('m') => drop(self.sort_by("memory_bytes")),
            KeyCode::Char('n') => drop(self.sort_by("name")),
            KeyCode::Right | KeyCode::Char('s' | '>') => self.next_column(false),
            KeyCode::Left | KeyCode::Char('<') => self.next_column(true),
            KeyCode::Char('i') => self.is_turned = !self.is_turned,
            KeyCode::Esc => {
                self.filter.clear();
                self.chosen.forget();
            }
            _ => return false,
        }
        true
    }
}

/// Texts ascend, numbers descend, and what is not known comes last.
fn compare(a: &Cell, b: &Cell) -> Ordering {
    match (a, b) {
        (Cell::Text(a), Cell::Text(b)) => natural(a, b),
        (Cell::Number(a), Cell::Number(b)) => {
            let or_least = |number: &Option<f64>| number.unwrap_or(f64::NEG_INFINITY);
            or_least(b).total_cmp(&or_least(a))
        }
        _ => Ordering::Equal,
    }
}
