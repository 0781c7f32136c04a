// SPDX-License-Identifier: Apache-2.0
//! Group sockstat against /proc/net/sockstat.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};

use onlooker_metrics::groups::Group;
use onlooker_testbed::{own_network, try_often};

use crate::regions::{Collecting, between, file};
use crate::support::{SIDES, Side};

/// Sums over CPUs and what is no sum, without the names' front.
fn sockets(collecting: &Collecting, side: Side) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (name, value) in collecting.read(Group::SOCKSTAT, side) {
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
    own_network();
    let collecting = Collecting::new(&[Group::SOCKSTAT]);
    let is_equal = |side| {
        // The machine's other sockets come and go.
        for metric in sockstat().keys() {
            try_often(metric, || {
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
