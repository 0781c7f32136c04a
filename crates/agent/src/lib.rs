// SPDX-License-Identifier: Apache-2.0
//! The agent of a watched host.
#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod config;
pub mod counters;
pub mod deadline;
pub mod directory;
pub mod host;
pub mod identity;
pub mod node;
pub mod prefix;
pub mod procfs;
pub mod protocol;
pub mod rate;
pub mod registry;
pub mod sampler;
pub mod served;
pub mod suggest;
pub mod tcp;
pub mod units;
pub mod peer;
pub mod policy;
pub mod registration;
pub mod seqpacket;
pub mod agent;
pub mod listen;
pub mod server;
pub mod system;
