// SPDX-License-Identifier: Apache-2.0
//! The three sockets of a queue pair that no device has.
//!
//! - A UDP socket sends the requests, from a port of its own: unconnected and with "don't fragment", so that the kernel writes identification 0, which the ICRC covers.
//! - A packet socket takes the answers. A device numbers its packets (rdma_rxe does), the ICRC covers the number, and no UDP socket shows it.
//! - A second UDP socket keeps port 4791, to which the answers go: the kernel would refuse each of them by ICMP if nobody had it. It gets a copy of each, which is thrown
//!   away unread; copies that are left lying would fill it up, and then the kernel counted each answer as a receive error of this machine.
//!
//! Cost: two system calls for up to 64 answers, and one for the requests.

use super::Error;
use super::exchange::{MAX_READ_BLOCKS, MAX_READS_UNDER_WAY, MTU_BYTES};
use super::filter;
use crate::soft::exchange::REQUEST_BYTES;
use crate::soft::{MAX_BATCH, options};
use arrayvec::ArrayVec;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg};
use onlooker_reader::Broken;
use onlooker_wire::profile::{BLOCK_BYTES, answer_ip_bytes};
use onlooker_wire::{Qpn, ROCE_PORT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg as _;
use rustix::net::{
    AddressFamily, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, bind, eth, sendmmsg, socket_with,
    sockopt,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Place for the longest packet of an answer, and a byte to tell a longer one.
const SLOT_BYTES: usize = answer_ip_bytes(MTU_BYTES as u32, true) + 1;
/// Batches of strange packets that may have come between the making of a packet socket and its filter.
const STRANGE_BATCHES: usize = 1024;
/// All that can be under way. Receive buffers hold it four times, as the soft requester's do.
const UNDER_WAY_BYTES: u32 = 64 << 10;
/// What the kernel is asked for: it doubles that, and cuts it at net.core.rmem_max.
const PACKET_BUFFER_BYTES: usize = 4 * UNDER_WAY_BYTES as usize;

const _: () = assert!(UNDER_WAY_BYTES as usize == MAX_READS_UNDER_WAY * (MAX_READ_BLOCKS * BLOCK_BYTES) as usize);

/// Packets of one system call.
#[derive(Debug)]
struct Inbox {
    headers: MultiHeaders<SockaddrStorage>,
    buffer: Box<[u8]>,
    slot_bytes: usize,
}

impl Inbox {
    fn new(slot_bytes: usize) -> Self {
        let headers = MultiHeaders::preallocate(MAX_BATCH, None);
        Self { headers, buffer: vec![0; MAX_BATCH * slot_bytes].into(), slot_bytes }
    }

    /// Takes what has come, at most [`MAX_BATCH`] packets, cut to a slot's length; returns how many.
    fn take(&mut self, socket: BorrowedFd<'_>, mut each: impl FnMut(&[u8])) -> nix::Result<usize> {
        let mut slots = self.buffer.chunks_exact_mut(self.slot_bytes);
        let mut slots: [_; MAX_BATCH] =
            std::array::from_fn(|_| [IoSliceMut::new(slots.next().expect("as many slots as messages"))]);
        let messages = recvmmsg(socket.as_raw_fd(), &mut self.headers, &mut slots, MsgFlags::MSG_DONTWAIT, None)?;
        let mut count = 0;
        for message in messages {
            count += 1;
            // An empty one is malformed, too.
            each(message.iovs().next().unwrap_or_default());
        }
        Ok(count)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Sockets {
    sender: UdpSocket,
    packets: OwnedFd,
    keeper: UdpSocket,
    answers: Inbox,
    copies: Inbox,
}

impl Sockets {
    /// At this machine's address `local`, with port 0, for packets to `queue_pair`.
    ///
    /// # Errors
    /// [`Error::PortTaken`], [`Error::NotPermitted`], [`Error::System`].
    pub(super) fn open(local: SocketAddr, queue_pair: Qpn) -> Result<Self, Error> {
        let keeper = keep_port(local)?;
        let packets = packet_socket(local, queue_pair)?;
        let sender = UdpSocket::bind(local);
        let sender = sender.map_err(|source| Error::System { operation: "bind", address: local, source })?;
        set_options(&sender, local)?;
        let mut sockets = Self { sender, packets, keeper, answers: Inbox::new(SLOT_BYTES), copies: Inbox::new(1) };
        sockets.forget_strangers();
        Ok(sockets)
    }

    /// Where requests come from.
    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        self.sender.local_addr()
    }

    /// Takes a batch of IP packets; returns how many. Fewer than [`MAX_BATCH`]: that is all for now.
    pub(super) fn receive(&mut self, each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        // What goes wrong with copies harms nobody.
        let _ = self.copies.take(self.keeper.as_fd(), |_| ());
        match self.answers.take(self.packets.as_fd(), each) {
            Ok(got) => Ok(got),
            // Nothing, a passing shortage, or a signal.
            Err(nix::Error::EAGAIN | nix::Error::EINTR | nix::Error::ENOMEM | nix::Error::ENOBUFS) => Ok(0),
            Err(error) => Err(Broken::System { operation: "recvmmsg", kind: io::Error::from(error).kind() }),
        }
    }

    /// Sends requests; returns how many from the front.
    pub(super) fn send(&self, to: SocketAddr, requests: &[[u8; REQUEST_BYTES]]) -> rustix::io::Result<usize> {
        let to = to.as_any();
        let slices: ArrayVec<_, MAX_READS_UNDER_WAY> = requests.iter().map(|bytes| [IoSlice::new(bytes)]).collect();
        let mut controls: ArrayVec<_, MAX_READS_UNDER_WAY> =
            requests.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let parts = slices.iter().zip(&mut controls);
        let mut messages: ArrayVec<_, MAX_READS_UNDER_WAY> =
            parts.map(|(slice, control)| MMsgHdr::new_with_addr(&to, slice, control)).collect();
        sendmmsg(&self.sender, &mut messages, SendFlags::DONTWAIT)
    }

    /// Sleeps until something has come, or the sender takes requests again if that is waited for, too.
    pub(super) fn sleep(&self, timeout: Duration, for_sender: bool) -> Result<(), Broken> {
        let mut ends = [PollFd::new(&self.packets, PollFlags::IN), PollFd::new(&self.sender, PollFlags::OUT)];
        let count = 1 + usize::from(for_sender);
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut ends[..count], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Broken::System { operation: "poll", kind: io::Error::from(errno).kind() }),
        }
    }

    /// Empties the packet socket of what came before it had its filter.
    fn forget_strangers(&mut self) {
        for _ in 0..STRANGE_BATCHES {
            match self.answers.take(self.packets.as_fd(), |_| ()) {
                Ok(MAX_BATCH) => {}
                _ => return,
            }
        }
    }
}

/// To wait for many at once: readable when there is something to poll for.
impl AsFd for Sockets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.packets.as_fd()
    }
}

/// RoCEv2's port at `local`. Requesters of one user share it: all get their answers by their packet sockets, and it does not matter which of them gets the copies. Another user's
/// would get all that is read (SO_REUSEADDR shares with anybody; so do not set that, too). A device's port is not shared.
fn keep_port(mut local: SocketAddr) -> Result<UdpSocket, Error> {
    local.set_port(ROCE_PORT);
    let failed = |operation| move |errno: Errno| Error::System { operation, address: local, source: errno.into() };
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).map_err(failed("socket"))?;
    sockopt::set_socket_reuseport(&socket, true).map_err(failed("SO_REUSEPORT"))?;
    bind(&socket, &local).map_err(|errno| match errno {
        Errno::ADDRINUSE => Error::PortTaken(local.ip()),
        errno => failed("bind")(errno),
    })?;
    let keeper = UdpSocket::from(socket);
    set_options(&keeper, local)?;
    Ok(keeper)
}

/// A socket that sees the IP headers of what comes to this machine, over all interfaces of the thread's network namespace: answers need not come in where requests go out.
/// What this machine sends it does not see: it is for one protocol (packet(7)).
fn packet_socket(local: SocketAddr, queue_pair: Qpn) -> Result<OwnedFd, Error> {
    let failed = |operation| move |source: io::Error| Error::System { operation, address: local, source };
    let protocol = if local.is_ipv4() { eth::IP } else { eth::IPV6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, Some(protocol));
    let socket = socket.map_err(|errno| match errno {
        Errno::PERM | Errno::ACCESS => Error::NotPermitted,
        errno => failed("packet socket")(errno.into()),
    })?;
    filter::attach(&socket, local.is_ipv6(), queue_pair).map_err(failed("SO_ATTACH_FILTER"))?;
    let sized = sockopt::set_socket_recv_buffer_size(&socket, PACKET_BUFFER_BYTES);
    sized.map_err(|errno| failed("SO_RCVBUF")(errno.into()))?;
    Ok(socket)
}

fn set_options(udp: &UdpSocket, local: SocketAddr) -> Result<(), Error> {
    let set = options::set(udp, local, UNDER_WAY_BYTES);
    set.map(drop).map_err(|(operation, source)| Error::System { operation, address: local, source })
}
