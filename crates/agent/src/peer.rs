// SPDX-License-Identifier: Apache-2.0
//! Who is at the other end of a registration connection.
//!
//! SO_PEERCRED tells who connected, whoever holds the socket by now. The pidfd tells when that process ends. If it ended between connect and
//! pidfd_open, and its pid went to another process, we watch that one while a child of the first may still hold the socket: the name, the start
//! time and the groups are then another's. The uid, which decides about memory, is the one that connected.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::host::read_small;
use crate::procfs::process_stat;
use crate::protocol::{Code, Refusal};
use crate::registry::{Peer, Process};

/// A connected process.
#[derive(Debug)]
pub struct Connected {
    /// As the registry wants it.
    pub peer: Peer,
    /// Its name (comm).
    pub program: String,
    /// All its groups.
    pub groups: Vec<u32>,
    /// Readable when it ends.
    pub pidfd: OwnedFd,
}

/// Why a peer was not identified: it cannot be seen, or the agent has no descriptor left to look with.
fn refusal(what: &str, error: impl Into<io::Error>) -> Refusal {
    let error = error.into();
    let exhausted = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).map(Some).contains(&error.raw_os_error());
    let (code, hint) = if exhausted {
        (Code::Internal, "the agent is out of descriptors: try again, or raise LimitNOFILE")
    } else {
        (Code::Denied, "the process must live in the agent's pid namespace, or in one below it")
    };
    Refusal::new(code, format!("{what}: {error}; {hint}"))
}

/// Finds out who is connected.
///
/// # Errors
/// `denied` for a process that the agent cannot see or that is gone already, `internal` where the agent is out of descriptors.
pub fn identify(socket: impl AsFd) -> Result<Connected, Refusal> {
    let credentials = rustix::net::sockopt::socket_peercred(socket).map_err(|e| refusal("SO_PEERCRED", e))?;
    let pidfd = pidfd_open(credentials.pid, PidfdFlags::empty()).map_err(|e| refusal("pidfd_open", e))?;
    let pid = credentials.pid.as_raw_nonzero().get();
    let stat = read_small(&format!("/proc/{pid}/stat")).map_err(|e| refusal("process state", e))?;
    let (program, start_ticks) =
        process_stat(stat.as_bytes()).ok_or_else(|| refusal("process state", io::Error::other("not understood")))?;
    let mut groups = vec![credentials.gid.as_raw()];
    if let Ok(status) = read_small(&format!("/proc/{pid}/status"))
        && let Some(line) = status.lines().find_map(|line| line.strip_prefix("Groups:"))
    {
        groups.extend(line.split_whitespace().filter_map(|gid| gid.parse::<u32>().ok()));
    }
    // Where the kernel lets us look (same user), the executable's inode tells an exec even if the name stays.
    let image = match std::fs::metadata(format!("/proc/{pid}/exe")) {
        Ok(exe) => format!("{program}\0{}:{}", exe.dev(), exe.ino()),
        Err(_) => program.clone(),
    };
    let process = Process { pid: u32::try_from(pid).unwrap_or(0), start_ticks };
    Ok(Connected { peer: Peer { process, uid: credentials.uid.as_raw(), image }, program, groups, pidfd })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_shortage_is_not_the_peers_fault() {
        assert_eq!(refusal("pidfd_open", Errno::MFILE).code, Code::Internal);
        assert_eq!(refusal("pidfd_open", Errno::SRCH).code, Code::Denied);
    }

    #[test]
    fn we_know_ourselves() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (a, b) = (identify(&ours).unwrap(), identify(&theirs).unwrap());
        assert_eq!(a.peer, b.peer);
        assert_eq!(a.peer.process.pid, std::process::id());
        assert!(a.peer.process.start_ticks > 0 && !a.program.is_empty() && a.peer.image.starts_with(&a.program));
        assert_eq!(a.peer.uid, rustix::process::getuid().as_raw());
        assert!(a.groups.contains(&rustix::process::getgid().as_raw()));
    }
}
