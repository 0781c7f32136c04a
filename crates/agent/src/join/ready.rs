// SPDX-License-Identifier: Apache-2.0
//! Whether an agent runs here and serves: it answers on its registration socket, and its bootstrap endpoint takes connections where the configuration says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};

use crate::seqpacket;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nobody answers at the socket.
    Nobody,
    /// One that does not listen where this configuration says: it was started with another one.
    Other {
        /// Its process.
        pid: i32,
        /// What is wrong.
        what: String,
    },
    /// One that serves.
    Ready {
        /// Its process.
        pid: i32,
    },
}

/// Looks once.
#[must_use]
pub fn look(socket: &Path, bootstrap: SocketAddr) -> Found {
    let Some(pid) = greet(socket) else { return Found::Nobody };
    match TcpStream::connect_timeout(&reachable(bootstrap), ANSWER_TIMEOUT) {
        Ok(_) => Found::Ready { pid },
        Err(error) => Found::Other { pid, what: format!("its bootstrap endpoint is not at {bootstrap}: {error}") },
    }
}

/// The process that answers a greeting, whatever it answers: the policy may not want us.
fn greet(socket: &Path) -> Option<i32> {
    let socket = seqpacket::connected(socket).ok()?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT)).ok()?;
    let hello = format!(r#"{{"op":"hello","version":1,"sdk":"join {}"}}"#, env!("CARGO_PKG_VERSION"));
    seqpacket::send(&socket, hello.as_bytes(), None).ok()?;
    let mut answer = [0; 4096];
    seqpacket::receive(&socket, &mut answer).ok().filter(|packet| packet.bytes > 0)?;
    socket_peercred(&socket).ok().map(|credentials| credentials.pid.as_raw_nonzero().get())
}

/// Waits until one serves. One of the process `not` does not count: it has not read the configuration as it is now.
///
/// # Errors
/// What was found at the end.
pub fn wait(socket: &Path, bootstrap: SocketAddr, not: Option<i32>, time: Duration) -> Result<i32, Found> {
    let until = Instant::now() + time;
    loop {
        let found = match look(socket, bootstrap) {
            Found::Ready { pid } if Some(pid) != not => return Ok(pid),
            Found::Ready { pid } => {
                Found::Other { pid, what: "it was started before the configuration was changed".to_owned() }
            }
            found => found,
        };
        if Instant::now() >= until {
            return Err(found);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// An address to connect to for a listener.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_is_nobody_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let bootstrap = "127.0.0.1:1".parse().unwrap();
        let socket = dir.path().join("agent.sock");
        assert_eq!(look(&socket, bootstrap), Found::Nobody);
        let began = Instant::now();
        assert_eq!(wait(&socket, bootstrap, None, Duration::from_millis(150)), Err(Found::Nobody));
        assert!(began.elapsed() >= Duration::from_millis(150));
    }

    #[test]
    fn listeners_everywhere_are_reached_on_loopback() {
        for (listen, expected) in [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.3:1", "10.0.0.3:1")] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), expected);
        }
    }
}
