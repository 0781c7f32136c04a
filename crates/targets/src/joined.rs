// SPDX-License-Identifier: Apache-2.0
//! Hosts that were added while the controller ran, in one JSON file that survives restarts.
//!
//! Only the controller writes and reads it; its mode is 0600, since it has the hosts' tokens. Each change writes a new
//! file, which replaces the old one once it is durable (temporary file, fsync, rename, fsync of the directory): a crash
//! leaves the old list or the new one. Cost: one such write for each host added or removed.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onlooker_bootstrap::{Id, Token};
use onlooker_flow::Priority;
use onlooker_settings::units::Span;
use serde::{Deserialize, Serialize};

use crate::joining::Origin;
use crate::target::{self, Choice, Target};

const VERSION: u32 = 1;

/// Why the file is not read or written.
#[derive(Debug, thiserror::Error)]
pub enum JoinedError {
    /// The system.
    #[error("cannot {operation} {path} ([joined] file): {source}", path = path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Its contents.
    #[error("{path} ([joined] file) cannot be right: {message}; repair it, or move it away and join its hosts anew", path = path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    hosts: Vec<Record>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    name: String,
    address: String,
    token: String,
    labels: BTreeMap<String, String>,
    interval: Span,
    /// Without one it is as before there were classes.
    #[serde(default, skip_serializing_if = "is_normal")]
    priority: Priority,
    via: Choice,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host_id: Option<Id>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<IpAddr>,
}

fn is_normal(priority: &Priority) -> bool {
    *priority == Priority::Normal
}

/// The file and its contents.
pub(super) struct Joined {
    path: PathBuf,
    hosts: BTreeMap<String, (Arc<Target>, Origin)>,
}

impl Joined {
    /// Reads the file; a missing file is an empty list.
    pub(super) fn open(path: &Path) -> Result<Self, JoinedError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path: path.into(), hosts: BTreeMap::new() });
            }
            Err(source) => return Err(JoinedError::Io { operation: "read", path: path.into(), source }),
        };
        let wrong = |message| JoinedError::Contents { path: path.into(), message };
        // The message names only the place of a mistake: the text around it may be a token.
        let document: Document = serde_json::from_slice(&text)
            .map_err(|error| wrong(format!("line {}, column {}", error.line(), error.column())))?;
        if document.version != VERSION {
            return Err(wrong(format!("version {} is not {VERSION}", document.version)));
        }
        let mut hosts = BTreeMap::new();
        for record in document.hosts {
            let name = record.name.clone();
            let origin = Origin { host_id: record.host_id, source: record.source };
            let host = record.target().map_err(|message| wrong(format!("host `{name}`: {message}")))?;
            hosts.insert(name, (Arc::new(host), origin));
        }
        Ok(Self { path: path.into(), hosts })
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<Target>> {
        self.hosts.get(name).map(|(host, _)| host)
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.hosts.values().map(|(host, _)| host)
    }

    /// The origins of all hosts but this one.
    pub(super) fn others(&self, name: &str) -> impl Iterator<Item = (&str, &Origin)> {
        let others = self.hosts.iter().filter(move |(other, _)| *other != name);
        others.map(|(other, (_, origin))| (other.as_str(), origin))
    }

    pub(super) fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Adds or removes a host. The change is durable when this returns.
    pub(super) fn set(&mut self, name: &str, host: Option<(Arc<Target>, Origin)>) -> Result<(), JoinedError> {
        let before = match &host {
            Some(host) if self.hosts.get(name) == Some(host) => return Ok(()),
            Some(host) => self.hosts.insert(name.to_owned(), host.clone()),
            None => self.hosts.remove(name),
        };
        let written = self.write();
        if written.is_err() {
            match before {
                Some(before) => drop(self.hosts.insert(name.to_owned(), before)),
                None => drop(self.hosts.remove(name)),
            }
        }
        written
    }

    fn write(&self) -> Result<(), JoinedError> {
        let hosts = self.hosts.values().map(|(host, origin)| Record::of(host, origin)).collect();
        let mut text = serde_json::to_vec_pretty(&Document { version: VERSION, hosts }).unwrap_or_default();
        text.push(b'\n');
        let failed = |operation, path: &Path| {
            let path = path.to_owned();
            move |source| JoinedError::Io { operation, path, source }
        };
        let dir = match self.path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        fs::create_dir_all(dir).map_err(failed("make the directory", dir))?;
        let temporary = self.path.with_extension("json.new");
        // A file that a crash has left may have other permissions.
        let _ = fs::remove_file(&temporary);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        let mut file = file.map_err(failed("make", &temporary))?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed("write", &temporary))?;
        fs::rename(&temporary, &self.path).map_err(failed("rename to", &self.path))?;
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("sync", dir))
    }
}

impl Record {
    fn of(target: &Target, origin: &Origin) -> Self {
        Self {
            name: target.name.clone(),
            address: target.address(),
            token: target.token.text(),
            labels: target.labels.clone(),
            interval: Span::from_ns(target.interval_ns()),
            priority: target.priority,
            via: target.choice,
            host_id: origin.host_id,
            source: origin.source,
        }
    }

    fn target(self) -> Result<Target, String> {
        let (host, port) = target::parse_address(&self.address)?;
        target::check_name(&self.name)?;
        target::check_labels(&self.labels)?;
        Ok(Target {
            host,
            port: port.ok_or("the address has no port")?,
            token: Token::parse(&self.token).map_err(|error| error.to_string())?,
            name: self.name,
            labels: self.labels,
            interval: self.interval.as_duration().max(target::MIN_INTERVAL),
            priority: self.priority,
            choice: self.via,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_bootstrap::Secret;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    fn host(name: &str) -> (Arc<Target>, Origin) {
        let origin = Origin { host_id: Some(Id([3; 16])), source: Some([10, 0, 0, 3].into()) };
        let target = Arc::new(Target {
            name: name.into(),
            host: "::1".into(),
            port: 7177,
            token: Token { fingerprint: None, secret: Secret::new([7; 32]) },
            labels: [("dc".to_owned(), "a\"\n".to_owned())].into(),
            interval: Duration::from_micros(1_500),
            priority: Priority::Low,
            choice: Choice::Verbs,
        });
        (target, origin)
    }

    #[test]
    fn what_was_added_is_there_again_and_nobody_else_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/joined.json");
        let mut joined = Joined::open(&path).unwrap();
        joined.set("b", Some(host("b"))).unwrap();
        joined.set("a", Some(host("a"))).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = Joined::open(&path).unwrap();
        assert_eq!(again.hosts.into_values().collect::<Vec<_>>(), [host("a"), host("b")]);
        joined.set("a", None).unwrap();
        assert_eq!(Joined::open(&path).unwrap().len(), 1);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn a_file_from_before_there_were_classes_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("joined.json");
        Joined::open(&path).unwrap().set("a", Some(host("a"))).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let old: String = text.split_inclusive('\n').filter(|line| !line.contains("\"priority\"")).collect();
        assert_ne!(old, text);
        fs::write(&path, old).unwrap();
        let before = Target { priority: Priority::Normal, ..(*host("a").0).clone() };
        assert_eq!(Joined::open(&path).unwrap().get("a").map(|host| &**host), Some(&before));
    }

    #[test]
    fn what_cannot_be_written_is_not_taken_for_kept() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let mut joined = Joined { path: dir.path().join("file/joined.json"), hosts: BTreeMap::new() };
        assert!(matches!(joined.set("a", Some(host("a"))), Err(JoinedError::Io { .. })));
        assert!(joined.get("a").is_none());
    }

    #[test]
    fn damage_is_told_without_the_tokens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("joined.json");
        for text in [
            "",
            "{",
            "{\"version\":2,\"hosts\":[]}",
            "{\"version\":1,\"hosts\":[\"onlk1.-.secretsecret\"]}",
            "{\"version\":1,\"hosts\":[{\"name\":\"a\",\"address\":\"a:1\",\"token\":\"secretsecret\",\"labels\":{},\"interval\":\"1s\",\"via\":\"auto\"}]}",
        ] {
            fs::write(&path, text).unwrap();
            let error = Joined::open(&path).err().unwrap().to_string();
            assert!(error.contains("joined.json") && !error.contains("secretsecret"), "{error}");
        }
    }
}
