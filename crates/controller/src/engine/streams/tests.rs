// SPDX-License-Identifier: Apache-2.0
//! Connections over real sockets: refused by epoll, closed by hosts, stalled.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use onlooker_reader::Outcome;
use onlooker_reader::clock::steady_ns;
use onlooker_region::Block;
use onlooker_testbed::PATIENCE;

use super::*;
use crate::engine::waiter::Rung;
use crate::fleet::fixture::memory::{Memory, Shared};
use crate::fleet::fixture::stream::{answer_stream, responder, serve};

/// A host's memory, with a number in it.
fn memory(number: u64) -> Arc<Memory> {
    let words = Shared::new(1);
    words.set(0, 0, number);
    let memory = Arc::new(Memory::default());
    memory.insert(1, 0, words);
    memory
}

fn connect(address: SocketAddr) -> Box<TcpRequester> {
    Box::new(TcpRequester::connect(address, 64, PATIENCE).unwrap())
}

fn read(id: u32, deadline_ns: u64) -> Read {
    Read { id: id.into(), va: 0, rkey: 1, at: id, blocks: 1, deadline_ns }
}

/// Streams, what they read into, and the sleep.
struct World {
    streams: Streams,
    waiter: Waiter,
    blocks: Vec<Block>,
    completions: Vec<Completion>,
}

impl World {
    fn new() -> Self {
        let waiter = Waiter::new().unwrap();
        Self { streams: Streams::default(), waiter, blocks: vec![Block::default(); 8], completions: Vec::new() }
    }

    fn add(&mut self, address: SocketAddr) -> Place {
        self.streams.add(connect(address), &self.waiter).unwrap()
    }

    /// Sleeps until one of them has something, at most so long; how many had.
    fn sleep(&mut self, most: Duration) -> usize {
        let mut rung = 0;
        let streams = &mut self.streams;
        let hear = |heard| {
            if let Rung::Stream(number) = heard {
                rung += 1;
                streams.rung(number);
            }
        };
        self.waiter.wait(Some(most), hear).unwrap();
        rung
    }

    fn poll(&mut self, now_ns: u64) {
        self.streams.poll(&mut self.blocks, now_ns, &mut self.completions, &self.waiter);
    }

    /// Reads one block over each of these, until then, to its end; how they ended, by their number here.
    fn read(&mut self, places: &[(Place, u64)]) -> Vec<Outcome> {
        for (id, (place, deadline_ns)) in (0..).zip(places) {
            assert_eq!(self.streams.submit(*place, &[read(id, *deadline_ns)]), Ok(1));
        }
        let begin = Instant::now();
        while self.completions.len() < places.len() {
            assert!(begin.elapsed() < PATIENCE, "hangs");
            self.sleep(Duration::from_millis(20));
            self.poll(steady_ns());
        }
        self.completions.sort_unstable_by_key(|completion| completion.id);
        self.completions.drain(..).map(|completion| completion.outcome).collect()
    }
}

#[test]
fn who_cannot_be_watched_takes_no_place() {
    let (mut world, address) = (World::new(), responder(&memory(7)));
    for known in 0..2 {
        let watched = connect(address);
        world.waiter.watch(watched.as_fd()).unwrap();
        let refused = world.streams.add(watched, &world.waiter).unwrap_err();
        assert!(refused.starts_with("epoll: "), "{refused}");
        let place = world.add(address);
        assert_eq!((world.streams.streams.len(), place.0, world.streams.free.len()), (1, 0, 0), "{known} before");
        assert_eq!(world.read(&[(place, u64::MAX)]), [Outcome::Done]);
        assert_eq!(world.blocks[0].0[0], 7);
        world.streams.remove(place);
    }
}

#[test]
fn what_a_host_closes_between_two_readings_is_noticed_once_and_replaced() {
    let memory = memory(7);
    let (tell, told) = channel::<TcpStream>();
    let address = serve(move |stream| {
        tell.send(stream.try_clone().unwrap()).unwrap();
        answer_stream(&memory, stream, |_, _| true);
    });
    let mut world = World::new();
    let place = world.add(address);
    assert_eq!(world.read(&[(place, u64::MAX)]), [Outcome::Done]);
    // Nothing is under way, so that only its end can wake.
    told.recv().unwrap().shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(world.sleep(PATIENCE), 1);
    world.poll(steady_ns());
    assert_eq!((world.streams.broken(place), world.completions.len()), (Some(Broken::Closed), 0));
    assert_eq!(world.sleep(Duration::from_millis(50)), 0, "its end stays readable");
    assert_eq!(world.streams.submit(place, &[read(0, u64::MAX)]), Err(Broken::Closed));
    world.streams.remove(place);
    let next = world.add(address);
    assert_eq!((next.0, world.streams.broken(next)), (place.0, None));
    assert_eq!(world.read(&[(next, u64::MAX)]), [Outcome::Done]);
}

#[test]
fn hosts_that_accept_and_never_read_hold_up_nobody_and_come_back() {
    let memory = memory(7);
    let stalls = Arc::new(AtomicBool::new(true));
    let (stalling, address) = (stalls.clone(), responder(&memory));
    let stalled = serve(move |stream| match stalling.load(Ordering::Relaxed) {
        true => loop {
            std::thread::park();
        },
        false => answer_stream(&memory, stream, |_, _| true),
    });
    let mut world = World::new();
    let places = [world.add(stalled), world.add(address), world.add(stalled)];
    let soon_ns = steady_ns() + 300_000_000;
    let outcomes = world.read(&[(places[0], soon_ns), (places[1], u64::MAX), (places[2], soon_ns)]);
    assert_eq!(outcomes, [Outcome::Timeout, Outcome::Done, Outcome::Timeout]);
    // As the engine does: what is lost on a stream does not come again.
    stalls.store(false, Ordering::Relaxed);
    let again = [0, 2].map(|at| {
        world.streams.remove(places[at]);
        world.add(stalled)
    });
    let outcomes = world.read(&[again[0], places[1], again[1]].map(|place| (place, u64::MAX)));
    assert_eq!(outcomes, [Outcome::Done; 3]);
    assert_eq!(world.streams.streams.len(), 3);
}
