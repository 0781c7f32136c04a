// SPDX-License-Identifier: Apache-2.0
//! Why the agent does not run.

use std::io;
use std::net::SocketAddr;

use onlooker_local::listen::ListenError;
use onlooker_local::registration::Refusal;
use onlooker_region::map::MapError;

use crate::directory::DirectoryError;
use crate::identity::IdentityError;
use crate::kernel::KernelError;

/// Why the agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A value of the configuration that only this host can judge.
    #[error("{0}")]
    Config(String),
    /// The state directory.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The registration socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A TCP listener.
    #[error("cannot listen on {address} ([{section}] listen): {source}; is another agent running?")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Section of agent.toml.
        section: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// TLS.
    #[error("TLS: {0}; remove identity.pem from the state directory to have a new one made")]
    Tls(#[from] rustls::Error),
    /// The control region.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Memory of the agent's own regions.
    #[error("memory of the agent's own regions: {0}")]
    Memory(#[from] MapError),
    /// The agent's own regions.
    #[error("the agent's own region {name}: {refusal}")]
    Own {
        /// Which.
        name: &'static str,
        /// Why.
        refusal: Refusal,
    },
    /// The kernel responder's tables.
    #[error("kernel responder: {0}; `onlooker-agent purge` removes it, then start again")]
    Kernel(#[from] KernelError),
    /// Old keys would be good again.
    #[error(
        "the token was renewed, and no new keys could be made: see above; `onlooker-agent purge` removes the responder that has the old ones"
    )]
    Renewal,
    /// An error, so that a service manager that restarts after failures only does so, too.
    #[error("this machine has more processors than metrics know: ended, to be started anew")]
    Outgrown,
    /// Anything else of the system.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// [`AgentError::System`] of what was tried.
pub(crate) fn system_error(operation: &'static str) -> impl FnOnce(io::Error) -> AgentError {
    move |source| AgentError::System { operation, source }
}
