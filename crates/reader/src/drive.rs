// SPDX-License-Identifier: Apache-2.0
//! Lets a requester and a reader's session meet: one whole reading of a host, blocking.
//!
//! For programs that read one host at a time. A controller, which reads many, runs its own loop over the same two interfaces.

use crate::{Broken, Completion, Fault, Outcome, Read, ReadError, Requester, Session};
use onlooker_region::Block;
use std::time::Duration;

/// READs handed to the requester at once.
const BATCH: usize = 256;
/// Blocks in flight at most: enough to fill a fast network, little enough not to swamp a slow one.
const MAX_BLOCKS_IN_FLIGHT: u32 = 4096;
/// Sleep at most so long, so that deadlines are noticed.
const MAX_SLEEP: Duration = Duration::from_millis(50);

/// Why a reading failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriveError {
    /// The host's directory could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The connection is gone.
    #[error("{}; {}", .0, what_next(.0))]
    Broken(#[from] Broken),
}

/// A responder that turns a source away can only close: the READ protocol has no word for it.
fn what_next(broken: &Broken) -> &'static str {
    match broken {
        Broken::Closed => {
            "connect again; if that ends in the same way: is [tcp] allow in its agent.toml open for this machine? On the host see onlooker_agent_tcp_connections_refused_total"
        }
        Broken::QueuePair(Fault::Access) => {
            "connect again: a region may have gone since the directory was read, and that is how a device says so"
        }
        Broken::QueuePair(Fault::NoAnswer) => {
            "is the host alive, and UDP port 4791 open in both directions? Else read it another way"
        }
        Broken::QueuePair(_) => "connect again; if that ends in the same way, read it another way",
        Broken::Garbage(_) | Broken::System { .. } => "connect again",
    }
}

/// Reads the host once: directory, schemas, wanted regions. All of it ends at `deadline_ns` of the clock `now`.
///
/// # Errors
/// [`DriveError`]. What could be read of single regions stands in the session even so.
pub fn read_host(
    requester: &mut (impl Requester + ?Sized),
    session: &mut Session,
    deadline_ns: u64,
    mut now: impl FnMut() -> u64,
) -> Result<(), DriveError> {
    let mut reads: Vec<Read> = Vec::with_capacity(BATCH);
    let mut completions: Vec<Completion> = Vec::with_capacity(BATCH);
    let mut blocks_in_flight = 0;
    session.begin(now(), deadline_ns);
    while !session.is_done() {
        let now_ns = now();
        reads.clear();
        session.wanted(now_ns, BATCH, &mut reads);
        let mut room = MAX_BLOCKS_IN_FLIGHT.saturating_sub(blocks_in_flight);
        let fits = reads.iter().take_while(|read| {
            let fits = read.blocks <= room;
            room = room.saturating_sub(read.blocks);
            fits
        });
        let fits = fits.count();
        let taken = requester.submit(&reads[..fits])?;
        session.submitted(taken);
        blocks_in_flight += reads[..taken].iter().map(|read| read.blocks).sum::<u32>();

        completions.clear();
        let polled = requester.poll(session.memory(), now(), &mut completions);
        let mut advanced = Ok(());
        for completion in &completions {
            blocks_in_flight -= session.blocks_of(completion.id);
            advanced = advanced.and(session.complete(*completion, now()));
        }
        // A broken requester is the cause of whatever else went wrong.
        polled?;
        advanced?;
        if completions.is_empty() && taken == 0 {
            let now_ns = now();
            // Places that a device has not given back yet: what could not be sent will not be in time.
            if now_ns >= deadline_ns && fits > 0 && requester.in_flight() == 0 {
                return Err(ReadError::Timeout.into());
            }
            let until_ns = session.wake_ns(now_ns).min(deadline_ns);
            let sleep = Duration::from_nanos(until_ns.saturating_sub(now_ns));
            requester.wait(sleep.clamp(Duration::from_micros(50), MAX_SLEEP))?;
        }
    }
    Ok(())
}

/// One READ into `memory`, and how it ended. For knocking and measuring; the requester must have nothing else under way.
///
/// # Errors
/// The requester has broken.
pub fn read_one(
    requester: &mut (impl Requester + ?Sized),
    read: Read,
    memory: &mut [Block],
    mut now: impl FnMut() -> u64,
) -> Result<Outcome, Broken> {
    let mut completions = Vec::with_capacity(1);
    let mut taken = 0;
    loop {
        if taken == 0 {
            taken = requester.submit(&[read])?;
        }
        requester.poll(memory, now(), &mut completions)?;
        if let Some(completion) = completions.iter().find(|completion| completion.id == read.id) {
            return Ok(completion.outcome);
        }
        if taken == 0 && now() >= read.deadline_ns {
            return Ok(Outcome::Timeout);
        }
        requester.wait(MAX_SLEEP)?;
    }
}
