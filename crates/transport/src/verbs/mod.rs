// SPDX-License-Identifier: Apache-2.0
//! READs over RDMA devices (docs/verbs.md).
//!
//! [`Flows`] is one I/O thread's: one completion queue of a device, any number of hosts, each with a queue pair.
//! [`onlooker_verbs::Reads`] decides what is posted when and what a completion means; here READs get the crate's names,
//! and a queue pair that has failed ends as [`Broken`](onlooker_reader::Broken). [`VerbsRequester`] is a device with a
//! single flow, for programs that read one host. [`connect()`] makes one to a host's device, [`connect_kernel()`] one
//! to its kernel responder; who shares a device between hosts makes [`Unconnected`] queue pairs of it.
//!
//! A device knows one refusal, and it ends the queue pair: a region that has gone since the directory was read costs its reader a bootstrap. The kernel responder is silent
//! instead, which ends it, too, half a second later.
//!
//! A host that can writes changes of its directory into memory of this machine ([`DirectoryCopy`]); sessions find them there ([`VerbsRequester::mirror`]).
//!
//! Invariants: at most 16 READs of 4 blocks are under way to a host ([`Settings::default`]), of one packet to a kernel responder; answers land in memory of the device's own and are copied out once, so that
//! none is written to the caller's memory after its READ has completed.

mod connect;
mod copy;
mod flows;
mod kernel;
mod requester;

#[cfg(test)]
mod tests;

pub use crate::packet::reader_id;
pub use connect::{Unconnected, connect, end_of, endpoint_of, open};
pub use copy::{DirectoryCopy, SharedMirror};
pub use flows::Flows;
pub use kernel::connect_kernel;
pub use onlooker_verbs::{Card, CardPair, Counters, Flow, Port, Settings};
pub use requester::{Sleeper, VerbsRequester};
