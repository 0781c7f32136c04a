// SPDX-License-Identifier: Apache-2.0
//! RDMA devices for one-sided READs and WRITEs (docs/verbs.md). The only code that calls libibverbs; safe outside.
//!
//! A [`Device`] is opened by the address that it has. The side that is read registers memory ([`Readable`]) and makes a [`QueuePair`] for each reader; the side that reads
//! makes one for each host, all of an I/O thread on one [`CompletionQueue`], and sends through [`Reads`], which decides what is posted when and what a completion
//! means. `Reads` knows the device only as a [`Port`], so that its tests run against a device that is stricter than any real one (`fake`). The other direction is
//! [`QueuePair::write`], into memory that its owner has made [`Writable`]. [`rpc`] is the two-sided way that READs are measured against.
//!
//! Cost: one system call per batch posted and none per batch polled with a card; soft-RoCE makes one for both. A READ's answer is copied once, from registered memory.

mod completion;
mod credits;
mod device;
mod endpoint;
mod error;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod memory;
mod port;
mod queue_pair;
mod reads;
pub mod rpc;
mod send_queue;
mod settings;
mod work_request;

pub use completion::{Arrived, Completed, CompletionQueue, MAX_POLL, Status};
pub use device::{Device, Event, Limits};
pub use endpoint::{BadEndpoint, Endpoint, Path};
pub use error::Error;
pub use memory::{Landing, Readable, Writable};
pub use port::{Card, CardPair, Port};
pub use queue_pair::{QueuePair, Write};
pub use reads::{Counters, Ended, Flow, Memory, Outcome, Read, Reads};
pub use send_queue::SendQueue;
pub use settings::Settings;
pub use work_request::WorkRequest;
