// SPDX-License-Identifier: Apache-2.0
//! Which READs go when, by the scheme: the real code of the controller for ours and for the published credits.

use std::collections::HashMap;
use std::iter::repeat_n;

use onlooker_flow::{
    Credit, Credits, Due, FlowId, InFlight, Limits, Line, Priority, Room, Schedule, Served, Sharing, Took,
};

use crate::Cluster;
use crate::cluster::FRAGMENT_BYTES;

/// What bounds READs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Nothing: requests over TCP, a thread that reads the sockets.
    Tcp,
    /// READs, bounded by the card alone.
    Unbounded,
    /// The bandwidth-delay product for each host.
    Product,
    /// The published credits: T divided by the hosts in a reading, a fragment at least.
    Published,
    /// Ours: a total that follows the network, a line by class, 128 hosts in a reading at once.
    Ours,
}

impl Scheme {
    /// All.
    pub const ALL: [Self; 5] = [Self::Tcp, Self::Unbounded, Self::Product, Self::Published, Self::Ours];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Unbounded => "unbounded",
            Self::Product => "product",
            Self::Published => "published",
            Self::Ours => "ours",
        }
    }
}

/// Hosts of ours in a reading at once: the engine's.
const WINDOW: usize = 128;
/// Of one host at most: the engine's.
const HOST_BYTES: u32 = 256 << 10;
/// Ours has at most: the engine's.
const MOST_BYTES: u32 = 4 << 20;

struct Host {
    flow: FlowId,
    priority: Priority,
    /// Fragments that were not asked for, and that have not come.
    unasked: u64,
    missing: u64,
}

pub(crate) struct Reader {
    scheme: Scheme,
    cluster: Cluster,
    hosts: Vec<Host>,
    by_flow: HashMap<FlowId, usize>,
    schedule: Schedule,
    line: Line<usize>,
    in_flight: InFlight,
    credits: Credits,
    due: Vec<Due>,
}

impl Reader {
    /// `is_high`: whether a host is of the class before the others.
    pub(crate) fn new(
        scheme: Scheme,
        cluster: Cluster,
        hosts: usize,
        fragments: u64,
        is_high: impl Fn(usize) -> bool,
    ) -> Self {
        let mut schedule = Schedule::new(if scheme == Scheme::Ours { WINDOW } else { hosts });
        let hosts: Vec<Host> = (0..hosts)
            .map(|host| {
                let priority = if is_high(host) { Priority::High } else { Priority::Normal };
                // All are due at once.
                let flow = schedule.add(1, priority, 0);
                Host { flow, priority, unasked: fragments, missing: fragments }
            })
            .collect();
        let by_flow = hosts.iter().enumerate().map(|(index, host)| (host.flow, index)).collect();
        let credits = match scheme {
            Scheme::Published => Credits::new(Limits::up_to(cluster.credit_bytes), Sharing::Published),
            _ => Credits::new(Limits::up_to(MOST_BYTES), Sharing::Total),
        };
        let (line, in_flight, due) = (Line::default(), InFlight::default(), Vec::new());
        Self { scheme, cluster, hosts, by_flow, schedule, line, in_flight, credits, due }
    }

    /// Begins what is due. READs that go, by host, are appended to `asked`.
    pub(crate) fn begin(&mut self, now_ns: u64, asked: &mut Vec<usize>) {
        self.due.clear();
        self.schedule.begin(now_ns, &mut self.due);
        for due in &self.due {
            let index = self.by_flow[&due.flow];
            self.line.push(index, self.hosts[index].priority);
        }
        if self.scheme == Scheme::Ours {
            self.serve(now_ns, asked);
        } else {
            (0..self.hosts.len()).for_each(|host| self.ask(host, now_ns, asked));
        }
    }

    /// A fragment has come. True: it was the host's last.
    pub(crate) fn answered(&mut self, host: usize, is_marked: bool, now_ns: u64, asked: &mut Vec<usize>) -> bool {
        let Host { flow, missing, .. } = &mut self.hosts[host];
        *missing -= 1;
        let (flow, is_last) = (*flow, *missing == 0);
        let took = self.in_flight.end(flow, FRAGMENT_BYTES, now_ns, now_ns);
        self.heed(took, is_marked, now_ns);
        if is_last {
            self.schedule.remove(flow);
            self.line.retain(|other| other != host);
        }
        if self.scheme != Scheme::Ours {
            self.ask(host, now_ns, asked);
        } else if is_last {
            self.begin(now_ns, asked);
        } else {
            self.serve(now_ns, asked);
        }
        is_last
    }

    /// A fragment came only when it was asked for again.
    pub(crate) fn recovered(&mut self) {
        self.credits.recovered(1);
    }

    /// Bytes that may be under way.
    pub(crate) fn total_bytes(&self) -> u32 {
        self.credits.total_bytes()
    }

    fn heed(&mut self, took: Took, is_marked: bool, now_ns: u64) {
        self.credits.answered(FRAGMENT_BYTES, took);
        self.credits.congestion(is_marked.into());
        self.credits.advance(now_ns, took.ns);
    }

    /// Hosts take turns within the total.
    fn serve(&mut self, now_ns: u64, asked: &mut Vec<usize>) {
        let credit = self.credits.credit(HOST_BYTES, self.line.len(), self.in_flight.bytes(), 0);
        let Self { line, hosts, in_flight, credits, .. } = self;
        line.serve(|index, is_late| {
            let host = &mut hosts[index];
            if is_late || host.unasked == 0 {
                return Served::Done;
            }
            let room = go(in_flight, host, credit, now_ns);
            asked.extend(repeat_n(index, room.reads));
            credits.refused(room, credit, HOST_BYTES);
            if room.is_short {
                return Served::NoCredit { some: room.reads > 0 };
            }
            Served::Done
        });
    }

    /// A host asks by itself, within its own credit.
    fn ask(&mut self, host: usize, now_ns: u64, asked: &mut Vec<usize>) {
        let of_pair = self.cluster.reads_of_pair * FRAGMENT_BYTES;
        let host_bytes = match self.scheme {
            Scheme::Tcp => u64::MAX,
            Scheme::Unbounded | Scheme::Ours => of_pair,
            Scheme::Product => of_pair.min(self.cluster.product_bytes.into()),
            Scheme::Published => of_pair.min(self.credits.credit(HOST_BYTES, self.schedule.active(), 0, 0).host_bytes),
        };
        let credit = Credit { all_bytes: u64::MAX, host_bytes };
        let room = go(&mut self.in_flight, &mut self.hosts[host], credit, now_ns);
        asked.extend(repeat_n(host, room.reads));
    }
}

/// Puts under way what a host may have, which is the room that there was.
fn go(in_flight: &mut InFlight, host: &mut Host, credit: Credit, now_ns: u64) -> Room {
    let wanted = usize::try_from(host.unasked).unwrap_or(usize::MAX);
    let room = in_flight.room(host.flow, repeat_n(FRAGMENT_BYTES, wanted), credit);
    (0..room.reads).for_each(|_| in_flight.begin(host.flow, FRAGMENT_BYTES, credit, now_ns));
    host.unasked -= room.reads as u64;
    room
}
