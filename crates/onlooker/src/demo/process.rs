// SPDX-License-Identifier: Apache-2.0
//! The processes of a demo: started with a log each, stopped by pid, recognised after the demo's own end by pid and start time.

use super::ending::Ending;
use super::{DemoError, within};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The one that reads.
pub(super) const CONTROLLER: &str = "controller";
/// How long a process may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);
/// How long it may take to say that it is ready.
const PATIENCE: Duration = Duration::from_secs(20);
const TAIL_LINES: usize = 8;

/// A process that another demo may have left: a pid alone could be anybody's by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) pid: i32,
    /// Field 22 of `/proc/PID/stat` (proc(5)): ticks since boot.
    started: u64,
}

impl Mark {
    fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold anything, but the last bracket is its end; state is field 3.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let is_dead = matches!(fields.next()?, "Z" | "X");
        let started = fields.nth(18)?.parse().ok()?;
        (!is_dead).then_some(Self { pid, started })
    }

    fn is_there(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Ends it if it is still there, and waits until it is gone. Whether it was there.
    pub(super) fn kill(self) -> bool {
        if !self.is_there() {
            return false;
        }
        signal(self.pid, Signal::KILL);
        let end = Instant::now() + GRACE;
        while self.is_there() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// A child of the demo.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: &'static str,
    child: Child,
    log: PathBuf,
    pub(super) ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `program` in a group of its own: a Ctrl-C goes to the demo, which stops its processes in order.
    pub(super) fn start(
        name: &'static str,
        net: Option<&Path>,
        program: &Path,
        arguments: &[&str],
        environment: &[(&str, &Path)],
        log: PathBuf,
    ) -> Result<Self, DemoError> {
        let system = |operation, object: &Path, source| DemoError::System { operation, object: object.into(), source };
        let out = File::create(&log).map_err(|source| system("make", &log, source))?;
        let err = out.try_clone().map_err(|source| system("make", &log, source))?;
        // The reader shares its cores with what it reads here, which it would not elsewhere: its lateness would be taken for the host's.
        let mut command = within::command(net, name == CONTROLLER, program);
        command.args(arguments).envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let child = command.spawn().map_err(|source| system("start", program, source))?;
        Ok(Self { name, child, log, ended: None })
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(super) fn mark(&self) -> Option<Mark> {
        Mark::of(self.pid())
    }

    /// What it has written.
    pub(super) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Whether it runs; tells the end once.
    pub(super) fn has_just_ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_some() {
            return None;
        }
        self.ended = self.child.try_wait().ok().flatten();
        self.ended
    }

    /// The first line of its log with `word` in it.
    pub(super) fn until_says(&mut self, word: &str, ending: &Ending) -> Result<String, DemoError> {
        let end = Instant::now() + PATIENCE;
        loop {
            let ended = self.has_just_ended();
            if let Some(line) = self.log().lines().find(|line| line.contains(word)) {
                return Ok(line.to_owned());
            }
            if let Some(status) = ended {
                return Err(self.failed(status.to_string()));
            }
            if Instant::now() > end {
                return Err(self.failed(format!("is not ready after {} s", PATIENCE.as_secs())));
            }
            ending.sleep(Duration::from_millis(4))?;
        }
    }

    /// Waits for its end; whether that was a success.
    pub(super) fn finish(&mut self, ending: &Ending) -> Result<bool, DemoError> {
        loop {
            if let Some(status) = self.ended.or_else(|| self.has_just_ended()) {
                return Ok(status.success());
            }
            ending.sleep(Duration::from_millis(4))?;
        }
    }

    /// An error with the last lines of its log.
    pub(super) fn failed(&self, what: String) -> DemoError {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n    ");
        DemoError::Process { name: self.name, what, tail: crate::output::shown(&tail).replace("\\n", "\n") }
    }

    /// SIGTERM, and SIGKILL for who does not mind it.
    pub(super) fn stop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        signal(self.pid(), Signal::TERM);
        let end = Instant::now() + GRACE;
        while self.has_just_ended().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        if self.ended.is_none() {
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_a_pid_and_its_start() {
        let own = Mark::of(std::process::id().cast_signed()).unwrap();
        assert!(own.is_there());
        // Another process with the same number: not ours, not killed.
        let other = Mark { started: own.started + 1, ..own };
        assert!(!other.is_there() && !other.kill());
    }
}
