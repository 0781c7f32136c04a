// SPDX-License-Identifier: Apache-2.0
//! Dumps over rtnetlink, in safe code: devices, addresses, and the filters of a device. Written and read as linux/netlink.h and linux/rtnetlink.h say.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use crate::error::{Error, Result, system};

const REQUEST_AND_DUMP: u16 = 0x301;
const DONE: u16 = 3;
const ERROR: u16 = 2;
const HEADER_BYTES: usize = 16;
/// More than a netlink message of a dump ever has.
const RECEIVE_BYTES: usize = 64 << 10;

const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_QDISC: u16 = 36;
const GET_QDISC: u16 = 38;
const NEW_FILTER: u16 = 44;
const GET_FILTER: u16 = 46;

/// Parent of ingress and clsact qdiscs.
const INGRESS: u32 = 0xffff_fff1;
/// Parents of filters on packets that come in and that go out.
const FILTER_PARENTS: [u32; 2] = [0xffff_fff2, 0xffff_fff3];

/// What a dump of devices says of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) hardware_type: u16,
    pub(crate) name: String,
    pub(crate) mtu_bytes: u32,
    /// Index of the bridge, bond or VRF that it is a port of.
    pub(crate) master: Option<u32>,
}

/// All devices of this network namespace.
pub(crate) fn links() -> Result<Vec<Link>> {
    let messages = dump(GET_LINK, NEW_LINK, &[0; 16], "devices")?;
    Ok(messages.iter().filter_map(|message| parse_link(message)).collect())
}

fn parse_link(message: &[u8]) -> Option<Link> {
    let (header, attributes) = message.split_at_checked(16)?;
    let (index, hardware_type) = (u32_at(header, 4)?, u16_at(header, 2)?);
    let mut link = Link { index, hardware_type, name: String::new(), mtu_bytes: 0, master: None };
    for (kind, value) in Attributes(attributes) {
        match kind {
            3 => link.name = String::from_utf8_lossy(value.split(|&byte| byte == 0).next()?).into_owned(),
            4 => link.mtu_bytes = u32_at(value, 0)?,
            10 => link.master = u32_at(value, 0),
            _ => {}
        }
    }
    Some(link)
}

/// All addresses of this network namespace, each with its device's index.
pub(crate) fn addresses() -> Result<Vec<(u32, IpAddr)>> {
    let messages = dump(GET_ADDRESS, NEW_ADDRESS, &[0; 8], "addresses")?;
    Ok(messages.iter().filter_map(|message| parse_address(message)).collect())
}

fn parse_address(message: &[u8]) -> Option<(u32, IpAddr)> {
    let (header, attributes) = message.split_at_checked(8)?;
    let (mut peer, mut local) = (None, None);
    for (kind, value) in Attributes(attributes) {
        match kind {
            1 => peer = ip_address(value),
            2 => local = ip_address(value),
            _ => {}
        }
    }
    // On a point-to-point device the first is the other end's.
    Some((u32_at(header, 4)?, local.or(peer)?))
}

fn ip_address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?))),
        16 => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?))),
        _ => None,
    }
}

/// Indices of the devices that have an ingress or clsact qdisc.
pub(crate) fn ingress_qdiscs() -> Result<Vec<u32>> {
    let messages = dump(GET_QDISC, NEW_QDISC, &tcmsg(0, 0), "qdiscs")?;
    let ingress = messages.iter().filter(|message| u32_at(message, 12) == Some(INGRESS));
    Ok(ingress.filter_map(|message| u32_at(message, 4)).collect())
}

/// Whether a device has one.
pub(crate) fn has_ingress_qdisc(ifindex: u32) -> Result<bool> {
    Ok(ingress_qdiscs()?.contains(&ifindex))
}

/// Whether anything filters on a device's ingress or clsact qdisc.
pub(crate) fn has_filters(ifindex: u32) -> Result<bool> {
    for parent in FILTER_PARENTS {
        if !dump(GET_FILTER, NEW_FILTER, &tcmsg(ifindex, parent), "filters")?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A BPF program on a device's ingress or clsact qdisc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BpfFilter {
    pub(crate) priority: u32,
    pub(crate) handle: u32,
    /// Id of the program.
    pub(crate) program: u32,
}

/// The BPF programs that filter what comes in on a device's ingress or clsact qdisc.
pub(crate) fn ingress_filters(ifindex: u32) -> Result<Vec<BpfFilter>> {
    let messages = dump(GET_FILTER, NEW_FILTER, &tcmsg(ifindex, FILTER_PARENTS[0]), "filters")?;
    Ok(messages.iter().filter_map(|message| parse_filter(message)).collect())
}

fn parse_filter(message: &[u8]) -> Option<BpfFilter> {
    let attribute = |bytes, wanted| Attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    // TCA_KIND, TCA_OPTIONS and in there TCA_BPF_ID of linux/rtnetlink.h and linux/pkt_cls.h.
    let options = (attribute(message.get(20..)?, 1)? == b"bpf\0").then(|| attribute(message.get(20..)?, 2))??;
    let program = u32_at(attribute(options, 11)?, 0)?;
    // tcm_info has the priority above the protocol.
    Some(BpfFilter { priority: u32_at(message, 16)? >> 16, handle: u32_at(message, 8)?, program })
}

fn tcmsg(ifindex: u32, parent: u32) -> [u8; 20] {
    let mut body = [0; 20];
    body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    body[12..16].copy_from_slice(&parent.to_ne_bytes());
    body
}

/// Asks for everything of a kind; returns the bodies of the messages of type `answer`.
fn dump(request: u16, answer: u16, body: &[u8], object: &'static str) -> Result<Vec<Vec<u8>>> {
    let advice = "netlink must be allowed (AF_NETLINK in RestrictAddressFamilies of a unit file)";
    let flags = SocketFlags::CLOEXEC;
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None).map_err(system(
        "socket(AF_NETLINK)",
        object,
        advice,
    ))?;
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend_from_slice(&u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX).to_ne_bytes());
    message.extend_from_slice(&request.to_ne_bytes());
    message.extend_from_slice(&REQUEST_AND_DUMP.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(body);
    send(&socket, &message, SendFlags::empty()).map_err(system("netlink dump", object, advice))?;

    let mut bodies = Vec::new();
    let mut buffer = vec![0; RECEIVE_BYTES];
    loop {
        let (bytes, _) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty()).map_err(system(
            "netlink answer",
            object,
            advice,
        ))?;
        let mut rest = &buffer[..bytes];
        while !rest.is_empty() {
            let (kind, body, after) = split_message(rest).ok_or_else(|| Error::Netlink {
                operation: "dump",
                object: object.to_owned(),
                what: format!("a message of {bytes} bytes that is none"),
            })?;
            match kind {
                DONE => return Ok(bodies),
                // A dump of filters where there is no qdisc.
                ERROR if request == GET_FILTER => return Ok(bodies),
                ERROR => {
                    let errno = u32_at(body, 0).map_or(0, |code| code.cast_signed().wrapping_neg());
                    return Err(Error::System {
                        operation: "netlink dump",
                        object: object.to_owned(),
                        source: std::io::Error::from_raw_os_error(errno),
                        advice,
                    });
                }
                kind if kind == answer => bodies.push(body.to_vec()),
                _ => {}
            }
            rest = after;
        }
    }
}

/// Type and body of the first message, and what follows it.
fn split_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let body = bytes.get(HEADER_BYTES..length)?;
    Some((u16_at(bytes, 4)?, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Type and value of each attribute; ends at the first damaged one.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0)?);
        // Two bits of the type are flags.
        let kind = u16_at(self.0, 2)? & 0x3fff;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there() {
        let links = links().unwrap();
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        assert_eq!((lo.index, lo.hardware_type), (1, 772));
        assert!(lo.mtu_bytes >= 1500);
        assert!(!has_filters(lo.index).unwrap() || has_ingress_qdisc(lo.index).unwrap());
    }

    #[test]
    fn damaged_messages_are_not_followed() {
        assert_eq!(split_message(&[0; 15]), None);
        assert_eq!(split_message(&[255; 64]), None);
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = split_message(bytes).map(|(_, body, after)| assert!(body.len() + after.len() < bytes.len()));
            let values: usize = Attributes(bytes).map(|(_, value)| value.len() + 4).sum();
            assert!(values <= bytes.len() + 4);
            let _ = (parse_link(bytes), parse_address(bytes), parse_filter(bytes));
        });
    }
}
