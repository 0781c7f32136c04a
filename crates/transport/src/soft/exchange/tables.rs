// SPDX-License-Identifier: Apache-2.0
//! What an exchange keeps of READs and of their packets, in tables of fixed size.

use onlooker_wire::Psn;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In `queue`, or in `staged` with its number.
    Queued,
    /// Waits for its answer.
    Sent,
}

/// Part of a READ that one answer brings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) reading: u32,
    pub(super) flow: u32,
    /// From the READ's begin.
    pub(super) offset_blocks: u32,
    pub(super) blocks: u32,
    pub(super) state: State,
    pub(super) repeats: u8,
    /// When it was sent, it went past the kernel's UDP.
    pub(super) is_bypassed: bool,
    pub(super) psn: Psn,
    pub(super) sent_ns: u64,
    /// When it is given up as lost.
    pub(super) lost_ns: u64,
}

impl Packet {
    /// Queued for the first time.
    pub(super) const NONE: Self = Self {
        reading: 0,
        flow: 0,
        offset_blocks: 0,
        blocks: 0,
        state: State::Queued,
        repeats: 0,
        is_bypassed: false,
        psn: Psn::wrapping(0),
        sent_ns: 0,
        lost_ns: 0,
    };
}

/// A READ, until its last packet is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) id: u64,
    pub(super) va: u64,
    pub(super) rkey: u32,
    pub(super) at: u32,
    pub(super) deadline_ns: u64,
    pub(super) flow: u32,
    pub(super) packets: u32,
    /// A packet of it was answered after it had been sent again.
    pub(super) is_recovered: bool,
    /// Its completion has been told; packets that are left only hold credit.
    pub(super) ended: bool,
}

impl Reading {
    /// In a place that is free.
    pub(super) const NONE: Self =
        Self { id: 0, va: 0, rkey: 0, at: 0, deadline_ns: 0, flow: 0, packets: 0, is_recovered: false, ended: true };
}

/// A fixed number of places and which of them are free.
#[derive(Debug)]
pub(super) struct Pool<T> {
    pub(super) places: Box<[T]>,
    free: Vec<u32>,
}

impl<T: Copy> Pool<T> {
    pub(super) fn new(size: u32, empty: T) -> Self {
        Self { places: vec![empty; size as usize].into(), free: (0..size).rev().collect() }
    }

    /// `None` if all are taken.
    pub(super) fn take(&mut self, value: T) -> Option<u32> {
        let index = self.free.pop()?;
        self.places[index as usize] = value;
        Some(index)
    }

    pub(super) fn give_back(&mut self, index: u32) {
        self.free.push(index);
    }
}

impl<T> std::ops::Index<u32> for Pool<T> {
    type Output = T;
    fn index(&self, index: u32) -> &T {
        &self.places[index as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Pool<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.places[index as usize]
    }
}
