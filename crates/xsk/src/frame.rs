// SPDX-License-Identifier: Apache-2.0
//! Headers of a datagram's frame: read when one comes, written for the way back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
/// Ethernet, IPv6, UDP.
const MAX_HEADER_BYTES: usize = ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES;
const UDP: u8 = 17;
const HOPS: u8 = 64;
const DONT_FRAGMENT: u8 = 0x40;
/// Both bits of congestion notification set (RFC 3168 5).
const CONGESTED: u8 = 0b11;

/// A datagram that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived<'a> {
    /// Who sent it.
    pub from: SocketAddr,
    /// What it carries.
    pub payload: &'a [u8],
    /// Its IP header has a congestion mark.
    pub is_congested: bool,
    header: &'a [u8],
    queue: u32,
}

impl<'a> Arrived<'a> {
    /// Reads a frame that the program has let through: Ethernet, IP without options, UDP.
    pub(crate) fn parse(frame: &'a [u8], queue: u32) -> Option<Self> {
        let ip = frame.get(ETHERNET_BYTES..)?;
        let (source, traffic_class, ip_bytes): (IpAddr, u8, usize) = match frame[12..14] {
            [0x08, 0x00] => (Ipv4Addr::from(array::<4>(ip, 12)?).into(), *ip.get(1)?, IPV4_BYTES),
            [0x86, 0xdd] => {
                (Ipv6Addr::from(array::<16>(ip, 8)?).into(), ip.first()? << 4 | ip.get(1)? >> 4, IPV6_BYTES)
            }
            _ => return None,
        };
        let udp = ip.get(ip_bytes..)?;
        let from = SocketAddr::new(source, u16::from_be_bytes(array(udp, 0)?));
        let udp_bytes = usize::from(u16::from_be_bytes(array(udp, 4)?));
        // What is behind the datagram is padding.
        let payload = udp.get(UDP_BYTES..udp_bytes)?;
        let header = &frame[..ETHERNET_BYTES + ip_bytes + UDP_BYTES];
        Some(Self { from, payload, is_congested: traffic_class & CONGESTED == CONGESTED, header, queue })
    }

    /// Whether it came by the way that `way` goes.
    #[must_use]
    pub fn is_from(&self, way: &Way) -> bool {
        let header = &way.header;
        self.queue == way.queue && self.header[..6] == header[6..12] && self.header[6..12] == header[..6]
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// Where datagrams to a peer go: the headers of all of them, which have one length, and the queue.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    peer: SocketAddr,
    header: [u8; MAX_HEADER_BYTES],
    header_bytes: u8,
    pub(crate) queue: u32,
}

impl Way {
    /// To where a datagram came from, by the neighbour that handed it over, for datagrams of `payload_bytes`. Without a
    /// UDP checksum, as this crate's users protect what they send.
    ///
    /// # Panics
    /// If `payload_bytes` is more than fits an IP packet.
    #[must_use]
    pub fn back(arrived: &Arrived<'_>, payload_bytes: usize) -> Self {
        let came = arrived.header;
        let mut header = [0; MAX_HEADER_BYTES];
        header[..6].copy_from_slice(&came[6..12]);
        header[6..12].copy_from_slice(&came[..6]);
        header[12..14].copy_from_slice(&came[12..14]);
        let udp_bytes = u16::try_from(UDP_BYTES + payload_bytes).expect("a datagram that fits an IP packet");
        let ip_bytes = if arrived.from.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES };
        let (came_ip, ip) = (&came[ETHERNET_BYTES..], &mut header[ETHERNET_BYTES..]);
        if arrived.from.is_ipv4() {
            let total = u16::try_from(IPV4_BYTES).expect("20") + udp_bytes;
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            ip[6] = DONT_FRAGMENT;
            ip[8] = HOPS;
            ip[9] = UDP;
            ip[12..16].copy_from_slice(&came_ip[16..20]);
            ip[16..20].copy_from_slice(&came_ip[12..16]);
            let sum = checksum(&ip[..IPV4_BYTES]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            ip[0] = 0x60;
            ip[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
            ip[6] = UDP;
            ip[7] = HOPS;
            ip[8..24].copy_from_slice(&came_ip[24..40]);
            ip[24..40].copy_from_slice(&came_ip[8..24]);
        }
        let (came_udp, udp) = (&came_ip[ip_bytes..], &mut ip[ip_bytes..]);
        udp[..2].copy_from_slice(&came_udp[2..4]);
        udp[2..4].copy_from_slice(&came_udp[..2]);
        udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
        let header_bytes = u8::try_from(ETHERNET_BYTES + ip_bytes + UDP_BYTES).expect("at most 62");
        Self { peer: arrived.from, header, header_bytes, queue: arrived.queue }
    }

    /// Whom it leads to.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_bytes)]
    }
}

/// Of an IPv4 header whose checksum field is 0 (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).expect("folded twice")
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_wire::{Envelope, Ethernet, Frame, Mac, Packet, Psn, Qpn, ReadRequest, Tags};

    const REQUEST: ReadRequest =
        ReadRequest { destination: Qpn::wrapping(1), psn: Psn::wrapping(2), va: 3, rkey: 4, length_bytes: 1024 };

    /// A frame of the wire crate, which has its own opinion of headers.
    fn frame(ethernet: Ethernet, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
        let (packet, envelope) = (Packet::from(REQUEST), Envelope::socket(from, to).unwrap());
        let mut bytes = vec![0; packet.frame_bytes(&ethernet, &envelope)];
        packet.write_frame(&ethernet, &envelope, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_way_back_is_to_the_sender_by_the_neighbour_that_handed_it_over() {
        let (here, there) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        for (near, far) in [("10.0.0.1:40000", "10.0.9.2:4792"), ("[fd00::1]:40000", "[fd00:9::2]:4792")] {
            let (near, far): (SocketAddr, SocketAddr) = (near.parse().unwrap(), far.parse().unwrap());
            let came = frame(Ethernet { destination: here, source: there, tags: Tags::None }, far, near);
            // Behind a short packet there is padding.
            let padded = [&came[..], &[0; 7]].concat();
            let arrived = Arrived::parse(&padded, 3).unwrap();
            assert_eq!((arrived.from, arrived.is_congested), (far, false));

            let way = Way::back(&arrived, arrived.payload.len());
            assert!(way.peer() == far && arrived.is_from(&way));
            let wanted = Ethernet { destination: there, source: here, tags: Tags::None };
            let mut sent = way.header().to_vec();
            sent.extend(&frame(wanted, near, far)[sent.len()..]);
            let read = Frame::parse(&sent).unwrap();
            assert_eq!((read.ethernet, read.packet), (wanted, Packet::from(REQUEST)));
            assert_eq!(sent, frame(wanted, near, far));

            let other = frame(Ethernet { destination: here, source: here, tags: Tags::None }, far, near);
            assert!(!Arrived::parse(&other, 3).unwrap().is_from(&way));
            assert!(!Arrived::parse(&came, 2).unwrap().is_from(&way));
        }
    }

    #[test]
    fn congestion_is_seen_in_both_families() {
        let ethernet = Ethernet { destination: Mac([2; 6]), source: Mac([4; 6]), tags: Tags::None };
        for (near, far, at, bits) in
            [("10.0.0.1:1", "10.0.0.2:2", 15, 0b11), ("[fd00::1]:1", "[fd00::2]:2", 15, 0b11 << 4)]
        {
            let mut came = frame(ethernet, far.parse().unwrap(), near.parse().unwrap());
            came[at] |= bits;
            assert!(Arrived::parse(&came, 0).unwrap().is_congested, "{far}");
        }
    }

    #[test]
    fn no_bytes_are_too_much_for_it() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Some(arrived) = Arrived::parse(bytes, 0) {
                let _ = Way::back(&arrived, 32);
            }
        });
    }
}
