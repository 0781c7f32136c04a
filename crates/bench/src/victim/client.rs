// SPDX-License-Identifier: Apache-2.0
//! The load on the victim: a closed loop over some connections, one command under way on each, half GET and half SET of 64 bytes.
//!
//! Closed, because the question is what the victim can still do: its throughput is that of its core. Every latency is kept.

use crate::machine::now_ns;
use crate::report::percentile;
use anyhow::{Context, Result, bail, ensure};
use rustix::event::{Timespec, epoll};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

const KEYS: u32 = 10_000;
const VALUE: &[u8] = &[b'v'; 64];
const GET_ANSWER_BYTES: usize = 5 + 64 + 2;
const SET_ANSWER: &[u8] = b"+OK\r\n";

/// What a run showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) p50_ns: u32,
    pub(crate) p999_ns: u32,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    sent_ns: u64,
    is_get: bool,
    got: usize,
}

#[derive(Debug)]
pub(crate) struct Client {
    connections: Vec<Connection>,
    epoll: OwnedFd,
    random: u64,
    latencies_ns: Vec<u32>,
    command: Vec<u8>,
}

impl Client {
    /// Connects, and sets every key once.
    pub(crate) fn connect(address: SocketAddr, count: usize) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for index in 0..count {
            let stream = TcpStream::connect(address).context("connecting to redis-server")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll::add(&epoll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
            connections.push(Connection { stream, sent_ns: 0, is_get: false, got: 0 });
        }
        let command = Vec::with_capacity(256);
        let mut client = Self {
            connections,
            epoll,
            random: 0x9e37_79b9_7f4a_7c15,
            latencies_ns: Vec::with_capacity(4 << 20),
            command,
        };
        client.fill()?;
        Ok(client)
    }

    fn fill(&mut self) -> Result<()> {
        for key in 0..KEYS {
            self.write_command(key, false);
            let stream = &mut self.connections[0].stream;
            stream.set_nonblocking(false)?;
            stream.write_all(&self.command)?;
            let mut answer = [0; SET_ANSWER.len()];
            stream.read_exact(&mut answer)?;
            ensure!(answer == SET_ANSWER, "redis-server refuses SET");
        }
        Ok(self.connections[0].stream.set_nonblocking(true)?)
    }

    fn write_command(&mut self, key: u32, is_get: bool) {
        self.command.clear();
        // Writing to a vector cannot fail.
        let _ = match is_get {
            true => write!(self.command, "*2\r\n$3\r\nGET\r\n$8\r\nk{key:07}\r\n"),
            false => write!(self.command, "*3\r\n$3\r\nSET\r\n$8\r\nk{key:07}\r\n$64\r\n"),
        };
        if !is_get {
            self.command.extend_from_slice(VALUE);
            self.command.extend_from_slice(b"\r\n");
        }
    }

    fn ask(&mut self, index: usize, now: u64) -> Result<()> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let (key, is_get) = (u32::try_from((self.random >> 32) % u64::from(KEYS))?, self.random & 1 == 0);
        self.write_command(key, is_get);
        let connection = &mut self.connections[index];
        (connection.sent_ns, connection.is_get, connection.got) = (now, is_get, 0);
        connection.stream.write_all(&self.command).context("sending a command")
    }

    /// Takes what has come on a connection; true where the answer is whole.
    fn receive(&mut self, index: usize) -> Result<bool> {
        let connection = &mut self.connections[index];
        let mut buffer = [0; 256];
        let got = match connection.stream.read(&mut buffer) {
            Ok(0) => bail!("redis-server closed a connection"),
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error).context("receiving an answer"),
        };
        let expected = if connection.is_get { b'$' } else { b'+' };
        ensure!(connection.got > 0 || buffer[0] == expected, "{}", String::from_utf8_lossy(&buffer[..got]));
        connection.got += got;
        let whole = if connection.is_get { GET_ANSWER_BYTES } else { SET_ANSWER.len() };
        ensure!(connection.got <= whole, "an answer of another length");
        Ok(connection.got == whole)
    }

    /// Loads the victim for so long.
    pub(crate) fn run(&mut self, duration_ns: u64) -> Result<Figures> {
        self.latencies_ns.clear();
        let begin_ns = now_ns();
        for index in 0..self.connections.len() {
            self.ask(index, now_ns())?;
        }
        let mut open = self.connections.len();
        let mut events: Vec<epoll::Event> = Vec::with_capacity(open);
        while open > 0 {
            events.clear();
            let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience))?;
            ensure!(!events.is_empty(), "redis-server has been silent for 10 s");
            for event in &events {
                let index = usize::try_from(event.data.u64())?;
                if self.receive(index)? {
                    let now = now_ns();
                    let took_ns = now - self.connections[index].sent_ns;
                    self.latencies_ns.push(u32::try_from(took_ns).unwrap_or(u32::MAX));
                    if now - begin_ns < duration_ns { self.ask(index, now)? } else { open -= 1 }
                }
            }
        }
        let per_second = self.latencies_ns.len() as f64 * 1e9 / (now_ns() - begin_ns) as f64;
        self.latencies_ns.sort_unstable();
        let at = |share| percentile(&self.latencies_ns, share).context("no command was answered");
        Ok(Figures { per_second, p50_ns: at(0.5)?, p999_ns: at(0.999)? })
    }
}
