// SPDX-License-Identifier: Apache-2.0
//! `onlooker controller`: watches hosts until it is stopped.

use crate::output;
use crate::{End, Failure};
use onlooker_controller::config::{Config, DEFAULT_PATH};
use onlooker_controller::{rules, service};
use std::io::{self, Write as _};
use std::path::PathBuf;

/// Reads hosts at a steady pace, keeps what they say, serves dashboard, API and /metrics
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Configuration
    #[arg(long, value_name = "PATH", default_value = DEFAULT_PATH)]
    config: PathBuf,
    /// Check the configuration, tokens and rule files included, and say what it means
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<End, Failure> {
    let path = &arguments.config;
    let config = Config::load(path).map_err(service::ServiceError::from)?;
    if arguments.check {
        let targets = config.read_targets(path).map_err(service::ServiceError::from)?;
        let groups = rules::read(&config.rules).map_err(service::ServiceError::from)?;
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "configuration is fine\ndashboard http://{}/\nstore {}",
            config.http.listen,
            config.store.dir.display()
        )?;
        for target in &targets {
            writeln!(out, "host {} at {}:{} every {:?}", target.name, target.host, target.port, target.interval)?;
        }
        for group in &groups {
            writeln!(out, "rules {} of {}: {}", group.name, group.file.display(), group.rules.len())?;
        }
        return Ok(End::Done);
    }
    service::run(path, &config, output::note, |_| {})?;
    Ok(End::Done)
}
