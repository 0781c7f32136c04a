// SPDX-License-Identifier: Apache-2.0
//! `onlooker-lab cost`: what it costs a host to be watched: one-sided READs, requests and answers over RDMA, and TCP,
//! side by side. `lab/lab-cost` runs it in two guests.
//!
//! Guest `a` has `n` instances, each a process with 4 KiB of words of its own; guest `b` asks all of them at each due
//! time.
//! - `read`: a further process, the holder, has registered all of their memory and sleeps; nobody there does anything.
//! - `rpc`: each instance has a queue pair, sleeps on its completion channel, copies and SENDs.
//! - `tcp`: each instance has a connection, sleeps in read(2), copies and writes.
//!
//! `watched` starts the processes at `a` and has their account; it is none of them. `reader` prints a line a
//! combination.

mod instance;
mod reader;
mod watched;
mod ways;

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::str::FromStr;

use onlooker_verbs::Settings;

use crate::common::{Result, variable};

/// What an instance has.
const REGION_BYTES: u32 = 4 << 10;
/// Of `watched`.
const CONTROL_PORT: u16 = 7777;
/// Of instance 0; the others' follow. The holder has it where there are no other servers.
const FIRST_PORT: u16 = 8000;
/// Of queue pairs that carry one request at a time; the place of the one before is free a little later than its answer
/// is there.
const RPC_SETTINGS: Settings = Settings { depth: 2, max_read_blocks: REGION_BYTES / 1024 };

/// How the reader gets the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Read,
    Rpc,
    Tcp,
}

impl Scheme {
    const ALL: [Self; 3] = [Self::Read, Self::Rpc, Self::Tcp];

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Rpc => "rpc",
            Self::Tcp => "tcp",
        }
    }
}

impl FromStr for Scheme {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == name).ok_or_else(|| format!("no scheme: {name:?}"))
    }
}

/// What a word of an instance is in a phase: no two are alike.
fn word(instance: u64, phase: u64, index: u64) -> u64 {
    instance << 48 | phase << 16 | index
}

/// Lines to and from another process.
struct Talk<R, W> {
    from: BufReader<R>,
    to: W,
}

impl<R: Read, W: Write> Talk<R, W> {
    fn new(from: R, to: W) -> Self {
        Self { from: BufReader::new(from), to }
    }

    /// In one piece: the other end would wake up for each.
    fn tell(&mut self, line: &str) -> Result<()> {
        self.to.write_all(format!("{line}\n").as_bytes())?;
        Ok(self.to.flush()?)
    }

    /// Waits for a line.
    fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.from.read_line(&mut line)? {
            0 => Err("the other end has gone".into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Waits for a line that begins with this word, and returns the rest.
    fn expect(&mut self, word: &str) -> Result<String> {
        let line = self.hear()?;
        let rest = line.strip_prefix(word).ok_or_else(|| format!("{word:?} expected: {line:?}"))?;
        Ok(rest.trim_start().to_owned())
    }
}

impl Talk<TcpStream, TcpStream> {
    fn over(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::new(stream.try_clone()?, stream))
    }
}

pub(super) fn run(words: &[&str]) -> Result<()> {
    match *words {
        ["instance", scheme, index, path] => instance::run(scheme.parse()?, index.parse()?, path),
        ["holder", ref paths @ ..] => instance::hold(paths),
        _ if variable("LAB_ROLE")? == "a" => watched::run(),
        _ => reader::run(),
    }
}
