// SPDX-License-Identifier: Apache-2.0
//! Binaries of this workspace, and processes that are gone when their value is.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process};

use crate::until;

/// A binary of this workspace, built (once) into the target directory that the test itself is in. With `ONLOOKER_BUILT` set it has been built: cargo would build what it
/// depends on again, with the features of this one package.
#[must_use]
pub fn binary(package: &str, name: &str) -> PathBuf {
    built(package, "--bin", name, Path::new(""))
}

/// As [`binary`], for an example.
#[must_use]
pub fn example(package: &str, name: &str) -> PathBuf {
    built(package, "--example", name, Path::new("examples"))
}

fn built(package: &str, kind: &str, name: &str, folder: &Path) -> PathBuf {
    static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    // .../target/debug/deps/test-... -> .../target/debug, where programs such as benches are themselves.
    let test = std::env::current_exe().unwrap();
    let directory = test.parent().expect("in a target directory");
    let profile = directory.ancestors().find(|path| !path.ends_with("deps")).expect("in a target directory");
    let path = profile.join(folder).join(name);
    let is_built = std::env::var_os("ONLOOKER_BUILT").is_some_and(|built| !built.is_empty()) && path.exists();
    if is_built || built.contains(&path) {
        return path;
    }
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--package", package, kind, name]);
    build.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")]);
    build.arg("--target-dir").arg(profile.parent().expect("the target directory"));
    if profile.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().expect("cargo runs").success(), "{name} does not build");
    built.insert(path.clone());
    path
}

/// Runs a command in the caller's namespaces and returns what it printed. It must succeed.
pub fn run(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command).args(arguments).output().unwrap_or_else(|error| panic!("{command}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command} {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// A process; killed and waited for when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: Arc<Mutex<String>>,
    /// Length of what has been looked at of `log`.
    heard: usize,
    /// Ends with the process's standard error.
    listener: JoinHandle<()>,
}

impl Process {
    /// Starts it and waits for a line of its standard error that contains `ready`; gives that line, too.
    pub fn start(command: &mut Command, ready: &str) -> (Self, String) {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        let line = loop {
            let mut line = String::new();
            if lines.read_line(&mut line).unwrap() == 0 {
                let status = child.wait();
                panic!("{:?} ended ({status:?}) before it said `{ready}`:\n{seen}", command.get_program());
            }
            seen.push_str(&line);
            if line.contains(ready) {
                break line;
            }
        };
        let heard = seen.len();
        let log = Arc::new(Mutex::new(seen));
        let more = log.clone();
        // Whoever writes to a closed pipe must not end of it.
        let listener = thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let mut log = more.lock().unwrap_or_else(PoisonError::into_inner);
                log.push_str(&line);
                log.push('\n');
            }
        });
        (Self { child, log, heard, listener }, line)
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said on standard error.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it had said when it was ready; later, when [`Process::until_says`] returned.
    #[must_use]
    pub fn heard(&self) -> String {
        self.log()[..self.heard].to_owned()
    }

    /// Waits until it says a line that contains `text`; gives what it has said beyond [`Process::heard`], with that line.
    pub fn until_says(&mut self, text: &str) -> String {
        let from = self.heard;
        let said = until(&format!("it says `{text}`"), || {
            let has_ended = self.listener.is_finished();
            let log = self.log();
            let end = log[from..].find(text).and_then(|at| Some(from + at + log[from + at..].find('\n')? + 1));
            assert!(end.is_some() || !has_ended, "it ended before it said `{text}`:\n{log}");
            Some(log[from..end?].to_owned())
        });
        self.heard += said.len();
        said
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, signal).unwrap();
    }

    /// SIGTERM, and its end.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.child.wait().unwrap()
    }

    /// [`Process::terminate`], and all that it has said beyond [`Process::heard`].
    pub fn terminate_and_hear(mut self) -> (ExitStatus, String) {
        self.signal(Signal::TERM);
        let status = self.child.wait().unwrap();
        until("the end of its standard error", || self.listener.is_finished().then_some(()));
        (status, self.log()[self.heard..].to_owned())
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
