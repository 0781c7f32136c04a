// SPDX-License-Identifier: Apache-2.0
//! READs of single words, which requesters do not make: they ask for whole blocks. By a queue pair of its own, or by a
//! bare UDP socket.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_reader::clock::steady_ns;
use onlooker_region::Block;
use onlooker_verbs::{Card, CompletionQueue, Device, Endpoint, Flow, Path, Reads, Settings};
use onlooker_wire::{Envelope, Packet, Part, Psn, Qpn, ReadAnswer, ReadRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};

use super::{DEADLINE, after_ns};
use crate::common::Result;

/// Length of a word.
pub(super) const WORD_BYTES: u32 = 8;
/// A socket asks again after so long.
const REPEAT: Duration = Duration::from_millis(100);

/// READs of one word below the requesters, which ask for whole blocks.
pub(super) enum Words {
    Device(DeviceWords),
    Socket(SocketWords),
}

impl Words {
    /// The word at an address; `None`: not in time.
    pub(super) fn read(&mut self, va: u64, rkey: u32) -> Result<Option<u64>> {
        match self {
            Self::Device(device) => device.read(va, rkey),
            Self::Socket(socket) => socket.read(va, rkey),
        }
    }
}

/// A queue pair of its own.
pub(super) struct DeviceWords {
    reads: Reads<Card>,
    flow: Flow,
    answer: Answer,
}

/// Where a word lands.
struct Answer(Box<[Block]>);

impl onlooker_verbs::Memory for Answer {
    fn of(&mut self, _: Flow, _: u64, _: u32) -> &mut [Block] {
        &mut self.0
    }
}

impl DeviceWords {
    /// By this machine's device; `host` says which end answers to this one.
    pub(super) fn connect(told: &Bootstrapped, host: impl FnOnce(Endpoint) -> Result<Endpoint>) -> Result<Self> {
        let device = Device::of(told.local.to_canonical())?;
        let settings = Settings { depth: 16, max_read_blocks: 1 };
        let mut reads = Reads::new(Card::new(CompletionQueue::new(&device, settings.depth)?));
        let mut pair = reads.port().pair(settings)?;
        let host = host(pair.endpoint())?;
        pair.connect(&host, Path::default())?;
        let flow = reads.add(pair).ok_or("no room for a flow")?;
        Ok(Self { reads, flow, answer: Answer(vec![Block::default()].into()) })
    }

    fn read(&mut self, va: u64, rkey: u32) -> Result<Option<u64>> {
        let read = onlooker_verbs::Read { tag: 0, va, rkey, bytes: WORD_BYTES, deadline_ns: after_ns(DEADLINE) };
        self.answer.0.fill(Block::default());
        if self.reads.submit(self.flow, &[read])? == 0 {
            return Err("the queue pair for single words takes no READ".into());
        }
        let mut ended = Vec::new();
        loop {
            self.reads.port().queue().arm()?;
            self.reads.poll(&mut self.answer, steady_ns(), &mut ended)?;
            match ended.first().map(|ended| ended.outcome) {
                Some(onlooker_verbs::Outcome::Done) => return Ok(Some(self.answer.0[0].0[0])),
                Some(onlooker_verbs::Outcome::Timeout) => return Ok(None),
                Some(onlooker_verbs::Outcome::Failed(status)) => {
                    return Err(format!("the queue pair for single words has failed: {status:?}").into());
                }
                None => {
                    let mut ready = [PollFd::new(self.reads.port().queue(), PollFlags::IN)];
                    poll(&mut ready, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }))?;
                }
            }
        }
    }
}

/// A bare UDP socket: one packet asks, one answers.
pub(super) struct SocketWords {
    socket: UdpSocket,
    host: SocketAddr,
    to_host: Envelope,
    from_host: Envelope,
    /// One for each READ, so that repeats of it are answered alike, and an answer to an earlier one is known.
    number: u32,
}

impl SocketWords {
    pub(super) fn new(local: IpAddr, host: SocketAddr) -> Result<Self> {
        let socket = UdpSocket::bind((local, 0))?;
        socket.set_read_timeout(Some(REPEAT))?;
        // Unconnected, and not to be fragmented: the ICRC covers the identification, which is 0 then.
        set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?;
        let own = socket.local_addr()?;
        let (to_host, from_host) = (Envelope::socket(own, host)?, Envelope::socket(host, own)?);
        Ok(Self { socket, host, to_host, from_host, number: 0 })
    }

    fn read(&mut self, va: u64, rkey: u32) -> Result<Option<u64>> {
        self.number += 1;
        let psn = Psn::wrapping(self.number);
        let request = ReadRequest { destination: Qpn::wrapping(0x1234), psn, va, rkey, length_bytes: WORD_BYTES };
        let mut datagram = [0; 64];
        let length = Packet::from(request).write_datagram(&self.to_host, &mut datagram)?;
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            self.socket.send_to(&datagram[..length], self.host)?;
            let word = self.answer(psn)?;
            if word.is_some() {
                return Ok(word);
            }
        }
        Ok(None)
    }

    /// The answer to a READ, if it comes soon.
    fn answer(&self, to: Psn) -> Result<Option<u64>> {
        use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        let mut buffer = [0; 2048];
        loop {
            let length = match self.socket.recv_from(&mut buffer) {
                Ok((length, _)) => length,
                Err(error) if error.kind() == Interrupted => continue,
                Err(error) if matches!(error.kind(), TimedOut | WouldBlock) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            match Packet::parse_datagram(&self.from_host, &buffer[..length])? {
                Packet::ReadAnswer(ReadAnswer { part: Part::Only(_), psn, payload, .. }) if psn == to => {
                    return Ok(Some(u64::from_le_bytes(payload.try_into()?)));
                }
                // To a READ that was done by its first answer.
                Packet::ReadAnswer(_) => {}
                other => return Err(format!("no answer to a READ: {other:?}").into()),
            }
        }
    }
}
