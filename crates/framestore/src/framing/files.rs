// SPDX-License-Identifier: Apache-2.0
//! Files of the store: their owner's alone whatever the umask, in directories of one process, with names as durable as
//! what is written under them.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

use crate::damage::{StoreError, io_error};

pub(crate) const MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
const LOCK: &str = "lock";

/// The store's directory, which no other process has meanwhile.
#[derive(Debug)]
pub struct Lock {
    dir: PathBuf,
    _file: Locked,
}

/// A file that is locked until it is dropped, even if a process that was forked meanwhile, and has not yet run its own
/// program, still has it open.
#[derive(Debug)]
pub(crate) struct Locked(File);

impl Locked {
    /// The lock, if nobody else has it.
    pub(crate) fn take(file: File) -> rustix::io::Result<Self> {
        flock(&file, FlockOperation::NonBlockingLockExclusive).map(|()| Self(file))
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // If it fails, closing the file gives the lock back.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Lock {
    /// Takes a directory, and makes it where it is not there. It is given back when all that was opened in it is
    /// dropped, or with the process.
    ///
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::Io`].
    pub fn take(dir: &Path) -> Result<Arc<Self>, StoreError> {
        make_dir(dir)?;
        let path = dir.join(LOCK);
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).mode(MODE).open(&path);
        let file = file.map_err(io_error("create", &path))?;
        // Who may only read a lock file can hold its lock.
        restrict(&file, &path)?;
        match Locked::take(file) {
            Ok(file) => Ok(Arc::new(Self { dir: dir.to_owned(), _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::InUse(dir.to_owned())),
            Err(error) => Err(io_error("lock", &path)(error.into())),
        }
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Makes a directory that is not there, and those above it.
///
/// # Errors
/// [`StoreError::Io`].
pub fn make_dir(path: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
    made.map_err(io_error("create", path))
}

/// Takes a file from others that another umask, or a copy of the directory, has given it to.
fn restrict(file: &File, path: &Path) -> Result<(), StoreError> {
    let mode = file.metadata().map_err(io_error("look at", path))?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(MODE)).map_err(io_error("restrict", path))
}

/// Makes a file of a new name; the name is durable.
pub(crate) fn create(path: &Path) -> Result<File, StoreError> {
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).mode(MODE).open(path);
    let file = file.map_err(io_error("create", path))?;
    path.parent().map_or(Ok(()), sync_dir)?;
    Ok(file)
}

/// Opens a file that is there.
pub(crate) fn open(path: &Path) -> Result<File, StoreError> {
    let file = File::options().read(true).write(true).open(path).map_err(io_error("open", path))?;
    restrict(&file, path)?;
    Ok(file)
}

/// Opens a file that is there, to read it only; `None` if it is not there, as one that its owner has deleted meanwhile.
pub(crate) fn open_to_read(path: &Path) -> Result<Option<File>, StoreError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("open", path)(error)),
    }
}

/// Writes a file as a whole: whoever opens it by its name, whenever the power fails, finds all of it or what was there
/// before.
///
/// # Errors
/// [`StoreError::Io`].
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<File, StoreError> {
    let new = path.with_extension("new");
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true).mode(MODE).open(&new);
    let file = file.map_err(io_error("create", &new))?;
    restrict(&file, &new)?;
    if let Err(error) = file.write_all_at(bytes, 0).and_then(|()| file.sync_data()) {
        // Its room is wanted.
        let _ = fs::remove_file(&new);
        return Err(io_error("write to", &new)(error));
    }
    fs::rename(&new, path).map_err(io_error("rename", &new))?;
    path.parent().map_or(Ok(()), sync_dir)?;
    Ok(file)
}

/// Makes names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("sync", dir))
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Path of a file that has a number for a name.
pub(crate) fn numbered(dir: &Path, number: u32, extension: &str) -> PathBuf {
    dir.join(format!("{number:010}.{extension}"))
}

/// Numbers of the files of a directory that have numbers for names, in order.
pub(crate) fn numbers(dir: &Path, extension: &str) -> Result<Vec<u32>, StoreError> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let name = entry.map_err(io_error("list", dir))?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(extension)?.strip_suffix('.')?.parse().ok());
        // After the last one there is none.
        let number = number.filter(|number| *number < u32::MAX);
        numbers.extend(number.filter(|number| numbered(dir, *number, extension).file_name() == Some(name.as_os_str())));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Whether the error means that the disk is full.
#[must_use]
pub fn is_disk_full(error: &StoreError) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
    matches!(error, StoreError::Io { source, .. } if full.contains(&source.kind()))
}
