// SPDX-License-Identifier: Apache-2.0
//! The loader as a child: this very program run again, told its settings over standard input, answering with a report on standard output.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use super::load::Report;
use crate::config;

/// This program, also where its file has been replaced by a newer one.
const OURSELVES: &str = "/proc/self/exe";

/// What the loader shall do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// [`super::load::load`], replacing what cannot be taken over.
    Replace,
    /// [`super::load::load`], for an agent that runs.
    PutRight,
    /// [`super::collect::collect`].
    Collect,
    /// The same, and the iterator of TCP connections; `true`: those that end, too.
    CollectWithConnections(bool),
}

/// A report with all schemas is some 30 KiB; with this nobody waits.
const PIPE_BYTES: usize = 1 << 20;

/// Starts the loader.
///
/// # Errors
/// The process does not start.
pub fn spawn(config: &config::Kernel, task: Task) -> io::Result<Child> {
    let settings = serde_json::to_vec(config)?;
    let mut command = Command::new(OURSELVES);
    command.arg0("onlooker-agent").args(["load", "--json", "--settings-from-stdin"]);
    match task {
        Task::Replace => drop(command.arg("--replace")),
        Task::PutRight => {}
        Task::Collect => drop(command.arg("--collect")),
        Task::CollectWithConnections(false) => drop(command.args(["--collect", "--connections"])),
        Task::CollectWithConnections(true) => drop(command.args(["--collect", "--connections", "--short-lived"])),
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(stdout) = &child.stdout {
        // Smaller where the system forbids it, which still is more than most reports.
        let _ = rustix::pipe::fcntl_setpipe_size(stdout, PIPE_BYTES);
    }
    if let Some(mut stdin) = child.stdin.take() {
        // Less than a pipe holds. If it ended before it read this, the report will be missing.
        let _ = stdin.write_all(&settings);
    }
    Ok(child)
}

/// Waits for its end.
#[must_use]
pub fn finish(child: Child) -> Report {
    let failed = |error: String| Report { error: Some(error), ..Report::default() };
    match child.wait_with_output() {
        Ok(output) => serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| failed(format!("the loader ended with {} and without a report", output.status))),
        Err(error) => failed(format!("waiting for the loader: {error}")),
    }
}

/// Runs the loader to its end.
#[must_use]
pub fn run(config: &config::Kernel, task: Task) -> Report {
    match spawn(config, task) {
        Ok(child) => finish(child),
        Err(error) => Report { error: Some(format!("starting the loader: {error}")), ..Report::default() },
    }
}
