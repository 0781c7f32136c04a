// SPDX-License-Identifier: Apache-2.0
//! SOCK_SEQPACKET with descriptors: packets of the agent's and the holder's sockets as they cross the kernel.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind, listen, recvmsg,
    sendmsg, socket_with,
};

/// Descriptors that one packet can have (SCM_MAX_FD, unix(7)). There is room for all: the kernel closes those that find
/// none in our context, and such a close can block ([`crate::closing`]).
const MAX_DESCRIPTORS: usize = 253;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A packet.
#[derive(Debug)]
pub struct Packet {
    /// Its length; 0 is the end of the connection.
    pub bytes: usize,
    /// Whether it was longer than the buffer.
    pub truncated: bool,
    /// Descriptors that came with it. Whoever serves others gives those of strangers to [`crate::closing`].
    pub descriptors: Vec<OwnedFd>,
    /// Whether there were more of them.
    pub more_descriptors: bool,
}

/// A listening socket.
///
/// # Errors
/// As socket, bind and listen have it.
pub fn listener(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A socket that is not connected yet, blocking.
///
/// # Errors
/// As socket has it.
pub fn unconnected() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Connects it to a listening socket. A path that begins with `@` names one that is not in the file system (unix(7)).
///
/// # Errors
/// As connect has it.
pub fn connect(socket: impl AsFd, path: &Path) -> io::Result<()> {
    let address = match path.as_os_str().as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        _ => SocketAddrUnix::new(path)?,
    };
    Ok(rustix::net::connect(socket, &address)?)
}

/// Connects to a listening socket, blocking.
///
/// # Errors
/// As socket and connect have it.
pub fn connected(path: &Path) -> io::Result<OwnedFd> {
    let socket = unconnected()?;
    connect(&socket, path)?;
    Ok(socket)
}

/// The next connection, not blocking.
///
/// # Errors
/// As accept4 has it.
pub fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    let (socket, _) = acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    Ok(socket)
}

/// Receives one packet into `buffer`.
///
/// # Errors
/// As recvmsg has it; `WouldBlock` where there is none.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Packet> {
    receive_with(socket, buffer, RecvFlags::CMSG_CLOEXEC)
}

/// As [`receive`], but never waits, whatever the socket's mode.
pub(crate) fn receive_now(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Packet> {
    receive_with(socket, buffer, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
}

fn receive_with(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> io::Result<Packet> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok(Packet {
        bytes: received.bytes,
        truncated: received.flags.contains(ReturnFlags::TRUNC),
        descriptors,
        more_descriptors: received.flags.contains(ReturnFlags::CTRUNC),
    })
}

/// Sends one packet, with a descriptor if there is one.
///
/// # Errors
/// As sendmsg has it; `WouldBlock` where the peer does not read.
pub fn send(socket: impl AsFd, packet: &[u8], descriptor: Option<BorrowedFd>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
