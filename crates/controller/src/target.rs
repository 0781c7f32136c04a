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

/// `HOST` or `HOST:PORT`; IPv6 addresses with a port stand in brackets.
///
/// # Errors
/// What is wrong.
pub fn parse_address(text: &str) -> Result<(String, Option<u16>), &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']').ok_or("`]` is missing")?;
            let port = match behind {
                "" => None,
                port => Some(port.strip_prefix(':').ok_or("`:PORT` or nothing is expected behind `]`")?),
            };
            (host, port)
        }
        // More than one colon: an IPv6 address without port.
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err("HOST or HOST:PORT is expected");
    }
    let port =
        port.map(|port| port.parse().ok().filter(|port| *port != 0).ok_or("a port is 1 to 65535")).transpose()?;
    Ok((host.to_owned(), port))
}
