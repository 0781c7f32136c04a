// SPDX-License-Identifier: Apache-2.0
//! One reading of a host before it is accepted: bootstrap, directory, schemas, regions, as the engine would read it.
//!
//! Blocking, on the thread of the caller. It ends within twice the timeout (bootstrap and reading have one each) and, where the kernel responder keeps silent,
//! `PATIENCE_NS`; only a resolver of names that hangs takes longer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onlooker_region::Block;
use onlooker_transport::bootstrap::Bootstrapped;
use onlooker_transport::clock::steady_ns;
use onlooker_transport::drive::{DriveError, read_host, read_one};
use onlooker_transport::reader::{Limits, ReadError, Session};
use onlooker_transport::soft::{self, FlowConfig, SoftRequester};
use onlooker_transport::tcp::TcpRequester;
use onlooker_transport::{Error, Outcome, Read, Requester, Via};

use crate::connect::ask;
use crate::fleet::Entities;
use crate::target::{Choice, Target};

const BLOCK_BYTES: u32 = 1024;
/// Longest answer of any kernel responder (docs/responder.md).
const MAX_READ_BYTES: u32 = 8 * BLOCK_BYTES;
/// How long a kernel responder may take for its first answer: the requester knocks a dozen times meanwhile.
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

/// What a test read has shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Who answered.
    pub via: Via,
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

/// Asks and reads a host once.
///
/// # Errors
/// [`TrialError`]: it cannot be watched like this.
pub fn read(target: &Arc<Target>, timeout: Duration) -> Result<Report, TrialError> {
    let mut notes = Vec::new();
    let began = Instant::now();
    let told = ask(target, timeout)?;
    let bootstrap = began.elapsed();
    let mut requester = requester(target, &told, timeout, &mut notes)?;
    let began = Instant::now();
    let (via, requester) = (requester.0, &mut *requester.1);
    let mut session = Session::new(&told.answer, via, requester.max_read_blocks(), Limits::default());
    let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    read_host(requester, &mut session, steady_ns().saturating_add(timeout_ns), steady_ns)
        .map_err(|source| TrialError::Read { via, source: Box::new(source) })?;
    let read = began.elapsed();
    let mut regions = 0;
    for frame in session.frames() {
        match frame.problem() {
            None => regions += 1,
            Some(problem) => notes.push(format!("region {}: {problem}", frame.entry().name)),
        }
    }
    Ok(Report { via, regions, series: Entities::of(&session).series(), bootstrap, read, notes })
}

type Way = (Via, Box<dyn Requester>);

fn requester(
    target: &Target,
    told: &Bootstrapped,
    timeout: Duration,
    notes: &mut Vec<String>,
) -> Result<Way, TrialError> {
    let has_kernel = told.responder(Via::Kernel).is_ok();
    match target.choice {
        Choice::Kernel => kernel(told),
        Choice::Tcp => tcp(told, timeout),
        Choice::Auto if !has_kernel => {
            notes.push("it has no kernel responder: READs over TCP wake its agent ([kernel] devices in its agent.toml names the devices to answer on)".into());
            tcp(told, timeout)
        }
        Choice::Auto => match kernel(told) {
            Err(error) if told.responder(Via::Tcp).is_ok() => {
                notes.push(format!("{error}. It is read over TCP instead, which wakes its agent"));
                tcp(told, timeout)
            }
            other => other,
        },
    }
}

fn tcp(told: &Bootstrapped, timeout: Duration) -> Result<Way, TrialError> {
    let (responder, address) = told.responder(Via::Tcp)?;
    let requester = TcpRequester::connect(address, told.answer.max_read_blocks(responder), timeout)?;
    Ok((Via::Tcp, Box::new(requester)))
}

/// A requester that has been answered once: what is silent is told from what is slow.
fn kernel(told: &Bootstrapped) -> Result<Way, TrialError> {
    let (responder, address) = told.responder(Via::Kernel)?;
    let max_read_bytes = (told.answer.max_read_blocks(responder) * BLOCK_BYTES).min(MAX_READ_BYTES);
    let flow = FlowConfig { max_read_bytes, ..FlowConfig::default() };
    let mut requester = SoftRequester::connect(address, soft::Config::default(), flow)?;
    let control = told.answer.control;
    let deadline_ns = steady_ns() + PATIENCE_NS;
    let knock = Read { id: u64::MAX, va: control.va, rkey: control.rkey, at: 0, blocks: 1, deadline_ns };
    let broken = |broken| TrialError::Read { via: Via::Kernel, source: Box::new(DriveError::Broken(broken)) };
    match read_one(&mut requester, knock, &mut [Block::default()], steady_ns).map_err(broken)? {
        Outcome::Done => Ok((Via::Kernel, Box::new(requester))),
        Outcome::Lost => {
            Err(TrialError::Read { via: Via::Kernel, source: Box::new(DriveError::Read(ReadError::Lost)) })
        }
        Outcome::Timeout | Outcome::Refused(_) => Err(TrialError::Silent(address)),
    }
}
