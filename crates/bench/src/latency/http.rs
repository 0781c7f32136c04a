// SPDX-License-Identifier: Apache-2.0
//! Scrapes: `GET /metrics` on one kept connection. A request that is due while an answer is under way is pipelined (RFC 9112, 9.3.2).

use super::openloop::{End, Path};
use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

/// A scrape has at least so many bytes.
const LEAST_BODY_BYTES: usize = 1000;

pub(crate) struct Scrapes {
    address: SocketAddr,
    stream: TcpStream,
    answers: Answers,
    open: VecDeque<u64>,
    chunk: Vec<u8>,
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

impl Scrapes {
    pub(crate) fn new(address: SocketAddr) -> Result<Self> {
        let (answers, open) = (Answers::default(), VecDeque::new());
        Ok(Self { address, stream: connect(address)?, answers, open, chunk: vec![0; 1 << 16] })
    }
}

impl Path for Scrapes {
    fn send(&mut self, id: u64) -> Result<()> {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        self.stream.write_all(request.as_bytes()).context("sending a request")?;
        self.open.push_back(id);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<(u64, End)>) -> Result<()> {
        match self.stream.read(&mut self.chunk) {
            Ok(0) => bail!("{} closed the connection", self.address),
            Ok(got) => self.answers.bytes.extend_from_slice(&self.chunk[..got]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(error) => return Err(error).context("receiving an answer"),
        }
        while let Some(is_right) = self.answers.next()? {
            let id = self.open.pop_front().context("an answer that nobody asked for")?;
            done.push((id, if is_right { End::Right } else { End::Wrong }));
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        super::wait_readable(self.stream.as_raw_fd(), timeout)
    }

    fn reset(&mut self) -> Result<()> {
        self.stream = connect(self.address)?;
        self.answers = Answers::default();
        self.open.clear();
        Ok(())
    }
}

/// Where a stream of answers is.
#[derive(Clone, Copy, Debug, Default)]
enum At {
    #[default]
    Head,
    /// Bytes of the body, or of the chunk with its line end, that are still to come.
    Body(usize),
    ChunkHead,
    Chunk(usize),
    /// The line behind the last chunk.
    Trailer,
}

/// Finds the ends of answers.
#[derive(Debug, Default)]
struct Answers {
    bytes: Vec<u8>,
    at: At,
    is_ok: bool,
    body_bytes: usize,
}

impl Answers {
    /// Whether the next whole answer is right; `None` where it has not come yet.
    fn next(&mut self) -> Result<Option<bool>> {
        loop {
            self.at = match self.at {
                At::Head => {
                    let Some(head) = self.take_through(b"\r\n\r\n") else { return Ok(None) };
                    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
                    self.is_ok = head.starts_with("http/1.1 200 ");
                    self.body_bytes = 0;
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
                    match length {
                        Some(length) => At::Body(length.trim().parse()?),
                        None if head.contains("transfer-encoding: chunked") => At::ChunkHead,
                        None => bail!("an answer without length"),
                    }
                }
                At::Body(0) => return Ok(Some(self.end())),
                At::Body(left) => At::Body(left - self.skip(left)),
                At::ChunkHead => {
                    let Some(line) = self.take_through(b"\r\n") else { return Ok(None) };
                    let text = String::from_utf8_lossy(&line);
                    match usize::from_str_radix(text.trim(), 16)? {
                        0 => At::Trailer,
                        bytes => At::Chunk(bytes + 2),
                    }
                }
                At::Chunk(0) => At::ChunkHead,
                At::Chunk(left) => At::Chunk(left - self.skip(left)),
                At::Trailer => match self.take_through(b"\r\n") {
                    Some(_) => return Ok(Some(self.end())),
                    None => return Ok(None),
                },
            };
            if self.bytes.is_empty() && !matches!(self.at, At::Body(0)) {
                return Ok(None);
            }
        }
    }

    fn end(&mut self) -> bool {
        self.at = At::Head;
        self.is_ok && self.body_bytes >= LEAST_BODY_BYTES
    }

    fn take_through(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        let at = self.bytes.windows(end.len()).position(|window| window == end)?;
        Some(self.bytes.drain(..at + end.len()).collect())
    }

    fn skip(&mut self, most: usize) -> usize {
        let bytes = most.min(self.bytes.len());
        self.bytes.drain(..bytes);
        self.body_bytes += bytes;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_end_where_they_end_however_they_are_cut() {
        let body = "x".repeat(LEAST_BODY_BYTES);
        let sized = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let chunked =
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n{body}\r\n1\r\ny\r\n0\r\n\r\n");
        let bad = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
        let all = [sized.as_str(), bad, &chunked, &sized].concat();
        for cut in [1, 2, 3, 7, 100, 5000] {
            let (mut answers, mut ends) = (Answers::default(), Vec::new());
            for part in all.as_bytes().chunks(cut) {
                answers.bytes.extend_from_slice(part);
                while let Some(is_right) = answers.next().unwrap() {
                    ends.push(is_right);
                }
            }
            assert_eq!(ends, [true, false, true, true], "pieces of {cut}");
        }
    }
}
