// SPDX-License-Identifier: Apache-2.0
//! Group network, in namespaces of the tests' own.

use std::collections::BTreeMap;
use std::net::UdpSocket;

use onlooker_metrics::groups::Group;
use onlooker_region::columns::Plan;
use onlooker_testbed::{own_network, run, try_often};

use crate::regions::{Collecting, between, file, identity};
use crate::support::{SIDES, Side};

const COLUMNS: [(&str, usize); 6] = [
    ("receive_bytes", 0),
    ("receive_packets", 1),
    ("receive_drop", 3),
    ("transmit_bytes", 8),
    ("transmit_packets", 9),
    ("transmit_drop", 11),
];

fn add_bridge(name: &str, third: u8) {
    run("ip", &["link", "add", name, "type", "bridge"]);
    run("ip", &["address", "add", &format!("10.88.{third}.1/24"), "dev", name]);
    run("ip", &["link", "set", name, "up"]);
}

/// By device: (row, generation), and sums over CPUs by metric.
type Rows = BTreeMap<String, ((usize, u32), BTreeMap<String, f64>)>;

fn rows(collecting: &Collecting, side: Side) -> Rows {
    let group = collecting.group(Group::NETWORK);
    let blocks = collecting.blocks(Group::NETWORK, side);
    let plan = Plan::new(group.schema.clone());
    let mut rows = Rows::new();
    let refused = plan.decode(identity(group), &blocks, |sample| {
        let row = sample.row.unwrap();
        let labels: BTreeMap<String, String> = sample.labels().into_iter().collect();
        let (place, values) = rows.entry(labels["device"].clone()).or_default();
        let metric = sample.field.name.trim_start_matches("node_network_").trim_end_matches("_total").to_owned();
        *place = (row.number, row.generation);
        *values.entry(metric).or_default() += sample.scaled();
    });
    assert_eq!(refused.unwrap(), []);
    rows
}

fn procfs() -> BTreeMap<String, Vec<f64>> {
    let text = file("/proc/thread-self/net/dev");
    let lines = text.lines().skip(2).map(|line| {
        let (name, numbers) = line.split_once(':').unwrap();
        (name.trim().to_owned(), numbers.split_whitespace().map(|word| word.parse().unwrap()).collect())
    });
    lines.collect()
}

fn traffic() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..50 {
        socket.send_to(&[1; 700], "127.0.0.1:9").unwrap();
        // Nobody is there: the bridge asks for the address, and counts that.
        let _ = UdpSocket::bind("0.0.0.0:0").unwrap().send_to(&[1; 300], "10.88.1.9:9");
    }
}

#[test]
fn counters_of_devices_are_those_of_proc_net_dev() {
    own_network();
    add_bridge("collectbr1", 1);
    run("ip", &["link", "add", "collectve1", "type", "veth", "peer", "name", "collectve2"]);
    for device in ["collectve1", "collectve2"] {
        run("ip", &["link", "set", device, "up"]);
    }
    traffic();
    let collecting = Collecting::new(&[Group::NETWORK]);
    for side in SIDES {
        traffic();
        try_often("devices", || {
            let before = procfs();
            let rows = rows(&collecting, side);
            let after = procfs();
            for device in ["lo", "collectbr1"] {
                let (_, values) = rows.get(device).ok_or(format!("{device} has no row"))?;
                for (metric, column) in COLUMNS {
                    between(values[metric], before[device][column], after[device][column], 0.0)
                        .map_err(|reason| format!("{device} {metric}: {reason}"))?;
                }
            }
            // veth has a row where the kernel counts it per CPU in both directions, from 6.7 on; and if so it is right.
            for (device, (_, values)) in &rows {
                for (metric, column) in COLUMNS {
                    between(values[metric], before[device][column], after[device][column], 0.0)
                        .map_err(|reason| format!("{device} {metric}: {reason}"))?;
                }
            }
            assert!(rows["lo"].1["receive_bytes"] > 30_000.0 && rows["collectbr1"].1["transmit_packets"] > 0.0);
            Ok(())
        });
    }
}

/// From 6.7 on veth says how it counts.
fn veth_is_known() -> bool {
    let release = file("/proc/sys/kernel/osrelease");
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(7))
}

#[test]
fn both_ends_of_a_veth_have_rows_whichever_way_their_queues_work() {
    own_network();
    run("ip", &["link", "add", "collectve1", "type", "veth", "peer", "name", "collectve2"]);
    run("ip", &["address", "add", "10.88.7.1/24", "dev", "collectve1"]);
    for device in ["collectve1", "collectve2"] {
        run("ip", &["link", "set", device, "up"]);
    }
    let send = || {
        for port in 0..40 {
            // Nobody is there: it asks for the address, on the wire.
            let _ = UdpSocket::bind("0.0.0.0:0").unwrap().send_to(&[1; 300], ("10.88.7.9", 9 + port));
        }
    };
    let collecting = Collecting::new(&[Group::NETWORK]);
    for queues in ["off", "on"] {
        // With GRO the receiving end has queues, and counts what came through them by queue.
        let set = std::process::Command::new("ethtool").args(["-K", "collectve2", "gro", queues]).output();
        if !set.is_ok_and(|set| set.status.success()) {
            continue;
        }
        for side in SIDES {
            run("ip", &["neighbour", "flush", "dev", "collectve1"]);
            send();
            try_often("veth", || {
                let before = procfs();
                let rows = rows(&collecting, side);
                let after = procfs();
                assert_eq!(rows.contains_key("collectve1"), veth_is_known());
                for device in ["collectve1", "collectve2"].iter().filter(|device| rows.contains_key(**device)) {
                    for (metric, column) in COLUMNS {
                        between(rows[*device].1[metric], before[*device][column], after[*device][column], 0.0)
                            .map_err(|reason| format!("{device} {metric}: {reason}"))?;
                    }
                }
                Ok(())
            });
        }
        let rows = rows(&collecting, SIDES[0]);
        if veth_is_known() {
            assert!(
                rows["collectve1"].1["transmit_packets"] > 0.0 && rows["collectve2"].1["receive_bytes"] > 0.0,
                "{rows:?}"
            );
        }
    }
}

#[test]
fn devices_of_other_namespaces_have_no_rows() {
    own_network();
    let collecting = Collecting::new(&[Group::NETWORK]);
    let names: Vec<String> = rows(&collecting, SIDES[0]).into_keys().collect();
    assert_eq!(names, ["lo"]);
}

#[test]
fn devices_that_count_in_ways_of_their_own_are_named() {
    own_network();
    run("ip", &["link", "add", "collectve1", "type", "veth", "peer", "name", "collectve2"]);
    // A VLAN device has a structure of its own for its counters; where the kernel has none, veth before 6.7 is such a device.
    let vlan = std::process::Command::new("ip")
        .args(["link", "add", "link", "collectve1", "name", "collectvl", "type", "vlan", "id", "5"])
        .output()
        .unwrap();
    let collecting = Collecting::new(&[Group::NETWORK]);
    let uncovered = &collecting.group(Group::NETWORK).uncovered;
    let rows = rows(&collecting, SIDES[0]);
    for device in procfs().keys() {
        assert_ne!(rows.contains_key(device), uncovered.contains(device), "{device}: {uncovered:?}");
    }
    if vlan.status.success() {
        assert!(uncovered.contains(&"collectvl".to_owned()), "{uncovered:?}");
    }
}

#[test]
fn rows_follow_devices_that_come_are_renamed_go_and_come_again() {
    own_network();
    let collecting = Collecting::new(&[Group::NETWORK]);
    let read = || rows(&collecting, SIDES[0]);
    let lo = read()["lo"].0;
    assert_ne!(lo.1, 0);

    add_bridge("collecta", 2);
    add_bridge("collectb", 3);
    let first = read();
    let (a, b) = (first["collecta"].0, first["collectb"].0);
    assert!(a.0 != b.0 && a.0 != lo.0, "{first:?}");

    // Renamed: the old name is gone at once, and whoever knew the row sees that it is another's now.
    run("ip", &["link", "set", "collecta", "down"]);
    run("ip", &["link", "set", "collecta", "name", "collectnew"]);
    let renamed = read();
    assert!(!renamed.contains_key("collecta"), "{renamed:?}");
    let new = renamed["collectnew"].0;
    assert_eq!(new.0, a.0);
    assert_eq!(new.1, a.1.wrapping_add(1).max(1));
    assert_eq!((renamed["collectb"].0, renamed["lo"].0), (b, lo), "rows of others stay");

    // Removed: no row. A shorter name leaves nothing of the longer one behind.
    run("ip", &["link", "set", "collectnew", "name", "c"]);
    assert!(read().contains_key("c"));
    run("ip", &["link", "delete", "c"]);
    let removed = read();
    assert_eq!(removed.keys().collect::<Vec<_>>(), ["collectb", "lo"]);

    // Again, under the old name: an entity of its own, whichever row it gets.
    let known = [a, new];
    add_bridge("collecta", 2);
    let again = read();
    assert!(!known.contains(&again["collecta"].0), "{again:?}");
    assert_eq!((again["collectb"].0, again["lo"].0), (b, lo));

    // Many come and go: rows are given again, and never with an old generation.
    let mut seen = Vec::new();
    for round in 0..30 {
        let name = format!("collect{}", round % 3);
        run("ip", &["link", "add", &name, "type", "bridge"]);
        let rows = read();
        let place = rows[&name].0;
        assert!(!seen.contains(&place), "{place:?} twice");
        seen.push(place);
        run("ip", &["link", "delete", &name]);
        assert!(!read().contains_key(&name));
    }
    let most = seen.iter().map(|(row, _)| row).max().unwrap();
    assert!(*most < 10, "rows are not given again: {seen:?}");
}

#[test]
fn a_device_that_takes_another_s_number_and_name_is_not_taken_for_it() {
    own_network();
    let collecting = Collecting::new(&[Group::NETWORK]);
    let add = || run("ip", &["link", "add", "collecta", "index", "4242", "type", "bridge"]);
    let mut seen = Vec::new();
    for round in 0..10 {
        // From the second round on nobody has looked since the one before was there.
        add();
        // The first look takes the row back, and the next gives one.
        let place = (0..10).find_map(|_| rows(&collecting, SIDES[round % 2]).get("collecta").map(|row| row.0));
        let place = place.unwrap_or_else(|| panic!("round {round}: it never has a row"));
        assert!(!seen.contains(&place), "{place:?} twice");
        seen.push(place);
        run("ip", &["link", "delete", "collecta"]);
    }
    assert!(!rows(&collecting, SIDES[0]).contains_key("collecta"));
    let most = seen.iter().map(|(row, _)| row).max().unwrap();
    assert!(*most < 10, "rows are not given again: {seen:?}");
}

#[test]
fn more_devices_than_rows_are_bounded() {
    own_network();
    let collecting = Collecting::new(&[Group::NETWORK]);
    for number in 0..40 {
        run("ip", &["link", "add", &format!("collect{number}"), "type", "bridge"]);
    }
    let mut devices = 0;
    for _ in 0..20 {
        devices = rows(&collecting, SIDES[0]).len();
    }
    // 24 rows, as many as there are at least.
    assert_eq!(devices, 24);
    run("ip", &["link", "delete", "collect0"]);
    for _ in 0..20 {
        devices = rows(&collecting, SIDES[0]).len();
    }
    assert_eq!(devices, 24, "a row that is free again was not given to one that waited");
}
