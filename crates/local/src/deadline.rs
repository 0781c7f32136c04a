// SPDX-License-Identifier: Apache-2.0
//! A TCP stream whose every operation ends at one deadline, however slowly the peer drips.
//!
//! Socket timeouts alone restart with each byte; here each call gets only what is left. Used by the agent's endpoints
//! and by their readers.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A blocking stream whose reads and writes fail from `until` on.
#[derive(Debug)]
pub struct DeadlineStream {
    stream: TcpStream,
    until: Instant,
}

/// Whether an error says that the deadline was reached.
#[must_use]
pub fn is_timeout(error: &io::Error) -> bool {
    // A socket timeout is EAGAIN (socket(7), SO_RCVTIMEO).
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl DeadlineStream {
    /// Takes over a blocking stream.
    #[must_use]
    pub fn new(stream: TcpStream, until: Instant) -> Self {
        Self { stream, until }
    }

    /// From now on this much time.
    pub fn allow(&mut self, time: Duration) {
        self.until = Instant::now() + time;
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
