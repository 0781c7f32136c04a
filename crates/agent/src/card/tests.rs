// SPDX-License-Identifier: Apache-2.0
use super::*;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread::{JoinHandle, spawn};
use std::time::Instant;

use onlooker_bootstrap::{ControlCopy, QueuePairEnd, Request, frame};
use onlooker_local::seqpacket;
use onlooker_region::block::Identity;
use onlooker_region::control::Place;
use onlooker_region::map::sealed_memfd;

use crate::bootstrap::{Announcement, Endpoint};
use crate::counters::Counters;
use crate::host::Host;
use crate::identity::StateDir;

/// A holder that says what it is told to, and what it was asked; after the last answer it goes.
fn holder(path: &Path, answers: &[&'static str]) -> JoinHandle<Vec<serde_json::Value>> {
    let listener = seqpacket::listener(path).unwrap();
    let answers = answers.to_vec();
    spawn(move || {
        let wait = |socket: &OwnedFd| {
            let mut ready = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut ready, None).unwrap();
        };
        wait(&listener);
        let socket = seqpacket::accept(&listener).unwrap();
        let mut buffer = vec![0; 65_536];
        let answered = answers.iter().map(|answer| {
            wait(&socket);
            let packet = seqpacket::receive(&socket, &mut buffer).unwrap();
            seqpacket::send(&socket, answer.as_bytes(), None).unwrap();
            serde_json::from_slice(&buffer[..packet.bytes]).unwrap()
        });
        answered.collect()
    })
}

const HELLO: &str = r#"{"device":"rxe0","limits":{"regions":9,"queue_pairs":9},"memory":[{"name":"slab-1","va":4096,"bytes":4096,"rkey":5}],"pairs":0}"#;
const NOTHING: &str = r#"{"device":"rxe0","limits":{"regions":9,"queue_pairs":9},"memory":[],"pairs":0}"#;

fn operations(asked: &[serde_json::Value]) -> Vec<&str> {
    asked.iter().map(|request| request["op"].as_str().unwrap()).collect()
}

fn end(queue_pair: u32) -> QueuePairEnd {
    QueuePairEnd { queue_pair, packet: 1, gid: onlooker_bootstrap::Id([7; 16]), mtu_bytes: 1024, reads_answered: 16 }
}

#[test]
fn slabs_keep_their_addresses_over_agents_and_holders_and_get_new_keys() {
    let directory = tempfile::tempdir().unwrap();
    let holder_path = directory.path().join("holder.sock");
    let config = config::Verbs { address: "10.0.0.7".into(), holder: holder_path.clone(), ..Default::default() };
    let mut card = Card::new(&config).unwrap();
    let request = VerbsRequest { reader_id: onlooker_bootstrap::Id([1; 16]), end: end(17), copy: None };
    assert!(!card.connect(0) && card.next_deadline_ns() == Some(PAUSE_NS), "there is no holder yet");
    assert!(!card.connect(PAUSE_NS - 1), "not before it is due");
    assert!(lock(&card.link()).pair(&request).unwrap_err().contains("onlooker-holder"));

    let exists = r#"{"error":"exists","message":"other memory"}"#;
    let paired = r#"{"end":{"queue_pair":20,"packet":3,"gid":"07070707070707070707070707070707","mtu_bytes":1024,"reads_answered":16}}"#;
    let first = holder(&holder_path, &[HELLO, exists, "{}", r#"{"rkey":6}"#, paired]);
    assert!(card.connect(PAUSE_NS) && card.next_deadline_ns().is_none());
    assert_eq!(card.held(1), Some(Held { va: 4096, rkey: None }), "an earlier agent's");
    let memory = sealed_memfd("slab", 4096).unwrap();
    // Another map of the same number: the old registration ends.
    assert_eq!(card.register(1, memory.as_fd(), 4096, 4096), Held { va: 4096, rkey: Some(6) });
    assert!(lock(&card.link()).pair(&request).is_err(), "not before the control region is there");
    card.control(77);
    let answer = lock(&card.link()).pair(&request).unwrap();
    assert_eq!(answer, VerbsAnswer { control_rkey: 77, end: QueuePairEnd { packet: 3, ..end(20) } });
    let asked = first.join().unwrap();
    assert_eq!(operations(&asked), ["hello", "register", "end", "register", "pair"]);
    assert_eq!(asked[3]["va"], 4096);

    // The holder has gone: this call says so, and does not wait for it.
    let begin = Instant::now();
    assert!(lock(&card.link()).pair(&request).is_err());
    assert!(begin.elapsed().as_secs() < 1);
    card.disconnect(PAUSE_NS);
    assert_eq!(card.held(1), Some(Held { va: 4096, rkey: None }));
    assert!(!card.is_connected() && !card.has_readers().load(Ordering::Relaxed));

    std::fs::remove_file(&holder_path).unwrap();
    let second = holder(&holder_path, &[NOTHING, r#"{"rkey":8}"#, "{}"]);
    assert!(card.connect(PAUSE_NS));
    assert_eq!(card.register(1, memory.as_fd(), 4096, 4096).rkey, Some(8));
    card.end_others(|slab| slab != 1);
    assert_eq!(card.held(1), None);
    assert_eq!(operations(&second.join().unwrap()), ["hello", "register", "end"]);
}

#[test]
fn what_is_revoked_ends_at_the_holder_as_soon_as_it_can_be_asked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("holder.sock");
    let config = config::Verbs { address: "10.0.0.7".into(), holder: path.clone(), ..Default::default() };
    let request = VerbsRequest { reader_id: onlooker_bootstrap::Id([1; 16]), end: end(17), copy: None };
    let mut card = Card::new(&config).unwrap();
    let memory = sealed_memfd("slab", 4096).unwrap();
    let first = holder(&path, &[NOTHING, r#"{"rkey":6}"#, "{}"]);
    assert!(card.connect(0));
    card.register(1, memory.as_fd(), 4096, 4096);
    card.control(6);
    assert_eq!(card.revoke(1), [4096]);
    assert!(!card.is_revoking() && card.held(1).is_none() && card.next_deadline_ns() == Some(1));
    assert!(lock(&card.link()).pair(&request).is_err(), "not before the control region is there again");
    assert_eq!(operations(&first.join().unwrap()), ["hello", "register", "release"]);

    // It goes before it can be asked: what it has must end before anything else.
    assert_eq!((card.revoke(2), card.is_revoking()), (vec![], true));
    assert!(!card.is_connected());
    std::fs::remove_file(&path).unwrap();
    let second = holder(&path, &["{}", NOTHING]);
    assert!(card.connect(2) && !card.is_revoking());
    assert_eq!(operations(&second.join().unwrap()), ["release", "hello"]);
}

#[test]
fn copies_are_offered_by_holders_that_write_them_and_pushed_to_while_there_are_any() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("holder.sock");
    let config = config::Verbs { address: "10.0.0.7".into(), holder: path.clone(), ..Default::default() };
    let mut card = Card::new(&config).unwrap();
    let copy = ControlCopy { va: 4096, rkey: 7, bytes: 65_536 };
    let request = VerbsRequest { reader_id: onlooker_bootstrap::Id([1; 16]), end: end(17), copy: Some(copy) };
    let paired = r#"{"end":{"queue_pair":20,"packet":3,"gid":"07070707070707070707070707070707","mtu_bytes":1024,"reads_answered":16},"copies":1}"#;
    let plain: &'static str = paired.replace(r#","copies":1"#, "").leak();
    let current = r#"{"device":"rxe0","limits":{"regions":9,"queue_pairs":9},"memory":[],"pairs":0,"copies":0}"#;

    let (one, none) = (r#"{"copies":1}"#, r#"{"copies":0}"#);
    let first = holder(&path, &[current, paired, one, one, none, paired]);
    assert!(!card.link().can_push());
    assert!(card.connect(0));
    assert!(card.link().can_push() && !card.has_copies());
    card.control(77);
    lock(&card.link()).pair(&request).unwrap();
    assert!(card.has_copies());
    // More than one packet has.
    let ranges: Vec<(u64, u64)> = (0..=MAX_RANGES as u64).map(|at| (at * 1024, 1024)).collect();
    assert!(card.push(&ranges) && card.has_copies());
    {
        let link = card.link();
        let _bootstrap = lock(&link);
        assert!(!card.push(&ranges), "whoever has the holder is not waited for");
    }
    assert!(card.push(&ranges));
    assert!(!card.has_copies(), "after the first packet there was nobody to send the other to");
    lock(&card.link()).pair(&request).unwrap();
    let asked = first.join().unwrap();
    assert_eq!(operations(&asked), ["hello", "pair", "push", "push", "push", "pair"]);
    assert_eq!(asked[1]["copy"], serde_json::json!({"va": 4096, "rkey": 7, "bytes": 65_536}));
    let ranges_of = |at: usize| asked[at]["ranges"].as_array().unwrap().len();
    assert_eq!((ranges_of(2), ranges_of(3)), (32, 1));
    assert_eq!((&asked[2]["name"], &asked[2]["base"]), (&"slab-0".into(), &0.into()));
    card.disconnect(1);
    assert!(!card.link().can_push() && !card.has_copies());

    // An older one would refuse the key.
    std::fs::remove_file(&path).unwrap();
    let second = holder(&path, &[NOTHING, plain]);
    assert!(card.connect(1) && !card.link().can_push());
    card.control(77);
    lock(&card.link()).pair(&request).unwrap();
    assert!(!card.has_copies());
    let asked = second.join().unwrap();
    assert_eq!((operations(&asked), asked[1].get("copy")), (vec!["hello", "pair"], None));
}

#[test]
fn a_goodbye_reaches_the_holder_and_says_when_nobody_reads_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("holder.sock");
    let config = config::Verbs { address: "10.0.0.7".into(), holder: path.clone(), ..Default::default() };
    let mut card = Card::new(&config).unwrap();
    let paired = r#"{"end":{"queue_pair":20,"packet":3,"gid":"07070707070707070707070707070707","mtu_bytes":1024,"reads_answered":16},"copies":0}"#;
    let asked = holder(&path, &[NOTHING, paired, r#"{"pairs":0,"copies":0}"#]);
    assert!(card.connect(0));
    card.control(77);
    let reader_id = onlooker_bootstrap::Id([1; 16]);
    lock(&card.link()).pair(&VerbsRequest { reader_id, end: end(17), copy: None }).unwrap();
    assert!(card.has_readers().load(Ordering::Relaxed));

    let state = StateDir::open(directory.path()).unwrap();
    let announcement = Announcement {
        host: Host::read("test", directory.path()).unwrap(),
        control: Place { va: 4096, rkey: 77, responders: 0, incarnation: 1 },
        control_bytes: 65_536,
        tcp_port: 7178,
        kernel: None,
        card: Some(card.link()),
    };
    let counters = Counters::new(Identity::first(1, 1)).unwrap();
    let allow = vec!["127.0.0.0/8".parse().unwrap()];
    let endpoint = Endpoint::new(announcement, allow, state.clone(), None, counters);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, source) = listener.accept().unwrap();
    endpoint.accept(stream, source.ip());
    let goodbye = Some(Goodbye { reader_id, queue_pair: 17 });
    let request = Request { secret: state.secret().unwrap(), reader: "test".into(), verbs: None, goodbye };
    reader.write_all(&frame::encode(&request.encode()).unwrap()).unwrap();
    let asked = asked.join().unwrap();
    assert_eq!(operations(&asked), ["hello", "pair", "part"]);
    assert_eq!((&asked[2]["reader"], &asked[2]["queue_pair"]), (&asked[1]["reader"], &17.into()));
    // The answer comes after the holder's.
    let mut answer = Vec::new();
    reader.read_to_end(&mut answer).unwrap();
    assert!(!answer.is_empty() && !card.has_readers().load(Ordering::Relaxed));
}
