// SPDX-License-Identifier: Apache-2.0
//! Sends telemetry reports to collectors, over UDP (docs/format/dta.md).
//!
//! A report is one datagram, and mostly that is all. Reports of high importance are kept until the collector's translator has said that they have come, 256 at most,
//! and sent again where they have not ([`onlooker_dta::sender`]). Which collector a report goes to follows from its key or list ([`onlooker_dta::choice`]); the
//! list of collectors can be changed between two reports.
//!
//! ```no_run
//! use onlooker_reporter::{Report, Reporter};
//! use onlooker_wire::dta::{Body, Copies};
//!
//! let mut reporter = Reporter::new(1, &["10.0.0.7:40040".parse().unwrap()], 0)?;
//! let path = [7u32, 9, 4, 0, 0].map(u32::to_be_bytes).concat();
//! let body = Body::KeyWrite { key: b"10.1.2.3", payload: &path, copies: Copies::All(2) };
//! reporter.report(&Report::new(1, 0x1234_abcd, body))?;
//! # std::io::Result::Ok(())
//! ```
//!
//! No thread, no wake-up of its own: answers are taken when the next report is sent, and in [`Reporter::finish`].
#![forbid(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onlooker_dta::choice::Choice;
use onlooker_dta::sender::{NotSent, Sender};
use onlooker_wire::dta::{Answer, Body, Importance, MAX_REPORT_BYTES, Report as Datagram};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::rand::{GetRandomFlags, getrandom};

/// How long an answer is waited for before it is asked for again.
const PATIENCE: Duration = Duration::from_millis(20);

/// What is to be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report<'a> {
    /// Number of the table or list.
    pub table: u16,
    /// Its access key.
    pub access: u32,
    /// High: it is sent until it has come. Low: a collector that has too many reports may be spared it.
    pub importance: Importance,
    /// Whoever waits at the collector is woken.
    pub immediate: bool,
    /// What.
    pub body: Body<'a>,
}

impl<'a> Report<'a> {
    /// Of medium importance, and not immediate.
    #[must_use]
    pub const fn new(table: u16, access: u32, body: Body<'a>) -> Self {
        Self { table, access, importance: Importance::Medium, immediate: false, body }
    }
}

/// What was sent, since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reports that were sent.
    pub sent: u64,
    /// Datagrams that were sent again.
    pub again: u64,
    /// Questions whether reports have come.
    pub probes: u64,
    /// Reports of low importance that were not sent, since the collector has said that it has too many.
    pub spared: u64,
    /// Datagrams that this machine did not take.
    pub failed: u64,
}

struct Collector {
    address: SocketAddr,
    sender: Sender,
    /// When what is under way is asked for.
    probe_at: Instant,
}

/// A reporter.
pub struct Reporter {
    sockets: [Option<UdpSocket>; 2],
    id: u32,
    collectors: Vec<Collector>,
    choice: Choice,
    counts: Counts,
}

impl Reporter {
    /// A reporter with a number of its own that sends to these collectors; `generation` is their list's.
    ///
    /// # Errors
    /// No socket, no randomness, no collectors.
    pub fn new(id: u32, collectors: &[SocketAddr], generation: u8) -> io::Result<Self> {
        let choice = choice(collectors, generation)?;
        let mut reporter =
            Self { sockets: [None, None], id, collectors: Vec::new(), choice, counts: Counts::default() };
        reporter.set_collectors(collectors, generation)?;
        Ok(reporter)
    }

    /// Sends to these collectors from now on. What is on its way to one that is not among them any more is not sent again.
    ///
    /// # Errors
    /// As [`Reporter::new`]; nothing has changed then.
    pub fn set_collectors(&mut self, collectors: &[SocketAddr], generation: u8) -> io::Result<()> {
        let choice = choice(collectors, generation)?;
        for address in collectors {
            let any: IpAddr =
                if address.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            let socket = &mut self.sockets[usize::from(address.is_ipv6())];
            if socket.is_none() {
                let new = UdpSocket::bind((any, 0))?;
                new.set_nonblocking(true)?;
                *socket = Some(new);
            }
        }
        let mut earlier = std::mem::take(&mut self.collectors);
        for address in collectors {
            let known = earlier.iter().position(|collector| collector.address == *address);
            self.collectors.push(match known {
                Some(at) => earlier.swap_remove(at),
                None => {
                    Collector { address: *address, sender: Sender::new(self.id, random()?), probe_at: Instant::now() }
                }
            });
        }
        self.choice = choice;
        Ok(())
    }

    /// What was sent.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The collector that a report goes to.
    #[must_use]
    pub fn collector_of(&self, report: &Report<'_>) -> SocketAddr {
        self.collectors[self.place_of(report)].address
    }

    fn place_of(&self, report: &Report<'_>) -> usize {
        match report.body {
            Body::KeyWrite { key, .. } | Body::KeyIncrement { key, .. } => self.choice.of_key(key),
            Body::Append { .. } | Body::Probe { .. } => self.choice.of_list(report.table),
        }
    }

    /// Sends a report. One of high importance waits until there is room for it among those that are on their way; `false`: not even then, its collector does not answer.
    ///
    /// # Errors
    /// `InvalidInput` for what is no report. What this machine does not take now is counted, and no error: the network may lose it as well.
    pub fn report(&mut self, report: &Report<'_>) -> io::Result<bool> {
        let Report { table, access, importance, immediate, body } = *report;
        let at = self.place_of(report);
        let datagram = Datagram {
            importance,
            immediate,
            sequence: None,
            reporter: self.id,
            table,
            access,
            generation: self.choice.generation(),
            body,
        };
        let invalid = |refused: &dyn std::fmt::Debug| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("no report: {refused:?}"))
        };
        if importance != Importance::High {
            if importance == Importance::Low && self.collectors[at].sender.is_congested() {
                self.counts.spared += 1;
                // Whether it still has too many is known only by asking.
                self.listen();
                return Ok(true);
            }
            let mut bytes = [0; MAX_REPORT_BYTES];
            let length = datagram.write(&mut bytes).map_err(|refused| invalid(&refused))?;
            self.counts.sent += 1;
            self.send(at, &bytes[..length]);
            return Ok(true);
        }
        let begun = Instant::now();
        loop {
            match self.collectors[at].sender.send(&datagram) {
                Ok(bytes) => {
                    if self.collectors[at].sender.under_way() == 1 {
                        self.collectors[at].probe_at = Instant::now() + PATIENCE;
                    }
                    self.counts.sent += 1;
                    self.send(at, &bytes);
                    self.listen();
                    return Ok(true);
                }
                Err(NotSent::Refused(refused)) => return Err(invalid(&refused)),
                Err(NotSent::Full) if begun.elapsed() > 50 * PATIENCE => return Ok(false),
                Err(NotSent::Full) => {
                    self.probe();
                    self.wait()?;
                }
            }
        }
    }

    /// Waits until all reports of high importance have come. How many have not, when time is over.
    ///
    /// # Errors
    /// Waiting fails.
    pub fn finish(&mut self, timeout: Duration) -> io::Result<usize> {
        let begun = Instant::now();
        // At once: none comes behind the last one that would show that it is missing.
        self.collectors.iter_mut().for_each(|collector| collector.probe_at = begun);
        loop {
            let under_way = self.collectors.iter().map(|collector| collector.sender.under_way()).sum();
            if under_way == 0 || begun.elapsed() >= timeout {
                return Ok(under_way);
            }
            self.probe();
            self.wait()?;
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        let mut waiting: Vec<PollFd<'_>> =
            self.sockets.iter().flatten().map(|it| PollFd::new(it, PollFlags::IN)).collect();
        let patience = PATIENCE.try_into().map_err(io::Error::other)?;
        match poll(&mut waiting, Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.listen();
        Ok(())
    }

    /// Asks collectors that have been silent for a while.
    fn probe(&mut self) {
        let now = Instant::now();
        for at in 0..self.collectors.len() {
            let collector = &mut self.collectors[at];
            if collector.probe_at <= now
                && let Some(probe) = collector.sender.probe()
            {
                collector.probe_at = now + PATIENCE;
                self.counts.probes += 1;
                self.send(at, &probe);
            }
        }
    }

    /// Takes answers that have come, and does what they say.
    fn listen(&mut self) {
        let mut bytes = [0; MAX_REPORT_BYTES];
        for family in 0..self.sockets.len() {
            while let Some((length, from)) = self.sockets[family].as_ref().and_then(|it| it.recv_from(&mut bytes).ok())
            {
                let collector = self.collectors.iter().position(|collector| collector.address == from);
                let answer = Answer::parse(&bytes[..length]).ok();
                if let (Some(at), Some(answer)) = (collector, answer) {
                    let again = self.collectors[at].sender.answered(&answer);
                    self.collectors[at].probe_at = Instant::now() + PATIENCE;
                    self.counts.again += again.len() as u64;
                    again.iter().for_each(|datagram| self.send(at, datagram));
                }
            }
        }
    }

    fn send(&mut self, at: usize, datagram: &[u8]) {
        let address = self.collectors[at].address;
        let socket = self.sockets[usize::from(address.is_ipv6())].as_ref();
        // An earlier datagram's refusal is told with this one: once more.
        let sent = socket.is_some_and(|it| (0..2).any(|_| it.send_to(datagram, address).is_ok()));
        self.counts.failed += u64::from(!sent);
    }
}

fn choice(collectors: &[SocketAddr], generation: u8) -> io::Result<Choice> {
    let names: Vec<String> = collectors.iter().map(ToString::to_string).collect();
    Choice::new(generation, &names)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "there are no collectors"))
}

fn random() -> io::Result<u32> {
    let mut bytes = [0; 4];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests;
