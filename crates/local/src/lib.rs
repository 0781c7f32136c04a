// SPDX-License-Identifier: Apache-2.0
//! What processes of one host share to speak to each other: agent, holder, the Rust SDK, `doctor` and `join`.
//!
//! [`registration`] is the protocol between programs and the agent, both sides; [`client`] is the program's side of the
//! socket. The holder's protocol is in its own crate, since only the agent speaks it. Both travel over [`seqpacket`]
//! sockets, whose files [`listen`] keeps; [`call`] asks and waits for the answer, [`closing`] ends what strangers
//! handed over. Nothing here runs by itself: [`closing`] starts threads, and only while it has something to close.
#![forbid(unsafe_code)]

pub mod call;
pub mod client;
pub mod closing;
pub mod deadline;
pub mod listen;
pub mod refusal;
pub mod registration;
pub mod seqpacket;

pub use client::{Client, Lost};
pub use refusal::Refusal;
