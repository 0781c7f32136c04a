// SPDX-License-Identifier: Apache-2.0
//! The soft requester on real sockets: against responders in user space, honest and impaired, and against the kernel responder (needs root and `ip`).

#[path = "../../reader/tests/common/memory.rs"]
#[allow(dead_code, unreachable_pub)]
mod memory;

#[cfg(feature = "xdp")]
#[path = "soft/bypass.rs"]
mod bypass;

use memory::{Host, Memory, Shared};
use nix::sys::socket::SetSockOpt as _;
use nix::{libc, setsockopt_impl, sockopt_impl};
use onlooker_reader::clock::steady_ns;
use onlooker_reader::drive::{DriveError, read_host};
use onlooker_reader::{Completion, Limits, Outcome, Read, ReadError, Requester, Session, Via};
use onlooker_region::Block;
use onlooker_responder::{Config as KernelConfig, Device, Home, Hook, Kind, Pinned, Prefix, Region};
use onlooker_testbed::{Network, PATIENCE, World, bring_up, own_network, run};
use onlooker_transport::soft::{Config, Error, FlowConfig, Socket, SoftRequester};
use onlooker_wire::tcp_read::{Read as WireRead, Refusal};
use onlooker_wire::{Acknowledge, Envelope, NakCode, Packet, ReadAnswer};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SECOND_NS: u64 = 1_000_000_000;
const BLOCKS: usize = 2048;

sockopt_impl!(
    /// Requests come without a UDP checksum.
    NoChecksum6, SetOnly, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, bool
);

/// What a responder does with one answer: sends it, or something else, to the requester.
type Send = dyn FnMut(&UdpSocket, SocketAddr, Vec<u8>) + std::marker::Send;

fn honest(socket: &UdpSocket, to: SocketAddr, answer: Vec<u8>) {
    socket.send_to(&answer, to).unwrap();
}

/// A responder at a port of its own until the test's process ends.
fn responder(memory: &Arc<Memory>, own: IpAddr, ecn: u8, mut send: Box<Send>) -> SocketAddr {
    let (socket, memory) = (UdpSocket::bind((own, 0)).unwrap(), memory.clone());
    let address = socket.local_addr().unwrap();
    // A burst of requests must fit, or tests would see losses that they did not ask for.
    sockopt::set_socket_recv_buffer_size(&socket, 4 << 20).unwrap();
    if own.is_ipv4() {
        sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO).unwrap();
        sockopt::set_ip_tos(&socket, ecn).unwrap();
    } else {
        sockopt::set_ipv6_tclass(&socket, ecn.into()).unwrap();
        NoChecksum6.set(&socket, &true).unwrap();
    }
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            let envelope = Envelope::socket(from, address).unwrap();
            let Ok(Packet::ReadRequest(request)) = Packet::parse_datagram(&envelope, &buffer[..length]) else {
                panic!("not a request");
            };
            let read = WireRead { va: request.va, rkey: request.rkey, length_bytes: request.length_bytes };
            let bytes = memory.read(&read);
            let packet = match &bytes {
                Ok(bytes) => Packet::from(ReadAnswer::only(&request, request.destination, bytes)),
                Err(_) => Acknowledge::nak(&request, request.destination, NakCode::RemoteAccess).into(),
            };
            let mut answer = vec![0; packet.datagram_bytes()];
            packet.write_datagram(&envelope.answer(0), &mut answer).unwrap();
            send(&socket, from, answer);
        }
    });
    address
}

/// Memory at address 0 with key 1, each block with its number in every word; `base` is added.
fn memory(base: u64) -> Arc<Memory> {
    let words = Shared::new(BLOCKS);
    for block in 0..BLOCKS {
        (0..128).for_each(|word| words.set(block, word, base + block as u64));
    }
    let memory = Arc::new(Memory::default());
    memory.insert(1, 0, words);
    memory
}

fn localhost(ipv6: bool) -> IpAddr {
    if ipv6 { "::1".parse().unwrap() } else { "127.0.0.1".parse().unwrap() }
}

fn reads(count: usize, blocks: u32, deadline_ns: u64) -> Vec<Read> {
    let at = |id| u32::try_from(id).unwrap() * blocks;
    let read = |id| Read { id: id as u64, va: u64::from(at(id)) * 1024, rkey: 1, at: at(id), blocks, deadline_ns };
    (0..count).map(read).collect()
}

fn complete(requester: &mut impl Requester, reads: &[Read], memory: &mut [Block]) -> Vec<Completion> {
    let (mut sent, mut completions) = (0, Vec::new());
    let begin = Instant::now();
    while completions.len() < reads.len() {
        assert!(begin.elapsed() < PATIENCE, "hangs");
        sent += requester.submit(&reads[sent..]).unwrap();
        requester.poll(memory, steady_ns(), &mut completions).unwrap();
        if completions.len() < reads.len() {
            requester.wait(Duration::from_millis(50)).unwrap();
        }
    }
    completions
}

fn connect(peer: SocketAddr, max_read_bytes: u32) -> SoftRequester {
    let flow = FlowConfig { max_read_bytes, ..FlowConfig::default() };
    SoftRequester::connect(peer, Config::default(), flow).unwrap()
}

fn all_done(completions: &[Completion], into: &[Block], base: u64) {
    assert!(completions.iter().all(|completion| completion.outcome == Outcome::Done), "{completions:?}");
    for (index, block) in into.iter().enumerate() {
        assert_eq!(block.0, [base + index as u64; 128], "block {index}");
    }
}

#[test]
fn reads_of_all_sizes_arrive_at_their_place_over_both_families() {
    let memory = memory(0);
    for ipv6 in [false, true] {
        let peer = responder(&memory, localhost(ipv6), 0, Box::new(honest));
        for (blocks, max_read_bytes) in [(1, 1024), (3, 1024), (64, 1024), (7, 4096), (64, 8192)] {
            let mut requester = connect(peer, max_read_bytes);
            assert_eq!(requester.max_read_blocks(), 64);
            let reads = reads(1500 / blocks as usize, blocks, steady_ns() + 10 * SECOND_NS);
            let mut into = vec![Block::default(); reads.len() * blocks as usize];
            all_done(&complete(&mut requester, &reads, &mut into), &into, 0);
            let (exchange, flow) = (requester.socket().exchange(), requester.flow());
            let packets = reads.len() as u64 * u64::from(blocks.div_ceil(max_read_bytes / 1024));
            let counters = exchange.counters(flow);
            assert_eq!((counters.answered, counters.reads_done), (packets, reads.len() as u64));
            assert_eq!((requester.in_flight(), exchange.bytes_in_flight()), (0, 0));
            let rtt = exchange.rtt(flow);
            // Each answer is one, also a late one.
            let answers = packets + counters.late;
            assert_eq!((rtt.samples(), rtt.buckets().iter().sum()), (answers, answers));
            assert!(rtt.min_ns().unwrap() > 0);
        }
    }
}

/// Numbers without a pattern, the same in each run.
fn dice() -> impl FnMut(u64) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |sides| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % sides
    }
}

#[test]
fn losses_doubles_corruption_and_disorder_cost_time_only() {
    let (mut roll, mut held) = (dice(), Vec::new());
    let impaired = move |socket: &UdpSocket, to: SocketAddr, mut answer: Vec<u8>| match roll(10) {
        0 | 1 => {}
        2 => {
            honest(socket, to, answer.clone());
            honest(socket, to, answer);
        }
        3 => {
            let at = 12 + usize::try_from(roll(answer.len() as u64 - 12)).unwrap();
            answer[at] ^= 1;
            honest(socket, to, answer);
        }
        // Comes behind later ones, and some long after they were given up.
        4 | 5 => held.push(answer),
        _ => {
            honest(socket, to, answer);
            if held.len() > 20 {
                held.drain(..).for_each(|answer| honest(socket, to, answer));
            }
        }
    };
    let peer = responder(&memory(0), localhost(false), 0, Box::new(impaired));
    let mut requester = connect(peer, 1024);
    let reads = reads(100, 15, steady_ns() + 15 * SECOND_NS);
    let mut into = vec![Block::default(); 1500];
    all_done(&complete(&mut requester, &reads, &mut into), &into, 0);
    let counters = requester.socket().exchange().counters(requester.flow());
    assert_eq!((counters.answered, counters.reads_done), (1500, 100));
    assert!(counters.repeated > 300 && counters.sent >= 1500 + counters.repeated, "{counters:?}");
    assert!(counters.duplicate > 0 && counters.bad_icrc > 0 && counters.late > 0, "{counters:?}");
}

#[test]
fn refusals_marks_and_silence_are_told_apart() {
    let peer = responder(&memory(0), localhost(false), 0b11, Box::new(honest));
    let mut requester = connect(peer, 1024);
    let mut into = vec![Block([7; 128]); 10];
    let read = Read { rkey: 2, ..reads(1, 10, steady_ns() + 10 * SECOND_NS)[0] };
    let refused = Completion { id: 0, outcome: Outcome::Refused(Refusal::Access) };
    assert_eq!(complete(&mut requester, &[read], &mut into), [refused]);
    all_done(&complete(&mut requester, &[Read { rkey: 1, ..read }], &mut into), &into, 0);
    let counters = requester.socket().exchange().counters(requester.flow());
    // A machine under load may be slow enough for repeats, whose answers come late too.
    assert_eq!((counters.refused, counters.answered), (1, 10));
    assert!(
        counters.late >= 9 && counters.congestion_marked == 11 + counters.late + counters.duplicate,
        "{counters:?}"
    );

    let silent = responder(&memory(0), localhost(false), 0, Box::new(|_, _, _| ()));
    let mut requester = connect(silent, 1024);
    let (begin, mut into) = (steady_ns(), vec![Block([7; 128]); 2]);
    let completions = complete(&mut requester, &reads(1, 2, begin + SECOND_NS / 4), &mut into);
    let took = steady_ns() - begin;
    assert_eq!(completions, [Completion { id: 0, outcome: Outcome::Timeout }]);
    assert!((SECOND_NS / 4..2 * SECOND_NS).contains(&took), "{took} ns");
    let counters = requester.socket().exchange().counters(requester.flow());
    assert!(counters.repeated >= 2 && counters.reads_timed_out == 1, "{counters:?}");
    assert!(into.iter().all(|block| block.0 == [7; 128]));
}

/// What goes to a neighbour that nobody knows waits in the sender's buffer, until somebody does.
#[test]
fn what_a_full_socket_has_no_room_for_is_offered_again_soon() {
    own_network();
    let requester = Network::new();
    requester.add_veth("so1", "so2");
    bring_up("so1", &["10.78.1.1/24"]);
    let peer = responder(&memory(0), "10.78.1.1".parse().unwrap(), 0, Box::new(honest));
    let udp = requester.enter(|| {
        bring_up("so2", &["10.78.1.2/24"]);
        UdpSocket::bind("10.78.1.2:0").unwrap()
    });
    let buffer = udp.try_clone().unwrap();
    let mut socket = Socket::new(udp, Config::default()).unwrap();
    // The least that there is: a few datagrams.
    sockopt::set_socket_send_buffer_size(&buffer, 1).unwrap();
    let unknown = socket.add_flow("10.78.1.9:9".parse().unwrap(), FlowConfig::default()).unwrap();
    let flow = socket.add_flow(peer, FlowConfig::default()).unwrap();

    let (begin, mut completions, mut into) = (Instant::now(), Vec::new(), vec![Block::default(); 50]);
    let named = |read: Read| Read { id: read.id + 100, ..read };
    let stuck: Vec<Read> = reads(50, 1, u64::MAX).into_iter().map(named).collect();
    assert_eq!(socket.submit(unknown, &stuck), Ok(50));
    assert_eq!(socket.submit(flow, &reads(50, 1, u64::MAX)), Ok(50));
    let now_ns = steady_ns();
    socket.poll(&mut into, now_ns, &mut completions).unwrap();
    let totals = *socket.exchange().totals();
    assert!((1..50).contains(&totals.sent) && totals.no_room == 1, "{totals:?}");
    // Nothing has a time-out so early: it is asked for room.
    let wake_ns = socket.wake_ns().unwrap();
    assert!(wake_ns > now_ns && wake_ns <= now_ns + 2_000_000, "{}", wake_ns - now_ns);
    let full = Instant::now();
    for _ in 0..10 {
        socket.wait(PATIENCE).unwrap();
        socket.poll(&mut into, steady_ns(), &mut completions).unwrap();
    }
    assert!(full.elapsed() >= Duration::from_millis(5), "{:?}: it sleeps in between", full.elapsed());

    let known = ["neigh", "replace", "10.78.1.9", "lladdr", "02:00:00:00:00:09", "nud", "permanent", "dev", "so2"];
    requester.enter(|| run("ip", &known));
    while completions.len() < 50 {
        assert!(begin.elapsed() < PATIENCE, "hangs");
        socket.wait(PATIENCE).unwrap();
        socket.poll(&mut into, steady_ns(), &mut completions).unwrap();
    }
    all_done(&completions, &into, 0);
}

#[test]
fn many_hosts_share_a_socket_and_its_credit() {
    let mut socket = Socket::bind((localhost(false), 0).into(), Config { credit_bytes: 48 << 10 }).unwrap();
    let flows: Vec<_> = (0..3)
        .map(|host| {
            let peer = responder(&memory(host << 32), localhost(false), 0, Box::new(honest));
            socket.add_flow(peer, FlowConfig { max_read_bytes: 1024, credit_bytes: 32 << 10 }).unwrap()
        })
        .collect();
    let silent = responder(&memory(0), localhost(false), 0, Box::new(|_, _, _| ()));
    let silent = socket.add_flow(silent, FlowConfig { max_read_bytes: 1024, credit_bytes: 8 << 10 }).unwrap();
    let (per_host, mut into, mut completions) = (600, vec![Block::default(); 2000], Vec::new());
    let deadline_ns = steady_ns() + 10 * SECOND_NS;
    let lost: Vec<Read> =
        (0..10).map(|id| Read { id: 1800 + id, at: 1800, ..reads(1, 1, steady_ns() + SECOND_NS / 10)[0] }).collect();
    assert_eq!(socket.submit(silent, &lost), Ok(8), "its credit ends here");
    let mut offered: Vec<Vec<Read>> = (0..3_u32)
        .map(|host| {
            let place =
                |read: Read| Read { id: read.id + u64::from(host * per_host), at: read.at + host * per_host, ..read };
            reads(per_host as usize, 1, deadline_ns).into_iter().map(place).collect()
        })
        .collect();
    while completions.len() < 1808 {
        assert!(steady_ns() < deadline_ns + SECOND_NS, "hangs");
        for (flow, offered) in flows.iter().zip(&mut offered) {
            let taken = socket.submit(*flow, offered).unwrap();
            offered.drain(..taken);
            assert!(socket.exchange().flow_bytes_in_flight(*flow) <= 32 << 10);
        }
        assert!(socket.exchange().bytes_in_flight() <= 48 << 10);
        socket.poll(&mut into, steady_ns(), &mut completions).unwrap();
        socket.wait(Duration::from_millis(10)).unwrap();
    }
    let (timed_out, done): (Vec<&Completion>, Vec<&Completion>) =
        completions.iter().partition(|completion| completion.id >= 1800);
    assert!(timed_out.iter().all(|completion| completion.outcome == Outcome::Timeout) && timed_out.len() == 8);
    assert!(done.iter().all(|completion| completion.outcome == Outcome::Done));
    for (index, block) in into[..1800].iter().enumerate() {
        let (host, block_index) = (index / per_host as usize, index % per_host as usize);
        assert_eq!(block.0, [((host as u64) << 32) + block_index as u64; 128]);
    }
    completions.clear();
    assert_eq!(socket.submit(flows[0], &reads(2, 1, u64::MAX)), Ok(2));
    socket.remove_flow(flows[0], &mut completions);
    assert!(completions.iter().all(|completion| completion.outcome == Outcome::Lost) && completions.len() == 2);
}

const SCHEMA: &str = r#"{"name":"shop","groups":[{"kind":"plain","blocks":200,"fields":[{"name":"a_total","metric":"counter","type":"u64"}]}]}"#;

#[test]
fn a_host_is_read_like_over_tcp() {
    let mut host = Host::new(64);
    host.region(2, "of_tcp", &[], SCHEMA);
    host.responders = onlooker_region::control::RESPONDER_KERNEL;
    let region = host.region(1, "shop", &[], SCHEMA);
    region.words.set(0, 1, 42);
    let mut requester = connect(responder(&host.memory, localhost(true), 0, Box::new(honest)), 1024);
    let mut session = Session::new(&host.answer(1), Via::Kernel, requester.max_read_blocks(), Limits::default());
    // A busy machine may be silent for longer than a session waits.
    let mut values = Vec::new();
    let end_ns = steady_ns() + 30 * SECOND_NS;
    while values.is_empty() && steady_ns() < end_ns {
        match read_host(&mut requester, &mut session, steady_ns() + 10 * SECOND_NS, steady_ns) {
            Ok(()) => session.frames().for_each(|frame| frame.decode(|sample| values.push(sample.scaled()))),
            Err(error) => assert_eq!(error, DriveError::Read(ReadError::Timeout)),
        }
    }
    assert_eq!(values, [42.0]);
}

#[test]
fn sockets_that_cannot_work_are_refused() {
    let unspecified = Socket::bind("0.0.0.0:0".parse().unwrap(), Config::default()).unwrap_err();
    assert!(matches!(unspecified, Error::Unspecified(_)));
    let foreign = Socket::bind("192.0.2.1:0".parse().unwrap(), Config::default()).unwrap_err();
    assert!(matches!(foreign, Error::System { operation: "bind", .. }), "{foreign}");
    // What the system cannot send counts as lost, and harms nobody else.
    let mut socket = Socket::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    let peer = responder(&memory(0), localhost(false), 0, Box::new(honest));
    let flow = socket.add_flow(peer, FlowConfig::default()).unwrap();
    let nowhere = socket.add_flow("203.0.113.1:9".parse().unwrap(), FlowConfig::default()).unwrap();
    assert_eq!(socket.submit(nowhere, &[Read { id: 9, ..reads(1, 1, steady_ns() + SECOND_NS / 10)[0] }]), Ok(1));
    let mut into = vec![Block::default(); 2];
    let completions = complete(&mut socket.requester(flow), &reads(2, 1, u64::MAX), &mut into);
    all_done(&completions[..2], &into, 0);
    let counters = socket.exchange().counters(nowhere);
    assert!(counters.send_failed == counters.sent && counters.sent > 0, "{counters:?}");
}

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn nothing_is_allocated_per_read() {
    let peer = responder(&memory(0), localhost(false), 0, Box::new(honest));
    let mut requester = connect(peer, 1024);
    let (reads, mut into) = (reads(1000, 2, u64::MAX), vec![Block::default(); 2000]);
    // Once there is room for as many as are under way at a time.
    complete(&mut requester, &reads, &mut into);
    let mut completions = Vec::with_capacity(2000);
    let before = ALLOCATIONS.get();
    let (mut sent, begin) = (0, Instant::now());
    while completions.len() < reads.len() {
        assert!(begin.elapsed() < PATIENCE, "hangs");
        sent += requester.submit(&reads[sent..]).unwrap();
        requester.poll(&mut into, steady_ns(), &mut completions).unwrap();
        requester.wait(Duration::from_millis(50)).unwrap();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    all_done(&completions, &into, 0);
}

const PORT: u16 = 4793;
const VA: u64 = 0x7777_0000_0000;
const RKEY: u32 = 0x1234_5678;
const SLAB_BLOCKS: u32 = 64;

/// Sockets at the other end of a veth pair, in a network that they keep: bound to 10.78.1.2 and fd78:1::2.
fn requesters_end() -> [UdpSocket; 2] {
    let requester = Network::new();
    requester.add_veth("so1", "so2");
    bring_up("so1", &["10.78.1.1/24", "fd78:1::1/64"]);
    requester.enter(|| {
        bring_up("so2", &["10.78.1.2/24", "fd78:1::2/64"]);
        ["10.78.1.2", "fd78:1::2"].map(|own| UdpSocket::bind((own.parse::<IpAddr>().unwrap(), 0)).unwrap())
    })
}

#[test]
fn the_kernel_responder_is_read_over_veth() {
    let world = World::new();
    let sockets = requesters_end();

    let config = KernelConfig { source_rate: None, cpu_rate: None, ..KernelConfig::new(PORT) };
    let pinned = Pinned::load(&config, &Home::new(world.bpffs(), "soft").unwrap()).unwrap();
    let slab = pinned.create_slab(0, SLAB_BLOCKS).unwrap();
    let words = slab.map(0, SLAB_BLOCKS, true).unwrap();
    for (index, word) in words.words().iter().enumerate() {
        word.store(index as u64 / 128, Ordering::Relaxed);
    }
    let kind = Kind::Memory { slab: 0, first_block: 0 };
    pinned.add_region(RKEY, &Region { va: VA, blocks: SLAB_BLOCKS, kind }).unwrap();
    for source in ["10.78.1.2", "fd78:1::2"] {
        pinned.allow(Prefix::host(source.parse().unwrap())).unwrap();
    }
    pinned.set_lease(Duration::from_secs(600)).unwrap();
    pinned.attach(&Device::named("so1").unwrap(), Hook::Tc).unwrap();

    for (socket, host) in sockets.into_iter().zip(["10.78.1.1", "fd78:1::1"]) {
        let mut socket = Socket::new(socket, Config::default()).unwrap();
        let peer = SocketAddr::new(host.parse().unwrap(), PORT);
        let flow = socket.add_flow(peer, FlowConfig::default()).unwrap();
        let deadline_ns = steady_ns() + 10 * SECOND_NS;
        for _ in 0..100 {
            let here = |read: Read| Read { va: VA + read.va, rkey: RKEY, ..read };
            let reads: Vec<Read> = reads(8, 8, deadline_ns).into_iter().map(here).collect();
            let mut into = vec![Block::default(); 64];
            all_done(&complete(&mut socket.requester(flow), &reads, &mut into), &into, 0);
        }
        let counters = socket.exchange().counters(flow);
        assert_eq!((counters.sent - counters.repeated, counters.answered, counters.reads_done), (6400, 6400, 800));
        assert_eq!((counters.bad_icrc, counters.malformed, counters.congestion_marked), (0, 0, 0), "{counters:?}");
        // It answers nothing that is out of bounds: no oracle.
        let stranger = Read { rkey: RKEY + 1, ..reads(1, 1, steady_ns() + SECOND_NS / 20)[0] };
        let completions = complete(&mut socket.requester(flow), &[stranger], &mut [Block::default()]);
        assert_eq!(completions, [Completion { id: 0, outcome: Outcome::Timeout }]);
    }
}
