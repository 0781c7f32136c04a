// SPDX-License-Identifier: Apache-2.0
//! What lies around the InfiniBand part of a packet: IP header and UDP ports. The ICRC covers most of it, so whoever sees
//! only a UDP payload must know the envelope: [`Envelope::socket`].

use core::net::{IpAddr, SocketAddr};

use crate::error::Error;
use crate::eth::EtherType;
use crate::ip::{DEFAULT_HOP_LIMIT, ECN_CAPABLE, IpHeader, Ipv4Header, Ipv6Header};
use crate::udp::Ports;

/// IP header and UDP ports of one packet, lengths apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// IP header.
    pub ip: IpHeader,
    /// UDP ports.
    pub ports: Ports,
}

impl Envelope {
    /// The envelope that the kernel puts around datagrams of a UDP socket, and our responder around its answers: IPv4
    /// identification 0 and "don't fragment", IPv6 flow label 0 (masked in the ICRC, so another label does no harm).
    ///
    /// For IPv4 the socket must be unconnected, set `IP_PMTUDISC_DO` and not use `UDP_SEGMENT`, or Linux numbers the
    /// packets. rdma_rxe numbers its packets, and a socket cannot see the numbers: read its answers as whole frames.
    ///
    /// IPv4-mapped IPv6 addresses, as dual-stack sockets report them, count as IPv4.
    ///
    /// # Errors
    /// [`Error::MixedFamilies`].
    pub fn socket(source: SocketAddr, destination: SocketAddr) -> Result<Self, Error> {
        let ip = match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => IpHeader::V4(Ipv4Header {
                traffic_class: 0,
                identification: 0,
                hop_limit: DEFAULT_HOP_LIMIT,
                source,
                destination,
            }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => IpHeader::V6(Ipv6Header {
                traffic_class: 0,
                flow_label: 0,
                hop_limit: DEFAULT_HOP_LIMIT,
                source,
                destination,
            }),
            _ => return Err(Error::MixedFamilies),
        };
        Ok(Self { ip, ports: Ports { source: source.port(), destination: destination.port() } })
    }

    /// The envelope of an answer to a packet that came in this one: addresses and ports swapped, identification and flow
    /// label 0, the given DSCP (0 to 63) and ECT(0). A verbs device takes answers at [`crate::ROCE_PORT`] only: set
    /// `ports.destination` for such a peer.
    #[must_use]
    pub const fn answer(&self, dscp: u8) -> Self {
        let traffic_class = dscp << 2 | ECN_CAPABLE;
        let ip = match self.ip {
            IpHeader::V4(header) => IpHeader::V4(Ipv4Header {
                traffic_class,
                identification: 0,
                hop_limit: DEFAULT_HOP_LIMIT,
                source: header.destination,
                destination: header.source,
            }),
            IpHeader::V6(header) => IpHeader::V6(Ipv6Header {
                traffic_class,
                flow_label: 0,
                hop_limit: DEFAULT_HOP_LIMIT,
                source: header.destination,
                destination: header.source,
            }),
        };
        Self { ip, ports: Ports { source: self.ports.destination, destination: self.ports.source } }
    }

    /// Splits an IP packet, as packet sockets without link header see it, into envelope and UDP payload. Bytes after the IP
    /// packet (Ethernet padding) are left out.
    ///
    /// # Errors
    /// Those of [`IpHeader::parse`] and [`Ports::parse`].
    pub fn parse(ether_type: EtherType, packet: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (ip, rest) = IpHeader::parse(ether_type, packet)?;
        let (ports, payload) = Ports::parse(rest)?;
        Ok((Self { ip, ports }, payload))
    }

    /// Bytes of the IP and UDP headers: 28 or 48.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.ip.len_bytes() + Ports::HEADER_BYTES
    }

    /// Writes both headers for a UDP payload of `payload_bytes`; returns their length.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`], [`Error::PayloadLength`].
    pub fn write(&self, payload_bytes: usize, out: &mut [u8]) -> Result<usize, Error> {
        let ip_bytes = self.ip.write(payload_bytes + Ports::HEADER_BYTES, out)?;
        // In bounds: the IP header has just been written there.
        let udp_bytes = self.ports.write(payload_bytes, &mut out[ip_bytes..])?;
        Ok(ip_bytes + udp_bytes)
    }
}
