// SPDX-License-Identifier: Apache-2.0
//! A host to watch.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use onlooker_bootstrap::Token;
use onlooker_flow::Priority;
use serde::{Deserialize, Serialize};

/// Which responder to read through: `via` in files, in `POST /api/onlooker/v1/targets` and in its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// The host's RDMA device if both machines have one, else its kernel responder if that answers, else TCP.
    #[default]
    Auto,
    /// The host's RDMA device, read by this machine's device.
    Verbs,
    /// The kernel responder.
    Kernel,
    /// The host's agent, over TCP.
    Tcp,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
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
    /// Who is before it, and whom it is before, where not all can be read in time.
    pub priority: Priority,
    /// How to read.
    pub choice: Choice,
}

impl Target {
    /// Time between two readings, ns.
    #[must_use]
    pub fn interval_ns(&self) -> u64 {
        u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX)
    }

    /// `HOST:PORT`, with brackets where the host is an IPv6 address.
    #[must_use]
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Shortest time between two readings.
pub const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// Longest name of a host, bytes.
pub const MAX_NAME_BYTES: usize = 256;
/// Longest value of a label, bytes.
pub const MAX_LABEL_BYTES: usize = 1024;
/// Labels of a host at most.
pub const MAX_LABELS: usize = 64;

/// What a host may be called.
///
/// # Errors
/// What is wrong.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(char::is_control) || name.trim() != name {
        let shown: String = name.chars().take(64).collect();
        return Err(format!(
            "{shown:?} cannot be a name: 1 to {MAX_NAME_BYTES} bytes without control characters, and no space at either end"
        ));
    }
    Ok(())
}

/// What labels a host may have.
///
/// # Errors
/// What is wrong.
pub fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), String> {
    if labels.len() > MAX_LABELS {
        return Err(format!("{} labels; a host has at most {MAX_LABELS}", labels.len()));
    }
    for (name, value) in labels {
        let shown: String = name.chars().take(64).collect();
        if name == "instance" {
            return Err("`instance` cannot be a label here; `instance` is the host's name".into());
        }
        if onlooker_region::schema::check_label(name).is_err() {
            return Err(format!("{shown:?} cannot be a label: letters, digits and `_`, and no digit in front"));
        }
        if value.len() > MAX_LABEL_BYTES {
            return Err(format!("the value of label {shown} is longer than {MAX_LABEL_BYTES} bytes"));
        }
    }
    Ok(())
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
