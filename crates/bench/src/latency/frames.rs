// SPDX-License-Identifier: Apache-2.0
//! READs as whole frames from a packet socket, padded behind the IP packet to the size of the answer: what native XDP on veth needs, since a frame there
//! cannot grow by a block. A UDP socket cannot pad.

use super::openloop::{End, Path};
use crate::responder::{BLOCKS, PORT, RKEY, VA, is_known_block};
use crate::world::{ASKING_XDP, ASKING_XDP_DEVICE, ASKING_XDP_MAC, WATCHED_XDP, WATCHED_XDP_MAC};
use anyhow::{Context, Result, ensure};
use onlooker_region::Block;
use onlooker_wire::{Envelope, Ethernet, Frame, Mac, Packet, Psn, Qpn, ReadAnswer, ReadRequest, Tags};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

/// Ethernet, IPv4, UDP, BTH, AETH, block, ICRC.
const ANSWER_FRAME_BYTES: usize = 14 + 20 + 8 + 12 + 4 + 1024 + 4;
const QPN: u32 = 0x4f_4c4b;

pub(crate) struct Frames {
    socket: OwnedFd,
    /// Has the port, so that the stack sends no ICMP for answers; never read.
    _port: UdpSocket,
    envelope: Envelope,
    /// Sequence number of the run's first request.
    first_psn: u32,
    sent: u32,
    buffer: Vec<u8>,
    block: Block,
}

impl Frames {
    pub(crate) fn new() -> Result<Self> {
        let port = UdpSocket::bind((ASKING_XDP, 0))?;
        let responder = SocketAddr::new(WATCHED_XDP.parse()?, PORT);
        let envelope = Envelope::socket(port.local_addr()?, responder)?;
        let (buffer, block) = (vec![0; 2048], Block::default());
        Ok(Self { socket: packet_socket()?, _port: port, envelope, first_psn: 0, sent: 0, buffer, block })
    }
}

/// A non-blocking packet socket for IPv4 on the requester's device behind the bridge.
fn packet_socket() -> Result<OwnedFd> {
    let protocol = u16::try_from(libc::ETH_P_IP)?.to_be();
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let name = std::ffi::CString::new(ASKING_XDP_DEVICE)?;
    // SAFETY: plain system calls; the name is NUL-terminated, the address a zeroed sockaddr_ll given with its own size.
    let (socket, bound) = unsafe {
        let fd = libc::socket(libc::AF_PACKET, kind, i32::from(protocol));
        ensure!(fd >= 0, "packet socket: {}", io::Error::last_os_error());
        let socket = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = u16::try_from(libc::AF_PACKET)?;
        address.sll_protocol = protocol;
        address.sll_ifindex = i32::try_from(libc::if_nametoindex(name.as_ptr()))?;
        let bytes = libc::socklen_t::try_from(size_of_val(&address))?;
        (socket, libc::bind(fd, (&raw const address).cast(), bytes))
    };
    ensure!(bound == 0, "binding a packet socket: {}", io::Error::last_os_error());
    Ok(socket)
}

impl Path for Frames {
    fn send(&mut self, id: u64) -> Result<()> {
        let psn = Psn::wrapping(self.first_psn.wrapping_add(u32::try_from(id)?));
        let va = VA + id % u64::from(BLOCKS) * 1024;
        let request = ReadRequest { destination: Qpn::wrapping(QPN), psn, va, rkey: RKEY, length_bytes: 1024 };
        let ethernet = Ethernet { destination: Mac(WATCHED_XDP_MAC), source: Mac(ASKING_XDP_MAC), tags: Tags::None };
        let mut frame = [0; ANSWER_FRAME_BYTES];
        Packet::from(request).write_frame(&ethernet, &self.envelope, &mut frame)?;
        let sent =
            rustix::net::send(&self.socket, &frame, rustix::net::SendFlags::empty()).context("sending a frame")?;
        ensure!(sent == frame.len(), "a frame was cut");
        self.sent = self.sent.wrapping_add(1);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<(u64, End)>) -> Result<()> {
        loop {
            let length = match rustix::net::recv(&self.socket, &mut self.buffer[..], rustix::net::RecvFlags::empty()) {
                Ok((length, _)) => length,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error).context("receiving a frame"),
            };
            // Our own requests do not come back: the socket is for one protocol, which does not see what is sent. Anything else is not ours.
            let Ok(frame) = Frame::parse(&self.buffer[..length]) else { continue };
            let Packet::ReadAnswer(ReadAnswer { psn, payload, destination, .. }) = frame.packet else { continue };
            let id = psn.get().wrapping_sub(self.first_psn) & 0xff_ffff;
            if destination != Qpn::wrapping(QPN) || id >= self.sent {
                continue;
            }
            let index = u64::from(id) % u64::from(BLOCKS);
            let is_right = payload.len() == 1024 && {
                self.block.bytes_mut().copy_from_slice(payload);
                is_known_block(&self.block, index)
            };
            done.push((id.into(), if is_right { End::Right } else { End::Wrong }));
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        super::wait_readable(self.socket.as_raw_fd(), timeout)
    }

    fn reset(&mut self) -> Result<()> {
        // Far from every number that an answer may still bring.
        self.first_psn = self.first_psn.wrapping_add(self.sent).wrapping_add(0x1_0000) & 0xff_ffff;
        self.sent = 0;
        Ok(())
    }
}
