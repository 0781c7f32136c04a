// SPDX-License-Identifier: Apache-2.0
//! The asking side of a packet socket: one request, one answer, each within a time limit.
//!
//! An answer that comes too late would be taken for the next one's. So a connection on which a call failed is of no
//! use any more: connect again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::seqpacket::{self, Packet};

/// A connection to a process that answers.
#[derive(Debug)]
pub struct Caller {
    socket: OwnedFd,
    patience: Duration,
}

impl AsFd for Caller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Caller {
    /// Connects. `patience`: how long connecting, sending a request and waiting for its answer may take, each.
    ///
    /// # Errors
    /// As socket and connect have it; `TimedOut`.
    pub fn connect(path: &Path, patience: Duration) -> io::Result<Self> {
        let caller = Self { socket: seqpacket::unconnected()?, patience };
        // Connecting waits where many do so already.
        caller.within(Timeout::Send, || seqpacket::connect(&caller.socket, path))?;
        Ok(caller)
    }

    /// Sends a request and receives its answer into `buffer`.
    ///
    /// # Errors
    /// `TimedOut`; `UnexpectedEof` where the peer has closed; `InvalidData` for an answer that `buffer` does not hold;
    /// otherwise as sendmsg and recvmsg have it.
    pub fn ask(&self, request: &[u8], descriptor: Option<BorrowedFd>, buffer: &mut [u8]) -> io::Result<Packet> {
        match self.within(Timeout::Send, || seqpacket::send(&self.socket, request, descriptor)) {
            // A peer that refuses the connection takes no request, but says why.
            Err(error) if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionRefused) => {
                return Err(error);
            }
            _ => {}
        }
        let packet = self.within(Timeout::Recv, || seqpacket::receive(&self.socket, buffer))?;
        if packet.truncated {
            let message = format!("an answer longer than {} bytes", buffer.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if packet.bytes == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(packet) }
    }

    /// Signals end waits on sockets that have a time limit, whatever their handlers say (signal(7)).
    fn within<T>(&self, timeout: Timeout, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let until = Instant::now() + self.patience;
        let late = || io::Error::new(io::ErrorKind::TimedOut, format!("nothing within {} s", self.patience.as_secs()));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late());
            }
            set_socket_timeout(&self.socket, timeout, Some(left))?;
            match act() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A time limit of a socket says "try again" (socket(7), SO_RCVTIMEO).
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
                done => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_answer_comes_in_time_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        assert_eq!(Caller::connect(&path, SECOND).unwrap_err().kind(), io::ErrorKind::NotFound);
        let listener = seqpacket::listener(&path).unwrap();
        let caller = Caller::connect(&path, SECOND).unwrap();
        let peer = seqpacket::accept(&listener).unwrap();
        let ask = |buffer: &mut [u8]| caller.ask(b"?", None, buffer);
        let error = ask(&mut [0; 8]).unwrap_err();
        assert!(error.kind() == io::ErrorKind::TimedOut && error.to_string().contains("nothing within 1 s"), "{error}");
        let mut buffer = [0; 8];
        seqpacket::send(&peer, b"whole", None).unwrap();
        let packet = ask(&mut buffer).unwrap();
        assert_eq!(&buffer[..packet.bytes], b"whole");
        seqpacket::send(&peer, b"too long for it", None).unwrap();
        assert_eq!(ask(&mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidData);
        // What is said before closing is heard, although the request finds nobody.
        seqpacket::send(&peer, b"no", None).unwrap();
        rustix::net::shutdown(&peer, rustix::net::Shutdown::Both).unwrap();
        assert_eq!(ask(&mut buffer).unwrap().bytes, 2);
        assert_eq!(ask(&mut buffer).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
