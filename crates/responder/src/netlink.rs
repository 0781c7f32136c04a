// SPDX-License-Identifier: Apache-2.0
//! Netlink messages (linux/netlink.h) and dumps: what the kernel tells of devices and sockets without text. In safe code; nothing in a message is trusted to be whole.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

/// `NETLINK_SOCK_DIAG`.
pub const SOCKETS: Option<Protocol> = Some(netlink::SOCK_DIAG);
/// `NETLINK_ROUTE`, which is protocol 0.
pub const ROUTE: Option<Protocol> = None;

/// `NETLINK_GENERIC`.
pub const GENERIC: Option<Protocol> = Some(netlink::GENERIC);

/// Types of messages about one kind of thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// `RTM_NEW...`: it is there.
    pub new: u16,
    /// `RTM_DEL...`: it has gone.
    pub delete: u16,
    /// `RTM_GET...`: asks for all of them.
    pub get: u16,
}

/// rtnetlink's types come in fours (linux/rtnetlink.h).
const fn route(new: u16) -> Kind {
    Kind { new, delete: new + 1, get: new + 2 }
}

/// Network devices.
pub const LINK: Kind = route(16);
/// Addresses of devices.
pub const ADDRESS: Kind = route(20);
/// Queueing disciplines.
pub const QDISC: Kind = route(36);
/// Filters of packets.
pub const FILTER: Kind = route(44);
/// `SOCK_DIAG_BY_FAMILY` is both question and answer; nobody is told when one goes.
pub const SOCKET: Kind = Kind { new: 20, delete: 0, get: 20 };

const HEADER_BYTES: usize = 16;
/// `NLM_F_REQUEST`, `NLM_F_DUMP`.
const REQUEST_AND_DUMP: u16 = 0x301;
/// `NLM_F_REQUEST`, `NLM_F_ACK`.
const REQUEST_AND_ACK: u16 = 0x5;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The kernel sizes a dump's messages by what was received before, up to 32 KiB (netlink_dump in net/netlink/af_netlink.c).
const RECEIVE_BYTES: usize = 16 << 10;

/// A number in a message.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// A number in a message.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Type and body of the first message, and what follows it.
#[must_use]
pub fn split_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let body = bytes.get(HEADER_BYTES..length)?;
    Some((u16_at(bytes, 4)?, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// Type and value of each attribute; ends at the first that is not whole.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let value = bytes.get(4..length)?;
        // Two bits of the type are flags.
        let kind = u16_at(bytes, 2)? & 0x3fff;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the first attribute of a type.
#[must_use]
pub fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// An address as the value of an attribute.
#[must_use]
pub fn ip_address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
        _ => None,
    }
}

/// A socket that asks for all there is of something, or for one thing to be done.
#[derive(Debug)]
pub struct Dump {
    socket: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Dump {
    /// Of the calling thread's network namespace. Needs no privilege.
    ///
    /// # Errors
    /// Netlink is forbidden (`AF_NETLINK` in `RestrictAddressFamilies` of a unit), or the kernel lacks the protocol.
    pub fn new(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, buffer: vec![0; RECEIVE_BYTES], sequence: 0 })
    }

    /// Asks for all of a kind and calls `each` with the body of every answer.
    ///
    /// # Errors
    /// As the kernel has it.
    pub fn ask(&mut self, kind: Kind, body: &[u8], each: impl FnMut(&[u8])) -> io::Result<()> {
        refused(self.converse(kind, REQUEST_AND_DUMP, body, each)?)
    }

    /// Has the kernel do something, and waits until it says that it has.
    ///
    /// # Errors
    /// As the kernel has it.
    pub fn tell(&mut self, kind: Kind, body: &[u8]) -> io::Result<()> {
        refused(self.converse(kind, REQUEST_AND_ACK, body, |_| ())?)
    }

    /// The same, where a refusal of the kernel means that there is nothing.
    ///
    /// # Errors
    /// Of the socket.
    pub fn ask_if_any(&mut self, kind: Kind, body: &[u8], each: impl FnMut(&[u8])) -> io::Result<()> {
        self.converse(kind, REQUEST_AND_DUMP, body, each).map(drop)
    }

    /// Gives the errno with which the kernel has refused, or 0.
    fn converse(&mut self, of: Kind, flags: u16, body: &[u8], mut each: impl FnMut(&[u8])) -> io::Result<i32> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = u32::try_from(HEADER_BYTES + body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut request = [0; 128];
        let request = request.get_mut(..bytes as usize).ok_or(io::ErrorKind::InvalidInput)?;
        request[..4].copy_from_slice(&bytes.to_ne_bytes());
        request[4..6].copy_from_slice(&of.get.to_ne_bytes());
        request[6..8].copy_from_slice(&flags.to_ne_bytes());
        request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        request[HEADER_BYTES..].copy_from_slice(body);
        send(&self.socket, request, SendFlags::empty())?;
        loop {
            let received = match recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty()) {
                Ok((_, received)) => received.min(self.buffer.len()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let mut rest = &self.buffer[..received];
            if rest.is_empty() {
                return Ok(0);
            }
            while let Some((kind, body, after)) = split_message(rest) {
                // What is left of an earlier dump that was given up.
                let is_ours = u32_at(rest, 8) == Some(self.sequence);
                match kind {
                    _ if !is_ours => {}
                    DONE => return Ok(0),
                    ERROR => return Ok(u32_at(body, 0).map_or(0, |errno| errno.cast_signed().wrapping_neg())),
                    kind if kind == of.new => each(body),
                    _ => {}
                }
                rest = after;
            }
        }
    }
}

/// An errno as a result.
fn refused(errno: i32) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_messages_are_not_followed() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let mut rest = bytes.as_slice();
            for _ in 0..=bytes.len() {
                let Some((_, body, after)) = split_message(rest) else { break };
                attributes(body).for_each(drop);
                rest = after;
            }
        });
    }

    #[test]
    fn the_kernel_knows_loopback() {
        let mut names = Vec::new();
        let mut dump = Dump::new(ROUTE).unwrap();
        for _ in 0..2 {
            names.clear();
            // struct ifinfomsg; IFLA_IFNAME.
            dump.ask(LINK, &[0; 16], |body| names.extend(attribute(&body[16..], 3).map(<[u8]>::to_vec))).unwrap();
            assert!(names.iter().any(|name| name == b"lo\0"), "{names:?}");
        }
        // No such family.
        assert!(Dump::new(SOCKETS).unwrap().ask(SOCKET, &[250; 56], |_| ()).is_err());
    }
}
