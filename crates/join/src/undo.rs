// SPDX-License-Identifier: Apache-2.0
//! Undoing a join: what its record says, and nothing else.
//!
//! The controller first, as long as the agent's token is there; then the service, the files, the kernel responder, the state. What cannot be undone now stays in the
//! record, so that it can be undone later.

use std::path::{Path, PathBuf};

use onlooker_agent_lib::config::{self, Config, DEFAULT_PATH};
use onlooker_agent_lib::identity::StateDir;
use onlooker_agent_lib::kernel;
use onlooker_local::listen::AGENT;

use crate::client::Client;
use crate::record::{self, Joined, Record};
use crate::report::Report;
use crate::url::Url;
use crate::{JoinError, config_at, controller, files, ready, service};

/// What the agent and its token command keep in the state directory.
const STATE: [&str; 4] = ["identity.pem", "token-secret", "keys", "machine-id"];

struct Undo<'a> {
    dry_run: bool,
    report: &'a mut Report,
    record: Record,
    /// agent.toml.
    path: PathBuf,
    state: PathBuf,
    config: Config,
    /// What could not be undone.
    left: Vec<String>,
}

/// Undoes.
///
/// # Errors
/// [`JoinError`]; [`JoinError::NotUndone`] where something is left, with what to do.
pub fn undo(dry_run: bool, config: Option<&Path>, report: &mut Report) -> Result<(), JoinError> {
    let path = std::path::absolute(config.unwrap_or(Path::new(DEFAULT_PATH)))
        .map_err(|error| JoinError::Usage(format!("--config: {error}")))?;
    let (_, config) = config_at(&path)?;
    let state = config.agent.state_dir.clone();
    let Some(record) = Record::load(&path)? else {
        report.kept("undo", format!("nothing to undo: {} is not there", Record::path(&path).display()));
        return Ok(());
    };
    let mut undo = Undo { dry_run, report, record, path, state, config, left: Vec::new() };
    undo.controllers()?;
    if undo.service()? {
        undo.files()?;
        undo.kernel();
    }
    if undo.left.is_empty() {
        return undo.state();
    }
    if !dry_run {
        undo.record.save(&undo.path)?;
    }
    Err(JoinError::NotUndone(undo.left.join("; ")))
}

impl Undo<'_> {
    /// Has the controllers forget this host.
    fn controllers(&mut self) -> Result<(), JoinError> {
        for joined in self.record.joined.clone() {
            let Joined { url, ca, name } = &joined;
            if self.dry_run {
                self.report.act("controller", format!("remove {name} from {url}"), Vec::new());
                continue;
            }
            let token = StateDir::open(&self.state)?.token(self.config.bootstrap.tls)?;
            let parsed = Url::parse(url).map_err(|what| JoinError::Record { path: Record::path(&self.path), what })?;
            let removed =
                Client::new(&parsed, ca.as_deref()).and_then(|client| controller::delete(&client, name, &token));
            match removed {
                Ok(true) => self.report.act("controller", format!("remove {name} from {url}"), Vec::new()),
                Ok(false) => self.report.kept("controller", format!("{url} does not know {name}")),
                Err(error) => {
                    self.left.push(format!("{name} is still watched by {url}: {error}; run this again, or have it removed there (DELETE /api/onlooker/v1/targets/{name}), if it is this host still"));
                    continue;
                }
            }
            self.record.joined.retain(|known| *known != joined);
        }
        Ok(())
    }

    /// Stops what was started. Returns whether the rest may go on.
    fn service(&mut self) -> Result<bool, JoinError> {
        if let Some(before) = self.record.service.filter(|_| service::is_systemd()) {
            let mut commands = Vec::new();
            if !before.active {
                commands.push(["stop", service::UNIT]);
            }
            if !before.enabled {
                commands.push(["disable", service::UNIT]);
            }
            for command in commands {
                if !self.dry_run {
                    service::does(&command)?;
                }
                self.report.act("service", format!("run systemctl {}", command.join(" ")), Vec::new());
            }
            // Done: not to be tried again when what follows fails, for then there may be no unit any more.
            self.record.service = before.active.then_some(record::Service { enabled: true, active: true });
            if !self.dry_run {
                self.record.save(&self.path)?;
            }
            return Ok(true);
        }
        let Some(pid) = ready::serving(&self.config.agent.socket) else { return Ok(true) };
        // One that ran before and for which nothing was written goes on.
        if self.record.files.is_empty() && self.record.kernel.is_none() {
            return Ok(true);
        }
        if self.dry_run {
            self.report.note("agent", format!("process {pid} is an agent that must be stopped first"), Vec::new());
            return Ok(true);
        }
        self.left.push(format!(
            "an agent runs here, process {pid}, which this did not start: stop it, then run this again for its files"
        ));
        Ok(false)
    }

    /// Removes or restores what was written, where nobody has changed it since.
    fn files(&mut self) -> Result<(), JoinError> {
        let mut reload = false;
        for written in std::mem::take(&mut self.record.files).into_iter().rev() {
            let (path, shown) = (&written.path, written.path.display());
            let now = files::read(path)?;
            let step = if path.starts_with("/etc/systemd") { "unit" } else { "configuration" };
            if now.as_deref() == Some(written.text.as_str()) {
                reload |= step == "unit";
                match &written.before {
                    None => self.report.act(step, format!("remove {shown}"), Vec::new()),
                    Some(_) => self.report.act(step, format!("restore {shown}"), Vec::new()),
                }
                if !self.dry_run {
                    match &written.before {
                        None => files::remove(path)?,
                        Some(before) => files::write(path, before, 0o644)?,
                    }
                }
            } else if now == written.before {
                self.report.kept(step, format!("{shown} is as it was before"));
            } else {
                self.report.note(step, format!("{shown} was changed since: left as it is"), Vec::new());
                continue;
            }
            if let (false, Some(before)) = (self.dry_run, &written.before) {
                files::remove_kept(path, before)?;
            }
        }
        if reload && !self.dry_run {
            service::does(&["daemon-reload"])?;
        }
        if self.record.service.is_some_and(|before| before.active) && service::is_systemd() {
            if !self.dry_run {
                service::does(&["restart", service::UNIT])?;
            }
            self.report.act("service", format!("run systemctl restart {}", service::UNIT), Vec::new());
        }
        self.record.service = None;
        Ok(())
    }

    /// The kernel responder would answer until its lease ends.
    fn kernel(&mut self) {
        if !self.dry_run && ready::serving(&self.config.agent.socket).is_none() {
            // A killed agent's; nothing where it ended as it should.
            let _ = AGENT.purge(&self.config.agent.socket);
        }
        let Some(record::Kernel { bpffs, name }) = self.record.kernel.clone() else { return };
        let settings = config::Kernel { bpffs, name, ..config::Kernel::default() };
        if self.dry_run {
            if kernel::load::is_pinned(&settings) {
                self.report.act("kernel", "remove the kernel responder", Vec::new());
            }
            return;
        }
        match kernel::load::purge(&settings) {
            Ok(done) if done.is_empty() => self.report.kept("kernel", "there is no kernel responder"),
            Ok(mut done) => {
                // A line a pin is for `purge`.
                done.retain(|line| !line.starts_with("removed pin "));
                self.report.act("kernel", "remove the kernel responder", done);
            }
            Err(error) => {
                self.left.push(format!("the kernel responder is not removed: {error}; then run this again"));
                return;
            }
        }
        self.record.kernel = None;
    }

    /// The record itself, and the directories that were made for it and for files.
    fn state(mut self) -> Result<(), JoinError> {
        let made = self.record.directories.contains(&self.state);
        let names = if made { &STATE[..] } else { &[] };
        // The record last: until then this can be run again.
        let all = names.iter().map(|name| self.state.join(name)).chain([Record::path(&self.path)]);
        let there: Vec<PathBuf> = all.filter(|path| path.exists()).collect();
        let shown: Vec<String> = there.iter().map(|path| path.display().to_string()).collect();
        self.report.act("state", format!("remove {}", shown.join(", ")), Vec::new());
        if made {
            self.report.note("state", "tokens of this host that were given to others are void", Vec::new());
        }
        if self.dry_run {
            return Ok(());
        }
        for path in &there {
            files::remove(path)?;
        }
        for directory in std::mem::take(&mut self.record.directories).iter().rev() {
            if !files::remove_directory(directory)? {
                self.report.note("state", format!("{} is not empty: left as it is", directory.display()), Vec::new());
            }
        }
        Ok(())
    }
}
