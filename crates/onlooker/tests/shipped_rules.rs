// SPDX-License-Identifier: Apache-2.0
//! The rules that are shipped: they have no mistakes, and ask for metrics that the real `/metrics` has.

use std::collections::BTreeSet;
use std::path::Path;

use onlooker_rules::read;
use onlooker_testbed::{Agent, Controller, get, until};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/rules/node.yaml");

/// What in an expression looks like a metric of ours.
fn metrics(expr: &str) -> BTreeSet<String> {
    let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("node_") || word.starts_with("onlooker_"));
    ours.map(str::to_owned).collect()
}

#[test]
fn shipped_rules_ask_for_metrics_that_are_there() {
    let text = std::fs::read_to_string(FILE).unwrap();
    let groups = read(Path::new(FILE), &text).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
    let mut wanted: BTreeSet<_> =
        groups.iter().flat_map(|group| &group.rules).flat_map(|rule| metrics(&rule.expr)).collect();
    assert!(wanted.len() > 10, "{wanted:?}");
    // Of these there is something to say once something went wrong, or where the kernel has it.
    wanted.remove("onlooker_host_gaps_total");
    if !Path::new("/proc/pressure").exists() {
        wanted.retain(|metric| !metric.starts_with("node_pressure_"));
    }

    let agent = Agent::start();
    let controller = Controller::start("", &(agent.target("one") + "interval = \"100ms\"\n"));
    for metric in &wanted {
        let is_there = |line: &str| line.split(['{', ' ']).next() == Some(metric.as_str());
        until(metric, || get(controller.address(), "/metrics").lines().any(is_there).then_some(()));
    }
}
