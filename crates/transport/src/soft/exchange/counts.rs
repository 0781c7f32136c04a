// SPDX-License-Identifier: Apache-2.0
//! What an exchange counts of all flows together.

use std::ops::AddAssign;

/// Datagrams that belong to no flow, dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strays {
    /// For a queue pair that is none of ours, or from another address than that flow's host.
    pub foreign: u64,
    /// Too short or too odd to tell whom they are for.
    pub malformed: u64,
}

/// What a socket has counted, of all flows that there ever were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests sent, repeats included.
    pub sent: u64,
    /// Of them, requests that went past the kernel's UDP.
    pub bypassed: u64,
    /// Requests that were not answered in time and were sent again.
    pub repeated: u64,
    /// READs of which a request was answered after it had been sent again: something was lost, or late.
    pub recovered: u64,
    /// Requests that the system refused to send; repeated like lost ones.
    pub send_failed: u64,
    /// Times that the system had no room for a request, which waits and is offered again.
    pub no_room: u64,
    /// Answers with a congestion mark.
    pub congestion_marked: u64,
    /// Datagrams received that ended nothing: no answers, or such as nobody waits for.
    pub dropped: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, more: Self) {
        let Self { sent, bypassed, repeated, recovered, send_failed, no_room, congestion_marked, dropped } = more;
        self.sent += sent;
        self.bypassed += bypassed;
        self.repeated += repeated;
        self.recovered += recovered;
        self.send_failed += send_failed;
        self.no_room += no_room;
        self.congestion_marked += congestion_marked;
        self.dropped += dropped;
    }
}
