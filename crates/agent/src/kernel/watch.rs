// SPDX-License-Identifier: Apache-2.0
//! Changes of network devices and addresses, as rtnetlink tells them to everybody (linux/rtnetlink.h). Only those of configured devices count: a host
//! that makes devices all day shall not have the loader run all day.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use onlooker_responder::netlink::{ADDRESS, LINK, attribute, ip_address, split_message, u32_at};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use super::load::DeviceState;

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV6_IFADDR`.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
/// As the kernel sizes its own messages at most.
const RECEIVE_BYTES: usize = 32 << 10;
/// Messages taken at once.
const MESSAGES: usize = 64;

/// Devices and addresses as the loader has found them.
#[derive(Debug, Default)]
pub struct Known {
    /// Configured names and the indices that they had.
    devices: BTreeMap<String, Option<u32>>,
    addresses: BTreeSet<(u32, IpAddr)>,
}

impl Known {
    /// From a report.
    #[must_use]
    pub fn of(devices: &[DeviceState]) -> Self {
        let addresses = devices.iter().filter_map(|device| Some((device.index?, device)));
        Self {
            devices: devices.iter().map(|device| (device.name.clone(), device.index)).collect(),
            addresses: addresses
                .flat_map(|(index, device)| device.addresses.iter().map(move |address| (index, *address)))
                .collect(),
        }
    }

    fn has_index(&self, index: u32) -> bool {
        self.devices.values().any(|known| *known == Some(index))
    }

    /// Whether a packet of messages tells of a change to what is known.
    #[must_use]
    pub fn is_changed_by(&self, packet: &[u8]) -> bool {
        let mut rest = packet;
        while let Some((kind, body, after)) = split_message(rest) {
            if self.is_changed(kind, body).unwrap_or(false) {
                return true;
            }
            rest = after;
        }
        false
    }

    fn is_changed(&self, kind: u16, body: &[u8]) -> Option<bool> {
        let index = u32_at(body, 4)?;
        match kind {
            // Bridges tell of their ports in messages of their own family.
            _ if kind == LINK.new && body.first() == Some(&0) => {
                let name = attribute(body.get(16..)?, 3)?;
                let name = String::from_utf8_lossy(name.split(|byte| *byte == 0).next()?).into_owned();
                Some(match self.devices.get(&name) {
                    Some(known) => *known != Some(index),
                    None => self.has_index(index),
                })
            }
            _ if kind == LINK.delete && body.first() == Some(&0) => Some(self.has_index(index)),
            _ if [ADDRESS.new, ADDRESS.delete].contains(&kind) && self.has_index(index) => {
                let attributes = body.get(8..)?;
                // IFA_LOCAL, or IFA_ADDRESS where it is the only one.
                let address = ip_address(attribute(attributes, 2).or_else(|| attribute(attributes, 1))?)?;
                Some(self.addresses.contains(&(index, address)) == (kind == ADDRESS.delete))
            }
            _ => Some(false),
        }
    }
}

/// Where the kernel tells.
#[derive(Debug)]
pub struct Watch {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Watch {
    /// Of this network namespace. Needs no privilege.
    ///
    /// # Errors
    /// netlink is forbidden (`AF_NETLINK` in `RestrictAddressFamilies` of a unit).
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Protocol 0 is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { socket, buffer: vec![0; RECEIVE_BYTES] })
    }

    /// Takes what has come; whether any of it changes what is known, or something was missed.
    pub fn is_changed(&mut self, known: &Known) -> bool {
        let mut changed = false;
        for _ in 0..MESSAGES {
            match recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty()) {
                Ok((bytes, _)) => changed |= known.is_changed_by(&self.buffer[..bytes]),
                Err(Errno::NOBUFS) => changed = true,
                Err(_) => break,
            }
        }
        changed
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let device = |name: &str, index, address: &str| DeviceState {
            name: name.into(),
            index,
            addresses: vec![address.parse().unwrap()],
            error: None,
        };
        Known::of(&[
            device("eth0", Some(2), "10.0.0.1"),
            device("eth1", None, "10.0.0.2"),
            device("eth2", Some(7), "fd00::1"),
        ])
    }

    fn message(kind: u16, head: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = head.to_vec();
        for (kind, value) in attributes {
            body.extend_from_slice(&u16::try_from(value.len() + 4).unwrap().to_ne_bytes());
            body.extend_from_slice(&kind.to_ne_bytes());
            body.extend_from_slice(value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        let mut message = u32::try_from(16 + body.len()).unwrap().to_ne_bytes().to_vec();
        message.extend_from_slice(&kind.to_ne_bytes());
        message.resize(16, 0);
        message.extend_from_slice(&body);
        message
    }

    fn link(kind: u16, family: u8, index: u32, name: &str) -> Vec<u8> {
        let mut head = vec![0; 16];
        head[0] = family;
        head[4..8].copy_from_slice(&index.to_ne_bytes());
        message(kind, &head, &[(4, &1500u32.to_ne_bytes()), (3, format!("{name}\0").as_bytes())])
    }

    fn address(kind: u16, index: u32, local: &str) -> Vec<u8> {
        let mut head = vec![0; 8];
        head[4..8].copy_from_slice(&index.to_ne_bytes());
        let local: IpAddr = local.parse().unwrap();
        let bytes = match local {
            IpAddr::V4(local) => local.octets().to_vec(),
            IpAddr::V6(local) => local.octets().to_vec(),
        };
        message(kind, &head, &[(1, &bytes)])
    }

    #[test]
    fn only_changes_of_configured_devices_count() {
        let known = known();
        for (packet, expected) in [
            (link(LINK.new, 0, 2, "eth0"), false),
            (link(LINK.new, 0, 3, "eth0"), true),
            (link(LINK.new, 0, 9, "eth1"), true),
            (link(LINK.new, 0, 2, "lan"), true),
            (link(LINK.new, 0, 9, "veth9"), false),
            (link(LINK.delete, 0, 2, "eth0"), true),
            (link(LINK.delete, 7, 2, "eth0"), false),
            (link(LINK.delete, 0, 9, "veth9"), false),
            (address(ADDRESS.new, 2, "10.0.0.1"), false),
            (address(ADDRESS.new, 2, "10.0.0.9"), true),
            (address(ADDRESS.new, 9, "10.0.0.9"), false),
            (address(ADDRESS.delete, 2, "10.0.0.1"), true),
            (address(ADDRESS.delete, 7, "fd00::1"), true),
            (address(ADDRESS.delete, 7, "fd00::2"), false),
        ] {
            assert_eq!(known.is_changed_by(&packet), expected, "{packet:?}");
            let both = [link(LINK.new, 0, 9, "veth9"), packet].concat();
            assert_eq!(known.is_changed_by(&both), expected, "behind another message");
        }
    }

    #[test]
    fn damaged_messages_are_not_followed() {
        let known = known();
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = known.is_changed_by(bytes);
        });
        let whole = link(LINK.new, 0, 3, "eth0");
        for length in 0..whole.len() {
            assert!(!known.is_changed_by(&whole[..length]));
        }
    }

    #[test]
    fn the_kernel_tells_us() {
        let mut watch = Watch::new().unwrap();
        assert!(!watch.is_changed(&known()));
    }
}
