// SPDX-License-Identifier: Apache-2.0
//! Reading one watched host: everything but the sending of READs.
//!
//! [`bootstrap`] asks a host's agent where its control region is. A [`Session`] then follows the directory, the schemas
//! and the regions without any I/O of its own: it says which READs it wants, takes what came of them, and gives
//! [`Frame`]s of checked blocks. Sessions of a process may have their schemas in common ([`SchemaCache`]). [`clock`]
//! relates the host's clock to ours.
//!
//! [`Requester`] is the interface of whatever sends the READs. It is defined here and implemented by the crate
//! `transport`, so the arrow runs from `transport` to this crate. A session needs only the words of a READ ([`Read`],
//! [`Outcome`], [`Broken`]), no sockets or devices, and can run against a simulated network. A requester needs what the
//! host has said ([`bootstrap::Bootstrapped`], [`Error`]) to connect. If the arrow ran the other way, these words would
//! need a third crate. `onlooker_transport::open` needs both and makes the one way to a host.
//!
//! Invariants: nothing that a host answers makes any of this panic, loop, or allocate beyond the limits given; a block
//! is checked once, before anybody sees it.
#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod clock;
pub mod drive;
mod error;
mod requester;
mod schemas;
mod session;
mod tls;
mod via;

#[cfg(test)]
#[path = "../tests/common/memory.rs"]
#[allow(unreachable_pub, dead_code)]
mod memory;

pub use error::Error;
pub use requester::{Broken, Completion, Fault, Memory, Outcome, Read, Requester};
pub use schemas::SchemaCache;
pub use session::{
    Counters, Frame, Frames, Limits, MIRROR_CHECK_NS, Mirror, Problem, ReadError, Session, header_read, outcome_name,
};
pub use via::{By, Pair, Via};
