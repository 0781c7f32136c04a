// SPDX-License-Identifier: Apache-2.0
//! `make bench-hybrid`: what it costs the reading thread to sleep, to poll, or to do both by turns, and what that does
//! for readings.
//!
//! 128 hosts, evenly spread over the interval, each read by so many READs of 4 KiB; one kernel responder answers for
//! all of them over a veth pair whose packets are received on the other core. The thread waits as the controller's
//! does, by the controller's own [`Polling`], with all of a core as budget. Cost is its CPU time; a reading takes from
//! when it was due until all its READs are answered. Rounds go round the three ways of waiting.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context, Result};
use onlooker_controller::engine::{MANY_READS, Polling, UnderWay, Waiting};
use onlooker_reader::{Completion, Outcome, Read};
use onlooker_region::Block;
use onlooker_responder::{Config as Responding, Hook};
use onlooker_transport::soft::{Config, FlowConfig, FlowId, Socket};

use crate::machine::{ASKING_CORE, WATCHED_CORE, check_cores, is_quick, now_ns, pin, thread_cpu_ns};
use crate::report::{Results, median, percentile};
use crate::responder::{KernelResponder, PORT, RKEY, VA};
use crate::world::{ASKING, WATCHED, World};

const HOSTS: usize = 128;
const READ_BLOCKS: u32 = 4;
/// READs a reading, and intervals, ms. What 10 ms leave out is more than one core answers.
const CASES: [(u32, u64); 8] = [(8, 100), (16, 100), (31, 100), (32, 100), (64, 100), (128, 100), (4, 10), (8, 10)];
const WAYS: [(Waiting, &str); 3] = [(Waiting::Sleep, "sleep"), (Waiting::Poll, "poll"), (Waiting::Hybrid, "hybrid")];
const CPU_BOUND: f64 = 0.6;
const P99_BOUND: f64 = 1.2;

/// A host, and its reading if it is in one.
struct Host {
    flow: FlowId,
    due_ns: u64,
    left: u32,
    unsent: u32,
}

/// What one round has shown.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    cpu_pct: f64,
    p50_us: f64,
    p99_us: f64,
    missed: f64,
}

struct Reader {
    socket: Socket,
    hosts: Vec<Host>,
    memory: Vec<Block>,
}

impl Reader {
    fn start() -> Result<Self> {
        let mut socket = Socket::new(UdpSocket::bind(format!("{ASKING}:0"))?, Config { credit_bytes: 4 << 20 })?;
        let flow = FlowConfig { max_read_bytes: READ_BLOCKS * 1024, credit_bytes: 512 << 10 };
        let responder = format!("{WATCHED}:{PORT}").parse()?;
        let host = |flow| Host { flow, due_ns: 0, left: 0, unsent: 0 };
        let hosts = (0..HOSTS).map(|_| socket.add_flow(responder, flow).map(host)).collect::<Result<_, _>>()?;
        Ok(Self { socket, hosts, memory: vec![Block::default(); READ_BLOCKS as usize] })
    }

    fn round(&mut self, reads: u32, interval_ns: u64, waiting: Waiting, for_ns: u64) -> Result<Round> {
        let (begin_ns, begin_cpu_ns) = (now_ns(), thread_cpu_ns());
        for (number, host) in (0u64..).zip(&mut self.hosts) {
            host.due_ns = begin_ns + interval_ns * number / HOSTS as u64;
        }
        let mut polling = Polling::new(waiting, 100);
        let (mut took_ns, mut missed, mut completions) = (Vec::new(), 0u64, Vec::<Completion>::new());
        loop {
            let now = now_ns();
            let is_over = now >= begin_ns + for_ns;
            for (number, host) in (0u64..).zip(&mut self.hosts) {
                if !is_over && host.left == 0 && now >= host.due_ns {
                    (host.left, host.unsent) = (reads, reads);
                }
                while host.unsent > 0 {
                    let va = VA + u64::from(host.unsent % 16 * READ_BLOCKS) * 1024;
                    let read = Read { id: number, va, rkey: RKEY, at: 0, blocks: READ_BLOCKS, deadline_ns: u64::MAX };
                    if self.socket.submit(host.flow, &[read])? == 0 {
                        break;
                    }
                    host.unsent -= 1;
                }
            }
            completions.clear();
            self.socket.poll(&mut self.memory[..], now_ns(), &mut completions)?;
            let now = now_ns();
            for completion in &completions {
                assert_eq!(completion.outcome, Outcome::Done);
                let host = &mut self.hosts[usize::try_from(completion.id)?];
                host.left -= 1;
                if host.left == 0 {
                    took_ns.push(now - host.due_ns);
                    host.due_ns += interval_ns;
                    // What has passed meanwhile is not read any more.
                    let late = now.saturating_sub(host.due_ns) / interval_ns;
                    missed += late;
                    host.due_ns += late * interval_ns;
                }
            }
            let is_reading = self.hosts.iter().any(|host| host.left > 0);
            if is_over && !is_reading {
                break;
            }
            let under_way = match is_reading {
                false => UnderWay::Nothing,
                true if reads < MANY_READS => UnderWay::OfFew,
                true => UnderWay::OfMany,
            };
            if completions.is_empty() && !polling.again(under_way, now) {
                let due_ns = self.hosts.iter().filter(|host| host.left == 0).map(|host| host.due_ns).min();
                let until_due = due_ns.map_or(interval_ns, |due_ns| due_ns.saturating_sub(now));
                self.socket.wait(Duration::from_nanos(until_due))?;
            }
        }
        took_ns.sort_unstable();
        let at = |share| percentile(&took_ns, share).unwrap_or(0) as f64 / 1e3;
        let cpu_pct = (thread_cpu_ns() - begin_cpu_ns) as f64 / (now_ns() - begin_ns) as f64 * 100.0;
        let missed = missed as f64 / (missed as f64 + took_ns.len() as f64);
        Ok(Round { cpu_pct, p50_us: at(0.5), p99_us: at(0.99), missed })
    }
}

pub(crate) fn run() -> Result<bool> {
    check_cores()?;
    let (rounds, round_ns) = if is_quick() { (3, 500_000_000) } else { (9, 2_000_000_000) };
    let world = World::new()?;
    world.raise_mtu()?;
    world.receive_on("ask", WATCHED_CORE)?;
    let config = Responding { max_read_bytes: READ_BLOCKS * 1024, ..KernelResponder::unlimited() };
    let mut kernel = KernelResponder::load_with(&world, Hook::Tc, &config)?;
    kernel.attach()?;
    pin(ASKING_CORE).context("pinning to the asking core")?;
    let mut results = Results::default();
    println!("published (128 hosts x 64 READs): epoll 13.5 % of a core at 100 ms, 40.9 at 10; polling 20.2, 72.6");
    for (reads, interval_ms) in CASES {
        let mut all: [Vec<Round>; WAYS.len()] = Default::default();
        let mut reader = Reader::start()?;
        reader.round(reads, interval_ms * 1_000_000, Waiting::Sleep, round_ns / 4)?;
        for _ in 0..rounds {
            for ((waiting, _), rounds) in WAYS.iter().zip(&mut all) {
                rounds.push(reader.round(reads, interval_ms * 1_000_000, *waiting, round_ns)?);
            }
        }
        report(reads, interval_ms, &all, &mut results);
    }
    Ok(results.passed())
}

fn report(reads: u32, interval_ms: u64, all: &[Vec<Round>; WAYS.len()], results: &mut Results) {
    let middle = |rounds: &[Round], of: fn(&Round) -> f64| median(&mut rounds.iter().map(of).collect::<Vec<_>>());
    for ((_, name), rounds) in WAYS.iter().zip(all) {
        let of = |of| middle(rounds, of);
        println!(
            "{reads} READs every {interval_ms} ms, {name}: {:.1} % of a core, a reading {:.0} us, p99 {:.0} us, {:.4} missed",
            of(|round| round.cpu_pct),
            of(|round| round.p50_us),
            of(|round| round.p99_us),
            of(|round| round.missed)
        );
    }
    let of_polling = |of: fn(&Round) -> f64| {
        let ratios = all[2].iter().zip(&all[1]).map(|(hybrid, poll)| of(hybrid) / of(poll));
        median(&mut ratios.collect::<Vec<_>>())
    };
    let name = format!("hybrid_{reads}x{interval_ms}ms");
    if reads < MANY_READS {
        results.at_most(&format!("{name}_p99"), of_polling(|round| round.p99_us), "of_polling", P99_BOUND);
    } else {
        results.at_most(&format!("{name}_cpu"), of_polling(|round| round.cpu_pct), "of_polling", CPU_BOUND);
    }
}
