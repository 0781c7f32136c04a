// SPDX-License-Identifier: Apache-2.0
//! The bypass over a [`Port`], and the ways of flows.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

pub use onlooker_xsk::Error;
use onlooker_xsk::{Mode, Port, Way};

use crate::soft::exchange::{Answered, REQUEST_BYTES, Staged};

/// Datagrams that one poll takes at most.
const MAX_RECEIVED: u32 = 4096;
/// Ways of a flow that may lead nowhere, one after the other. Then something between here and there seems to take what
/// the kernel sends, and not what we do: the flow stays with the socket for a while, twice as long each time.
const MAX_FAILURES: u32 = 3;
const FIRST_PAUSE_NS: u64 = 1_000_000_000;
const MAX_DOUBLINGS: u32 = 6;

/// One device's queues.
#[derive(Debug)]
pub struct Bypass {
    port: Port,
    /// By [`Staged::flow`].
    flows: Vec<Flow>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    way: Option<Way>,
    /// Ways in a row by which no request was answered.
    failures: u32,
    /// By the present way one was.
    is_proven: bool,
    /// When the next one may be tried.
    not_before_ns: u64,
}

impl Flow {
    /// A request was not answered in time.
    fn lose(&mut self, now_ns: u64) {
        self.way = None;
        self.failures = if self.is_proven { 0 } else { self.failures.saturating_add(1) };
        if let Some(more) = self.failures.checked_sub(MAX_FAILURES) {
            self.not_before_ns = now_ns.saturating_add(FIRST_PAUSE_NS << more.min(MAX_DOUBLINGS));
        }
    }
}

impl Bypass {
    pub(in crate::soft) fn open(own: SocketAddr) -> Result<Self, Error> {
        Ok(Self { port: Port::open(own)?, flows: Vec::new() })
    }

    pub(in crate::soft) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.port.descriptors()
    }

    /// Gives `take` what came: who sent it, what it is, whether it has a congestion mark. It returns whose answer that
    /// was.
    pub(in crate::soft) fn receive(
        &mut self,
        now_ns: u64,
        mut take: impl FnMut(SocketAddr, &[u8], bool) -> Option<Answered>,
    ) {
        let flows = &mut self.flows;
        self.port.receive(MAX_RECEIVED, |arrived| {
            let answered = take(arrived.from, arrived.payload, arrived.is_congested);
            let Some(Answered { flow, was_bypassed }) = answered else { return };
            let index = flow as usize;
            if index >= flows.len() {
                flows.resize(index + 1, Flow::default());
            }
            let flow = &mut flows[index];
            if flow.way.is_some_and(|way| way.peer() != arrived.from) {
                // Another host has the place now.
                *flow = Flow::default();
            }
            match &flow.way {
                Some(way) if arrived.is_from(way) => flow.is_proven |= was_bypassed,
                _ if now_ns >= flow.not_before_ns => {
                    flow.way = Some(Way::back(arrived, REQUEST_BYTES));
                    flow.is_proven = false;
                }
                _ => {}
            }
        });
    }

    /// Whether a request goes here. One that was not answered in time goes by the socket, and so do all after it, until
    /// the next answer: the way may have changed.
    pub(in crate::soft) fn carries(&mut self, staged: &Staged, now_ns: u64) -> bool {
        let Some(flow) = self.flows.get_mut(staged.flow as usize) else { return false };
        let Some(way) = flow.way else { return false };
        if way.peer() != staged.to {
            *flow = Flow::default();
            return false;
        }
        if staged.is_repeat {
            flow.lose(now_ns);
        }
        !staged.is_repeat
    }

    /// Puts a request that it [carries](Bypass::carries) behind the others. False: there is no room.
    pub(in crate::soft) fn push(&mut self, staged: &Staged) -> bool {
        let way = self.flows.get(staged.flow as usize).and_then(|flow| flow.way);
        way.is_some_and(|way| self.port.push(&way, &staged.bytes))
    }

    /// Sends what was pushed. False: something is left, to be sent by a later call.
    pub(in crate::soft) fn flush(&mut self) -> bool {
        self.port.flush()
    }

    /// For who shows it: the device, and how its frames get here.
    #[must_use]
    pub fn description(&self) -> String {
        let mode = match (self.port.mode(), self.port.is_zero_copy()) {
            (Mode::Native, true) => "zero copy",
            (Mode::Native, false) => "native, copied",
            (Mode::Generic, _) => "generic, copied",
        };
        format!("AF_XDP on {} ({mode})", self.port.device())
    }
}
