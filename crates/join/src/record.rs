// SPDX-License-Identifier: Apache-2.0
//! What a join did: `join.json` beside agent.toml, 0600 and root's, so that `--undo` undoes exactly that. Not in the agent's state directory: that is the
//! service's, and root would write files as the service says.
//!
//! Written before each step that it describes, so that an interrupted join can be undone, too: whoever undoes finds each thing done or not done. Holds no
//! secret but the texts of configuration files; the host is removed from the controller with the agent's own token, which lies in its state directory.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::JoinError;
use crate::files;

const NAME: &str = "join.json";
const VERSION: u32 = 1;

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    version: u32,
    /// Controllers that were told of this host.
    pub joined: Vec<Joined>,
    /// Files that were written.
    pub files: Vec<Written>,
    /// Directories that were made, in this order.
    pub directories: Vec<PathBuf>,
    /// The unit as it was before, where systemd runs.
    pub service: Option<Service>,
    /// The kernel responder that was switched on.
    pub kernel: Option<Kernel>,
}

/// A controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Joined {
    /// Its URL.
    pub url: String,
    /// Certificate authority, where the system's would not do.
    pub ca: Option<PathBuf>,
    /// The host's name there.
    pub name: String,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// Which.
    pub path: PathBuf,
    /// What was written.
    pub text: String,
    /// What was there before.
    pub before: Option<String>,
}

/// The unit before the join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// It was started at boot.
    pub enabled: bool,
    /// It ran.
    pub active: bool,
}

/// Where the responder is pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// A BPF file system.
    pub bpffs: PathBuf,
    /// Its name there.
    pub name: String,
}

impl Default for Record {
    fn default() -> Self {
        let (joined, files, directories) = (Vec::new(), Vec::new(), Vec::new());
        Self { version: VERSION, joined, files, directories, service: None, kernel: None }
    }
}

impl Record {
    /// Where it is, for an agent with this configuration file.
    #[must_use]
    pub fn path(config: &Path) -> PathBuf {
        config.with_file_name(NAME)
    }

    /// Reads that of an agent with this configuration file.
    ///
    /// # Errors
    /// It cannot be read, is not one, or others than we can write it.
    pub fn load(config: &Path) -> Result<Option<Self>, JoinError> {
        let path = Self::path(config);
        let Some(text) = files::read_own(&path)? else { return Ok(None) };
        let damaged = |what: String| JoinError::Record { path: path.clone(), what };
        let record: Self = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if record.version != VERSION {
            return Err(damaged(format!("version {} was written by another onlooker-agent", record.version)));
        }
        Ok(Some(record))
    }

    /// Writes it, making its directory where that is not there.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&mut self, config: &Path) -> Result<(), JoinError> {
        let path = Self::path(config);
        for directory in path.parent().map(files::missing).unwrap_or_default() {
            files::make_directory(&directory, 0o755)?;
            self.note_directories([directory]);
        }
        let text = serde_json::to_string_pretty(self).map_err(|error| {
            JoinError::Usage(format!("a path that is no UTF-8 cannot be kept in {}: {error}", path.display()))
        })?;
        files::write(&path, &format!("{text}\n"), 0o600)
    }

    /// Notes directories that are about to be made.
    pub fn note_directories(&mut self, directories: impl IntoIterator<Item = PathBuf>) {
        for directory in directories {
            if !self.directories.contains(&directory) {
                self.directories.push(directory);
            }
        }
    }

    /// What this wrote to `path`, if it did.
    #[must_use]
    pub fn wrote(&self, path: &Path) -> Option<&Written> {
        self.files.iter().find(|written| written.path == path)
    }

    /// Notes that `path` is about to hold `text` where it holds `now`. What was there before the first join stays noted.
    pub fn note_file(&mut self, path: &Path, text: &str, now: Option<&str>) {
        match self.files.iter_mut().find(|written| written.path == path) {
            // Written by us and changed by others since: what they made of it is what was there before.
            Some(written) => {
                let untouched = now == Some(written.text.as_str()) || now == written.before.as_deref();
                if !untouched {
                    written.before = now.map(str::to_owned);
                }
                text.clone_into(&mut written.text);
            }
            None => self.files.push(Written {
                path: path.to_owned(),
                text: text.to_owned(),
                before: now.map(str::to_owned),
            }),
        }
    }

    /// Notes a controller.
    pub fn note_controller(&mut self, joined: Joined) {
        self.joined.retain(|known| (&known.url, &known.name) != (&joined.url, &joined.name));
        self.joined.push(joined);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_record_is_kept_with_the_directories_that_it_needed() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("etc/onlooker/agent.toml");
        assert_eq!(Record::load(&config).unwrap(), None);
        let mut record = Record::default();
        record.note_controller(Joined { url: "http://a:1".into(), ca: None, name: "web".into() });
        record.note_controller(Joined { url: "http://a:1".into(), ca: Some("/ca.pem".into()), name: "web".into() });
        record.note_controller(Joined { url: "http://b:1".into(), ca: None, name: "web".into() });
        record.save(&config).unwrap();
        assert_eq!(record.directories, [dir.path().join("etc"), dir.path().join("etc/onlooker")]);
        assert_eq!(record.joined.len(), 2);
        assert_eq!(Record::load(&config).unwrap(), Some(record.clone()));
        record.save(&config).unwrap();
        assert_eq!(record.directories.len(), 2, "made once");
        let path = Record::path(&config);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for text in
            ["{}", "{\"version\":9,\"joined\":[],\"files\":[],\"directories\":[],\"service\":null,\"kernel\":null}"]
        {
            fs::write(&path, text).unwrap();
            let error = Record::load(&config).unwrap_err().to_string();
            assert!(error.contains(NAME), "{error}");
        }
        // What others could have written is not done.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(Record::load(&config).unwrap_err().to_string().contains("others can write it"));
        fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
        assert!(Record::load(&config).is_err());
    }

    #[test]
    fn what_was_there_before_the_first_join_is_remembered() {
        let path = Path::new("/etc/onlooker/agent.toml");
        let mut record = Record::default();
        record.note_file(path, "ours", Some("theirs"));
        record.note_file(path, "ours 2", Some("ours"));
        assert_eq!(
            record.wrote(path).map(|w| (w.text.as_str(), w.before.as_deref())),
            Some(("ours 2", Some("theirs")))
        );
        // Interrupted before the file was written.
        record.note_file(path, "ours 3", Some("theirs"));
        assert_eq!(record.wrote(path).unwrap().before.as_deref(), Some("theirs"));
        record.note_file(path, "ours 4", Some("edited"));
        assert_eq!(
            record.wrote(path).map(|w| (w.text.as_str(), w.before.as_deref())),
            Some(("ours 4", Some("edited")))
        );
        assert_eq!(record.wrote(Path::new("/other")), None);
    }
}
