// SPDX-License-Identifier: Apache-2.0
//! The requester to RDMA devices on real sockets, against a device in user space that numbers its packets as rdma_rxe does (needs root and `ip`).

#[allow(dead_code, unreachable_pub, reason = "shared with the tests of the exchange")]
#[path = "common/device.rs"]
mod device;
#[path = "../../reader/tests/common/memory.rs"]
#[allow(dead_code, unreachable_pub)]
mod memory;

use device::{Device, Dice};
use memory::{CONTROL_RKEY, DEVICE_RKEYS, Host, Memory, PLACE, Region, Shared};
use nix::sys::socket::SetSockOpt as _;
use nix::{libc, setsockopt_impl, sockopt_impl};
use onlooker_bootstrap::{Id, QueuePairEnd, Responder, VERBS, VerbsAnswer, VerbsRequest};
use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_reader::clock::{Moment, Relation, steady_ns};
use onlooker_reader::drive::{DriveError, read_host};
use onlooker_reader::{Broken, Completion, Fault, Limits, Outcome, Read, Requester, Session, Via};
use onlooker_region::Block;
use onlooker_region::control::{Place, RESPONDER_TCP, RESPONDER_VERBS};
use onlooker_testbed::{PATIENCE, bring_up};
use onlooker_transport::Error;
use onlooker_transport::packet::{self, PacketRequester, connect, reader_id};
use onlooker_wire::tcp_read::Read as WireRead;
use onlooker_wire::{Envelope, IpHeader, Ipv4Header, NakCode, Packet, Ports, Psn, Qpn, ROCE_PORT};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SECOND_NS: u64 = 1_000_000_000;
const READS_ANSWERED: u8 = 4;
/// Reader and host.
const V4: [&str; 2] = ["127.0.0.1", "127.0.0.2"];
const V6: [&str; 2] = ["fd79::1", "fd79::2"];

sockopt_impl!(
    /// Requests come without a UDP checksum.
    NoChecksum6, SetOnly, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, bool
);

/// A network of the calling thread's own, where nobody else has port 4791, with both ends' addresses.
fn own_network() {
    onlooker_testbed::own_network();
    for address in V6 {
        bring_up("lo", &[&format!("{address}/128")]);
    }
}

/// A host's device: as many queue pairs as it is asked for, answered in a thread of its own until the test's process ends.
struct Card {
    address: IpAddr,
    memory: Arc<Memory>,
    pairs: Mutex<Vec<(Device, QueuePairEnd)>>,
    udp: UdpSocket,
    /// Sends packets with the identification that they have; of IPv4 only, IPv6 has none.
    raw: Option<OwnedFd>,
}

impl Card {
    /// Every `losing`th packet that it sends is lost; 0: none.
    fn new(address: &str, memory: &Arc<Memory>, losing: u64) -> Arc<Self> {
        let address: IpAddr = address.parse().unwrap();
        let udp = UdpSocket::bind((address, ROCE_PORT)).unwrap();
        let raw = match address {
            IpAddr::V4(_) => Some(socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap()),
            IpAddr::V6(_) => {
                NoChecksum6.set(&udp, &true).unwrap();
                None
            }
        };
        let card = Self { address, memory: memory.clone(), pairs: Mutex::default(), udp, raw };
        let card = Arc::new(card);
        let serving = card.clone();
        std::thread::spawn(move || serving.serve(losing));
        card
    }

    fn pair(&self, request: VerbsRequest) -> VerbsAnswer {
        let QueuePairEnd { packet, mtu_bytes, reads_answered, .. } = request.end;
        assert_eq!((mtu_bytes, reads_answered), (1024, 0));
        let mut pairs = self.pairs.lock().unwrap();
        let queue_pair = 17 + u32::try_from(pairs.len()).unwrap();
        let mut device =
            Device::new(Qpn::wrapping(queue_pair), Psn::wrapping(packet), mtu_bytes.into(), READS_ANSWERED.into());
        device.goes_on = true;
        pairs.push((device, request.end));
        let gid = match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let reads_answered = READS_ANSWERED;
        let end = QueuePairEnd { queue_pair, packet: 4711, gid: Id(gid.octets()), mtu_bytes: 4096, reads_answered };
        VerbsAnswer { control_rkey: CONTROL_RKEY + DEVICE_RKEYS, end }
    }

    fn serve(&self, losing: u64) {
        let mut buffer = [0; 2048];
        let mut count = 0_u64;
        loop {
            let (length, from) = self.udp.recv_from(&mut buffer).unwrap();
            let envelope = Envelope::socket(from, (self.address, ROCE_PORT).into()).unwrap();
            let Ok(Packet::ReadRequest(request)) = Packet::parse_datagram(&envelope, &buffer[..length]) else {
                panic!("not a request");
            };
            let mut pairs = self.pairs.lock().unwrap();
            let (device, end) =
                pairs.iter_mut().find(|(device, _)| device.queue_pair == request.destination).expect("a pair of its");
            let reader = Ipv6Addr::from(end.gid.0).to_canonical();
            assert_eq!(from.ip(), reader);
            let read = |va, key: u32, bytes: usize| {
                let rkey = key.checked_sub(DEVICE_RKEYS).ok_or(NakCode::RemoteAccess)?;
                let read = WireRead { va, rkey, length_bytes: u32::try_from(bytes).unwrap() };
                self.memory.read(&read).map_err(|_| NakCode::RemoteAccess)
            };
            for reply in device.answer(&request, &read) {
                count += 1;
                if losing == 0 || !count.is_multiple_of(losing) {
                    let envelope = self.outgoing(reader, count);
                    self.send(reader, &reply.ip_packet(&envelope, Qpn::wrapping(end.queue_pair)));
                }
            }
        }
    }

    /// Around answers: numbered packets, from a port that nobody has.
    fn outgoing(&self, reader: IpAddr, count: u64) -> Envelope {
        match (self.address, reader) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let identification = 1 + u16::try_from(count % 65_535).unwrap();
                let header = Ipv4Header { traffic_class: 0, identification, hop_limit: 64, source, destination };
                Envelope { ip: IpHeader::V4(header), ports: Ports { source: 0xc001, destination: ROCE_PORT } }
            }
            (own, reader) => Envelope::socket((own, ROCE_PORT).into(), (reader, ROCE_PORT).into()).unwrap(),
        }
    }

    fn send(&self, reader: IpAddr, packet: &[u8]) {
        let to = SocketAddr::new(reader, ROCE_PORT);
        match &self.raw {
            Some(raw) => sendto(raw, packet, SendFlags::empty(), &SocketAddr::new(reader, 0)).map(drop).unwrap(),
            None => drop(self.udp.send_to(&packet[48..], to).unwrap()),
        }
    }
}

fn told(host: &Host, [reader, card]: [&str; 2], verbs: Option<VerbsAnswer>) -> Bootstrapped {
    let mut answer = host.answer(1);
    answer.responders.push(Responder { kind: VERBS.into(), verbs, ..Responder::default() });
    let moment = Moment { steady_ns: 0, utc_ns: 0 };
    Bootstrapped {
        answer,
        peer: SocketAddr::new(card.parse().unwrap(), 7177),
        local: reader.parse().unwrap(),
        relation: Relation::new(0, moment, moment),
        round_trip: Duration::ZERO,
    }
}

fn connected(host: &Host, addresses: [&str; 2], card: &Card) -> (Bootstrapped, PacketRequester) {
    let ask = |request: VerbsRequest| {
        assert!(request.copy.is_none());
        Ok(told(host, addresses, Some(card.pair(request))))
    };
    connect(&told(host, addresses, None), reader_id().unwrap(), ask).unwrap()
}

const WIDE: &str = r#"{"name":"shop","groups":[{"kind":"plain","blocks":9,"fields":[{"name":"a_total","metric":"counter","type":"u64"}]}]}"#;

/// A host whose device answers for its one region.
fn host() -> (Host, Region) {
    let responders = RESPONDER_TCP | RESPONDER_VERBS;
    let host = Host::within(Shared::new(64), Place { responders, ..PLACE }, Box::new(Shared::new));
    let mut host = Host { responders, ..host };
    let region = host.region(1, "shop", &[], WIDE);
    (host, region)
}

fn values(told: &Bootstrapped, requester: &mut PacketRequester) -> Result<Vec<f64>, DriveError> {
    let mut session = Session::new(&told.answer, Via::Verbs, requester.max_read_blocks(), Limits::default());
    read_host(requester, &mut session, steady_ns() + 10 * SECOND_NS, steady_ns)?;
    let mut values = Vec::new();
    session.frames().for_each(|frame| frame.decode(|sample| values.push(sample.scaled())));
    Ok(values)
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

#[test]
fn a_device_is_read_over_both_families_by_several_at_once() {
    own_network();
    for addresses in [V4, V6] {
        let (host, region) = host();
        let card = Card::new(addresses[1], &host.memory, 0);
        let (first, mut requester) = connected(&host, addresses, &card);
        let (second, mut other) = connected(&host, addresses, &card);
        assert_eq!(requester.max_read_blocks(), 4);
        for value in [41_u32, 42] {
            region.words.set(0, 1, value.into());
            assert_eq!(values(&first, &mut requester).unwrap(), [f64::from(value)]);
            assert_eq!(values(&second, &mut other).unwrap(), [f64::from(value)]);
        }
        let counters = requester.exchange().counters();
        assert!(counters.answered > 0 && counters.reads_done > 0, "{counters:?}");
        assert_eq!((counters.bad_icrc, counters.malformed, counters.foreign), (0, 0, 0), "{counters:?}");
        // A region that has gone costs the queue pair, and only this one.
        host.memory.remove(region.entry.rkey);
        let error = values(&first, &mut requester).unwrap_err();
        assert_eq!(error, DriveError::Broken(Broken::QueuePair(Fault::Access)));
        host.memory.insert(region.entry.rkey, region.entry.va, region.words.clone());
        assert_eq!(requester.submit(&[]), Err(Broken::QueuePair(Fault::Access)));
        assert_eq!(values(&second, &mut other).unwrap(), [42.0]);
    }
}

#[test]
fn losses_cost_time_only() {
    own_network();
    let (host, _) = host();
    let words = Shared::new(256);
    for block in 0..256 {
        (0..128).for_each(|word| words.set(block, word, block as u64));
    }
    host.memory.insert(7, 0, words);
    let card = Card::new(V4[1], &host.memory, 23);
    let (_, mut requester) = connected(&host, V4, &card);
    let mut dice = Dice(11);
    let mut at = 0;
    let mut reads = Vec::new();
    while at < 252 {
        let blocks = 1 + u32::try_from(dice.roll(4)).unwrap();
        let (id, va, rkey) = (reads.len() as u64, u64::from(at) << 10, 7 + DEVICE_RKEYS);
        reads.push(Read { id, va, rkey, at, blocks, deadline_ns: steady_ns() + 15 * SECOND_NS });
        at += blocks;
    }
    let mut into = vec![Block::default(); 256];
    let completions = complete(&mut requester, &reads, &mut into);
    assert!(completions.iter().all(|completion| completion.outcome == Outcome::Done), "{completions:?}");
    for (index, block) in (0..u64::from(at)).zip(&into) {
        assert_eq!(block.0, [index; 128], "block {index}");
    }
    let counters = requester.exchange().counters();
    assert_eq!((counters.answered, counters.reads_done), (at.into(), reads.len() as u64));
    assert!(counters.repeated > 0 && counters.gaps > 0, "{counters:?}");
}

#[test]
fn silence_ends_the_queue_pair() {
    own_network();
    let (host, _) = host();
    let card = Card::new(V4[1], &host.memory, 1);
    let (_, mut requester) = connected(&host, V4, &card);
    let begin = Instant::now();
    let read = Read { id: 3, va: 0, rkey: 1, at: 0, blocks: 1, deadline_ns: steady_ns() + SECOND_NS / 10 };
    assert_eq!(requester.submit(&[read]), Ok(1));
    let (mut completions, mut memory) = (Vec::new(), [Block([7; 128])]);
    let broken = loop {
        assert!(begin.elapsed() < PATIENCE, "hangs");
        if let Err(broken) = requester.poll(&mut memory, steady_ns(), &mut completions) {
            break broken;
        }
        requester.wait(Duration::from_secs(1)).unwrap();
    };
    assert_eq!(broken, Broken::QueuePair(Fault::NoAnswer));
    assert_eq!(completions, [Completion { id: 3, outcome: Outcome::Timeout }]);
    assert!(memory[0] == Block([7; 128]) && begin.elapsed() > Duration::from_secs(1));
}

#[test]
fn a_port_that_is_anothers_and_a_missing_capability_are_told() {
    own_network();
    let (host, _) = host();
    let refused = |addresses| {
        let told = told(&host, addresses, None);
        connect(&told, Id([7; 16]), |_| panic!("the host was asked")).map(drop).unwrap_err()
    };
    let anothers = UdpSocket::bind(("0.0.0.0", ROCE_PORT)).unwrap();
    let error = refused(V4);
    assert!(matches!(error, Error::Packet(packet::Error::PortTaken(_))), "{error}");
    assert!(error.to_string().contains("--by verbs"), "{error}");
    drop(anothers);
    let mut sets = rustix::thread::capabilities(None).unwrap();
    sets.effective.remove(rustix::thread::CapabilitySet::NET_RAW);
    rustix::thread::set_capabilities(None, sets).unwrap();
    for addresses in [V4, V6] {
        let error = refused(addresses);
        assert!(matches!(error, Error::Packet(packet::Error::NotPermitted)), "{error}");
    }
}
