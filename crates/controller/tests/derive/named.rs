// SPDX-License-Identifier: Apache-2.0
//! Which metrics of the kernel's collectors are summed up, as what, and whether their parts stay.

use std::collections::BTreeMap;

use onlooker_controller::derive::{Derived, Fate};
use onlooker_region::block::Identity;
use onlooker_region::columns::Plan;
use onlooker_region::control::RegionEntry;

use crate::machine::{blocks_of, entry, parse, samples};

const CPUS: usize = 9;

/// Name, type and labels of a metric.
type Part<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// A region with `CPUS` CPUs, four a block, and what the controller makes of it.
struct Region {
    plan: Plan,
    entry: RegionEntry,
    derived: Derived,
    now_ns: u64,
}

impl Region {
    fn new(name: &str, metrics: &[Part<'_>]) -> Self {
        let fields: Vec<_> = metrics
            .iter()
            .enumerate()
            .map(|(slot, (name, metric, labels))| {
                let labels: BTreeMap<_, _> = labels.iter().copied().collect();
                serde_json::json!({"name": name, "metric": metric, "type": "u64", "slot": slot, "labels": labels, "help": "Of a CPU.",
                    "array": {"label": "cpu", "count": CPUS, "stride": 31}})
            })
            .collect();
        let schema = parse(&serde_json::json!({"name": name, "groups": [
            {"kind": "computed", "acquisition": "computed", "blocks": CPUS.div_ceil(4), "fields": fields}]}));
        let plan = Plan::new(schema);
        let entry = entry(name, Identity { region: 3, generation: 1, index: 0 }, &plan);
        Self { plan, entry, derived: Derived::default(), now_ns: 1_000 }
    }

    /// The sums, and how many samples are shown as they are; `value` is that of a CPU and the number of a metric.
    fn read(&mut self, value: impl Fn(u64, u64) -> u64) -> (BTreeMap<String, u64>, usize) {
        self.now_ns += 1_000;
        let word = |_, slot: usize| (slot / 31 < CPUS).then(|| value((slot / 31) as u64, (slot % 31) as u64));
        let blocks = blocks_of(self.plan.schema(), |_| self.now_ns, word, self.entry.identity);
        let samples = samples(&self.entry, &self.plan, &blocks);
        self.derived.begin(Some([1; 16]));
        let made = self.derived.region(&self.entry, self.plan.schema());
        let shown = match made.take(0, &samples) {
            Fate::Shown => samples.len(),
            Fate::Partly => made.kept(0, &samples).len(),
            Fate::Replaced => 0,
        };
        let mut sums = BTreeMap::new();
        made.finish(|sum| {
            for (metric, value) in sum.metrics.iter().zip(sum.words) {
                let labels: Vec<String> =
                    metric.labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
                assert!(!metric.help.is_empty());
                assert_eq!(sums.insert(format!("{}{{{}}}", metric.name, labels.join(",")), *value), None);
            }
        });
        (sums, shown)
    }
}

/// The first reading of a region whose metrics have the value 10 CPU + number on each CPU.
fn sums_of(region: &str, metrics: &[Part<'_>]) -> (BTreeMap<String, u64>, usize) {
    Region::new(region, metrics).read(|cpu, number| 10 * cpu + number)
}

fn sum(number: u64) -> u64 {
    (0..CPUS as u64).map(|cpu| 10 * cpu + number).sum()
}

#[test]
fn counts_of_interrupts_and_softirqs_are_shown_by_cpu_and_as_node_exporter_has_them() {
    let (sums, shown) = sums_of(
        "node_stat",
        &[
            ("onlooker_interrupts_total", "counter", &[]),
            ("node_softirqs_functions_total", "counter", &[("type", "NET_RX")]),
            ("node_softirqs_functions_total", "counter", &[("type", "IRQ_POLL")]),
            ("node_processes_pids", "gauge", &[]),
            ("onlooker_iowait_tasks", "gauge", &[]),
            ("onlooker_softirq_pending", "gauge", &[("type", "NET_RX")]),
        ],
    );
    let expected = BTreeMap::from([
        ("node_intr_total{}".to_owned(), sum(0)),
        ("node_softirqs_total{vector=net_rx}".to_owned(), sum(1)),
        ("node_softirqs_total{vector=block_iopoll}".to_owned(), sum(2)),
        ("node_processes_pids{}".to_owned(), sum(3)),
        ("node_procs_blocked{}".to_owned(), sum(4)),
    ]);
    assert_eq!((sums, shown), (expected, 5 * CPUS), "all but the parts of what is shown as the sum only");
}

#[test]
fn events_of_the_memory_are_shown_as_sums_only() {
    let (sums, shown) =
        sums_of("node_vmstat", &[("node_vmstat_pgfault", "counter", &[]), ("node_vmstat_pgpgin", "counter", &[])]);
    let expected =
        BTreeMap::from([("node_vmstat_pgfault{}".to_owned(), sum(0)), ("node_vmstat_pgpgin{}".to_owned(), sum(1))]);
    assert_eq!((sums, shown), (expected, 0));
}

#[test]
fn what_cpus_have_of_their_own_has_no_sum() {
    let schedstat = [("node_schedstat_running_seconds_total", "counter", &[][..])];
    assert_eq!(sums_of("node_schedstat", &schedstat), (BTreeMap::new(), CPUS));
}

#[test]
fn a_cpu_that_goes_hands_its_events_to_another_and_they_are_counted_once() {
    let mut region = Region::new("node_vmstat", &[("node_vmstat_pgfault", "counter", &[])]);
    let sum = |(sums, _): (BTreeMap<String, u64>, usize)| sums["node_vmstat_pgfault{}"];
    let all = 100 * CPUS as u64;
    assert_eq!(sum(region.read(|_, _| 100)), all);
    let handed_over = |cpu, _| match cpu {
        0 => 205,
        8 => 0,
        _ => 100,
    };
    assert_eq!(sum(region.read(handed_over)), all + 5);
}
