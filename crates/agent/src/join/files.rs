// SPDX-License-Identifier: Apache-2.0
//! Files of the system that a join writes: whole or not at all, durable, with their directories.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use super::JoinError;

/// Suffix of what stood there before.
const BACKUP: &str = ".before-join";
const TEMPORARY: &str = ".join-tmp";

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JoinError {
    let path = path.to_owned();
    move |source| JoinError::File { operation, path, source }
}

/// The text of a file; `None` where there is none.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path) -> Result<Option<String>, JoinError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// Puts a text into place. Whoever looks sees the old file or the new one, also after a loss of power. A file that is there keeps its owner and mode.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, text: &str, mode: u32) -> Result<(), JoinError> {
    let temporary = beside(path, TEMPORARY);
    // Left by one that was interrupted.
    let _ = fs::remove_file(&temporary);
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(mode).open(&temporary).map_err(failed("create", &temporary))?;
    if let Ok(there) = fs::metadata(path) {
        let kept = fchown(&file, Some(there.uid()), Some(there.gid()));
        kept.and_then(|()| file.set_permissions(there.permissions())).map_err(failed("write", &temporary))?;
    }
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed("write", &temporary))?;
    fs::rename(&temporary, path).map_err(failed("replace", path))?;
    sync_directory(path)
}

/// Where the old text of `path` is kept.
#[must_use]
pub fn backup(path: &Path) -> PathBuf {
    beside(path, BACKUP)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn sync_directory(path: &Path) -> Result<(), JoinError> {
    let Some(directory) = path.parent() else { return Ok(()) };
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed("write", directory))
}

/// Removes a file; that it is not there is what is wanted.
///
/// # Errors
/// It cannot be removed.
pub fn remove(path: &Path) -> Result<(), JoinError> {
    match fs::remove_file(path) {
        Ok(()) => sync_directory(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", path)(error)),
    }
}

/// The directories that would have to be made for `directory` to be there, outermost first.
#[must_use]
pub fn missing(directory: &Path) -> Vec<PathBuf> {
    let mut missing: Vec<PathBuf> =
        directory.ancestors().take_while(|ancestor| !ancestor.exists()).map(Path::to_owned).collect();
    missing.reverse();
    missing
}

/// Makes one directory.
///
/// # Errors
/// It cannot be made.
pub fn make_directory(path: &Path, mode: u32) -> Result<(), JoinError> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed("create", path)(error)),
        _ => Ok(()),
    }
}

/// Removes a directory if nothing is in it; returns whether it is gone.
///
/// # Errors
/// It cannot be removed for another reason.
pub fn remove_directory(path: &Path) -> Result<bool, JoinError> {
    // systemd keeps the state of a user that it makes up elsewhere, and leaves a link (systemd.exec(5), DynamicUser=).
    let target = fs::read_link(path).ok().map(|target| path.parent().unwrap_or(Path::new("/")).join(target));
    match fs::remove_dir(target.as_deref().unwrap_or(path)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => return Ok(false),
        Err(error) => return Err(failed("remove", path)(error)),
    }
    if target.is_some() {
        remove(path)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn files_are_written_whole_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        assert_eq!(read(&path).unwrap(), None);
        fs::write(beside(&path, TEMPORARY), "half").unwrap();
        write(&path, "one\n", 0o600).unwrap();
        write(&path, "two\n", 0o644).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("two\n"), "with the mode that it had:");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        remove(&path).unwrap();
        remove(&path).unwrap();
        let error = write(&dir.path().join("no/where"), "", 0o600).unwrap_err().to_string();
        assert!(error.contains("no/where"), "{error}");
    }

    #[test]
    fn directories_are_made_one_by_one_and_removed_when_empty() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("a/b"));
        assert_eq!(missing(&b), [a.clone(), b.clone()]);
        missing(&b).iter().for_each(|path| make_directory(path, 0o700).unwrap());
        make_directory(&b, 0o700).unwrap();
        assert!(missing(&b).is_empty());
        assert!(!remove_directory(&a).unwrap());
        assert!(remove_directory(&b).unwrap() && remove_directory(&b).unwrap() && remove_directory(&a).unwrap());
        fs::create_dir(&a).unwrap();
        symlink("a", dir.path().join("link")).unwrap();
        assert!(remove_directory(&dir.path().join("link")).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "what it leads to, and the link");
    }
}
