// SPDX-License-Identifier: Apache-2.0
//! A host that shall be watched.

use std::collections::BTreeMap;
use std::time::Duration;

use onlooker_bootstrap::Token;

/// Which responder to read through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The kernel responder if the host has one that answers, else TCP.
    #[default]
    Auto,
    /// The kernel responder or nothing.
    Kernel,
    /// The host's agent.
    Tcp,
}

/// A host, as configuration or discovery has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What it is called: unique, and the label `instance`.
    pub name: String,
    /// Host name or address of its bootstrap endpoint.
    pub host: String,
    /// Port of its bootstrap endpoint.
    pub port: u16,
    /// Join token.
    pub token: Token,
    /// Labels for all its series.
    pub labels: BTreeMap<String, String>,
    /// Time between two readings.
    pub interval: Duration,
    /// How to read.
    pub choice: Choice,
}
