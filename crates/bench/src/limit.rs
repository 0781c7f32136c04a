// SPDX-License-Identifier: Apache-2.0
//! `make bench-limit`: blocks that one I/O thread reads, by UDP and by AF_XDP sockets, beside a bare loop of sends and
//! receives by the same kind of socket; then 1,000 hosts x 128 KiB.
//!
//! All ask the same kernel responder over the same veth pair, with the same number in flight. The bare loop sends
//! prepared requests and looks at no byte of the answers; it takes them out of the kernel's memory, as recvmmsg does.
//! Rounds go round all of them. What counts is blocks per CPU second of the asking thread: its system calls, and none
//! of the softirqs in which packets are answered and received, which run on the other core, as a card's interrupts
//! would (see [`crate::world`]). The rate by the clock is the other core's limit, and is printed beside it.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use onlooker_reader::{Completion, Outcome, Read};
use onlooker_region::Block;
use onlooker_responder::Hook;
use onlooker_transport::soft::{Config, FlowConfig, FlowId, MAX_BATCH, Socket};
use onlooker_wire::{Envelope, Packet, Psn, Qpn, ReadRequest};
use onlooker_xsk::{Arrived, Port, Way};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::machine::{ASKING_CORE, WATCHED_CORE, check_cores, is_quick, now_ns, pin};
use crate::report::{Results, Spread, spread};
use crate::requester::{ANSWER_BYTES, Batches, Rate, round};
use crate::responder::{BLOCKS, KernelResponder, PORT, RKEY, VA};
use crate::world::{ASKING, WATCHED, World};

/// A veth pair has room for 256 frames before an XDP program.
const IN_FLIGHT: usize = 192;
const REQUEST_BYTES: usize = 32;
const HOSTS: usize = 1000;
const HOST_BLOCKS: u32 = 128;
const SHARE: f64 = 0.8;
const AF_XDP_PER_CPU_SECOND: f64 = 1e6;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Udp,
    AfXdp,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::AfXdp => "af_xdp",
        }
    }
}

fn responder() -> SocketAddr {
    format!("{WATCHED}:{PORT}").parse().expect("an address")
}

fn bind() -> Result<UdpSocket> {
    Ok(UdpSocket::bind(format!("{ASKING}:0"))?)
}

/// Sends and receives, and nothing else.
struct Bare {
    socket: Batches,
    port: Option<(Port, Way)>,
    requests: [[u8; ANSWER_BYTES]; MAX_BATCH],
    answers: Vec<[u8; ANSWER_BYTES]>,
}

impl Bare {
    /// With all of its requests on their way.
    fn start(kind: Kind) -> Result<Self> {
        let udp = bind()?;
        let own = udp.local_addr()?;
        let envelope = Envelope::socket(own, responder())?;
        let mut requests = [[0; ANSWER_BYTES]; MAX_BATCH];
        for (number, request) in (0u32..).zip(&mut requests) {
            let va = VA + u64::from(number % BLOCKS) * 1024;
            let psn = Psn::wrapping(number);
            let read = ReadRequest { destination: Qpn::wrapping(77), psn, va, rkey: RKEY, length_bytes: 1024 };
            Packet::from(read).write_datagram(&envelope, request)?;
        }
        let mut bare =
            Self { socket: Batches::new(udp), port: None, requests, answers: vec![[0; ANSWER_BYTES]; IN_FLIGHT] };
        if kind == Kind::AfXdp {
            let mut port = Port::open(own)?;
            bare.send(1);
            let mut way = None;
            let end_ns = now_ns() + 5_000_000_000;
            while way.is_none() {
                ensure!(now_ns() < end_ns, "no answer came by AF_XDP");
                port.receive(1, |arrived| way = Some(Way::back(arrived, REQUEST_BYTES)));
            }
            bare.port = way.map(|way| (port, way));
        }
        (0..IN_FLIGHT / MAX_BATCH).for_each(|_| bare.send(MAX_BATCH));
        Ok(bare)
    }

    fn send(&mut self, count: usize) {
        let Some((port, way)) = &mut self.port else {
            return self.socket.send(responder(), &self.requests[..count], REQUEST_BYTES);
        };
        for request in self.requests.iter().cycle().take(count) {
            assert!(port.push(way, &request[..REQUEST_BYTES]), "as much room as requests");
        }
        while !port.flush() {}
    }

    fn step(&mut self) -> usize {
        let wait = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let got = if let Some((port, _)) = &mut self.port {
            let descriptors: Vec<_> = port.descriptors().collect();
            let mut waiting: Vec<_> = descriptors.iter().map(|queue| PollFd::new(queue, PollFlags::IN)).collect();
            poll(&mut waiting, Some(&wait)).expect("poll");
            let (answers, mut place) = (&mut self.answers, 0);
            let take = |arrived: &Arrived<'_>| {
                answers[place % IN_FLIGHT][..arrived.payload.len()].copy_from_slice(arrived.payload);
                place += 1;
            };
            port.receive(u32::MAX, take) as usize
        } else {
            poll(&mut [PollFd::new(&self.socket.udp, PollFlags::IN)], Some(&wait)).expect("poll");
            self.socket.receive(|_, _| ())
        };
        if got > 0 {
            self.send(got);
        }
        got
    }
}

/// The requester: READs of one block to each of some hosts in turn.
struct Requester {
    socket: Socket,
    hosts: Vec<FlowId>,
    memory: Vec<Block>,
    free: Vec<u32>,
    next: usize,
    /// READs of one host in a row.
    run: u32,
    completions: Vec<Completion>,
}

impl Requester {
    fn start(kind: Kind, hosts: usize, run: u32) -> Result<Self> {
        let credit_bytes = u32::try_from(IN_FLIGHT * 1024)?;
        let mut socket = Socket::new(bind()?, Config { credit_bytes })?;
        if kind == Kind::AfXdp {
            println!("read by {}", socket.open_bypass()?.description());
        }
        let flow = FlowConfig { max_read_bytes: 1024, credit_bytes };
        let hosts = (0..hosts).map(|_| socket.add_flow(responder(), flow)).collect::<Result<_, _>>()?;
        let free = (0..u32::try_from(IN_FLIGHT)?).collect();
        let memory = vec![Block::default(); IN_FLIGHT];
        let completions = Vec::with_capacity(IN_FLIGHT);
        let mut requester = Self { socket, hosts, memory, free, next: 0, run: 1, completions };
        // By now each host has answered once, and AF_XDP knows the way to it.
        let mut read = 0;
        while read < requester.hosts.len() + IN_FLIGHT {
            read += requester.step();
        }
        Ok(Self { next: 0, run, ..requester })
    }

    fn step(&mut self) -> usize {
        while let Some(at) = self.free.pop() {
            let (host, block) = (self.next / self.run as usize, self.next % BLOCKS as usize);
            let va = VA + block as u64 * 1024;
            let read = Read { id: u64::from(at), va, rkey: RKEY, at, blocks: 1, deadline_ns: u64::MAX };
            if self.socket.submit(self.hosts[host], &[read]) != Ok(1) {
                // A packet that was sent twice holds its credit longer than its READ its place.
                self.free.push(at);
                break;
            }
            self.next = (self.next + 1) % (self.hosts.len() * self.run as usize);
        }
        self.completions.clear();
        self.socket.wait(Duration::from_millis(10)).expect("the socket");
        self.socket.poll(&mut self.memory[..], now_ns(), &mut self.completions).expect("the socket");
        for completion in &self.completions {
            assert_eq!(completion.outcome, Outcome::Done);
            self.free.push(u32::try_from(completion.id).expect("a place"));
        }
        self.completions.len()
    }
}

pub(crate) fn run() -> Result<bool> {
    check_cores()?;
    let (rounds, round_ns) = if is_quick() { (5, 200_000_000) } else { (15, 1_000_000_000) };
    let world = World::new()?;
    world.receive_on("ask", WATCHED_CORE)?;
    let mut kernel = KernelResponder::load_with(&world, Hook::Tc, &KernelResponder::unlimited())?;
    kernel.attach()?;
    pin(ASKING_CORE).context("pinning to the asking core")?;
    let mut results = Results::default();
    for kind in [Kind::Udp, Kind::AfXdp] {
        // One at a time: a device has one XDP program.
        let mut rates: [Vec<Rate>; 3] = Default::default();
        for number in 0..=rounds {
            let bare = {
                let mut bare = Bare::start(kind)?;
                round(round_ns, || bare.step())
            };
            let one = {
                let mut one = Requester::start(kind, 1, HOST_BLOCKS)?;
                round(round_ns, || one.step())
            };
            let many = {
                let mut many = Requester::start(kind, HOSTS, HOST_BLOCKS)?;
                round(round_ns, || many.step())
            };
            // The first round warms up.
            if number > 0 {
                rates.iter_mut().zip([bare, one, many]).for_each(|(rates, rate)| rates.push(rate));
            }
        }
        report(kind, &rates, &mut results);
    }
    let exits = kernel.exits()?;
    println!("the responder's packets: {exits}");
    Ok(results.passed())
}

fn report(kind: Kind, [bare, one, many]: &[Vec<Rate>; 3], results: &mut Results) {
    let name = kind.name();
    let rate = |label: &str, rates: &[Rate]| {
        let Spread { low, median, high } =
            spread(&mut rates.iter().map(|rate| rate.per_cpu_second).collect::<Vec<_>>());
        let clock = spread(&mut rates.iter().map(|rate| rate.per_second).collect::<Vec<_>>()).median;
        println!("{name}, {label}: {median:.0} blocks per CPU second ({low:.0} to {high:.0}), {clock:.0} by the clock");
        (median, clock)
    };
    let (bare_rate, bare_clock) = rate("bare loop", bare);
    let (one_rate, _) = rate("requester, one host", one);
    let (_, many_clock) = rate("requester, 1,000 hosts x 128 KiB", many);
    let share = |rates: &[Rate]| {
        let shares = rates.iter().zip(bare).map(|(one, bare)| one.per_cpu_second / bare.per_cpu_second);
        spread(&mut shares.collect::<Vec<_>>()).median
    };
    results.at_least(&format!("limit_{name}_share"), share(one), "of_bare", SHARE);
    if kind == Kind::AfXdp {
        results.at_least("limit_af_xdp_bare", bare_rate, "blocks_per_cpu_s", AF_XDP_PER_CPU_SECOND);
        results.at_least("limit_af_xdp", one_rate, "blocks_per_cpu_s", AF_XDP_PER_CPU_SECOND);
    }
    let blocks = (HOSTS * HOST_BLOCKS as usize) as f64;
    println!(
        "{name}: 1,000 x 128 KiB take {:.0} ms, {:.0} ms bare",
        blocks / many_clock * 1e3,
        blocks / bare_clock * 1e3
    );
    results.at_least(&format!("limit_{name}_1000_hosts_share"), share(many), "of_bare", SHARE);
    results.at_least(&format!("limit_{name}_1000_hosts_by_the_clock"), many_clock / bare_clock, "of_bare", SHARE);
}
