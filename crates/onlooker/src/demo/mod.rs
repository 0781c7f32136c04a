// SPDX-License-Identifier: Apache-2.0
//! `onlooker demo`: a watched host on this machine, read from outside of it, and the dashboard over it; afterwards nothing of it is left.
//!
//! As root the host is a network namespace with an agent, its BPF responder and a sample program in it; else an agent on loopback. Everything is a child
//! process, stopped by pid: one that is killed cannot be one that cleans up, so children end with the demo (`within`), and the next demo removes what
//! the kernel does not (`place`).

mod api;
mod ending;
mod network;
mod place;
mod process;
mod sample;
mod settings;
mod show;
mod tell;
mod watched;
pub(crate) mod within;

use crate::number::parse_duration;
use crate::{End, Failure};
use ending::{Ending, Why};
use place::Place;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tell::Teller;

/// Show Onlooker at work: a watched host and a sample program on this machine, and the dashboard over them
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Address of the dashboard; the next free port where this one is taken
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7180")]
    listen: SocketAddr,
    /// Time between two readings of the watched host, 1ms at least
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration)]
    interval: Duration,
    /// Have a made-up network of eight switches report telemetry to the watched host: paths of flows, drops, a loop
    #[arg(long)]
    telemetry: bool,
    /// Say everything in JSON, a document a line
    #[arg(long)]
    json: bool,
    /// End after this time; otherwise Ctrl-C ends it
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    keep_going_for: Option<Duration>,
}

/// Why there is no demo.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error("cannot {operation} {object}: {source}", object = object.display())]
    System { operation: &'static str, object: PathBuf, source: std::io::Error },
    #[error("no {name} beside {beside} or on PATH: `make build` makes it", beside = beside.display())]
    NoProgram { name: &'static str, beside: PathBuf },
    #[error("{name} {what}; the last that it said:\n    {tail}")]
    Process { name: &'static str, what: String, tail: String },
    #[error("all {most} demos under {root} are running: end one", root = root.display())]
    NoPlace { root: PathBuf, most: u8 },
    #[error("{dir} is not a directory that only this user can write to: remove it", dir = .0.display())]
    NotOurs(PathBuf),
    #[error("{host} is read, but after {seconds} s its values do not move: {said}")]
    Still { host: &'static str, seconds: u64, said: String },
    #[error("no port from {0} on is free: give another with --listen")]
    NoPort(SocketAddr),
    #[error("the watched host cannot be read more often than every 1 ms: give a longer --interval")]
    Interval,
    /// Not a failure: the demo is to end.
    #[error("{}", .0.text())]
    Ended(Why),
}

/// A program of ours: beside this executable, else on PATH.
fn beside(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?.parent().map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    own.into_iter().chain(std::env::split_paths(&path)).map(|dir| dir.join(name)).find(|program| program.is_file())
}

/// Shows it until it is to end.
pub(crate) fn run(arguments: &Arguments) -> Result<End, Failure> {
    if arguments.interval < Duration::from_millis(1) {
        return Err(DemoError::Interval.into());
    }
    let mut ending = Ending::watch()?;
    let mut teller = Teller::new(arguments.json);
    let (mut place, found) = Place::take(&place::root())?;
    place.note(|_| {})?;
    for removed in &found.removed {
        teller.step("removed", &format!("removed what a killed demo had left: {removed}"));
    }
    for number in &found.running {
        teller.note("running", &format!("another demo is running (number {number}); this one runs beside it"));
    }
    for foreign in &found.foreign {
        teller.note("foreign", &format!("{foreign} is there and no demo's: left alone, another name is used"));
    }
    let mut show = show::Show::new(place, arguments.telemetry);
    let result = show.all(arguments, &mut ending, &mut teller);
    let text = show.end();
    let remains = show.place.remains();
    let why = match &result {
        Err(DemoError::Ended(why)) => why.text(),
        _ => "failed",
    };
    let text = if remains.is_empty() { text } else { format!("still there: {}", remains.join(", ")) };
    teller.ended(why, &text, &remains);
    match result {
        Err(DemoError::Ended(_)) if remains.is_empty() => Ok(End::Done),
        Ok(()) | Err(DemoError::Ended(_)) => Ok(End::Incomplete),
        Err(error) => Err(error.into()),
    }
}
