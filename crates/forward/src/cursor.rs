// SPDX-License-Identifier: Apache-2.0
//! Up to where a target has everything: a small file, written whole before and after each slice of time.
//!
//! A slice whose end is known and that was not finished is sent again with the same end, so that most bodies are the same
//! ones: what the target has of them already it refuses or overwrites as a whole. A body of which it has a part it refuses,
//! too; its series go one by one then, so that nothing new is refused with what is there.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use onlooker_framestore::damage::StoreError;
use onlooker_framestore::framing::files;
use serde::{Deserialize, Serialize};

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The target has all rows up to this time, included, UTC ns.
    pub done_ns: u64,
    /// Where the slice ends that is being sent; `done_ns` if none is.
    pub doing_ns: u64,
}

impl Cursor {
    /// Nothing is being sent.
    #[must_use]
    pub fn at(done_ns: u64) -> Self {
        Self { done_ns, doing_ns: done_ns }
    }
}

/// The file of one target.
#[derive(Clone, Debug)]
pub struct CursorFile(PathBuf);

impl CursorFile {
    /// Of the target `name`, in the store's directory.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn new(store: &Path, name: &str) -> Result<Self, StoreError> {
        let dir = store.join("forward");
        files::make_dir(&dir)?;
        Ok(Self(dir.join(format!("{name}.json"))))
    }

    /// What it says; `None`: there is none, or it is no cursor.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn read(&self) -> Result<Option<Cursor>, StoreError> {
        match fs::read(&self.0) {
            Ok(bytes) => {
                let cursor = serde_json::from_slice::<Cursor>(&bytes).ok();
                Ok(cursor.filter(|cursor| cursor.done_ns <= cursor.doing_ns))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::Io { operation: "read", path: self.0.clone(), source }),
        }
    }

    /// Writes it; whenever the power fails, all of it or what it said before is there.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn write(&self, cursor: Cursor) -> Result<(), StoreError> {
        let text = serde_json::to_vec(&cursor).expect("two numbers are JSON");
        files::write_whole(&self.0, &text).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_nonsense_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = CursorFile::new(dir.path(), "a").unwrap();
        assert_eq!(file.read().unwrap(), None);
        let cursor = Cursor { done_ns: 1_700_000_000_000_000_001, doing_ns: 1_700_000_005_000_000_000 };
        file.write(cursor).unwrap();
        assert_eq!(CursorFile::new(dir.path(), "a").unwrap().read().unwrap(), Some(cursor));
        assert_eq!(CursorFile::new(dir.path(), "b").unwrap().read().unwrap(), None);
        file.write(Cursor { done_ns: 2, doing_ns: 1 }).unwrap();
        assert_eq!(file.read().unwrap(), None);
        fs::write(dir.path().join("forward/a.json"), "{").unwrap();
        assert_eq!(file.read().unwrap(), None);
    }
}
