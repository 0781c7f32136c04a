// SPDX-License-Identifier: Apache-2.0
//! The soft requesters' sockets, one for each of our addresses that leads to hosts, and the epoll that all sleep in.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use onlooker_reader::{Broken, Completion, Memory, Read};
use onlooker_transport::soft::{self, FlowConfig, FlowId, Socket};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;

/// A flow and the address whose socket it is on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    local: IpAddr,
    flow: FlowId,
}

pub(super) struct Sockets {
    config: soft::Config,
    sockets: HashMap<IpAddr, Socket>,
    /// Congestion marks that were heeded.
    marks: u64,
}

impl Sockets {
    pub(super) fn new(config: soft::Config) -> Self {
        Self { config, sockets: HashMap::new(), marks: 0 }
    }

    /// Adds a flow to a host, on the socket of the address that leads there.
    pub(super) fn add(&mut self, peer: SocketAddr, flow: FlowConfig, waiter: &Waiter) -> Result<Place, soft::Error> {
        let failed = |operation| move |source| soft::Error::System { operation, address: peer, source };
        let local = own_address(peer).map_err(failed("route look-up"))?;
        let socket = match self.sockets.remove(&local) {
            Some(socket) => socket,
            None => {
                let socket = Socket::bind(SocketAddr::new(local, 0), self.config)?;
                waiter.watch(std::os::fd::AsFd::as_fd(&socket)).map_err(failed("epoll_ctl"))?;
                socket
            }
        };
        let socket = self.sockets.entry(local).or_insert(socket);
        Ok(Place { local, flow: socket.add_flow(peer, flow)? })
    }

    /// Ends a flow; its READs are over.
    pub(super) fn remove(&mut self, place: Place) {
        if let Some(socket) = self.sockets.get_mut(&place.local) {
            socket.remove_flow(place.flow, &mut Vec::new());
        }
    }

    /// Longest READ of a flow.
    pub(super) fn max_read_blocks(&self, place: Place) -> u32 {
        self.sockets.get(&place.local).map_or(1, |socket| socket.exchange().max_read_blocks(place.flow))
    }

    /// As [`onlooker_reader::Requester::submit`].
    pub(super) fn submit(&mut self, place: Place, reads: &[Read]) -> Result<usize, Broken> {
        self.sockets.get_mut(&place.local).map_or(Err(Broken::Closed), |socket| socket.submit(place.flow, reads))
    }

    /// As [`Socket::poll`], for all. A socket that breaks goes: its READs have completed as lost, and the next flow
    /// makes a new one.
    pub(super) fn poll(&mut self, memory: &mut impl Memory, now_ns: u64, completions: &mut Vec<Completion>) {
        self.sockets.retain(|_, socket| socket.poll(memory, now_ns, completions).is_ok());
    }

    /// Whether congestion marks came since the last call.
    pub(super) fn was_marked(&mut self) -> bool {
        let marks = self.sockets.values().map(|socket| socket.exchange().congestion_marks()).sum();
        // A socket that broke has taken its marks along.
        std::mem::replace(&mut self.marks, marks) < marks
    }

    pub(super) fn set_credit_bytes(&mut self, bytes: u32) {
        self.sockets.values_mut().for_each(|socket| socket.set_credit_bytes(bytes));
    }

    pub(super) fn bytes_in_flight(&self) -> u64 {
        self.sockets.values().map(|socket| u64::from(socket.exchange().bytes_in_flight())).sum()
    }

    /// Requests of a flow that were sent again.
    pub(super) fn repeated(&self, place: Place) -> u64 {
        self.sockets.get(&place.local).map_or(0, |socket| socket.exchange().counters(place.flow).repeated)
    }

    /// When [`Sockets::poll`] has something to do even if nothing arrives.
    pub(super) fn wake_ns(&self) -> Option<u64> {
        self.sockets.values().filter_map(Socket::wake_ns).min()
    }
}

/// The address of ours from which datagrams to a host go.
fn own_address(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = if peer.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    // Connecting a datagram socket sends nothing; it looks up the route.
    let probe = UdpSocket::bind(any)?;
    probe.connect(peer)?;
    Ok(probe.local_addr()?.ip())
}

/// What descriptors of devices are marked with.
const DEVICE: u64 = 1;
/// Descriptors that one sleep tells of.
const EVENTS: usize = 8;

/// Sleeps until one of many descriptors is readable.
pub(super) struct Waiter {
    epoll: OwnedFd,
}

impl Waiter {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Wakes for this one, too, until it is closed.
    pub(super) fn watch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, EventData::new_u64(0), EventFlags::IN)?)
    }

    /// As [`Waiter::watch`], and [`Waiter::wait`] tells of it.
    pub(super) fn watch_device(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, EventData::new_u64(DEVICE), EventFlags::IN)?)
    }

    /// Does not wake for this one any more, though others may keep it open.
    pub(super) fn forget(&self, descriptor: BorrowedFd<'_>) {
        // One that is not watched is forgotten already.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Sleeps; `None`: until something comes. Whether it was a device, as far as was looked: one that was not stays
    /// readable.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(ready) => Ok(events[..ready].iter().any(|event| event.data.u64() == DEVICE)),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}
