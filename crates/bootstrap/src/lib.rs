// SPDX-License-Identifier: Apache-2.0
//! How a reader finds a host's control region (docs/format/bootstrap.md): what both ends share.
//!
//! The reader sends one [`Request`], the agent one [`Answer`] or [`Failure`], each as JSON behind a 4-byte length ([`frame`]). The [`Token`] says
//! which certificate the agent has and which secret opens it.
//!
//! Invariants: no I/O; no input makes a parser panic or allocate more than a message's bytes allow; secrets are compared in constant time and shown
//! by no `Debug`. Cost: once per host and agent start.
#![forbid(unsafe_code)]

pub mod frame;
mod id;
mod message;
mod source;
mod token;
mod verbs;

pub use id::{Id, IdError, host_id};
pub use message::{
    Answer, AnswerError, Code, Control, Failure, KERNEL, MAX_PROBLEM_BYTES, MAX_READER_BYTES, Request, RequestError,
    Responder, TCP, VERBS,
};
pub use source::source;
pub use token::{Fingerprint, Secret, Token, TokenError};
pub use verbs::{ControlCopy, Goodbye, QueuePairEnd, VerbsAnswer, VerbsRequest};

/// Version of the bootstrap that this crate speaks.
pub const VERSION: u32 = 1;
/// Port of the agent's bootstrap endpoint unless configured otherwise.
pub const DEFAULT_PORT: u16 = 7177;
/// Bootstraps that an agent serves at once; one more is told `busy`.
pub const MAX_BOOTSTRAPS: usize = 16;
/// Time that an agent gives a peer for handshake and request.
pub const REQUEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
