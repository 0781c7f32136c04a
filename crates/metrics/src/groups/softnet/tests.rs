// SPDX-License-Identifier: Apache-2.0
//! Group softnet against /proc/net/softnet_stat.

use std::collections::BTreeMap;
use std::net::UdpSocket;

use onlooker_metrics::groups::Group;
use onlooker_testbed::{own_network, try_often};

use crate::regions::{Collecting, between, file};
use crate::support::SIDES;

const COLUMNS: [(&str, usize); 6] = [
    ("node_softnet_processed_total", 0),
    ("node_softnet_dropped_total", 1),
    ("node_softnet_times_squeezed_total", 2),
    ("node_softnet_received_rps_total", 9),
    ("node_softnet_flow_limit_count_total", 10),
    ("onlooker_softnet_backlog_length", 11),
];

/// Columns by CPU.
fn softnet_stat() -> BTreeMap<u32, Vec<u32>> {
    let text = file("/proc/net/softnet_stat");
    let rows = text.lines().map(|line| {
        let columns: Vec<u32> = line.split(' ').map(|word| u32::from_str_radix(word, 16).unwrap()).collect();
        (columns[12], columns)
    });
    rows.collect()
}

#[test]
fn backlogs_of_each_cpu_are_those_of_softnet_stat() {
    own_network();
    let collecting = Collecting::new(&[Group::SOFTNET]);
    let processed = |values: &BTreeMap<String, f64>| -> f64 {
        values.iter().filter(|(name, _)| name.starts_with("node_softnet_processed")).map(|(_, value)| value).sum()
    };
    for side in SIDES {
        let first = collecting.read(Group::SOFTNET, side);
        let (receiver, sender) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        for _ in 0..100 {
            sender.send_to(&[1; 10], receiver.local_addr().unwrap()).unwrap();
            receiver.recv(&mut [0; 10]).unwrap();
        }
        let last = collecting.read(Group::SOFTNET, side);
        assert!(processed(&last) >= processed(&first) + 100.0, "{first:?} {last:?}");
        for (metric, column) in COLUMNS {
            try_often(metric, || {
                let before = softnet_stat();
                let values = collecting.read(Group::SOFTNET, side);
                let after = softnet_stat();
                assert_eq!(values.len(), before.len() * COLUMNS.len(), "CPUs of procfs and of the region differ");
                for (cpu, columns) in &before {
                    let value = values[&format!("{metric}{{cpu={cpu}}}")];
                    between(value, columns[column].into(), after[cpu][column].into(), 0.0)
                        .map_err(|reason| format!("CPU {cpu}: {reason}"))?;
                }
                Ok(())
            });
        }
    }
}
