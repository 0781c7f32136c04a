// SPDX-License-Identifier: Apache-2.0
//! controller.toml: what the operator decides, with defaults for all but the targets.
//!
//! The shipped `packaging/controller.toml` spells every default out; a test holds the two together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onlooker_bootstrap::{DEFAULT_PORT, Token};
use onlooker_settings::Mistake;
use onlooker_settings::units::{Size, Span};
use onlooker_reader::Limits;
use serde::{Deserialize, Serialize};

use crate::discovery::{Joining, relabel};
use crate::target::{Choice, Target};
use crate::{engine, fleet, target};

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
}

/// All of controller.toml.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[http]`
    pub http: Http,
    /// `[read]`
    pub read: Read,
    /// `[store]`
    pub store: Store,
    /// `[joined]`
    pub joined: Joined,
    /// `[quota]`
    pub quota: Quota,
    /// `[[targets]]`
    pub targets: Vec<Entry>,
    /// `[[discovery]]`
    pub discovery: Vec<Discovery>,
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

/// Hosts that were added while the controller ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Joined {
    /// Where they are kept, with their tokens.
    pub file: PathBuf,
    /// How many there may be.
    pub max_hosts: usize,
    /// How many of them one address may add by the token for hosts.
    pub max_hosts_per_source: usize,
    /// Shortest interval that it may ask for by that token.
    pub min_interval: Span,
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
    /// Room for the newest rows, of `[store] hot_bytes`.
    pub hot_bytes: Size,
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
    /// How long a bootstrap may take, and a reading at least.
    pub timeout: Span,
    /// Names of regions that are not read.
    pub skip: Vec<String>,
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
    /// Size of the log; the oldest goes first.
    pub max_bytes: Size,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// `HOST` or `HOST:PORT` of its bootstrap endpoint.
    pub address: String,
    /// What it is called; its address unless given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// File with its join token.
    pub token_file: PathBuf,
    /// Labels for all its series.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Time between two readings; `[read] interval` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// Who answers its READs.
    #[serde(default)]
    pub via: Via,
}

/// Files that say who is watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Discovery {
    /// The files; the last segment of a path may have one `*`.
    pub files: Vec<PathBuf>,
    /// File with the join token of each host that names no other; `{instance}` stands for its name.
    #[serde(default)]
    pub token_file: PathBuf,
    /// Time between two readings; `[read] interval` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// Who answers the READs.
    #[serde(default)]
    pub via: Via,
    /// Files and tokens are read again this often, changed or not.
    #[serde(default = "refresh")]
    pub refresh: Span,
    /// Rules, in order.
    #[serde(default)]
    pub relabel: Vec<relabel::Rule>,
}

fn refresh() -> Span {
    Span::from_s(30)
}

impl Discovery {
    fn check(&self) -> Result<(), (String, String)> {
        let refuse = |key: &str, message: String| Err((key.to_owned(), message));
        if self.files.is_empty() {
            return refuse("files", "at least one path is needed".into());
        }
        for path in &self.files {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let dir = path.parent().and_then(Path::to_str).unwrap_or("*");
            let is_known = [".json", ".yml", ".yaml"].iter().any(|ending| name.ends_with(ending));
            if !path.is_absolute() || !is_known || dir.contains('*') || name.matches('*').count() > 1 {
                let message = "must be an absolute path that ends in .json, .yml or .yaml, with one `*` at most, in its last segment";
                return refuse("files", format!("`{}` {message}", path.display()));
            }
        }
        if self.interval.is_some_and(|interval| interval.as_ns() < MIN_INTERVAL_NS) {
            return refuse("interval", "must be at least 1ms".into());
        }
        if self.refresh.as_ns() < 1_000_000_000 {
            return refuse("refresh", "must be at least 1s".into());
        }
        for (number, rule) in self.relabel.iter().enumerate() {
            if let Err((key, message)) = rule.compile() {
                return refuse(&format!("relabel number {}, {key}", number + 1), message);
            }
        }
        Ok(())
    }
}

/// [`Choice`] as the file has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// The host's RDMA device where both ends have one, else the kernel responder where there is one, else TCP.
    #[default]
    Auto,
    /// The host's RDMA device, by this machine's.
    Verbs,
    /// The kernel responder.
    Kernel,
    /// The agent.
    Tcp,
}

impl From<Via> for Choice {
    fn from(via: Via) -> Self {
        match via {
            Via::Auto => Self::Auto,
            Via::Verbs => Self::Verbs,
            Via::Kernel => Self::Kernel,
            Via::Tcp => Self::Tcp,
        }
    }
}

impl From<Choice> for Via {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Auto => Self::Auto,
            Choice::Verbs => Self::Verbs,
            Choice::Kernel => Self::Kernel,
            Choice::Tcp => Self::Tcp,
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7180)),
            token_file: PathBuf::new(),
            join_token_file: PathBuf::new(),
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
            names: Vec::new(),
            max_connections: 1024,
            max_connections_per_source: 384,
            max_streams: 512,
            max_streams_per_source: 256,
        }
    }
}

impl Default for Joined {
    fn default() -> Self {
        let Joining { max_hosts, max_hosts_per_source, min_interval } = Joining::default();
        Self {
            file: "/var/lib/onlooker-controller/joined.json".into(),
            max_hosts,
            max_hosts_per_source,
            min_interval: Span::from_ns(u64::try_from(min_interval.as_nanos()).unwrap_or(u64::MAX)),
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
            hot_bytes: Size::from_bytes(quota.hot_bytes),
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
            timeout: Span::from_s(2),
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

    fn check(&self) -> Result<(), (String, String)> {
        let refuse = |key: &str, message: &str| Err((key.to_owned(), message.to_owned()));
        let mut names = BTreeSet::new();
        for (number, entry) in self.targets.iter().enumerate() {
            let key = |key| format!("[[targets]] number {}, {key}", number + 1);
            if let Err(message) = target::parse_address(&entry.address) {
                return refuse(&key("address"), &format!("`{}`: {message}", entry.address));
            }
            if !names.insert(entry.name()) {
                return refuse(&key("name"), &format!("`{}` is there already; give it another name", entry.name()));
            }
            if entry.interval.is_some_and(|interval| interval.as_ns() < MIN_INTERVAL_NS) {
                return refuse(&key("interval"), "must be at least 1ms");
            }
            target::check_name(entry.name()).map_err(|message| (key("name"), message))?;
            target::check_labels(&entry.labels).map_err(|message| (key("labels"), message))?;
        }
        for (number, discovery) in self.discovery.iter().enumerate() {
            let named = |(key, message)| (format!("[[discovery]] number {}, {key}", number + 1), message);
            discovery.check().map_err(named)?;
        }
        if self.read.interval.as_ns() < MIN_INTERVAL_NS {
            return refuse("[read] interval", "must be at least 1ms");
        }
        if self.joined.min_interval.as_ns() < MIN_INTERVAL_NS {
            return refuse("[joined] min_interval", "must be at least 1ms");
        }
        if self.http.tls_certificate.as_os_str().is_empty() != self.http.tls_key.as_os_str().is_empty() {
            return refuse("[http] tls_key", "tls_certificate and tls_key go together: give both, or none");
        }
        let http = &self.http;
        for (all, of_source, key) in [
            (http.max_connections, http.max_connections_per_source, "[http] max_connections_per_source"),
            (http.max_streams, http.max_streams_per_source, "[http] max_streams_per_source"),
        ] {
            if of_source == 0 || of_source > all || all > MAX_CLIENTS {
                return refuse(
                    key,
                    "must be at least 1, and at most as many as of all sources, of which 65536 are possible",
                );
            }
        }
        for name in &self.read.skip {
            if onlooker_region::schema::check_name(name).is_err() {
                return refuse(
                    "[read] skip",
                    &format!("`{name}` is no name of a region; `onlooker read HOST --regions` lists them"),
                );
            }
        }
        if let Some((key, _)) = self.quota.parts().into_iter().find(|(_, value)| !(1..1 << 50).contains(value)) {
            return refuse(&format!("[quota] {key}"), "must be at least 1, and less than 2^50");
        }
        if self.read.window == 0 {
            return refuse("[read] window", "must be at least 1");
        }
        let (credit, host_credit) = (self.read.credit.as_bytes(), self.read.host_credit.as_bytes());
        if credit > 256 << 20 || host_credit < 8 << 10 || host_credit > credit {
            return refuse("[read] host_credit", "must be 8KiB to [read] credit, and that at most 256MiB");
        }
        if self.store.max_bytes.as_bytes() < 64 << 20 || self.store.hot_bytes.as_bytes() < 1 << 20 {
            return refuse("[store] max_bytes", "must be at least 64MiB, and hot_bytes at least 1MiB");
        }
        Ok(())
    }

    /// The targets, with their tokens read.
    ///
    /// # Errors
    /// [`ConfigError`], for the first token that cannot be had.
    pub fn read_targets(&self, path: &Path) -> Result<Vec<Arc<Target>>, ConfigError> {
        self.targets.iter().map(|entry| entry.target(path, self.read.interval)).collect()
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

    /// What the engine is told.
    #[must_use]
    pub fn engine(&self) -> engine::Config {
        let bytes = |size: Size| u32::try_from(size.as_bytes()).unwrap_or(u32::MAX);
        engine::Config {
            window: self.read.window,
            credit_bytes: bytes(self.read.credit),
            host_credit_bytes: bytes(self.read.host_credit),
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

    /// What may be added while the controller runs.
    #[must_use]
    pub fn joining(&self) -> Joining {
        let Joined { max_hosts, max_hosts_per_source, min_interval, .. } = self.joined;
        Joining { max_hosts, max_hosts_per_source, min_interval: min_interval.as_duration() }
    }

    /// What each host may cost.
    #[must_use]
    pub fn quota(&self) -> fleet::Quota {
        fleet::Quota {
            series: self.quota.series,
            tracks: self.quota.tracks,
            memory_bytes: self.quota.memory.as_bytes(),
            hot_bytes: self.quota.hot_bytes.as_bytes(),
            new_tracks_per_hour: self.quota.new_tracks_per_hour,
            values_per_s: self.quota.values_per_s,
            log_bytes_per_s: self.quota.log_bytes_per_s.as_bytes(),
            log_burst_bytes: self.quota.log_burst.as_bytes(),
        }
    }

    /// What the store is told.
    #[must_use]
    pub fn store(&self) -> onlooker_store::Config {
        onlooker_store::Config {
            dir: self.store.dir.clone(),
            hot: self.store.hot_file.clone(),
            hot_bytes: self.store.hot_bytes.as_bytes(),
            tile_rows: TILE_ROWS,
            segment_bytes: SEGMENT_BYTES.min(self.store.max_bytes.as_bytes() / 4),
            max_bytes: self.store.max_bytes.as_bytes(),
        }
    }
}

impl Quota {
    fn parts(&self) -> [(&'static str, u64); 10] {
        [
            ("series", self.series),
            ("tracks", self.tracks),
            ("memory", self.memory.as_bytes()),
            ("hot_bytes", self.hot_bytes.as_bytes()),
            ("new_tracks_per_hour", self.new_tracks_per_hour),
            ("values_per_s", self.values_per_s),
            ("reading", self.reading.as_bytes()),
            ("schemas", self.schemas.as_bytes()),
            ("log_bytes_per_s", self.log_bytes_per_s.as_bytes()),
            ("log_burst", self.log_burst.as_bytes()),
        ]
    }
}

/// The token in a file, if one is named.
fn token(path: &Path, key: &str, file: &Path) -> Result<Option<Arc<str>>, ConfigError> {
    if file.as_os_str().is_empty() {
        return Ok(None);
    }
    let text = read("the HTTP token", file)?;
    let token = text.trim();
    if token.len() < 16 {
        let message = format!("the token in {} is shorter than 16 characters; make a longer one", file.display());
        return Err(ConfigError::Value { path: path.into(), key: key.into(), message });
    }
    Ok(Some(token.into()))
}

const MIN_INTERVAL_NS: u64 = 1_000_000;
/// Connections or streams that may be configured.
const MAX_CLIENTS: usize = 65_536;
/// Rows of a tile.
const TILE_ROWS: usize = 64;
const SEGMENT_BYTES: u64 = 64 << 20;

impl Entry {
    fn name(&self) -> &str {
        if self.name.is_empty() { &self.address } else { &self.name }
    }

    fn target(&self, config: &Path, interval: Span) -> Result<Arc<Target>, ConfigError> {
        let text = read("the join token", &self.token_file)?;
        let wrong = |message| ConfigError::Value { path: config.into(), key: "[[targets]] token_file".into(), message };
        let token = Token::parse(text.trim()).map_err(|error| {
            wrong(format!("{}: {error}; `onlooker-agent token` on the host prints it", self.token_file.display()))
        })?;
        let (host, port) = target::parse_address(&self.address).map_err(|message| wrong(message.to_owned()))?;
        Ok(Arc::new(Target {
            name: self.name().to_owned(),
            host,
            port: port.unwrap_or(DEFAULT_PORT),
            token,
            labels: self.labels.clone(),
            interval: self.interval.unwrap_or(interval).as_duration(),
            choice: self.via.into(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("controller.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_shipped_example_says_the_defaults() {
        let text = include_str!("../../../packaging/controller.toml");
        assert_eq!(parse(text).unwrap(), Config::default());
        // The commented host is a good one, too.
        let host = text
            .lines()
            .skip_while(|line| !line.starts_with("# [[targets]]"))
            .map(|line| line.strip_prefix("# ").unwrap_or_default());
        let host = host.collect::<Vec<_>>().join("\n");
        let examples = parse(&host).unwrap();
        assert_eq!((examples.targets.len(), examples.discovery.len()), (1, 1));
        assert_eq!((examples.discovery[0].refresh, examples.discovery[0].relabel.len()), (refresh(), 1));
    }

    #[test]
    fn mistakes_say_what_to_write() {
        let target = "[[targets]]\ntoken_file = \"/t\"\naddress = ";
        for (text, part) in [
            ("[http]\nlisten = \"x\"", "controller.toml:2"),
            ("[http]\ntls_key = \"/k\"", "[http] tls_key: tls_certificate and tls_key go together"),
            ("[http]\nmax_streams_per_source = 0", "[http] max_streams_per_source: must be at least 1"),
            ("[http]\nmax_connections = 100", "[http] max_connections_per_source: must be at least 1, and at most"),
            ("[read]\nintervall = \"1s\"", "did you mean `interval`"),
            ("[read]\ninterval = \"10us\"", "at least 1ms"),
            ("[read]\nskip = [\"tcp connections\"]", "[read] skip: `tcp connections` is no name"),
            ("[store]\nmax_bytes = \"1MiB\"", "at least 64MiB"),
            ("[quota]\nseries = 0", "[quota] series: must be at least 1"),
            ("[quota]\nmemory = 5", "unit"),
            (&format!("{target}\"a:0\""), "number 1, address"),
            (&format!("{target}\"a\"\n{target}\"a\""), "number 2, name: `a` is there already"),
            (&format!("{target}\"a\"\nlabels = {{ instance = \"x\" }}"), "`instance` cannot be a label"),
            (&format!("{target}\"a\"\nvia = \"udp\""), "known: auto, verbs, kernel, tcp"),
            ("[[discovery]]\nfiles = []", "[[discovery]] number 1, files"),
            ("[[discovery]]\nfiles = [\"/a/*/b.json\"]", "number 1, files: `/a/*/b.json`"),
            ("[[discovery]]\nfiles = [\"b.json\"]", "absolute"),
            ("[[discovery]]\nfiles = [\"/a/b.txt\"]", ".yaml"),
            ("[[discovery]]\nfiles = [\"/a.yml\"]\nrefresh = \"1ms\"", "at least 1s"),
            (
                "[[discovery]]\nfiles = [\"/a.yml\"]\n[[discovery.relabel]]\nregex = \"(\"",
                "relabel number 1, target_label",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn tokens_are_read_from_their_files() {
        let config = parse("[[targets]]\naddress = \"a\"\ntoken_file = \"/nowhere/token\"").unwrap();
        let error = config.read_targets(Path::new("c")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/token"), "{error}");
    }
}
