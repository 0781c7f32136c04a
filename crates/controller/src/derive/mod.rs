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

use std::collections::{BTreeMap, HashMap};

use onlooker_region::columns::Sample;
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::{Acquisition, Field, Group, Metric, Schema, Type};
use onlooker_region::{Identity, SchemaId};

use crate::fleet::PATIENCE_READINGS;
use crate::series::group_number;
use sums::Sums;
pub use sums::{Sum, Summed};

/// Label of the CPU in the schemas of kernel metrics.
const CPU: &str = "cpu";

/// Metrics that are a sum over CPUs elsewhere and shown beside their parts: the parts' name, the sum's, its help.
const BESIDE: [(&str, &str, &str); 5] = [
    ("onlooker_context_switches_total", "node_context_switches_total", "Total number of context switches."),
    // nr_running() of the kernel, which /proc/stat shows as procs_running, is this sum: struct rq, nr_running.
    ("onlooker_run_queue_length", "node_procs_running", "Number of processes in runnable state."),
    ("onlooker_interrupts_total", "node_intr_total", "Total number of interrupts serviced."),
    // nr_iowait() of the kernel, which /proc/stat shows as procs_blocked, is this sum: struct rq, nr_iowait.
    ("onlooker_iowait_tasks", "node_procs_blocked", "Number of processes blocked waiting for I/O to complete."),
    (SOFTIRQS, "node_softirqs_total", "Number of softirq calls."),
];

/// Metrics whose sum has their own name and replaces them: how their names begin, and how the sum's help does; `None`: it is the part's.
const INSTEAD: &[(&str, Option<&str>)] = &[
    ("node_network_receive_", Some("Network device statistic receive_")),
    ("node_network_transmit_", Some("Network device statistic transmit_")),
    ("node_netstat_", Some("Statistic ")),
    ("node_sockstat_", None),
    ("node_vmstat_", Some("/proc/vmstat information field ")),
    ("node_disk_", None),
    ("node_filefd_allocated", None),
    ("node_processes_pids", None),
];

/// By CPU and `type` as in /proc/softirqs; node_exporter has the sums by `vector`, in names of its own.
const SOFTIRQS: &str = "node_softirqs_functions_total";

/// Metrics that a CPU hands to another one when it goes offline (vm_events_fold_cpu of mm/vmstat.c), so that their sum does not fall then.
const HANDED_OVER: &str = "node_vmstat_";

/// What a metric is summed up as.
pub struct Rule {
    /// The parts are not shown beside it.
    pub replaces: bool,
    /// Name of the sum.
    pub name: String,
    /// Its help.
    pub help: String,
    /// Constant labels of all parts.
    pub labels: BTreeMap<String, String>,
}

/// The sum that the values of a region's field go into, if there is one.
#[must_use]
pub fn sum_of(entry: &RegionEntry, group: &Group, field: &Field) -> Option<Rule> {
    summable(entry, group, field).and_then(|_| rule(field))
}

fn rule(field: &Field) -> Option<Rule> {
    let name = field.name.as_str();
    if let Some((_, sum, help)) = BESIDE.iter().find(|(part, _, _)| *part == name) {
        let labels = if name == SOFTIRQS { vector(&field.labels) } else { field.labels.clone() };
        return Some(Rule { replaces: false, name: (*sum).to_owned(), help: (*help).to_owned(), labels });
    }
    INSTEAD.iter().find_map(|(front, help)| {
        let statistic = name.strip_prefix(front)?.trim_end_matches("_total");
        let help = help.map_or_else(|| field.help.clone(), |help| format!("{help}{statistic}."));
        Some(Rule { replaces: true, name: name.to_owned(), help, labels: field.labels.clone() })
    })
}

/// procfs's name of a softirq as node_exporter writes it.
fn vector(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let rename = |(label, value): (&String, &String)| match (label.as_str(), value.as_str()) {
        ("type", "IRQ_POLL") => ("vector".to_owned(), "block_iopoll".to_owned()),
        ("type", kind) => ("vector".to_owned(), kind.to_ascii_lowercase()),
        _ => (label.clone(), value.clone()),
    };
    labels.iter().map(rename).collect()
}

/// A field that is to be summed up: numbers of the kernel by CPU. Nobody else's metrics are touched, whatever they and their regions are called.
fn summable<'a>(entry: &RegionEntry, group: &Group, field: &'a Field) -> Option<&'a onlooker_region::schema::Array> {
    let array = field.array.as_ref().filter(|array| array.label == CPU)?;
    let kernels = matches!(entry.acquisition(group), Acquisition::Computed | Acquisition::Published);
    // Parts of a gauge can be negative: what one CPU began, another may have ended.
    let number = match field.kind {
        Type::U64 => matches!(field.metric, Metric::Counter | Metric::Gauge),
        Type::I64 => field.metric == Metric::Gauge,
        _ => false,
    };
    (kernels && number).then_some(array)
}

/// What a reading of a region gives.
pub enum Given<'a, 'r> {
    /// Values of a group, or of one row of it, that no sum replaces; never none.
    Values {
        /// Number of the group in the schema.
        group: u32,
        /// In the order of its fields.
        samples: &'r [Sample<'a>],
    },
    /// Sums, whole.
    Sum(Sum<'r>),
}

/// Number and generation of a sample's table row.
#[must_use]
pub fn row_of(sample: &Sample<'_>) -> Option<(u32, u32)> {
    sample.row.as_ref().map(|row| (u32::try_from(row.number).unwrap_or(u32::MAX), row.generation))
}

/// Whether two samples of a region are of one group, and of one row of it.
#[must_use]
pub fn is_same(a: &Sample<'_>, b: &Sample<'_>) -> bool {
    std::ptr::eq(a.group, b.group) && row_of(a) == row_of(b)
}

/// What becomes of a group's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// They are shown.
    Shown,
    /// They are replaced by their sums.
    Replaced,
    /// Some are: [`Region::kept`].
    Partly,
}

/// The sums of one region.
pub struct Region {
    name: String,
    fates: Vec<Fate>,
    /// Of each group: which of its fields are replaced.
    replaced: Vec<Vec<bool>>,
    /// Which set of sums a group feeds.
    feeds: Vec<Option<usize>>,
    sets: Vec<Sums>,
    seen: u64,
}

impl Region {
    fn new(entry: &RegionEntry, schema: &Schema) -> Self {
        let mut region = Self {
            name: entry.name.clone(),
            fates: vec![Fate::Shown; schema.groups.len()],
            replaced: vec![Vec::new(); schema.groups.len()],
            feeds: vec![None; schema.groups.len()],
            sets: Vec::new(),
            seen: 0,
        };
        let mut members: Vec<(Vec<String>, bool, Vec<usize>)> = Vec::new();
        for (number, group) in schema.groups.iter().enumerate() {
            let mut names: Vec<String> = Vec::new();
            let mut replaced = Vec::with_capacity(group.fields.len());
            for field in &group.fields {
                let rule = sum_of(entry, group, field);
                replaced.push(rule.as_ref().is_some_and(|rule| rule.replaces));
                names.extend(rule.map(|rule| rule.name).filter(|name| !names.contains(name)));
            }
            if names.is_empty() {
                continue;
            }
            region.fates[number] = match (replaced.contains(&true), replaced.contains(&false)) {
                (true, true) => Fate::Partly,
                (true, false) => Fate::Replaced,
                (false, _) => Fate::Shown,
            };
            region.replaced[number] = replaced;
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
            region.sets.push(Sums::new(entry, schema, &groups));
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

    /// Those of a group's samples, or of one row's, that their sums do not replace.
    #[must_use]
    pub fn kept<'a>(&self, group: usize, samples: &[Sample<'a>]) -> Vec<Sample<'a>> {
        let replaced = self.replaced.get(group).map_or(&[][..], Vec::as_slice);
        // Samples come field by field, in the order of the schema.
        let mut at = 0;
        let is_kept = |sample: &&Sample<'a>| {
            while sample.group.fields.get(at).is_some_and(|field| !std::ptr::eq(field, sample.field)) {
                at += 1;
            }
            !replaced.get(at).is_some_and(|replaced| *replaced)
        };
        samples.iter().filter(is_kept).cloned().collect()
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

    /// Takes what was read of a region: gives what stays as it is, then the sums that are whole.
    pub fn read<'a>(
        &mut self,
        entry: &RegionEntry,
        schema: &Schema,
        samples: &[Sample<'a>],
        mut give: impl FnMut(Given<'a, '_>),
    ) {
        let sums = self.region(entry, schema);
        for samples in samples.chunk_by(is_same) {
            let group = group_number(schema, samples[0].group);
            match sums.take(group as usize, samples) {
                Fate::Shown => give(Given::Values { group, samples }),
                Fate::Replaced => {}
                Fate::Partly => match &*sums.kept(group as usize, samples) {
                    [] => {}
                    samples => give(Given::Values { group, samples }),
                },
            }
        }
        sums.finish(|sum| give(Given::Sum(sum)));
    }

    /// The sums of a region. A region that was made anew goes on from where the last one of its name was.
    pub fn region(&mut self, entry: &RegionEntry, schema: &Schema) -> &mut Region {
        let key = (entry.identity.word(), entry.schema);
        if !self.regions.contains_key(&key) {
            let mut made = Region::new(entry, schema);
            // A program's region has no sums, and takes none over, whatever it is called.
            let is_agents = |region: u64| Identity::from_word(region).is_some_and(Identity::is_agents);
            let is_before = |key: &(u64, SchemaId), old: &Region| {
                is_agents(key.0) && old.name == entry.name && old.seen < self.reading
            };
            let mut regions = self.regions.iter().filter(|_| entry.identity.is_agents());
            let before = regions.find(|(key, old)| is_before(key, old));
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
