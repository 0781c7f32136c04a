// SPDX-License-Identifier: Apache-2.0
//! The state of each target file, and when a change of one counts. No I/O.
//!
//! New contents count once two looks in a row have seen them: a file that we read in the middle of a write may happen
//! to be well-formed, and still nobody wanted that. Contents that cannot be used (half a file, an empty one, no list)
//! never replace good ones. A missing file keeps its targets until [`MAX_MISSING`] refreshes in a row have not found
//! it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use crate::book::Found;
use crate::file::{FileError, Group, parse};

/// Refreshes in a row that a file may be missing before its targets go.
pub const MAX_MISSING: u32 = 2;

/// Which file, for which section.
pub type Key = (usize, Arc<Path>);
/// Length and hash of contents: enough to tell two versions apart.
type Print = (usize, u64);

/// A file.
#[derive(Clone, Debug, Default)]
pub struct FileState {
    /// Its last good contents.
    pub groups: Arc<[Group]>,
    /// The targets in them.
    pub found: Vec<Found>,
    /// Targets that rules have dropped.
    pub dropped: usize,
    accepted: Option<Print>,
    waiting: Option<Print>,
    read_error: Option<FileError>,
    parse_error: Option<FileError>,
    missing: u32,
}

impl FileState {
    /// Why the last good contents are not the present ones.
    #[must_use]
    pub fn error(&self) -> Option<&FileError> {
        self.read_error.as_ref().or(self.parse_error.as_ref())
    }
}

/// The result of a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The targets may be others than before.
    pub changed: bool,
    /// Its error has changed, or is gone.
    pub news: bool,
    /// The contents are new: look again soon.
    pub unsettled: bool,
}

/// All files.
#[derive(Debug, Default)]
pub struct States {
    /// By section, then by path.
    pub files: BTreeMap<Key, FileState>,
    /// Times that a file could not be used, by reason.
    pub failures: BTreeMap<&'static str, u64>,
}

fn print(bytes: &[u8]) -> Print {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    (bytes.len(), hasher.finish())
}

impl States {
    /// Takes one look at a file. `refresh`: this is the periodic look, which no change has caused.
    pub fn look(&mut self, key: &Key, read: Result<Vec<u8>, FileError>, refresh: bool) -> Seen {
        let is_new = !self.files.contains_key(key);
        if is_new {
            if read == Err(FileError::Missing) {
                return Seen::default();
            }
            // Another section may know the file, perhaps a section of the previous configuration.
            let known = self.files.iter().find(|((_, path), _)| *path == key.1);
            let known = known.map(|(_, state)| state.clone()).unwrap_or_default();
            self.files.insert(key.clone(), known);
        }
        let Some(state) = self.files.get_mut(key) else { return Seen::default() };
        let before = state.error().cloned();
        let mut seen = Seen { changed: is_new, ..Seen::default() };
        match read {
            Err(FileError::Missing) => {
                state.missing += u32::from(refresh);
                state.read_error = Some(FileError::Missing);
                if state.missing >= MAX_MISSING {
                    self.files.remove(key);
                    return Seen { changed: true, news: true, unsettled: false };
                }
            }
            Err(error) => state.read_error = Some(error),
            Ok(bytes) => {
                let contents = print(&bytes);
                (state.missing, state.read_error) = (0, None);
                if state.accepted == Some(contents) {
                    state.waiting = None;
                } else if state.accepted.is_some() && state.waiting != Some(contents) {
                    state.waiting = Some(contents);
                    seen.unsettled = true;
                } else {
                    (state.accepted, state.waiting) = (Some(contents), None);
                    match parse(&key.1, &bytes) {
                        Ok(groups) => {
                            (state.groups, state.parse_error) = (groups.into(), None);
                            seen.changed = true;
                        }
                        Err(error) => state.parse_error = Some(error),
                    }
                }
            }
        }
        seen.news = state.error() != before.as_ref();
        if let Some(error) = state.error().filter(|_| seen.news) {
            *self.failures.entry(error.reason()).or_default() += 1;
        }
        seen
    }

    /// Forgets the files of sections from `sections` on.
    pub fn keep_sections(&mut self, sections: usize) {
        self.files.retain(|(section, _), _| *section < sections);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const GOOD: &[u8] = br#"[{"targets":["a","b"]}]"#;
    const OTHER: &[u8] = br#"[{"targets":["c"]}]"#;

    fn key() -> Key {
        (0, PathBuf::from("/t/x.json").into())
    }

    fn targets(states: &States) -> Vec<String> {
        let groups = states.files.get(&key()).map(|state| state.groups.clone()).unwrap_or_default();
        groups.iter().flat_map(|group| group.targets.clone()).collect()
    }

    #[test]
    fn contents_count_once_they_stay() {
        let mut states = States::default();
        assert!(states.look(&key(), Ok(GOOD.into()), false).changed);
        assert_eq!(targets(&states), ["a", "b"]);
        assert_eq!(states.look(&key(), Ok(GOOD.into()), false), Seen::default());
        assert!(states.look(&key(), Ok(OTHER.into()), false).unsettled);
        assert_eq!(targets(&states), ["a", "b"]);
        // Back again, or yet another.
        assert_eq!(states.look(&key(), Ok(GOOD.into()), false), Seen::default());
        assert!(states.look(&key(), Ok(b"[]".into()), false).unsettled);
        assert!(states.look(&key(), Ok(OTHER.into()), false).unsettled);
        assert!(states.look(&key(), Ok(OTHER.into()), false).changed);
        assert_eq!(targets(&states), ["c"]);
    }

    #[test]
    fn what_cannot_be_used_replaces_nothing_and_is_told_once() {
        let mut states = States::default();
        states.look(&key(), Ok(GOOD.into()), false);
        for (bytes, reason) in [(&GOOD[..7], "invalid"), (b"", "empty"), (b"{}", "invalid")] {
            assert!(states.look(&key(), Ok(bytes.into()), false).unsettled);
            let seen = states.look(&key(), Ok(bytes.into()), false);
            assert_eq!((seen.changed, seen.news), (false, true));
            assert!(!states.look(&key(), Ok(bytes.into()), true).news);
            assert_eq!(states.files[&key()].error().unwrap().reason(), reason);
            assert_eq!(targets(&states), ["a", "b"]);
        }
        assert!(states.look(&key(), Err(FileError::Unreadable("x".into())), false).news);
        assert_eq!(states.failures, BTreeMap::from([("invalid", 2), ("empty", 1), ("unreadable", 1)]));
        states.look(&key(), Ok(GOOD.into()), false);
        let seen = states.look(&key(), Ok(GOOD.into()), false);
        assert!(seen.news && states.files[&key()].error().is_none(), "it is well again");
    }

    #[test]
    fn a_missing_file_keeps_its_targets_for_a_while() {
        let mut states = States::default();
        assert_eq!(states.look(&key(), Err(FileError::Missing), true), Seen::default());
        states.look(&key(), Ok(GOOD.into()), false);
        for _ in 0..10 {
            states.look(&key(), Err(FileError::Missing), false);
        }
        states.look(&key(), Err(FileError::Missing), true);
        assert_eq!(targets(&states), ["a", "b"]);
        assert!(states.look(&key(), Ok(GOOD.into()), true).news);
        states.look(&key(), Err(FileError::Missing), true);
        assert_eq!(targets(&states), ["a", "b"]);
        assert!(states.look(&key(), Err(FileError::Missing), true).changed);
        assert!(states.files.is_empty());
    }
}
