// SPDX-License-Identifier: Apache-2.0
//! Real queueing disciplines in a namespace, over TCP, beside `tc -s qdisc show`. Needs root.

mod common;

use std::collections::BTreeMap;
use std::net::UdpSocket;

use common::Place;
use common::world::World;
use onlooker_agent_lib::units::Span;
use onlooker_testbed::{run, until};

const METRICS: [(&str, &str); 7] = [
    ("node_qdisc_bytes_total", "bytes"),
    ("node_qdisc_packets_total", "packets"),
    ("node_qdisc_drops_total", "drops"),
    ("node_qdisc_requeues_total", "requeues"),
    ("node_qdisc_overlimits_total", "overlimits"),
    ("node_qdisc_current_queue_length", "qlen"),
    ("node_qdisc_backlog", "backlog"),
];

/// As `tc -s` has the roots.
#[allow(clippy::cast_precision_loss)] // counts
fn told_by_tc() -> BTreeMap<String, f64> {
    let all: serde_json::Value = serde_json::from_str(&run("tc", &["-s", "-j", "qdisc", "show"])).expect("JSON");
    let mut told = BTreeMap::new();
    for root in all.as_array().expect("a list").iter().filter(|one| one["root"] == true) {
        let of = |name: &str| root[name].as_str().expect("a text").to_owned();
        for (metric, name) in METRICS {
            let key = format!("{metric}{{device={},kind={}}}", of("dev"), of("kind"));
            told.insert(key, root[name].as_u64().expect("a number") as f64);
        }
    }
    told
}

#[test]
fn values_are_those_of_tc() {
    let Some(_world) = World::new() else { return };
    // One that holds back most of what it gets, has no room for the rest, and has a discipline below it; and one without a queue.
    run("ip", &["link", "add", "sched-a", "type", "veth", "peer", "name", "sched-b"]);
    run("ip", &["address", "add", "10.79.1.1/24", "dev", "sched-a"]);
    ["sched-a", "sched-b"].iter().for_each(|device| drop(run("ip", &["link", "set", device, "up"])));
    let limited = ["root", "handle", "1:", "tbf", "rate", "8kbit", "burst", "2000", "limit", "6000"];
    run("tc", &[&["qdisc", "add", "dev", "sched-a"], &limited[..]].concat());
    run("tc", &["qdisc", "add", "dev", "sched-a", "parent", "1:1", "handle", "10:", "pfifo", "limit", "5"]);
    // Nobody is there: the neighbour is given.
    run("ip", &["neighbour", "add", "10.79.1.2", "lladdr", "02:00:00:00:00:02", "dev", "sched-a"]);
    let socket = UdpSocket::bind("10.79.1.1:0").expect("binds");
    let place = Place::new(|config| config.sampled.interval = Span::from_ns(0));
    let agent = place.start();
    let mut reader = agent.reader();
    // A packet leaves each half second: told twice alike, and by us in between, while the queue is full.
    let (ours, told) = until("a moment at which nothing moves", || {
        for _ in 0..30 {
            socket.send_to(&[0; 500], "10.79.1.2:9").expect("sends");
        }
        let (before, ours, after) = (told_by_tc(), reader.values("node_qdisc"), told_by_tc());
        (before == after).then_some((ours, after))
    });
    assert_eq!(ours, told);
    let of = |name: &str| ours[&format!("node_qdisc_{name}{{device=sched-a,kind=tbf}}")];
    assert!(of("drops_total") > 0.0 && of("current_queue_length") > 0.0 && of("backlog") > 500.0, "{ours:?}");
    assert!(of("packets_total") > 0.0 && of("overlimits_total") > 0.0, "{ours:?}");
    assert!(ours.contains_key("node_qdisc_drops_total{device=lo,kind=noqueue}"), "{ours:?}");
    assert_eq!(ours.len(), 3 * METRICS.len(), "neither classes nor children: {ours:?}");
    run("ip", &["link", "delete", "sched-a"]);
    let left = reader.values("node_qdisc");
    assert!(!left.is_empty() && left.keys().all(|name| !name.contains("sched-a")), "its row is gone: {left:?}");
}
