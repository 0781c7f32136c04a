// SPDX-License-Identifier: Apache-2.0
//! The process: privileges, limits, log.

use std::io::{self, Write};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
    set_capabilities, set_no_new_privs,
};

/// Writes a line to standard error, which a service manager takes to its journal. Only starts, stops and what an operator must know;
/// what peers do is counted, never logged.
pub fn log(message: &str) {
    let _ = writeln!(io::stderr().lock(), "onlooker-agent: {message}");
}

/// What loading and attaching the kernel responder needs: maps and programs, devices, kernel memory for its collectors.
pub const KERNEL_CAPABILITIES: CapabilitySet =
    CapabilitySet::BPF.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::PERFMON);

/// Gives up every capability but `kept`, of which none is in effect, and sets no_new_privs. Reading procfs, peer credentials and pidfds needs none.
/// Before any thread begins, since capabilities are a thread's own.
///
/// # Errors
/// As capset and prctl have it.
pub fn drop_privileges(kept: CapabilitySet) -> io::Result<()> {
    let none = CapabilitySet::empty();
    let permitted = capabilities(None)?.permitted & kept;
    set_capabilities(None, CapabilitySets { effective: none, permitted, inheritable: none })?;
    set_no_new_privs(true)?;
    Ok(())
}

/// Gives up what the calling thread has left; for threads that serve peers.
pub fn drop_thread_capabilities() {
    let none = CapabilitySet::empty();
    // A process that has nothing may always give up nothing.
    let _ = set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none });
}

/// Has what was kept of `wanted` in effect while `act` runs; what it starts has it, too, also where we are not root.
pub fn with_capabilities<T>(wanted: CapabilitySet, act: impl FnOnce() -> T) -> T {
    let Ok(before) = capabilities(None) else { return act() };
    let raised = before.permitted & wanted;
    let sets = CapabilitySets { effective: before.effective | raised, inheritable: raised, ..before };
    if set_capabilities(None, sets).is_err() {
        return act();
    }
    // Root's programs get theirs without; where ambient ones are forbidden, nothing is lost by trying.
    for capability in raised.iter() {
        let _ = configure_capability_in_ambient_set(capability, true);
    }
    let result = act();
    let _ = clear_ambient_capability_set();
    let _ = set_capabilities(None, before);
    result
}

/// Raises the soft limit of open files to the hard one and returns it.
#[must_use]
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
