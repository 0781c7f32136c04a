// SPDX-License-Identifier: Apache-2.0
//! A host is told when its queue pair is not needed any more: it is forgotten, its place is taken, it is read another
//! way, the controller ends.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver as Heard, channel};
use std::thread;
use std::time::Instant;

use onlooker_bootstrap::{Goodbye, Id, KERNEL, QueuePairEnd, Request, Responder, Secret, Token, VerbsRequest, frame};
use onlooker_reader::bootstrap::{Bootstrapped, Parting};
use onlooker_reader::clock::{Moment, Relation, steady_ns};
use onlooker_testbed::{PATIENCE, free_port};
use onlooker_transport::verbs::reader_id;

use super::rim::RealEngine;
use super::*;
use crate::connect::{Connected, Way};
use crate::fleet::fixture::memory;
use crate::sink::{Reading, Sink};
use onlooker_targets::{Choice, Priority};

struct Nobody;

impl Sink for Nobody {
    fn reading(&mut self, _: &Arc<Target>, _: &Reading) {}
    fn gap(&mut self, _: &Arc<Target>, _: Gap) {}
    fn state(&mut self, _: &Arc<Target>, _: State) {}
    fn gone(&mut self, _: &Arc<Target>) {}
}

fn token() -> Token {
    Token { fingerprint: None, secret: Secret::new([7; 32]) }
}

/// Nobody listens there, so that it stays unread.
fn target(name: &str) -> Arc<Target> {
    Arc::new(Target {
        name: name.into(),
        host: "127.0.0.1".into(),
        port: free_port(),
        token: token(),
        labels: Default::default(),
        interval: Duration::from_secs(1),
        priority: Priority::Normal,
        choice: Choice::Auto,
    })
}

/// An agent that only hears goodbyes.
struct Agent {
    peer: SocketAddr,
    heard: Heard<Option<Goodbye>>,
}

impl Agent {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap();
        let (tell, heard) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut bytes = Vec::new();
                // The other end waits for an answer; it is let go when this is dropped.
                let mut stream = stream.unwrap();
                let request = loop {
                    match frame::decode(&bytes).unwrap() {
                        frame::Decoded::Message { body, .. } => break Request::decode(body).unwrap(),
                        frame::Decoded::Need { missing_bytes } => {
                            let before = bytes.len();
                            bytes.resize(before + missing_bytes, 0);
                            stream.read_exact(&mut bytes[before..]).unwrap();
                        }
                    }
                };
                if tell.send(request.goodbye).is_err() {
                    return;
                }
            }
        });
        Self { peer, heard }
    }

    /// Ends a queue pair there.
    fn parting(&self, queue_pair: u32) -> Parting {
        let end = QueuePairEnd { queue_pair, packet: 5, gid: Id([2; 16]), mtu_bytes: 1024, reads_answered: 0 };
        Parting::new(
            self.peer,
            &token(),
            crate::connect::READER,
            &VerbsRequest { reader_id: Id([9; 16]), end, copy: None },
        )
    }

    /// The queue pair that was said goodbye for.
    fn parted(&self) -> u32 {
        let goodbye = self.heard.recv_timeout(PATIENCE).expect("a goodbye").expect("nothing else is asked there");
        assert_eq!(goodbye.reader_id, Id([9; 16]));
        goodbye.queue_pair
    }
}

fn engine() -> (RealEngine, Orders) {
    let (processor, _) = Processor::start(vec![Nobody]).unwrap();
    rim::engine(Config::default(), processor, Arc::default()).unwrap()
}

fn host<'a>(engine: &'a mut RealEngine, name: &str) -> &'a mut Host<carriers::Place> {
    let index = engine.by_name[name];
    engine.hosts[index].as_mut().unwrap()
}

#[test]
fn who_is_forgotten_is_told() {
    let (agent, (mut engine, orders)) = (Agent::start(), engine());
    orders.watch(target("a"));
    assert!(engine.take_orders(steady_ns()));
    host(&mut engine, "a").paired(agent.parting(20));
    // It has made another one since, which is the one that ends.
    host(&mut engine, "a").paired(agent.parting(21));
    orders.forget("a");
    assert!(engine.take_orders(steady_ns()));
    assert_eq!(agent.parted(), 21);
    drop(engine);
    assert!(agent.heard.try_recv().is_err(), "once");
}

#[test]
fn no_goodbye_holds_up_the_engine() {
    let (mut engine, orders) = engine();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = Agent { peer: silent.local_addr().unwrap(), heard: channel().1 };
    for name in ["a", "b"] {
        orders.watch(target(name));
        assert!(engine.take_orders(steady_ns()));
        host(&mut engine, name).paired(silent.parting(21));
    }
    orders.forget("a");
    orders.watch(target("b"));
    let began = Instant::now();
    assert!(engine.take_orders(steady_ns()));
    // One of them alone would take a second.
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn who_takes_a_place_is_another_reader() {
    let (agent, (mut engine, orders)) = (Agent::start(), engine());
    orders.watch(target("a"));
    assert!(engine.take_orders(steady_ns()));
    let before = host(&mut engine, "a").reader_id(reader_id).unwrap();
    host(&mut engine, "a").paired(agent.parting(21));
    orders.watch(target("a"));
    assert!(engine.take_orders(steady_ns()));
    assert_eq!(agent.parted(), 21);
    assert_ne!(host(&mut engine, "a").reader_id(reader_id).unwrap(), before);
}

#[test]
fn who_is_read_another_way_is_told() {
    let (agent, (mut engine, orders)) = (Agent::start(), engine());
    orders.watch(target("a"));
    assert!(engine.take_orders(steady_ns()));
    host(&mut engine, "a").paired(agent.parting(21));
    let mut answer = memory::Host::new(16).answer(1);
    answer.responders.push(Responder { kind: KERNEL.into(), port: 9, ..Responder::default() });
    let moment = Moment { steady_ns: 0, utc_ns: 0 };
    let told = Bootstrapped {
        answer,
        peer: agent.peer,
        local: "127.0.0.1".parse().unwrap(),
        relation: Relation::new(0, moment, moment),
        round_trip: Duration::ZERO,
    };
    let ticket = host(&mut engine, "a").ticket();
    let connected = Connected { told, way: Way::Kernel, instead: None, parting: None };
    engine.link(ticket, connected, steady_ns());
    assert_eq!(agent.parted(), 21);
}

#[test]
fn a_queue_pair_that_comes_too_late_ends() {
    let (agent, (mut engine, _orders)) = (Agent::start(), engine());
    let told = Bootstrapped {
        answer: memory::Host::new(16).answer(1),
        peer: agent.peer,
        local: "127.0.0.1".parse().unwrap(),
        relation: Relation::new(0, Moment { steady_ns: 0, utc_ns: 0 }, Moment { steady_ns: 0, utc_ns: 0 }),
        round_trip: Duration::ZERO,
    };
    let connected = Connected { told, way: Way::Kernel, instead: None, parting: Some(agent.parting(21)) };
    engine.link(7 << 32, connected, steady_ns());
    assert_eq!(agent.parted(), 21);
}

#[test]
fn at_the_end_all_are_told_and_who_does_not_answer_holds_up_nobody() {
    let (agent, (mut engine, orders)) = (Agent::start(), engine());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = Agent { peer: silent.local_addr().unwrap(), heard: channel().1 };
    // More than there are threads.
    let names: Vec<String> = (0..40).map(|number| format!("host-{number}")).collect();
    names.iter().for_each(|name| orders.watch(target(name)));
    assert!(engine.take_orders(steady_ns()));
    for (name, number) in names.iter().zip(0..) {
        let whose = if number < 4 { &silent } else { &agent };
        host(&mut engine, name).paired(whose.parting(number));
    }
    orders.stop();
    assert!(!engine.take_orders(steady_ns()));
    let began = Instant::now();
    engine.close();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    let mut parted: Vec<u32> = (4..40).map(|_| agent.parted()).collect();
    parted.sort_unstable();
    assert!(parted.into_iter().eq(4..40));
}
