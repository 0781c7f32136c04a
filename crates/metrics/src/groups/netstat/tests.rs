// SPDX-License-Identifier: Apache-2.0
//! Group netstat.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};

use onlooker_metrics::groups::Group;
use onlooker_testbed::{own_network, try_often};

use crate::regions::{Collecting, between, file};
use crate::support::{SIDES, Side};

/// Sums over CPUs, by metric without its front.
fn sums(collecting: &Collecting, side: Side) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (name, value) in collecting.read(Group::NETSTAT, side) {
        let (metric, labels) = name.split_once('{').unwrap();
        assert!(labels.starts_with("cpu="), "{name}");
        *sums.entry(metric.trim_start_matches("node_netstat_").to_owned()).or_default() += value;
    }
    sums
}

fn procfs() -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    for path in ["/proc/thread-self/net/snmp", "/proc/thread-self/net/netstat"] {
        let text = file(path);
        let mut lines = text.lines();
        while let (Some(names), Some(numbers)) = (lines.next(), lines.next()) {
            let protocol = names.split(':').next().unwrap();
            for (name, number) in names.split_whitespace().zip(numbers.split_whitespace()).skip(1) {
                values.insert(format!("{protocol}_{name}"), number.parse().unwrap());
            }
        }
    }
    for line in std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default().lines() {
        let (name, number) = line.split_once(char::is_whitespace).unwrap();
        values.insert(name.replacen('6', "6_", 1), number.trim().parse().unwrap());
    }
    values
}

/// TCP that is accepted, used and kept; TCP and UDP that nobody waits for.
fn traffic() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut kept = Vec::new();
    for _ in 0..5 {
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[1; 3000]).unwrap();
        far.read_exact(&mut [0; 3000]).unwrap();
        kept.extend([near, far]);
    }
    TcpStream::connect("127.0.0.1:1").unwrap_err();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..20 {
        sender.send_to(&[1; 100], receiver.local_addr().unwrap()).unwrap();
        receiver.recv(&mut [0; 100]).unwrap();
        // The answer to the one before, that nobody is there, may be this one's.
        let _ = UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[1; 100], "127.0.0.1:1");
    }
    (listener, kept)
}

#[test]
fn counters_of_protocols_are_those_of_procfs() {
    own_network();
    let collecting = Collecting::new(&[Group::NETSTAT]);
    for side in SIDES {
        let _kept = traffic();
        try_often("protocols", || {
            let before = procfs();
            let sums = sums(&collecting, side);
            let after = procfs();
            for (metric, value) in &sums {
                let (before, after) = (before[metric], after[metric]);
                between(*value, before, after, 0.0).map_err(|reason| format!("{metric}: {reason}"))?;
            }
            Ok(())
        });
        let sums = sums(&collecting, side);
        assert_eq!(sums["Tcp_CurrEstab"], 10.0);
        for (metric, least) in [
            ("Tcp_ActiveOpens", 6.0),
            ("Tcp_PassiveOpens", 5.0),
            ("Tcp_OutRsts", 1.0),
            ("Tcp_InSegs", 15.0),
            ("Udp_InDatagrams", 20.0),
            ("Udp_NoPorts", 20.0),
            ("Icmp_InMsgs", 1.0),
            ("IpExt_OutOctets", 15_000.0),
        ] {
            assert!(sums[metric] >= least, "{metric} is {}", sums[metric]);
        }
    }
    // What node_exporter shows by default, as far as this kernel has it.
    let shown = |name: &str| {
        let (protocol, field) = name.split_once('_').unwrap();
        let one_of = |fields: &[&str]| fields.contains(&field);
        let of_udp = ["InDatagrams", "OutDatagrams", "NoPorts", "RcvbufErrors", "SndbufErrors"];
        one_of(&["InErrors", "InErrs"])
            || match protocol {
                "Ip6" | "IpExt" => one_of(&["InOctets", "OutOctets"]),
                "Icmp" | "Icmp6" => one_of(&["InMsgs", "OutMsgs"]),
                "Udp" | "Udp6" => one_of(&of_udp),
                "Tcp" => {
                    one_of(&["ActiveOpens", "InSegs", "OutSegs", "OutRsts", "PassiveOpens", "RetransSegs", "CurrEstab"])
                }
                "TcpExt" => {
                    field.starts_with("Listen")
                        || field.starts_with("Syncookies")
                        || one_of(&["TCPSynRetrans", "TCPTimeouts", "TCPOFOQueue", "TCPRcvQDrop"])
                }
                _ => false,
            }
    };
    let wanted: Vec<String> = procfs().into_keys().filter(|name| shown(name)).collect();
    assert_eq!(sums(&collecting, SIDES[0]).into_keys().collect::<Vec<_>>(), wanted);
}

#[test]
fn a_namespace_that_is_gone_is_not_read() {
    let collecting = std::thread::spawn(|| {
        own_network();
        let collecting = Collecting::new(&[Group::NETSTAT]);
        assert!(!sums(&collecting, SIDES[0]).is_empty());
        collecting
    });
    let collecting = collecting.join().unwrap();
    let rkey = 100 + collecting.group(Group::NETSTAT).slot;
    let begin = std::time::Instant::now();
    while matches!(
        collecting.rig.run(SIDES[0], &crate::support::Ask::v4().rkey(rkey).frame()),
        crate::support::Outcome::Answer(_)
    ) {
        assert!(begin.elapsed() < std::time::Duration::from_secs(20), "its counters are served for ever");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
