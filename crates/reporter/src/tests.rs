// SPDX-License-Identifier: Apache-2.0
//! Over loopback to model translators that lose what they are given.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use onlooker_dta::append::{List, Position};
use onlooker_dta::translator::{Limits, Operation, Service, Shape, Translator};
use onlooker_wire::dta::Copies;

use super::*;

const ACCESS: u32 = 7;

/// A translator behind a socket that loses a third of all datagrams, either way, without a pattern, until it is told to stop. What was appended.
fn collector(socket: &UdpSocket, is_over: &AtomicBool) -> Vec<u64> {
    let list = List { entry_bytes: 8, batch: 1, batches_log2: 12 };
    let shape = Shape::Append(list, Position::default());
    let limits = Limits {
        sources: vec!["127.0.0.0/8".parse::<ipnet::Ipv4Net>().unwrap().into()],
        rate_per_s: 1 << 30,
        most_known: 16,
        wait_ns: 0,
    };
    let mut translator = Translator::new([Service { number: 3, access: ACCESS, shape }], limits);
    socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let (mut bytes, mut come, mut random) = ([0; 200], Vec::new(), 88_172_645_463_325_252u64);
    let mut is_lost = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % 3 == 0
    };
    while !is_over.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut bytes) else { continue };
        if is_lost() {
            continue;
        }
        let answer = translator.take(0, from.ip(), &bytes[..length], &mut |operation| {
            if let Operation::Write { bytes, .. } = operation {
                come.push(u64::from_be_bytes(bytes[32..40].try_into().unwrap()));
            }
        });
        if let Some(answer) = answer.filter(|_| !is_lost()) {
            socket.send_to(&answer.to_bytes(), from).unwrap();
        }
    }
    come
}

/// Ends the collector, also where the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn reports_of_high_importance_all_come_in_order_though_a_third_is_lost() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let is_over = AtomicBool::new(false);
    let come = thread::scope(|scope| {
        let translating = scope.spawn(|| collector(&socket, &is_over));
        let ending = Ending(&is_over);
        let mut reporter = Reporter::new(5, &[socket.local_addr().unwrap()], 1).unwrap();
        for event in 0..200u64 {
            let body = Body::Append { payload: &event.to_be_bytes() };
            let report = Report { importance: Importance::High, ..Report::new(3, ACCESS, body) };
            assert!(reporter.report(&report).unwrap());
        }
        assert_eq!(reporter.finish(Duration::from_secs(60)).unwrap(), 0);
        let Counts { sent, again, probes, .. } = reporter.counts();
        assert!(sent == 200 && again > 0 && probes > 0, "{:?}", reporter.counts());
        drop(ending);
        translating.join().unwrap()
    });
    assert_eq!(come, (0..200).collect::<Vec<_>>());
}

#[test]
fn keys_are_spread_and_a_collector_that_is_gone_moves_its_own_only() {
    let addresses: Vec<SocketAddr> = (1..5).map(|at| SocketAddr::from(([127, 0, 0, at], 9))).collect();
    let mut reporter = Reporter::new(5, &addresses, 1).unwrap();
    let of = |reporter: &Reporter| -> Vec<SocketAddr> {
        let collector = |key: u32| {
            let body = Body::KeyIncrement { key: &key.to_be_bytes(), addend: 1, copies: Copies::All(1) };
            reporter.collector_of(&Report::new(1, 0, body))
        };
        (0..200).map(collector).collect()
    };
    let before = of(&reporter);
    assert_eq!(before.iter().collect::<BTreeSet<_>>().len(), 4);
    reporter.set_collectors(&addresses[..3], 2).unwrap();
    for (before, after) in before.iter().zip(of(&reporter)) {
        assert!(*before == after || *before == addresses[3]);
    }
    let none = Reporter::new(5, &[], 1).err().unwrap();
    assert_eq!(none.to_string(), "there are no collectors");
}

#[test]
fn what_nobody_takes_is_said_in_time() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut reporter = Reporter::new(5, &[socket.local_addr().unwrap()], 1).unwrap();
    let high = Report { importance: Importance::High, ..Report::new(3, ACCESS, Body::Append { payload: &[1] }) };
    assert!(reporter.report(&high).unwrap());
    assert_eq!(reporter.finish(Duration::from_millis(100)).unwrap(), 1);
    let long = Report::new(3, ACCESS, Body::Append { payload: &[1; 65] });
    assert_eq!(reporter.report(&long).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}
