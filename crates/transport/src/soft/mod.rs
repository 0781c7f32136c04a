// SPDX-License-Identifier: Apache-2.0
//! READs to kernel responders over an ordinary UDP socket (docs/soft-requester.md).
//!
//! A [`Socket`] is one I/O thread's: one UDP port, any number of [flows](exchange::FlowId) to hosts, one pool of credits. [`exchange::Exchange`] decides
//! everything; this is the rim that moves datagrams in batches. [`SoftRequester`] is a socket with a single flow, for programs that read one host.
//!
//! Invariants: the socket is unconnected and sets "don't fragment", so that the kernel writes identification 0, which the ICRC covers; it is bound to
//! one address, since the ICRC covers that too; what is in flight fits its receive buffer.
//! Cost: two system calls per 64 blocks, one pass over each block for the ICRC, one copy. Sending goes through rustix and receiving through nix: rustix
//! has no recvmmsg, and nix's sendmmsg tells the number sent only by way of addresses that were never written.

pub mod bypass;
pub mod exchange;
pub(crate) mod options;
pub mod rtt;
mod wheel;

use arrayvec::ArrayVec;
use bypass::Bypass;
pub use exchange::{Counters, FlowConfig, FlowId, Strays, Totals};
use exchange::{Exchange, Staged};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrStorage, recvmmsg};
use onlooker_reader::{Broken, Completion, Memory, Read, Requester};
use onlooker_region::Block;
use onlooker_wire::profile::{BLOCK_BYTES, LARGEST_MAX_READ_BYTES, answer_ip_bytes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg as _;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::Duration;

/// Datagrams per system call.
pub const MAX_BATCH: usize = 64;
/// The socket, and as many queues of a device as are used.
const MAX_DESCRIPTORS: usize = 64;
/// Batches that one poll takes at most, so that fast hosts cannot hold the caller.
const POLL_BATCHES: usize = 64;
/// What the system had no room for is offered again after so long, ns. A descriptor tells when its buffer has room, and nothing tells when there is
/// memory.
const RETRY_NS: u64 = 1_000_000;
/// Place for the longest answer, and a byte to tell a longer one.
const SLOT_BYTES: usize = answer_ip_bytes(LARGEST_MAX_READ_BYTES, true) + 1;
/// The two bits of congestion notification, and both set (RFC 3168 5).
const CONGESTED: u8 = 0b11;

/// What a socket may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes in flight of all flows together, at most; less where the system grants no receive buffer for them ([`Socket::credit_bytes`]).
    pub credit_bytes: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { credit_bytes: 4 << 20 }
    }
}

/// Why there is no socket or no flow.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ICRC covers the source address.
    #[error(
        "soft requester: {0} is no address of one interface and one port; bind to the address that leads to the hosts"
    )]
    Unspecified(SocketAddr),
    /// IPv4 here and IPv6 there.
    #[error("soft requester: {peer} cannot be reached from {local}; use a socket of its address family")]
    Family {
        /// The socket's.
        local: SocketAddr,
        /// The host's.
        peer: SocketAddr,
    },
    /// No responder's limit.
    #[error(
        "soft requester: max_read_bytes of {0} is no multiple of 1024 in 1024 to 8192; take the bootstrap endpoint's"
    )]
    MaxReadBytes(u32),
    /// Not one packet.
    #[error("soft requester: credit of {credit_bytes} bytes is below one packet of {max_read_bytes}; raise it")]
    Credit {
        /// As given.
        credit_bytes: u32,
        /// One packet.
        max_read_bytes: u32,
    },
    /// Answers would not fit the way.
    #[error(
        "soft requester: the way to {peer} carries packets of {mtu_bytes} bytes, an answer of one block needs {needed_bytes}; raise the MTU, or read over TCP"
    )]
    Mtu {
        /// The host's.
        peer: SocketAddr,
        /// Longest IP packet.
        mtu_bytes: usize,
        /// An answer's.
        needed_bytes: usize,
    },
    /// Not one packet, or more than the tables hold.
    #[error(
        "soft requester: common credit of {0} bytes is below one packet or above 256 MiB; change it, or raise net.core.rmem_max"
    )]
    TotalCredit(u32),
    /// [`exchange::MAX_FLOWS`].
    #[error("soft requester: 65536 hosts on one socket; use another I/O thread")]
    TooManyFlows,
    /// A system call failed.
    #[error("soft requester: {operation} on {address}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// On what.
        address: SocketAddr,
        /// Its error.
        source: io::Error,
    },
}

/// One UDP socket with its flows. Stays in the thread that made it.
#[derive(Debug)]
pub struct Socket {
    udp: UdpSocket,
    exchange: Exchange,
    headers: MultiHeaders<SockaddrStorage>,
    buffer: Box<[u8]>,
    bypass: Option<Bypass>,
    /// The bypass has something left for the next flush.
    is_unflushed: bool,
    /// When what is queued may be sent: 0, or later if the system had no room.
    send_ns: u64,
    broken: Option<Broken>,
}

impl Socket {
    /// Binds to an address of this machine; port 0 lets the system choose.
    ///
    /// # Errors
    /// [`Error::Unspecified`], [`Error::System`], [`Error::TotalCredit`].
    pub fn bind(local: SocketAddr, config: Config) -> Result<Self, Error> {
        if local.ip().is_unspecified() {
            return Err(Error::Unspecified(local));
        }
        let udp = UdpSocket::bind(local);
        Self::new(udp.map_err(|source| Error::System { operation: "bind", address: local, source })?, config)
    }

    /// On a bound socket, which may come from another thread or namespace.
    ///
    /// # Errors
    /// As [`Socket::bind`].
    pub fn new(udp: UdpSocket, config: Config) -> Result<Self, Error> {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let local =
            udp.local_addr().map_err(|source| Error::System { operation: "getsockname", address: unknown, source })?;
        let granted = options::set(&udp, local, config.credit_bytes).map_err(|(operation, source)| Error::System {
            operation,
            address: local,
            source,
        })?;
        let mut seed = [0; 8];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).map_err(|errno| Error::System {
            operation: "getrandom",
            address: local,
            source: errno.into(),
        })?;
        Ok(Self {
            exchange: Exchange::new(local, config.credit_bytes.min(granted), u64::from_le_bytes(seed))?,
            udp,
            headers: MultiHeaders::preallocate(MAX_BATCH, Some(nix::cmsg_space!(u32))),
            buffer: vec![0; MAX_BATCH * SLOT_BYTES].into(),
            bypass: None,
            is_unflushed: false,
            send_ns: 0,
            broken: None,
        })
    }

    /// From now on datagrams go past the kernel's UDP, where they can.
    ///
    /// # Errors
    /// They cannot; the socket is as it was.
    #[cfg(feature = "xdp")]
    pub fn open_bypass(&mut self) -> Result<&Bypass, bypass::Error> {
        let opened = Bypass::open(self.exchange.local())?;
        Ok(self.bypass.insert(opened))
    }

    /// What to sleep on: each is readable when there is something to poll for.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.udp.as_fd()).chain(self.bypass.iter().flat_map(Bypass::descriptors))
    }

    /// Adds a host's responder.
    ///
    /// # Errors
    /// [`Error::Family`], [`Error::MaxReadBytes`], [`Error::Credit`], [`Error::TotalCredit`], [`Error::TooManyFlows`].
    pub fn add_flow(&mut self, peer: SocketAddr, config: FlowConfig) -> Result<FlowId, Error> {
        self.exchange.add_flow(peer, config)
    }

    /// Removes a flow; its READs complete as [`onlooker_reader::Outcome::Lost`].
    ///
    /// # Panics
    /// If the flow was removed before, as in all that take a [`FlowId`].
    pub fn remove_flow(&mut self, flow: FlowId, completions: &mut Vec<Completion>) {
        self.exchange.remove_flow(flow, completions);
    }

    /// One flow as a requester. Its `poll` serves the whole socket: completions of all flows, all into one memory.
    #[must_use]
    pub fn requester(&mut self, flow: FlowId) -> Flow<'_> {
        Flow { socket: self, flow }
    }

    /// What was decided and counted: counters and times of flows, strays, bytes in flight.
    #[must_use]
    pub fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// What is in flight at most: as configured, or less where the receive buffer is smaller.
    #[must_use]
    pub fn credit_bytes(&self) -> u32 {
        self.exchange.credit_bytes()
    }

    /// READs of all flows that have not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.exchange.in_flight()
    }

    /// [`Requester::submit`] to one flow. The next poll sends.
    ///
    /// # Errors
    /// The socket is broken.
    ///
    /// # Panics
    /// If a READ has 0 blocks or more than the flow's longest.
    pub fn submit(&mut self, flow: FlowId, reads: &[Read]) -> Result<usize, Broken> {
        self.broken.map_or_else(|| Ok(self.exchange.submit(flow, reads)), Err)
    }

    /// [`Requester::poll`] for all flows.
    ///
    /// # Errors
    /// The socket has broken.
    ///
    /// # Panics
    /// If a READ under way names blocks outside of `memory`.
    pub fn poll(
        &mut self,
        memory: &mut (impl Memory + ?Sized),
        now_ns: u64,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let received = self.receive(memory, now_ns, completions);
        if let Some(bypass) = &mut self.bypass {
            let exchange = &mut self.exchange;
            bypass.receive(now_ns, |from, datagram, is_congested| {
                exchange.received(from, datagram, is_congested, now_ns, memory, completions)
            });
        }
        self.exchange.advance(now_ns, completions);
        self.send(now_ns);
        received.inspect_err(|broken| {
            self.exchange.lose(completions);
            self.broken = Some(*broken);
        })
    }

    /// [`Requester::wait`] for all flows.
    ///
    /// # Errors
    /// The system call failed.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Broken> {
        let now_ns = self.exchange.now_ns();
        let until_timer = self.wake_ns().map(|wake_ns| Duration::from_nanos(wake_ns.saturating_sub(now_ns)));
        let timeout = until_timer.map_or(timeout, |until_timer| timeout.min(until_timer));
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let waiting = self.descriptors().map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        let mut waiting: ArrayVec<_, MAX_DESCRIPTORS> = waiting.collect();
        match poll(&mut waiting, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Broken::System { operation: "poll", kind: io::Error::from(errno).kind() }),
        }
    }

    /// When [`Socket::poll`] has something to do even if nothing arrives: on the clock of its `now_ns`; `None`: not before the next READ.
    #[must_use]
    pub fn wake_ns(&self) -> Option<u64> {
        let send_ns = (self.exchange.has_unsent() || self.is_unflushed).then_some(self.send_ns);
        [send_ns, self.exchange.wake_ns()].into_iter().flatten().min()
    }

    fn receive(
        &mut self,
        memory: &mut (impl Memory + ?Sized),
        now_ns: u64,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Broken> {
        for _ in 0..POLL_BATCHES {
            let mut slots = self.buffer.chunks_exact_mut(SLOT_BYTES);
            let mut slots: [_; MAX_BATCH] =
                std::array::from_fn(|_| [IoSliceMut::new(slots.next().expect("as many slots as messages"))]);
            let fd = self.udp.as_raw_fd();
            let messages = match recvmmsg(fd, &mut self.headers, &mut slots, MsgFlags::MSG_DONTWAIT, None) {
                Ok(messages) => messages,
                Err(nix::Error::EAGAIN) => return Ok(()),
                // A passing shortage, a signal, or a late word about an earlier datagram.
                Err(nix::Error::EINTR | nix::Error::ENOMEM | nix::Error::ENOBUFS | nix::Error::ECONNREFUSED) => {
                    continue;
                }
                Err(error) => {
                    return Err(Broken::System { operation: "recvmmsg", kind: io::Error::from(error).kind() });
                }
            };
            let mut got = 0;
            for message in messages {
                got += 1;
                let (Some(from), Some(datagram)) = (source(&message), message.iovs().next()) else { continue };
                self.exchange.received(from, datagram, is_congested(&message), now_ns, memory, completions);
            }
            if got < MAX_BATCH {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends what is queued, as far as the system takes it.
    fn send(&mut self, now_ns: u64) {
        self.send_ns = 0;
        if self.is_unflushed {
            self.is_unflushed = self.bypass.as_mut().is_some_and(|bypass| !bypass.flush());
        }
        while self.exchange.has_unsent() {
            let staged = self.exchange.stage();
            let Some(first) = staged.first() else { break };
            let bypass = &mut self.bypass;
            let mut carries = |staged: &Staged| bypass.as_mut().is_some_and(|bypass| bypass.carries(staged, now_ns));
            let is_carried = carries(first);
            // What goes one way is sent together; the others wait for the next turn.
            let count = staged.iter().position(|staged| carries(staged) != is_carried).unwrap_or(staged.len());
            let staged = &staged[..count];
            let sent = match bypass {
                Some(bypass) if is_carried => {
                    let pushed = staged.iter().take_while(|staged| bypass.push(staged)).count();
                    self.is_unflushed = !bypass.flush();
                    if pushed > 0 { Ok(pushed) } else { Err(Errno::NOBUFS) }
                }
                _ => send_batch(&self.udp, staged),
            };
            match sent {
                Ok(sent) => self.exchange.sent(sent, is_carried, now_ns),
                Err(Errno::INTR) => self.exchange.sent(0, false, now_ns),
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {
                    self.exchange.no_room(now_ns);
                    self.send_ns = now_ns.saturating_add(RETRY_NS);
                    return;
                }
                // Of the first datagram only (sendmmsg(2)): one host without a route must not stop the others.
                Err(_) => self.exchange.send_failed(now_ns),
            }
        }
        if self.is_unflushed {
            self.send_ns = now_ns.saturating_add(RETRY_NS);
        }
    }
}

fn send_batch(udp: &UdpSocket, staged: &[Staged]) -> rustix::io::Result<usize> {
    let peers: ArrayVec<_, MAX_BATCH> = staged.iter().map(|staged| staged.to.as_any()).collect();
    let slices: ArrayVec<_, MAX_BATCH> = staged.iter().map(|staged| [IoSlice::new(&staged.bytes)]).collect();
    let mut controls: ArrayVec<_, MAX_BATCH> = staged.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let parts = peers.iter().zip(&slices).zip(&mut controls);
    let mut messages: ArrayVec<_, MAX_BATCH> =
        parts.map(|((peer, slice), control)| MMsgHdr::new_with_addr(peer, slice, control)).collect();
    sendmmsg(udp, &mut messages, SendFlags::DONTWAIT)
}

fn source(message: &RecvMsg<'_, '_, SockaddrStorage>) -> Option<SocketAddr> {
    let address = message.address.as_ref()?;
    let v4 = address.as_sockaddr_in().map(|address| SocketAddr::V4((*address).into()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| SocketAddr::V6((*address).into())))
}

fn is_congested(message: &RecvMsg<'_, '_, SockaddrStorage>) -> bool {
    let Ok(mut controls) = message.cmsgs() else { return false };
    controls.any(|control| match control {
        ControlMessageOwned::Ipv4Tos(tos) => tos & CONGESTED == CONGESTED,
        ControlMessageOwned::Ipv6TClass(class) => class & i32::from(CONGESTED) == i32::from(CONGESTED),
        _ => false,
    })
}

/// One flow of a [`Socket`].
#[derive(Debug)]
pub struct Flow<'a> {
    socket: &'a mut Socket,
    flow: FlowId,
}

impl Requester for Flow<'_> {
    fn max_read_blocks(&self) -> u32 {
        self.socket.exchange.max_read_blocks(self.flow)
    }

    fn in_flight(&self) -> usize {
        self.socket.exchange.flow_in_flight(self.flow)
    }

    fn submit(&mut self, reads: &[Read]) -> Result<usize, Broken> {
        self.socket.submit(self.flow, reads)
    }

    fn poll(&mut self, memory: &mut [Block], now_ns: u64, completions: &mut Vec<Completion>) -> Result<(), Broken> {
        self.socket.poll(memory, now_ns, completions)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Broken> {
        self.socket.wait(timeout)
    }
}

/// A requester for one host: a socket with one flow.
#[derive(Debug)]
pub struct SoftRequester {
    socket: Socket,
    flow: FlowId,
}

impl SoftRequester {
    /// From whichever of this machine's addresses leads to the host, with answers no longer than fit the MTU of the way as far as this machine knows it.
    ///
    /// # Errors
    /// [`Error::System`] if none does, [`Error::Mtu`]; those of [`Socket::new`] and [`Socket::add_flow`].
    pub fn connect(peer: SocketAddr, config: Config, flow: FlowConfig) -> Result<Self, Error> {
        let any: SocketAddr = if peer.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
        // Connecting a datagram socket sends nothing; it looks up the route.
        let probe = UdpSocket::bind(any).and_then(|probe| {
            probe.connect(peer)?;
            Ok((probe.local_addr()?, options::path_mtu_bytes(&probe, peer)?))
        });
        let (mut local, mtu_bytes) =
            probe.map_err(|source| Error::System { operation: "route look-up", address: peer, source })?;
        local.set_port(0);
        let answer_bytes = |max_read_bytes| answer_ip_bytes(max_read_bytes, peer.is_ipv6());
        let fits = (1..=flow.max_read_bytes / BLOCK_BYTES).rev().map(|blocks| blocks * BLOCK_BYTES);
        let max_read_bytes = fits.into_iter().find(|bytes| answer_bytes(*bytes) <= mtu_bytes).ok_or(Error::Mtu {
            peer,
            mtu_bytes,
            needed_bytes: answer_bytes(BLOCK_BYTES),
        })?;
        let flow = FlowConfig { max_read_bytes, ..flow };
        let mut socket = Socket::bind(local, config)?;
        let flow = socket.add_flow(peer, flow)?;
        Ok(Self { socket, flow })
    }

    /// The socket, for its counters.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The flow, to ask the socket about.
    #[must_use]
    pub fn flow(&self) -> FlowId {
        self.flow
    }

    /// The address that the host sees.
    ///
    /// # Errors
    /// The system call failed.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.udp.local_addr()
    }
}

impl Requester for SoftRequester {
    fn max_read_blocks(&self) -> u32 {
        self.socket.exchange.max_read_blocks(self.flow)
    }

    fn in_flight(&self) -> usize {
        self.socket.in_flight()
    }

    fn submit(&mut self, reads: &[Read]) -> Result<usize, Broken> {
        self.socket.submit(self.flow, reads)
    }

    fn poll(&mut self, memory: &mut [Block], now_ns: u64, completions: &mut Vec<Completion>) -> Result<(), Broken> {
        self.socket.poll(memory, now_ns, completions)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Broken> {
        self.socket.wait(timeout)
    }
}
