// SPDX-License-Identifier: Apache-2.0
//! The holder: a process that owns an RDMA device, its queue pairs and registered memory, and nothing else, so that the
//! agent can come and go without a reader noticing (docs/holder.md).
//!
//! The agent is linked statically and libibverbs is loaded at run time, so the agent has [`client`] and [`protocol`]
//! only, without feature `device`. The process decides in [`state`], without knowing what a device is; [`server`] is
//! its rim, and `device` (with the feature) is the only module that has the device. Single-threaded; it sleeps while
//! nothing is asked of it, and READs ask nothing of it.
#![deny(unsafe_code)]

pub mod client;
#[cfg(feature = "device")]
pub mod device;
#[cfg(test)]
mod fake;
mod memory;
pub mod protocol;
pub mod server;
pub mod state;

pub use client::{ClientError, Holder};
pub use protocol::{Code, DEFAULT_SOCKET, End, Refusal};
