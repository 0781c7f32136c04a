// SPDX-License-Identifier: Apache-2.0
//! The responding half of an RDMA device's queue pair, as strict as the standard and as forgetful as rdma_rxe, for tests of who asks it.
//!
//! Requests count in the order of their numbers only: one that is missing is told of once, in answer to the first that comes after it. Of the last READs it remembers as many
//! as it answers at once, and repeats those; what it does not remember is passed over in silence. A repeat may begin where the one before it did, or later. After a refusal it
//! is in error and says nothing more.

use onlooker_wire::{
    Acknowledge, Aeth, Envelope, Msn, NakCode, Packet, Part, Psn, Qpn, ReadAnswer, ReadRequest, Syndrome,
};
use std::collections::VecDeque;

/// Decisions of a simulation: xorshift64* (Vigna, 2016).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

/// What it answers with.
pub enum Reply {
    Data { opcode: Opcode, psn: Psn, payload: Vec<u8> },
    Nak { psn: Psn, code: NakCode },
}

/// Which part of an answer.
#[derive(Clone, Copy)]
pub enum Opcode {
    First,
    Middle,
    Last,
    Only,
}

impl Reply {
    /// The whole IP packet, to the requester's queue pair.
    pub fn ip_packet(&self, envelope: &Envelope, to: Qpn) -> Vec<u8> {
        let aeth = |syndrome| Aeth { syndrome, msn: Msn::default() };
        let ack = aeth(Syndrome::ACK);
        let packet: Packet<'_> = match self {
            Self::Nak { psn, code } => {
                Acknowledge { destination: to, psn: *psn, aeth: aeth(Syndrome::Nak(*code)) }.into()
            }
            Self::Data { opcode, psn, payload } => {
                let part = match opcode {
                    Opcode::First => Part::First(ack),
                    Opcode::Middle => Part::Middle,
                    Opcode::Last => Part::Last(ack),
                    Opcode::Only => Part::Only(ack),
                };
                ReadAnswer { part, destination: to, psn: *psn, payload }.into()
            }
        };
        ip_packet(envelope, packet)
    }
}

pub fn ip_packet(envelope: &Envelope, packet: Packet<'_>) -> Vec<u8> {
    let datagram_bytes = packet.datagram_bytes();
    let mut bytes = vec![0; envelope.len_bytes() + datagram_bytes];
    let at = envelope.write(datagram_bytes, &mut bytes).unwrap();
    packet.write_datagram(envelope, &mut bytes[at..]).unwrap();
    bytes
}

/// A READ that it remembers.
struct Known {
    first: Psn,
    packets: u32,
    va: u64,
    rkey: u32,
    /// Packets from the begin that nobody may ask for again.
    settled: u32,
}

/// Its memory: bytes from an address under a key.
pub type Read<'a> = &'a dyn Fn(u64, u32, usize) -> Result<Vec<u8>, NakCode>;

/// See the module.
pub struct Device {
    pub queue_pair: Qpn,
    pub mtu_bytes: u32,
    /// READs that it remembers.
    pub most: usize,
    /// A repeat goes on with middle and last parts, as rdma_rxe's do, and does not begin anew.
    pub goes_on: bool,
    pub expected: Psn,
    pub is_in_error: bool,
    has_told: bool,
    known: VecDeque<Known>,
    pub executed: u64,
    pub repeated: u64,
    pub forgotten: u64,
}

impl Device {
    pub fn new(queue_pair: Qpn, expected: Psn, mtu_bytes: u32, most: usize) -> Self {
        Self {
            queue_pair,
            mtu_bytes,
            most,
            goes_on: false,
            expected,
            is_in_error: false,
            has_told: false,
            known: VecDeque::new(),
            executed: 0,
            repeated: 0,
            forgotten: 0,
        }
    }

    /// What it says to a request.
    ///
    /// # Panics
    /// If the request contradicts the one that had the number first.
    pub fn answer(&mut self, request: &ReadRequest, read: Read<'_>) -> Vec<Reply> {
        assert_eq!(request.destination, self.queue_pair);
        if self.is_in_error {
            return Vec::new();
        }
        match request.psn.distance_from(self.expected) {
            0 => self.execute(request, read),
            1.. if self.has_told => Vec::new(),
            1.. => {
                self.has_told = true;
                vec![Reply::Nak { psn: self.expected, code: NakCode::PsnSequence }]
            }
            _ => self.repeat(request, read),
        }
    }

    fn execute(&mut self, request: &ReadRequest, read: Read<'_>) -> Vec<Reply> {
        self.has_told = false;
        self.executed += 1;
        let packets = request.length_bytes.div_ceil(self.mtu_bytes).max(1);
        let ReadRequest { psn, va, rkey, .. } = *request;
        self.known.push_back(Known { first: psn, packets, va, rkey, settled: 0 });
        if self.known.len() > self.most {
            self.known.pop_front();
        }
        self.expected = psn.wrapping_add(packets);
        self.data(request, 0, packets, read)
    }

    fn repeat(&mut self, request: &ReadRequest, read: Read<'_>) -> Vec<Reply> {
        self.repeated += 1;
        let mtu_bytes = self.mtu_bytes;
        let psn = request.psn;
        let known = self.known.iter_mut().find(|known| {
            let place = psn.distance_from(known.first);
            place >= 0 && place.unsigned_abs() < known.packets
        });
        let Some(known) = known else {
            self.forgotten += 1;
            return Vec::new();
        };
        let skipped = psn.distance_from(known.first).unsigned_abs();
        assert_eq!(request.va, known.va.wrapping_add(u64::from(skipped * mtu_bytes)), "another address");
        assert_eq!(request.length_bytes, (known.packets - skipped) * mtu_bytes, "another end");
        assert_eq!(request.rkey, known.rkey, "another key");
        // One that was under way for long, from before a later one.
        if skipped < known.settled {
            self.forgotten += 1;
            return Vec::new();
        }
        known.settled = skipped;
        let packets = known.packets;
        self.data(request, skipped, packets, read)
    }

    /// The answer, from packet `skipped` of `packets` on.
    fn data(&mut self, request: &ReadRequest, skipped: u32, packets: u32, read: Read<'_>) -> Vec<Reply> {
        let bytes = match read(request.va, request.rkey, request.length_bytes as usize) {
            Ok(bytes) => bytes,
            Err(code) => {
                self.is_in_error = true;
                return vec![Reply::Nak { psn: request.psn, code }];
            }
        };
        let begin = if self.goes_on { 0 } else { skipped };
        let chunks = (skipped..).zip(bytes.chunks(self.mtu_bytes as usize));
        let part = |(at, chunk): (u32, &[u8])| {
            let opcode = match (at == begin, at + 1 == packets) {
                (true, true) => Opcode::Only,
                (true, false) => Opcode::First,
                (false, true) => Opcode::Last,
                (false, false) => Opcode::Middle,
            };
            Reply::Data { opcode, psn: request.psn.wrapping_add(at - skipped), payload: chunk.to_vec() }
        };
        chunks.map(part).collect()
    }
}
