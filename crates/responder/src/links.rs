// SPDX-License-Identifier: Apache-2.0
//! Devices, addresses, and the filters of a device, by dumps over rtnetlink (linux/rtnetlink.h).

use std::net::IpAddr;

use crate::error::{Result, system};
use crate::netlink::{
    ADDRESS, Dump, FILTER, Kind, LINK, QDISC, ROUTE, attribute, attributes, ip_address, u16_at, u32_at,
};

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
    /// That it was made for; fewer may be in use.
    pub(crate) receive_queues: u32,
}

/// All devices of this network namespace.
pub(crate) fn links() -> Result<Vec<Link>> {
    let messages = dump(LINK, &[0; 16], "devices")?;
    Ok(messages.iter().filter_map(|message| parse_link(message)).collect())
}

fn parse_link(message: &[u8]) -> Option<Link> {
    let (header, rest) = message.split_at_checked(16)?;
    let (index, hardware_type) = (u32_at(header, 4)?, u16_at(header, 2)?);
    let mut link = Link { index, hardware_type, name: String::new(), mtu_bytes: 0, master: None, receive_queues: 1 };
    for (kind, value) in attributes(rest) {
        match kind {
            3 => link.name = String::from_utf8_lossy(value.split(|&byte| byte == 0).next()?).into_owned(),
            4 => link.mtu_bytes = u32_at(value, 0)?,
            10 => link.master = u32_at(value, 0),
            32 => link.receive_queues = u32_at(value, 0)?,
            _ => {}
        }
    }
    Some(link)
}

/// All addresses of this network namespace, each with its device's index.
pub(crate) fn addresses() -> Result<Vec<(u32, IpAddr)>> {
    let messages = dump(ADDRESS, &[0; 8], "addresses")?;
    Ok(messages.iter().filter_map(|message| parse_address(message)).collect())
}

fn parse_address(message: &[u8]) -> Option<(u32, IpAddr)> {
    let (header, rest) = message.split_at_checked(8)?;
    let (mut peer, mut local) = (None, None);
    for (kind, value) in attributes(rest) {
        match kind {
            1 => peer = ip_address(value),
            2 => local = ip_address(value),
            _ => {}
        }
    }
    // On a point-to-point device the first is the other end's.
    Some((u32_at(header, 4)?, local.or(peer)?))
}

/// Indices of the devices that have an ingress or clsact qdisc.
pub(crate) fn ingress_qdiscs() -> Result<Vec<u32>> {
    let messages = dump(QDISC, &tcmsg(0, 0), "qdiscs")?;
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
        if !dump(FILTER, &tcmsg(ifindex, parent), "filters")?.is_empty() {
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
    let messages = dump(FILTER, &tcmsg(ifindex, FILTER_PARENTS[0]), "filters")?;
    Ok(messages.iter().filter_map(|message| parse_filter(message)).collect())
}

fn parse_filter(message: &[u8]) -> Option<BpfFilter> {
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

/// Asks for everything of a kind; returns the bodies of the answers.
fn dump(kind: Kind, body: &[u8], object: &'static str) -> Result<Vec<Vec<u8>>> {
    let advice = "netlink must be allowed (AF_NETLINK in RestrictAddressFamilies of a unit file)";
    let mut dump = Dump::new(ROUTE).map_err(system("socket(AF_NETLINK)", object, advice))?;
    let mut bodies = Vec::new();
    let each = |body: &[u8]| bodies.push(body.to_vec());
    let asked = match kind {
        // The kernel may refuse where there is no qdisc: then there are no filters.
        FILTER => dump.ask_if_any(kind, body, each),
        _ => dump.ask(kind, body, each),
    };
    asked.map_err(system("netlink dump", object, advice))?;
    Ok(bodies)
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
    fn damaged_messages_are_no_answers() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = (parse_link(bytes), parse_address(bytes), parse_filter(bytes));
        });
    }
}
