// SPDX-License-Identifier: Apache-2.0
//! The agent of a watched host: hands out memory to programs, keeps the control region, answers bootstraps and TCP reads.
//!
//! Decisions are functions of requests and time without I/O ([`registry`], [`policy`], [`rate`]); the rim does what they decide
//! ([`registration`], [`directory`], [`server`], [`tcp`], [`bootstrap`], [`sampler`]); [`agent`] puts them together. Threads: the main one with the only epoll, one that
//! samples procfs while a reader is connected, one for each TCP connection. An idle agent has no wake-up.
//!
//! The program is in `crates/onlooker-agent`, the protocol of programs in `crates/local`; `crates/join` and the protocol
//! example (`examples/program.rs`) use parts of this.
#![forbid(unsafe_code)]

pub mod address;
pub mod agent;
pub mod bootstrap;
pub mod card;
pub mod config;
pub mod counters;
pub mod devices;
pub mod directory;
pub mod epochs;
pub mod error;
pub mod facts;
pub mod host;
pub mod identity;
pub mod ids;
pub mod kernel;
pub mod leftovers;
pub mod own;
pub mod pace;
pub mod peer;
pub mod places;
pub mod policy;
pub mod prefix;
pub mod processors;
pub mod publisher;
pub mod rate;
pub mod registration;
pub mod registry;
pub mod renewal;
pub mod sampler;
pub mod served;
pub mod server;
pub mod subordinates;
pub mod system;
pub mod tables;
pub mod tcp;
pub use onlooker_settings::units;
