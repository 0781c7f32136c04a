// SPDX-License-Identifier: Apache-2.0
//! Options of the UDP socket: what the ICRC, missing checksums and bursts of answers need.

use nix::sys::socket::{GetSockOpt as _, SetSockOpt as _, sockopt as nix_option};
use nix::{getsockopt_impl, libc, setsockopt_impl, sockopt_impl};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use std::io;
use std::net::{SocketAddr, UdpSocket};

/// What an answer may take of the receive buffer for each of its bytes: the kernel counts the memory behind a packet, up to a page per block.
const BUFFER_PER_BYTE: u32 = 4;

sockopt_impl!(
    /// Packets leave without a UDP checksum: the ICRC covers more (A17.3.2.4).
    NoChecksum, SetOnly, libc::SOL_SOCKET, libc::SO_NO_CHECK, bool
);
sockopt_impl!(
    /// As [`NoChecksum`], for IPv6.
    NoChecksumSent6, SetOnly, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_TX, bool
);
sockopt_impl!(
    /// Answers come without a UDP checksum, which IPv6 drops otherwise (RFC 6935).
    NoChecksumReceived6, SetOnly, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, bool
);

sockopt_impl!(
    /// MTU of the way to the connected peer.
    PathMtu6, GetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU, libc::c_int
);

/// Longest IP packet on the way to the peer of a connected socket, as far as this machine knows.
pub(super) fn path_mtu_bytes(udp: &UdpSocket, peer: SocketAddr) -> io::Result<usize> {
    let mtu = if peer.is_ipv4() { nix_option::IpMtu.get(udp) } else { PathMtu6.get(udp) };
    Ok(usize::try_from(mtu?).unwrap_or(0))
}

/// Sets everything; returns how many bytes of answers the receive buffer holds. An error names the option.
pub(crate) fn set(udp: &UdpSocket, local: SocketAddr, credit_bytes: u32) -> Result<u32, (&'static str, io::Error)> {
    let nix = |option: &'static str| move |error: nix::Error| (option, io::Error::from(error));
    let rustix = |option: &'static str| move |error: rustix::io::Errno| (option, io::Error::from(error));
    udp.set_nonblocking(true).map_err(|error| ("O_NONBLOCK", error))?;
    if local.is_ipv4() {
        sockopt::set_ip_mtu_discover(udp, Ipv4PathMtuDiscovery::DO).map_err(rustix("IP_MTU_DISCOVER"))?;
        sockopt::set_ip_recvtos(udp, true).map_err(rustix("IP_RECVTOS"))?;
        NoChecksum.set(udp, &true).map_err(nix("SO_NO_CHECK"))?;
    } else {
        sockopt::set_ipv6_mtu_discover(udp, Ipv6PathMtuDiscovery::DO).map_err(rustix("IPV6_MTU_DISCOVER"))?;
        sockopt::set_ipv6_recvtclass(udp, true).map_err(rustix("IPV6_RECVTCLASS"))?;
        NoChecksumSent6.set(udp, &true).map_err(nix("UDP_NO_CHECK6_TX"))?;
        NoChecksumReceived6.set(udp, &true).map_err(nix("UDP_NO_CHECK6_RX"))?;
    }
    let wanted = credit_bytes.saturating_mul(BUFFER_PER_BYTE) as usize;
    // The kernel doubles what is asked for and tells the double (socket(7)). Above net.core.rmem_max only with CAP_NET_ADMIN.
    if nix_option::RcvBufForce.set(udp, &(wanted / 2)).is_err() {
        sockopt::set_socket_recv_buffer_size(udp, wanted / 2).map_err(rustix("SO_RCVBUF"))?;
    }
    // Requests are small, and a full send buffer only makes them wait: what the system grants is enough.
    if nix_option::SndBufForce.set(udp, &(wanted / 2)).is_err() {
        sockopt::set_socket_send_buffer_size(udp, wanted / 2).map_err(rustix("SO_SNDBUF"))?;
    }
    let granted = sockopt::socket_recv_buffer_size(udp).map_err(rustix("SO_RCVBUF"))?;
    Ok(u32::try_from(granted).unwrap_or(u32::MAX) / BUFFER_PER_BYTE)
}
