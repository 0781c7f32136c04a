// SPDX-License-Identifier: Apache-2.0
//! The agent of a watched host.
#![forbid(unsafe_code)]

pub mod agent;
pub mod bootstrap;
pub mod config;
pub mod counters;
pub mod deadline;
pub mod directory;
pub mod host;
pub mod identity;
pub mod listen;
pub mod node;
pub mod peer;
pub mod policy;
pub mod prefix;
pub mod procfs;
pub mod protocol;
pub mod rate;
pub mod registration;
pub mod registry;
pub mod sampler;
pub mod seqpacket;
pub mod served;
pub mod server;
pub mod suggest;
pub mod system;
pub mod tcp;
pub mod units;
