// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with a host before READs can be sent to it: what it says, or does not. Requesters have errors of
//! their own.

use onlooker_bootstrap::{Failure, Fingerprint};
use std::io;
use std::time::Duration;

/// Each says what was tried, on what, and what to do next. Texts from the host are escaped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No address for the name.
    #[error("cannot resolve {host}: {source}; check the name, or give an address")]
    Resolve {
        /// As given.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// Nobody listens.
    #[error(
        "{peer} refuses the connection; is onlooker-agent running there, and does its {what} listen on this address?"
    )]
    Refused {
        /// Whom.
        peer: String,
        /// Which endpoint.
        what: &'static str,
    },
    /// Too slow.
    #[error("{peer}: no {what} within {timeout:?}; check the firewall and the address, or allow more time")]
    Timeout {
        /// Whom.
        peer: String,
        /// What was awaited.
        what: &'static str,
        /// How long.
        timeout: Duration,
    },
    /// Another system error.
    #[error("{peer}: {operation}: {source}")]
    System {
        /// Whom.
        peer: String,
        /// What was tried.
        operation: &'static str,
        /// Its error.
        source: io::Error,
    },
    /// An impostor, or a new identity.
    #[error(
        "{peer} has another certificate than the token's ({got} instead of {expected}): it is another host, or the agent's state directory is new; \
         take a fresh token from `onlooker-agent token` on that host"
    )]
    Certificate {
        /// Whom.
        peer: String,
        /// Its certificate.
        got: Fingerprint,
        /// The token's.
        expected: Fingerprint,
    },
    /// The endpoint is in plain mode.
    #[error(
        "{peer} does not speak TLS, but the token is for a TLS endpoint; wrong port, or the agent runs with tls = false: then take a fresh token"
    )]
    NotTls {
        /// Whom.
        peer: String,
    },
    /// The endpoint is in TLS mode.
    #[error(
        "{peer} speaks TLS, but the token is for a plain endpoint; take a fresh token from `onlooker-agent token` on that host"
    )]
    OnlyTls {
        /// Whom.
        peer: String,
    },
    /// The secret is not the agent's.
    #[error("{peer} denies the token: {}; take a fresh one from `onlooker-agent token` on that host", escaped(.message))]
    Denied {
        /// Whom.
        peer: String,
        /// The agent's sentence.
        message: String,
    },
    /// The agent has its hands full.
    #[error("{peer} is busy: {}; try again in a few seconds", escaped(.message))]
    Busy {
        /// Whom.
        peer: String,
        /// The agent's sentence.
        message: String,
    },
    /// Versions do not meet.
    #[error("{peer} speaks another bootstrap version: {what}; upgrade the older side")]
    Version {
        /// Whom.
        peer: String,
        /// Which.
        what: String,
    },
    /// No bootstrap endpoint.
    #[error("{peer} does not answer as an onlooker-agent: {what}; check the port")]
    Garbage {
        /// Whom.
        peer: String,
        /// What came.
        what: String,
    },
    /// The stream ended.
    #[error("{peer} closed the connection before its {what} was complete: {}", why_closed(.what))]
    Closed {
        /// Whom.
        peer: String,
        /// What was awaited.
        what: &'static str,
    },
    /// The host has no such responder.
    #[error(
        "{peer} offers no {wanted} responder (it has: {offered}); enable [{wanted}] in its agent.toml, or read it another way"
    )]
    NoResponder {
        /// Whom.
        peer: String,
        /// Kind of responder.
        wanted: &'static str,
        /// What it has.
        offered: String,
    },
    /// The host has one that cannot be used now.
    #[error("{peer}: its {kind} responder cannot be used now: {}; mend that on the host, or read it another way", escaped(.problem))]
    Problem {
        /// Whom.
        peer: String,
        /// Kind of responder.
        kind: &'static str,
        /// The agent's sentence.
        problem: String,
    },
    /// The host offers READs over RDMA and tells neither a queue pair nor why not.
    #[error("{peer} lists a verbs responder and gives no queue pair; upgrade its agent, or read it another way")]
    NoQueuePair {
        /// Whom.
        peer: String,
    },
}

/// An agent that turns a peer away before it has spoken cannot say why: over TLS an answer would cost it a handshake.
fn why_closed(what: &str) -> &'static str {
    if what == "TCP responder" {
        "is [tcp] allow in its agent.toml open for this machine? On the host see onlooker_agent_tcp_connections_refused_total"
    } else {
        "it is busy, its [bootstrap] allow refuses this source, or this is no bootstrap port; try again in a few seconds, and on the host see onlooker_agent_bootstraps_total"
    }
}

/// A foreign text without control characters, at most 200 characters.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().take(200).flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

impl Error {
    pub(crate) fn failure(peer: &str, failure: Failure) -> Self {
        use onlooker_bootstrap::Code;
        let (peer, message) = (peer.to_owned(), failure.message);
        match failure.code {
            Code::Denied => Self::Denied { peer, message },
            Code::Busy => Self::Busy { peer, message },
            Code::Version => Self::Version { peer, what: escaped(&message) },
            Code::BadRequest | Code::Unknown => Self::Garbage { peer, what: escaped(&message) },
        }
    }

    /// From a system error; `what` is what was being awaited.
    pub(crate) fn io(peer: &str, what: &'static str, timeout: Duration, source: io::Error) -> Self {
        let peer = peer.to_owned();
        match source.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused { peer, what },
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Timeout { peer, what, timeout },
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::Closed { peer, what },
            _ => Self::System { peer, operation: what, source },
        }
    }
}
