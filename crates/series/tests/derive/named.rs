// SPDX-License-Identifier: Apache-2.0
//! What a schema says of a field's sum: its name, help and labels, whether the elements stay, and whether what falls is lost.

use std::collections::BTreeMap;

use onlooker_region::block::Identity;
use onlooker_region::columns::Plan;
use onlooker_region::control::RegionEntry;
use onlooker_series::derive::{Derived, Fate};

use crate::machine::{blocks_of, entry, parse, samples};

const CPUS: usize = 9;

/// Name and type of a metric, and what its schema says of its sum.
type Part<'a> = (&'a str, &'a str, &'a str);

/// A region with `CPUS` CPUs, four a block, and what readers make of it.
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
            .map(|(slot, (name, metric, sum))| {
                let mut field = serde_json::json!({"name": name, "metric": metric, "type": "u64", "slot": slot, "help": "Of a CPU.",
                    "labels": {"number": slot.to_string()}, "array": {"label": "cpu", "count": CPUS, "stride": 31}});
                if !sum.is_empty() {
                    field["sum"] = serde_json::from_str(sum).unwrap();
                }
                field
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
        let made = self.derived.region(&self.entry, &self.plan);
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
fn a_sum_is_shown_instead_of_its_elements_or_beside_them_with_its_own_labels() {
    let (sums, shown) = sums_of(
        "r",
        &[
            ("instead_total", "counter", "{}"),
            ("beside", "gauge", r#"{"name": "all", "help": "Of all."}"#),
            ("by_type_total", "counter", r#"{"name": "by_vector_total", "labels": {"vector": "rx"}}"#),
            ("bare_total", "counter", r#"{"labels": {}}"#),
            ("none", "gauge", ""),
        ],
    );
    let expected = BTreeMap::from([
        ("instead_total{number=0}".to_owned(), sum(0)),
        ("all{number=1}".to_owned(), sum(1)),
        ("by_vector_total{vector=rx}".to_owned(), sum(2)),
        ("bare_total{}".to_owned(), sum(3)),
    ]);
    assert_eq!((sums, shown), (expected, 3 * CPUS), "all but the elements of what is shown as the sum only");
}

#[test]
fn an_element_that_goes_hands_its_count_to_another_and_it_is_counted_once() {
    let all = 100 * CPUS as u64;
    let moved = |cpu, _| match cpu {
        0 => 205,
        8 => 0,
        _ => 100,
    };
    for (text, then) in [(r#"{"labels": {}, "handed_over": true}"#, all + 5), (r#"{"labels": {}}"#, all + 105)] {
        let mut region = Region::new("r", &[("events_total", "counter", text)]);
        let sum = |(sums, _): (BTreeMap<String, u64>, usize)| sums["events_total{}"];
        assert_eq!(sum(region.read(|_, _| 100)), all);
        assert_eq!(sum(region.read(moved)), then);
    }
}
