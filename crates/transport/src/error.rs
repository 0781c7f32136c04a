// SPDX-License-Identifier: Apache-2.0
//! Why this machine cannot READ a host.

use crate::{packet, soft};
use onlooker_reader::drive::DriveError;
use onlooker_reader::{Error as HostError, Pair};
use std::net::{IpAddr, SocketAddr};

/// Each says what was tried, on what, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the host says, or that it says nothing.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Our end of READs to a kernel responder.
    #[error(transparent)]
    Soft(#[from] soft::Error),
    /// This machine cannot read a host's RDMA device without one of its own.
    #[error(transparent)]
    Packet(#[from] packet::Error),
    /// This machine cannot read over an RDMA device.
    #[cfg(any(test, feature = "verbs"))]
    #[error(transparent)]
    Device(#[from] onlooker_verbs::Error),
    /// The host's queue pair cannot be connected to.
    #[cfg(any(test, feature = "verbs"))]
    #[error(
        "{peer}: cannot connect to its RDMA device: {source}; are both devices' addresses of one network (`rdma link`)? Or read it another way"
    )]
    Connect {
        /// The host's bootstrap endpoint.
        peer: String,
        /// Why.
        source: onlooker_verbs::Error,
    },
    /// A kernel responder does not answer.
    #[error(
        "{responder}: no answer from the kernel responder, and silence is its only refusal; check: [kernel] allow in the host's agent.toml is open for this machine ({own}); \
         no firewall between drops UDP port {} or its answers; the responder's lease is not over (the agent renews it); `onlooker doctor` on the host shows what it drops",
        .responder.port()
    )]
    Silent {
        /// Its address.
        responder: SocketAddr,
        /// This machine's address that leads there.
        own: IpAddr,
    },
    /// The first READ of a way that was made has failed.
    #[error("READs at {address} ({pair}): {source}")]
    Read {
        /// Who asked and who was to answer.
        pair: Pair,
        /// The responder's address.
        address: SocketAddr,
        /// What came instead.
        source: Box<DriveError>,
    },
    /// None of several ways.
    #[error("{}", sentence(.0))]
    Several(Vec<Self>),
}

/// One sentence of several errors.
pub(crate) fn sentence<'a>(errors: impl IntoIterator<Item = &'a Error>) -> String {
    errors.into_iter().map(ToString::to_string).collect::<Vec<_>>().join("; and ")
}

impl Error {
    /// The host has no such responder, or this machine no RDMA device that leads there: nothing is wrong with that as
    /// long as there is another way.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        #[cfg(any(test, feature = "verbs"))]
        if let Self::Device(onlooker_verbs::Error::NoDevice { .. } | onlooker_verbs::Error::NoLibrary(_)) = self {
            return true;
        }
        self.is_not_offered()
    }

    /// The host has no such responder.
    pub(crate) fn is_not_offered(&self) -> bool {
        matches!(self, Self::Host(HostError::NoResponder { .. }))
    }

    /// Of several ways that were tried, in this order. What the host does not offer is told only where it offers
    /// nothing.
    ///
    /// # Panics
    /// Without any.
    #[cfg(any(test, feature = "verbs"))]
    pub(crate) fn of(mut tried: Vec<Self>) -> Self {
        let last = tried.pop().expect("at least one way was tried");
        tried.retain(|error| !error.is_not_offered());
        if tried.is_empty() || !last.is_not_offered() {
            tried.push(last);
        }
        if tried.len() > 1 { Self::Several(tried) } else { tried.remove(0) }
    }
}
