// SPDX-License-Identifier: Apache-2.0
//! What was read, gathered for output: values as they are, and the sums over CPUs that the controller shows, by the same code. Each series is there once.
//!
//! Within limits of its own: a label is repeated for each sample, so a host could turn little memory into much text.

use super::is_wanted;
use onlooker_reader::Session;
use onlooker_region::columns::{Sample, Value};
use onlooker_region::control::RegionEntry;
use onlooker_region::labels;
use onlooker_region::schema::{Acquisition, Metric};
use onlooker_series::derive::{Derived, Given, Sum, Summed};
use onlooker_series::rank::Rank;
use onlooker_series::series::EntityKey;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Most samples of one reading.
const MAX_SAMPLES: usize = 1_000_000;
/// Most bytes of labels and values of one reading.
const MAX_SAMPLE_BYTES: usize = 256 << 20;

/// A sample with its labels.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(super) entry: &'a RegionEntry,
    pub(crate) name: Cow<'a, str>,
    pub(crate) metric: Metric,
    pub(crate) unit: Cow<'a, str>,
    pub(crate) help: Cow<'a, str>,
    pub(crate) scale: f64,
    pub(crate) resolution_ns: u64,
    /// As far as anybody vouches for it.
    pub(crate) acquisition: Acquisition,
    /// Sorted by name; without `value` of infos and `le` of histograms.
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: Value,
    /// Acquisition time on the host's boot clock; `None`: the time of the READ.
    pub(crate) time_ns: Option<u64>,
    /// When the READ was answered, the reader's steady clock.
    pub(super) answered_ns: u64,
    /// Row number and generation, in tables.
    pub(super) row: Option<(u32, u32)>,
}

impl Row<'_> {
    /// Whether it is of a region of the agent's own.
    pub(super) fn is_vouched_for(&self) -> bool {
        self.entry.identity.is_agents()
    }

    /// Which of two series of one name and labels is shown: the least.
    fn rank(&self) -> Rank {
        let key = EntityKey { region: self.entry.identity.word(), group: 0, row: self.row };
        Rank::of(&key, self.acquisition, self.entry.created_ns)
    }

    /// What tells its series from others of its name.
    fn identity(&self) -> (&[(String, String)], Option<&str>) {
        match &self.value {
            Value::Text(text) => (&self.labels, Some(text)),
            _ => (&self.labels, None),
        }
    }
}

/// One reading.
#[derive(Debug, Default)]
pub(super) struct Collected<'a> {
    /// By name; of one name the agent's first, then in the directory's order.
    pub(super) rows: Vec<Row<'a>>,
    /// Samples left out for the limits.
    pub(super) left_out: u64,
    /// Samples of programs by name whose series somebody else has already.
    pub(super) doubles: BTreeMap<String, u64>,
    bytes: usize,
}

/// The samples that match. `derived` goes from reading to reading of a host.
pub(super) fn collect<'a>(session: &'a Session, patterns: &[String], derived: &mut Derived) -> Collected<'a> {
    let mut collected = Collected::default();
    derived.begin(session.directory().last_header().map(|header| header.boot_id));
    for frame in session.frames() {
        let Some(plan) = frame.plan() else { continue };
        let (entry, answered_ns) = (frame.entry(), frame.times_ns().1);
        let mut samples = Vec::new();
        frame.decode(|sample| match samples.len() + collected.rows.len() < MAX_SAMPLES {
            true => samples.push(sample),
            false => collected.left_out += 1,
        });
        derived.read(entry, plan, &samples, |given| match given {
            Given::Values { samples, .. } => {
                for sample in samples.iter().filter(|sample| is_wanted(patterns, &sample.field.name)) {
                    collected.take(of_sample(entry, sample, answered_ns));
                }
            }
            Given::Sum(sum) => {
                for (metric, word) in sum.metrics.iter().zip(sum.words) {
                    if is_wanted(patterns, &metric.name) {
                        collected.take(of_sum(entry, &sum, metric, *word, answered_ns));
                    }
                }
            }
        });
    }
    collected.rows.sort_by(|a, b| (&a.name, !a.is_vouched_for()).cmp(&(&b.name, !b.is_vouched_for())));
    collected.keep_best();
    collected
}

pub(crate) fn of_sample<'a>(entry: &'a RegionEntry, sample: &Sample<'a>, answered_ns: u64) -> Row<'a> {
    let field = sample.field;
    Row {
        entry,
        name: field.name.as_str().into(),
        metric: field.metric,
        unit: field.unit.as_str().into(),
        help: field.help.as_str().into(),
        scale: field.scale,
        resolution_ns: field.resolution_ns,
        acquisition: entry.acquisition(sample.group),
        labels: labels::joined(&entry.labels, sample.labels(), field.metric.reserved_label()),
        value: sample.value.clone(),
        time_ns: sample.time_ns,
        answered_ns,
        row: onlooker_series::derive::row_of(sample),
    }
}

pub(crate) fn of_sum<'a>(
    entry: &'a RegionEntry,
    sum: &Sum<'_>,
    metric: &Summed,
    word: u64,
    answered_ns: u64,
) -> Row<'a> {
    let own = sum.row_labels.iter().cloned().chain(metric.labels.clone()).collect();
    Row {
        entry,
        name: metric.name.clone().into(),
        metric: metric.metric,
        unit: metric.unit.clone().into(),
        help: metric.help.clone().into(),
        scale: metric.scale,
        resolution_ns: metric.resolution_ns,
        acquisition: metric.acquisition,
        labels: labels::joined(&entry.labels, own, None),
        value: metric.value(word),
        time_ns: sum.time_ns,
        answered_ns,
        row: sum.row,
    }
}

impl<'a> Collected<'a> {
    fn take(&mut self, row: Row<'a>) {
        if self.rows.len() >= MAX_SAMPLES || self.bytes >= MAX_SAMPLE_BYTES {
            self.left_out += 1;
            return;
        }
        let value_bytes = match &row.value {
            Value::Text(text) => text.len(),
            Value::Histogram { buckets, .. } => buckets.len() * 8,
            _ => 8,
        };
        self.bytes += value_bytes + row.labels.iter().map(|(name, value)| name.len() + value.len() + 48).sum::<usize>();
        self.rows.push(row);
    }

    /// Of several rows of one series the best one stays, as at the controller.
    fn keep_best(&mut self) {
        let mut is_kept = vec![true; self.rows.len()];
        let mut at = 0;
        for rows in self.rows.chunk_by(|a, b| a.name == b.name) {
            let mut best: HashMap<_, usize> = HashMap::new();
            for (number, row) in (at..).zip(rows) {
                let Some(other) = best.get_mut(&row.identity()) else {
                    best.insert(row.identity(), number);
                    continue;
                };
                let loser =
                    if row.rank() < rows[*other - at].rank() { std::mem::replace(other, number) } else { number };
                is_kept[loser] = false;
                if !rows[loser - at].is_vouched_for() {
                    *self.doubles.entry(row.name.to_string()).or_default() += 1;
                }
            }
            at += rows.len();
        }
        let mut is_kept = is_kept.into_iter();
        self.rows.retain(|_| is_kept.next().unwrap_or(true));
    }

    /// Whether there is a sample of a metric.
    pub(super) fn has(&self, name: &str) -> bool {
        self.rows.binary_search_by(|row| (*row.name).cmp(name)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{fixture, prometheus};
    use onlooker_region::guard::commit;

    fn lines(session: &Session, patterns: &[&str], derived: &mut Derived) -> Vec<String> {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let mut out = Vec::new();
        prometheus::write(&mut out, &collect(session, &patterns, derived)).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    /// What one CPU has of a number means nothing: only the sum goes by node_exporter's name.
    #[test]
    fn parts_of_a_cpu_are_not_told_as_the_metric() {
        let mut host = fixture::host();
        let stat = r#"{"name":"node_stat","groups":[{"kind":"computed","acquisition":"computed","blocks":1,"fields":[
            {"name":"node_filefd_allocated","metric":"gauge","type":"i64","slot":0,"array":{"label":"cpu","count":2,"stride":1},"sum":{}},
            {"name":"onlooker_context_switches_total","metric":"counter","type":"u64","slot":2,"array":{"label":"cpu","count":2,"stride":1},"sum":{"name":"node_context_switches_total"}}]}]}"#;
        let region = host.region(20, "node_stat", &[], stat);
        // What the agent samples beside it, and a program of the same names.
        let sampled = r#"{"name":"node_cpu_sampled","groups":[{"kind":"guarded","acquisition":"sampled","blocks":1,"fields":[
            {"name":"node_context_switches_total","metric":"counter","type":"u64"}]}]}"#;
        host.region(21, "node_cpu_sampled", &[], sampled);
        let programs = host.region(300, "node_stat", &[("pid", "7")], stat);
        for (region, open) in [(&region, 1_500), (&programs, 3)] {
            let words = [open, (-12i64).cast_unsigned(), 70, 7];
            commit(region.words.block(0), region.entry.identity, 9, |payload| payload.set_all(0, &words));
        }
        let mut derived = Derived::default();
        let told = lines(&fixture::read(&host), &["node_*", "onlooker_*"], &mut derived);
        let expected = [
            "node_context_switches_total 77",
            "node_filefd_allocated 1488",
            r#"node_filefd_allocated{cpu="0",pid="7"} 3"#,
            r#"node_filefd_allocated{cpu="1",pid="7"} -12"#,
            r#"onlooker_context_switches_total{cpu="0"} 70"#,
            r#"onlooker_context_switches_total{cpu="1"} 7"#,
            r#"onlooker_context_switches_total{cpu="0",pid="7"} 70"#,
            r#"onlooker_context_switches_total{cpu="1",pid="7"} 7"#,
        ];
        assert_eq!(told, expected);
        // A sum is asked for by its own name.
        assert_eq!(lines(&fixture::read(&host), &["node_context_switches_total"], &mut derived), expected[..1]);
    }

    #[test]
    fn a_program_does_not_take_the_agents_series() {
        let mut host = fixture::host();
        let load = |acquisition: &str| {
            format!(
                r#"{{"name":"l","groups":[{{"kind":"guarded","acquisition":"{acquisition}","blocks":1,"fields":[{{"name":"node_load1","metric":"gauge","type":"u64"}}]}}]}}"#
            )
        };
        for (id, acquisition, value) in [(300, "computed", 99), (20, "sampled", 3), (301, "computed", 98)] {
            let region = host.region(id, "l", &[], &load(acquisition));
            commit(region.words.block(0), region.entry.identity, 9, |payload| payload.set(0, value));
        }
        let session = fixture::read(&host);
        assert_eq!(lines(&session, &["node_load1"], &mut Derived::default()), ["node_load1 3"]);
        let collected = collect(&session, &[], &mut Derived::default());
        assert_eq!(collected.doubles, BTreeMap::from([("node_load1".to_owned(), 2)]));
    }
}
