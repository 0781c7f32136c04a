// SPDX-License-Identifier: Apache-2.0
//! `onlooker-agent token --renew` takes reading back: from the secret's renewal on the agent gives out new keys, and by the old ones nobody reads anything any more.
//!
//! The agent watches the state directory, and asks at its start: `keys` there says for which secret the present keys were made. It is written when all of the old ones have
//! ended, for which the command waits. Where no agent runs the command makes the kernel responder silent and ends what a device's holder has; the next agent begins new keys
//! before it ends the silence. Cost: nothing while no file there changes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use onlooker_bootstrap::Secret;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::card;
use crate::config::Config;
use crate::directory::Directory;
use crate::host;
use crate::identity::{IdentityError, StateDir};
use crate::kernel::{KernelError, load};
use crate::system;

/// Longest wait for an agent to begin new keys: it takes milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);

/// Why old keys may still be good. The old token is void all the same.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    /// The state directory.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The pinned responder.
    #[error(
        "the token is renewed, but readers by the old keys may read on: the kernel responder is not silent: {0}; run `onlooker-agent purge`"
    )]
    Kernel(#[from] KernelError),
    /// An agent that runs has not answered.
    #[error(
        "the token is renewed, but readers by the old keys may read on: the agent that runs has not begun new ones within {} s; restart it, its log says why",
        PATIENCE.as_secs()
    )]
    Late,
}

/// Renews the secret; when this returns no old key is good any more.
///
/// # Errors
/// [`RenewalError`]; the secret may be renewed all the same.
pub fn renew(state: &StateDir, config: &Config) -> Result<(), RenewalError> {
    state.renew_secret()?;
    // Held while the responder is made silent: an agent that starts meanwhile would end the silence.
    let _lock = match state.lock() {
        Ok(lock) => lock,
        Err(IdentityError::InUse(_)) => return wait(state),
        Err(error) => return Err(error.into()),
    };
    if load::silence(&config.kernel)? {
        system::log("no agent runs: the kernel responder is silent until one does");
    }
    if card::release(&config.verbs.holder).is_ok() {
        system::log("no agent runs: the holder has ended its queue pairs and registrations");
    }
    Ok(())
}

fn wait(state: &StateDir) -> Result<(), RenewalError> {
    let begin = Instant::now();
    while state.is_renewed()? {
        if begin.elapsed() > PATIENCE {
            return Err(RenewalError::Late);
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The agent's side. Part of the main loop: one descriptor.
#[derive(Debug)]
pub struct Renewal {
    state: StateDir,
    watch: OwnedFd,
    /// For which secret the keys are, where that is not noted yet.
    made: Option<Secret>,
    /// What was last said of a failure.
    problem: Option<String>,
}

impl Renewal {
    /// Watches the state directory. `is_new`: the directory's keys have just been made, for nobody yet.
    ///
    /// # Errors
    /// As inotify(7) has it.
    pub fn new(state: StateDir, is_new: bool) -> io::Result<Self> {
        let made = if is_new { state.secret().ok() } else { None };
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // A renewed secret is moved into place; one that was removed is made anew by whoever asks for it next.
        inotify::add_watch(&watch, state.path(), WatchFlags::MOVED_TO | WatchFlags::CREATE | WatchFlags::DELETE)?;
        Ok(Self { state, watch, made, problem: None })
    }

    /// Takes what the descriptor tells.
    pub fn take(&self) {
        let mut buffer = [const { MaybeUninit::uninit() }; 4096];
        let mut events = inotify::Reader::new(&self.watch, &mut buffer);
        while events.next().is_ok() {}
    }

    /// Begins new keys if the secret is another one than theirs. True where the control region has moved. What fails is tried again by the next call.
    pub fn follow(&mut self, directory: &mut Directory) -> bool {
        let mut is_moved = false;
        let result = self.begin(directory, &mut is_moved);
        let problem = result.err();
        if let (Some(problem), true) = (&problem, problem != self.problem) {
            system::log(&format!("WARNING: the token was renewed, and old keys may still be good: {problem}"));
        }
        self.problem = problem;
        is_moved
    }

    fn begin(&mut self, directory: &mut Directory, is_moved: &mut bool) -> Result<(), String> {
        let told = |error: IdentityError| error.to_string();
        if !self.state.is_renewed().map_err(told)? {
            return Ok(());
        }
        // Read before the keys are made: if it is renewed meanwhile, they count as those of the one before.
        let secret = self.state.secret().map_err(told)?;
        if self.made.as_ref() != Some(&secret) {
            directory.renew_keys(host::boot_time_ns()).map_err(|error| error.to_string())?;
            *is_moved = true;
            system::log("new keys: readers by an earlier token read nothing any more");
            self.made = Some(secret.clone());
        }
        if directory.is_revoking() {
            return Err("the holder of the RDMA device cannot be asked now to end its queue pairs".to_owned());
        }
        self.state.note_keys(&secret).map_err(told)
    }
}

impl AsFd for Renewal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}
