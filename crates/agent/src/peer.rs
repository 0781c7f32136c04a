// SPDX-License-Identifier: Apache-2.0
//! Who is at the other end of a registration connection.
//!
//! SO_PEERCRED tells who connected, whoever holds the socket by now. SO_PEERPIDFD is the same process, also when another has got its number meanwhile: what
//! /proc has under that number is believed if the process still runs after it was read. Before Linux 6.5 pidfd_open takes whoever has the number: a child that
//! holds the socket of a process that is gone may then pass as another's name, start time and groups. The uid, which decides about memory, is always the one that
//! connected.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::sys::socket::{getsockopt, sockopt::PeerPidfd};
use onlooker_local::registration::{Code, Refusal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use onlooker_metrics::procfs::{process_stat, read_small};

use crate::facts::{Peer, Process};

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

/// Whether descriptors have run out.
pub fn is_exhausted(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).map(Some).contains(&error.raw_os_error())
}

/// Why a peer was not identified: it cannot be seen, or the agent has no descriptor left to look with.
fn refusal(what: &str, error: impl Into<io::Error>) -> Refusal {
    let error = error.into();
    let (code, hint) = if is_exhausted(&error) {
        (Code::Internal, "the agent is out of descriptors: try again, or raise LimitNOFILE")
    } else {
        (Code::Denied, "the process must live in the agent's pid namespace, or in one below it")
    };
    Refusal::new(code, format!("{what}: {error}; {hint}"))
}

fn pidfd_of(socket: &impl AsFd, pid: Pid) -> Result<OwnedFd, Refusal> {
    match getsockopt(socket, PeerPidfd) {
        Ok(pidfd) => Ok(pidfd),
        Err(nix::Error::ENOPROTOOPT) => pidfd_open(pid, PidfdFlags::empty()).map_err(|e| refusal("pidfd_open", e)),
        Err(error) => Err(refusal("SO_PEERPIDFD", error)),
    }
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
    !matches!(poll(&mut polled, Some(&Timespec::default())), Ok(0))
}

/// Finds out who is connected.
///
/// # Errors
/// `denied` for a process that the agent cannot see or that is gone already, `internal` where the agent is out of descriptors.
pub fn identify(socket: impl AsFd) -> Result<Connected, Refusal> {
    let credentials = rustix::net::sockopt::socket_peercred(&socket).map_err(|e| refusal("SO_PEERCRED", e))?;
    let pidfd = pidfd_of(&socket, credentials.pid)?;
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
    if has_ended(&pidfd) {
        return Err(refusal("process state", Errno::SRCH));
    }
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

    #[test]
    fn a_child_does_not_speak_for_a_process_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        let program = "import os, socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nif os.fork() == 0: s.recv(1)";
        let mut parent = std::process::Command::new("python3");
        let parent = parent.args(["-c", program]).arg(dir.path().join("socket")).status().unwrap();
        assert!(parent.success());
        let (held, _) = listener.accept().unwrap();
        held.set_nonblocking(true).unwrap();
        let read = std::io::Read::read(&mut &held, &mut [0]);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock, "the child holds it");
        assert_eq!(identify(&held).unwrap_err().code, Code::Denied);
    }
}
