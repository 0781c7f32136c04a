// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::memory::Host;
use crate::stream::responder;
use onlooker_bootstrap::{KERNEL, Responder, Secret, TCP, VERBS};
use onlooker_reader::Error as HostError;
use std::net::{TcpListener, UdpSocket};

const AUTO: [Pair; 3] = [Pair::VERBS_VERBS, Pair::SOFT_KERNEL, Pair::TCP];

fn listed(kind: &str, port: u16) -> Responder {
    Responder { kind: kind.into(), port, ..Responder::default() }
}

fn away(kind: &str) -> Responder {
    Responder { problem: Some("it is away".into()), ..listed(kind, 9) }
}

/// A host in memory with a TCP responder, and what it tells where it lists others before that.
fn host(others: Vec<Responder>) -> (Host, Bootstrapped) {
    let host = Host::new(16);
    let tcp = listed(TCP, responder(&host.memory).port());
    let told = crate::told(host.answer(1), others.into_iter().chain([tcp]).collect());
    (host, told)
}

fn try_open(told: &Bootstrapped, pairs: &[Pair]) -> Result<Way, Error> {
    let token = Token { fingerprint: None, secret: Secret::new([7; 32]) };
    open(told, pairs, &Asker { token: &token, reader: "test 1", timeout: Duration::from_secs(10) })
}

fn refused(told: &Bootstrapped, pairs: &[Pair]) -> Error {
    try_open(told, pairs).map(|way| way.pair).unwrap_err()
}

#[test]
fn the_best_that_is_offered_is_picked() {
    let [verbs, kernel, tcp] = AUTO;
    let auto: [(&[Pair], [Pair; 3]); 8] = [
        (&[verbs, kernel, tcp], [verbs, kernel, tcp]),
        (&[verbs, kernel], [verbs, kernel, kernel]),
        (&[verbs, tcp], [verbs, tcp, tcp]),
        (&[kernel, tcp], [kernel, kernel, tcp]),
        (&[verbs], [verbs, verbs, verbs]),
        (&[kernel], [kernel, kernel, kernel]),
        (&[tcp], [tcp, tcp, tcp]),
        (&[], [tcp, tcp, tcp]),
    ];
    for (offered, expected) in auto {
        let got = Via::ALL.map(|first| pick(&AUTO, first, |pair| offered.contains(&pair)));
        assert_eq!(got, expected, "{offered:?}");
    }
    for pair in Pair::ALL {
        for first in Via::ALL {
            assert_eq!(pick(&[pair], first, |_| false), pair, "a list of one never gives way");
        }
    }
}

#[test]
fn what_a_host_does_not_have_is_passed_over_without_a_word() {
    let (_host, told) = host(Vec::new());
    let mut way = try_open(&told, &AUTO).unwrap();
    assert_eq!((way.pair, way.address.port()), (Pair::TCP, told.answer.responders[0].port));
    assert_eq!(way.notes(), [""; 0]);
    assert!(way.lacks(Via::Kernel) && way.lacks(Via::Verbs) && !way.lacks(Via::Tcp));
    let mut session = way.session(Limits::default());
    let deadline_ns = steady_ns() + 10_000_000_000;
    onlooker_reader::drive::read_host(&mut *way.requester, &mut session, deadline_ns, steady_ns).unwrap();
    assert!(session.directory().is_known());
}

#[test]
fn what_a_host_has_and_cannot_be_read_by_is_told() {
    let (_host, told) = host(vec![away(KERNEL), away(VERBS)]);
    let way = try_open(&told, &AUTO).unwrap();
    assert!(way.pair == Pair::TCP && !way.lacks(Via::Kernel));
    let notes = way.notes();
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert_eq!(note.matches("it is away").count(), 2, "{note}");
    assert!(note.ends_with("Reading over TCP instead, which wakes the host's agent"), "{note}");
}

#[test]
fn a_kernel_responder_that_is_silent_gives_way_or_says_what_to_check() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let (_host, told) = host(vec![listed(KERNEL, address.port())]);
    let way = try_open(&told, &AUTO).unwrap();
    assert!(way.pair == Pair::TCP && way.notes()[0].contains("[kernel] allow"), "{:?}", way.notes());
    let error = refused(&told, &[Pair::SOFT_KERNEL]);
    assert!(matches!(error, Error::Silent { responder, own } if responder == address && own == told.local), "{error}");
    for part in ["(127.0.0.1)", &format!("UDP port {}", address.port()), "lease", "onlooker doctor"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[test]
fn where_no_way_can_be_had_each_that_is_offered_says_why() {
    let host = Host::new(16);
    let told = |responders| crate::told(host.answer(1), responders);
    let nothing = refused(&told(Vec::new()), &AUTO);
    assert!(matches!(nothing, Error::Host(HostError::NoResponder { wanted: TCP, .. })), "{nothing}");
    let one = refused(&told(vec![away(KERNEL)]), &AUTO);
    assert!(matches!(one, Error::Host(HostError::Problem { kind: KERNEL, .. })), "{one}");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let both = refused(&told(vec![away(KERNEL), listed(TCP, closed)]), &AUTO);
    assert!(matches!(&both, Error::Several(errors) if errors.len() == 2), "{both}");
    assert!(both.to_string().contains("it is away") && both.to_string().contains("refuses the connection"), "{both}");
}

/// The address of this machine that leads to these hosts is loopback, which no device has.
#[test]
fn another_requester_is_tried_only_where_a_device_of_this_machine_is_missing() {
    let (_host, told) = host(vec![listed(VERBS, 0)]);
    let pairs = [Pair::VERBS_VERBS, Pair::SOFT_VERBS];
    let elsewhere = Bootstrapped { local: "192.0.2.1".parse().unwrap(), ..told.clone() };
    let error = refused(&elsewhere, &pairs);
    let Error::Several(errors) = &error else { panic!("{error}") };
    assert!(matches!(errors[..], [Error::Device(_), Error::Packet(_)]), "{error}");
    let (_host, told) = host(vec![away(VERBS)]);
    let error = refused(&told, &pairs);
    assert!(matches!(error, Error::Host(HostError::Problem { kind: VERBS, .. })), "{error}");
    // Nothing is wrong with a machine that has no device, as long as there is another way.
    let (_host, told) = host(vec![listed(VERBS, 0)]);
    let way = try_open(&told, &AUTO).unwrap();
    assert!(way.pair == Pair::TCP && way.notes().is_empty(), "{:?}", way.notes());
}
