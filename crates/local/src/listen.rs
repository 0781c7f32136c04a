// SPDX-License-Identifier: Apache-2.0
//! A service's socket in the file system: one process at a time, stale sockets replaced.
//!
//! A lock file beside the socket says whether the service lives, even if it was killed: the kernel drops the lock with
//! the process. The lock file is never removed, since a removed one could be locked twice.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::seqpacket;

/// Of the lock file, whatever the umask: whoever can open it can lock it.
const LOCK_MODE: u32 = 0o600;

/// Who listens, and for whom.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    /// Its program, for messages.
    pub program: &'static str,
    /// What says where the socket is, for messages.
    pub setting: &'static str,
    /// Mode of the socket. Until it is set the umask decides who may connect; peers are judged by credentials anyway.
    pub mode: u32,
    /// Mode of the socket's directory if it is made here; without one the umask decides.
    pub directory_mode: Option<u32>,
}

/// The agent: anybody may connect, and programs of all users must be able to pass through its directory.
pub const AGENT: Service =
    Service { program: "onlooker-agent", setting: "[agent] socket", mode: 0o666, directory_mode: Some(0o755) };

/// The holder: its agent has the same user, or is root.
pub const HOLDER: Service =
    Service { program: "onlooker-holder", setting: "--socket", mode: 0o600, directory_mode: None };

/// Why the socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process of the service has it.
    #[error("another {program} serves {path}: stop it, or give this one another {setting}")]
    InUse {
        /// The service.
        program: &'static str,
        /// The socket.
        path: PathBuf,
        /// What says where the socket is.
        setting: &'static str,
    },
    /// Something else is there.
    #[error("{path} exists and is not a socket: remove it, or give another {setting}")]
    NotASocket {
        /// What is there.
        path: PathBuf,
        /// What says where the socket is.
        setting: &'static str,
    },
    /// A system call.
    #[error("cannot {operation} {path}: {source}; give {setting} a path where this user may write")]
    System {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
        /// What says where the socket is.
        setting: &'static str,
    },
}

/// Keeps the socket's place; gives it up when dropped.
#[derive(Debug)]
pub struct Listening {
    path: PathBuf,
    _lock: File,
}

impl Drop for Listening {
    /// Removes the socket, then gives up the lock.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Service {
    /// Makes the socket, replacing a stale one, and its directory if there is none.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&self, path: &Path) -> Result<(OwnedFd, Listening), ListenError> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            self.make_directory(directory)?;
        }
        let lock = self.lock(path)?;
        self.remove_stale(path)?;
        let socket = seqpacket::listener(path).map_err(self.failed("listen on", path))?;
        let listening = Listening { path: path.to_owned(), _lock: lock };
        fs::set_permissions(path, Permissions::from_mode(self.mode)).map_err(self.failed("set the mode of", path))?;
        Ok((socket, listening))
    }

    /// Removes what a killed process left. Returns whether there was a socket.
    ///
    /// # Errors
    /// [`ListenError::InUse`] where one lives.
    pub fn purge(&self, path: &Path) -> Result<bool, ListenError> {
        if !path.parent().is_none_or(Path::exists) {
            return Ok(false);
        }
        let _lock = self.lock(path)?;
        self.remove_stale(path)
    }

    fn make_directory(&self, directory: &Path) -> Result<(), ListenError> {
        if directory.exists() {
            return Ok(());
        }
        fs::create_dir_all(directory).map_err(self.failed("create", directory))?;
        let Some(mode) = self.directory_mode else { return Ok(()) };
        fs::set_permissions(directory, Permissions::from_mode(mode)).map_err(self.failed("set the mode of", directory))
    }

    fn lock(&self, path: &Path) -> Result<File, ListenError> {
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let mut options = File::options();
        options.create(true).truncate(false).write(true).mode(LOCK_MODE);
        let lock = options.open(&lock_path).map_err(self.failed("open", &lock_path))?;
        // One that an earlier version has left may be open to all.
        lock.set_permissions(Permissions::from_mode(LOCK_MODE)).map_err(self.failed("restrict", &lock_path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(lock),
            Err(Errno::WOULDBLOCK) => {
                let Self { program, setting, .. } = *self;
                Err(ListenError::InUse { program, path: path.to_owned(), setting })
            }
            Err(errno) => Err(self.failed("lock", &lock_path)(errno.into())),
        }
    }

    fn remove_stale(&self, path: &Path) -> Result<bool, ListenError> {
        match fs::symlink_metadata(path) {
            Ok(there) if there.file_type().is_socket() => {
                fs::remove_file(path).map_err(self.failed("remove the stale", path))?;
                Ok(true)
            }
            Ok(_) => Err(ListenError::NotASocket { path: path.to_owned(), setting: self.setting }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed("look at", path)(error)),
        }
    }

    fn failed(&self, operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ListenError + use<> {
        let (path, setting) = (path.to_owned(), self.setting);
        move |source| ListenError::System { operation, path, source, setting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn one_process_at_a_time_and_stale_sockets_are_replaced() {
        for service in [AGENT, HOLDER] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("run/service.sock");
            let (socket, listening) = service.listen(&path).unwrap();
            let error = service.listen(&path).unwrap_err();
            assert!(matches!(error, ListenError::InUse { .. }) && error.to_string().contains(service.program));
            assert!(matches!(service.purge(&path), Err(ListenError::InUse { .. })));
            assert_eq!(mode_of(&path), service.mode);
            if let Some(mode) = service.directory_mode {
                assert_eq!(mode_of(path.parent().unwrap()), mode);
            }
            let lock = path.with_extension("sock.lock");
            assert_eq!(mode_of(&lock), LOCK_MODE);
            fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
            // As if killed: the lock goes, the socket file stays.
            drop((socket, listening));
            seqpacket::listener(&path).unwrap();
            assert!(path.exists());
            let (_socket, listening) = service.listen(&path).unwrap();
            assert_eq!(mode_of(&lock), LOCK_MODE, "also where one was left open to all");
            drop(listening);
            assert!(!path.exists());
            assert!(!service.purge(&path).unwrap());
        }
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("service.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(AGENT.listen(&path), Err(ListenError::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
