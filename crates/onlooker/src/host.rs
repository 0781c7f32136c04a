// SPDX-License-Identifier: Apache-2.0
//! A host given by the user, and the connection to it: bootstrap, way, session. All three are made again after the
//! host's agent was restarted.

use crate::token::SourceError;
use onlooker_bootstrap::{DEFAULT_PORT, Token};
use onlooker_reader::bootstrap::{Bootstrapped, resolve};
use onlooker_reader::clock::{Wear, steady_ns};
use onlooker_reader::drive::{DriveError, read_host};
use onlooker_reader::{Error as BootstrapError, Limits, Pair, ReadError, Session};
use onlooker_targets::target::parse_address;
use onlooker_transport::Error;
use onlooker_transport::open::{Asker, Way, open};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// For a host's clock, between two readings: one that is too busy to answer keeps nobody longer.
const CLOCK_TIMEOUT: Duration = Duration::from_millis(250);
/// Name and version told to agents.
pub(crate) const READER: &str = concat!("onlooker ", env!("CARGO_PKG_VERSION"));

/// `HOST[:PORT]`; IPv6 addresses with a port stand in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = parse_address(text)?;
        let port = port.unwrap_or(DEFAULT_PORT);
        Ok(Self { host, port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Which responder the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Choice {
    /// The kernel responder if the host has one that answers, else TCP
    Auto,
    /// The host's RDMA device; takes no CPU time of the host
    Verbs,
    /// The kernel responder; wakes no process of the host
    Kernel,
    /// The host's agent, over TCP
    Tcp,
}

/// Who sends READs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ByChoice {
    /// This machine's RDMA device to another device, if there is one; else this process
    Auto,
    /// This machine's RDMA device
    Verbs,
    /// This process
    Soft,
}

impl Choice {
    /// Requesters and responders that will do, the best first.
    fn pairs(self, by: ByChoice) -> Result<&'static [Pair], HostError> {
        let pairs: &[Pair] = match (self, by) {
            (Self::Verbs, ByChoice::Auto) => &[Pair::VERBS_VERBS, Pair::SOFT_VERBS],
            (Self::Verbs, ByChoice::Verbs) => &[Pair::VERBS_VERBS],
            (Self::Verbs, ByChoice::Soft) => &[Pair::SOFT_VERBS],
            (Self::Kernel, ByChoice::Verbs) => &[Pair::VERBS_KERNEL],
            (Self::Kernel, _) => &[Pair::SOFT_KERNEL],
            (Self::Auto | Self::Tcp, ByChoice::Verbs) => return Err(HostError::ByDevice),
            (Self::Tcp, _) => &[Pair::TCP],
            // Not the host's device: each run would leave it a queue pair.
            (Self::Auto, _) => &[Pair::SOFT_KERNEL, Pair::TCP],
        };
        Ok(pairs)
    }
}

/// Why a host could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    #[error(transparent)]
    Transport(#[from] Error),
    #[error(transparent)]
    Token(#[from] SourceError),
    #[error("{target}: READs at {address} ({pair}): {source}")]
    Drive { target: Target, address: SocketAddr, pair: Pair, source: Box<DriveError> },
    #[error(
        "an RDMA device reads from a host's device or kernel responder: take --via verbs or --via kernel with --by verbs"
    )]
    ByDevice,
}

impl From<BootstrapError> for HostError {
    fn from(error: BootstrapError) -> Self {
        Self::Transport(error.into())
    }
}

/// How a reading was had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// At once.
    Straight,
    /// After the connection was made anew, since the first try ended like this.
    Anew(DriveError),
}

/// A connection to a host.
pub(crate) struct Connection {
    target: Target,
    addresses: Vec<SocketAddr>,
    token: Token,
    options: Options,
    pub(crate) session: Session,
    pub(crate) way: Way,
    wear: Wear,
}

/// How to connect and read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) choice: Choice,
    pub(crate) by: ByChoice,
    pub(crate) timeout: Duration,
    pub(crate) limits: Limits,
}

impl Options {
    /// Who asks a host's agent.
    pub(crate) fn asker<'a>(&self, token: &'a Token) -> Asker<'a> {
        Asker { token, reader: READER, timeout: self.timeout }
    }
}

/// The addresses of a target.
pub(crate) fn addresses(target: &Target) -> Result<Vec<SocketAddr>, BootstrapError> {
    resolve(&target.host, target.port)
}

fn connect(addresses: &[SocketAddr], token: &Token, options: Options) -> Result<(Way, Session), HostError> {
    let asker = options.asker(token);
    let told = asker.ask(addresses)?;
    let mut way = open(&told, options.choice.pairs(options.by)?, &asker)?;
    let session = way.session(options.limits);
    Ok((way, session))
}

impl Connection {
    pub(crate) fn open(
        target: &Target,
        addresses: Vec<SocketAddr>,
        token: Token,
        options: Options,
    ) -> Result<Self, HostError> {
        let (way, session) = connect(&addresses, &token, options)?;
        Ok(Self { target: target.clone(), addresses, token, options, session, way, wear: Wear::default() })
    }

    /// Reads the host once. `prepare` is called with each new session, before its first reading.
    pub(crate) fn read(&mut self, prepare: &dyn Fn(&mut Session)) -> Result<Reading, HostError> {
        match self.read_once(prepare) {
            Ok(()) => {
                self.follow_clock(steady_ns());
                Ok(Reading::Straight)
            }
            // The agent was restarted, or closed an idle connection: once more from the beginning.
            Err(why) if self.is_stale(&why) => {
                (self.way, self.session) = connect(&self.addresses, &self.token, self.options)?;
                self.read_once(prepare).map_err(|source| self.failed(source))?;
                Ok(Reading::Anew(why))
            }
            Err(source) => Err(self.failed(source)),
        }
    }

    /// What the host has told.
    pub(crate) fn told(&self) -> &Bootstrapped {
        &self.way.told
    }

    /// What is known of the host's clock is worth less with time. Computed blocks tell it again at each reading;
    /// where there are none, somebody who watches for hours asks again, which wakes the agent.
    fn follow_clock(&mut self, now_ns: u64) {
        let told = &mut self.way.told;
        let bootstrapped = told.relation;
        let utc_ns = |steady_ns| u64::try_from(bootstrapped.own_utc_ns(steady_ns)).unwrap_or(0);
        for frame in self.session.frames() {
            frame.sharpen(&mut told.relation, utc_ns, now_ns);
        }
        if !self.wear.is_due(&told.relation, self.way.pair.via, now_ns) {
            return;
        }
        self.wear.put_off(now_ns);
        let asker = Asker { timeout: CLOCK_TIMEOUT.min(self.options.timeout), ..self.options.asker(&self.token) };
        if let Ok(again) = asker.ask(&[told.peer])
            && again.answer.boot_id == told.answer.boot_id
        {
            told.relation = told.relation.or_better(again.relation, steady_ns());
        }
    }

    fn is_stale(&self, why: &DriveError) -> bool {
        match why {
            DriveError::Read(ReadError::Gone(_) | ReadError::Lost) | DriveError::Broken(_) => true,
            // What was restarted elsewhere is only silent.
            DriveError::Read(ReadError::Timeout) => self.way.pair != Pair::TCP,
            DriveError::Read(_) => false,
        }
    }

    fn failed(&self, source: DriveError) -> HostError {
        let Way { pair, address, .. } = self.way;
        HostError::Drive { target: self.target.clone(), address, pair, source: Box::new(source) }
    }

    fn read_once(&mut self, prepare: &dyn Fn(&mut Session)) -> Result<(), DriveError> {
        prepare(&mut self.session);
        let timeout_ns = u64::try_from(self.options.timeout.as_nanos()).unwrap_or(u64::MAX);
        read_host(&mut *self.way.requester, &mut self.session, steady_ns().saturating_add(timeout_ns), steady_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_ports_or_the_usual_one() {
        for (text, host, port) in [
            ("web-3", "web-3", 7177),
            ("web-3:7000", "web-3", 7000),
            ("10.0.0.1:1", "10.0.0.1", 1),
            ("::1", "::1", 7177),
            ("[::1]", "::1", 7177),
            ("[fe80::1]:65535", "fe80::1", 65_535),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.host.as_str(), target.port), (host, port));
            assert_eq!(target.to_string().parse(), Ok(target));
        }
        for text in ["", ":7177", "web:", "web:0", "web:65536", "web:x", "[::1", "[::1]x", "a b", "[]:1"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
        bolero::check!().with_type::<String>().for_each(|text| {
            let _ = text.parse::<Target>();
        });
    }
}
