// SPDX-License-Identifier: Apache-2.0
//! The file with all alerts, and when it is written.
//!
//! Only the rules' thread writes and reads it. Each write makes a new file, which replaces the old one once it is
//! durable: a crash leaves the old alerts or the new ones. It is written before anybody is told that an alert fires or
//! has resolved; within [`SMALL`] of other changes; and every [`BEAT`] while there are alerts, so that a restart knows
//! how long nobody looked.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onlooker_alerts::{Change, Groups, Saved, SavedError};

/// What costs somebody a longer wait at most is written so much later.
const SMALL: Duration = Duration::from_secs(1);
/// A restart knows when rules were evaluated last to this.
const BEAT: Duration = Duration::from_secs(15);

/// Why the file is not read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum StateError {
    /// The system.
    #[error("cannot {operation} {path}: {source}", path = path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    /// What it says.
    #[error("{path}: {error}; it is moved to {path}.damaged", path = path.display())]
    Saved { path: PathBuf, error: SavedError },
}

/// The file.
pub(super) struct StateFile {
    path: PathBuf,
    change: Change,
    written: Instant,
    /// There is something in it.
    has_alerts: bool,
    has_failed: bool,
}

impl StateFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, change: Change::No, written: Instant::now(), has_alerts: false, has_failed: false }
    }

    /// What an earlier process left; without a file, nothing. A damaged one is put aside.
    pub(super) fn read(&mut self) -> Result<Saved, StateError> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Saved::default()),
            Err(source) => return Err(StateError::Io { operation: "read", path: self.path.clone(), source }),
        };
        self.has_alerts = true;
        Saved::decode(&text).map_err(|error| {
            // For whoever wants to know what it was: if that fails, it is overwritten.
            let _ = fs::rename(&self.path, self.path.with_extension("state.damaged"));
            StateError::Saved { path: self.path.clone(), error }
        })
    }

    pub(super) fn changed(&mut self, change: Change) {
        self.change = self.change.max(change);
    }

    /// Writes it, if it is time; an error is told once, until a write succeeds.
    pub(super) fn keep(&mut self, groups: &Groups, is_last: bool) -> Option<Result<(), Option<StateError>>> {
        let after = match self.change {
            Change::Large => Duration::ZERO,
            Change::Small => SMALL,
            Change::No => BEAT,
        };
        // After a failure the disk gets some rest.
        let after = if self.has_failed { SMALL } else { after };
        let is_idle = self.change == Change::No && !self.has_alerts;
        if is_idle || (!is_last && self.written.elapsed() < after) {
            return None;
        }
        let saved = groups.save();
        let written = self.write(&saved.encode());
        self.written = Instant::now();
        let is_news = !std::mem::replace(&mut self.has_failed, written.is_err());
        if written.is_ok() {
            (self.change, self.has_alerts) = (Change::No, saved.has_alerts());
        }
        Some(written.map_err(|error| is_news.then_some(error)))
    }

    fn write(&self, text: &[u8]) -> Result<(), StateError> {
        let failed = |operation, path: &Path| {
            let path = path.to_owned();
            move |source| StateError::Io { operation, path, source }
        };
        let temporary = self.path.with_extension("state.new");
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let mut file = file.map_err(failed("make", &temporary))?;
        file.write_all(text).and_then(|()| file.sync_all()).map_err(failed("write", &temporary))?;
        fs::rename(&temporary, &self.path).map_err(failed("rename to", &self.path))?;
        let dir = self.path.parent().unwrap_or(Path::new("."));
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("sync", dir))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_put_aside_and_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("alerts.state");
        let mut file = StateFile::new(path.clone());
        assert_eq!(file.read().unwrap(), Saved::default());
        file.changed(Change::Large);
        assert!(matches!(file.keep(&Groups::default(), false), Some(Ok(()))));
        assert!(file.keep(&Groups::default(), true).is_none(), "nothing has changed");
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() = b'x';
        fs::write(&path, &bytes).unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("it is damaged") && error.contains("alerts.state.damaged"), "{error}");
        assert_eq!(fs::read(dir.path().join("alerts.state.damaged")).unwrap(), bytes);
        assert_eq!(file.read().unwrap(), Saved::default());
    }

    #[test]
    fn a_failure_is_told_once_and_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = StateFile::new(dir.path().join("none/alerts.state"));
        file.changed(Change::Large);
        assert!(matches!(file.keep(&Groups::default(), true), Some(Err(Some(_)))));
        assert!(matches!(file.keep(&Groups::default(), true), Some(Err(None))));
        fs::create_dir(dir.path().join("none")).unwrap();
        assert!(matches!(file.keep(&Groups::default(), true), Some(Ok(()))));
        assert!(file.keep(&Groups::default(), true).is_none());
    }
}
