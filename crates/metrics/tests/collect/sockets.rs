// SPDX-License-Identifier: Apache-2.0
//! Groups softnet and sockstat.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};

use onlooker_kernel::collect::Group;

use crate::network::own_namespace;
use crate::regions::{Collecting, between, eventually, file};
use crate::support::{SIDES, Side};

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
    own_namespace();
    let collecting = Collecting::new(&[Group::Softnet]);
    let processed = |values: &BTreeMap<String, f64>| -> f64 {
        values.iter().filter(|(name, _)| name.starts_with("node_softnet_processed")).map(|(_, value)| value).sum()
    };
    for side in SIDES {
        let first = collecting.read(Group::Softnet, side);
        let (receiver, sender) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        for _ in 0..100 {
            sender.send_to(&[1; 10], receiver.local_addr().unwrap()).unwrap();
            receiver.recv(&mut [0; 10]).unwrap();
        }
        let last = collecting.read(Group::Softnet, side);
        assert!(processed(&last) >= processed(&first) + 100.0, "{first:?} {last:?}");
        for (metric, column) in COLUMNS {
            eventually(metric, || {
                let before = softnet_stat();
                let values = collecting.read(Group::Softnet, side);
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

/// Sums over CPUs and what is no sum, without the names' front.
fn sockets(collecting: &Collecting, side: Side) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (name, value) in collecting.read(Group::Sockstat, side) {
        let metric = name.split('{').next().unwrap();
        *sums.entry(metric.trim_start_matches("node_sockstat_").to_owned()).or_default() += value;
    }
    sums
}

fn sockstat() -> BTreeMap<String, f64> {
    let mut text = file("/proc/thread-self/net/sockstat");
    text.push_str(&std::fs::read_to_string("/proc/thread-self/net/sockstat6").unwrap_or_default());
    let mut values = BTreeMap::new();
    for line in text.lines() {
        let (protocol, rest) = line.split_once(':').unwrap();
        let words: Vec<&str> = rest.split_whitespace().collect();
        for pair in words.chunks(2) {
            let value: f64 = pair[1].parse().unwrap();
            if pair[0] == "mem" {
                values.insert(format!("{protocol}_mem_bytes"), value * 4096.0);
            }
            values.insert(format!("{protocol}_{}", pair[0]), value);
        }
    }
    values
}

#[test]
fn sockets_are_those_of_sockstat() {
    own_namespace();
    let collecting = Collecting::new(&[Group::Sockstat]);
    let is_equal = |side| {
        // The machine's other sockets come and go.
        for metric in sockstat().keys() {
            eventually(metric, || {
                let before = sockstat()[metric];
                let value = *sockets(&collecting, side).get(metric).ok_or("it is missing")?;
                between(value, before, sockstat()[metric], 0.0)
            });
        }
        assert_eq!(sockets(&collecting, side).keys().collect::<Vec<_>>(), sockstat().keys().collect::<Vec<_>>());
    };
    for (side, connections) in SIDES.into_iter().zip([1.0, 2.0]) {
        is_equal(side);
        let before = sockets(&collecting, side);
        let udp: Vec<_> = (0..7).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        is_equal(side);
        let now = sockets(&collecting, side);
        assert_eq!(now["UDP_inuse"], before["UDP_inuse"] + 7.0);
        assert_eq!(now["TCP_inuse"], before["TCP_inuse"] + 3.0);
        assert_eq!(now["sockets_used"], before["sockets_used"] + 10.0);
        // The end that closes first waits.
        far.shutdown(Shutdown::Both).unwrap();
        drop(far);
        assert_eq!(near.read(&mut [0; 1]).unwrap(), 0);
        drop((near, udp, listener));
        is_equal(side);
        let now = sockets(&collecting, side);
        assert_eq!((now["TCP_tw"], now["UDP_inuse"]), (connections, before["UDP_inuse"]));
        assert_eq!(now["sockets_used"], before["sockets_used"]);
    }
}
