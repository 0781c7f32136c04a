// SPDX-License-Identifier: Apache-2.0
//! Joining, step by step.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onlooker_agent_lib::config::{Config, DEFAULT_PATH};
use onlooker_agent_lib::identity::StateDir;
use onlooker_agent_lib::prefix::Prefix;
use onlooker_agent_lib::{host, kernel, system};
use onlooker_bootstrap::{Fingerprint, Secret, Token};
use serde_json::Value;

use crate::arguments::{self, Options, TOKEN_VARIABLE};
use crate::client::Client;
use crate::controller::{Accepted, Registration, Unread, Verdict};
use crate::diff::diff;
use crate::ready::{self, Found};
use crate::record::{self, Joined, Record, Service};
use crate::report::Report;
use crate::settings::{self, Planned, Wanted};
use crate::url::Url;
use crate::way::{self, Way};
use crate::{JoinError, advice, config_at, files, firewall, service};

/// How long an agent may take to be ready, and whoever starts it where systemd does not.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long computed metrics are waited for; a second is usual.
const METRICS_TIMEOUT: Duration = Duration::from_secs(5);
/// Files that all may read: the service has a user of its own.
const PUBLIC: u32 = 0o644;

/// What a join works with.
struct Join<'a> {
    options: &'a Options,
    report: &'a mut Report,
    /// agent.toml.
    path: PathBuf,
    url: Url,
    bearer: String,
    client: Client,
    record: Record,
    /// The agent's state directory.
    state: PathBuf,
}

/// Joins.
///
/// # Errors
/// [`JoinError`].
pub fn join(options: &Options, config: Option<&Path>, report: &mut Report) -> Result<(), JoinError> {
    let url = Url::parse(options.url.as_deref().unwrap_or_default()).map_err(JoinError::Usage)?;
    let bearer = arguments::token(options.token.as_deref(), std::env::var(TOKEN_VARIABLE).ok())?;
    let client = Client::new(&url, options.ca.as_deref())?;
    let path = std::path::absolute(config.unwrap_or(Path::new(DEFAULT_PATH)))
        .map_err(|error| JoinError::Usage(format!("--config: {error}")))?;
    let (present, before) = config_at(&path)?;
    let way = Way::find(&url)?;
    let controller: Vec<String> = way.controller.iter().map(ToString::to_string).collect();
    report.done("way", format!("from {} to the controller at {}", way.local, controller.join(", ")), Vec::new());
    if !url.tls && !way.local.is_loopback() {
        report.note(
            "way",
            format!(
                "{url} is not encrypted: the controller's token, and that of this host, cross the network in the clear"
            ),
            Vec::new(),
        );
    }
    let wanted = wanted(options, &way, &before, report)?;
    let planned = match &present {
        None => settings::fresh(&path, &wanted)?,
        Some(text) => settings::adapted(&path, text, &wanted)?,
    };
    let state = planned.config.agent.state_dir.clone();
    let mut record = Record::load(&path)?.unwrap_or_default();
    // The agent makes it, or systemd for it.
    record.note_directories(files::missing(&state));
    let address = options
        .address
        .clone()
        .unwrap_or_else(|| SocketAddr::new(wanted.listen, planned.config.bootstrap.listen.port()).to_string());
    let mut join = Join { options, report, path, url, bearer, client, record, state };
    join.ask_first(&address, &planned.config)?;
    let changed = join.configure(&planned, present.as_deref())?;
    if service::is_systemd() {
        join.serve(&planned.config, changed)?;
    }
    join.await_agent(&planned.config, changed)?;
    if let Some(rules) = firewall::rules(&planned.config, &wanted.allow) {
        join.report.firewall(rules);
    }
    join.register(&address, &planned.config)
}

/// What the host must offer, by the arguments and by what is found.
fn wanted(options: &Options, way: &Way, before: &Config, report: &mut Report) -> Result<Wanted, JoinError> {
    let (listen, bootstrap_port) = match &options.address {
        None => (way.local, None),
        Some(text) => {
            let wrong =
                || JoinError::Usage(format!("--address {text}: write it as ADDRESS:PORT, an IPv6 address in brackets"));
            let (host, port) = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).ok_or_else(wrong)?;
            let port: u16 = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
            match host.trim_matches(['[', ']']).parse::<IpAddr>() {
                Ok(own) if way::is_own(own) => (own, Some(port)),
                // Somebody forwards it to us; to which port, only the configuration knows.
                _ => (way.local, None),
            }
        }
    };
    let device = if options.no_kernel {
        Err("--no-kernel".to_owned())
    } else {
        way::device(options.device.as_deref(), listen, &before.kernel)?
    };
    match &device {
        Ok(device) => report.done("kernel", format!("the kernel responder can answer on {device}"), Vec::new()),
        Err(why) => report.note(
            "kernel",
            format!("no kernel responder, READs are answered over TCP by the agent: {why}"),
            Vec::new(),
        ),
    }
    let allow = way.controller.iter().map(|address| Prefix::host(*address)).chain(options.allow.iter().copied());
    Ok(Wanted {
        listen,
        bootstrap_port,
        allow: allow.collect(),
        device: device.ok(),
        device_asked: options.device.is_some(),
    })
}

impl Join<'_> {
    fn registration(&self, address: &str, token: String, dry_run: bool) -> Registration {
        let node = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        Registration {
            name: self.options.name.clone().unwrap_or_else(node),
            address: address.to_owned(),
            token,
            labels: self.options.label.iter().cloned().collect::<BTreeMap<_, _>>(),
            interval: self.options.interval.map(|interval| interval.to_string()),
            priority: self.options.priority,
            replace: self.options.replace,
            dry_run,
        }
    }

    fn look(&self, config: &Config) -> Found {
        ready::look(&config.agent.socket, config.bootstrap.listen, &self.path)
    }

    /// The agent's token, if it has one by now.
    fn token(&self, config: &Config) -> Option<String> {
        let there = ["identity.pem", "token-secret"].iter().all(|name| self.state.join(name).exists());
        there.then(|| StateDir::open(&self.state).and_then(|state| state.token(config.bootstrap.tls)).ok()).flatten()
    }

    /// Before anything is changed: the controller answers, takes the token, and has nothing against the name.
    fn ask_first(&mut self, address: &str, config: &Config) -> Result<(), JoinError> {
        let token = match self.token(config) {
            Some(token) => token,
            // Nobody's: there is no agent yet that could be read with one.
            None => {
                let random =
                    || host::random::<32>().map_err(|error| JoinError::Usage(format!("no randomness: {error}")));
                let fingerprint =
                    if config.bootstrap.tls { Some(Fingerprint::of_certificate(&random()?)) } else { None };
                Token { fingerprint, secret: Secret::new(random()?) }.text()
            }
        };
        let registration = self.registration(address, token, true);
        let runs = matches!(self.look(config), Found::Ready { .. });
        match registration.post(&self.client, &self.bearer)? {
            Verdict::Accepted(accepted, answer) if self.options.dry_run => {
                self.report.done(
                    "controller",
                    format!("{} takes the token, and can read this host: {}", self.url, summary(&accepted)),
                    accepted.notes.clone(),
                );
                self.report.registered(answer);
            }
            Verdict::Unread(Unread { what, code }) if self.options.dry_run && runs => {
                self.report.done("controller", format!("{} takes the token", self.url), Vec::new());
                let why = advice::unread(&code, address, config, config.bootstrap.listen.ip().is_loopback());
                self.report.note("controller", format!("as things are, it cannot read this host: {what}"), vec![why]);
            }
            _ => self.report.done("controller", format!("{} answers and takes the token", self.url), Vec::new()),
        }
        Ok(())
    }

    /// agent.toml. Returns whether it was, or would be, changed.
    fn configure(&mut self, planned: &Planned, present: Option<&str>) -> Result<bool, JoinError> {
        let settings = &planned.config.kernel;
        if settings.is_on() && self.record.kernel.is_none() && !kernel::load::is_pinned(settings) {
            self.record.kernel = Some(record::Kernel { bpffs: settings.bpffs.clone(), name: settings.name.clone() });
        }
        let path = self.path.clone();
        let changed = self.put("configuration", &path, &planned.text, present)?;
        for note in planned.notes.iter().cloned().chain(planned.config.warnings()) {
            self.report.note("configuration", note, Vec::new());
        }
        Ok(changed)
    }

    /// Puts a file into place, unless it is somebody else's. Returns whether it was, or would be, changed.
    fn put(&mut self, step: &'static str, path: &Path, text: &str, present: Option<&str>) -> Result<bool, JoinError> {
        let shown = path.display();
        let ours = self.record.wrote(path).is_some_and(|written| present == Some(written.text.as_str()));
        let difference = diff(present.unwrap_or_default(), text);
        match present {
            Some(present) if present == text => {
                self.report.kept(step, format!("{shown} is as it must be"));
                return Ok(false);
            }
            Some(_) if !ours && !self.options.force => {
                return Err(JoinError::Unsuited { path: path.into(), difference: difference.join("\n") });
            }
            Some(_) => self.report.act(step, format!("change {shown}"), difference),
            None => {
                let details = if self.options.dry_run { difference } else { Vec::new() };
                self.report.act(step, format!("write {shown}"), details);
            }
        }
        files::is_replaceable(path)?;
        if self.options.dry_run {
            return Ok(true);
        }
        let directories = path.parent().map(files::missing).unwrap_or_default();
        self.record.note_directories(directories.iter().cloned());
        self.record.note_file(path, text, present);
        self.record.save(&self.path)?;
        directories.iter().try_for_each(|directory| files::make_directory(directory, 0o755))?;
        if let Some(before) = self.record.wrote(path).and_then(|written| written.before.as_deref()) {
            files::keep(path, before, files::mode(path).unwrap_or(PUBLIC))?;
        }
        files::write(path, text, PUBLIC)?;
        Ok(true)
    }

    /// The unit: its files, and that it runs with the configuration as it is now, which was, or would be, `changed`.
    fn serve(&mut self, config: &Config, changed: bool) -> Result<(), JoinError> {
        let program =
            std::env::current_exe().map_err(|error| JoinError::Usage(format!("where is this program? {error}")))?;
        let mut reload = false;
        for file in service::files(&program, &self.path, config.kernel.is_on())? {
            let present = files::read(&file.path)?;
            let ours = self.record.wrote(&file.path).is_some_and(|written| present.as_deref() == Some(&written.text));
            match (&present, &file.elsewhere) {
                (None, Some(elsewhere)) => self.report.kept("unit", format!("{} is there", elsewhere.display())),
                (Some(text), _) if !ours && *text != file.text && !self.options.force => {
                    let text = format!(
                        "{} is there and is used as it is; it differs from the one of this version (--force replaces it)",
                        file.path.display()
                    );
                    self.report.note("unit", text, Vec::new());
                }
                _ => reload |= self.put("unit", &file.path, &file.text, present.as_deref())?,
            }
        }
        let enabled = service::asks(&["is-enabled", "--quiet", service::UNIT])?;
        let active = service::asks(&["is-active", "--quiet", service::UNIT])?;
        let stale = changed || reload || !matches!(self.look(config), Found::Ready { .. });
        let mut commands: Vec<Vec<&str>> = Vec::new();
        // Also where an earlier run was interrupted before it.
        if reload || (active && stale) {
            commands.push(vec!["daemon-reload"]);
        }
        if !enabled || !active {
            commands.push(vec!["enable", "--now", service::UNIT]);
        }
        if active && stale {
            commands.push(vec!["restart", service::UNIT]);
        }
        if commands.is_empty() {
            self.report.kept("service", format!("{} runs and is enabled", service::UNIT));
            return Ok(());
        }
        if self.record.service.is_none() && !self.options.dry_run {
            self.record.service = Some(Service { enabled, active });
            self.record.save(&self.path)?;
        }
        for command in commands {
            if !self.options.dry_run {
                service::does(&command)?;
            }
            self.report.act("service", format!("run systemctl {}", command.join(" ")), Vec::new());
        }
        Ok(())
    }

    /// Waits for an agent with the configuration as it is now, which was, or would be, `changed`.
    fn await_agent(&mut self, config: &Config, changed: bool) -> Result<(), JoinError> {
        let (socket, bootstrap) = (&config.agent.socket, config.bootstrap.listen);
        let (how, seconds) = (self.how_to_start(), READY_TIMEOUT.as_secs());
        let found = self.look(config);
        if self.options.dry_run {
            if !service::is_systemd() && (changed || !matches!(found, Found::Ready { .. })) {
                let text = format!("wait for the agent; systemd does not run here: start it yourself: {how}");
                self.report.act("agent", text, Vec::new());
            }
            return Ok(());
        }
        match &found {
            Found::Ready { .. } => {}
            _ if service::is_systemd() => {}
            Found::Nobody => {
                system::log(&format!(
                    "systemd does not run here; waiting {seconds} s for you to start the agent: {how}"
                ));
            }
            Found::Other { pid, what } => {
                system::log(&format!("process {pid}: {what}; waiting {seconds} s for you to start it anew: {how}"));
            }
        }
        let ready = ready::wait(socket, bootstrap, &self.path, READY_TIMEOUT);
        let pid = ready.map_err(|found| {
            JoinError::NoAgent(match found {
                Found::Other { pid, what } => format!("process {pid}: {what}; restart it ({how}), then run this again"),
                _ => format!(
                    "nobody answers at {} after {seconds} s; start it ({how}), then run this again",
                    socket.display()
                ),
            })
        })?;
        self.report.done("agent", format!("process {pid} serves {bootstrap}"), Vec::new());
        Ok(())
    }

    fn how_to_start(&self) -> String {
        if service::is_systemd() {
            return format!("systemctl restart {}", service::UNIT);
        }
        let program = std::env::current_exe().unwrap_or_else(|_| "onlooker-agent".into());
        format!("{} run --config {}", program.display(), self.path.display())
    }

    /// Tells the controller; its test read is the proof.
    fn register(&mut self, address: &str, config: &Config) -> Result<(), JoinError> {
        let name = self.registration(address, String::new(), true).name;
        if self.options.dry_run {
            self.report.act("join", format!("register as {name} at {address}"), Vec::new());
            return Ok(());
        }
        let token = StateDir::open(&self.state)?.token(config.bootstrap.tls)?;
        let ca = self.options.ca.as_deref().and_then(|ca| std::path::absolute(ca).ok());
        let before = self.record.joined.clone();
        self.record.note_controller(Joined { url: self.url.to_string(), ca, name: name.clone() });
        self.record.save(&self.path)?;
        let verdict = self.registration(address, token, false).post(&self.client, &self.bearer);
        let is_kept_out = match &verdict {
            Ok(Verdict::Accepted(..)) => false,
            Ok(Verdict::Unread(_)) => true,
            Err(JoinError::Refused { status, .. }) => [400, 401, 403, 409, 413, 507].contains(status),
            Err(_) => false,
        };
        // Otherwise it may have kept the host all the same, a proxy between us.
        if is_kept_out {
            self.record.joined = before;
            self.record.save(&self.path)?;
        }
        match verdict? {
            Verdict::Accepted(accepted, answer) => {
                let (accepted, answer) = self.with_kernel_metrics(address, config, accepted, answer);
                self.report.done(
                    "join",
                    format!("the controller reads this host as {}: {}", accepted.name, summary(&accepted)),
                    accepted.notes.clone(),
                );
                if accepted.via == "tcp" && config.kernel.is_on() {
                    self.report.note("join", "the kernel responder is configured and was not used: the agent's log, or a filter for its UDP port on the way, has the reason", Vec::new());
                }
                self.report.registered(answer);
                Ok(())
            }
            Verdict::Unread(Unread { what, code }) => {
                let advice = advice::unread(&code, address, config, config.bootstrap.listen.ip().is_loopback());
                Err(JoinError::Unread { what, advice })
            }
        }
    }
}

impl Join<'_> {
    /// An agent that has just begun still compares the computed metrics with procfs; what it has to offer is told when that is done.
    fn with_kernel_metrics(
        &self,
        address: &str,
        config: &Config,
        accepted: Box<Accepted>,
        answer: Value,
    ) -> (Box<Accepted>, Value) {
        let (mut last, until) = ((accepted, answer), Instant::now() + METRICS_TIMEOUT);
        let Some(token) = self.token(config) else { return last };
        while last.0.via != "tcp" && last.0.regions <= 1 && !config.kernel.groups.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(500));
            match self.registration(address, token.clone(), true).post(&self.client, &self.bearer) {
                Ok(Verdict::Accepted(accepted, answer)) => last = (accepted, answer),
                _ => break,
            }
        }
        last
    }
}

fn summary(accepted: &Accepted) -> String {
    let Accepted { address, via, regions, series, bootstrap_ms, read_ms, .. } = accepted;
    let who = match via.as_str() {
        "kernel" => " (no process wakes up here)",
        "verbs" => " (no processor of this host does anything)",
        _ => "",
    };
    format!(
        "{address} via {via}{who}, {regions} regions, {series} series, bootstrap {bootstrap_ms:.1} ms, first read {read_ms:.1} ms"
    )
}
