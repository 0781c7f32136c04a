// SPDX-License-Identifier: Apache-2.0
//! `[[targets]]` and `[[discovery]]` of controller.toml. Operators write them; the controller reads them with the rest
//! of that file, at the start and after SIGHUP.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onlooker_bootstrap::{DEFAULT_PORT, Token, TokenError};
use onlooker_flow::Priority;
use onlooker_settings::units::Span;
use serde::{Deserialize, Serialize};

use crate::relabel;
use crate::target::{self, Choice, Target};

/// Which key is wrong, and what to write instead.
pub type Mistake = (String, String);

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
    /// Its class where not all hosts can be read in time.
    #[serde(default)]
    pub priority: Priority,
    /// Who answers its READs.
    #[serde(default)]
    pub via: Choice,
}

/// Why an entry is no target.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// Its token file cannot be read.
    #[error("cannot read the join token {path}: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no token in that file.
    #[error("{path}: {error}; `onlooker-agent token` on the host prints it", path = path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: TokenError,
    },
    /// Its address. [`check_entries`] finds that before.
    #[error("`{0}`: {1}")]
    Address(String, &'static str),
}

impl Entry {
    fn name(&self) -> &str {
        if self.name.is_empty() { &self.address } else { &self.name }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        if let Err(message) = target::parse_address(&self.address) {
            return Err(("address", format!("`{}`: {message}", self.address)));
        }
        if self.interval.is_some_and(is_too_short) {
            return Err(("interval", TOO_SHORT.into()));
        }
        target::check_name(self.name()).map_err(|message| ("name", message))?;
        target::check_labels(&self.labels).map_err(|message| ("labels", message))
    }

    /// The target, with its token read; `interval` is that of `[read]`.
    ///
    /// # Errors
    /// [`EntryError`].
    pub fn target(&self, interval: Span) -> Result<Arc<Target>, EntryError> {
        let path = || self.token_file.clone();
        let text = fs::read_to_string(&self.token_file);
        let text = text.map_err(|source| EntryError::Unreadable { path: path(), source })?;
        let token = Token::parse(text.trim()).map_err(|error| EntryError::Token { path: path(), error })?;
        let address = target::parse_address(&self.address);
        let (host, port) = address.map_err(|message| EntryError::Address(self.address.clone(), message))?;
        Ok(Arc::new(Target {
            name: self.name().to_owned(),
            host,
            port: port.unwrap_or(DEFAULT_PORT),
            token,
            labels: self.labels.clone(),
            interval: self.interval.unwrap_or(interval).as_duration(),
            priority: self.priority,
            choice: self.via,
        }))
    }
}

/// Checks all `[[targets]]`.
///
/// # Errors
/// The first [`Mistake`].
pub fn check_entries(entries: &[Entry]) -> Result<(), Mistake> {
    let mut names = BTreeSet::new();
    for (number, entry) in entries.iter().enumerate() {
        let named = |(key, message)| (format!("[[targets]] number {}, {key}", number + 1), message);
        entry.check().map_err(named)?;
        if !names.insert(entry.name()) {
            let message = format!("`{}` is there already; give it another name", entry.name());
            return Err(named(("name", message)));
        }
    }
    Ok(())
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
    /// Their class where not all hosts can be read in time.
    #[serde(default)]
    pub priority: Priority,
    /// Who answers the READs.
    #[serde(default)]
    pub via: Choice,
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
    /// Checks it.
    ///
    /// # Errors
    /// The first [`Mistake`].
    pub fn check(&self) -> Result<(), Mistake> {
        let refuse = |key: &str, message: String| Err((key.to_owned(), message));
        if self.files.is_empty() {
            return refuse("files", "at least one path is needed".into());
        }
        for path in &self.files {
            if !is_pattern(path, &[".json", ".yml", ".yaml"]) {
                let message = "must be an absolute path that ends in .json, .yml or .yaml, with one `*` at most, in its last segment";
                return refuse("files", format!("`{}` {message}", path.display()));
            }
        }
        if self.interval.is_some_and(is_too_short) {
            return refuse("interval", TOO_SHORT.into());
        }
        if self.refresh < Span::from_s(1) {
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

/// Whether a path names files as [`crate::watch::matching`] looks for them, with one of these endings.
#[must_use]
pub fn is_pattern(path: &Path, endings: &[&str]) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let dir = path.parent().and_then(Path::to_str).unwrap_or("*");
    let is_known = endings.iter().any(|ending| name.ends_with(ending));
    path.is_absolute() && is_known && !dir.contains('*') && name.matches('*').count() <= 1
}

/// The message about an interval that [`is_too_short`].
pub const TOO_SHORT: &str = "must be at least 1ms";

/// Whether an interval is shorter than [`target::MIN_INTERVAL`].
#[must_use]
pub fn is_too_short(interval: Span) -> bool {
    interval.as_duration() < target::MIN_INTERVAL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        targets: Vec<Entry>,
        #[serde(default)]
        discovery: Vec<Discovery>,
    }

    fn check(text: &str) -> Result<(), String> {
        let file: File = onlooker_settings::parse(text).map_err(|mistake| mistake.message)?;
        let all = file.discovery.iter().map(Discovery::check);
        let checked = all.fold(check_entries(&file.targets), Result::and);
        checked.map_err(|(key, message)| format!("{key}: {message}"))
    }

    #[test]
    fn mistakes_name_their_key_and_what_to_write() {
        let target = "[[targets]]\ntoken_file = \"/t\"\naddress = ";
        for (text, part) in [
            (&*format!("{target}\"a:0\""), "number 1, address"),
            (&format!("{target}\"a\"\n{target}\"a\""), "number 2, name: `a` is there already"),
            (&format!("{target}\"a\"\ninterval = \"10us\""), "number 1, interval: must be at least 1ms"),
            (&format!("{target}\"a\"\nlabels = {{ instance = \"x\" }}"), "labels: `instance` cannot be a label"),
            (&format!("{target}\"a\"\nvia = \"udp\""), "known: auto, verbs, kernel, tcp"),
            (&format!("{target}\"a\"\npriority = \"first\""), "known: high, normal, low"),
            ("[[discovery]]\nfiles = [\"/a.yml\"]\npriority = \"\"", "known: high, normal, low"),
            ("[[discovery]]\nfiles = []", "files: at least one"),
            ("[[discovery]]\nfiles = [\"/a/*/b.json\"]", "files: `/a/*/b.json`"),
            ("[[discovery]]\nfiles = [\"b.json\"]", "absolute"),
            ("[[discovery]]\nfiles = [\"/a/b.txt\"]", ".yaml"),
            ("[[discovery]]\nfiles = [\"/a.yml\"]\nrefresh = \"1ms\"", "refresh: must be at least 1s"),
            ("[[discovery]]\nfiles = [\"/a.yml\"]\ninterval = \"1us\"", "interval: must be at least 1ms"),
            (
                "[[discovery]]\nfiles = [\"/a.yml\"]\n[[discovery.relabel]]\nregex = \"(\"",
                "relabel number 1, target_label",
            ),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        check(&format!("{target}\"a\"\n{target}\"b\"\n[[discovery]]\nfiles = [\"/a.yml\"]")).unwrap();
    }

    #[test]
    fn tokens_are_read_from_their_files() {
        let dir = tempfile::tempdir().unwrap();
        let token_file = dir.path().join("token");
        let text = format!("[[targets]]\naddress = \"a\"\ntoken_file = {token_file:?}");
        let file: File = onlooker_settings::parse(&text).unwrap();
        let target = || file.targets[0].target(Span::from_s(2));
        assert!(matches!(target(), Err(EntryError::Unreadable { path, .. }) if path == token_file));
        fs::write(&token_file, "geheim").unwrap();
        let error = target().unwrap_err().to_string();
        assert!(error.contains("/token: ") && error.contains("onlooker-agent token") && !error.contains("geheim"));
        let token = Token { fingerprint: None, secret: onlooker_bootstrap::Secret::new([7; 32]) };
        fs::write(&token_file, format!("{}\n", token.text())).unwrap();
        let made = target().unwrap();
        assert_eq!((&made.name[..], made.port, made.interval.as_secs(), &made.token), ("a", DEFAULT_PORT, 2, &token));
        assert_eq!(made.priority, Priority::Normal, "unless it says another");
        let file: File = onlooker_settings::parse(&format!("{text}\npriority = \"high\"")).unwrap();
        assert_eq!(file.targets[0].target(Span::from_s(2)).unwrap().priority, Priority::High);
    }
}
