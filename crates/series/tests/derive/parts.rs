// SPDX-License-Identifier: Apache-2.0
//! Counters of protocols: CPUs' parts are replaced by their sum, and a part may be negative.

use onlooker_region::block::Identity;
use onlooker_region::columns::Plan;
use onlooker_series::derive::Derived;

use crate::machine::{blocks_of, entry, feed, parse, samples};

#[test]
fn parts_of_protocol_counters_are_replaced_by_their_sum() {
    let field = |slot: u32, name: &str, metric: &str, kind: &str| {
        serde_json::json!({"name": name, "metric": metric, "type": kind, "slot": slot,
            "help": "Of a protocol.", "array": {"label": "cpu", "count": 3, "stride": 62}, "sum": {}})
    };
    let schema = parse(&serde_json::json!({"name": "node_netstat", "groups": [
    {"kind": "computed", "acquisition": "computed", "blocks": 2, "fields": [
        field(0, "node_netstat_Tcp_CurrEstab", "gauge", "i64"),
        field(1, "node_netstat_TcpExt_ListenDrops", "counter", "u64"),
    ]}]}));
    let identity = Identity { region: 3, generation: 1, index: 0 };
    let plan = Plan::new(schema);
    // Connections that began on CPU 1 and ended on CPU 0.
    let parts = [[-5_i64, 10], [9, 20], [0, 3]];
    let word = |_, slot: usize| parts.get(slot / 62)?.get(slot % 62).map(|part| part.cast_unsigned());
    let blocks = blocks_of(plan.schema(), |_| 7, word, identity);
    let entry = entry("node_netstat", identity, &plan);
    let samples = samples(&entry, &plan, &blocks);
    assert_eq!(samples.len(), 6);
    let (mut derived, mut sums) = (Derived::default(), Vec::new());
    derived.begin(None);
    let give = |name: &str, _: &str, value: u64| sums.push((name.to_owned(), value));
    assert_eq!(feed(&mut derived, &entry, &plan, &samples, give), 0, "no part is shown beside the sum");
    sums.sort();
    let wanted = [("node_netstat_TcpExt_ListenDrops".to_owned(), 33), ("node_netstat_Tcp_CurrEstab".to_owned(), 4)];
    assert_eq!(sums, wanted);
    // Again, to see what they are.
    derived.begin(None);
    let region = derived.region(&entry, &plan);
    region.take(0, &samples);
    let mut seen = 0;
    region.finish(|sum| {
        for metric in sum.metrics {
            assert_eq!(metric.signed, metric.name.ends_with("CurrEstab"));
            assert_eq!(metric.help, "Of a protocol.");
            seen += 1;
        }
    });
    assert_eq!(seen, 2);
}

/// A metric whose elements stand in two groups, beside one of fewer elements.
#[test]
fn groups_that_share_a_sum_make_it_together() {
    let field = |slot: u32, name: &str, cpus: [&str; 2]| {
        serde_json::json!({"name": name, "metric": "counter", "type": "u64", "slot": slot,
            "array": {"label": "cpu", "count": 2, "stride": 1, "values": cpus}, "sum": {}})
    };
    let group = |fields: Vec<serde_json::Value>| serde_json::json!({"kind": "guarded", "blocks": 1, "fields": fields});
    let schema = parse(&serde_json::json!({"name": "t", "groups": [
        group(vec![field(0, "x", ["0", "1"]), field(2, "y", ["0", "1"])]),
        group(vec![field(0, "x", ["2", "3"])]),
        group(vec![field(0, "z", ["0", "1"])])]}));
    let identity = Identity { region: 3, generation: 1, index: 0 };
    let plan = Plan::new(schema);
    let word = |group: usize, slot: usize| (slot < 4).then(|| 100 * group as u64 + slot as u64);
    let blocks = blocks_of(plan.schema(), |_| 7, word, identity);
    let entry = entry("t", identity, &plan);
    let (mut derived, mut sums) = (Derived::default(), Vec::new());
    derived.begin(None);
    let give = |name: &str, _: &str, value: u64| sums.push((name.to_owned(), value));
    assert_eq!(feed(&mut derived, &entry, &plan, &samples(&entry, &plan, &blocks), give), 0);
    sums.sort();
    let wanted = [("x", 1 + 100 + 101), ("y", 2 + 3), ("z", 200 + 201)].map(|(name, sum)| (name.to_owned(), sum));
    assert_eq!(sums, wanted);
}
