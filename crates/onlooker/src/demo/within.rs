// SPDX-License-Identifier: Apache-2.0
//! `onlooker within` (hidden): becomes another program, in a network namespace, that ends when whoever started it does.
//!
//! The demo starts everything through this: the death signal (prctl(2), `PR_SET_PDEATHSIG`) must be set in the child itself and survives the exec.

use crate::Failure;
use crate::demo::DemoError;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setpriority_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of the nice values -20 to 19.
const FIRST: i32 = -15;

/// Run a program that ends with its parent
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The process that started it
    #[arg(long)]
    parent: i32,
    /// Network namespace to be in
    #[arg(long)]
    net: Option<PathBuf>,
    /// Ahead of other processes, where that is allowed (nice(2))
    #[arg(long)]
    first: bool,
    /// Program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<std::ffi::OsString>,
}

/// The command that does `program` in this way, in the network namespace `net`; the caller adds the program's arguments. To be spawned by the main thread: the signal comes when
/// the thread that spawned it ends.
pub(super) fn command(net: Option<&Path>, first: bool, program: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("within").arg("--parent").arg(std::process::id().to_string());
    if let Some(net) = net {
        command.arg("--net").arg(net);
    }
    if first {
        command.arg("--first");
    }
    command.arg("--").arg(program);
    command
}

/// Does not return where it succeeds.
pub(crate) fn run(arguments: &Arguments) -> Result<crate::End, Failure> {
    let system = |operation, object: &Path, source| DemoError::System { operation, object: object.into(), source };
    let program = Path::new(&arguments.program[0]);
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| system("have the parent's end told to", program, error.into()))?;
    // Who ended before that was set is not told of any more.
    if getppid().map(Pid::as_raw_nonzero).map(std::num::NonZeroI32::get) != Some(arguments.parent) {
        return Ok(crate::End::Incomplete);
    }
    if let Some(net) = &arguments.net {
        let namespace = File::open(net).map_err(|error| system("open the network namespace", net, error))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| system("enter the network namespace", net, error.into()))?;
    }
    if arguments.first {
        // Without the right to it, it is an ordinary process.
        let _ = setpriority_process(None, FIRST);
    }
    let error = Command::new(program).args(&arguments.program[1..]).exec();
    Err(system("run", program, error).into())
}
