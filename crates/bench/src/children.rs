// SPDX-License-Identifier: Apache-2.0
//! Programs started for a measurement: on one core, in one network namespace, ended with their handle, and with this process however it ends.

use crate::machine;
use anyhow::{Context, Result};
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that runs. Dropping it ends it: SIGTERM, and after 3 s SIGKILL, with its children.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    is_paused: bool,
}

/// Starts a program on `core`; in the network namespace of `namespace` where there is one. Its output is thrown away unless `command` says otherwise.
pub(crate) fn start(command: &mut Command, core: usize, namespace: Option<BorrowedFd>) -> Result<Running> {
    let namespace = namespace.map(|fd| fd.as_raw_fd());
    // SAFETY: between fork and exec only system calls are made, on values copied before.
    unsafe {
        command.pre_exec(move || {
            // Ends with the thread that started it, which is the main one.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            machine::pin(core)?;
            match namespace {
                Some(fd) if libc::setns(fd, libc::CLONE_NEWNET) != 0 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            }
        });
    }
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).spawn().with_context(|| format!("starting {name}"))?;
    Ok(Running { child, is_paused: false })
}

/// A command that prints nothing.
pub(crate) fn silent(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Stops it, and the programs that it started, from running; [`Running::resume`] lets them go on.
    pub(crate) fn pause(&mut self) {
        self.signal_all(libc::SIGSTOP);
        self.is_paused = true;
    }

    pub(crate) fn resume(&mut self) {
        self.signal_all(libc::SIGCONT);
        self.is_paused = false;
    }

    fn signal_all(&self, signal: i32) {
        for pid in descendants(self.child.id()) {
            if let Ok(pid) = i32::try_from(pid) {
                // SAFETY: a plain system call; the pids are our child, which is not reaped yet, and its descendants.
                unsafe { libc::kill(pid, signal) };
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_paused {
            self.resume();
        }
        let all = descendants(self.child.id());
        self.signal_all(libc::SIGTERM);
        let end = Instant::now() + Duration::from_secs(3);
        while !self.has_ended() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        // What its children left over; pids are not used again so soon.
        for pid in all.into_iter().skip(1).filter(|pid| fs::exists(format!("/proc/{pid}")).unwrap_or(false)) {
            if let Ok(pid) = i32::try_from(pid) {
                // SAFETY: as above.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
        // It has ended, or does now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process and all that it started, itself first. (Not every kernel has /proc/PID/task/TID/children.)
fn descendants(root: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|text| text.parse::<u32>().ok()) else { continue };
        let text = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The program's name, in parentheses, may have spaces; state and parent follow.
        let parent = text.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        parents.extend(parent.and_then(|word| word.parse::<u32>().ok()).map(|parent| (pid, parent)));
    }
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&of) = found.get(at) {
        at += 1;
        found.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
    }
    found
}
