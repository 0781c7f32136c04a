// SPDX-License-Identifier: Apache-2.0
//! `onlooker-agent join URL TOKEN`: this host becomes a watched one, and `--undo` takes it back.
//!
//! [`steps`] changes nothing here before the controller has answered and taken the token. Every step finds out by itself
//! whether it was done already: after an interruption anywhere, run the command again. The [`record`] says what was
//! done; it is written before each change, and [`undo`] reads nothing else. Decisions are functions of texts
//! ([`settings`], [`edit`], [`diff`], [`firewall`], [`service`]'s unit); the rim is [`way`], [`files`], [`ready`],
//! [`client`].
//!
//! Linked into the agent's program (`crates/onlooker-agent`), which runs it in a process of its own that ends: an agent
//! that serves touches nothing of it, so that it is not resident there.
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};

use onlooker_agent_lib::config::{Config, ConfigError};
use onlooker_agent_lib::identity::IdentityError;

pub mod advice;
pub mod arguments;
pub mod client;
pub mod controller;
pub mod diff;
pub mod edit;
pub mod files;
pub mod firewall;
pub mod ready;
pub mod record;
pub mod report;
pub mod service;
pub mod settings;
pub mod steps;
pub mod undo;
pub mod way;

pub use arguments::Options;
pub use onlooker_client::url;
use report::Report;

/// Why a host is not joined, or not all of it undone.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// An argument, or something an argument names.
    #[error("{0}")]
    Usage(String),
    /// agent.toml.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file is there and is not ours to change.
    #[error(
        "{path} is there and does not suit a host that joins; make these changes and run this again, or have them made with --force, which keeps the old file as {path}.before-join:\n{difference}"
    )]
    Unsuited {
        /// The file.
        path: PathBuf,
        /// What would have to change.
        difference: String,
    },
    /// Files of the system are root's.
    #[error("joining changes files of the system: run this as root, or with --dry-run to see what it would do")]
    NotRoot,
    /// No way to the controller, or what is there does not speak as one.
    #[error("cannot ask the controller at {url}: {what}")]
    Unreachable {
        /// Where it should be.
        url: String,
        /// What happened and what to do.
        what: String,
    },
    /// The controller's answer is no.
    #[error("the controller refuses ({status}): {what}; {advice}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Its words.
        what: String,
        /// What to do.
        advice: &'static str,
    },
    /// The kernel responder was asked for.
    #[error("no kernel responder on {device}: {what}; leave --device out to be read over TCP")]
    Kernel {
        /// On which device.
        device: String,
        /// Why not.
        what: String,
    },
    /// Certificate and token of the agent.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// join.json.
    #[error("{path} is damaged: {what}; undo by hand what is left of the join (docs/agent.md, Join), then remove it")]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A file of the system.
    #[error("cannot {operation} {path}: {source}; put that right and run this again")]
    File {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No agent serves.
    #[error("no agent is ready here: {0}")]
    NoAgent(String),
    /// systemctl.
    #[error("`{command}` failed: {what}; `journalctl -u onlooker-agent` says more; then run this again")]
    Service {
        /// What was run.
        command: String,
        /// What it said.
        what: String,
    },
    /// The controller could not read this host.
    #[error(
        "the controller cannot read this host: {what}\n{advice}\nThen run the same command again; what is done is kept. `onlooker-agent join --undo` takes it back."
    )]
    Unread {
        /// Its words.
        what: String,
        /// What is probably in the way.
        advice: String,
    },
    /// Something is left.
    #[error("not all is undone: {0}")]
    NotUndone(String),
    /// Standard output.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

impl JoinError {
    /// Whether the arguments or a configuration are to be changed, and not the world.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::Config(_) | Self::Unsuited { .. })
    }
}

/// Does what the arguments say.
///
/// # Errors
/// [`JoinError`]; what was done until then is in the record.
pub fn run(options: &Options, config: Option<&Path>) -> Result<(), JoinError> {
    let mut report = Report::new(options.json, options.dry_run);
    let result = if !options.dry_run && !rustix::process::geteuid().is_root() {
        Err(JoinError::NotRoot)
    } else if options.undo {
        undo::undo(options.dry_run, config, &mut report)
    } else {
        steps::join(options, config, &mut report)
    };
    report.end(result)
}

/// The configuration at a path, without one the defaults: a host that joins for the first time has none, nor has one that is undone.
fn config_at(path: &Path) -> Result<(Option<String>, Config), JoinError> {
    let text = files::read(path)?;
    let config = text.as_deref().map_or_else(|| Ok(Config::default()), |text| Config::parse(path, text))?;
    Ok((text, config))
}
