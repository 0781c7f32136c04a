// SPDX-License-Identifier: Apache-2.0
//! What was asked for and not answered yet, over everything that carries READs, and how much more may be.
//!
//! The engine enters each READ that a carrier takes and removes each that ends; one that nobody answers ends with its
//! time-out. Invariant, checked with each READ: no more bytes are under way than [`Credit`] allowed when it was asked
//! for, of all hosts and of its own. A credit that shrinks takes nothing back.
//!
//! A READ alone may always go, whatever the credit: one of *all*, not one of each host. The published flow control
//! gives each flow one fragment at least, so that many flows are more than the total just when the network is full.
//! Here hosts wait instead, and nobody waits for ever: who has waited is asked first ([`crate::Line`]).
//!
//! It also times answers. Which READ of a host has ended it does not know: the oldest one counts, which changes no sum.
//! Cost: a few additions and a time kept for a READ, no look-up.

use std::collections::VecDeque;

use crate::FlowId;

/// The quickest answer of a host is forgotten by this part of it with each slower one.
const FORGOTTEN_PART: u64 = 1024;
/// No queue of a network is that long, ns.
const STALLED_NS: u64 = 10_000_000;

/// Bytes that may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Of all hosts.
    pub all_bytes: u64,
    /// Of one, beyond its first READ.
    pub host_bytes: u64,
}

/// READs that may go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// So many of those that were asked about, from the front.
    pub reads: usize,
    /// What stops the next one is the credit of all.
    pub is_short: bool,
    /// What stops it is the host's own.
    pub is_at_own: bool,
}

impl Room {
    /// Of who has nothing to ask for.
    pub const UNASKED: Self = Self { reads: 0, is_short: false, is_at_own: false };
    /// None at all: others are first.
    pub const NONE: Self = Self { reads: 0, is_short: true, is_at_own: false };
}

/// How long a READ was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    /// This one at least: what passed between two looks of the reader is no queue's doing, as far as it knows.
    pub ns: u64,
    /// The quickest of its host lately.
    pub least_ns: u64,
}

/// What is under way of one host.
#[derive(Debug, Default)]
struct Own {
    bytes: u64,
    /// When each READ began, the oldest first.
    begun_ns: VecDeque<u64>,
    least_ns: Option<u64>,
}

/// Bytes under way, by host.
#[derive(Debug, Default)]
pub struct InFlight {
    of_host: Vec<Own>,
    bytes: u64,
}

impl InFlight {
    /// How many READs of a host may go now, of those with these sizes, in order.
    #[must_use]
    pub fn room(&self, host: FlowId, sizes_bytes: impl IntoIterator<Item = u64>, credit: Credit) -> Room {
        let (mut all, mut own) = (self.bytes, self.of(host));
        let mut reads = 0;
        for bytes in sizes_bytes {
            // Who is at its own bound stops nobody else.
            if own > 0 && own + bytes > credit.host_bytes {
                return Room { reads, is_short: false, is_at_own: true };
            }
            if all > 0 && all + bytes > credit.all_bytes {
                return Room { reads, is_short: true, is_at_own: false };
            }
            (all, own, reads) = (all + bytes, own + bytes, reads + 1);
        }
        Room { reads, is_short: false, is_at_own: false }
    }

    /// A READ is under way. It was in the room that there was with this credit.
    pub fn begin(&mut self, host: FlowId, bytes: u64, credit: Credit, now_ns: u64) {
        let index = host.0 as usize;
        if index >= self.of_host.len() {
            self.of_host.resize_with(index + 1, Own::default);
        }
        let own = &mut self.of_host[index];
        debug_assert!(self.bytes == 0 || self.bytes + bytes <= credit.all_bytes, "{} {bytes} {credit:?}", self.bytes);
        debug_assert!(own.bytes == 0 || own.bytes + bytes <= credit.host_bytes, "{own:?} {bytes} {credit:?}");
        own.bytes += bytes;
        own.begun_ns.push_back(now_ns);
        self.bytes += bytes;
    }

    /// A READ has ended, however it did. It is seen now, and was not when the reader looked before, at `looked_ns`.
    ///
    /// # Panics
    /// If more ends than has begun.
    pub fn end(&mut self, host: FlowId, bytes: u64, looked_ns: u64, now_ns: u64) -> Took {
        let own = self.of_host.get_mut(host.0 as usize).filter(|own| own.bytes >= bytes);
        let own = own.expect("what ends has begun");
        let begun_ns = own.begun_ns.pop_front().expect("what ends has begun");
        own.bytes -= bytes;
        self.bytes -= bytes;
        let [ns, most_ns] = [looked_ns.min(now_ns), now_ns].map(|ended_ns| ended_ns.saturating_sub(begun_ns));
        let least_ns = own.least_ns.map_or(most_ns, |least_ns| most_ns.min(least_ns + least_ns / FORGOTTEN_PART + 1));
        own.least_ns = Some(least_ns);
        Took { ns, least_ns }
    }

    /// All READs of a host are over, and how quick it was is forgotten.
    pub fn forget(&mut self, host: FlowId) {
        if let Some(own) = self.of_host.get_mut(host.0 as usize) {
            self.bytes -= std::mem::take(own).bytes;
        }
    }

    /// Bytes of a host that has answered nothing for so long that they stand in no queue of the network.
    #[must_use]
    pub fn stalled(&self, host: FlowId, now_ns: u64) -> u64 {
        let own = self.of_host.get(host.0 as usize);
        let is_stalled = |own: &&Own| own.begun_ns.front().is_some_and(|begun_ns| now_ns >= begun_ns + STALLED_NS);
        own.filter(is_stalled).map_or(0, |own| own.bytes)
    }

    /// Bytes of a host.
    #[must_use]
    pub fn of(&self, host: FlowId) -> u64 {
        self.of_host.get(host.0 as usize).map_or(0, |own| own.bytes)
    }

    /// Bytes of all.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is asked and whatever ends: no more than the credit, or one READ alone.
    #[test]
    fn no_more_is_under_way_than_credit_allows() {
        bolero::check!().with_type::<(u16, u16, Vec<(u8, Vec<u16>, u8)>)>().for_each(|(all, own, steps)| {
            let credit = Credit { all_bytes: (*all).into(), host_bytes: (*own).into() };
            let mut in_flight = InFlight::default();
            let mut under_way: Vec<(FlowId, u64)> = Vec::new();
            for (host, sizes, ends) in steps {
                let host = FlowId(u32::from(host % 4));
                let sizes: Vec<u64> = sizes.iter().map(|bytes| u64::from(*bytes) + 1).collect();
                let room = in_flight.room(host, sizes.iter().copied(), credit);
                for bytes in &sizes[..room.reads] {
                    in_flight.begin(host, *bytes, credit, 0);
                    under_way.push((host, *bytes));
                }
                let of = |host: Option<FlowId>| {
                    let mine = || under_way.iter().filter(|(other, _)| host.is_none_or(|host| host == *other));
                    (mine().count(), mine().map(|(_, bytes)| bytes).sum::<u64>())
                };
                let (count, bytes) = of(None);
                assert_eq!(in_flight.bytes(), bytes);
                assert!(bytes <= credit.all_bytes || count == 1, "{count} of {bytes} bytes");
                if let Some(next) = sizes.get(room.reads) {
                    let own = in_flight.of(host);
                    let is_bound = own > 0 && own + next > credit.host_bytes;
                    assert_eq!(room.is_short, !is_bound && bytes + next > credit.all_bytes);
                    assert_eq!(room.is_at_own, is_bound);
                    assert!(room.is_short || is_bound, "a READ waits for nothing");
                }
                for host in (0..4).map(FlowId) {
                    let (count, bytes) = of(Some(host));
                    assert_eq!(in_flight.of(host), bytes);
                    assert!(bytes <= credit.host_bytes || count == 1, "{count} of {bytes} bytes");
                }
                for _ in 0..usize::from(*ends).min(under_way.len()) {
                    let (host, bytes) = under_way.swap_remove(usize::from(*ends) % under_way.len());
                    in_flight.end(host, bytes, 0, 0);
                }
            }
            (0..4).for_each(|host| in_flight.forget(FlowId(host)));
            assert_eq!(in_flight.bytes(), 0);
        });
    }

    #[test]
    #[should_panic(expected = "what ends has begun")]
    fn what_ends_twice_is_noticed() {
        let credit = Credit { all_bytes: 2, host_bytes: 2 };
        let mut in_flight = InFlight::default();
        in_flight.begin(FlowId(1), 1, credit, 0);
        in_flight.begin(FlowId(0), 1, credit, 0);
        in_flight.end(FlowId(1), 1, 0, 0);
        in_flight.end(FlowId(1), 1, 0, 0);
    }

    #[test]
    fn who_answers_nothing_has_stalled() {
        let credit = Credit { all_bytes: 100, host_bytes: 100 };
        let mut in_flight = InFlight::default();
        [5, 6].into_iter().for_each(|now_ns| in_flight.begin(FlowId(1), 10, credit, now_ns));
        let of = |in_flight: &InFlight, host, now_ns| in_flight.stalled(FlowId(host), now_ns);
        assert_eq!([4, 5].map(|ns| of(&in_flight, 1, STALLED_NS + ns)), [0, 20]);
        in_flight.end(FlowId(1), 10, 7, 7);
        assert_eq!([5, 6].map(|ns| of(&in_flight, 1, STALLED_NS + ns)), [0, 10]);
        assert_eq!([0, 2].map(|host| of(&in_flight, host, u64::MAX)), [0, 0]);
    }

    #[test]
    fn answers_are_timed_beside_the_quickest_of_their_host() {
        let credit = Credit { all_bytes: 100, host_bytes: 100 };
        let mut in_flight = InFlight::default();
        let mut took = |host, begun_ns, ended_ns| {
            in_flight.begin(FlowId(host), 1, credit, begun_ns);
            in_flight.end(FlowId(host), 1, ended_ns, ended_ns)
        };
        assert_eq!(took(0, 5, 25), Took { ns: 20, least_ns: 20 });
        assert_eq!(took(1, 5, 1005), Took { ns: 1000, least_ns: 1000 });
        assert_eq!(
            took(0, 30, 130),
            Took { ns: 100, least_ns: 21 },
            "a way that has become longer is believed in the end"
        );
        assert_eq!(took(0, 30, 40), Took { ns: 10, least_ns: 10 });
        in_flight.forget(FlowId(0));
        in_flight.begin(FlowId(0), 1, credit, 0);
        assert_eq!(in_flight.end(FlowId(0), 1, 70, 70), Took { ns: 70, least_ns: 70 });
    }

    #[test]
    fn a_reader_that_was_busy_does_not_take_that_for_the_network() {
        let credit = Credit { all_bytes: 100, host_bytes: 100 };
        let mut in_flight = InFlight::default();
        let mut took = |looked_ns, ended_ns| {
            in_flight.begin(FlowId(0), 1, credit, 100);
            in_flight.end(FlowId(0), 1, looked_ns, ended_ns)
        };
        assert_eq!(took(120, 130), Took { ns: 20, least_ns: 30 }, "it may have come just after");
        assert_eq!(took(90, 9_100), Took { ns: 0, least_ns: 31 }, "it may have come at once");
        assert_eq!(took(9_000, 9_010), Took { ns: 8_900, least_ns: 32 }, "it was not there for long");
    }
}
