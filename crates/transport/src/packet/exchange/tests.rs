// SPDX-License-Identifier: Apache-2.0
//! The exchange against a strict device; over a bad network: `network`.

#[allow(dead_code, unreachable_pub, reason = "shared with the tests over sockets")]
#[path = "../../../tests/common/device.rs"]
mod device;
mod network;

use super::*;
use crate::soft::rtt::RTO_INITIAL_NS;
use device::{Device, Dice, Opcode, Reply, ip_packet};
use onlooker_bootstrap::Id;
use onlooker_region::Block;
use onlooker_region::limits::BLOCK_BYTES as BLOCK;
use onlooker_wire::tcp_read::Refusal;
use onlooker_wire::{Acknowledge, Aeth, IpHeader, Ipv4Header, Msn, NakCode, Ports, ROCE_PORT, Syndrome};

const LOCAL: &str = "10.0.0.1:49999";
const PEER: &str = "10.0.0.2:4791";
const OWN: u32 = 0x00_1234;
const HOST: u32 = 0x00_0017;
const MS: u64 = 1_000_000;
const START_NS: u64 = 1 << 50;
/// READs of other keys are refused.
const KEY: u32 = 7;
/// Memory that nobody has written to.
const BLANK: Block = Block([!0; 128]);

fn end(queue_pair: u32, packet: u32, mtu_bytes: u16, reads_answered: u8) -> QueuePairEnd {
    QueuePairEnd { queue_pair, packet, gid: Id([0; 16]), mtu_bytes, reads_answered }
}

/// A queue pair that begins with number `first`, and the host's.
fn pair(first: u32, mtu_bytes: u16, reads: u8) -> (Exchange, Device) {
    let ends = (end(OWN, first, MTU_BYTES, 0), end(HOST, 5, mtu_bytes, reads));
    let exchange = Exchange::new(LOCAL.parse().unwrap(), PEER.parse().unwrap(), &ends.0, &ends.1).unwrap();
    let mtu_bytes = u32::from(mtu_bytes.min(MTU_BYTES));
    (exchange, Device::new(Qpn::wrapping(HOST), Psn::wrapping(first), mtu_bytes, reads.into()))
}

/// Around answers, as a device sends them: from any port, with a number of its own.
fn incoming(identification: u16) -> Envelope {
    let [source, destination] = ["10.0.0.2", "10.0.0.1"].map(|address| address.parse().unwrap());
    let ip = Ipv4Header { traffic_class: 2, identification, hop_limit: 63, source, destination };
    Envelope { ip: IpHeader::V4(ip), ports: Ports { source: 0xc017, destination: ROCE_PORT } }
}

fn contents(va: u64, bytes: usize) -> Vec<u8> {
    let word = |offset| va.wrapping_add(offset).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..bytes as u64).step_by(8).flat_map(|offset| word(offset).to_le_bytes()).collect()
}

fn host_memory(va: u64, key: u32, bytes: usize) -> Result<Vec<u8>, NakCode> {
    if key == KEY { Ok(contents(va, bytes)) } else { Err(NakCode::RemoteAccess) }
}

fn parse(request: &[u8]) -> ReadRequest {
    let envelope = Envelope::socket(LOCAL.parse().unwrap(), PEER.parse().unwrap()).unwrap();
    match Packet::parse_datagram(&envelope, request) {
        Ok(Packet::ReadRequest(request)) => request,
        other => panic!("not a request: {other:?}"),
    }
}

/// One block after another, of a READ of each so many.
fn reads(blocks: &[u32]) -> Vec<Read> {
    let mut at = 0;
    let read = |(id, blocks): (u64, &u32)| {
        let read = Read { id, va: u64::from(at) << 10, rkey: KEY, at, blocks: *blocks, deadline_ns: u64::MAX };
        at += blocks;
        read
    };
    (0..).zip(blocks).map(read).collect()
}

/// What is to be sent is sent.
fn send(exchange: &mut Exchange, now_ns: u64) -> Vec<ReadRequest> {
    let requests: Vec<_> = exchange.stage().iter().map(|bytes| parse(bytes)).collect();
    exchange.sent(requests.len(), now_ns);
    requests
}

/// What a device says to requests, as IP packets.
fn ask(device: &mut Device, requests: &[ReadRequest]) -> Vec<Vec<u8>> {
    let replies = requests.iter().flat_map(|request| device.answer(request, &host_memory));
    (3..).zip(replies).map(|(number, reply)| reply.ip_packet(&incoming(number), Qpn::wrapping(OWN))).collect()
}

/// The caller's side.
struct Desk {
    memory: Vec<Block>,
    completions: Vec<Completion>,
}

impl Desk {
    fn new(blocks: usize) -> Self {
        Self { memory: vec![BLANK; blocks], completions: Vec::new() }
    }

    fn give<'a>(&mut self, exchange: &mut Exchange, packets: impl IntoIterator<Item = &'a Vec<u8>>, now_ns: u64) {
        for packet in packets {
            exchange.received(packet, now_ns, &mut self.memory, &mut self.completions);
        }
    }

    /// READs that have ended since the last call.
    fn ended(&mut self) -> Vec<(u64, Outcome)> {
        self.completions.drain(..).map(|completion| (completion.id, completion.outcome)).collect()
    }

    fn is_the_hosts(&self) -> bool {
        let bytes: Vec<u8> = self.memory.iter().flat_map(|block| block.bytes().to_vec()).collect();
        bytes == contents(0, bytes.len())
    }
}

fn all_done(count: u64) -> Vec<(u64, Outcome)> {
    (0..count).map(|id| (id, Outcome::Done)).collect()
}

/// Each packet that came is in one of these.
fn came(c: &Counters) -> u64 {
    let taken = c.answered + c.late + c.refused + c.missed + c.not_ready;
    taken + c.duplicate + c.out_of_order + c.unsent + c.wrong_part + c.bad_icrc + c.malformed + c.foreign
}

#[test]
fn reads_of_all_lengths_arrive_in_packets_of_all_lengths_over_the_end_of_the_numbers() {
    for mtu_bytes in [256, 512, 1024, 2048, 4096] {
        let (mut exchange, mut device) = pair(0xff_fffb, mtu_bytes, 16);
        let (reads, mut desk) = (reads(&[1, 4, 2, 3]), Desk::new(10));
        assert_eq!((exchange.submit(&reads), exchange.in_flight()), (4, 4));
        let requests = send(&mut exchange, START_NS);
        let asked: Vec<_> = requests.iter().map(|request| (request.va >> 10, request.length_bytes >> 10)).collect();
        assert_eq!(asked, [(0, 1), (1, 4), (5, 2), (7, 3)]);
        let packets = ask(&mut device, &requests);
        assert_eq!(packets.len(), 10 * usize::from(1024 / mtu_bytes.min(1024)));
        desk.give(&mut exchange, &packets, START_NS + MS);
        assert_eq!(desk.ended(), all_done(4));
        assert!(desk.is_the_hosts() && exchange.next.get() < 0x100, "{mtu_bytes}");
        assert_eq!((exchange.wake_ns(), exchange.in_flight(), exchange.rtt().samples()), (None, 0, 4));
        assert_eq!(exchange.counters().answered, packets.len() as u64);
        // All of it once more is nothing new.
        desk.give(&mut exchange, &packets, START_NS + MS);
        assert_eq!((exchange.counters().duplicate, desk.ended()), (packets.len() as u64, vec![]));
    }
}

#[test]
fn a_gap_is_asked_for_again_once_and_from_the_packet_that_is_missing() {
    for goes_on in [false, true] {
        let (mut exchange, mut device) = pair(1000, 1024, 16);
        device.goes_on = goes_on;
        let (reads, mut desk) = (reads(&[4, 4, 4]), Desk::new(12));
        assert_eq!(exchange.submit(&reads), 3);
        let requests = send(&mut exchange, START_NS);
        let mut packets = ask(&mut device, &requests);
        packets.remove(2);
        desk.give(&mut exchange, &packets, START_NS + MS);
        assert_eq!((exchange.counters().gaps, exchange.counters().out_of_order, desk.ended()), (1, 9, vec![]));
        let again = send(&mut exchange, START_NS + MS);
        let asked: Vec<_> = again.iter().map(|one| (one.psn.get(), one.va, one.length_bytes)).collect();
        assert_eq!(asked, [(1002, 2048, 2048), (1004, 4096, 4096), (1008, 8192, 4096)]);
        // What is missing of a repeat is left to the time-out.
        let mut packets = ask(&mut device, &again);
        packets.remove(3);
        desk.give(&mut exchange, &packets, START_NS + 2 * MS);
        assert_eq!((exchange.has_unsent(), desk.ended()), (false, all_done(1)));
        let lost_ns = exchange.wake_ns().unwrap();
        assert!(lost_ns > START_NS + 2 * MS);
        exchange.advance(lost_ns, &mut desk.completions);
        let again = send(&mut exchange, lost_ns);
        let asked: Vec<_> = again.iter().map(|one| (one.psn.get(), one.va, one.length_bytes)).collect();
        assert_eq!(asked, [(1005, 5120, 3072), (1008, 8192, 4096)]);
        let packets = ask(&mut device, &again);
        desk.give(&mut exchange, &packets, lost_ns + MS);
        assert_eq!(desk.ended(), [(1, Outcome::Done), (2, Outcome::Done)]);
        assert!(desk.is_the_hosts(), "{goes_on}");
        let Counters { sent, repeated, timeouts, gaps, .. } = *exchange.counters();
        assert_eq!((sent, repeated, timeouts, gaps), (8, 5, 1, 1));
        assert_eq!((device.executed, device.repeated, device.forgotten), (3, 5, 0));
    }
}

#[test]
fn what_the_host_misses_is_sent_again_from_there_on_and_once() {
    let (mut exchange, mut device) = pair(7, 1024, 16);
    let (reads, mut desk) = (reads(&[1, 2, 1, 3]), Desk::new(7));
    assert_eq!(exchange.submit(&reads), 4);
    let mut requests = send(&mut exchange, START_NS);
    let lost = requests.remove(1);
    let mut packets = ask(&mut device, &requests);
    assert_eq!(packets.len(), 2, "one answer, one word of what is missing");
    packets.reverse();
    desk.give(&mut exchange, &packets[..1], START_NS + MS);
    let again = send(&mut exchange, START_NS + MS);
    assert_eq!((again.len(), again[0]), (3, lost));
    desk.give(&mut exchange, &packets[..1], START_NS + MS);
    assert!(!exchange.has_unsent());
    desk.give(&mut exchange, &packets[1..], START_NS + MS);
    let packets = ask(&mut device, &again);
    desk.give(&mut exchange, &packets, START_NS + MS);
    assert_eq!(desk.ended(), all_done(4));
    assert!(desk.is_the_hosts());
    let Counters { sent, repeated, missed, timeouts, gaps, .. } = *exchange.counters();
    assert_eq!((sent, repeated, missed, timeouts, gaps), (7, 3, 2, 0, 0));
    assert_eq!(device.repeated, 0);
}

#[test]
fn a_refusal_ends_the_queue_pair() {
    let access = (NakCode::RemoteAccess, Outcome::Refused(Refusal::Access), Fault::Access);
    let invalid = (NakCode::InvalidRequest, Outcome::Refused(Refusal::InvalidRequest), Fault::Invalid);
    for (code, outcome, fault) in [access, invalid, (NakCode::RemoteOperational, Outcome::Lost, Fault::Remote)] {
        let (mut exchange, mut device) = pair(7, 1024, 16);
        let (reads, mut desk) = (reads(&[1, 2, 1]), Desk::new(4));
        assert_eq!(exchange.submit(&reads), 3);
        let requests = send(&mut exchange, START_NS);
        let packets = ask(&mut device, &requests[..1]);
        desk.give(&mut exchange, &packets, START_NS + MS);
        // A device may find out in the middle of an answer.
        let nak = Reply::Nak { psn: Psn::wrapping(9), code }.ip_packet(&incoming(3), Qpn::wrapping(OWN));
        desk.give(&mut exchange, [&nak, &nak], START_NS + MS);
        let mut ended = desk.ended();
        ended.sort_unstable_by_key(|(id, _)| *id);
        assert_eq!(ended, [(0, Outcome::Done), (1, outcome), (2, Outcome::Lost)]);
        assert_eq!((exchange.broken(), exchange.in_flight()), (Some(Broken::QueuePair(fault)), 0));
        assert_eq!((exchange.has_unsent(), exchange.wake_ns(), exchange.counters().refused), (false, None, 1));
    }
}

#[test]
fn who_stays_silent_is_asked_again_further_and_further_apart_and_then_given_up() {
    let (mut exchange, _) = pair(7, 1024, 16);
    let mut completions = Vec::new();
    assert_eq!(exchange.submit(&reads(&[1])), 1);
    let mut at = START_NS;
    let mut sent = Vec::new();
    while exchange.broken().is_none() {
        if !send(&mut exchange, at).is_empty() {
            sent.push(at);
        }
        at = exchange.wake_ns().unwrap();
        exchange.advance(at, &mut completions);
    }
    sent.push(at);
    let gaps: Vec<u64> = sent.windows(2).map(|pair| (pair[1] - pair[0]) / MS).collect();
    assert_eq!(gaps, [20, 40, 80, 320, 1000, 1000, 1000, 1000]);
    assert_eq!(completions, [Completion { id: 0, outcome: Outcome::Lost }]);
    assert_eq!(exchange.broken(), Some(Broken::QueuePair(Fault::NoAnswer)));
    assert_eq!((exchange.counters().sent, exchange.counters().timeouts), (8, 8));
    assert_eq!(sent[1] - sent[0], RTO_INITIAL_NS);
}

#[test]
fn what_is_given_up_keeps_its_numbers_and_is_written_nowhere() {
    let (mut exchange, mut device) = pair(7, 1024, 2);
    let (mut reads, mut desk) = (reads(&[1, 1, 1]), Desk::new(3));
    for read in &mut reads[..2] {
        read.deadline_ns = START_NS + 5 * MS;
    }
    assert_eq!(exchange.submit(&reads), 2, "the host answers two at once");
    let requests = send(&mut exchange, START_NS);
    assert_eq!(exchange.wake_ns(), Some(START_NS + 5 * MS));
    exchange.advance(START_NS + 5 * MS, &mut desk.completions);
    assert_eq!(desk.ended(), [(0, Outcome::Timeout), (1, Outcome::Timeout)]);
    assert_eq!((exchange.in_flight(), exchange.submit(&reads[2..])), (0, 0));
    let packets = ask(&mut device, &requests);
    desk.give(&mut exchange, &packets[..1], START_NS + 6 * MS);
    assert_eq!((exchange.submit(&reads[2..]), exchange.in_flight()), (1, 1));
    desk.give(&mut exchange, &packets[1..], START_NS + 6 * MS);
    assert_eq!((exchange.counters().late, desk.ended()), (2, vec![]));
    let packets = ask(&mut device, &send(&mut exchange, START_NS + 7 * MS));
    desk.give(&mut exchange, &packets, START_NS + 8 * MS);
    assert_eq!(desk.ended(), [(2, Outcome::Done)]);
    assert_eq!(desk.memory[..2], [BLANK; 2]);
    assert_eq!(desk.memory[2].bytes(), contents(2048, BLOCK));
}

#[test]
fn no_more_reads_are_under_way_than_either_end_can() {
    for (answered, window) in [(1, 1), (4, 4), (16, 16), (17, 16), (255, 16), (0, 1)] {
        let (mut exchange, _) = pair(7, 1024, answered);
        assert_eq!(exchange.submit(&reads(&[1; 40])), window, "{answered}");
    }
}

#[test]
fn a_path_that_is_slower_than_the_time_out_is_learnt() {
    let (mut exchange, mut device) = pair(7, 1024, 16);
    let (reads, mut desk, rtt_ns) = (reads(&[1, 1]), Desk::new(2), 150 * MS);
    let (mut now_ns, mut on_their_way) = (START_NS, Vec::new());
    for read in &reads {
        assert_eq!(exchange.submit(&[*read]), 1);
        while desk.completions.is_empty() {
            for packet in ask(&mut device, &send(&mut exchange, now_ns)) {
                on_their_way.push((now_ns + rtt_ns, packet));
            }
            let wake_ns = exchange.wake_ns().unwrap();
            match on_their_way.first() {
                Some((at, _)) if *at <= wake_ns => {
                    let (at, packet) = on_their_way.remove(0);
                    now_ns = at;
                    desk.give(&mut exchange, [&packet], at);
                }
                _ => {
                    now_ns = wake_ns;
                    exchange.advance(now_ns, &mut desk.completions);
                }
            }
        }
        assert_eq!(desk.ended(), [(read.id, Outcome::Done)]);
    }
    // The first READ was repeated until the time-out was long enough; the second could be measured.
    assert_eq!((exchange.counters().repeated, exchange.rtt().samples()), (3, 1));
    assert!(exchange.rto_ns() > rtt_ns && exchange.rtt().smoothed_ns() == rtt_ns, "{:?}", exchange.rtt());
}

#[test]
fn answers_are_of_the_host_for_the_queue_pair_and_whole_whatever_their_identification() {
    let (mut exchange, mut device) = pair(7, 1024, 16);
    let (reads, mut desk) = (reads(&[1]), Desk::new(1));
    assert_eq!(exchange.submit(&reads), 1);
    let requests = send(&mut exchange, START_NS);
    let reply = device.answer(&requests[0], &host_memory).remove(0);
    let own = Qpn::wrapping(OWN);
    let Envelope { ip: IpHeader::V4(header), ports } = incoming(0xbeef) else { unreachable!() };
    let from = |header| Envelope { ip: IpHeader::V4(header), ports };
    let elsewhere = Envelope { ports: Ports { destination: 4792, ..ports }, ..incoming(0xbeef) };
    let mut renumbered = reply.ip_packet(&incoming(0xbeef), own);
    incoming(0xbeee).write(renumbered.len() - 28, &mut renumbered).unwrap();
    let [stranger, other] = ["10.0.0.3", "10.0.0.4"].map(|address| address.parse().unwrap());
    let short = Reply::Data { opcode: Opcode::Only, psn: Psn::wrapping(7), payload: vec![0xee; 1020] };
    let part = Reply::Data { opcode: Opcode::First, psn: Psn::wrapping(7), payload: vec![0xee; 1024] };
    let aeth = Aeth { syndrome: Syndrome::RnrNak { timer: 1 }, msn: Msn::default() };
    let not_ready = Acknowledge { destination: own, psn: Psn::wrapping(7), aeth };
    let wrong = [
        renumbered,
        reply.ip_packet(&from(Ipv4Header { source: stranger, ..header }), own),
        reply.ip_packet(&from(Ipv4Header { destination: other, ..header }), own),
        reply.ip_packet(&elsewhere, own),
        reply.ip_packet(&incoming(0xbeef), Qpn::wrapping(OWN + 1)),
        short.ip_packet(&incoming(1), own),
        part.ip_packet(&incoming(2), own),
        ip_packet(&incoming(3), not_ready.into()),
        ip_packet(&incoming(4), ReadRequest { destination: own, ..requests[0] }.into()),
        vec![],
    ];
    desk.give(&mut exchange, &wrong, START_NS + MS);
    assert_eq!((desk.ended(), desk.memory[0]), (vec![], BLANK));
    let Counters { bad_icrc, foreign, wrong_part, not_ready, malformed, .. } = *exchange.counters();
    assert_eq!((bad_icrc, foreign, wrong_part, not_ready, malformed), (1, 4, 2, 1, 2));
    let marked = from(Ipv4Header { traffic_class: 3, ..header });
    desk.give(&mut exchange, [&reply.ip_packet(&marked, own)], START_NS + MS);
    assert_eq!((desk.ended(), exchange.counters().congestion_marked), (all_done(1), 1));
    assert!(desk.is_the_hosts());
}

#[test]
fn both_families_and_no_mixture() {
    let ends = (end(OWN, 7, 1024, 0), end(HOST, 5, 1024, 16));
    let (local, peer) = ("[fd00::1]:49999".parse().unwrap(), "[fd00::2]:4791".parse().unwrap());
    let mut exchange = Exchange::new(local, peer, &ends.0, &ends.1).unwrap();
    assert_eq!(exchange.submit(&reads(&[1])), 1);
    let request = match Packet::parse_datagram(&Envelope::socket(local, peer).unwrap(), &exchange.stage()[0]) {
        Ok(Packet::ReadRequest(request)) => request,
        other => panic!("not a request: {other:?}"),
    };
    exchange.sent(1, START_NS);
    let (_, mut device) = pair(7, 1024, 16);
    let mut back = Envelope::socket(peer, local).unwrap();
    back.ports.destination = ROCE_PORT;
    let reply = device.answer(&request, &host_memory).remove(0).ip_packet(&back, Qpn::wrapping(OWN));
    let mut desk = Desk::new(1);
    desk.give(&mut exchange, [&reply], START_NS);
    assert_eq!(desk.ended(), all_done(1));
    let mixed = Exchange::new(local, PEER.parse().unwrap(), &ends.0, &ends.1).unwrap_err();
    assert!(matches!(mixed, Error::Family { .. }));
}

#[test]
fn anything_may_come_in() {
    bolero::check!().with_type::<(Vec<u8>, Vec<(u16, u8)>)>().for_each(|(bytes, changes)| {
        let (mut exchange, mut device) = pair(7, 1024, 16);
        let mut desk = Desk::new(4);
        assert_eq!(exchange.submit(&reads(&[4])), 1);
        let mut packets = ask(&mut device, &send(&mut exchange, START_NS));
        for (at, to) in changes {
            let packet = &mut packets[usize::from(*at) % 4];
            let at = usize::from(*at / 4) % packet.len();
            packet[at] = *to;
        }
        desk.give(&mut exchange, [bytes], START_NS);
        desk.give(&mut exchange, &packets, START_NS);
        assert_eq!(came(exchange.counters()), 5);
        for (index, block) in (0..).zip(&desk.memory) {
            assert!(*block == BLANK || block.bytes() == contents(index << 10, BLOCK), "block {index}");
        }
        assert!(desk.completions.is_empty() || desk.is_the_hosts());
    });
}
