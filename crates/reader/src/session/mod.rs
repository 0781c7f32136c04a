// SPDX-License-Identifier: Apache-2.0
//! Reading all regions of one host, without I/O: from a bootstrap answer to frames.
//!
//! A [`Session`] says which READs it wants and takes their completions; it follows the control region
//! ([`onlooker_region::control::Directory`]), fetches the schemas that neither it has nor a session that it shares them
//! with ([`Session::share`]), reads the regions' blocks and checks them. One cycle: header, changed entry blocks, new
//! schemas, regions; each step is one batch. Who reads often has the agent's own regions in the header's batch. What is
//! torn or busy is read again a few times; a region that has become another one sends the cycle back to the header.
//!
//! If the host's RDMA device keeps a copy of the directory in our memory ([`Session::mirror`]), the session takes
//! header, entries and schemas from that copy and sends READs only for regions. A damaged or late copy is ignored.
//!
//! The host is not trusted: tries, rounds, bytes and schema text are bounded by [`Limits`], whatever it answers. Every
//! retry and refusal is counted with its reason. Cost beyond the READs: one check per block that was read, one parse
//! per new schema.

mod control;
mod cycle;
mod early;
mod empty;
mod fetch;
mod frame;
mod keys;
mod mirror;
mod packed;
mod regions;
mod resolve;
mod resting;

#[cfg(test)]
mod tests;

pub use cycle::Session;
pub use frame::{Frame, Frames, Problem};
pub use keys::header_read;
pub use mirror::{MIRROR_CHECK_NS, Mirror};

use crate::Outcome;
use onlooker_region::control::ControlError;
use std::collections::BTreeMap;

/// What one cycle may cost, whatever the host says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all READs of a cycle, retries included. Schema text counts [`Limits::SCHEMA_COST`] times, for what it becomes when parsed.
    pub bytes: u64,
    /// Tries of one block.
    pub tries: u32,
    /// Times that a cycle begins at the header.
    pub rounds: u32,
    /// Bytes of schema text that a session keeps, parsed, as long as the host refers to it: it takes up to 8 bytes of memory a byte. What other sessions
    /// have, too, counts as if it were READ and kept for this one.
    pub schema_bytes: u64,
}

impl Limits {
    /// What a byte of schema text counts for: parsed it takes up to 8 bytes of memory, and up to half a microsecond to check.
    pub const SCHEMA_COST: u64 = 64;
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 256 << 20, tries: 8, rounds: 3, schema_bytes: 8 << 20 }
    }
}

/// Why a cycle has failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The control region cannot be read any more: the agent was started anew.
    #[error("the control region is gone ({0}): the agent was restarted; bootstrap again")]
    Gone(String),
    /// The control region is not one.
    #[error("the control region cannot be used: {0}")]
    Control(#[from] ControlError),
    /// Out of time before the directory was read.
    #[error("no answer in time to a READ of the control region; is its responder reachable, and the host alive?")]
    Timeout,
    /// The requester broke before the directory was read.
    #[error("the connection was lost before the directory was read; connect again")]
    Lost,
    /// The responder is over its budget.
    #[error("the responder is overloaded; read less often")]
    Overloaded,
    /// More than the limit.
    #[error("the directory alone is larger than the limit of {0} bytes for a host")]
    Limit(u64),
}

impl ReadError {
    /// What a READ of the control region that ended so means; `None`: it came, or may be tried again.
    fn of_control(outcome: Outcome) -> Option<Self> {
        use onlooker_wire::tcp_read::Refusal;
        match outcome {
            Outcome::Done | Outcome::Refused(Refusal::Overloaded) => None,
            Outcome::Refused(_) => Some(Self::Gone(outcome_name(outcome).into())),
            Outcome::Lost => Some(Self::Lost),
            Outcome::Timeout => Some(Self::Timeout),
        }
    }

    /// In a word: the reason of the gap that it leaves.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Gone(_) => "gone",
            Self::Control(_) => "control",
            Self::Timeout => "timeout",
            Self::Lost => "lost",
            Self::Overloaded => "overloaded",
            Self::Limit(_) => "limit",
        }
    }
}

/// Everything that did not go straight, by reason, since the session began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// READs completed with data.
    pub reads: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Blocks read again, by the reason why.
    pub retries: BTreeMap<&'static str, u64>,
    /// Blocks finally refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// READs that failed, by outcome.
    pub failed: BTreeMap<&'static str, u64>,
    /// Cycles sent back to the header.
    pub rounds: u64,
    /// Entries that cannot be right.
    pub entries: u64,
    /// Cycles whose directory came from a copy on this machine ([`Session::mirror`]), but for what `mirror_fell_back` counts.
    pub mirror_used: u64,
    /// Headers, entry blocks and schemas that the copy had not, or not as they should be, by reason. They were READ from the host.
    pub mirror_fell_back: BTreeMap<&'static str, u64>,
}

fn count(counter: &mut BTreeMap<&'static str, u64>, reason: &'static str) {
    *counter.entry(reason).or_default() += 1;
}

/// An outcome's name.
#[must_use]
pub fn outcome_name(outcome: Outcome) -> &'static str {
    use onlooker_wire::tcp_read::Refusal;
    match outcome {
        Outcome::Done => "done",
        Outcome::Timeout => "timeout",
        Outcome::Lost => "lost",
        Outcome::Refused(Refusal::Access) => "access",
        Outcome::Refused(Refusal::InvalidRequest) => "invalid_request",
        Outcome::Refused(Refusal::Overloaded) => "overloaded",
    }
}
