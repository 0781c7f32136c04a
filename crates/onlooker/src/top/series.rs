// SPDX-License-Identifier: Apache-2.0
//! One series as it is shown: described once, when it is first seen; then its value and how it moves.

use super::motion::{Motion, Percentile};
use crate::number::with_unit;
use crate::output::shown;
use crate::read::directory::{acquisition_name, label_text, type_name};
use crate::read::samples::Row;
use onlooker_region::columns::{Sample, Value};
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::Metric;
use onlooker_series::derive::{Sum, row_of};

/// Which place of a host's memory: the same from reading to reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Identity word of the region: id and generation.
    pub(super) region: u64,
    pub(super) group: u32,
    pub(super) field: u32,
    pub(super) element: u32,
    /// Number and generation of the table row.
    pub(super) row: Option<(u32, u32)>,
}

impl Key {
    #[allow(clippy::cast_possible_truncation)] // schemas have fewer
    pub(super) fn of(entry: &RegionEntry, group: u32, sample: &Sample) -> Self {
        let field = sample.group.fields.iter().position(|field| std::ptr::eq(field, sample.field)).unwrap_or(0);
        let row = row_of(sample);
        Self { region: entry.identity.word(), group, field: field as u32, element: sample.element, row }
    }

    /// Of a sum over CPUs: sets of sums are numbered from above, groups from below.
    #[allow(clippy::cast_possible_truncation)] // as above
    pub(super) fn of_sum(entry: &RegionEntry, sum: &Sum, metric: usize) -> Self {
        let (region, group) = (entry.identity.word(), u32::MAX - sum.set);
        Self { region, group, field: metric as u32, element: 0, row: sum.row }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Never used again for another.
    pub(super) id: u64,
    pub(super) key: Key,
    pub(super) name: String,
    pub(super) labels: String,
    /// The same without the region's own, which all its series have.
    pub(super) own_labels: String,
    /// The same one by one.
    pub(super) pairs: Vec<(String, String)>,
    /// Which program publishes it, where it is not the agent.
    pub(super) program: Option<String>,
    /// Name and labels as they are searched: lower case.
    pub(super) search: String,
    pub(super) region: String,
    pub(super) metric: Metric,
    pub(super) unit: String,
    pub(super) help: String,
    pub(super) scale: f64,
    pub(super) resolution_ns: u64,
    pub(super) acquisition: &'static str,
    pub(super) value: Value,
    /// When the value was acquired, the reader's steady clock; `None`: by the READ itself.
    pub(super) acquired_ns: Option<u64>,
    /// When it was last read.
    pub(super) read_ns: u64,
    pub(super) motion: Motion,
}

impl Series {
    /// Nothing in it steers a terminal.
    pub(super) fn new(id: u64, key: Key, entry: &RegionEntry, row: &Row) -> Self {
        let (name, text) = (shown(&row.name), label_text(&row.labels));
        let is_own = |(name, _): &&(String, String)| !entry.labels.iter().any(|(regions, _)| regions == name);
        let own: Vec<(String, String)> = row.labels.iter().filter(is_own).cloned().collect();
        Self {
            id,
            key,
            search: format!("{name} {text} {}", shown(&entry.name)).to_lowercase(),
            own_labels: label_text(&own),
            pairs: row.labels.iter().map(|(name, value)| (shown(name), shown(value))).collect(),
            program: program(entry),
            name,
            labels: text,
            region: shown(&entry.name),
            metric: row.metric,
            unit: shown(&row.unit),
            help: shown(&row.help),
            scale: row.scale,
            resolution_ns: row.resolution_ns,
            acquisition: acquisition_name(row.acquisition),
            value: Value::U64(0),
            acquired_ns: None,
            read_ns: 0,
            motion: Motion::default(),
        }
    }

    pub(super) fn label(&self, wanted: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }

    pub(super) fn scaled(&self) -> f64 {
        self.value.scaled(self.scale)
    }

    /// Programs may call their metrics and regions what they like; the machine's own stand in the agent's.
    pub(super) fn is_agents(&self) -> bool {
        self.program.is_none()
    }

    /// Name and labels as one word, which tells it from others.
    pub(super) fn text(&self) -> String {
        if self.labels.is_empty() { self.name.clone() } else { format!("{}{{{}}}", self.name, self.labels) }
    }

    /// What `VALUE` shows.
    pub(super) fn value_text(&self) -> String {
        match &self.value {
            Value::Text(text) => shown(text),
            Value::Histogram { .. } => match self.percentiles() {
                [Some(median), Some(high)] => format!("p50{} p99{}", self.bound(median), self.bound(high)),
                _ => "none lately".into(),
            },
            Value::U64(number) if self.is_bare() => number.to_string(),
            Value::I64(number) if self.is_bare() => number.to_string(),
            other => with_unit(other.scaled(self.scale), &self.unit),
        }
    }

    fn percentiles(&self) -> [Option<Percentile>; 2] {
        [0.5, 0.99].map(|part| self.motion.percentile(&self.value, self.scale, part))
    }

    fn bound(&self, percentile: Percentile) -> String {
        format!("{}{}", if percentile.at_least { ">=" } else { "<=" }, with_unit(percentile.bound, &self.unit))
    }

    /// An integer as it is counted.
    fn is_bare(&self) -> bool {
        self.scale.to_bits() == 1f64.to_bits() && self.unit.is_empty()
    }

    /// What `RATE` shows.
    pub(super) fn rate_text(&self, now_ns: u64) -> String {
        if self.motion.is_reset(now_ns) {
            return "reset".into();
        }
        match (self.metric, self.motion.rate()) {
            (Metric::Gauge | Metric::Info, _) => String::new(),
            (_, None) => "-".into(),
            (Metric::Counter, Some(rate)) if self.unit == "bytes" => with_unit(rate, "bytes_per_second"),
            (Metric::Counter, Some(rate)) if self.unit == "seconds" => format!("{} s/s", with_unit(round(rate), "")),
            (_, Some(rate)) => format!("{}/s", with_unit(round(rate), "")),
        }
    }

    /// What `CHANGE` shows.
    pub(super) fn change_text(&self) -> String {
        match self.motion.change() {
            None => String::new(),
            Some(change) if change.is_infinite() => "from 0".into(),
            Some(change) if change.abs() < 0.005 => "=".into(),
            Some(change) if change >= 10.0 => format!("x{:.0}", (change + 1.0).min(1e6)),
            Some(change) => format!("{:+.0} %", change * 100.0),
        }
    }

    /// What it is sorted by in the column `VALUE`.
    pub(super) fn number(&self) -> f64 {
        match (&self.value, self.percentiles()[1]) {
            (Value::Histogram { .. }, high) => high.map_or(f64::NEG_INFINITY, |high| high.bound),
            (Value::Text(_), _) => f64::NEG_INFINITY,
            (other, _) => other.scaled(self.scale),
        }
    }

    /// Type, unit and the rest that has no column, in one line.
    pub(super) fn details(&self) -> String {
        let mut parts = vec![type_name(self.metric).to_owned()];
        if !self.unit.is_empty() {
            parts.push(self.unit.clone());
        }
        parts.push(format!("{} in region {}", self.acquisition, self.region));
        if self.resolution_ns > 0 {
            parts.push(format!("moves in steps of {}", crate::number::span(i128::from(self.resolution_ns))));
        }
        if !self.help.is_empty() {
            parts.push(self.help.clone());
        }
        parts.join(" \u{b7} ")
    }
}

/// About four digits: more are noise in a rate.
fn round(rate: f64) -> f64 {
    if rate.abs() >= 100.0 { rate.round() } else { (rate * 1000.0).round() / 1000.0 }
}

/// A program as its region's labels have it: its name is its own word, its pid the agent's.
fn program(entry: &RegionEntry) -> Option<String> {
    if entry.identity.is_agents() {
        return None;
    }
    let label = |wanted: &str| entry.labels.iter().find(|(name, _)| name == wanted).map(|(_, value)| shown(value));
    let mut text = label("program").unwrap_or_else(|| shown(&entry.name));
    for name in ["instance", "pid"] {
        if let Some(value) = label(name) {
            text.push_str(&format!("  {name} {value}"));
        }
    }
    Some(text)
}
