// SPDX-License-Identifier: Apache-2.0
//! `make bench-requester`: blocks per second that one requester thread reads, beside what the same kind of socket moves
//! with nothing done to the bytes.
//!
//! Both sides of the comparison use batches of 64 by sendmmsg and recvmmsg on loopback, requests of 32 bytes and
//! answers of 1044, the same number in flight, and the same peer: a thread that answers with a prepared block, and (for
//! the requester) joins the block's known CRC to the header's. Rounds alternate. What counts is blocks per CPU second
//! of the requester's own thread, since two cores are shared with everything else on the machine; the rate by the clock
//! is printed beside it. `RESULT` has the median ratio of the rounds.

use arrayvec::ArrayVec;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg};
use onlooker_reader::{Outcome, Read, Requester as _};
use onlooker_region::Block;
use onlooker_transport::soft::{Config, FlowConfig, MAX_BATCH, SoftRequester};
use onlooker_wire::crc32::SHIFT_BLOCK;
use onlooker_wire::{Crc32, Envelope, Packet, Psn, ReadAnswer, icrc};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::addr::SocketAddrArg as _;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::machine::{now_ns, thread_cpu_ns};
use crate::report::{Results, Spread, spread};

const IN_FLIGHT: usize = 256;
const ROUNDS: usize = 9;
const ROUND_NS: u64 = 400_000_000;
pub(crate) const ANSWER_BYTES: usize = 1044;
/// BTH and AETH.
const HEADER_BYTES: usize = 16;
const EXPECTED: f64 = 0.6;

/// A batch of datagrams in both directions.
pub(crate) struct Batches {
    pub(crate) udp: UdpSocket,
    headers: MultiHeaders<SockaddrStorage>,
    buffer: Vec<u8>,
}

impl Batches {
    pub(crate) fn new(udp: UdpSocket) -> Self {
        sockopt::set_ip_mtu_discover(&udp, Ipv4PathMtuDiscovery::DO).unwrap();
        sockopt::set_ip_recvtos(&udp, true).unwrap();
        sockopt::set_socket_recv_buffer_size(&udp, 4 << 20).unwrap();
        let headers = MultiHeaders::preallocate(MAX_BATCH, Some(nix::cmsg_space!(u32)));
        Self { udp, headers, buffer: vec![0; MAX_BATCH * 2048] }
    }

    /// Takes what is there and gives each datagram to `each`; returns how many there were.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(SocketAddr, &[u8])) -> usize {
        let mut slots = self.buffer.chunks_exact_mut(2048);
        let mut slots: [_; MAX_BATCH] = std::array::from_fn(|_| [IoSliceMut::new(slots.next().unwrap())]);
        let fd = self.udp.as_raw_fd();
        match recvmmsg(fd, &mut self.headers, &mut slots, MsgFlags::MSG_DONTWAIT, None) {
            Ok(messages) => messages
                .map(|message| {
                    let from = *message.address.as_ref().unwrap().as_sockaddr_in().unwrap();
                    each(SocketAddr::V4(from.into()), message.iovs().next().unwrap());
                })
                .count(),
            Err(nix::Error::EAGAIN) => 0,
            Err(error) => panic!("recvmmsg: {error}"),
        }
    }

    pub(crate) fn send(&self, to: SocketAddr, datagrams: &[[u8; ANSWER_BYTES]], bytes: usize) {
        let to = to.as_any();
        let slices: ArrayVec<_, MAX_BATCH> = datagrams.iter().map(|one| [IoSlice::new(&one[..bytes])]).collect();
        let mut controls: ArrayVec<_, MAX_BATCH> = slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let parts = slices.iter().zip(&mut controls);
        let mut messages: ArrayVec<_, MAX_BATCH> =
            parts.map(|(slice, control)| MMsgHdr::new_with_addr(&to, slice, control)).collect();
        let mut sent = 0;
        while sent < messages.len() {
            sent += sendmmsg(&self.udp, &mut messages[sent..], SendFlags::empty()).unwrap();
        }
    }
}

fn bind() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// Answers with prepared bytes, in the requester's protocol or in none, until told to stop.
fn echo(udp: UdpSocket, is_protocol: bool, stop: &AtomicBool) {
    let own = udp.local_addr().unwrap();
    let mut batches = Batches::new(udp);
    let payload = [0x5a; 1024];
    let mut block_crc = Crc32::new();
    block_crc.update(&payload);
    let block_crc = block_crc.finish();
    let mut answers: Vec<[u8; ANSWER_BYTES]> = Vec::with_capacity(MAX_BATCH);
    let mut template: Option<([u8; ANSWER_BYTES], Crc32)> = None;
    while !stop.load(Ordering::Relaxed) {
        answers.clear();
        let mut to = None;
        batches.receive(|from, request| {
            to = Some(from);
            if !is_protocol {
                answers.push([0x5a; ANSWER_BYTES]);
                return;
            }
            let (answer, begun) = template.get_or_insert_with(|| first_answer(from, own, request, &payload));
            // Queue pair and sequence number are the request's; the rest of the packet is always the same.
            answer[9..12].copy_from_slice(&request[9..12]);
            let mut crc = *begun;
            icrc::cover(&mut crc, &answer[..HEADER_BYTES]);
            crc.append(&SHIFT_BLOCK, block_crc);
            answer[ANSWER_BYTES - 4..].copy_from_slice(&crc.finish().to_le_bytes());
            answers.push(*answer);
        });
        match to {
            Some(to) => batches.send(to, &answers, ANSWER_BYTES),
            None => std::thread::yield_now(),
        }
    }
}

fn first_answer(from: SocketAddr, own: SocketAddr, request: &[u8], payload: &[u8]) -> ([u8; ANSWER_BYTES], Crc32) {
    let there = Envelope::socket(from, own).unwrap();
    let Packet::ReadRequest(request) = Packet::parse_datagram(&there, request).unwrap() else { panic!("no request") };
    let mut answer = [0; ANSWER_BYTES];
    let packet = Packet::from(ReadAnswer::only(&request, request.destination, payload));
    assert_eq!(packet.write_datagram(&there.answer(0), &mut answer), Ok(ANSWER_BYTES));
    assert_eq!(request.psn, Psn::from_be_bytes([answer[9], answer[10], answer[11]]));
    (answer, icrc::begin(&there.answer(0), ANSWER_BYTES).unwrap())
}

/// What one round moved.
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    pub(crate) per_cpu_second: f64,
}

/// Calls `step` until the round is over; it returns the blocks that it took.
pub(crate) fn round(round_ns: u64, mut step: impl FnMut() -> usize) -> Rate {
    let (begin_ns, begin_cpu_ns, mut blocks) = (now_ns(), thread_cpu_ns(), 0);
    while now_ns() - begin_ns < round_ns {
        blocks += step();
    }
    let (took_ns, cpu_ns) = (now_ns() - begin_ns, thread_cpu_ns() - begin_cpu_ns);
    let rate = |ns: u64| blocks as f64 * 1e9 / ns as f64;
    Rate { per_second: rate(took_ns), per_cpu_second: rate(cpu_ns) }
}

pub(crate) fn run() -> bool {
    let stop = Arc::new(AtomicBool::new(false));
    let peer = |is_protocol| {
        let (udp, stop) = (bind(), stop.clone());
        let address = udp.local_addr().unwrap();
        (address, std::thread::spawn(move || echo(udp, is_protocol, &stop)))
    };
    let ((raw_peer, raw_thread), (soft_peer, soft_thread)) = (peer(false), peer(true));

    let mut raw = Batches::new(bind());
    let requests = [[0; ANSWER_BYTES]; MAX_BATCH];
    for _ in 0..IN_FLIGHT / MAX_BATCH {
        raw.send(raw_peer, &requests, 32);
    }
    let mut raw_step = || {
        let wait = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        poll(&mut [PollFd::new(&raw.udp, PollFlags::IN)], Some(&wait)).unwrap();
        let got = raw.receive(|_, _| ());
        if got > 0 {
            raw.send(raw_peer, &requests[..got], 32);
        }
        got
    };

    let credit = FlowConfig { max_read_bytes: 1024, credit_bytes: u32::try_from(IN_FLIGHT * 1024).unwrap() };
    let mut requester = SoftRequester::connect(soft_peer, Config::default(), credit).unwrap();
    let mut memory = vec![Block::default(); IN_FLIGHT];
    let read = |at| Read { id: u64::from(at), va: u64::from(at) << 10, rkey: 1, at, blocks: 1, deadline_ns: u64::MAX };
    let mut free: Vec<Read> = (0..u32::try_from(IN_FLIGHT).unwrap()).map(read).collect();
    let mut completions = Vec::with_capacity(IN_FLIGHT);
    let mut soft_step = || {
        let taken = requester.submit(&free).unwrap();
        free.drain(..taken);
        completions.clear();
        requester.wait(Duration::from_millis(10)).unwrap();
        requester.poll(&mut memory, now_ns(), &mut completions).unwrap();
        for completion in &completions {
            assert_eq!(completion.outcome, Outcome::Done);
            free.push(read(u32::try_from(completion.id).unwrap()));
        }
        completions.len()
    };

    let mut shares = Vec::new();
    for number in 0..=ROUNDS {
        let (raw, soft) = (round(ROUND_NS, &mut raw_step), round(ROUND_NS, &mut soft_step));
        // The first round warms up.
        if number > 0 {
            let share = soft.per_cpu_second / raw.per_cpu_second;
            println!(
                "round {number}: raw {:.0} blocks/s ({:.0} per CPU second), soft {:.0} ({:.0}), share {share:.3}, {:.3} by the clock",
                raw.per_second,
                raw.per_cpu_second,
                soft.per_second,
                soft.per_cpu_second,
                soft.per_second / raw.per_second
            );
            shares.push(share);
        }
    }
    stop.store(true, Ordering::Relaxed);
    raw_thread.join().unwrap();
    soft_thread.join().unwrap();
    let Spread { low, median, high } = spread(&mut shares);
    let counters = requester.socket().exchange().counters(requester.flow());
    println!("share quartiles {low:.3} to {high:.3}; {} repeats in {} requests", counters.repeated, counters.sent);
    let mut results = Results::default();
    let expected = format!(">= {EXPECTED}");
    results.line("soft_requester_share", &format!("{median:.3}"), "of_raw", &expected, median >= EXPECTED);
    results.passed()
}
