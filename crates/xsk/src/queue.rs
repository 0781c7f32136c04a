// SPDX-License-Identifier: Apache-2.0
//! One AF_XDP socket on one queue of a device, with its four rings.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions, XdpOptionsFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with, sockopt,
};

use crate::frame::{Arrived, Way};
use crate::memory::Frames;
use crate::ring::{Consumer, Producer, Ring};

/// What a step of making a socket is called, and why it failed.
pub(crate) type Failed = (&'static str, Errno);

/// Not bound to anything.
pub(crate) fn open_socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
}

#[derive(Debug)]
pub(crate) struct Queue {
    number: u32,
    socket: OwnedFd,
    empty: Producer<u64>,
    came: Consumer<XdpDesc>,
    to_send: Producer<XdpDesc>,
    sent: Consumer<u64>,
}

impl Queue {
    /// A socket on a queue of a device. The first one registers `frames`, and all others share them with it.
    pub(crate) fn open(
        device: u32,
        number: u32,
        size: u32,
        frames: &Frames,
        first: Option<&Self>,
    ) -> Result<Self, Failed> {
        let failed = |operation| move |errno| (operation, errno);
        let socket = open_socket().map_err(failed("opening an AF_XDP socket"))?;
        if first.is_none() {
            sockopt::set_xdp_umem_reg(&socket, frames.registration()).map_err(failed("registering memory"))?;
        }
        let sizing = failed("sizing a ring");
        sockopt::set_xdp_umem_fill_ring_size(&socket, size).map_err(sizing)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, size).map_err(sizing)?;
        sockopt::set_xdp_rx_ring_size(&socket, size).map_err(sizing)?;
        sockopt::set_xdp_tx_ring_size(&socket, size).map_err(sizing)?;
        let offsets = sockopt::xdp_mmap_offsets(&socket).map_err(failed("finding the rings"))?;
        let mapping = failed("mapping a ring");
        let fd = socket.as_fd();
        let empty = Producer::new(Ring::map(fd, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, size).map_err(mapping)?);
        let came = Consumer::new(Ring::map(fd, XDP_PGOFF_RX_RING, &offsets.rx, size).map_err(mapping)?);
        let to_send = Producer::new(Ring::map(fd, XDP_PGOFF_TX_RING, &offsets.tx, size).map_err(mapping)?);
        let sent = Consumer::new(Ring::map(fd, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, size).map_err(mapping)?);
        // Without a wish for it the kernel takes zero copy where the driver has it.
        let address = |flags| SocketAddrXdp::new(flags, device, number);
        match first {
            None => bind(&socket, &address(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP)),
            Some(first) => bind(
                &socket,
                &SocketAddrXdpWithSharedUmem {
                    addr: address(SocketAddrXdpFlags::XDP_SHARED_UMEM),
                    shared_umem_fd: first.socket.as_fd(),
                },
            ),
        }
        .map_err(failed("binding an AF_XDP socket"))?;
        Ok(Self { number, socket, empty, came, to_send, sent })
    }

    /// Whether the device and we use the same memory.
    pub(crate) fn is_zero_copy(&self) -> bool {
        sockopt::xdp_options(&self.socket).is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Gives the device so many frames to receive into, as far as it has room.
    pub(crate) fn refill(&mut self, frames: &mut Frames, count: u32) {
        for _ in 0..self.empty.room().min(count) {
            let Some(address) = frames.take() else { break };
            self.empty.write(address);
        }
        self.empty.show();
        if self.empty.needs_wakeup() {
            // Says why it did nothing, if so; the next one tries again.
            let _ = recv(&self.socket, &mut [0u8; 0], RecvFlags::DONTWAIT);
        }
    }

    /// Takes what came, at most `limit`; returns how many that were.
    pub(crate) fn receive(&mut self, frames: &mut Frames, limit: u32, mut each: impl FnMut(&Arrived<'_>)) -> u32 {
        let count = self.came.available().min(limit);
        for _ in 0..count {
            let descriptor = self.came.read();
            if let Some(arrived) = Arrived::parse(frames.bytes(descriptor.addr, descriptor.len), self.number) {
                each(&arrived);
            }
            frames.give_back(descriptor.addr);
        }
        if count > 0 {
            self.came.release();
            self.refill(frames, count);
        }
        count
    }

    /// Takes back the frames that were sent.
    fn reclaim(&mut self, frames: &mut Frames) {
        let count = self.sent.available();
        if count > 0 {
            (0..count).for_each(|_| frames.give_back(self.sent.read()));
            self.sent.release();
        }
    }

    /// Puts a datagram behind the others. False: there is no room.
    pub(crate) fn push(&mut self, frames: &mut Frames, way: &Way, payload: &[u8]) -> bool {
        if self.to_send.room() == 0 {
            return false;
        }
        self.reclaim(frames);
        let Some(address) = frames.take() else { return false };
        let header = way.header();
        let len = u32::try_from(header.len() + payload.len()).unwrap_or(u32::MAX);
        let bytes = frames.bytes_mut(address, len);
        if bytes.is_empty() {
            frames.give_back(address);
            return false;
        }
        bytes[..header.len()].copy_from_slice(header);
        bytes[header.len()..].copy_from_slice(payload);
        self.to_send.write(XdpDesc { addr: address, len, options: XdpDescOptions::empty() });
        true
    }

    /// Has the device send what was pushed, as far as it takes it. False: something is left, and nothing but the next
    /// call sends it.
    pub(crate) fn flush(&mut self) -> bool {
        self.to_send.show();
        let mut left = self.to_send.held();
        // A call takes 32 at most.
        while left > 0 && self.to_send.needs_wakeup() {
            let _ = send(&self.socket, &[], SendFlags::DONTWAIT);
            let now = self.to_send.held();
            if now == left {
                return false;
            }
            left = now;
        }
        true
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
