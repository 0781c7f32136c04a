// SPDX-License-Identifier: Apache-2.0
//! Files of the system that a join writes: whole or not at all, durable, with their directories.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::JoinError;

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

/// The text of a file that nobody but us can have written; `None` where there is none.
///
/// # Errors
/// It cannot be read, is a link, or is not ours alone.
pub fn read_own(path: &Path) -> Result<Option<String>, JoinError> {
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut file = match OpenOptions::new().read(true).custom_flags(no_link).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", path)(error)),
    };
    let there = file.metadata().map_err(failed("read", path))?;
    if !there.is_file() || there.uid() != rustix::process::geteuid().as_raw() || there.mode() & 0o022 != 0 {
        return Err(failed("trust", path)(io::Error::other("it is not ours, or others can write it")));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed("read", path))?;
    Ok(Some(text))
}

/// Mode of a file that is there.
#[must_use]
pub fn mode(path: &Path) -> Option<u32> {
    fs::symlink_metadata(path).ok().map(|there| there.mode() & 0o777)
}

/// That a file may be replaced: it is one, or there is nothing.
///
/// # Errors
/// It is a link, which is its author's to change (a masked unit is one, too), or nothing that has a text.
pub fn is_replaceable(path: &Path) -> Result<(), JoinError> {
    let what = match fs::symlink_metadata(path) {
        Ok(there) if there.is_symlink() => "it is a link: change what it leads to (a masked unit: systemctl unmask)",
        Ok(there) if !there.is_file() => "it is no file",
        _ => return Ok(()),
    };
    Err(failed("replace", path)(io::Error::other(what)))
}

/// Puts a text into place. Whoever looks sees the old file or the new one, also after a loss of power. A file that is there keeps its owner and mode; another
/// has this mode, whatever the umask.
///
/// # Errors
/// It cannot be written; it is a link.
pub fn write(path: &Path, text: &str, mode: u32) -> Result<(), JoinError> {
    is_replaceable(path)?;
    let temporary = beside(path, TEMPORARY);
    // Left by one that was interrupted.
    let _ = fs::remove_file(&temporary);
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(mode).open(&temporary).map_err(failed("create", &temporary))?;
    let permissions = match fs::symlink_metadata(path) {
        Ok(there) => {
            fchown(&file, Some(there.uid()), Some(there.gid())).map_err(failed("write", &temporary))?;
            there.permissions()
        }
        Err(_) => Permissions::from_mode(mode),
    };
    file.set_permissions(permissions).map_err(failed("write", &temporary))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed("write", &temporary))?;
    fs::rename(&temporary, path).map_err(failed("replace", path))?;
    sync_directory(path)
}

/// Where old texts of `path` are kept: each in a file of its own, since a later one must not take the place of the first.
fn backups(path: &Path) -> impl Iterator<Item = PathBuf> {
    (1..).map(move |number| match number {
        1 => beside(path, BACKUP),
        _ => beside(path, &format!("{BACKUP}.{number}")),
    })
}

/// Keeps an old text of `path`, unless it is kept already.
///
/// # Errors
/// It cannot be written.
pub fn keep(path: &Path, text: &str, mode: u32) -> Result<(), JoinError> {
    for backup in backups(path) {
        match read(&backup)? {
            Some(kept) if kept == text => return Ok(()),
            Some(_) => {}
            None => return write(&backup, text, mode),
        }
    }
    unreachable!("numbers do not end");
}

/// Removes the copy of an old text of `path`.
///
/// # Errors
/// It cannot be removed.
pub fn remove_kept(path: &Path, text: &str) -> Result<(), JoinError> {
    for backup in backups(path) {
        match read(&backup)? {
            Some(kept) if kept == text => return remove(&backup),
            Some(_) => {}
            None => break,
        }
    }
    Ok(())
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

/// Makes one directory, of this mode whatever the umask.
///
/// # Errors
/// It cannot be made.
pub fn make_directory(path: &Path, mode: u32) -> Result<(), JoinError> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed("create", path)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed("create", path)(error)),
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
    use std::os::unix::fs::symlink;

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
        symlink("a", dir.path().join("link")).unwrap();
        let error = write(&dir.path().join("link"), "", 0o600).unwrap_err().to_string();
        assert!(error.contains("is a link"), "{error}");
        // Whatever the umask.
        write(&path, "", 0o666).unwrap();
        make_directory(&dir.path().join("open"), 0o777).unwrap();
        assert_eq!((mode(&path), mode(&dir.path().join("open"))), (Some(0o666), Some(0o777)));
    }

    #[test]
    fn each_old_text_is_kept_once_and_none_takes_anothers_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.toml");
        for text in ["first\n", "second\n", "first\n"] {
            keep(&path, text, 0o600).unwrap();
        }
        let kept = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        let names = ["agent.toml.before-join", "agent.toml.before-join.2"];
        assert_eq!(names.map(kept), ["first\n", "second\n"]);
        remove_kept(&path, "second\n").unwrap();
        remove_kept(&path, "second\n").unwrap();
        assert_eq!((kept(names[0]).as_str(), fs::read_dir(dir.path()).unwrap().count()), ("first\n", 1));
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
