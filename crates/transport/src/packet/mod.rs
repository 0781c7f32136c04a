// SPDX-License-Identifier: Apache-2.0
//! READs to a host's RDMA device by a machine that has none (docs/soft-requester.md, "To an RDMA device").
//!
//! A device answers whoever has a queue pair with it, and cannot see whether that is one of a device. [`connect()`] has the host make one for this process, which then sends
//! requests and takes answers itself: [`exchange::Exchange`] decides everything, and [`PacketRequester`] is it with its sockets.
//!
//! Needs CAP_NET_RAW, and UDP port 4791 of this machine: where a device has it, that device is to read.
//!
//! Invariants: at most 16 READs of 4 blocks are under way; nothing is written to the caller's memory after its READ has completed; a key that the device does not know, or a
//! range beyond a region, ends the queue pair, as with devices.

mod connect;
pub mod exchange;
mod filter;
mod sockets;

use crate::soft::MAX_BATCH;
pub use connect::{connect, reader_id};
pub use exchange::Counters;
use exchange::Exchange;
use onlooker_reader::{Broken, Completion, Read, Requester};
use onlooker_region::Block;
use rustix::io::Errno;
use sockets::Sockets;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Batches that one poll takes at most, so that a fast host cannot hold the caller.
const POLL_BATCHES: usize = 64;

/// Why there is no requester.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An RDMA device or another program has RoCEv2's port.
    #[error(
        "soft requester to an RDMA device: UDP port 4791 of {0} is taken: an RDMA device or another program owns it here; read by that device (--by verbs), or see who has \
         it (`rdma link`, `ss -ulnp sport = 4791`)"
    )]
    PortTaken(IpAddr),
    /// No CAP_NET_RAW.
    #[error(
        "soft requester to an RDMA device: packet sockets need CAP_NET_RAW, and only they show all that a device's check sum covers; run it as root or with that capability \
         (systemd: AmbientCapabilities=CAP_NET_RAW), or read the host another way"
    )]
    NotPermitted,
    /// IPv4 here and IPv6 there.
    #[error(
        "soft requester to an RDMA device: the device's address {peer} cannot be reached from {local}; give the agent's device an address of that family, or read the host \
         another way"
    )]
    Family {
        /// This machine's.
        local: IpAddr,
        /// The device's.
        peer: IpAddr,
    },
    /// No random numbers.
    #[error("soft requester to an RDMA device: getrandom: {0}")]
    Random(io::Error),
    /// A system call failed.
    #[error("soft requester to an RDMA device: {operation} on {address}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// On what.
        address: SocketAddr,
        /// Its error.
        source: io::Error,
    },
}

/// A queue pair of this process, connected to a host's device.
#[derive(Debug)]
pub struct PacketRequester {
    sockets: Sockets,
    exchange: Exchange,
    /// The device's address and RoCEv2's port.
    peer: SocketAddr,
    max_read_blocks: u32,
    /// The system takes no requests now.
    full: bool,
    /// Of the last poll.
    now_ns: u64,
}

impl PacketRequester {
    /// What was decided and counted.
    #[must_use]
    pub fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// When [`Requester::poll`] has something to do even if nothing arrives: on the clock of its `now_ns`; `None`: not before the next READ.
    #[must_use]
    pub fn wake_ns(&self) -> Option<u64> {
        if self.exchange.has_unsent() && !self.full { Some(0) } else { self.exchange.wake_ns() }
    }

    fn receive(&mut self, memory: &mut [Block], now_ns: u64, completions: &mut Vec<Completion>) -> Result<(), Broken> {
        for _ in 0..POLL_BATCHES {
            let exchange = &mut self.exchange;
            let got = self.sockets.receive(|packet| exchange.received(packet, now_ns, memory, completions))?;
            if got < MAX_BATCH {
                break;
            }
        }
        Ok(())
    }

    /// Sends what is to be sent, as far as the socket takes it.
    fn send(&mut self, now_ns: u64) {
        self.full = false;
        while self.exchange.has_unsent() {
            match self.sockets.send(self.peer, self.exchange.stage()) {
                Ok(sent) => self.exchange.sent(sent, now_ns),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {
                    self.full = true;
                    return;
                }
                // Of the first request (sendmmsg(2)): no route, a firewall. The time-out tries again.
                Err(_) => self.exchange.send_failed(now_ns),
            }
        }
    }
}

/// To wait for many at once: readable when there is something to poll for.
impl AsFd for PacketRequester {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sockets.as_fd()
    }
}

impl Requester for PacketRequester {
    fn max_read_blocks(&self) -> u32 {
        self.max_read_blocks
    }

    fn in_flight(&self) -> usize {
        self.exchange.in_flight()
    }

    fn submit(&mut self, reads: &[Read]) -> Result<usize, Broken> {
        self.exchange.broken().map_or_else(|| Ok(self.exchange.submit(reads)), Err)
    }

    fn poll(&mut self, memory: &mut [Block], now_ns: u64, completions: &mut Vec<Completion>) -> Result<(), Broken> {
        if let Some(broken) = self.exchange.broken() {
            return Err(broken);
        }
        self.now_ns = now_ns;
        if let Err(broken) = self.receive(memory, now_ns, completions) {
            self.exchange.give_up(broken, completions);
        }
        self.exchange.advance(now_ns, completions);
        self.send(now_ns);
        self.exchange.broken().map_or(Ok(()), Err)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Broken> {
        let until_wake = self.wake_ns().map(|wake_ns| Duration::from_nanos(wake_ns.saturating_sub(self.now_ns)));
        let timeout = until_wake.map_or(timeout, |until_wake| timeout.min(until_wake));
        if timeout.is_zero() {
            return Ok(());
        }
        self.sockets.sleep(timeout, self.full)
    }
}
