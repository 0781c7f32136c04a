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
//! Cost: a few additions a READ, no look-up.

use crate::FlowId;

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
}

impl Room {
    /// None at all: others are first.
    pub const NONE: Self = Self { reads: 0, is_short: true };
}

/// Bytes under way, by host.
#[derive(Debug, Default)]
pub struct InFlight {
    of_host: Vec<u64>,
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
                break;
            }
            if all > 0 && all + bytes > credit.all_bytes {
                return Room { reads, is_short: true };
            }
            (all, own, reads) = (all + bytes, own + bytes, reads + 1);
        }
        Room { reads, is_short: false }
    }

    /// A READ is under way. It was in the room that there was with this credit.
    pub fn begin(&mut self, host: FlowId, bytes: u64, credit: Credit) {
        let index = host.0 as usize;
        if index >= self.of_host.len() {
            self.of_host.resize(index + 1, 0);
        }
        let own = &mut self.of_host[index];
        debug_assert!(self.bytes == 0 || self.bytes + bytes <= credit.all_bytes, "{self:?} {bytes} {credit:?}");
        debug_assert!(*own == 0 || *own + bytes <= credit.host_bytes, "{own} {bytes} {credit:?}");
        *own += bytes;
        self.bytes += bytes;
    }

    /// A READ has ended, however it did.
    ///
    /// # Panics
    /// If more ends than has begun.
    pub fn end(&mut self, host: FlowId, bytes: u64) {
        let own = self.of_host.get_mut(host.0 as usize).filter(|own| **own >= bytes);
        *own.expect("what ends has begun") -= bytes;
        self.bytes -= bytes;
    }

    /// All READs of a host are over.
    pub fn forget(&mut self, host: FlowId) {
        if let Some(own) = self.of_host.get_mut(host.0 as usize) {
            self.bytes -= std::mem::take(own);
        }
    }

    /// Bytes of a host.
    #[must_use]
    pub fn of(&self, host: FlowId) -> u64 {
        self.of_host.get(host.0 as usize).copied().unwrap_or(0)
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
                    in_flight.begin(host, *bytes, credit);
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
                    assert!(room.is_short || is_bound, "a READ waits for nothing");
                }
                for host in (0..4).map(FlowId) {
                    let (count, bytes) = of(Some(host));
                    assert_eq!(in_flight.of(host), bytes);
                    assert!(bytes <= credit.host_bytes || count == 1, "{count} of {bytes} bytes");
                }
                for _ in 0..usize::from(*ends).min(under_way.len()) {
                    let (host, bytes) = under_way.swap_remove(usize::from(*ends) % under_way.len());
                    in_flight.end(host, bytes);
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
        in_flight.begin(FlowId(1), 1, credit);
        in_flight.begin(FlowId(0), 1, credit);
        in_flight.end(FlowId(1), 1);
        in_flight.end(FlowId(1), 1);
    }
}
