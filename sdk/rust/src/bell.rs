// SPDX-License-Identifier: Apache-2.0
//! Wakes the SDK's thread, which waits in poll and has a table of descriptors of its own.
//!
//! Nothing of the SDK is among the program's descriptors: no fork inherits it, no daemon that closes all it finds can close it. So the program rings by
//! unparking a second thread, which is a futex and needs nothing of the caller: neither a descriptor, nor /proc, nor rights that the program has given
//! up since. That thread has the first one's descriptors and writes into a pipe there. A signal would do without it, but signals are the program's
//! as well: signalfd takes those that were sent to the process, wakes for each signal of any thread, and loses what is pending when the program sets
//! that signal to be ignored.

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, Thread, park};

/// Stack of the ringing thread.
const STACK_BYTES: usize = 32 * 1024;

/// Who can write into the pipe; nobody until the thread waits for the first time, and it looks around before it does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bell(Arc<OnceLock<Thread>>);

/// The thread's side.
#[derive(Debug)]
pub(crate) struct Ear {
    pub(crate) reading: OwnedFd,
    /// Without a second thread nobody can ring: the thread looks around every second.
    pub(crate) deaf: bool,
}

impl Bell {
    /// Called on the SDK's thread, in its own table of descriptors and with all signals blocked; the second thread inherits both.
    pub(crate) fn hang(&self) -> rustix::io::Result<Ear> {
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let builder = Builder::new().name("onlooker-bell".into()).stack_size(STACK_BYTES);
        let ringer = builder.spawn(move || pass_on(&writing));
        let deaf = ringer.is_err();
        if let Ok(ringer) = ringer {
            // Hung once in the thread's life.
            let _first = self.0.set(ringer.thread().clone());
        }
        Ok(Ear { reading, deaf })
    }

    /// Called on any thread.
    pub(crate) fn ring(&self) {
        if let Some(ringer) = self.0.get() {
            ringer.unpark();
        }
    }
}

/// Ends when the reading end is closed: then there is no thread to wake.
fn pass_on(writing: &OwnedFd) {
    loop {
        park();
        // A full pipe wakes as well.
        if rustix::io::write(writing, &[0]).is_err_and(|errno| errno != Errno::AGAIN) {
            return;
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
