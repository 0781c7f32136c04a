// SPDX-License-Identifier: Apache-2.0
//! READs over a TCP stream (docs/format/wire.md, "TCP read").
//!
//! [`TcpRequester`] is the rim: a non-blocking socket around [`exchange::Exchange`], which knows the protocol. Batches of up to 256 READs make one
//! request; requests follow each other without waiting for answers. Cost per READ: one copy from the receive buffer to the caller's blocks.

pub mod exchange;

use exchange::Exchange;
use onlooker_reader::{Broken, Completion, Error, Memory, Read, Requester, bootstrap};
use onlooker_region::Block;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Bytes that one poll takes from the socket at most, so that a fast host cannot hold the caller.
const POLL_BYTES: usize = 16 << 20;

/// A requester on one TCP connection.
#[derive(Debug)]
pub struct TcpRequester {
    stream: TcpStream,
    exchange: Exchange,
    broken: Option<Broken>,
}

impl TcpRequester {
    /// Connects to a TCP responder that answers READs of up to `max_read_blocks`.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Timeout`], [`Error::System`].
    pub fn connect(address: SocketAddr, max_read_blocks: u32, timeout: Duration) -> Result<Self, Error> {
        let (stream, _) = bootstrap::connect(&[address], "TCP responder", timeout)?;
        let failed = |source| Error::System { peer: address.to_string(), operation: "socket option", source };
        Self::new(stream, max_read_blocks).map_err(failed)
    }

    /// On a connected stream.
    ///
    /// # Errors
    /// The stream cannot be made non-blocking.
    pub fn new(stream: TcpStream, max_read_blocks: u32) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, exchange: Exchange::new(max_read_blocks), broken: None })
    }

    /// Why it takes no READs any more, if that is so.
    #[must_use]
    pub fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// [`Requester::poll`], for callers with many memories.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn poll_into(
        &mut self,
        memory: &mut (impl Memory + ?Sized),
        now_ns: u64,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        // What has arrived counts even if sending fails: a host may answer and close.
        let flushed = self.flush();
        let received = self.receive(memory, completions);
        match received.and(flushed) {
            Ok(()) => self.exchange.expire(now_ns, completions),
            Err(broken) => {
                self.exchange.lose(completions);
                self.broken = Some(broken);
                return Err(broken);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Broken> {
        while !self.exchange.outgoing().is_empty() {
            match self.stream.write(self.exchange.outgoing()) {
                Ok(0) => return Err(Broken::Closed),
                Ok(sent) => self.exchange.sent(sent),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    kind => return Err(system("send", kind)),
                },
            }
        }
        Ok(())
    }

    fn receive(
        &mut self,
        memory: &mut (impl Memory + ?Sized),
        completions: &mut Vec<Completion>,
    ) -> Result<(), Broken> {
        let mut taken = 0;
        while taken < POLL_BYTES {
            match self.stream.read(self.exchange.space()) {
                Ok(0) => return Err(Broken::Closed),
                Ok(got) => {
                    taken += got;
                    self.exchange.received(got, memory, completions).map_err(Broken::Garbage)?;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    kind => return Err(system("receive", kind)),
                },
            }
        }
        Ok(())
    }
}

fn system(operation: &'static str, kind: io::ErrorKind) -> Broken {
    match kind {
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => Broken::Closed,
        kind => Broken::System { operation, kind },
    }
}

/// To wait for many at once: readable when there is something to poll for.
impl AsFd for TcpRequester {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Requester for TcpRequester {
    fn max_read_blocks(&self) -> u32 {
        self.exchange.max_read_blocks()
    }

    fn in_flight(&self) -> usize {
        self.exchange.in_flight()
    }

    fn submit(&mut self, reads: &[Read]) -> Result<usize, Broken> {
        match self.broken {
            Some(broken) => Err(broken),
            None => {
                let taken = self.exchange.submit(reads);
                // A full socket is no error here; what breaks it is told by the next poll, with the completions.
                let _ = self.flush();
                Ok(taken)
            }
        }
    }

    fn poll(&mut self, memory: &mut [Block], now_ns: u64, completions: &mut Vec<Completion>) -> Result<(), Broken> {
        self.poll_into(memory, now_ns, completions)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Broken> {
        let mut flags = PollFlags::IN;
        if !self.exchange.outgoing().is_empty() {
            flags |= PollFlags::OUT;
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.stream, flags)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(system("poll", io::Error::from(errno).kind())),
        }
    }
}
