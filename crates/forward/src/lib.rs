// SPDX-License-Identifier: Apache-2.0
//! What other databases are sent, and what their answers mean.
//!
//! ```text
//! store ─► query::follow  samples of series, slice of time by slice of time
//!             │ naming      which series are sent, and what they are called there
//!             ▼
//!          Encoder ─► body  remote_write or line_protocol, compressed
//!             │
//!          answer::Verdict  what a status means, when to try again
//!          cursor           up to where a target has everything
//! ```
//!
//! No sockets and no threads: the controller has those (`controller/forward`). What a series is called is encoded once
//! and kept; a sample costs its own bytes and no look-up.
#![forbid(unsafe_code)]

pub mod answer;
pub mod config;
pub mod cursor;
mod encoder;
mod family;
mod line_protocol;
mod naming;
mod protobuf;
mod remote_write;

pub use encoder::{Body, Encoder, Protocol};
pub use family::Family;
pub use naming::{Naming, Pairs};
