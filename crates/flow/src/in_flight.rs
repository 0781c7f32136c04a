// SPDX-License-Identifier: Apache-2.0
//! What was asked for over one carrier and not answered yet, and how much more may be.
//!
//! The engine enters each READ that a carrier takes and removes each that ends. Invariant: no more bytes are under way
//! than [`Credit`] allowed when they were asked for, of all flows and of each. One READ may always go, or a flow might
//! never be read. Cost: two look-ups a READ.

use std::collections::HashMap;
use std::hash::Hash;

/// Bytes that may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Of all flows.
    pub all_bytes: u64,
    /// Of one.
    pub flow_bytes: u64,
}

/// READs under way, by their ids; `F` names a flow.
#[derive(Debug)]
pub struct InFlight<F> {
    reads: HashMap<u64, (F, u64)>,
    of_flow: HashMap<F, u64>,
    bytes: u64,
}

impl<F> Default for InFlight<F> {
    fn default() -> Self {
        Self { reads: HashMap::new(), of_flow: HashMap::new(), bytes: 0 }
    }
}

impl<F: Copy + Eq + Hash> InFlight<F> {
    /// How many READs of a flow may go now, of those with these sizes, in order.
    #[must_use]
    pub fn fits(&self, flow: F, sizes_bytes: impl IntoIterator<Item = u64>, credit: Credit) -> usize {
        let (mut all, mut own) = (self.bytes, self.of(flow));
        let fits = |bytes: &u64| {
            let fits = (all == 0 || all + bytes <= credit.all_bytes) && (own == 0 || own + bytes <= credit.flow_bytes);
            (all, own) = (all + bytes, own + bytes);
            fits
        };
        sizes_bytes.into_iter().take_while(fits).count()
    }

    /// A READ is under way. Its id is no other one's.
    pub fn begin(&mut self, flow: F, id: u64, bytes: u64) {
        let before = self.reads.insert(id, (flow, bytes));
        debug_assert!(before.is_none(), "an id is given once");
        *self.of_flow.entry(flow).or_default() += bytes;
        self.bytes += bytes;
    }

    /// A READ has ended, however it did. One that is not under way changes nothing.
    pub fn end(&mut self, id: u64) {
        let Some((flow, bytes)) = self.reads.remove(&id) else { return };
        self.bytes -= bytes;
        if let Some(own) = self.of_flow.get_mut(&flow) {
            *own -= bytes;
        }
    }

    /// A flow is over, and all its READs have ended.
    pub fn forget(&mut self, flow: F) {
        let left = self.of_flow.remove(&flow);
        debug_assert!(left.is_none_or(|bytes| bytes == 0), "its READs end first");
    }

    /// Bytes of a flow.
    #[must_use]
    pub fn of(&self, flow: F) -> u64 {
        self.of_flow.get(&flow).copied().unwrap_or(0)
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
            let credit = Credit { all_bytes: (*all).into(), flow_bytes: (*own).into() };
            let mut in_flight = InFlight::default();
            let mut under_way: Vec<(u64, u8, u64)> = Vec::new();
            let mut ids = 0..;
            for (flow, sizes, ends) in steps {
                let flow = flow % 4;
                let sizes = sizes.iter().map(|bytes| u64::from(*bytes) + 1);
                let fits = in_flight.fits(flow, sizes.clone(), credit);
                for (bytes, id) in sizes.take(fits).zip(&mut ids) {
                    in_flight.begin(flow, id, bytes);
                    under_way.push((id, flow, bytes));
                }
                let of = |flow: Option<u8>| {
                    let mine = || under_way.iter().filter(|(_, other, _)| flow.is_none_or(|flow| flow == *other));
                    (mine().count(), mine().map(|(_, _, bytes)| bytes).sum::<u64>())
                };
                let (count, bytes) = of(None);
                assert_eq!(in_flight.bytes(), bytes);
                assert!(bytes <= credit.all_bytes || count == 1, "{count} of {bytes} bytes");
                for flow in 0..4 {
                    let (count, bytes) = of(Some(flow));
                    assert_eq!(in_flight.of(flow), bytes);
                    assert!(bytes <= credit.flow_bytes || count == 1, "{count} of {bytes} bytes");
                }
                for _ in 0..usize::from(*ends).min(under_way.len()) {
                    let (id, ..) = under_way.swap_remove(usize::from(*ends) % under_way.len());
                    in_flight.end(id);
                    in_flight.end(id);
                }
            }
            under_way.iter().for_each(|(id, ..)| in_flight.end(*id));
            (0..4).for_each(|flow| in_flight.forget(flow));
            assert_eq!(in_flight.bytes(), 0);
        });
    }
}
