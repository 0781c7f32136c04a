// SPDX-License-Identifier: Apache-2.0
//! One reading of a host before it is accepted: bootstrap, directory, schemas, regions, as the engine would read it.
//!
//! Blocking, on the thread of the caller. It ends within three times the timeout (bootstrap, another one for a queue pair, and reading have one each) and `PATIENCE_NS` for each
//! way that keeps silent; only a resolver of names that hangs takes longer.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use onlooker_bootstrap::Id;
use onlooker_region::Block;
use onlooker_targets::{Choice, Target};
use onlooker_transport::bootstrap::{Bootstrapped, Parting};
use onlooker_transport::clock::steady_ns;
use onlooker_transport::drive::{DriveError, read_host, read_one};
use onlooker_transport::reader::{Limits, ReadError, Session};
use onlooker_transport::soft::{self, FlowConfig, SoftRequester};
use onlooker_transport::tcp::TcpRequester;
use onlooker_transport::{Error, Outcome, Pair, Read, Requester, Via, verbs};

use crate::connect::{ask, ask_for_pair, is_no_device, parting};
use crate::fleet::{Entities, Quota};
use crate::ways::way;

const BLOCK_BYTES: u32 = 1024;
/// Longest answer of any kernel responder (docs/responder.md).
const MAX_READ_BYTES: u32 = 8 * BLOCK_BYTES;
/// How long a device or a kernel responder may take for its first answer: a soft requester knocks a dozen times meanwhile, a device twice.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Why a host could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The bootstrap, or the connection for READs.
    #[error(transparent)]
    Transport(#[from] Error),
    /// Our end of READs over UDP.
    #[error(transparent)]
    Soft(#[from] soft::Error),
    /// No answer to READs.
    #[error(
        "{0}: the kernel responder does not answer, and silence is its only refusal; check that [kernel] allow in the host's agent.toml is open for this machine, and that no \
         firewall between drops the UDP port"
    )]
    Silent(std::net::SocketAddr),
    /// The reading.
    #[error("READs over {via}: {source}")]
    Read {
        /// Who was to answer.
        via: Via,
        /// What came instead.
        source: Box<DriveError>,
    },
}

impl TrialError {
    /// For programs: what is in the way (docs/http.md, Targets).
    #[must_use]
    pub fn code(&self) -> &'static str {
        use std::io::ErrorKind;
        let Self::Transport(error) = self else {
            return if matches!(self, Self::Silent(_)) { "silent" } else { "unread" };
        };
        match error {
            Error::Resolve { .. } => "resolve",
            Error::Refused { .. } => "refused",
            Error::Timeout { .. } => "timeout",
            Error::Closed { .. } => "closed",
            Error::Denied { .. } | Error::Certificate { .. } => "another_agent",
            Error::System { source, .. }
                if matches!(source.kind(), ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable) =>
            {
                "no_route"
            }
            _ => "unread",
        }
    }
}

/// What a test read has shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What the host says it is.
    pub host_id: Id,
    /// Who asked and who answered.
    pub pair: Pair,
    /// Regions that were read.
    pub regions: usize,
    /// Series in them.
    pub series: usize,
    /// Time of the bootstrap.
    pub bootstrap: Duration,
    /// Time of the reading.
    pub read: Duration,
    /// What the operator may want to know.
    pub notes: Vec<String>,
}

/// Asks and reads a host once; of its series only so many are counted as the quota has room for.
///
/// # Errors
/// [`TrialError`]: it cannot be watched like this.
pub fn read(target: &Arc<Target>, timeout: Duration, quota: Quota) -> Result<Report, TrialError> {
    let mut notes = Vec::new();
    let began = Instant::now();
    let told = ask(target, timeout)?;
    let bootstrap = began.elapsed();
    let Way { told, pair, mut requester, _parting } = open(target, &told, timeout, &mut notes)?;
    let via = pair.via;
    let began = Instant::now();
    let mut session = Session::new(&told.answer, via, requester.max_read_blocks(), Limits::default());
    let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    read_host(&mut *requester, &mut session, steady_ns().saturating_add(timeout_ns), steady_ns)
        .map_err(|source| TrialError::Read { via, source: Box::new(source) })?;
    let read = began.elapsed();
    let mut regions = 0;
    for frame in session.frames() {
        match frame.problem() {
            None => regions += 1,
            Some(problem) => notes.push(format!("region {}: {problem}", frame.entry().name)),
        }
    }
    Ok(Report {
        host_id: told.answer.host_id,
        pair,
        regions,
        series: Entities::of(&session, quota, target.interval_ns()).series(),
        bootstrap,
        read,
        notes,
    })
}

/// What the host told when it was asked for this way, and the way.
struct Way {
    told: Bootstrapped,
    pair: Pair,
    requester: Box<dyn Requester>,
    /// The host's queue pair, which ends with the trial.
    _parting: Option<Parting>,
}

fn open(target: &Target, told: &Bootstrapped, timeout: Duration, notes: &mut Vec<String>) -> Result<Way, TrialError> {
    let is_offered = |failed: &[Via], via: Via| told.responder(via).is_ok() && !failed.contains(&via);
    let mut failed: Vec<Via> = Vec::new();
    let mut via = way(target.choice, Via::Verbs, |via| is_offered(&failed, via));
    loop {
        let is_auto = target.choice == Choice::Auto;
        if is_auto && via == Via::Tcp && told.responder(Via::Kernel).is_err() {
            notes.push("it has no kernel responder: READs over TCP wake its agent ([kernel] devices in its agent.toml names the devices to answer on)".into());
        }
        let opened = match via {
            Via::Verbs => device(target, told, timeout),
            Via::Kernel => kernel(told),
            Via::Tcp => tcp(told, timeout),
        };
        let error = match opened {
            Ok(way) => return Ok(way),
            Err(error) => error,
        };
        failed.push(via);
        via = way(target.choice, Via::Verbs, |via| is_offered(&failed, via));
        if !is_auto || !is_offered(&failed, via) {
            return Err(error);
        }
        if !matches!(&error, TrialError::Transport(error) if is_no_device(error)) {
            let instead =
                if via == Via::Tcp { "TCP instead, which wakes its agent" } else { "its kernel responder instead" };
            notes.push(format!("{error}. It is read over {instead}"));
        }
    }
}

fn tcp(told: &Bootstrapped, timeout: Duration) -> Result<Way, TrialError> {
    let (responder, address) = told.responder(Via::Tcp)?;
    let requester = TcpRequester::connect(address, told.answer.max_read_blocks(responder), timeout)?;
    Ok(Way { told: told.clone(), pair: Pair::TCP, requester: Box::new(requester), _parting: None })
}

/// Trials of this process have a queue pair of their own at a host, and no more than one.
fn trial_id() -> Result<Id, Error> {
    static ID: OnceLock<Id> = OnceLock::new();
    let id = ID.get().copied().map_or_else(verbs::reader_id, Ok)?;
    Ok(*ID.get_or_init(|| id))
}

/// As a reader of its own: the queue pair by which the engine reads this host, if it does, stays.
fn device(target: &Target, told: &Bootstrapped, timeout: Duration) -> Result<Way, TrialError> {
    let mut _parting = None;
    let ask = |request| {
        _parting = Some(parting(target, told, &request));
        ask_for_pair(target, told, request, timeout)
    };
    let (told, mut requester) = verbs::connect(told, trial_id()?, ask)?;
    let answer = told.responder(Via::Verbs)?.0.verbs;
    // With a queue pair, or there would be no requester.
    let control_rkey = answer.map_or(0, |answer| answer.control_rkey);
    if !knock(&mut requester, Via::Verbs, &told, control_rkey)? {
        return Err(read_error(Via::Verbs, ReadError::Timeout));
    }
    Ok(Way { told, pair: Pair::VERBS_VERBS, requester: Box::new(requester), _parting })
}

/// A requester that has been answered once: what is silent is told from what is slow.
fn kernel(told: &Bootstrapped) -> Result<Way, TrialError> {
    let (responder, address) = told.responder(Via::Kernel)?;
    let max_read_bytes = (told.answer.max_read_blocks(responder) * BLOCK_BYTES).min(MAX_READ_BYTES);
    let flow = FlowConfig { max_read_bytes, ..FlowConfig::default() };
    let mut requester = SoftRequester::connect(address, soft::Config::default(), flow)?;
    let rkey = told.answer.control.rkey;
    if !knock(&mut requester, Via::Kernel, told, rkey)? {
        return Err(TrialError::Silent(address));
    }
    Ok(Way { told: told.clone(), pair: Pair::SOFT_KERNEL, requester: Box::new(requester), _parting: None })
}

/// One READ of the control region; whether it was answered.
fn knock(requester: &mut impl Requester, via: Via, told: &Bootstrapped, rkey: u32) -> Result<bool, TrialError> {
    let deadline_ns = steady_ns() + PATIENCE_NS;
    let knock = Read { id: u64::MAX, va: told.answer.control.va, rkey, at: 0, blocks: 1, deadline_ns };
    let broken = |broken| TrialError::Read { via, source: Box::new(DriveError::Broken(broken)) };
    match read_one(requester, knock, &mut [Block::default()], steady_ns).map_err(broken)? {
        Outcome::Done => Ok(true),
        Outcome::Lost => Err(read_error(via, ReadError::Lost)),
        Outcome::Timeout | Outcome::Refused(_) => Ok(false),
    }
}

fn read_error(via: Via, error: ReadError) -> TrialError {
    TrialError::Read { via, source: Box::new(DriveError::Read(error)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_has_a_code() {
        let peer = || "10.0.0.3:7177".to_owned();
        let system = |errno| Error::System {
            peer: peer(),
            operation: "connect",
            source: std::io::Error::from_raw_os_error(errno),
        };
        for (error, code) in [
            (Error::Refused { peer: peer(), what: "bootstrap endpoint" }, "refused"),
            (Error::Timeout { peer: peer(), what: "answer", timeout: Duration::ZERO }, "timeout"),
            (Error::Closed { peer: peer(), what: "answer" }, "closed"),
            (Error::Denied { peer: peer(), message: "refused, closed, unreachable".into() }, "another_agent"),
            (system(101), "no_route"),
            (system(113), "no_route"),
            (system(5), "unread"),
            (Error::Busy { peer: peer(), message: String::new() }, "unread"),
        ] {
            assert_eq!(TrialError::from(error).code(), code);
        }
        assert_eq!(TrialError::Silent("10.0.0.3:7179".parse().unwrap()).code(), "silent");
    }
}
