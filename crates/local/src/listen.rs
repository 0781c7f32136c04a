// SPDX-License-Identifier: Apache-2.0
//! The registration socket's place in the file system: one agent at a time, stale sockets replaced.
//!
//! A lock file beside the socket says whether an agent lives, even if one was killed: the kernel drops the lock with the process. The lock file is
//! never removed, since a removed one could be locked twice.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::seqpacket;

/// Anybody may connect; the policy decides by credentials.
const SOCKET_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o755;

/// Of the lock file, whatever the umask.
const LOCK_MODE: u32 = 0o600;

/// Why the socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another agent has it.
    #[error("another onlooker-agent serves {0}: stop it, or give this one another [agent] socket")]
    InUse(PathBuf),
    /// Something else is there.
    #[error("{0} exists and is not a socket: remove it, or set another [agent] socket")]
    NotASocket(PathBuf),
    /// A system call.
    #[error("cannot {operation} {path}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn system(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ListenError {
    let path = path.to_owned();
    move |source| ListenError::System { operation, path, source }
}

/// Keeps the socket's place; gives it up when dropped.
#[derive(Debug)]
pub struct Listening {
    path: PathBuf,
    _lock: File,
}

/// Makes the socket, replacing a stale one.
///
/// # Errors
/// [`ListenError`].
pub fn listen(path: &Path) -> Result<(OwnedFd, Listening), ListenError> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        make_directory(directory)?;
    }
    let lock = lock(path)?;
    remove_stale(path)?;
    let socket = seqpacket::listener(path).map_err(system("listen on", path))?;
    fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)).map_err(system("open to all", path))?;
    Ok((socket, Listening { path: path.to_owned(), _lock: lock }))
}

/// Removes what a killed agent left. Returns whether there was a socket.
///
/// # Errors
/// [`ListenError::InUse`] where an agent lives.
pub fn purge(path: &Path) -> Result<bool, ListenError> {
    if !path.parent().is_none_or(Path::exists) {
        return Ok(false);
    }
    let _lock = lock(path)?;
    remove_stale(path)
}

impl Drop for Listening {
    /// Removes the socket, then gives up the lock.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes the socket's directory if it is not there; programs of all users must be able to pass through it, whatever our umask.
fn make_directory(directory: &Path) -> Result<(), ListenError> {
    if directory.exists() {
        return Ok(());
    }
    fs::create_dir_all(directory).map_err(system("create", directory))?;
    fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE)).map_err(system("open to all", directory))
}

fn lock(path: &Path) -> Result<File, ListenError> {
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock_path = PathBuf::from(lock_path);
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        // Whoever can open it can lock it.
        .mode(LOCK_MODE)
        .open(&lock_path)
        .map_err(system("open", &lock_path))?;
    // One that an earlier version has left may be open to all.
    lock.set_permissions(Permissions::from_mode(LOCK_MODE)).map_err(system("restrict", &lock_path))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => Err(ListenError::InUse(path.to_owned())),
        Err(errno) => Err(system("lock", &lock_path)(errno.into())),
    }
}

fn remove_stale(path: &Path) -> Result<bool, ListenError> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => {
            fs::remove_file(path).map_err(system("remove the stale", path))?;
            Ok(true)
        }
        Ok(_) => Err(ListenError::NotASocket(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(system("look at", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_at_a_time_and_stale_sockets_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/agent.sock");
        let (socket, listening) = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(ListenError::InUse(_))));
        assert!(matches!(purge(&path), Err(ListenError::InUse(_))));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, SOCKET_MODE);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, DIRECTORY_MODE);
        let lock = path.with_extension("sock.lock");
        let mode = || fs::metadata(&lock).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), LOCK_MODE);
        fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
        // As if killed: the lock goes, the socket file stays.
        drop((socket, listening));
        seqpacket::listener(&path).unwrap();
        assert!(path.exists());
        let (_socket, listening) = listen(&path).unwrap();
        assert_eq!(mode(), LOCK_MODE, "also where one was left open to all");
        drop(listening);
        assert!(!path.exists());
        assert!(!purge(&path).unwrap());
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(listen(&path), Err(ListenError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
