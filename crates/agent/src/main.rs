// SPDX-License-Identifier: Apache-2.0
//! The agent's command line. Exit codes: 0 done, 1 failed while running, 2 wrong usage or configuration.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use onlooker_agent::agent::{self, AgentError};
use onlooker_agent::config::{Config, ConfigError};
use onlooker_agent::identity::{IdentityError, StateDir};
use onlooker_agent::listen::{self, ListenError};
use onlooker_agent::prefix::Prefix;
use onlooker_agent::system;

/// Lets readers observe this host's memory: registers regions, keeps their directory, then sleeps.
#[derive(Debug, Parser)]
#[command(name = "onlooker-agent", version)]
struct Arguments {
    /// Configuration [default: /etc/onlooker/agent.toml if it exists, else built-in defaults]
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Clone, Subcommand)]
enum Command {
    /// Run in the foreground (the default)
    Run,
    /// Print the join token that a reader needs
    Token {
        /// Make a new one; the old one is refused from now on
        #[arg(long)]
        renew: bool,
    },
    /// Check the configuration and say what it means
    CheckConfig,
    /// Remove what a killed agent left behind
    Purge,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match act(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            system::log(&failure.to_string());
            match failure {
                Failure::Config(_) | Failure::Agent(AgentError::Config(_)) => ExitCode::from(2),
                _ => ExitCode::from(1),
            }
        }
    }
}

fn act(arguments: &Arguments) -> Result<(), Failure> {
    let config = Config::load(arguments.config.as_deref())?;
    match arguments.command.clone().unwrap_or(Command::Run) {
        Command::Run => Ok(agent::run(&config)?),
        Command::Token { renew } => {
            let state = StateDir::open(&config.agent.state_dir)?;
            if renew {
                state.renew_secret()?;
            }
            say(&state.token(config.bootstrap.tls)?)
        }
        Command::CheckConfig => {
            agent::resolve_policy(&config)?;
            for warning in config.warnings() {
                system::log(&format!("warning: {warning}"));
            }
            say(&format!(
                "configuration is fine\nregistration {}\nbootstrap {} ({}) for {}\nREADs over TCP {} for {}",
                config.agent.socket.display(),
                config.bootstrap.listen,
                if config.bootstrap.tls { "TLS" } else { "plain: the token crosses the network in the clear" },
                sources(&config.bootstrap.allow),
                config.tcp.listen,
                sources(&config.tcp.allow),
            ))
        }
        Command::Purge => {
            let socket = &config.agent.socket;
            if listen::purge(socket)? {
                say(&format!("removed the stale socket {}", socket.display()))
            } else {
                say(&format!("nothing to remove: no socket at {}", socket.display()))
            }
        }
    }
}

fn sources(allow: &[Prefix]) -> String {
    let allow: Vec<String> = allow.iter().map(ToString::to_string).collect();
    if allow.is_empty() { "nobody".to_owned() } else { allow.join(", ") }
}

fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout().lock(), "{text}")?;
    Ok(())
}
