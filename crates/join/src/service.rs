// SPDX-License-Identifier: Apache-2.0
//! The agent as a service of systemd: the unit file, the kernel responder's drop-in, and systemctl.
//!
//! A unit that is there already, a package's or the operator's, is used as it is.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use onlooker_agent_lib::config::DEFAULT_PATH;

use crate::JoinError;

/// The unit's name.
pub const UNIT: &str = "onlooker-agent.service";
/// Where an operator's units are.
const SYSTEM_UNITS: &str = "/etc/systemd/system";
/// Where others' units may be (systemd.unit(5)).
const OTHER_UNITS: [&str; 4] =
    ["/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
const SHIPPED_UNIT: &str = include_str!("../../../packaging/onlooker-agent.service");
const SHIPPED_DROP_IN: &str = include_str!("../../../packaging/onlooker-agent.service.d/kernel.conf");
const SHIPPED_PROGRAM: &str = "/usr/bin/onlooker-agent";
/// What the unit hides from the service: ProtectHome= and PrivateTmp=.
const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];

/// Whether systemd is in charge here (sd_booted(3)).
#[must_use]
pub fn is_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// A file of the unit and what it shall hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitFile {
    /// Where it is written.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// Where there is one already that is no file of ours to write.
    pub elsewhere: Option<PathBuf>,
}

/// The unit, and the drop-in where the kernel responder is on.
///
/// # Errors
/// [`JoinError::Usage`]: the service could not see this program or its configuration.
pub fn files(program: &Path, config: &Path, kernel: bool) -> Result<Vec<UnitFile>, JoinError> {
    let elsewhere =
        |name: &str| OTHER_UNITS.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.exists());
    let drop_in_name = format!("{UNIT}.d/kernel.conf");
    let path = |name: &str| Path::new(SYSTEM_UNITS).join(name);
    let mut files = Vec::new();
    let unit = match elsewhere(UNIT) {
        // Its author knows where the program is.
        Some(found) => UnitFile { path: path(UNIT), text: SHIPPED_UNIT.to_owned(), elsewhere: Some(found) },
        None => UnitFile { path: path(UNIT), text: unit(program, config)?, elsewhere: None },
    };
    files.push(unit);
    if kernel {
        let text = SHIPPED_DROP_IN.to_owned();
        files.push(UnitFile { path: path(&drop_in_name), text, elsewhere: elsewhere(&drop_in_name) });
    }
    Ok(files)
}

/// The shipped unit for this program and this configuration.
fn unit(program: &Path, config: &Path) -> Result<String, JoinError> {
    for (what, path) in [("this program", program), ("the configuration", config)] {
        let text = path.to_string_lossy();
        // What systemd would take apart or expand (systemd.service(5), Command lines).
        if text.contains([' ', '\t', '\n', '"', '\'', '\\', '%', '$']) {
            return Err(JoinError::Usage(format!(
                "{what} is {text}, which does not go into a unit file: move it to a path without spaces and signs"
            )));
        }
        if HIDDEN.iter().any(|hidden| path.starts_with(hidden)) {
            let next = if path == program {
                format!("`install -m 755 {text} {SHIPPED_PROGRAM}`, then run that one")
            } else {
                format!("put it at {DEFAULT_PATH}")
            };
            return Err(JoinError::Usage(format!("{what} is {text}, where a service does not see it: {next}")));
        }
    }
    let command = format!("ExecStart={SHIPPED_PROGRAM} run");
    let mut new = format!("ExecStart={} run", program.display());
    if config != Path::new(DEFAULT_PATH) {
        new.push_str(&format!(" --config {}", config.display()));
    }
    Ok(SHIPPED_UNIT.replace(&command, &new))
}

/// Asks systemctl something whose answer is its exit code.
///
/// # Errors
/// [`JoinError::Service`]: it cannot be run.
pub fn asks(arguments: &[&str]) -> Result<bool, JoinError> {
    Ok(run(arguments)?.status.success())
}

/// Has systemctl do something.
///
/// # Errors
/// [`JoinError::Service`].
pub fn does(arguments: &[&str]) -> Result<(), JoinError> {
    let output = run(arguments)?;
    if output.status.success() {
        return Ok(());
    }
    let what = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(JoinError::Service { command: command_of(arguments), what })
}

fn run(arguments: &[&str]) -> Result<Output, JoinError> {
    let failed = |error: std::io::Error| JoinError::Service { command: command_of(arguments), what: error.to_string() };
    Command::new("systemctl").args(arguments).output().map_err(failed)
}

fn command_of(arguments: &[&str]) -> String {
    format!("systemctl {}", arguments.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_starts_this_program_with_this_configuration() {
        assert!(SHIPPED_UNIT.contains(&format!("\nExecStart={SHIPPED_PROGRAM} run\n")));
        assert_eq!(unit(Path::new(SHIPPED_PROGRAM), Path::new(DEFAULT_PATH)).unwrap(), SHIPPED_UNIT);
        let other = unit(Path::new("/opt/onlooker-agent"), Path::new("/srv/agent.toml")).unwrap();
        assert!(other.contains("\nExecStart=/opt/onlooker-agent run --config /srv/agent.toml\n"));
    }

    #[test]
    fn what_a_service_does_not_see_is_refused_with_what_to_do() {
        let error = unit(Path::new("/root/onlooker-agent"), Path::new(DEFAULT_PATH)).unwrap_err().to_string();
        assert!(error.contains("install -m 755 /root/onlooker-agent /usr/bin/onlooker-agent"), "{error}");
        let error = unit(Path::new(SHIPPED_PROGRAM), Path::new("/tmp/a.toml")).unwrap_err().to_string();
        assert!(error.contains("/etc/onlooker/agent.toml"), "{error}");
        assert!(unit(Path::new("/opt/a b"), Path::new(DEFAULT_PATH)).is_err());
    }
}
