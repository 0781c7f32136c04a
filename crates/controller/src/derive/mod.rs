// SPDX-License-Identifier: Apache-2.0
//! What a host's values say together: sums over CPUs, as node_exporter has them, and when it booted.
//!
//! A block holds a few CPUs' values and never a sum (docs/kernel-metrics.md), so sums are made here, where all blocks are. Which fields go into which sum is
//! worked out once for a region and its schema; a reading then costs an addition a value, no text and no allocation. What a sum *replaces* is not shown beside
//! it, or `sum()` over the metric would count twice; the other sums have names of their own.
//!
//! Invariants: a sum has all CPUs of its schema, of one row generation, or there is none in that reading; it is never made of blocks older than those before;
//! and a sum of counters falls only where all of it began anew (`sums`).

mod sums;

use std::collections::HashMap;

use onlooker_region::SchemaId;
use onlooker_region::columns::Sample;
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::{Acquisition, Field, Group, Metric, Schema, Type};

use crate::fleet::PATIENCE_READINGS;
use sums::Sums;
pub use sums::{Sum, Summed};

/// Label of the CPU in the schemas of kernel metrics.
const CPU: &str = "cpu";

/// Metrics that are a sum over CPUs elsewhere and shown beside their parts: the parts' name, the sum's, its help.
const BESIDE: [(&str, &str, &str); 2] = [
    ("onlooker_context_switches_total", "node_context_switches_total", "Total number of context switches."),
    // nr_running() of the kernel, which /proc/stat shows as procs_running, is this sum: struct rq, nr_running.
    ("onlooker_run_queue_length", "node_procs_running", "Number of processes in runnable state."),
];

/// Metrics whose sum has their own name and replaces them.
const INSTEAD: [&str; 2] = ["node_network_receive_", "node_network_transmit_"];

/// What a metric is summed up as: name and help.
fn rule(field: &Field) -> Option<(bool, String, String)> {
    let name = field.name.as_str();
    if let Some((_, sum, help)) = BESIDE.iter().find(|(part, _, _)| *part == name) {
        return Some((false, (*sum).to_owned(), (*help).to_owned()));
    }
    INSTEAD.iter().find(|front| name.starts_with(**front)).map(|_| {
        let statistic = name.trim_start_matches("node_network_").trim_end_matches("_total");
        (true, name.to_owned(), format!("Network device statistic {statistic}."))
    })
}

/// A field that is to be summed up: numbers of the kernel by CPU. Nobody else's metrics are touched, whatever they are called.
fn summable<'a>(group: &Group, field: &'a Field) -> Option<&'a onlooker_region::schema::Array> {
    let array = field.array.as_ref().filter(|array| array.label == CPU)?;
    let kernels = matches!(group.acquisition, Acquisition::Computed | Acquisition::Published);
    let number = field.kind == Type::U64 && matches!(field.metric, Metric::Counter | Metric::Gauge);
    (kernels && number).then_some(array)
}

/// What becomes of a group's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// They are shown.
    Shown,
    /// They are replaced by their sums.
    Replaced,
}

/// The sums of one region.
pub struct Region {
    name: String,
    fates: Vec<Fate>,
    /// Which set of sums a group feeds.
    feeds: Vec<Option<usize>>,
    sets: Vec<Sums>,
    seen: u64,
}

impl Region {
    fn new(name: &str, schema: &Schema) -> Self {
        let mut region = Self {
            name: name.to_owned(),
            fates: vec![Fate::Shown; schema.groups.len()],
            feeds: vec![None; schema.groups.len()],
            sets: Vec::new(),
            seen: 0,
        };
        let mut members: Vec<(Vec<String>, bool, Vec<usize>)> = Vec::new();
        for (number, group) in schema.groups.iter().enumerate() {
            let mut names: Vec<String> = Vec::new();
            let mut replaced = 0;
            for field in group.fields.iter().filter(|field| summable(group, field).is_some()) {
                if let Some((instead, sum, _)) = rule(field) {
                    replaced += usize::from(instead);
                    if !names.contains(&sum) {
                        names.push(sum);
                    }
                }
            }
            // A group goes as a whole, or its sums could not replace it.
            let whole = replaced == group.fields.len();
            if names.is_empty() || (replaced > 0 && !whole) {
                continue;
            }
            region.fates[number] = if whole { Fate::Replaced } else { Fate::Shown };
            // CPUs that are spread over groups are summed up together; a published twin repeats its group.
            let is_twin = group.twin_of.is_some();
            match members.iter_mut().find(|(other, twin, _)| *other == names && *twin == is_twin) {
                Some((_, _, groups)) => groups.push(number),
                None => members.push((names, is_twin, vec![number])),
            }
        }
        for (_, _, groups) in members {
            for group in &groups {
                region.feeds[*group] = Some(region.sets.len());
            }
            region.sets.push(Sums::new(schema, &groups));
        }
        region
    }

    /// Takes the samples of a group, or of one row of it; says what else is to become of them.
    pub fn take(&mut self, group: usize, samples: &[Sample<'_>]) -> Fate {
        if let Some(set) = self.feeds.get(group).copied().flatten() {
            self.sets[set].take(group, samples);
        }
        self.fates.get(group).copied().unwrap_or(Fate::Shown)
    }

    /// Ends the reading of the region: hands over the sums that are whole.
    pub fn finish(&mut self, mut give: impl FnMut(Sum<'_>)) {
        for (set, sums) in (0..).zip(&mut self.sets) {
            sums.finish(set, &mut give);
        }
    }
}

/// The sums of one host.
#[derive(Default)]
pub struct Derived {
    regions: HashMap<(u64, SchemaId), Region>,
    boot: Option<[u8; 16]>,
    reading: u64,
}

impl std::fmt::Debug for Derived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Derived").field("regions", &self.regions.len()).finish_non_exhaustive()
    }
}

impl Derived {
    /// Begins a reading of the host in its boot `boot`.
    pub fn begin(&mut self, boot: Option<[u8; 16]>) {
        self.reading += 1;
        if self.boot != boot {
            // Everything counts from 0 again.
            self.regions.clear();
            self.boot = boot;
        }
        let reading = self.reading;
        self.regions.retain(|_, region| reading - region.seen <= PATIENCE_READINGS);
    }

    /// The sums of a region. A region that was made anew goes on from where the last one of its name was.
    pub fn region(&mut self, entry: &RegionEntry, schema: &Schema) -> &mut Region {
        let key = (entry.identity.word(), entry.schema);
        if !self.regions.contains_key(&key) {
            let mut made = Region::new(&entry.name, schema);
            let before = self.regions.iter().find(|(_, old)| old.name == entry.name && old.seen < self.reading);
            if let Some((old, _)) = before.map(|(key, old)| (*key, old)) {
                for (new, old) in
                    made.sets.iter_mut().zip(self.regions.remove(&old).into_iter().flat_map(|old| old.sets))
                {
                    new.go_on_from(old);
                }
            }
            self.regions.insert(key, made);
        }
        let region = self.regions.get_mut(&key).expect("just put in");
        region.seen = self.reading;
        region
    }
}
