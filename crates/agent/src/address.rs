// SPDX-License-Identifier: Apache-2.0
//! Listening where the configuration says, also at addresses that this host does not have yet, or not any more for a while: a boot before the network is up, an address
//! that moves between hosts. The socket waits for its address; nothing is to be done when it comes.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use crate::config::Config;

/// Connections that wait to be accepted: as many as the kernel lets a socket have (net.core.somaxconn).
const BACKLOG: i32 = i32::MAX;

/// Listens at an address, whether or not this host has it.
///
/// # Errors
/// Somebody else listens there, or it cannot be an address of any host.
pub fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // As std does: connections of an earlier agent do not keep the port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    match family {
        AddressFamily::INET => sockopt::set_ip_freebind(&socket, true)?,
        _ => sockopt::set_ipv6_freebind(&socket, true)?,
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// What the operator is to be told of addresses that the host does not have now.
#[must_use]
pub fn warnings(config: &Config) -> Vec<String> {
    let listens = [("bootstrap", config.bootstrap.listen), ("tcp", config.tcp.listen)];
    let away = listens.into_iter().filter(|(_, listen)| is_away(listen.ip()));
    away.map(|(section, listen)| {
        format!(
            "[{section}] listen = \"{listen}\": this host does not have {} now, so nobody reaches it there; it is served as soon as a device has it (`ip address` shows what is there)",
            listen.ip()
        )
    })
    .collect()
}

/// Whether no device has an address.
fn is_away(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_not_there_are_listened_at_and_told() {
        // For documentation (RFC 5737, 3849).
        for away in ["192.0.2.7:0", "[2001:db8::7]:0"] {
            let away: SocketAddr = away.parse().unwrap();
            let listener = listener(away).unwrap();
            let bound = listener.local_addr().unwrap();
            assert!(bound.ip() == away.ip() && bound.port() != 0);
            assert_eq!(super::listener(bound).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            let mut config = Config::default();
            assert!(warnings(&config).is_empty(), "loopback is there");
            config.tcp.listen = bound;
            let told = warnings(&config);
            assert_eq!(told.len(), 1);
            assert!(told[0].contains(&format!("[tcp] listen = \"{bound}\"")), "{told:?}");
        }
        for anywhere in ["0.0.0.0:0", "[::]:0", "127.0.0.1:0"] {
            let anywhere: SocketAddr = anywhere.parse().unwrap();
            assert!(listener(anywhere).is_ok() && !is_away(anywhere.ip()));
        }
    }
}
