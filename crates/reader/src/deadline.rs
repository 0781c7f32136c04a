// SPDX-License-Identifier: Apache-2.0
//! A blocking stream that ends at an instant, however slowly the other side drips.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A TCP stream whose reads and writes fail with `TimedOut` from `end` on.
pub(crate) struct DeadlineStream {
    stream: TcpStream,
    end: Instant,
}

impl DeadlineStream {
    pub(crate) fn new(stream: TcpStream, end: Instant) -> Self {
        Self { stream, end }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
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
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
