// SPDX-License-Identifier: Apache-2.0
//! agent.toml: what the operator decides, with defaults for all of it.
//!
//! Unknown keys are refused everywhere and every quantity carries its unit, so that a typing error cannot silently become a default.
//! The shipped `packaging/agent.toml` spells every default out; a test holds the two together.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use onlooker_local::registration::DEFAULT_SOCKET;
use onlooker_metrics::groups::Group;
use onlooker_region::limits::MAX_REGION_BLOCKS;
use serde::{Deserialize, Serialize};

use self::acquisition::PUBLISHED;
use crate::prefix::Prefix;
use crate::units::{Size, Span};

pub mod acquisition;
mod group;
pub mod kernel;
pub use kernel::Kernel;
mod refused;
pub mod tables;
pub mod telemetry;
pub use tables::{Cgroups, Connections, Processes};

/// Where the configuration is looked for when no path is given.
pub const DEFAULT_PATH: &str = "/etc/onlooker/agent.toml";

/// Why a configuration is not used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "cannot read the configuration {path}: {source}; give another one with --config PATH, or leave it out for the defaults"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what agent.toml must be.
    #[error("{path}:{line}: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The line of the mistake, from 1.
        line: usize,
        /// What is wrong and what to write instead.
        message: String,
    },
    /// The values read well, but cannot be used.
    #[error("{path}: {key} = {value}: {message}")]
    Value {
        /// The file.
        path: PathBuf,
        /// Section and key.
        key: &'static str,
        /// What it was set to.
        value: String,
        /// What to set instead.
        message: String,
    },
}

/// All of agent.toml.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[agent]`
    pub agent: Agent,
    /// `[bootstrap]`
    pub bootstrap: Bootstrap,
    /// `[tcp]`
    pub tcp: Tcp,
    /// `[kernel]`
    pub kernel: Kernel,
    /// `[verbs]`
    pub verbs: Verbs,
    /// `[policy]`
    pub policy: Policy,
    /// `[quota]`
    pub quota: Quota,
    /// `[sampled]`
    pub sampled: Sampled,
    /// `[connections]`
    pub connections: Connections,
    /// `[cgroups]`
    pub cgroups: Cgroups,
    /// `[processes]`
    pub processes: Processes,
    /// `[limits]`
    pub limits: Limits,
}

/// The process itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Agent {
    /// Registration socket (registration.md).
    pub socket: PathBuf,
    /// Where certificate, key and token secret are kept; one agent per directory.
    pub state_dir: PathBuf,
    /// The host's name as readers are told; empty: the system's node name.
    pub host: String,
}

/// The bootstrap endpoint (bootstrap.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bootstrap {
    /// Address and port; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Sources that may ask.
    pub allow: Vec<Prefix>,
    /// TLS 1.3; without it the token crosses the network in the clear.
    pub tls: bool,
}

/// The TCP responder (wire.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tcp {
    /// Address and port; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Sources that may connect.
    pub allow: Vec<Prefix>,
    /// Connections at once; each has a thread.
    pub max_connections: u32,
    /// Of these one source address (IPv6: one /64) may have so many.
    pub max_connections_per_source: u32,
    /// READs a second that one source address gets answered.
    pub max_reads_per_s: u32,
    /// A connection without a request for so long is closed.
    pub idle_timeout: Span,
}

/// An RDMA device that answers beside the kernel responder, out of the same memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Verbs {
    /// The address of this machine that is the device's GID; empty: none answers.
    pub address: String,
    /// Where the holder listens (docs/holder.md).
    pub holder: PathBuf,
    /// How often groups of kernel metrics are published that would be computed at the READ without a device, which runs no BPF.
    pub publish: Span,
}

/// Who may register.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// User names or numbers; both lists empty: everybody.
    pub allow_users: Vec<String>,
    /// Group names or numbers; members may register.
    pub allow_groups: Vec<String>,
    /// Whether programs may bring memory of their own.
    pub adopt: bool,
}

/// How much one user, and all together, may have (registration.md, Limits).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Regions of one user, orphans included.
    pub regions_per_user: u32,
    /// Size of a user's slab; adopted memory counts too.
    pub bytes_per_user: Size,
    /// Space of one user's schemas in the control region.
    pub schema_bytes_per_user: Size,
    /// Connections of one user.
    pub connections_per_user: u32,
    /// Regions of all users.
    pub regions: u32,
    /// Region memory of all users; the unit file's MemoryMax must leave room for it.
    pub bytes: Size,
}

/// Kernel metrics read from procfs while a reader is connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sampled {
    /// Which groups.
    #[serde(with = "group")]
    pub groups: Vec<Group>,
    /// Time between two samples; 0: each request takes one of its own.
    #[serde(deserialize_with = "span_or_read")]
    pub interval: Span,
}

/// A span, or `read`.
fn span_or_read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
    kernel::span_or(deserializer, "read")
}

/// Times of the life of a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// How long an orphan stays readable and can be resumed.
    pub grace: Span,
    /// How long a freed range, entry or schema is left alone: two read cycles of the slowest reader (control.md, Limits).
    pub reuse_delay: Span,
}

impl Default for Agent {
    fn default() -> Self {
        Self { socket: DEFAULT_SOCKET.into(), state_dir: "/var/lib/onlooker".into(), host: String::new() }
    }
}

fn prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().filter_map(|prefix| prefix.parse().ok()).collect()
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 7177)), allow: prefixes(&["0.0.0.0/0", "::/0"]), tls: true }
    }
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7178)),
            allow: prefixes(&["127.0.0.0/8", "::1/128"]),
            max_connections: 64,
            max_connections_per_source: 16,
            max_reads_per_s: 200_000,
            idle_timeout: Span::from_s(60),
        }
    }
}

impl Default for Verbs {
    fn default() -> Self {
        Self { address: String::new(), holder: "/run/onlooker-holder/holder.sock".into(), publish: Span::from_ms(100) }
    }
}

impl Verbs {
    fn check(&self, kernel: &Kernel) -> Result<(), (&'static str, String, &'static str)> {
        let refuse = |message| Err(("verbs.address", self.address.clone(), message));
        if self.address.is_empty() {
            return Ok(());
        }
        if self.address.parse::<std::net::IpAddr>().is_err() {
            return refuse("must be an address of this machine, such as 10.0.0.7, or empty");
        }
        if !kernel.is_on() {
            return refuse("needs the kernel responder's memory: name its devices in [kernel] devices");
        }
        if !self.holder.is_absolute() || self.holder.as_os_str().len() > 107 {
            let path = self.holder.display().to_string();
            return Err(("verbs.holder", path, "must be an absolute path of at most 107 bytes"));
        }
        if !PUBLISHED.contains(&self.publish) {
            return Err(("verbs.publish", self.publish.to_string(), "must be every 1ms to 1h"));
        }
        Ok(())
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { allow_users: Vec::new(), allow_groups: Vec::new(), adopt: true }
    }
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            regions_per_user: 256,
            bytes_per_user: Size::from_mib(16),
            schema_bytes_per_user: Size::from_mib(1),
            connections_per_user: 128,
            regions: 4096,
            bytes: Size::from_mib(256),
        }
    }
}

impl Default for Sampled {
    fn default() -> Self {
        Self { groups: Group::sampled().collect(), interval: Span::from_s(1) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { grace: Span::from_s(5), reuse_delay: Span::from_s(2) }
    }
}

impl Config {
    /// Reads and checks the file at `path`; without one, the default path if it exists, else the defaults.
    ///
    /// # Errors
    /// The file cannot be read, does not parse, has unknown keys or values that cannot be used.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let shown = path.unwrap_or(Path::new(DEFAULT_PATH));
        let text = match fs::read_to_string(shown) {
            Ok(text) => text,
            Err(source) if path.is_none() && source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(source) => return Err(ConfigError::Read { path: shown.into(), source }),
        };
        Self::parse(shown, &text)
    }

    /// Parses and checks the text of the file `path`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut config: Self =
            onlooker_settings::parse(text).map_err(|onlooker_settings::Mistake { line, message }| {
                ConfigError::Parse { path: path.into(), line, message }
            })?;
        config.check(path)?;
        if !config.verbs.address.is_empty() {
            config.kernel.publish(config.verbs.publish);
        }
        Ok(config)
    }

    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let refuse = |key: &'static str, value: &dyn ToString, message: &str| {
            Err(ConfigError::Value { path: path.into(), key, value: value.to_string(), message: message.into() })
        };
        let (quota, sampled) = (&self.quota, &self.sampled);
        let slab = quota.bytes_per_user.as_bytes();
        // An offset in a slab is handed out as a page number; 1 GiB a user is far beyond 256 regions' need.
        if slab == 0 || !slab.is_multiple_of(4096) || slab > 1 << 30 {
            return refuse("quota.bytes_per_user", &quota.bytes_per_user, "must be a multiple of 4KiB, at most 1GiB");
        }
        if quota.bytes.as_bytes() > 64 << 30 {
            return refuse("quota.bytes", &quota.bytes, "must be at most 64GiB");
        }
        if quota.regions == 0 || quota.regions > 7168 {
            return refuse(
                "quota.regions",
                &quota.regions,
                "must be 1 to 7168, so that entries are left for schemas and the agent itself",
            );
        }
        if quota.schema_bytes_per_user.as_bytes() > u64::from(MAX_REGION_BLOCKS) * 512 {
            return refuse(
                "quota.schema_bytes_per_user",
                &quota.schema_bytes_per_user,
                "must be at most half of a control region, 32MiB",
            );
        }
        if self.tcp.max_connections == 0 || self.tcp.max_connections > 1024 {
            return refuse("tcp.max_connections", &self.tcp.max_connections, "must be 1 to 1024");
        }
        if self.tcp.max_connections_per_source == 0 {
            return refuse(
                "tcp.max_connections_per_source",
                &self.tcp.max_connections_per_source,
                "must be 1 or more; to serve nobody, empty tcp.allow",
            );
        }
        if self.tcp.max_reads_per_s == 0 {
            return refuse(
                "tcp.max_reads_per_s",
                &self.tcp.max_reads_per_s,
                "must be 1 or more; to serve nobody, empty tcp.allow",
            );
        }
        if self.tcp.idle_timeout < Span::from_s(1) {
            return refuse("tcp.idle_timeout", &self.tcp.idle_timeout, "must be 1s or more");
        }
        let is_per_read = sampled.interval == Span::from_ns(0);
        if !is_per_read && (sampled.interval < Span::from_ms(10) || sampled.interval > Span::from_s(3600)) {
            return refuse(
                "sampled.interval",
                &sampled.interval,
                "must be 10ms to 1h, or \"read\"; sampling costs about 0.5 ms of CPU each time",
            );
        }
        if self.limits.grace > Span::from_s(3600) {
            return refuse("limits.grace", &self.limits.grace, "must be at most 1h");
        }
        if self.limits.reuse_delay > Span::from_s(3600) {
            return refuse("limits.reuse_delay", &self.limits.reuse_delay, "must be at most 1h");
        }
        // The agent, its token command and the programs have different working directories.
        for (key, path) in [("agent.socket", &self.agent.socket), ("agent.state_dir", &self.agent.state_dir)] {
            if !path.is_absolute() {
                return refuse(key, &path.display(), "must be an absolute path: begin it with /");
            }
        }
        if self.agent.socket.as_os_str().len() > 107 {
            return refuse(
                "agent.socket",
                &self.agent.socket.display(),
                "must be at most 107 bytes (sun_path in unix(7))",
            );
        }
        if let Err((key, value, message)) = self
            .kernel
            .check()
            .and_then(|()| self.kernel.telemetry.check(self.kernel.is_on(), &self.kernel.ports()))
            .and_then(|()| self.verbs.check(&self.kernel))
            .and_then(|()| self.connections.check())
            .and_then(|()| self.cgroups.check())
            .and_then(|()| self.processes.check())
        {
            return refuse(key, &value, message);
        }
        Ok(())
    }
}

/// What a program may need to leave its range after it has lost the agent (registration.md, End of a region), and a margin.
const LEAVE_TIME: Span = Span::from_s(3);

impl Config {
    /// What is allowed but probably not meant.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.limits.grace.as_ns().saturating_add(self.limits.reuse_delay.as_ns()) < LEAVE_TIME.as_ns() {
            warnings.push(format!(
                "[limits] grace + reuse_delay is below {LEAVE_TIME}: a program that has just lost its connection may still write into memory that is given to another one of its user"
            ));
        }
        if !self.bootstrap.tls {
            warnings.push(
                "[bootstrap] tls = false sends the join token in the clear; use it for demonstrations only".to_owned(),
            );
        }
        if !self.bootstrap.listen.ip().is_loopback() {
            let elsewhere = "[bootstrap] listen lets readers of other machines learn where to READ, but";
            if self.tcp.listen.ip().is_loopback() {
                warnings
                    .push(format!("{elsewhere} [tcp] listen = \"{}\" is loopback: none of them can", self.tcp.listen));
            } else if self.tcp.allow.iter().all(Prefix::is_loopback) {
                warnings.push(format!("{elsewhere} [tcp] allow has no address but loopback: all of them are closed"));
            }
        }
        warnings.extend(self.kernel.warnings());
        warnings.extend(self.kernel.telemetry.warnings());
        warnings
    }
}

#[cfg(test)]
mod tests;
