// SPDX-License-Identifier: Apache-2.0
//! The holder's command line. Exit codes: 0 stopped by a signal, 1 failed while running, 2 wrong usage.
#![deny(unsafe_code)]

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use onlooker_holder::device::Card;
use onlooker_holder::protocol::DEFAULT_SOCKET;
use onlooker_holder::server::{Server, ServerError, log};
use onlooker_holder::state::Core;
use onlooker_local::listen::{HOLDER, ListenError};
use onlooker_settings::service;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// Has libibverbs destroy what was made of a device that was removed. Otherwise it refuses, and the wrapper panics
/// (docs/verbs.md).
const ALLOW_DESTROYING: &str = "RDMAV_ALLOW_DISASSOC_DESTROY";

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Run(PathBuf),
    Help,
    Version,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("cannot receive signals: {0}; start the holder again")]
    Signals(io::Error),
}

fn main() -> ExitCode {
    allow_destroying();
    let done = match arguments(env::args_os().skip(1)) {
        Ok(Asked::Run(socket)) => run(&socket).map_err(|failure| (1, failure.to_string())),
        Ok(Asked::Help) => say(&usage()),
        Ok(Asked::Version) => say(concat!("onlooker-holder ", env!("CARGO_PKG_VERSION"))),
        Err(message) => Err((2, message)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, message)) => {
            log(&message);
            ExitCode::from(code)
        }
    }
}

/// For whoever starts it without the unit, which sets this.
#[allow(unsafe_code)]
fn allow_destroying() {
    if env::var_os(ALLOW_DESTROYING).is_none() {
        // SAFETY: the first thing that `main` does: there is no other thread that could look at the environment.
        unsafe { env::set_var(ALLOW_DESTROYING, "1") };
    }
}

fn usage() -> String {
    format!(
        "Owns an RDMA device, its queue pairs and registered memory for onlooker-agent,\n\
         so that readers can read while the agent restarts.\n\n\
         Usage: onlooker-holder [--socket PATH]\n\n\
         --socket PATH  where it listens for the agent [default: {DEFAULT_SOCKET}]\n\
         --help         this text\n\
         --version      the version"
    )
}

fn say(text: &str) -> Result<(), (u8, String)> {
    let written = writeln!(io::stdout().lock(), "{text}");
    written.map_err(|error| (1, format!("cannot write to standard output: {error}")))
}

fn arguments(mut given: impl Iterator<Item = OsString>) -> Result<Asked, String> {
    let mut socket = PathBuf::from(DEFAULT_SOCKET);
    while let Some(argument) = given.next() {
        match argument.to_str() {
            Some("--help" | "-h") => return Ok(Asked::Help),
            Some("--version" | "-V") => return Ok(Asked::Version),
            Some("--socket") => {
                let path = given.next().filter(|path| !path.is_empty());
                socket = path.ok_or("--socket needs a path; see --help")?.into();
            }
            Some(text) if text.len() > "--socket=".len() && text.starts_with("--socket=") => {
                socket = PathBuf::from(&text["--socket=".len()..]);
            }
            _ => return Err(format!("unknown argument {argument:?}; see --help")),
        }
    }
    Ok(Asked::Run(socket))
}

fn run(path: &Path) -> Result<(), Failure> {
    let stops = signals().map_err(Failure::Signals)?;
    let (listener, listening) = HOLDER.listen(path)?;
    log(&format!("ready: {}", path.display()));
    service::notify("READY=1\nSTATUS=Waiting for the agent to name an address");
    let mut server = Server::new(listener, stops.into(), Core::new(Card::open));
    let ended = server.run();
    service::notify("STOPPING=1");
    drop(listening);
    if ended.is_err() {
        // To destroy what was made of a device that has failed may wait for it. The kernel does it when the process
        // ends.
        std::mem::forget(server);
    } else {
        drop(server);
        log("stopped");
    }
    Ok(ended?)
}

/// A stream that becomes readable with a signal that asks to stop.
fn signals() -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    theirs.set_nonblocking(true)?;
    for signal in [SIGTERM, SIGINT] {
        pipe::register(signal, theirs.try_clone()?)?;
    }
    Ok(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_few_and_others_are_refused() {
        let asked = |given: &[&str]| arguments(given.iter().map(OsString::from));
        assert_eq!(asked(&[]), Ok(Asked::Run(DEFAULT_SOCKET.into())));
        for given in [&["--socket", "/x"][..], &["--socket=/x"], &["--socket", "/y", "--socket", "/x"]] {
            assert_eq!(asked(given), Ok(Asked::Run("/x".into())), "{given:?}");
        }
        assert_eq!((asked(&["--help"]), asked(&["-V"])), (Ok(Asked::Help), Ok(Asked::Version)));
        for given in [&["--socket"][..], &["--socket", ""], &["--socket="], &["run"], &["--sockets", "/x"]] {
            assert!(asked(given).unwrap_err().contains("--help"), "{given:?}");
        }
        assert!(usage().contains(DEFAULT_SOCKET));
    }
}
