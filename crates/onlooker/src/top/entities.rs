// SPDX-License-Identifier: Apache-2.0
//! Rows of the agent's tables (docs/tables.md) as entities: all that their series say of one process, or of one control
//! group, at a glance.

use super::kind::Kind;
use super::listing::Place;
use super::machine::Machine;
use super::model::Model;
use super::series::Series;
use onlooker_region::columns::Value;
use std::collections::HashMap;

/// A row that was not in its table when that was read last stays for so long: a block that is torn now and then must
/// not make it flicker.
const GONE_NS: u64 = 2_000_000_000;
/// Steps of the past that are too few to say that something grows.
const GROWTH_STEPS: usize = 10;

/// What is measured of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// Seconds of CPU time a second.
    Cpu,
    User,
    System,
    Memory,
    /// How much its memory has grown within the last minute.
    Growth,
    Virtual,
    Limit,
    Swap,
    Read,
    Written,
    MajorFaults,
    Threads,
    Processes,
    Unreadable,
    /// Seconds a second.
    Throttled,
    Kills,
    /// Shares of time in which some task waited.
    CpuPressure,
    MemoryPressure,
    IoPressure,
}

/// How many there are.
const MEASURES: usize = Measure::IoPressure as usize + 1;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Entity {
    pub(super) place: Place,
    pub(super) name: String,
    /// Its pid, or what runs it.
    pub(super) pid: String,
    pub(super) runtime: String,
    /// Of a control group.
    pub(super) path: String,
    /// How many of its processes are in which state, all but the sleeping.
    pub(super) states: Vec<(String, f64)>,
    /// Its CPU time, the last steps.
    pub(super) past: Vec<Option<f64>>,
    /// It was not there when its table was read last.
    pub(super) is_old: bool,
    numbers: [Option<f64>; MEASURES],
}

impl Entity {
    fn new(place: Place, series: &Series) -> Self {
        let label = |name: &str| series.label(name).unwrap_or_default().to_owned();
        Self {
            place,
            name: label("name"),
            pid: label("pid"),
            runtime: Some(label("runtime")).filter(|runtime| runtime != "none").unwrap_or_default(),
            path: String::new(),
            states: Vec::new(),
            past: Vec::new(),
            is_old: false,
            numbers: [None; MEASURES],
        }
    }

    pub(super) fn get(&self, measure: Measure) -> Option<f64> {
        self.numbers[measure as usize]
    }

    fn add(&mut self, measure: Measure, number: Option<f64>) {
        let at = &mut self.numbers[measure as usize];
        *at = number.map(|number| at.unwrap_or(0.0) + number).or(*at);
    }

    /// Its memory as a part of what it may have: of its limit, or of the machine's.
    pub(super) fn memory_share(&self, machine: &Machine) -> Option<f64> {
        let limit = self.get(Measure::Limit).filter(|limit| *limit > 0.0);
        let total = limit.or(machine.memory.map(|(_, total)| total)).filter(|total| *total > 0.0)?;
        self.get(Measure::Memory).map(|memory| memory / total)
    }

    /// Bytes a second from or to block devices; `None` where the agent may not know.
    pub(super) fn io(&self, measure: Measure) -> Option<f64> {
        let is_hidden = self.get(Measure::Unreadable).is_some_and(|count| count > 0.0);
        self.get(measure).filter(|rate| !is_hidden || *rate > 0.0)
    }

    /// What a filter looks into, in lower case.
    pub(super) fn words(&self) -> String {
        format!("{} {} {} {}", self.name, self.pid, self.runtime, self.path).to_lowercase()
    }

    /// What a series says of it.
    fn take(&mut self, series: &Series) {
        use Measure as M;
        let (rate, value) = (series.motion.rate(), Some(series.scaled()));
        match series.name.as_str() {
            "onlooker_process_cpu_seconds_total" => {
                let is_user = series.label("mode") == Some("user");
                self.add(if is_user { M::User } else { M::System }, rate);
                self.add(M::Cpu, rate);
                self.remember(series);
            }
            "container_cpu_usage_seconds_total" => {
                self.add(M::Cpu, rate);
                self.remember(series);
            }
            "container_cpu_user_seconds_total" => self.add(M::User, rate),
            "container_cpu_system_seconds_total" => self.add(M::System, rate),
            "onlooker_process_resident_bytes" | "container_memory_working_set_bytes" => {
                self.add(M::Memory, value);
                self.add(M::Growth, growth(series));
            }
            "onlooker_process_virtual_bytes" => self.add(M::Virtual, value),
            "container_spec_memory_limit_bytes" => self.add(M::Limit, value),
            "container_memory_swap" => self.add(M::Swap, value),
            "onlooker_process_read_bytes_total" | "container_fs_reads_bytes_total" => self.add(M::Read, rate),
            "onlooker_process_written_bytes_total" | "container_fs_writes_bytes_total" => self.add(M::Written, rate),
            "onlooker_process_major_faults_total" => self.add(M::MajorFaults, rate),
            "onlooker_process_threads" | "container_threads" => self.add(M::Threads, value),
            "onlooker_process_processes" => self.add(M::Processes, value),
            "onlooker_process_unreadable" => self.add(M::Unreadable, value),
            "container_cpu_cfs_throttled_seconds_total" => self.add(M::Throttled, rate),
            "container_oom_events_total" => self.add(M::Kills, value),
            "container_pressure_cpu_waiting_seconds_total" => self.add(M::CpuPressure, rate),
            "container_pressure_memory_waiting_seconds_total" => self.add(M::MemoryPressure, rate),
            "container_pressure_io_waiting_seconds_total" => self.add(M::IoPressure, rate),
            "onlooker_process_state" => self.state(series),
            "onlooker_cgroup_path_info" => {
                if let Value::Text(path) = &series.value {
                    self.path = crate::output::shown(path);
                }
            }
            _ => {}
        }
    }

    fn state(&mut self, series: &Series) {
        let (state, count) = (series.label("state").unwrap_or_default(), series.scaled());
        if count > 0.0 && !matches!(state, "sleeping" | "idle") {
            self.states.push((state.to_owned(), count));
        }
    }

    /// CPU time in several modes is added up.
    fn remember(&mut self, series: &Series) {
        let past = series.motion.past_steps();
        if self.past.is_empty() {
            self.past = past;
            return;
        }
        for (sum, more) in self.past.iter_mut().rev().zip(past.into_iter().rev()) {
            *sum = sum.zip(more).map(|(sum, more)| sum + more).or(*sum).or(more);
        }
    }
}

/// How much a gauge has grown within the last minute, or since it is read.
fn growth(series: &Series) -> Option<f64> {
    let past = series.motion.past_steps();
    let first = past.iter().position(Option::is_some)?;
    let last = past.iter().rposition(Option::is_some)?;
    (last - first >= GROWTH_STEPS).then(|| past[last].zip(past[first]).map(|(last, first)| last - first)).flatten()
}

/// The entities of a view's table, in no order.
pub(super) fn of(model: &Model, kind: Kind) -> Vec<Entity> {
    let Some(table) = kind.table() else { return Vec::new() };
    let mut entities: Vec<Entity> = Vec::new();
    let mut places: HashMap<Place, usize> = HashMap::new();
    for series in model.series.iter().filter(|series| series.is_agents() && series.region == table) {
        let Some(row) = series.key.row else { continue };
        let place = (series.key.region, row);
        let read_ns = model.pace.read_ns(place.0).unwrap_or(0);
        if series.read_ns.saturating_add(GONE_NS) < read_ns {
            continue;
        }
        let at = *places.entry(place).or_insert_with(|| {
            entities.push(Entity::new(place, series));
            entities.len() - 1
        });
        entities[at].is_old |= series.read_ns < read_ns;
        entities[at].take(series);
    }
    entities
}

/// What the agent counts of the table itself: those without a row.
pub(super) fn missing(model: &Model, kind: Kind) -> f64 {
    let of_table = |series: &&Series| series.is_agents() && Some(series.region.as_str()) == kind.table();
    let rows_missing = |series: &&Series| series.name == "onlooker_table_rows_missing";
    model.series.iter().filter(of_table).find(rows_missing).map_or(0.0, Series::scaled)
}

/// How long the agent waits between two runs over the table, ns.
pub(super) fn interval_ns(model: &Model, kind: Kind) -> Option<u64> {
    let of_table = |series: &&Series| series.is_agents() && Some(series.region.as_str()) == kind.table();
    model.series.iter().find(of_table).map(|series| series.resolution_ns)
}
