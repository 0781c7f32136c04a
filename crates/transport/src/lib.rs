// SPDX-License-Identifier: Apache-2.0
//! Reading a watched host's memory.
//!
//! [`Requester`] is the one interface that READs go through, whoever answers them; [`tcp`] is the one over a TCP stream, [`soft`] the one over UDP, [`packet`] the one from a
//! machine without an RDMA device to one that has one, `verbs` (a feature of this crate, which brings libibverbs) the one over RDMA devices. [`bootstrap`] asks a host where
//! its control region is; [`reader`] then follows the directory, the schemas and the regions without any I/O of its own, and [`drive`] lets a requester and a reader meet.
//!
//! Invariants: what a host answers can make none of this panic, loop or allocate beyond the limits given; a READ that was submitted completes exactly
//! once; no answer is written to memory after its READ has completed.
#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod clock;
pub mod drive;
mod error;
pub mod packet;
pub mod reader;
mod requester;
pub mod soft;
pub mod tcp;
mod tls;
#[cfg(any(test, feature = "verbs"))]
pub mod verbs;
mod via;

#[cfg(test)]
#[path = "../tests/common/memory.rs"]
#[allow(unreachable_pub, dead_code)]
mod memory;

pub use error::Error;
pub use requester::{Broken, Completion, Fault, Memory, Outcome, Read, Requester};
pub use via::{By, Pair, Via};
