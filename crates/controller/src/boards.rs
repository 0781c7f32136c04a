// SPDX-License-Identifier: Apache-2.0
//! Saved boards: a directory with a file each, `NAME.json`, in Grafana's dashboard JSON (docs/http.md).
//!
//! The controller keeps a board's bytes as they came and looks only at its title: what it does not know it does not
//! lose. It is not the only writer of the directory: configuration management, and people with editors, are others. So
//! every call looks at the files as they are, and a change names the version that it is made of. A new version is
//! written beside, synced and renamed: a reader sees the one or the other. One change at a time (a lock), so that no two
//! of ours replace the same version.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Access, access};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// Of one board. The largest ones that people share have half of it.
pub const MAX_BYTES: usize = 1 << 20;
/// In the directory.
pub const MAX_BOARDS: usize = 500;
/// Of a name.
const MAX_NAME: usize = 64;
const SUFFIX: &str = ".json";

/// Why something is not done with a board.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// There is no directory.
    #[error("this controller keeps no boards: [http] boards of controller.toml is empty")]
    None,
    /// No file is called so.
    #[error(
        "`{0}` is no name of a board: 1 to 64 letters of a-z, A-Z, 0-9, `-`, `_` and `.`, of which the first is none of the last three"
    )]
    Name(String),
    /// There is no such board.
    #[error("there is no board `{0}`; /api/onlooker/v1/boards lists those that there are")]
    Unknown(String),
    /// Another version than the one that is meant is there, or none.
    #[error("`{0}` is another version of the board by now; read it again, and make the change to that")]
    Changed(String),
    /// A board of this name is there.
    #[error("there is a board `{0}` already; choose another name, or change that one")]
    Taken(String),
    /// Not what a board is.
    #[error("the body is no board: {0}")]
    Content(String),
    /// The directory has all it may have.
    #[error("there are {MAX_BOARDS} boards, and no more are possible; remove one")]
    Full,
    /// A file, or the directory, is somebody else's.
    #[error("{0} cannot be written by the controller: whoever provisions it changes it")]
    ReadOnly(PathBuf),
    /// A file is longer than a board may be.
    #[error("{0} is longer than {MAX_BYTES} bytes")]
    Long(PathBuf),
    /// The system.
    #[error("cannot {operation} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Which version a change is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// None: the board is new.
    New,
    /// The one with this tag.
    Tag(String),
}

/// A board in the list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its title; empty where it has none.
    pub title: String,
    /// Tells versions apart.
    pub tag: String,
    /// Of the file.
    pub bytes: u64,
    /// When the file was changed, UTC ns.
    pub modified_ns: u64,
    /// Whether the controller may change it.
    pub is_writable: bool,
    /// Why it cannot be shown.
    pub error: Option<String>,
}

/// What a file was when it was read: as long as that is so, it need not be read again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

#[derive(Debug, Clone)]
struct Seen {
    stamp: Stamp,
    title: String,
    tag: String,
    error: Option<String>,
}

/// All that is looked at in a board.
#[derive(Deserialize)]
struct Board {
    #[serde(default)]
    title: Option<String>,
    panels: Option<serde::de::IgnoredAny>,
}

/// The directory.
#[derive(Debug)]
pub struct Boards {
    dir: PathBuf,
    /// By name. Held during a change.
    seen: Mutex<HashMap<String, Seen>>,
}

impl Boards {
    /// An empty path: there are none.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), seen: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether boards can be added: in a directory that is ours, or that can be made.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        if self.dir.as_os_str().is_empty() {
            return false;
        }
        match self.dir.parent() {
            Some(parent) if !self.dir.exists() => may_write(parent),
            _ => may_write(&self.dir),
        }
    }

    /// All of them, by name.
    ///
    /// # Errors
    /// [`BoardError::Io`], if the directory cannot be read. One that is not there has no boards.
    pub fn list(&self) -> Result<Vec<Listed>, BoardError> {
        if self.dir.as_os_str().is_empty() {
            return Ok(Vec::new());
        }
        let mut seen = self.lock();
        let names = self.names()?;
        seen.retain(|name, _| names.contains(name));
        let is_writable = self.is_writable();
        let mut listed = Vec::with_capacity(names.len());
        for name in names {
            let path = self.path(&name);
            // It may be gone, or be no file.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            if !metadata.is_file() {
                continue;
            }
            let found = self.look(&mut seen, &name, &stamp(&metadata));
            let (seconds, ns) =
                (metadata.mtime().try_into().unwrap_or(0), metadata.mtime_nsec().try_into().unwrap_or(0));
            listed.push(Listed {
                is_writable: is_writable && is_ours(&path),
                title: found.title,
                tag: found.tag,
                bytes: metadata.len(),
                modified_ns: u64::saturating_mul(seconds, 1_000_000_000).saturating_add(ns),
                error: found.error,
                name,
            });
        }
        Ok(listed)
    }

    /// A board's bytes and its tag.
    ///
    /// # Errors
    /// [`BoardError`].
    pub fn read(&self, name: &str) -> Result<(Vec<u8>, String), BoardError> {
        self.check(name)?;
        let bytes = read(&self.path(name), name)?;
        let tag = tag(&bytes);
        Ok((bytes, tag))
    }

    /// Puts a version in the place of its base, on the disk before this returns; gives its tag.
    ///
    /// # Errors
    /// [`BoardError`]; what was there is there still.
    pub fn write(&self, name: &str, bytes: &[u8], base: &Base) -> Result<String, BoardError> {
        self.check(name)?;
        title(bytes).map_err(BoardError::Content)?;
        let _changing = self.lock();
        let path = self.path(name);
        match (base, self.current(name)?) {
            (Base::New, Some(_)) => return Err(BoardError::Taken(name.into())),
            (Base::Tag(_), None) => return Err(BoardError::Unknown(name.into())),
            (Base::Tag(base), Some(now)) if *base != now => return Err(BoardError::Changed(name.into())),
            (Base::Tag(_), Some(_)) if !is_ours(&path) => return Err(BoardError::ReadOnly(path)),
            _ => {}
        }
        if !self.is_writable() {
            return Err(BoardError::ReadOnly(self.dir.clone()));
        }
        if *base == Base::New && self.names()?.len() >= MAX_BOARDS {
            return Err(BoardError::Full);
        }
        self.put(&path, name, bytes)?;
        Ok(tag(bytes))
    }

    /// Removes a version.
    ///
    /// # Errors
    /// [`BoardError`].
    pub fn remove(&self, name: &str, base: &str) -> Result<(), BoardError> {
        self.check(name)?;
        let _changing = self.lock();
        let path = self.path(name);
        match self.current(name)? {
            None => return Err(BoardError::Unknown(name.into())),
            Some(now) if now != base => return Err(BoardError::Changed(name.into())),
            Some(_) => {}
        }
        if !self.is_writable() || !is_ours(&path) {
            return Err(BoardError::ReadOnly(path));
        }
        fs::remove_file(&path).map_err(failed("remove", &path))?;
        self.sync()
    }

    /// No path leads out of the directory, and none to what is being written.
    fn check(&self, name: &str) -> Result<(), BoardError> {
        if self.dir.as_os_str().is_empty() {
            return Err(BoardError::None);
        }
        if is_name(name) { Ok(()) } else { Err(BoardError::Name(name.chars().take(MAX_NAME).collect())) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}{SUFFIX}"))
    }

    /// The tag of what is there now.
    fn current(&self, name: &str) -> Result<Option<String>, BoardError> {
        match read(&self.path(name), name) {
            Ok(bytes) => Ok(Some(tag(&bytes))),
            Err(BoardError::Unknown(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sorted; at most as many as there may be.
    fn names(&self) -> Result<Vec<String>, BoardError> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(failed("read", &self.dir)(source)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed("read", &self.dir))?;
            let file = entry.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(SUFFIX)).filter(|name| is_name(name));
            names.extend(name.map(str::to_owned));
        }
        names.sort_unstable();
        names.truncate(MAX_BOARDS);
        Ok(names)
    }

    fn look(&self, seen: &mut HashMap<String, Seen>, name: &str, stamp: &Stamp) -> Seen {
        if let Some(before) = seen.get(name).filter(|before| before.stamp == *stamp) {
            return before.clone();
        }
        let stamp = stamp.clone();
        let found = match read(&self.path(name), name) {
            Ok(bytes) => match title(&bytes) {
                Ok(title) => Seen { stamp, title, tag: tag(&bytes), error: None },
                Err(error) => Seen { stamp, title: String::new(), tag: tag(&bytes), error: Some(error) },
            },
            Err(error) => Seen { stamp, title: String::new(), tag: String::new(), error: Some(error.to_string()) },
        };
        seen.insert(name.to_owned(), found.clone());
        found
    }

    fn put(&self, path: &Path, name: &str, bytes: &[u8]) -> Result<(), BoardError> {
        if !self.dir.exists() {
            DirBuilder::new().mode(0o700).create(&self.dir).map_err(failed("make", &self.dir))?;
        }
        // No name begins so, and one of an earlier process that was killed is overwritten.
        let temporary = self.dir.join(format!(".{name}.new"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let written = file.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
        if let Err(source) = written.and_then(|()| fs::rename(&temporary, path)) {
            let _ = fs::remove_file(&temporary);
            return Err(failed("write", path)(source));
        }
        self.sync()
    }

    fn sync(&self) -> Result<(), BoardError> {
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(failed("sync", &self.dir))
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BoardError {
    let path = path.to_owned();
    move |source| BoardError::Io { operation, path, source }
}

fn is_name(name: &str) -> bool {
    let is_first = |c: u8| c.is_ascii_alphanumeric();
    let is_part = |c: u8| is_first(c) || b"-_.".contains(&c);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_part) && name.bytes().next().is_some_and(is_first)
}

fn may_write(path: &Path) -> bool {
    access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// A file that we may write. A link is the work of whoever provisions: a rename would replace it.
fn is_ours(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) && access(path, Access::WRITE_OK).is_ok()
}

fn stamp(metadata: &fs::Metadata) -> Stamp {
    Stamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        bytes: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    }
}

fn read(path: &Path, name: &str) -> Result<Vec<u8>, BoardError> {
    // A pipe would keep the reader.
    let file = OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let file = file.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => BoardError::Unknown(name.into()),
        _ => failed("read", path)(source),
    })?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_BYTES + 1).unwrap_or(u64::MAX);
    file.take(limit).read_to_end(&mut bytes).map_err(failed("read", path))?;
    if bytes.len() > MAX_BYTES { Err(BoardError::Long(path.into())) } else { Ok(bytes) }
}

/// The title of what is a board.
fn title(bytes: &[u8]) -> Result<String, String> {
    let board: Board = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if board.panels.is_none() {
        return Err("it has no `panels`: a dashboard of Grafana in its classic JSON is expected".into());
    }
    Ok(board.title.unwrap_or_default())
}

fn tag(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[u8] = br#"{"title": "One", "panels": [], "unknown": 1}"#;
    const TWO: &[u8] = br#"{"title": "Two", "panels": []}"#;

    #[test]
    fn names_lead_nowhere_else() {
        for name in ["a", "Hosts-2.old_1", "0", &"x".repeat(64)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", ".a", "-a", "a/b", "../a", "a\\b", "a b", "ä", "a\0", &"x".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn a_version_takes_the_place_of_its_base_and_of_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let boards = Boards::new(&dir.path().join("boards"));
        assert!(boards.list().unwrap().is_empty() && boards.is_writable());
        assert!(matches!(boards.write("a", ONE, &Base::Tag("x".into())), Err(BoardError::Unknown(_))));
        let first = boards.write("a", ONE, &Base::New).unwrap();
        assert!(matches!(boards.write("a", ONE, &Base::New), Err(BoardError::Taken(_))));
        assert_eq!(boards.read("a").unwrap(), (ONE.to_vec(), first.clone()));
        let second = boards.write("a", TWO, &Base::Tag(first.clone())).unwrap();
        assert!(matches!(boards.write("a", ONE, &Base::Tag(first.clone())), Err(BoardError::Changed(_))));
        assert!(matches!(boards.remove("a", &first), Err(BoardError::Changed(_))));
        let listed = boards.list().unwrap();
        assert_eq!((listed[0].title.as_str(), &listed[0].tag, listed[0].is_writable), ("Two", &second, true));
        // What somebody else writes is seen.
        fs::write(dir.path().join("boards/a.json"), ONE).unwrap();
        assert_eq!(boards.list().unwrap()[0].title, "One");
        boards.remove("a", &first).unwrap();
        assert!(boards.list().unwrap().is_empty() && matches!(boards.read("a"), Err(BoardError::Unknown(_))));
        assert_eq!(fs::read_dir(dir.path().join("boards")).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn what_is_no_board_is_refused_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let boards = Boards::new(dir.path());
        for bytes in [&b"[]"[..], b"{}", b"{\"panels\": []", b"\xff", br#"{"panels": [], "title": 1}"#] {
            assert!(matches!(boards.write("a", bytes, &Base::New), Err(BoardError::Content(_))), "{bytes:?}");
            fs::write(dir.path().join("b.json"), bytes).unwrap();
            assert!(boards.list().unwrap()[0].error.is_some(), "{bytes:?}");
        }
        fs::write(dir.path().join("b.json"), vec![b' '; MAX_BYTES + 1]).unwrap();
        assert!(boards.list().unwrap()[0].error.as_ref().is_some_and(|error| error.contains("longer")));
        assert!(matches!(boards.read("b"), Err(BoardError::Long(_))));
        fs::create_dir(dir.path().join("c.json")).unwrap();
        fs::write(dir.path().join(".d.json"), ONE).unwrap();
        fs::write(dir.path().join("e.txt"), ONE).unwrap();
        assert_eq!(boards.list().unwrap().len(), 1);
        assert!(matches!(Boards::new(Path::new("")).read("a"), Err(BoardError::None)));
        assert!(!Boards::new(Path::new("")).is_writable());
    }

    #[test]
    fn a_link_is_read_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("elsewhere"), ONE).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), dir.path().join("a.json")).unwrap();
        let boards = Boards::new(dir.path());
        let (_, tag) = boards.read("a").unwrap();
        assert!(!boards.list().unwrap()[0].is_writable);
        assert!(matches!(boards.write("a", TWO, &Base::Tag(tag.clone())), Err(BoardError::ReadOnly(_))));
        assert!(matches!(boards.remove("a", &tag), Err(BoardError::ReadOnly(_))));
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let boards = Boards::new(dir.path());
        for i in 0..MAX_BOARDS {
            fs::write(dir.path().join(format!("{i}.json")), ONE).unwrap();
        }
        assert!(matches!(boards.write("a", ONE, &Base::New), Err(BoardError::Full)));
        assert_eq!(boards.list().unwrap().len(), MAX_BOARDS);
        let (_, tag) = boards.read("0").unwrap();
        boards.write("0", TWO, &Base::Tag(tag)).unwrap();
    }
}
