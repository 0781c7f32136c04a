// SPDX-License-Identifier: Apache-2.0
//! A queue pair that sends READs, without a device and without the sockets: READs in, packets out and in, READs completed. Decisions depend on the calls and the times in
//! them alone.
//!
//! A device answers requests in the order of their numbers and executes none that is out of order, so this end keeps to that order, too: READs stand in a queue, each with as
//! many numbers as its answer has packets, and answers are taken in order only. Whatever is missing is asked for again together with all that follows it
//! (go-back-N): at once where a later answer shows the gap, once for all that was under way then, and else when the time-out is over. A READ of which a part has come is
//! repeated from the first packet that has not.
//!
//! Invariants: at most as many READs are under way as the host answers at once, so that it can repeat each of them; a READ that was given up keeps its numbers until they are
//! answered, and those answers are written nowhere; a number stands for the same bytes of the same READ as long as it is in use.

mod receive;
#[cfg(test)]
mod tests;

use super::Error;
use crate::soft::exchange::REQUEST_BYTES;
use crate::soft::rtt::{RTO_CAP_NS, Rtt};
use arrayvec::ArrayVec;
use onlooker_bootstrap::QueuePairEnd;
use onlooker_reader::{Broken, Completion, Fault, Outcome, Read};
use onlooker_wire::profile::BLOCK_BYTES;
use onlooker_wire::{Envelope, PATH_MTUS, Packet, Psn, Qpn, ReadRequest};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// READs under way at once, at most; fewer where the host's device answers fewer.
pub const MAX_READS_UNDER_WAY: usize = 16;
/// Longest READ: that of requesters over RDMA devices.
pub const MAX_READ_BLOCKS: u32 = 4;
/// Longest payload of an answer's packet: fits an MTU of 1500 bytes, and is one block.
pub const MTU_BYTES: u16 = 1024;
/// Time-outs without any progress after which the queue pair is given up; as with devices.
pub const MAX_REPEATS: u8 = 7;
/// After so many time-outs the next is longer by such a power of two: slowly at first, since most losses are single, and quickly then, since the host may be away for seconds.
const BACKOFFS: [u8; 8] = [0, 1, 2, 4, 6, 8, 10, 10];

/// What a queue pair has counted. Each packet that came is in exactly one of those from `answered` to `foreign`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests sent, repeats included.
    pub sent: u64,
    /// Requests sent again.
    pub repeated: u64,
    /// Requests that the system refused to send (no route, a firewall); they count as sent and lost.
    pub send_failed: u64,
    /// Time-outs: nothing of what was missing came.
    pub timeouts: u64,
    /// Gaps in the answers that were asked for again at once.
    pub gaps: u64,
    /// Answers with a congestion mark (RFC 3168 CE), whatever became of them.
    pub congestion_marked: u64,
    /// Packets of answers that were taken.
    pub answered: u64,
    /// Packets of answers that were in order, but of READs that had ended.
    pub late: u64,
    /// Dropped: came before.
    pub duplicate: u64,
    /// Dropped: an earlier one is missing.
    pub out_of_order: u64,
    /// Dropped: nothing was asked for with this number yet.
    pub unsent: u64,
    /// Dropped: not the part that was due, or not of its length.
    pub wrong_part: u64,
    /// Refusals, which end the queue pair.
    pub refused: u64,
    /// The host misses a request.
    pub missed: u64,
    /// Acknowledgements that no READ is answered with.
    pub not_ready: u64,
    /// Dropped: wrong ICRC.
    pub bad_icrc: u64,
    /// Dropped: no packet that answers a READ.
    pub malformed: u64,
    /// Dropped: of another host, or for another queue pair.
    pub foreign: u64,
    /// READs that ended as [`Outcome::Done`].
    pub reads_done: u64,
    /// READs that ended as [`Outcome::Refused`].
    pub reads_refused: u64,
    /// READs that ended as [`Outcome::Timeout`].
    pub reads_timed_out: u64,
}

/// A READ, until its last packet has come.
#[derive(Clone, Copy, Debug)]
struct Reading {
    id: u64,
    va: u64,
    rkey: u32,
    at: u32,
    deadline_ns: u64,
    /// Number of its first packet.
    first: Psn,
    packets: u32,
    /// Packets that have come.
    got: u32,
    sends: u32,
    sent_ns: u64,
    /// Its completion has been told.
    ended: bool,
}

impl Reading {
    /// Number of the first packet that has not come.
    fn missing(&self) -> Psn {
        self.first.wrapping_add(self.got)
    }

    /// The number behind its last packet.
    fn end(&self) -> Psn {
        self.first.wrapping_add(self.packets)
    }
}

/// State of one queue pair.
#[derive(Debug)]
pub struct Exchange {
    /// Around requests.
    outgoing: Envelope,
    own: Qpn,
    host: Qpn,
    mtu_bytes: u32,
    /// READs under way at once.
    window: usize,
    /// By number, oldest first. Those from `unsent` on are to be sent, the first of all perhaps in part.
    readings: VecDeque<Reading>,
    unsent: usize,
    /// READs that have not completed.
    reads: usize,
    /// Of the next READ.
    next: Psn,
    /// Behind the last number that was ever asked for.
    asked: Psn,
    /// A gap was asked for again: until all that was under way then has come, others are left to the time-out.
    recovers_to: Option<Psn>,
    /// What the host said last that it misses: it may say so for each later request.
    missed: Option<Psn>,
    /// When what is under way counts as lost.
    lost_ns: Option<u64>,
    /// Time-outs since the last packet that was taken.
    repeats: u8,
    /// Time-outs since the last round trip that could be measured (RFC 6298 5.5, 5.7).
    backoff: u8,
    /// A `backoff` below this gave time-outs that were too short for the way as it is, whatever was measured before.
    least_backoff: u8,
    /// The `backoff` of the last time-out, while it is not known whether that was too early.
    tried: Option<u8>,
    rtt: Rtt,
    staged: ArrayVec<[u8; REQUEST_BYTES], MAX_READS_UNDER_WAY>,
    broken: Option<Broken>,
    counters: Counters,
}

impl Exchange {
    /// For requests from `local`, a UDP port, to `peer`, the device's address at RoCEv2's port; `own` is what the host was told, `host` what it told.
    ///
    /// # Errors
    /// [`Error::Family`].
    pub fn new(local: SocketAddr, peer: SocketAddr, own: &QueuePairEnd, host: &QueuePairEnd) -> Result<Self, Error> {
        let families = |_| Error::Family { local: local.ip(), peer: peer.ip() };
        let told = own.mtu_bytes.min(host.mtu_bytes);
        // Those up to ours divide a block.
        let mtu_bytes = PATH_MTUS.into_iter().rev().find(|mtu| *mtu <= told.min(MTU_BYTES)).unwrap_or(PATH_MTUS[0]);
        let first = Psn::wrapping(own.packet);
        Ok(Self {
            outgoing: Envelope::socket(local, peer).map_err(families)?,
            own: Qpn::wrapping(own.queue_pair),
            host: Qpn::wrapping(host.queue_pair),
            mtu_bytes: mtu_bytes.into(),
            window: usize::from(host.reads_answered).clamp(1, MAX_READS_UNDER_WAY),
            readings: VecDeque::with_capacity(MAX_READS_UNDER_WAY),
            unsent: 0,
            reads: 0,
            next: first,
            asked: first,
            recovers_to: None,
            missed: None,
            lost_ns: None,
            repeats: 0,
            backoff: 0,
            least_backoff: 0,
            tried: None,
            rtt: Rtt::default(),
            staged: ArrayVec::new(),
            broken: None,
            counters: Counters::default(),
        })
    }

    /// What has been counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What has been measured.
    #[must_use]
    pub fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// READs that have not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.reads
    }

    /// Why the queue pair is of no use any more, if that is so.
    #[must_use]
    pub fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Takes READs, as many from the front as there are places for; a READ that was given up keeps its place until it is answered.
    ///
    /// # Panics
    /// If a READ has 0 blocks or more than [`MAX_READ_BLOCKS`].
    pub fn submit(&mut self, reads: &[Read]) -> usize {
        for (taken, read) in reads.iter().enumerate() {
            let Read { id, va, rkey, at, blocks, deadline_ns } = *read;
            assert!(
                (1..=MAX_READ_BLOCKS).contains(&blocks),
                "a READ of {blocks} blocks, at most {MAX_READ_BLOCKS} are allowed"
            );
            if self.readings.len() >= self.window {
                return taken;
            }
            let packets = blocks * (BLOCK_BYTES / self.mtu_bytes);
            let (first, got, sends, sent_ns, ended) = (self.next, 0, 0, 0, false);
            self.readings.push_back(Reading {
                id,
                va,
                rkey,
                at,
                deadline_ns,
                first,
                packets,
                got,
                sends,
                sent_ns,
                ended,
            });
            self.next = first.wrapping_add(packets);
            self.reads += 1;
        }
        reads.len()
    }

    /// Whether [`Exchange::stage`] has something.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.unsent < self.readings.len()
    }

    /// Prepares the requests that are to be sent: UDP payloads, in order. To be followed by [`Exchange::sent`] or [`Exchange::send_failed`].
    pub fn stage(&mut self) -> &[[u8; REQUEST_BYTES]] {
        self.staged.clear();
        for reading in self.readings.range(self.unsent..) {
            let got_bytes = reading.got * self.mtu_bytes;
            let request = ReadRequest {
                destination: self.host,
                psn: reading.missing(),
                va: reading.va.wrapping_add(got_bytes.into()),
                rkey: reading.rkey,
                length_bytes: reading.packets * self.mtu_bytes - got_bytes,
            };
            let mut bytes = [0; REQUEST_BYTES];
            let written = Packet::from(request).write_datagram(&self.outgoing, &mut bytes);
            debug_assert_eq!(written, Ok(REQUEST_BYTES));
            self.staged.push(bytes);
        }
        &self.staged
    }

    /// So many from the front of what was staged were sent.
    ///
    /// # Panics
    /// If fewer were staged.
    pub fn sent(&mut self, count: usize, now_ns: u64) {
        for reading in self.readings.range_mut(self.unsent..self.unsent + count) {
            self.counters.sent += 1;
            self.counters.repeated += u64::from(reading.sends > 0);
            reading.sends = reading.sends.saturating_add(1);
            reading.sent_ns = now_ns;
            if reading.end().is_after(self.asked) {
                self.asked = reading.end();
            }
        }
        self.unsent += count;
        if count > 0 && self.lost_ns.is_none() {
            self.lost_ns = Some(now_ns.saturating_add(self.rto_ns()));
        }
    }

    /// The system refused the first of what was staged; it counts as sent and lost.
    ///
    /// # Panics
    /// If nothing was staged.
    pub fn send_failed(&mut self, now_ns: u64) {
        self.sent(1, now_ns);
        self.counters.send_failed += 1;
    }

    /// Lets time pass: READs past their deadline complete, what is lost is to be sent again, and what was lost too often ends everything.
    pub fn advance(&mut self, now_ns: u64, completions: &mut Vec<Completion>) {
        for index in 0..self.readings.len() {
            if now_ns >= self.readings[index].deadline_ns {
                self.end(index, Outcome::Timeout, completions);
            }
        }
        if self.lost_ns.is_none_or(|lost_ns| now_ns < lost_ns) {
            return;
        }
        self.counters.timeouts += 1;
        if self.repeats == MAX_REPEATS {
            self.give_up(Broken::QueuePair(Fault::NoAnswer), completions);
            return;
        }
        self.repeats += 1;
        self.backoff = self.backoff.saturating_add(1);
        self.tried = Some(self.backoff);
        self.recovers_to = Some(self.asked);
        self.go_back(0);
    }

    /// When [`Exchange::advance`] next has something to do.
    #[must_use]
    pub fn wake_ns(&self) -> Option<u64> {
        let open = self.readings.iter().filter(|reading| !reading.ended);
        open.map(|reading| reading.deadline_ns).chain(self.lost_ns).min()
    }

    /// Ends everything; only the first reason counts.
    pub fn give_up(&mut self, broken: Broken, completions: &mut Vec<Completion>) {
        self.broken.get_or_insert(broken);
        for index in 0..self.readings.len() {
            self.end(index, Outcome::Lost, completions);
        }
        self.readings.clear();
        self.staged.clear();
        (self.unsent, self.lost_ns) = (0, None);
    }

    /// Tells the end of a READ, unless it was told.
    fn end(&mut self, index: usize, outcome: Outcome, completions: &mut Vec<Completion>) {
        let reading = &mut self.readings[index];
        if std::mem::replace(&mut reading.ended, true) {
            return;
        }
        self.reads -= 1;
        match outcome {
            Outcome::Done => self.counters.reads_done += 1,
            Outcome::Refused(_) => self.counters.reads_refused += 1,
            Outcome::Timeout => self.counters.reads_timed_out += 1,
            Outcome::Lost => {}
        }
        completions.push(Completion { id: reading.id, outcome });
    }

    /// All from there on is to be sent again; its time-out begins when it is.
    fn go_back(&mut self, index: usize) {
        self.unsent = self.unsent.min(index);
        self.lost_ns = None;
    }

    fn rto_ns(&self) -> u64 {
        let doublings = BACKOFFS.get(usize::from(self.backoff)).copied().unwrap_or(BACKOFFS[BACKOFFS.len() - 1]);
        (self.rtt.rto_ns(0) << doublings).min(RTO_CAP_NS)
    }
}

const _: () = assert!(BLOCK_BYTES.is_multiple_of(MTU_BYTES as u32));
// The longest time-out doubled so often does not overflow.
const _: () = assert!(RTO_CAP_NS < u64::MAX >> BACKOFFS[BACKOFFS.len() - 1]);
