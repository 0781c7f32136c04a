// SPDX-License-Identifier: Apache-2.0
//! One host as a requester knows it: addresses, queue pair, sequence numbers, what came of them.

use super::REQUEST_BYTES;
use crate::soft::Error;
use crate::soft::rtt::Rtt;
use onlooker_wire::icrc::{Begun, ICRC_BYTES};
use onlooker_wire::profile::{BLOCK_BYTES, DEFAULT_MAX_READ_BYTES, LARGEST_MAX_READ_BYTES};
use onlooker_wire::{Aeth, Bth, Envelope, Psn, Qpn};
use std::net::SocketAddr;

/// Places of the window of sequence numbers per packet in flight: so long is remembered what became of a number.
const PLACES_PER_PACKET: usize = 4;
/// Places to begin with. Most hosts never have more than a few packets under way.
const FIRST_PLACES: usize = 64;

/// What a host allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowConfig {
    /// Longest answer: what the bootstrap endpoint says of this responder, and what fits the path's MTU. A multiple of 1024, at most 8192.
    pub max_read_bytes: u32,
    /// Bytes asked for and not answered, at most; at least `max_read_bytes`.
    pub credit_bytes: u32,
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self { max_read_bytes: DEFAULT_MAX_READ_BYTES, credit_bytes: 256 << 10 }
    }
}

impl FlowConfig {
    pub(super) fn check(self) -> Result<Self, Error> {
        let Self { max_read_bytes, credit_bytes } = self;
        let whole = max_read_bytes.is_multiple_of(BLOCK_BYTES);
        if !whole || !(BLOCK_BYTES..=LARGEST_MAX_READ_BYTES).contains(&max_read_bytes) {
            return Err(Error::MaxReadBytes(max_read_bytes));
        }
        if credit_bytes < max_read_bytes {
            return Err(Error::Credit { credit_bytes, max_read_bytes });
        }
        Ok(self)
    }
}

/// What a flow has counted since it was added. Packets, but for the READs at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests sent, repeats included.
    pub sent: u64,
    /// Requests that were not answered in time and were sent again.
    pub repeated: u64,
    /// Requests that the system refused to send (no route, a firewall); repeated like lost ones.
    pub send_failed: u64,
    /// Answers taken.
    pub answered: u64,
    /// Answers with a congestion mark (RFC 3168 CE).
    pub congestion_marked: u64,
    /// Refusals (NAK).
    pub refused: u64,
    /// "Not now" (receiver not ready, PSN sequence error): the time-out repeats the request.
    pub not_ready: u64,
    /// Dropped: answers to requests that had been given up as lost, or whose READ had ended.
    pub late: u64,
    /// Dropped: further answers to a request that was answered.
    pub duplicate: u64,
    /// Dropped: from this host to this flow, but with a sequence number that was not used yet.
    pub unsent: u64,
    /// Dropped: wrong ICRC.
    pub bad_icrc: u64,
    /// Dropped: another length than was asked for.
    pub wrong_length: u64,
    /// Dropped: anything else that is no answer in one packet.
    pub malformed: u64,
    /// READs that ended as [`onlooker_reader::Outcome::Done`].
    pub reads_done: u64,
    /// Of them, READs of which a request had been sent again and was answered then.
    pub reads_recovered: u64,
    /// READs that ended as [`onlooker_reader::Outcome::Refused`].
    pub reads_refused: u64,
    /// READs that ended as [`onlooker_reader::Outcome::Timeout`].
    pub reads_timed_out: u64,
}

/// A place of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing was sent with this number.
    Unused,
    /// Sent; the packet waits for its answer.
    Waiting(u32),
    /// Given up as lost; when it was sent, in [`sent_at`]'s units.
    Lost(u32),
    /// Too long ago to be told.
    Forgotten,
    /// Answered.
    Answered,
}

/// Units of about a millisecond: what is late took that long, and four bytes last for 52 days.
const SENT_SHIFT: u32 = 20;

/// A time in these units, come round.
#[allow(clippy::cast_possible_truncation)] // meant
pub(super) fn sent_at(now_ns: u64) -> u32 {
    (now_ns >> SENT_SHIFT) as u32
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) peer: SocketAddr,
    pub(super) config: FlowConfig,
    /// Around requests and around answers.
    pub(super) outgoing: Begun,
    pub(super) incoming: Begun,
    /// Of this incarnation: kernel responders keep no connections and send it back.
    pub(super) qpn: Qpn,
    pub(super) next_psn: Psn,
    /// Indexed by the low bits of a sequence number.
    window: Box<[(Psn, Place)]>,
    /// Bytes of packets that hold credit.
    pub(super) bytes: u32,
    /// READs that have not ended.
    pub(super) reads: usize,
    /// Removed by its owner; goes when its last packet has.
    pub(super) closing: bool,
    pub(super) generation: u32,
    pub(super) counters: Counters,
    pub(super) rtt: Rtt,
}

impl Flow {
    pub(super) fn new(
        local: SocketAddr,
        peer: SocketAddr,
        config: FlowConfig,
        (qpn, psn): (Qpn, Psn),
        generation: u32,
    ) -> Result<Self, Error> {
        let config = config.check()?;
        let begun = |from, to, payload_bytes| {
            let begun = Envelope::socket(from, to).and_then(|envelope| Begun::new(envelope, payload_bytes));
            begun.map_err(|_| Error::Family { local, peer })
        };
        Ok(Self {
            peer,
            config,
            outgoing: begun(local, peer, REQUEST_BYTES)?,
            incoming: begun(peer, local, Bth::BYTES + Aeth::BYTES + config.max_read_bytes as usize + ICRC_BYTES)?,
            qpn,
            next_psn: psn,
            window: vec![(psn, Place::Unused); FIRST_PLACES].into(),
            bytes: 0,
            reads: 0,
            closing: false,
            generation,
            counters: Counters::default(),
            rtt: Rtt::default(),
        })
    }

    /// Packets of so many bytes more are to go: there are places for all of them.
    pub(super) fn take(&mut self, bytes: u32) {
        self.bytes += bytes;
        let places = ((self.bytes / BLOCK_BYTES) as usize * PLACES_PER_PACKET).next_power_of_two();
        if places > self.window.len() {
            let new = vec![(self.next_psn, Place::Unused); places].into();
            for (psn, place) in std::mem::replace(&mut self.window, new) {
                if place != Place::Unused {
                    let index = self.index(psn);
                    self.window[index] = (psn, place);
                }
            }
        }
    }

    /// A number that nobody waits for, now the packet's. Numbers whose place is held by a slow packet are passed over, so that the window
    /// never forgets whom an answer is for; there are four places for each packet.
    pub(super) fn number(&mut self, packet: u32) -> Psn {
        loop {
            let psn = self.next_psn;
            self.next_psn = psn.wrapping_add(1);
            let place = self.index(psn);
            if !matches!(self.window[place].1, Place::Waiting(_)) {
                self.window[place] = (psn, Place::Waiting(packet));
                return psn;
            }
        }
    }

    /// What became of a number of ours.
    pub(super) fn settle(&mut self, psn: Psn, place: Place) {
        let index = self.index(psn);
        debug_assert_eq!(self.window[index].0, psn);
        self.window[index].1 = place;
    }

    /// What is known of a number that came in.
    pub(super) fn look_up(&self, psn: Psn) -> Place {
        match self.window[self.index(psn)] {
            (known, place) if known == psn => place,
            // Behind the window: half the circle of 2^24 is taken as the past (IBA 9.7.1).
            _ if psn.distance_from(self.next_psn) < 0 => Place::Forgotten,
            _ => Place::Unused,
        }
    }

    /// An answer to what was given up: the path is slower than was thought.
    pub(super) fn learn(&mut self, psn: Psn, sent: u32, now_ns: u64) {
        self.rtt.record(u64::from(sent_at(now_ns).wrapping_sub(sent)) << SENT_SHIFT);
        self.settle(psn, Place::Answered);
    }

    fn index(&self, psn: Psn) -> usize {
        psn.get() as usize & (self.window.len() - 1)
    }
}
