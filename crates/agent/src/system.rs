// SPDX-License-Identifier: Apache-2.0
//! The process and its service manager: privileges, limits, readiness, log.

use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

/// Writes a line to standard error, which a service manager takes to its journal. Only starts, stops and what an operator must know;
/// what peers do is counted, never logged.
pub fn log(message: &str) {
    let _ = writeln!(io::stderr().lock(), "onlooker-agent: {message}");
}

/// Gives up every capability: reading procfs, peer credentials and pidfds needs none. Before any thread begins, since capabilities are a thread's own.
///
/// # Errors
/// As capset and prctl have it.
pub fn drop_privileges() -> io::Result<()> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    Ok(())
}

/// Raises the soft limit of open files to the hard one and returns it.
#[must_use]
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Tells the service manager something (sd_notify(3)); without one this does nothing.
pub fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    if let Ok(address) = address {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}
