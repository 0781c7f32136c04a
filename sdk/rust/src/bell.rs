// SPDX-License-Identifier: Apache-2.0
//! Wakes the SDK's thread, which has a table of descriptors of its own: by a pipe that is found through /proc.
//!
//! Nothing of the SDK is among the program's descriptors: no fork inherits it, no daemon that closes all it finds can close it.

use rustix::fs::{Mode, OFlags, open};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Where the pipe's writing end can be opened; empty until the thread waits for the first time, and it looks around before it does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bell(Arc<Mutex<String>>);

/// The thread's side.
#[derive(Debug)]
pub(crate) struct Ear {
    pub(crate) reading: OwnedFd,
    _writing: OwnedFd,
    /// Without /proc nobody can ring: the thread looks around every second.
    pub(crate) deaf: bool,
}

impl Bell {
    /// Called on the thread, in its own table of descriptors.
    pub(crate) fn hang(&self) -> rustix::io::Result<Ear> {
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let path = format!("/proc/self/task/{}/fd/{}", rustix::thread::gettid(), writing.as_raw_fd());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = path;
        self.ring();
        let deaf = rustix::io::read(&reading, &mut [0; 1]) != Ok(1);
        Ok(Ear { reading, _writing: writing, deaf })
    }

    /// Called on any thread.
    pub(crate) fn ring(&self) {
        let path = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if path.is_empty() {
            return;
        }
        if let Ok(pipe) = open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
            // A full pipe wakes as well.
            let _full = rustix::io::write(&pipe, &[0]);
        }
    }
}

impl Ear {
    /// Forgets what was rung.
    pub(crate) fn listen(&self) {
        let mut bytes = [0; 512];
        while rustix::io::read(&self.reading, &mut bytes).is_ok_and(|read| read == bytes.len()) {}
    }
}
