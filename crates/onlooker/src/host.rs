// SPDX-License-Identifier: Apache-2.0
//! A host given by the user, and the connection to it: bootstrap, requester, session; made anew when its agent was.

use crate::token::SourceError;
use onlooker_bootstrap::{DEFAULT_PORT, Id, Token};
use onlooker_controller::target::parse_address;
use onlooker_region::Block;
use onlooker_transport::bootstrap::{Bootstrapped, Parting, bootstrap, bootstrap_with, resolve};
use onlooker_transport::clock::{Wear, steady_ns};
use onlooker_transport::drive::{DriveError, read_host, read_one};
use onlooker_transport::reader::{Limits, Mirror, ReadError, Session};
use onlooker_transport::soft::{self, FlowConfig, SoftRequester};
use onlooker_transport::tcp::TcpRequester;
use onlooker_transport::{Broken, Error, Outcome, Pair, Read, Requester, Via, packet, verbs};
use onlooker_wire::ROCE_PORT;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

/// Bytes of a block.
const BLOCK_BYTES: u32 = 1024;
/// Longest answer of any kernel responder (docs/responder.md).
const LARGEST_MAX_READ_BYTES: u32 = 8 * BLOCK_BYTES;
/// How long a kernel responder may take for its first answer: the requester knocks a dozen times meanwhile.
const PATIENCE_MS: u64 = 1_000;
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

/// Why a host could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    #[error(transparent)]
    Transport(#[from] Error),
    #[error(transparent)]
    Token(#[from] SourceError),
    #[error(transparent)]
    Soft(#[from] soft::Error),
    #[error("{0}: {1}")]
    Knock(SocketAddr, Broken),
    #[error("{responder}: {}", silence(*.responder, *.own))]
    Silent { responder: SocketAddr, own: Option<IpAddr> },
    #[error("{target}: READs at {address} ({pair}): {source}")]
    Drive { target: Target, address: SocketAddr, pair: Pair, source: Box<DriveError> },
    #[error(
        "an RDMA device reads from a host's device or kernel responder: take --via verbs or --via kernel with --by verbs"
    )]
    ByDevice,
    #[error("{device}; and without a device: {soft}")]
    Neither { device: Box<HostError>, soft: Box<HostError> },
}

/// What stands behind silence, in the order of likelihood.
fn silence(responder: SocketAddr, own: Option<IpAddr>) -> String {
    let own = own.map_or_else(|| "this machine".to_owned(), |own| format!("this machine ({own})"));
    format!(
        "no answer from the kernel responder within {PATIENCE_MS} ms, and silence is its only refusal; check: [kernel] allow in the host's agent.toml is open for {own}; \
         no firewall between drops UDP port {} or its answers; the responder's lease is not over (the agent renews it); \
         `onlooker doctor` on the host shows what it drops",
        responder.port()
    )
}

/// How a reading was had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// At once.
    Straight,
    /// After the connection was made anew, since the first try ended like this.
    Anew(DriveError),
}

/// The way to a host's memory.
pub(crate) struct Way {
    pub(crate) pair: Pair,
    pub(crate) address: SocketAddr,
    pub(crate) requester: Box<dyn Requester>,
    /// The host writes its directory there.
    mirror: Option<Box<dyn Mirror + Send>>,
    /// Why it is not what was tried first. Whoever owns the terminal says it.
    pub(crate) instead: Option<String>,
    /// The host's queue pair, which ends with this.
    _parting: Option<Parting>,
}

impl Way {
    fn new(pair: Pair, address: SocketAddr, requester: impl Requester + 'static) -> Self {
        Self { pair, address, requester: Box::new(requester), mirror: None, instead: None, _parting: None }
    }
}

/// A connection to a host.
pub(crate) struct Connection {
    target: Target,
    addresses: Vec<SocketAddr>,
    token: Token,
    options: Options,
    pub(crate) told: Bootstrapped,
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

/// The addresses of a target.
pub(crate) fn addresses(target: &Target) -> Result<Vec<SocketAddr>, Error> {
    resolve(&target.host, target.port)
}

/// To the host's agent.
pub(crate) fn tcp(told: &Bootstrapped, timeout: Duration) -> Result<Way, HostError> {
    let (responder, address) = told.responder(Via::Tcp)?;
    let requester = TcpRequester::connect(address, told.answer.max_read_blocks(responder), timeout)?;
    Ok(Way::new(Pair::TCP, address, requester))
}

/// By this machine's RDMA device to the host's: the bootstrap answer that holds from now on, too.
pub(crate) fn verbs_verbs(
    told: &Bootstrapped,
    token: &Token,
    timeout: Duration,
) -> Result<(Bootstrapped, Way), HostError> {
    let mut parting = None;
    let ask = |request| {
        parting = Some(Parting::new(told.peer, token, READER, &request));
        bootstrap_with(&[told.peer], token, READER, Some(request), timeout)
    };
    let (told, mut requester) = verbs::connect(told, reader_id()?, ask)?;
    let (mirror, problem) = (requester.mirror(), requester.copy_problem().map(ToString::to_string));
    let way = Way::new(Pair::VERBS_VERBS, roce(&told), requester);
    Ok((told, Way { mirror, instead: problem, _parting: parting, ..way }))
}

/// By this process to the host's RDMA device, otherwise as [`verbs_verbs`].
pub(crate) fn soft_verbs(
    told: &Bootstrapped,
    token: &Token,
    timeout: Duration,
) -> Result<(Bootstrapped, Way), HostError> {
    let mut parting = None;
    let ask = |request| {
        parting = Some(Parting::new(told.peer, token, READER, &request));
        bootstrap_with(&[told.peer], token, READER, Some(request), timeout)
    };
    let (told, requester) = packet::connect(told, reader_id()?, ask)?;
    let address = roce(&told);
    Ok((told, Way { _parting: parting, ..Way::new(Pair::SOFT_VERBS, address, requester) }))
}

/// By this machine's RDMA device to the host's kernel responder.
pub(crate) fn verbs_kernel(told: &Bootstrapped) -> Result<Way, HostError> {
    Ok(Way::new(Pair::VERBS_KERNEL, roce(told), verbs::connect_kernel(told)?))
}

fn roce(told: &Bootstrapped) -> SocketAddr {
    SocketAddr::new(told.peer.ip(), ROCE_PORT)
}

/// This process reads a host in one way: its earlier queue pair there is taken away when it comes again.
fn reader_id() -> Result<Id, Error> {
    static ID: OnceLock<Id> = OnceLock::new();
    let id = ID.get().copied().map_or_else(packet::reader_id, Ok)?;
    Ok(*ID.get_or_init(|| id))
}

/// To the host's kernel responder, if it answers.
fn kernel(told: &Bootstrapped) -> Result<Way, HostError> {
    let (requester, address) = soft(told)?;
    Ok(Way::new(Pair::SOFT_KERNEL, address, requester))
}

/// A requester for the host's kernel responder that has been answered once.
pub(crate) fn soft(told: &Bootstrapped) -> Result<(SoftRequester, SocketAddr), HostError> {
    let (responder, address) = told.responder(Via::Kernel)?;
    let max_read_bytes = (told.answer.max_read_blocks(responder) * BLOCK_BYTES).min(LARGEST_MAX_READ_BYTES);
    let flow = FlowConfig { max_read_bytes, ..FlowConfig::default() };
    let mut requester = SoftRequester::connect(address, soft::Config::default(), flow)?;
    let control = told.answer.control;
    let deadline_ns = steady_ns() + PATIENCE_MS * 1_000_000;
    let knock = Read { id: u64::MAX, va: control.va, rkey: control.rkey, at: 0, blocks: 1, deadline_ns };
    match read_one(&mut requester, knock, &mut [Block::default()], steady_ns) {
        Ok(Outcome::Done) => Ok((requester, address)),
        Ok(_) => Err(HostError::Silent { responder: address, own: requester.local_address().ok().map(|own| own.ip()) }),
        Err(broken) => Err(HostError::Knock(address, broken)),
    }
}

/// The way that the user wants, and the bootstrap answer that holds.
fn way(told: Bootstrapped, token: &Token, options: Options) -> Result<(Bootstrapped, Way), HostError> {
    let Options { choice, by, timeout, .. } = options;
    let is_announced = told.answer.responder(Via::Kernel.kind()).is_some();
    let way = match (choice, by) {
        (Choice::Verbs, ByChoice::Verbs) => return verbs_verbs(&told, token, timeout),
        (Choice::Verbs, ByChoice::Soft) => return soft_verbs(&told, token, timeout),
        (Choice::Verbs, ByChoice::Auto) => {
            return match verbs_verbs(&told, token, timeout) {
                Err(device @ HostError::Transport(Error::Device(_))) => soft_verbs(&told, token, timeout)
                    .map_err(|soft| HostError::Neither { device: Box::new(device), soft: Box::new(soft) }),
                other => other,
            };
        }
        (Choice::Kernel, ByChoice::Verbs) => verbs_kernel(&told)?,
        (Choice::Auto | Choice::Tcp, ByChoice::Verbs) => return Err(HostError::ByDevice),
        (Choice::Kernel, _) => kernel(&told)?,
        (Choice::Tcp, _) => tcp(&told, timeout)?,
        (Choice::Auto, _) if !is_announced => tcp(&told, timeout)?,
        (Choice::Auto, _) => match kernel(&told) {
            Err(error) if told.responder(Via::Tcp).is_ok() => {
                let instead = format!("{error}. Reading over TCP instead, which wakes the host's agent");
                Way { instead: Some(instead), ..tcp(&told, timeout)? }
            }
            other => other?,
        },
    };
    Ok((told, way))
}

fn open(addresses: &[SocketAddr], token: &Token, options: Options) -> Result<(Bootstrapped, Way, Session), HostError> {
    let told = bootstrap(addresses, token, READER, options.timeout)?;
    let (told, mut way) = way(told, token, options)?;
    let mut session = Session::new(&told.answer, way.pair.via, way.requester.max_read_blocks(), options.limits);
    if let Some(mirror) = way.mirror.take() {
        session.mirror(mirror);
    }
    Ok((told, way, session))
}

impl Connection {
    pub(crate) fn open(
        target: &Target,
        addresses: Vec<SocketAddr>,
        token: Token,
        options: Options,
    ) -> Result<Self, HostError> {
        let (told, way, session) = open(&addresses, &token, options)?;
        Ok(Self { target: target.clone(), addresses, token, options, told, session, way, wear: Wear::default() })
    }

    /// Reads the host once. `prepare` is called with each new session, before its first reading.
    pub(crate) fn read(&mut self, prepare: &dyn Fn(&mut Session)) -> Result<Reading, HostError> {
        match self.read_once(prepare) {
            Ok(()) => {
                self.renew_clock(steady_ns());
                Ok(Reading::Straight)
            }
            // The agent was restarted, or closed an idle connection: once more from the beginning.
            Err(why) if self.is_stale(&why) => {
                (self.told, self.way, self.session) = open(&self.addresses, &self.token, self.options)?;
                self.read_once(prepare).map_err(|source| self.failed(source))?;
                Ok(Reading::Anew(why))
            }
            Err(source) => Err(self.failed(source)),
        }
    }

    /// What is known of the host's clock is worth less with time: somebody who watches for hours asks again.
    fn renew_clock(&mut self, now_ns: u64) {
        if !self.wear.is_due(&self.told.relation, self.way.pair.via, now_ns) {
            return;
        }
        self.wear.put_off(now_ns);
        if let Ok(again) = bootstrap(&[self.told.peer], &self.token, READER, CLOCK_TIMEOUT.min(self.options.timeout))
            && again.answer.boot_id == self.told.answer.boot_id
        {
            self.told.relation = self.told.relation.or_better(again.relation, steady_ns());
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
