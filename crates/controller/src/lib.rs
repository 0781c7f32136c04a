// SPDX-License-Identifier: Apache-2.0
//! The controller: reads many hosts at a steady pace and hands on what they say.
//!
//! The way of a value: [`onlooker_targets`] says who is watched, [`connect`] bootstraps, [`engine`] paces the READs of
//! all hosts on one thread and hands each finished reading to the processor, a thread that gives it to a [`Sink`]:
//! [`fleet`], which derives and shows, and [`keep`], which stores. [`rules`] are evaluated over what is stored, and
//! [`forward`] sends it on. Nothing that a host says can stop the others: hosts are read side by side, each within its
//! deadline.
#![forbid(unsafe_code)]

pub mod boards;
mod client;
pub mod config;
pub mod connect;
pub mod engine;
pub mod fleet;
pub mod forward;
pub mod http;
pub mod keep;
mod niceness;
mod processor;
pub mod rules;
pub mod service;
mod sink;
mod sources;
pub mod telemetry;
pub mod trial;
pub mod usage;
mod ways;

pub use engine::Running;
pub use sink::{Gap, Reading, Sink, State};
