// SPDX-License-Identifier: Apache-2.0
//! controller.toml: what the operator decides, with defaults for all but the targets.
//!
//! The shipped `packaging/controller.toml` spells every default out; a test holds the two together.

mod check;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onlooker_checks::Rules as CheckRules;
use onlooker_checks::config::Checks;
use onlooker_flow::{Phases, Sharing};
use onlooker_forward::config::Forward;
use onlooker_framestore::store::DECODED_BYTES;
use onlooker_reader::Limits;
use onlooker_settings::Mistake;
use onlooker_settings::units::{Size, Span};
use onlooker_targets::config::{Discovery, Entry, EntryError};
use onlooker_targets::{Joining, Target};
use serde::{Deserialize, Serialize};

use crate::engine::{self, Waiting};
use crate::{fleet, usage};

/// What part of the memory that the controller may have is for decoded heads.
const DECODED_SHARE: u64 = 32;

/// Where the configuration is looked for when no path is given.
pub const DEFAULT_PATH: &str = "/etc/onlooker/controller.toml";

/// Why a configuration is not used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read {what} {path}: {source}", path = path.display())]
    Read {
        /// What it is.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what controller.toml must be.
    #[error("{path}:{line}: {message}", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The line of the mistake, from 1.
        line: usize,
        /// What is wrong and what to write instead.
        message: String,
    },
    /// The values read well, but cannot be used.
    #[error("{path}: {key}: {message}", path = path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Section and key.
        key: String,
        /// What is wrong and what to write instead.
        message: String,
    },
    /// A host's entry, or its token.
    #[error("{path}: [[targets]]: {error}", path = path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: EntryError,
    },
}

/// All of controller.toml.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[http]`
    pub http: Http,
    /// `[read]`
    pub read: Read,
    /// `[store]`
    pub store: Store,
    /// `[joined]`
    pub joined: Joining,
    /// `[quota]`
    pub quota: Quota,
    /// `[rules]`
    pub rules: Rules,
    /// `[checks]`
    pub checks: Checks,
    /// `[[targets]]`
    pub targets: Vec<Entry>,
    /// `[[discovery]]`
    pub discovery: Vec<Discovery>,
    /// `[[forward]]`
    pub forward: Vec<Forward>,
}

/// The HTTP interface and dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// Address and port; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// File with the token that clients must show; empty: none.
    pub token_file: PathBuf,
    /// File with a token that may add hosts and do nothing else; empty: none.
    pub join_token_file: PathBuf,
    /// Certificate of TLS, with its chain; empty: no TLS.
    pub tls_certificate: PathBuf,
    /// Its private key.
    pub tls_key: PathBuf,
    /// Directory of saved boards; empty: none.
    pub boards: PathBuf,
    /// Names by which browsers reach us, besides addresses, localhost and this machine's own.
    pub names: Vec<String>,
    /// Connections at once.
    pub max_connections: usize,
    /// The same of one address.
    pub max_connections_per_source: usize,
    /// Live streams at once.
    pub max_streams: usize,
    /// The same of one address.
    pub max_streams_per_source: usize,
}

/// What a host may cost: the regions of its agent, and those of its programs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Series.
    pub series: u64,
    /// Fixed groups of regions, and rows of tables.
    pub tracks: u64,
    /// Memory of names, labels and values.
    pub memory: Size,
    /// Tracks that are new.
    pub new_tracks_per_hour: u64,
    /// Values that are decoded.
    pub values_per_s: u64,
    /// What is written of it to the log.
    pub log_bytes_per_s: Size,
    /// And at once, before that.
    pub log_burst: Size,
    /// One reading, of both together.
    pub reading: Size,
    /// Texts of schemas, of both together; parsed they take up to eight times as much.
    pub schemas: Size,
}

/// How hosts are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Read {
    /// Time between two readings of a host that says nothing else.
    pub interval: Span,
    /// Hosts in a reading at once, at most.
    pub window: usize,
    /// Bytes asked for and not answered, of all hosts.
    pub credit: Size,
    /// The same of one host.
    pub host_credit: Size,
    /// How hosts share it.
    pub flow_control: FlowControl,
    /// When hosts of one interval are read.
    pub phases: ReadPhases,
    /// By which kernel responders are read.
    pub sockets: Sockets,
    /// How the reading thread waits for answers.
    pub wait: Wait,
    /// What it may spend on polling for them, percent of a core.
    pub poll_percent: u8,
    /// How long a bootstrap may take, and a reading at least.
    pub timeout: Span,
    /// Threads that decode what was read; 0: one for each four processors.
    pub processing_threads: usize,
    /// Names of regions that are not read.
    pub skip: Vec<String>,
}

/// How hosts share what may be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowControl {
    /// One total that follows the network.
    Total,
    /// As published: a fixed total divided by the hosts in a reading, 4 KiB at least.
    Published,
}

/// What READs to kernel responders go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sockets {
    /// UDP sockets.
    Udp,
    /// AF_XDP sockets where they can be had, and UDP sockets elsewhere.
    AfXdp,
}

/// How the reading thread waits for answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// It sleeps.
    Sleep,
    /// It polls.
    Poll,
    /// It polls for hosts that have few READs.
    Hybrid,
}

/// When hosts of one interval are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadPhases {
    /// Evenly spread over it.
    Spread,
    /// All at once.
    Together,
}

/// Where rows are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// Directory of the log, on a disk.
    pub dir: PathBuf,
    /// File of the newest rows, on a tmpfs.
    pub hot_file: PathBuf,
    /// Its size. Taken as it is used.
    pub hot_bytes: Size,
    /// Size of all files; the oldest goes first.
    pub max_bytes: Size,
    /// How long rows are kept as they were read.
    pub keep_raw: Span,
    /// How long rollups of 1 s are.
    pub keep_1s: Span,
    /// Of 10 s.
    pub keep_10s: Span,
    /// Of 60 s.
    pub keep_60s: Span,
    /// How old rows are when they go into cold files; 0: they never do.
    pub cold_after: Span,
}

/// Which rules are evaluated, and who is told of alerts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Rule files; the last segment of a path may have one `*`.
    pub files: Vec<PathBuf>,
    /// Whether the set that comes with the controller is among them.
    pub shipped: bool,
    /// Time between two evaluations of a group that says nothing else.
    pub interval: Span,
    /// Where people reach this controller; empty: as it listens.
    pub external_url: String,
    /// Labels that all alerts get, unless they have one of that name.
    pub external_labels: BTreeMap<String, String>,
    /// URLs of the Alertmanagers: each is told everything.
    pub alertmanagers: Vec<String>,
    /// Certificate authority of their certificates; empty: the system's.
    pub alertmanager_ca_file: PathBuf,
    /// File with the token that they are shown; empty: none.
    pub alertmanager_token_file: PathBuf,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7180)),
            token_file: PathBuf::new(),
            join_token_file: PathBuf::new(),
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
            boards: "/var/lib/onlooker-controller/boards".into(),
            names: Vec::new(),
            max_connections: 1024,
            max_connections_per_source: 384,
            max_streams: 512,
            max_streams_per_source: 256,
        }
    }
}

impl Default for Quota {
    fn default() -> Self {
        let quota = fleet::Quota::default();
        Self {
            series: quota.series,
            tracks: quota.tracks,
            memory: Size::from_bytes(quota.memory_bytes),
            new_tracks_per_hour: quota.new_tracks_per_hour,
            values_per_s: quota.values_per_s,
            reading: Size::from_mib(16),
            schemas: Size::from_mib(2),
            log_bytes_per_s: Size::from_bytes(quota.log_bytes_per_s),
            log_burst: Size::from_bytes(quota.log_burst_bytes),
        }
    }
}

impl Default for Read {
    fn default() -> Self {
        Self {
            interval: Span::from_ms(100),
            window: 128,
            credit: Size::from_mib(4),
            host_credit: Size::from_bytes(256 << 10),
            flow_control: FlowControl::Total,
            phases: ReadPhases::Spread,
            sockets: Sockets::Udp,
            wait: Wait::Sleep,
            poll_percent: engine::Config::default().poll_percent,
            timeout: Span::from_s(2),
            processing_threads: 0,
            skip: engine::Config::default().skip.to_vec(),
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            dir: "/var/lib/onlooker-controller/store".into(),
            hot_file: "/run/onlooker-controller/hot".into(),
            hot_bytes: Size::from_mib(512),
            max_bytes: Size::from_mib(10 << 10),
            keep_raw: Span::from_s(7 * 86_400),
            keep_1s: Span::from_s(30 * 86_400),
            keep_10s: Span::from_s(90 * 86_400),
            keep_60s: Span::from_s(400 * 86_400),
            cold_after: Span::from_s(0),
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            shipped: true,
            interval: Span::from_s(60),
            external_url: String::new(),
            external_labels: BTreeMap::new(),
            alertmanagers: Vec::new(),
            alertmanager_ca_file: PathBuf::new(),
            alertmanager_token_file: PathBuf::new(),
        }
    }
}

fn read(what: &'static str, path: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(path).map_err(|source| ConfigError::Read { what, path: path.into(), source })
}

impl Config {
    /// Reads a file and checks it.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &read("the configuration", path)?)
    }

    /// Parses and checks the text of the file `path`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self = onlooker_settings::parse(text).map_err(|Mistake { line, message }| ConfigError::Parse {
            path: path.into(),
            line,
            message,
        })?;
        config.check().map_err(|(key, message)| ConfigError::Value { path: path.into(), key, message })?;
        Ok(config)
    }

    /// Threads that decode what was read.
    #[must_use]
    pub fn processing_threads(&self) -> usize {
        match self.read.processing_threads {
            0 => {
                let processors = std::thread::available_parallelism().map_or(1, usize::from);
                (processors / PROCESSORS_A_THREAD).clamp(1, MAX_PROCESSING_THREADS)
            }
            threads => threads,
        }
    }

    /// The targets, with their tokens read.
    ///
    /// # Errors
    /// [`ConfigError`], for the first token that cannot be had.
    pub fn read_targets(&self, path: &Path) -> Result<Vec<Arc<Target>>, ConfigError> {
        let wrong = |error| ConfigError::Entry { path: path.into(), error };
        self.targets.iter().map(|entry| entry.target(self.read.interval).map_err(wrong)).collect()
    }

    /// The token that HTTP clients must show.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn http_token(&self, path: &Path) -> Result<Option<Arc<str>>, ConfigError> {
        token(path, "[http] token_file", &self.http.token_file)
    }

    /// The token that may add hosts.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn join_token(&self, path: &Path) -> Result<Option<Arc<str>>, ConfigError> {
        token(path, "[http] join_token_file", &self.http.join_token_file)
    }

    /// The token that Alertmanagers are shown.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn alertmanager_token(&self, path: &Path) -> Result<Option<Arc<str>>, ConfigError> {
        token(path, "[rules] alertmanager_token_file", &self.rules.alertmanager_token_file)
    }

    /// What the engine is told.
    #[must_use]
    pub fn engine(&self) -> engine::Config {
        let bytes = |size: Size| u32::try_from(size.as_bytes()).unwrap_or(u32::MAX);
        engine::Config {
            window: self.read.window,
            credit_bytes: bytes(self.read.credit),
            host_credit_bytes: bytes(self.read.host_credit),
            sharing: match self.read.flow_control {
                FlowControl::Total => Sharing::Total,
                FlowControl::Published => Sharing::Published,
            },
            phases: match self.read.phases {
                ReadPhases::Spread => Phases::Spread,
                ReadPhases::Together => Phases::Together,
            },
            waiting: match self.read.wait {
                Wait::Sleep => Waiting::Sleep,
                Wait::Poll => Waiting::Poll,
                Wait::Hybrid => Waiting::Hybrid,
            },
            poll_percent: self.read.poll_percent,
            af_xdp: self.read.sockets == Sockets::AfXdp,
            timeout: self.read.timeout.as_duration(),
            skip: self.read.skip.clone().into(),
            limits: Limits {
                bytes: self.quota.reading.as_bytes(),
                schema_bytes: self.quota.schemas.as_bytes(),
                ..Limits::default()
            },
            ..engine::Config::default()
        }
    }

    /// What each host may cost.
    #[must_use]
    pub fn quota(&self) -> fleet::Quota {
        fleet::Quota {
            series: self.quota.series,
            tracks: self.quota.tracks,
            memory_bytes: self.quota.memory.as_bytes(),
            new_tracks_per_hour: self.quota.new_tracks_per_hour,
            values_per_s: self.quota.values_per_s,
            log_bytes_per_s: self.quota.log_bytes_per_s.as_bytes(),
            log_burst_bytes: self.quota.log_burst.as_bytes(),
        }
    }

    /// What judges samples.
    ///
    /// # Errors
    /// [`ConfigError::Value`], which [`Config::parse`] would have given.
    pub fn checks(&self, path: &Path) -> Result<CheckRules, ConfigError> {
        CheckRules::new(&self.checks).map_err(|(key, message)| ConfigError::Value { path: path.into(), key, message })
    }

    /// What the store is told.
    #[must_use]
    pub fn store(&self) -> onlooker_framestore::Config {
        onlooker_framestore::Config {
            dir: self.store.dir.clone(),
            ring: self.store.hot_file.clone(),
            ring_bytes: self.store.hot_bytes.as_bytes(),
            max_bytes: self.store.max_bytes.as_bytes(),
            keep_ns: self.store.keep().map(|(_, keep)| keep.as_ns()),
            cold_after_ns: Some(self.store.cold_after.as_ns()).filter(|ns| *ns > 0).unwrap_or(u64::MAX),
            decoded_bytes: usage::memory_limit_bytes()
                .and_then(|bytes| usize::try_from(bytes / DECODED_SHARE).ok())
                .map_or(DECODED_BYTES, |bytes| bytes.max(DECODED_BYTES)),
        }
    }
}

impl Store {
    /// How long rows are kept, by their level.
    fn keep(&self) -> [(&'static str, Span); 4] {
        [
            ("keep_raw", self.keep_raw),
            ("keep_1s", self.keep_1s),
            ("keep_10s", self.keep_10s),
            ("keep_60s", self.keep_60s),
        ]
    }
}

/// The token in a file, if one is named.
fn token(path: &Path, key: &str, file: &Path) -> Result<Option<Arc<str>>, ConfigError> {
    if file.as_os_str().is_empty() {
        return Ok(None);
    }
    let text = read("the token", file)?;
    let token = text.trim();
    if token.len() < 16 {
        let message = format!("the token in {} is shorter than 16 characters; make a longer one", file.display());
        return Err(ConfigError::Value { path: path.into(), key: key.into(), message });
    }
    Ok(Some(token.into()))
}

/// Rules are evaluated at most so often.
pub const SHORTEST_RULES: Span = Span::from_ms(100);
/// A thread decodes what some thousand hosts have each second: most machines need one.
const PROCESSORS_A_THREAD: usize = 4;
const MAX_PROCESSING_THREADS: usize = 64;

#[cfg(test)]
mod tests;
