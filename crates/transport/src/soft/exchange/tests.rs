// SPDX-License-Identifier: Apache-2.0
//! The exchange in a simulated network that loses, doubles, reorders, delays, corrupts and forges.

use super::*;
use crate::soft::rtt::{RTO_CAP_NS, RTO_FLOOR_NS, RTO_INITIAL_NS};
use crate::soft::wheel::TICK_NS;
use onlooker_region::Block;
use onlooker_region::limits::BLOCK_BYTES as BLOCK;
use onlooker_wire::tcp_read::Refusal;
use onlooker_wire::{Acknowledge, Aeth, Envelope, Msn, NakCode, Part, ReadAnswer, Syndrome};

const LOCAL: &str = "10.0.0.1:40000";
const MS: u64 = 1_000_000;
/// READs of other keys are refused.
const RKEY: u32 = 7;
const START_NS: u64 = 1 << 50;

/// Decisions of the simulation: xorshift64* (Vigna, 2016).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

fn local() -> SocketAddr {
    LOCAL.parse().unwrap()
}

fn peer(flow: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, u8::try_from(flow).unwrap()], 4792))
}

/// What each host has at an address.
fn word(host: SocketAddr, va: u64) -> u64 {
    let SocketAddr::V4(host) = host else { unreachable!() };
    (va ^ u64::from(u32::from(*host.ip())) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn contents(host: SocketAddr, va: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).step_by(8).flat_map(|offset| word(host, va.wrapping_add(offset)).to_le_bytes()).collect()
}

fn parse(request: &Staged) -> ReadRequest {
    let envelope = Envelope::socket(local(), request.to).unwrap();
    match WirePacket::parse_datagram(&envelope, &request.bytes) {
        Ok(WirePacket::ReadRequest(request)) => request,
        other => panic!("not a request: {other:?}"),
    }
}

fn datagram(from: SocketAddr, packet: WirePacket<'_>) -> Vec<u8> {
    let envelope = Envelope::socket(from, local()).unwrap();
    let mut bytes = vec![0; packet.datagram_bytes()];
    packet.write_datagram(&envelope, &mut bytes).unwrap();
    bytes
}

/// An honest host.
fn answer(host: SocketAddr, request: &ReadRequest) -> Vec<u8> {
    if request.rkey != RKEY {
        return datagram(host, Acknowledge::nak(request, request.destination, NakCode::RemoteAccess).into());
    }
    let payload = contents(host, request.va, request.length_bytes as usize);
    datagram(host, ReadAnswer::only(request, request.destination, &payload).into())
}

/// How bad the network is: percentages.
#[derive(Clone, Copy, Debug)]
struct Impairments {
    loss: u64,
    duplicate: u64,
    corrupt: u64,
    wrong_length: u64,
    forge: u64,
    delay_ns: u64,
}

struct Way {
    arrives_ns: u64,
    from: SocketAddr,
    bytes: Vec<u8>,
    /// Blocks that this answer to an unanswered request of ours brings.
    weight: u32,
}

struct World {
    dice: Dice,
    exchange: Exchange,
    flows: Vec<FlowId>,
    /// Of flows that were removed.
    gone: Totals,
    memory: Vec<Block>,
    now_ns: u64,
    ways: Vec<Way>,
    reads: Vec<(usize, Read)>,
    outcomes: Vec<Option<(Outcome, Vec<u8>)>>,
    completions: Vec<Completion>,
    counted_answers: u64,
    longest_delay_ns: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed | 1);
        let credit = 1024 * (8 + u32::try_from(dice.roll(40)).unwrap());
        let mut exchange = Exchange::new(local(), credit, seed).unwrap();
        let flows = (0..3).map(|flow| {
            let max_read_bytes = 1024 * (1 + u32::try_from(dice.roll(3)).unwrap());
            let credit_bytes = max_read_bytes * (1 + u32::try_from(dice.roll(8)).unwrap());
            exchange.add_flow(peer(flow), FlowConfig { max_read_bytes, credit_bytes }).unwrap()
        });
        let flows: Vec<FlowId> = flows.collect();
        for id in &flows {
            let flow = exchange.flow_mut(*id);
            // Near the end of the circle, so that every run wraps.
            flow.next_psn = Psn::wrapping(0u32.wrapping_sub(u32::try_from(dice.roll(20)).unwrap()));
        }
        Self {
            dice,
            exchange,
            flows,
            gone: Totals::default(),
            memory: Vec::new(),
            now_ns: START_NS,
            ways: Vec::new(),
            reads: Vec::new(),
            outcomes: Vec::new(),
            completions: Vec::new(),
            counted_answers: 0,
            longest_delay_ns: 0,
        }
    }

    /// Offers READs to a random flow.
    fn submit(&mut self) {
        let flow = usize::try_from(self.dice.roll(3)).unwrap();
        let max_blocks = self.exchange.max_read_blocks(self.flows[flow]);
        let mut offered = Vec::new();
        let mut at = self.memory.len();
        for _ in 0..self.dice.roll(6) {
            let blocks = 1 + u32::try_from(self.dice.roll(u64::from(max_blocks))).unwrap();
            offered.push(Read {
                id: (self.reads.len() + offered.len()) as u64,
                va: self.dice.roll(1 << 30) << 10,
                rkey: if self.dice.percent(5) { RKEY + 1 } else { RKEY },
                at: u32::try_from(at).unwrap(),
                blocks,
                deadline_ns: self.now_ns + self.dice.roll(60 * MS),
            });
            at += blocks as usize;
        }
        let taken = self.exchange.submit(self.flows[flow], &offered);
        for read in &offered[..taken] {
            self.memory.resize(self.memory.len() + read.blocks as usize, Block([!0; 128]));
            self.reads.push((flow, *read));
            self.outcomes.push(None);
        }
    }

    /// Sends what is staged, sometimes only some of it, sometimes refused by the system.
    fn send(&mut self, impairments: Impairments) {
        let staged = self.exchange.stage().to_vec();
        if !staged.is_empty() && self.dice.percent(3) {
            self.exchange.send_failed(self.now_ns);
            return;
        }
        let count = if self.dice.percent(80) { staged.len() as u64 } else { self.dice.roll(staged.len() as u64 + 1) };
        let count = usize::try_from(count).unwrap();
        self.exchange.sent(count, false, self.now_ns);
        for request in &staged[..count] {
            let parsed = parse(request);
            assert!(parsed.length_bytes.is_multiple_of(1024) && parsed.length_bytes > 0);
            if self.dice.percent(impairments.loss) {
                continue;
            }
            let mut bytes = answer(request.to, &parsed);
            let mut honest = true;
            if self.dice.percent(impairments.wrong_length) {
                let payload = contents(request.to, parsed.va, parsed.length_bytes as usize + 1024);
                bytes = datagram(request.to, ReadAnswer::only(&parsed, parsed.destination, &payload).into());
                honest = false;
            }
            if self.dice.percent(impairments.corrupt) {
                let at = usize::try_from(self.dice.roll(bytes.len() as u64)).unwrap();
                // Byte 4 of the BTH and the reserved bits beside the PSN are ignored: no corruption there.
                bytes[at] ^= if at == 4 { 0 } else { 1 << self.dice.roll(8) };
                honest &= at == 4;
            }
            let arrives_ns = self.now_ns + self.dice.roll(impairments.delay_ns);
            let weight = if honest { parsed.length_bytes } else { 0 };
            self.ways.push(Way { arrives_ns, from: request.to, bytes: bytes.clone(), weight });
            if self.dice.percent(impairments.duplicate) {
                let arrives_ns = arrives_ns + self.dice.roll(impairments.delay_ns);
                self.ways.push(Way { arrives_ns, from: request.to, bytes, weight: 0 });
            }
            if self.dice.percent(impairments.forge) {
                self.forge(request.to, &parsed);
            }
        }
    }

    /// What somebody may send who has seen a request: from elsewhere, to another queue pair, with another number, of another kind.
    fn forge(&mut self, host: SocketAddr, request: &ReadRequest) {
        let payload = vec![0xee; request.length_bytes as usize];
        let from = SocketAddr::from(([10, 0, 9, 9], 4792));
        let elsewhere = Qpn::wrapping(request.destination.get() ^ 0x10);
        let ahead = ReadRequest { psn: request.psn.wrapping_add(1 << 20), ..*request };
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: Msn::default() };
        let part = ReadAnswer {
            part: Part::First(aeth),
            destination: request.destination,
            psn: request.psn,
            payload: &payload,
        };
        let not_ready = Aeth { syndrome: Syndrome::RnrNak { timer: 1 }, msn: Msn::default() };
        let bytes = match self.dice.roll(7) {
            0 => datagram(from, ReadAnswer::only(request, request.destination, &payload).into()),
            1 => datagram(host, ReadAnswer::only(request, elsewhere, &payload).into()),
            2 => datagram(host, ReadAnswer::only(&ahead, request.destination, &payload).into()),
            3 => datagram(host, part.into()),
            4 => datagram(host, (*request).into()),
            5 => datagram(host, Acknowledge { destination: request.destination, psn: request.psn, aeth }.into()),
            _ => datagram(
                host,
                Acknowledge { destination: request.destination, psn: request.psn, aeth: not_ready }.into(),
            ),
        };
        let from = if self.dice.percent(10) { from } else { host };
        self.ways.push(Way { arrives_ns: self.now_ns, from, bytes, weight: 0 });
    }

    fn receive(&mut self) {
        self.ways.sort_by_key(|way| way.arrives_ns);
        let arrived = self.ways.partition_point(|way| way.arrives_ns <= self.now_ns);
        for way in self.ways.drain(..arrived) {
            let congested = self.dice.percent(5);
            self.counted_answers += 1;
            let (now_ns, memory) = (self.now_ns, &mut self.memory);
            self.exchange.received(way.from, &way.bytes, congested, now_ns, memory, &mut self.completions);
        }
    }

    fn settle(&mut self) {
        for Completion { id, outcome } in self.completions.drain(..) {
            let index = usize::try_from(id).unwrap();
            let (flow, read) = self.reads[index];
            let blocks = &self.memory[read.at as usize..][..read.blocks as usize];
            let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.bytes().to_vec()).collect();
            match outcome {
                Outcome::Done => {
                    assert_eq!(bytes, contents(peer(flow), read.va, bytes.len()), "wrong bytes");
                    assert_eq!(read.rkey, RKEY);
                }
                Outcome::Refused(refusal) => assert_eq!((refusal, read.rkey), (Refusal::Access, RKEY + 1)),
                Outcome::Timeout => assert!(read.deadline_ns <= self.now_ns, "too early"),
                Outcome::Lost => assert!(self.exchange.flows[self.flows[flow].index as usize].is_none() || flow == 0),
            }
            assert!(self.outcomes[index].replace((outcome, bytes)).is_none(), "completed twice");
        }
        let exchange = &self.exchange;
        assert!(exchange.bytes_in_flight() <= exchange.credit_bytes());
        let flows = exchange.flows.iter().flatten();
        assert!(flows.clone().all(|flow| flow.bytes <= flow.config.credit_bytes));
        assert_eq!(flows.clone().map(|flow| flow.bytes).sum::<u32>(), exchange.bytes_in_flight());
        let open = self.outcomes.iter().filter(|outcome| outcome.is_none()).count();
        assert_eq!(exchange.in_flight(), open);
        for (outcome, (_, read)) in self.outcomes.iter().zip(&self.reads) {
            assert!(outcome.is_some() || self.now_ns < read.deadline_ns + TICK_NS, "overdue");
        }
    }

    fn step(&mut self, impairments: Impairments) {
        self.receive();
        self.exchange.advance(self.now_ns, &mut self.completions);
        self.settle();
        self.send(impairments);
        self.longest_delay_ns = self.longest_delay_ns.max(impairments.delay_ns);
        if self.longest_delay_ns < RTO_FLOOR_NS {
            let on_the_way: u32 = self.ways.iter().map(|way| way.weight).sum();
            assert!(on_the_way <= self.exchange.credit_bytes(), "the network holds more than the credit");
        }
    }

    /// Lets the rest end, and looks whether anything moved after it had ended.
    fn finish(mut self) {
        let calm =
            Impairments { loss: 0, duplicate: 0, corrupt: 0, wrong_length: 0, forge: 0, delay_ns: RTO_FLOOR_NS / 2 };
        // What was sent last holds its credit until it counts as lost.
        for _ in 0..RTO_CAP_NS / MS + 100 {
            self.now_ns += MS;
            self.step(calm);
        }
        assert_eq!((self.exchange.in_flight(), self.exchange.bytes_in_flight()), (0, 0));
        assert_eq!(self.exchange.wake_ns(), None);
        for (outcome, (_, read)) in self.outcomes.iter().zip(&self.reads) {
            let (_, bytes) = outcome.as_ref().expect("every READ has ended");
            let blocks = &self.memory[read.at as usize..][..read.blocks as usize];
            assert!(blocks.iter().zip(bytes.chunks(BLOCK)).all(|(block, then)| block.bytes() == then), "written late");
        }
        if self.exchange.flows.iter().flatten().count() == 3 {
            let Strays { foreign, malformed } = *self.exchange.strays();
            let counted: u64 = self.flows.iter().map(|flow| dropped_or_taken(self.exchange.counters(*flow))).sum();
            assert_eq!(counted + foreign + malformed, self.counted_answers, "an answer without a counter");
            let sum = |of: fn(&Counters) -> u64| self.flows.iter().map(|flow| of(self.exchange.counters(*flow))).sum();
            let taken: u64 = sum(|counters| counters.answered + counters.refused);
            let mut expected = Totals {
                sent: sum(|counters| counters.sent),
                repeated: sum(|counters| counters.repeated),
                recovered: sum(|counters| counters.reads_recovered),
                send_failed: sum(|counters| counters.send_failed),
                congestion_marked: sum(|counters| counters.congestion_marked),
                dropped: self.counted_answers - taken,
                ..Totals::default()
            };
            expected += self.gone;
            assert_eq!(*self.exchange.totals(), expected);
        }
    }
}

/// Every answer is in exactly one of these.
fn dropped_or_taken(c: &Counters) -> u64 {
    let dropped = c.not_ready + c.late + c.duplicate + c.unsent + c.bad_icrc + c.wrong_length + c.malformed;
    c.answered + c.refused + dropped
}

#[test]
fn every_read_ends_once_with_the_right_bytes_whatever_the_network_does() {
    bolero::check!().with_type::<u64>().for_each(|seed| {
        let mut world = World::new(*seed);
        let dice = &mut world.dice;
        let impairments = Impairments {
            loss: dice.roll(40),
            duplicate: dice.roll(40),
            corrupt: dice.roll(20),
            wrong_length: dice.roll(5),
            forge: dice.roll(20),
            delay_ns: [MS / 2, 5 * MS, 40 * MS][usize::try_from(dice.roll(3)).unwrap()],
        };
        for _ in 0..60 {
            world.submit();
            world.now_ns += world.dice.roll(2 * MS);
            world.step(impairments);
        }
        world.finish();
    });
}

#[test]
fn a_removed_flow_loses_its_reads_and_keeps_its_credit_until_its_packets_are_lost() {
    let mut world = World::new(5);
    let calm = Impairments { loss: 100, duplicate: 0, corrupt: 0, wrong_length: 0, forge: 0, delay_ns: 1 };
    let read = Read { id: 0, va: 0, rkey: RKEY, at: 0, blocks: 1, deadline_ns: u64::MAX };
    world.memory.resize(1, Block::default());
    assert_eq!(world.exchange.submit(world.flows[0], &[read]), 1);
    (world.reads, world.outcomes) = (vec![(0, read)], vec![None]);
    world.exchange.advance(world.now_ns, &mut world.completions);
    assert_eq!(world.exchange.stage().len(), 1);
    world.exchange.sent(1, false, world.now_ns);
    world.gone.sent = 1;
    world.exchange.remove_flow(world.flows[0], &mut world.completions);
    assert_eq!(world.completions, [Completion { id: 0, outcome: Outcome::Lost }]);
    assert_eq!((world.exchange.in_flight(), world.exchange.bytes_in_flight()), (0, 1024));
    world.now_ns += super::RTO_CAP_NS + MS;
    world.step(calm);
    assert_eq!(world.exchange.bytes_in_flight(), 0);
    let next = world.exchange.add_flow(peer(0), FlowConfig::default()).unwrap();
    assert_ne!(next, world.flows[0], "the place is used again, the name is not");
    world.flows[0] = next;
    world.finish();
}

/// One flow, and one READ of a block sent at `START_NS`.
fn one_read(deadline_ns: u64) -> (Exchange, FlowId, ReadRequest) {
    let mut exchange = Exchange::new(local(), 64 << 10, 1).unwrap();
    let flow = exchange.add_flow(peer(0), FlowConfig::default()).unwrap();
    exchange.advance(START_NS, &mut Vec::new());
    let read = Read { id: 0, va: 0, rkey: RKEY, at: 0, blocks: 1, deadline_ns };
    assert_eq!(exchange.submit(flow, &[read]), 1);
    let request = parse(&exchange.stage()[0]);
    exchange.sent(1, false, START_NS);
    (exchange, flow, request)
}

#[test]
fn a_lost_request_is_repeated_with_another_number_and_its_late_answer_is_told_apart() {
    let (mut exchange, flow, first) = one_read(u64::MAX);
    let (mut memory, mut completions) = (vec![Block::default()], Vec::new());
    let at = exchange.wake_ns().unwrap();
    assert!((START_NS + RTO_INITIAL_NS..START_NS + RTO_INITIAL_NS + 2 * TICK_NS).contains(&at));
    exchange.advance(at, &mut completions);
    let second = parse(&exchange.stage()[0]);
    exchange.sent(1, false, at);
    assert_eq!((second.psn, second.va), (first.psn.wrapping_add(1), first.va));
    let mut take = |request, now| {
        exchange.received(peer(0), &answer(peer(0), request), true, now, &mut memory, &mut completions);
        (completions.len(), *exchange.counters(flow))
    };
    let (ended, counters) = take(&first, at + MS);
    assert_eq!((ended, counters.late, counters.repeated), (0, 1, 1));
    let (ended, counters) = take(&second, at + 2 * MS);
    assert_eq!((ended, counters.answered, counters.sent), (1, 1, 2));
    let (ended, counters) = take(&second, at + 3 * MS);
    assert_eq!((ended, counters.duplicate, counters.congestion_marked), (1, 1, 3));
    assert_eq!(exchange.rtt(flow).samples(), 2, "the late one, too");
    assert_eq!(exchange.rtt(flow).min_ns(), Some(2 * MS), "measured from its own sending");
    let wake = exchange.wake_ns();
    assert_eq!((wake, exchange.bytes_in_flight()), (None, 0));
}

#[test]
fn repeats_come_further_and_further_apart() {
    let (mut exchange, flow, _) = one_read(START_NS + 3_000 * MS);
    let (mut completions, mut sent) = (Vec::new(), vec![START_NS]);
    while completions.is_empty() {
        let at = exchange.wake_ns().unwrap();
        exchange.advance(at, &mut completions);
        if !exchange.stage().is_empty() {
            sent.push(at);
        }
        exchange.sent(exchange.staged.len(), false, at);
    }
    let gaps: Vec<u64> = sent.windows(2).map(|pair| (pair[1] - pair[0]) / MS).collect();
    assert_eq!(gaps, [20, 40, 80, 160, 320, 640, 1000]);
    assert_eq!(completions, [Completion { id: 0, outcome: Outcome::Timeout }]);
    assert_eq!(exchange.counters(flow).repeated, gaps.len() as u64);
    assert!(exchange.bytes_in_flight() == 1024, "the last packet may still be answered");
}

#[test]
fn a_path_that_is_slower_than_the_first_time_outs_is_learnt_from_answers_that_are_late() {
    let (mut exchange, flow, first) = one_read(u64::MAX);
    let rtt_ns = 150 * MS;
    let (mut memory, mut completions) = (vec![Block::default()], Vec::new());
    let mut on_their_way = vec![(START_NS + rtt_ns, first)];
    while completions.is_empty() {
        let answer_ns = on_their_way.first().map_or(u64::MAX, |(at, _)| *at);
        let now_ns = answer_ns.min(exchange.wake_ns().unwrap());
        if now_ns == answer_ns {
            let (_, request) = on_their_way.remove(0);
            exchange.received(peer(0), &answer(peer(0), &request), false, now_ns, &mut memory, &mut completions);
        }
        exchange.advance(now_ns, &mut completions);
        on_their_way.extend(exchange.stage().iter().map(|staged| (now_ns + rtt_ns, parse(staged))));
        exchange.sent(exchange.staged.len(), false, now_ns);
        assert!(now_ns < START_NS + 2 * rtt_ns, "{:?}", exchange.counters(flow));
    }
    let counters = *exchange.counters(flow);
    assert_eq!((completions[0].outcome, counters.repeated, counters.reads_recovered), (Outcome::Done, 3, 1));
    // From now on it waits long enough.
    assert!(exchange.rtt(flow).rto_ns(0) > rtt_ns && exchange.rtt(flow).smoothed_ns() > rtt_ns * 9 / 10);
}

#[test]
fn anything_may_come_in() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let (mut exchange, ..) = one_read(u64::MAX);
        let mut completions = Vec::new();
        exchange.received(peer(0), bytes, false, START_NS, &mut [Block::default()], &mut completions);
        assert_eq!(completions, []);
    });
}

#[test]
fn wrong_configurations_are_refused() {
    let error = |local: &str, credit| Exchange::new(local.parse().unwrap(), credit, 0).unwrap_err();
    assert!(matches!(error("0.0.0.0:1", 1024), Error::Unspecified(_)));
    assert!(matches!(error("10.0.0.1:0", 1024), Error::Unspecified(_)));
    assert!(matches!(error(LOCAL, 1023), Error::TotalCredit(1023)));
    let mut exchange = Exchange::new(local(), 4096, 0).unwrap();
    let mut error = |peer: &str, max_read_bytes, credit_bytes| {
        exchange.add_flow(peer.parse().unwrap(), FlowConfig { max_read_bytes, credit_bytes }).unwrap_err()
    };
    assert!(matches!(error("[::1]:1", 1024, 1024), Error::Family { .. }));
    assert!(matches!(error("10.0.0.2:1", 1000, 1024), Error::MaxReadBytes(1000)));
    assert!(matches!(error("10.0.0.2:1", 2048, 1024), Error::Credit { .. }));
    assert!(matches!(error("10.0.0.2:1", 8192, 8192), Error::TotalCredit(4096)));
}
