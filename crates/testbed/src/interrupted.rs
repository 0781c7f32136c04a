// SPDX-License-Identifier: Apache-2.0
//! Reads of sockets with a time limit, which the kernel does not restart.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use crate::PATIENCE;

/// Calls until no signal interrupts. A socket with a time limit says EINTR even where nobody handles a signal: after SIGSTOP and SIGCONT, and after a machine was frozen (signal(7)).
///
/// # Errors
/// Those of the call, but not [`ErrorKind::Interrupted`].
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// The service manager of a process that a test starts with its path as `NOTIFY_SOCKET` (sd_notify(3)).
pub struct ServiceManager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl ServiceManager {
    /// Its socket is a new file in a directory.
    #[must_use]
    pub fn in_dir(dir: &Path) -> Self {
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, path }
    }

    /// What `NOTIFY_SOCKET` is to be.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next message. Waits for it.
    ///
    /// # Errors
    /// None came in time.
    pub fn told(&self) -> io::Result<String> {
        let mut buffer = [0; 256];
        let length = uninterrupted(|| self.socket.recv(&mut buffer))?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorKind, uninterrupted};

    #[test]
    fn an_interrupted_call_is_repeated_and_another_error_is_not() {
        let mut left = [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::Interrupted].to_vec();
        let error = uninterrupted(|| Err::<(), _>(left.pop().unwrap().into())).unwrap_err();
        assert_eq!((error.kind(), left.len()), (ErrorKind::WouldBlock, 0));
    }
}
