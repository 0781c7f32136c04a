// SPDX-License-Identifier: Apache-2.0
//! The one way to a host: which of the ways that the host offers is taken, and why not another.
//!
//! A caller lists the [`Pair`]s that it accepts, the best first. [`open()`] tries them in turn, blocking, and returns
//! the first that answers. The controller cannot block, and skips ways that failed a short time ago. It decides with
//! [`pick`] and makes its ways with the same steps ([`Asker`], [`connect_tcp`], [`kernel_flow`]) on its own threads.
//!
//! A way to a device or a kernel responder counts as open once a first READ was answered, so that a silent responder is
//! told apart from a slow one. A way over TCP is open once it is connected. [`open()`] takes at most the asker's
//! timeout for each question or connection, and [`PATIENCE`] for each responder that keeps silent.

use crate::error::sentence;
use crate::soft::{self, FlowConfig, SoftRequester};
use crate::tcp::TcpRequester;
use crate::{Error, packet, verbs};
use onlooker_bootstrap::{Id, Token, VerbsRequest};
use onlooker_reader::bootstrap::{Bootstrapped, Parting, bootstrap, bootstrap_with};
use onlooker_reader::clock::steady_ns;
use onlooker_reader::drive::{DriveError, read_one};
use onlooker_reader::{Limits, Mirror, Outcome, Pair, ReadError, Requester, Session, Via, header_read, outcome_name};
use onlooker_region::Block;
use onlooker_wire::ROCE_PORT;
use onlooker_wire::profile::{BLOCK_BYTES, LARGEST_MAX_READ_BYTES};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// How long a device or a kernel responder may take for its first answer: a soft requester asks a dozen times
/// meanwhile, a device twice.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Who asks a host's agent, and how patiently.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The host's join token.
    pub token: &'a Token,
    /// Name and version of this program, for the agent's log.
    pub reader: &'a str,
    /// For each question, and each connection.
    pub timeout: Duration,
}

impl Asker<'_> {
    /// Asks the endpoint at one of `addresses`.
    ///
    /// # Errors
    /// As [`bootstrap`].
    ///
    /// # Panics
    /// If there are no addresses.
    pub fn ask(&self, addresses: &[SocketAddr]) -> Result<Bootstrapped, onlooker_reader::Error> {
        bootstrap(addresses, self.token, self.reader, self.timeout)
    }

    /// Asks the host that gave `told` for a queue pair.
    ///
    /// # Errors
    /// As [`bootstrap_with`].
    pub fn ask_for_pair(
        &self,
        told: &Bootstrapped,
        request: VerbsRequest,
    ) -> Result<Bootstrapped, onlooker_reader::Error> {
        bootstrap_with(&[told.peer], self.token, self.reader, Some(request), self.timeout)
    }

    /// What ends the queue pair of `request` at the host that gave `told`, when it is dropped.
    #[must_use]
    pub fn parting(&self, told: &Bootstrapped, request: &VerbsRequest) -> Parting {
        Parting::new(told.peer, self.token, self.reader, request)
    }
}

/// The pair to try now: the first that the host offers, starting at the first pair through `first`. If none of those is
/// offered, the pairs before it are looked at, the nearest first. If the host offers none at all, the last pair is
/// returned: its error says what the host has. So a list of one always gives that one.
///
/// # Panics
/// If the list is empty.
#[must_use]
pub fn pick(pairs: &[Pair], first: Via, is_offered: impl Fn(Pair) -> bool) -> Pair {
    let from = pairs.iter().position(|pair| pair.via == first).unwrap_or(0);
    let (left_out, rest) = pairs.split_at(from);
    let mut order = rest.iter().chain(left_out.iter().rev()).copied();
    order.find(|pair| is_offered(*pair)).unwrap_or_else(|| *pairs.last().expect("a list of ways"))
}

/// An open way to a host's memory.
pub struct Way {
    /// What the host has told; of a host's device, when it was asked for a queue pair.
    pub told: Bootstrapped,
    /// Who asks and who answers.
    pub pair: Pair,
    /// The responder's address.
    pub address: SocketAddr,
    /// Sends READs.
    pub requester: Box<dyn Requester>,
    /// Where the host writes its directory to, until a session has it.
    pub mirror: Option<Box<dyn Mirror + Send>>,
    /// Why the host cannot write its directory here, though it would.
    copy_problem: Option<String>,
    /// The better pairs, and why it is none of them.
    passed: Vec<(Pair, Error)>,
    /// The host's queue pair, which ends after the requester.
    _parting: Option<Parting>,
}

impl Way {
    fn new(told: &Bootstrapped, pair: Pair, address: SocketAddr, requester: impl Requester + 'static) -> Self {
        let requester: Box<dyn Requester> = Box::new(requester);
        Self {
            told: told.clone(),
            pair,
            address,
            requester,
            mirror: None,
            copy_problem: None,
            passed: Vec::new(),
            _parting: None,
        }
    }

    /// A session over it. The first one takes the mirror.
    #[must_use]
    pub fn session(&mut self, limits: Limits) -> Session {
        let mut session = Session::new(&self.told.answer, self.pair.via, self.requester.max_read_blocks(), limits);
        if let Some(mirror) = self.mirror.take() {
            session.mirror(mirror);
        }
        session
    }

    /// Whether the host was looked at for a responder of this kind and has none.
    #[must_use]
    pub fn lacks(&self, via: Via) -> bool {
        self.passed.iter().any(|(pair, error)| pair.via == via && error.is_not_offered())
    }

    /// What the user should know: why it is not a better way that the host offers, and what that costs.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut failed = self.passed.iter().map(|(_, error)| error).filter(|error| !error.is_absence()).peekable();
        let over = match self.pair.via {
            Via::Tcp => "TCP instead, which wakes the host's agent",
            Via::Kernel => "the kernel responder instead",
            Via::Verbs => "packets of this process instead",
        };
        let is_detour = failed.peek().is_some();
        let detour = is_detour.then(|| format!("{}. Reading over {over}", sentence(failed)));
        detour.into_iter().chain(self.copy_problem.clone()).collect()
    }

    /// # Errors
    /// [`Error::Silent`], [`Error::Read`].
    fn knock(mut self) -> Result<Self, Error> {
        knock(&mut *self.requester, self.pair, &self.told, self.address)?;
        Ok(self)
    }
}

/// Opens the first of `pairs` by which the host that gave `told` can be read.
///
/// # Errors
/// Why none of them can be had: [`Error::Several`] where more than one was offered.
///
/// # Panics
/// If the list is empty.
pub fn open(told: &Bootstrapped, pairs: &[Pair], asker: &Asker) -> Result<Way, Error> {
    let mut passed: Vec<(Pair, Error)> = Vec::new();
    for pair in pairs {
        // Another requester to the same responder helps only where this machine's device is what is missing.
        let is_vain = |(before, error): &(Pair, Error)| before.via == pair.via && !matches!(error, Error::Device(_));
        if passed.iter().any(is_vain) {
            continue;
        }
        match open_one(told, *pair, asker) {
            Ok(way) => return Ok(Way { passed, ..way }),
            Err(error) => passed.push((*pair, error)),
        }
    }
    Err(Error::of(passed.into_iter().map(|(_, error)| error).collect()))
}

fn open_one(told: &Bootstrapped, pair: Pair, asker: &Asker) -> Result<Way, Error> {
    let roce = SocketAddr::new(told.peer.ip(), ROCE_PORT);
    let mut parting = None;
    let ask = |request| {
        parting = Some(asker.parting(told, &request));
        asker.ask_for_pair(told, request)
    };
    match pair {
        Pair::VERBS_VERBS => {
            let (told, mut requester) = verbs::connect(told, reader_id()?, ask)?;
            let (mirror, copy_problem) = (requester.mirror(), requester.copy_problem().map(str::to_owned));
            let way = Way::new(&told, pair, roce, requester);
            Way { mirror, copy_problem, _parting: parting, ..way }.knock()
        }
        Pair::SOFT_VERBS => {
            let (told, requester) = packet::connect(told, reader_id()?, ask)?;
            Way { _parting: parting, ..Way::new(&told, pair, roce, requester) }.knock()
        }
        Pair::VERBS_KERNEL => Way::new(told, pair, roce, verbs::connect_kernel(told)?).knock(),
        Pair::SOFT_KERNEL => {
            let (requester, address) = soft_kernel(told)?;
            Ok(Way::new(told, pair, address, requester))
        }
        Pair { .. } => {
            let (requester, address) = connect_tcp(told, asker.timeout)?;
            Ok(Way::new(told, pair, address, requester))
        }
    }
}

/// The id by which a host knows this process: when the process comes again, the host takes its earlier queue pair away.
fn reader_id() -> Result<Id, packet::Error> {
    static ID: OnceLock<Id> = OnceLock::new();
    let id = ID.get().copied().map_or_else(packet::reader_id, Ok)?;
    Ok(*ID.get_or_init(|| id))
}

/// A connection to the host's agent.
///
/// # Errors
/// The host has no TCP responder, or does not take the connection.
pub fn connect_tcp(
    told: &Bootstrapped,
    timeout: Duration,
) -> Result<(TcpRequester, SocketAddr), onlooker_reader::Error> {
    let (responder, address) = told.responder(Via::Tcp)?;
    Ok((TcpRequester::connect(address, told.answer.max_read_blocks(responder), timeout)?, address))
}

/// The host's kernel responder, and a flow of READs that are as long as it answers.
///
/// # Errors
/// The host has none that can be used.
pub fn kernel_flow(told: &Bootstrapped) -> Result<(SocketAddr, FlowConfig), onlooker_reader::Error> {
    let (responder, address) = told.responder(Via::Kernel)?;
    let max_read_bytes = (told.answer.max_read_blocks(responder) * BLOCK_BYTES).min(LARGEST_MAX_READ_BYTES);
    Ok((address, FlowConfig { max_read_bytes, ..FlowConfig::default() }))
}

/// A soft requester that the host's kernel responder has answered once.
///
/// # Errors
/// The host has no such responder; [`Error::Soft`]; [`Error::Silent`], [`Error::Read`].
pub fn soft_kernel(told: &Bootstrapped) -> Result<(SoftRequester, SocketAddr), Error> {
    let (address, flow) = kernel_flow(told)?;
    let mut requester = SoftRequester::connect(address, soft::Config::default(), flow)?;
    knock(&mut requester, Pair::SOFT_KERNEL, told, address)?;
    Ok((requester, address))
}

/// One READ of the host's header.
fn knock(requester: &mut dyn Requester, pair: Pair, told: &Bootstrapped, address: SocketAddr) -> Result<(), Error> {
    let failed = |source| Error::Read { pair, address, source: Box::new(source) };
    let patience_ns = u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX);
    let knock = header_read(&told.answer, pair.via, u64::MAX, steady_ns().saturating_add(patience_ns));
    let outcome = read_one(requester, knock, &mut [Block::default()], steady_ns);
    match outcome.map_err(|broken| failed(DriveError::Broken(broken)))? {
        Outcome::Done => Ok(()),
        Outcome::Lost => Err(failed(ReadError::Lost.into())),
        Outcome::Timeout | Outcome::Refused(_) if pair.via.is_silent() => {
            Err(Error::Silent { responder: address, own: told.local })
        }
        Outcome::Timeout => Err(failed(ReadError::Timeout.into())),
        refused @ Outcome::Refused(_) => Err(failed(ReadError::Gone(outcome_name(refused).to_owned()).into())),
    }
}
