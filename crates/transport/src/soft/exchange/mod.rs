// SPDX-License-Identifier: Apache-2.0
//! The soft requester without the socket: READs in, datagrams out and in, READs completed. Decisions depend on the calls and the times in them alone.
//!
//! A READ is cut into *packets*, each asking for at most `max_read_bytes`. A packet holds credit from [`Exchange::submit`] until it is answered or
//! given up as lost, whatever has become of its READ meanwhile. One that is not answered within its time-out is sent again under a new sequence
//! number: READs change nothing, so that asking twice does no harm, and a late answer to the first is known as such. All tables have their size from
//! the start: nothing is allocated per READ.

mod counts;
mod flow;
mod receive;
mod tables;
#[cfg(test)]
mod tests;

use super::rtt::{RTO_CAP_NS, Rtt};
use super::wheel::Wheel;
use super::{Error, MAX_BATCH};
pub use counts::{Strays, Totals};
pub use flow::{Counters, FlowConfig};
use flow::{Flow, Place, sent_at};
use onlooker_reader::{Completion, Outcome, Read};
use onlooker_wire::profile::BLOCK_BYTES;
use onlooker_wire::tcp_read::MAX_READ_BYTES;
use onlooker_wire::{Packet as WirePacket, Psn, Qpn, ReadRequest};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;
use tables::{Packet, Pool, Reading, State};

/// Bytes of a request (docs/format/wire.md).
pub const REQUEST_BYTES: usize = 32;
/// Flows at most.
pub const MAX_FLOWS: usize = 65_536;
/// Credit at most: a thousand hosts' worth, and what the tables' indices hold many times over.
pub const MAX_CREDIT_BYTES: u32 = 256 << 20;
/// Queue pair numbers 0 and 1 are the management's, the last one is multicast (IBA 3.5.3, 10.5.1).
const RESERVED_QPN: [u32; 3] = [0, 1, 0xff_ffff];

/// Names a flow of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId {
    index: u32,
    generation: u32,
}

/// A request to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Staged {
    /// Where to.
    pub to: SocketAddr,
    /// The UDP payload.
    pub bytes: [u8; REQUEST_BYTES],
    /// Its place among the flows, which another host may have later.
    pub flow: u32,
    /// It was sent before, and not answered in time.
    pub is_repeat: bool,
    packet: u32,
}

/// An answer that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Whose it was, as in [`Staged::flow`].
    pub flow: u32,
    /// Its request went past the socket.
    pub was_bypassed: bool,
}

/// State of all flows of one socket.
#[derive(Debug)]
pub struct Exchange {
    local: SocketAddr,
    /// What the tables have room for.
    credit_bytes: u32,
    totals: Totals,
    bytes: u32,
    reads: usize,
    now_ns: u64,
    random: u64,
    flows: Vec<Option<Flow>>,
    generation: u32,
    by_qpn: HashMap<u32, u32, BuildHasherDefault<Spread>>,
    packets: Pool<Packet>,
    readings: Pool<Reading>,
    /// To be sent, each packet at most once.
    queue: VecDeque<u32>,
    staged: Vec<Staged>,
    wheel: Wheel,
    strays: Strays,
}

impl Exchange {
    /// For a socket bound to `local`; all flows together have at most `credit_bytes` in flight. Queue pairs and first sequence numbers follow from
    /// `seed`, which should be random.
    ///
    /// # Errors
    /// [`Error::Unspecified`], [`Error::TotalCredit`].
    pub fn new(local: SocketAddr, credit_bytes: u32, seed: u64) -> Result<Self, Error> {
        if local.ip().is_unspecified() || local.port() == 0 {
            return Err(Error::Unspecified(local));
        }
        if !(BLOCK_BYTES..=MAX_CREDIT_BYTES).contains(&credit_bytes) {
            return Err(Error::TotalCredit(credit_bytes));
        }
        let size = credit_bytes / BLOCK_BYTES;
        Ok(Self {
            local,
            credit_bytes,
            totals: Totals::default(),
            bytes: 0,
            reads: 0,
            now_ns: 0,
            random: seed,
            flows: Vec::new(),
            generation: 0,
            by_qpn: HashMap::default(),
            packets: Pool::new(size, Packet::NONE),
            readings: Pool::new(size, Reading::NONE),
            queue: VecDeque::with_capacity(size as usize),
            staged: Vec::with_capacity(MAX_BATCH),
            wheel: Wheel::new(size as usize),
            strays: Strays::default(),
        })
    }

    /// Adds a host's responder.
    ///
    /// # Errors
    /// [`Error::Family`], [`Error::MaxReadBytes`], [`Error::Credit`], [`Error::TotalCredit`], [`Error::TooManyFlows`].
    pub fn add_flow(&mut self, peer: SocketAddr, config: FlowConfig) -> Result<FlowId, Error> {
        if config.max_read_bytes > self.credit_bytes {
            return Err(Error::TotalCredit(self.credit_bytes));
        }
        let config = FlowConfig { credit_bytes: config.credit_bytes.min(self.credit_bytes), ..config };
        let index = self.flows.iter().position(Option::is_none).unwrap_or(self.flows.len());
        if index >= MAX_FLOWS {
            return Err(Error::TooManyFlows);
        }
        let qpn = loop {
            let qpn = self.random();
            if !RESERVED_QPN.contains(&qpn) && !self.by_qpn.contains_key(&qpn) {
                break qpn;
            }
        };
        let numbers = (Qpn::wrapping(qpn), Psn::wrapping(self.random()));
        let flow = Flow::new(self.local, peer, config, numbers, self.generation)?;
        if index == self.flows.len() {
            self.flows.push(None);
        }
        self.flows[index] = Some(flow);
        let index = index_of(index);
        self.by_qpn.insert(qpn, index);
        self.generation = self.generation.wrapping_add(1);
        Ok(FlowId { index, generation: self.generation.wrapping_sub(1) })
    }

    /// Removes a flow: its READs complete as [`Outcome::Lost`], its packets hold their credit until they count as lost.
    ///
    /// # Panics
    /// If there is no such flow (any more); so do all that take a [`FlowId`].
    pub fn remove_flow(&mut self, id: FlowId, completions: &mut Vec<Completion>) {
        let flow = self.flow_mut(id);
        flow.closing = true;
        let (qpn, bytes) = (flow.qpn.get(), flow.bytes);
        self.by_qpn.remove(&qpn);
        if bytes == 0 {
            self.flows[id.index as usize] = None;
            return;
        }
        for index in 0..index_of(self.readings.places.len()) {
            let reading = self.readings[index];
            if reading.flow == id.index && !reading.ended {
                self.end(index, Outcome::Lost, completions);
            }
        }
    }

    /// What a flow has counted.
    #[must_use]
    pub fn counters(&self, id: FlowId) -> &Counters {
        &self.flow(id).counters
    }

    /// What a flow has measured.
    #[must_use]
    pub fn rtt(&self, id: FlowId) -> &Rtt {
        &self.flow(id).rtt
    }

    /// Bytes of a flow's packets that hold credit.
    #[must_use]
    pub fn flow_bytes_in_flight(&self, id: FlowId) -> u32 {
        self.flow(id).bytes
    }

    /// A flow's READs that have not completed.
    #[must_use]
    pub fn flow_in_flight(&self, id: FlowId) -> usize {
        self.flow(id).reads
    }

    /// Longest READ of a flow: what its credit carries, at most what the TCP responder serves.
    #[must_use]
    pub fn max_read_blocks(&self, id: FlowId) -> u32 {
        self.flow(id).config.credit_bytes.min(MAX_READ_BYTES) / BLOCK_BYTES
    }

    /// The address and port that datagrams come from.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// What belonged to no flow.
    #[must_use]
    pub fn strays(&self) -> &Strays {
        &self.strays
    }

    /// READs that have not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.reads
    }

    /// Bytes that hold credit, of all flows.
    #[must_use]
    pub fn bytes_in_flight(&self) -> u32 {
        self.bytes
    }

    /// What [`Exchange::bytes_in_flight`] never exceeds.
    #[must_use]
    pub fn credit_bytes(&self) -> u32 {
        self.credit_bytes
    }

    /// What all flows have counted together.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Takes READs to a flow, as many from the front as its credit and the common one have room for.
    ///
    /// # Panics
    /// If a READ has 0 blocks or more than [`Exchange::max_read_blocks`].
    pub fn submit(&mut self, id: FlowId, reads: &[Read]) -> usize {
        let max_blocks = self.max_read_blocks(id);
        let now_ns = self.now_ns;
        let flow = self.flows[id.index as usize].as_mut().expect("looked up above");
        let packet_blocks = flow.config.max_read_bytes / BLOCK_BYTES;
        for (taken, read) in reads.iter().enumerate() {
            let Read { id: name, va, rkey, at, blocks, deadline_ns } = *read;
            assert!((1..=max_blocks).contains(&blocks), "a READ of {blocks} blocks, at most {max_blocks} are allowed");
            let bytes = blocks * BLOCK_BYTES;
            if flow.bytes + bytes > flow.config.credit_bytes || self.bytes + bytes > self.credit_bytes {
                return taken;
            }
            let packets = blocks.div_ceil(packet_blocks);
            let reading = Reading { id: name, va, rkey, at, deadline_ns, flow: id.index, packets, ..Reading::NONE };
            let reading = Reading { ended: false, ..reading };
            let reading = self.readings.take(reading).expect("as many READs as blocks of credit");
            for offset_blocks in (0..blocks).step_by(packet_blocks as usize) {
                let packet = Packet {
                    reading,
                    flow: id.index,
                    offset_blocks,
                    blocks: packet_blocks.min(blocks - offset_blocks),
                    ..Packet::NONE
                };
                let packet = self.packets.take(packet).expect("as many packets as blocks of credit");
                self.queue.push_back(packet);
                self.wheel.arm(packet, deadline_ns.min(now_ns.saturating_add(RTO_CAP_NS)));
            }
            flow.take(bytes);
            flow.reads += 1;
            (self.bytes, self.reads) = (self.bytes + bytes, self.reads + 1);
        }
        reads.len()
    }

    /// Whether [`Exchange::stage`] may have something.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Prepares at most [`MAX_BATCH`] requests. To be followed by [`Exchange::sent`], [`Exchange::send_failed`] or [`Exchange::no_room`].
    pub fn stage(&mut self) -> &[Staged] {
        debug_assert!(self.staged.is_empty());
        while self.staged.len() < MAX_BATCH
            && let Some(index) = self.queue.pop_front()
        {
            let packet = self.packets[index];
            let reading = self.readings[packet.reading];
            if reading.ended {
                self.release(index);
                continue;
            }
            let flow = self.flows[packet.flow as usize].as_mut().expect("a flow outlives its packets");
            let psn = flow.number(index);
            let request = ReadRequest {
                destination: flow.qpn,
                psn,
                va: reading.va.wrapping_add(u64::from(packet.offset_blocks * BLOCK_BYTES)),
                rkey: reading.rkey,
                length_bytes: packet.blocks * BLOCK_BYTES,
            };
            let mut bytes = [0; REQUEST_BYTES];
            let written = WirePacket::from(request).write_datagram(&flow.outgoing, &mut bytes);
            debug_assert_eq!(written, Ok(REQUEST_BYTES));
            self.packets[index].psn = psn;
            let is_repeat = packet.repeats > 0;
            self.staged.push(Staged { to: flow.peer, bytes, flow: packet.flow, is_repeat, packet: index });
        }
        &self.staged
    }

    /// So many from the front of what was staged were sent, by the socket or past it; the others go back into the queue.
    ///
    /// # Panics
    /// If fewer were staged.
    pub fn sent(&mut self, count: usize, is_bypassed: bool, now_ns: u64) {
        let (sent, unsent) = self.staged.split_at(count);
        for staged in sent {
            let packet = &mut self.packets[staged.packet];
            let flow = self.flows[packet.flow as usize].as_mut().expect("a flow outlives its packets");
            flow.counters.sent += 1;
            self.totals.sent += 1;
            self.totals.bypassed += u64::from(is_bypassed);
            packet.state = State::Sent;
            packet.is_bypassed = is_bypassed;
            packet.sent_ns = now_ns;
            packet.lost_ns = now_ns.saturating_add(flow.rtt.rto_ns(packet.repeats));
            self.wheel.arm(staged.packet, packet.lost_ns.min(self.readings[packet.reading].deadline_ns));
        }
        for staged in unsent.iter().rev() {
            let packet = self.packets[staged.packet];
            let flow = self.flows[packet.flow as usize].as_mut().expect("a flow outlives its packets");
            flow.settle(packet.psn, Place::Unused);
            self.queue.push_front(staged.packet);
        }
        self.staged.clear();
    }

    /// The system refused the first of what was staged; it counts as sent and lost. The others go back into the queue.
    ///
    /// # Panics
    /// If nothing was staged.
    pub fn send_failed(&mut self, now_ns: u64) {
        let flow = self.packets[self.staged[0].packet].flow;
        self.sent(1, false, now_ns);
        let flow = self.flows[flow as usize].as_mut().expect("a flow outlives its packets");
        flow.counters.send_failed += 1;
        self.totals.send_failed += 1;
    }

    /// The system has no room for what was staged: all of it goes back into the queue.
    pub fn no_room(&mut self, now_ns: u64) {
        self.sent(0, false, now_ns);
        self.totals.no_room += 1;
    }

    /// Lets time pass: READs past their deadline complete, packets past their time-out are queued again.
    pub fn advance(&mut self, now_ns: u64, completions: &mut Vec<Completion>) {
        self.now_ns = self.now_ns.max(now_ns);
        while let Some(index) = self.wheel.pop(now_ns) {
            let packet = self.packets[index];
            let reading = self.readings[packet.reading];
            if !reading.ended && now_ns >= reading.deadline_ns {
                self.end(packet.reading, Outcome::Timeout, completions);
            }
            let ended = self.readings[packet.reading].ended;
            match packet.state {
                // Freed when it comes to the front.
                State::Queued if ended => {}
                State::Queued => {
                    self.wheel.arm(index, reading.deadline_ns.min(now_ns.saturating_add(RTO_CAP_NS)));
                }
                State::Sent if now_ns < packet.lost_ns => {
                    let until_ns = if ended { packet.lost_ns } else { packet.lost_ns.min(reading.deadline_ns) };
                    self.wheel.arm(index, until_ns);
                }
                State::Sent => self.lost(index),
            }
        }
    }

    /// A packet's time-out is over.
    fn lost(&mut self, index: u32) {
        let packet = &mut self.packets[index];
        let flow = self.flows[packet.flow as usize].as_mut().expect("a flow outlives its packets");
        flow.settle(packet.psn, Place::Lost(sent_at(packet.sent_ns)));
        let reading = self.readings[packet.reading];
        if reading.ended {
            self.release(index);
            return;
        }
        flow.counters.repeated += 1;
        self.totals.repeated += 1;
        packet.state = State::Queued;
        packet.repeats = packet.repeats.saturating_add(1);
        self.queue.push_back(index);
        self.wheel.arm(index, reading.deadline_ns.min(self.now_ns.saturating_add(RTO_CAP_NS)));
    }

    /// When [`Exchange::advance`] next has something to do.
    #[must_use]
    pub fn wake_ns(&self) -> Option<u64> {
        self.wheel.next_ns()
    }

    /// The time of the last [`Exchange::advance`].
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Completes everything as lost: the socket is gone.
    pub fn lose(&mut self, completions: &mut Vec<Completion>) {
        self.staged.clear();
        self.queue.clear();
        for index in 0..index_of(self.readings.places.len()) {
            if !self.readings[index].ended {
                self.end(index, Outcome::Lost, completions);
            }
        }
    }

    /// Tells the end of a READ.
    fn end(&mut self, index: u32, outcome: Outcome, completions: &mut Vec<Completion>) {
        let reading = &mut self.readings[index];
        debug_assert!(!reading.ended);
        reading.ended = true;
        self.reads -= 1;
        let flow = self.flows[reading.flow as usize].as_mut().expect("a flow outlives its READs");
        flow.reads -= 1;
        match outcome {
            Outcome::Done => {
                flow.counters.reads_done += 1;
                flow.counters.reads_recovered += u64::from(reading.is_recovered);
                self.totals.recovered += u64::from(reading.is_recovered);
            }
            Outcome::Refused(_) => flow.counters.reads_refused += 1,
            Outcome::Timeout => flow.counters.reads_timed_out += 1,
            Outcome::Lost => {}
        }
        completions.push(Completion { id: reading.id, outcome });
    }

    /// A packet's credit, place and timer are free again.
    fn release(&mut self, index: u32) {
        let packet = self.packets[index];
        self.wheel.disarm(index);
        self.packets.give_back(index);
        let reading = &mut self.readings[packet.reading];
        reading.packets -= 1;
        if reading.packets == 0 {
            debug_assert!(reading.ended);
            self.readings.give_back(packet.reading);
        }
        let bytes = packet.blocks * BLOCK_BYTES;
        self.bytes -= bytes;
        let place = &mut self.flows[packet.flow as usize];
        let flow = place.as_mut().expect("a flow outlives its packets");
        flow.bytes -= bytes;
        if flow.closing && flow.bytes == 0 {
            *place = None;
        }
    }

    fn flow(&self, id: FlowId) -> &Flow {
        let flow = self.flows.get(id.index as usize).and_then(Option::as_ref);
        flow.filter(|flow| flow.generation == id.generation && !flow.closing).expect("the flow is there")
    }

    fn flow_mut(&mut self, id: FlowId) -> &mut Flow {
        let flow = self.flows.get_mut(id.index as usize).and_then(Option::as_mut);
        flow.filter(|flow| flow.generation == id.generation && !flow.closing).expect("the flow is there")
    }

    /// The next 24 bits of splitmix64 (Steele, Lea and Flood, 2014).
    fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ mixed >> 31) >> 40).expect("24 bits")
    }
}

/// Hashes queue pair numbers: they are random and our own, so that nobody can make them collide.
#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    fn write_u32(&mut self, number: u32) {
        // The golden ratio (Knuth, TAOCP 6.4), since the map looks at the upper bits.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn index_of(index: usize) -> u32 {
    u32::try_from(index).expect("tables have fewer than 2^32 places")
}
