// SPDX-License-Identifier: Apache-2.0
//! Checks of this machine: what the responders and the agent need.

use super::Check;
use onlooker_local::registration::{Answer, DEFAULT_SOCKET, Refused, SOCKET_VARIABLE};
use onlooker_local::{Client, Lost};
use onlooker_region::limits::MAX_NAME_BYTES;
use onlooker_wire::ROCE_PORT;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Oldest kernel that the kernel responder is tested on.
const TESTED_KERNEL: (u32, u32) = (6, 1);
/// What registering a few slabs with a card takes.
const MEMLOCK_BYTES: u64 = 64 << 20;
/// From linux/magic.h.
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;
/// An agent answers within microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// All of them, in the order of the report.
pub(super) fn checks(bpf_file_system: &Path) -> Vec<Check> {
    let rdma = devices(Path::new("/sys/class/infiniband"));
    vec![
        kernel(&rustix::system::uname().release().to_string_lossy()),
        btf(Path::new("/sys/kernel/btf/vmlinux")),
        bpffs(bpf_file_system),
        memlock(getrlimit(Resource::Memlock).current, !rdma.is_empty()),
        clock_source(Path::new("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        agent_socket(&std::env::var_os(SOCKET_VARIABLE).map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from)),
        roce_port(),
        rdma_devices(&rdma),
        af_xdp(),
    ]
}

fn kernel(release: &str) -> Check {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    match version {
        Some(version) if version >= TESTED_KERNEL => Check::ok("kernel", release),
        _ => Check::warn(
            "kernel",
            format!("{release}, older than 6.1 or unknown"),
            "reads over TCP work; the kernel responder is tested from 6.1 on",
        ),
    }
}

fn btf(path: &Path) -> Check {
    if path.exists() {
        Check::ok("BTF", path.display().to_string())
    } else {
        let advice = "computed kernel metrics need a kernel with CONFIG_DEBUG_INFO_BTF; without it they are sampled";
        Check::warn("BTF", format!("{} is missing", path.display()), advice)
    }
}

fn bpffs(path: &Path) -> Check {
    match rustix::fs::statfs(path) {
        Ok(stat) if u64::try_from(stat.f_type).is_ok_and(|magic| magic & 0xffff_ffff == BPF_FS_MAGIC) => {
            bpffs_mode(path, fs::metadata(path).map_or(0, |metadata| metadata.mode()))
        }
        Ok(_) => Check::warn(
            "bpffs",
            format!("not mounted at {}", path.display()),
            "the kernel responder pins its programs there: mount -t bpf -o mode=0700 bpf /sys/fs/bpf",
        ),
        Err(errno) => Check::warn(
            "bpffs",
            format!("{}: {errno}", path.display()),
            "the kernel responder needs a kernel with CONFIG_BPF_SYSCALL and bpffs mounted there",
        ),
    }
}

/// Whoever may write there can take the responder's directory before it does. The agent then refuses it.
fn bpffs_mode(path: &Path, mode: u32) -> Check {
    let path = path.display();
    if mode & 0o022 == 0 {
        return Check::ok("bpffs", format!("mounted at {path}"));
    }
    let advice = "users other than root can be in the way of the kernel responder there: chmod 0700 it, or mount it with mode=0700 as systemd does";
    Check::warn("bpffs", format!("mounted at {path} with mode {:04o}", mode & 0o7777), advice)
}

fn memlock(limit: Option<u64>, has_card: bool) -> Check {
    let shown = limit.map_or_else(|| "unlimited".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    if limit.is_none_or(|bytes| bytes >= MEMLOCK_BYTES) {
        Check::ok("memlock", shown)
    } else if has_card {
        let advice = "a card pins the memory that it serves: LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited";
        Check::warn("memlock", shown, advice)
    } else {
        // BPF memory counts as the control group's since Linux 5.11.
        Check::ok("memlock", format!("{shown}; only cards need more"))
    }
}

fn clock_source(path: &Path) -> Check {
    match fs::read_to_string(path).map(|text| text.trim().to_owned()) {
        Ok(name) if matches!(name.as_str(), "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" | "pit") => Check::warn(
            "clock source",
            format!("{name}: reading the time takes a microsecond or more"),
            "every commit and sample reads the time; find out in dmesg why tsc was given up",
        ),
        Ok(name) => Check::ok("clock source", name),
        Err(error) => Check::warn("clock source", format!("unknown: {error}"), "nothing, if times look right"),
    }
}

/// Says hello as a program would, and nothing else.
fn agent_socket(path: &Path) -> Check {
    let shown = path.display().to_string();
    let check = |what: String, advice: &str| Check::fail("agent socket", format!("{shown}{what}"), advice);
    match Client::open(path, PATIENCE).and_then(|client| client.hello(crate::host::READER)) {
        Ok(Ok(Answer::Hello { agent, .. })) => {
            let version: String = agent.chars().take(MAX_NAME_BYTES).collect();
            Check::ok("agent socket", format!("{shown}, agent {version}"))
        }
        Ok(Err(Refused { message, .. })) => {
            let message: String = message.chars().take(200).collect();
            check(format!(" refuses: {message}"), "see [policy] in agent.toml")
        }
        Ok(Ok(_)) | Err(Lost::Answer { .. } | Lost::Closed | Lost::Hello(_)) => {
            check(" does not answer as an agent".to_owned(), "see what owns it: ss -xlp")
        }
        Err(Lost::Silent { .. }) => check(": no answer within 2 s".to_owned(), "see the agent's log"),
        Err(Lost::System { source, .. }) => match source.kind() {
            ErrorKind::NotFound => Check::warn(
                "agent socket",
                format!("{shown} is not there"),
                "programs of this machine cannot be watched until onlooker-agent runs (ONLOOKER_SOCKET names another place)",
            ),
            ErrorKind::ConnectionRefused => check(": nobody listens".to_owned(), "the agent has died: start it again"),
            ErrorKind::PermissionDenied => Check::warn(
                "agent socket",
                format!("{shown}: no permission"),
                "run as a user that the agent's [policy] allows",
            ),
            _ => check(format!(": {source}"), "see the agent's log"),
        },
    }
}

/// For `[read] sockets = "af_xdp"`: nobody needs it.
fn af_xdp() -> Check {
    match onlooker_xsk::survey() {
        Ok(devices) => {
            let names = |is_free| {
                let names = devices.iter().filter(|(_, free)| *free == is_free).map(|(name, _)| name.as_str());
                Some(names.collect::<Vec<_>>().join(", ")).filter(|names| !names.is_empty())
            };
            let free = names(true).map_or("no device is free".to_owned(), |names| format!("can be had on {names}"));
            let taken = names(false).map(|names| format!("; XDP is taken on {names}"));
            Check::ok("AF_XDP", free + &taken.unwrap_or_default())
        }
        Err(error) => Check::ok("AF_XDP", format!("cannot be had: {error}")),
    }
}

fn roce_port() -> Check {
    let tables = ["/proc/net/udp", "/proc/net/udp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let inodes: BTreeSet<u64> = tables.iter().flat_map(|table| sockets(table, ROCE_PORT)).collect();
    if inodes.is_empty() {
        return Check::ok("port 4791", "free");
    }
    let owners: BTreeSet<String> = inodes.iter().filter_map(|inode| owner(*inode)).collect();
    let by = if owners.is_empty() {
        "by the kernel (rdma_rxe does this) or a process that this user cannot see".to_owned()
    } else {
        format!("by {}", owners.into_iter().collect::<Vec<_>>().join(", "))
    };
    Check::warn(
        "port 4791",
        format!("in use {by}"),
        "only RDMA devices need this port, those who read from one (--by soft), and `[kernel] roce`; all else has a port of its own",
    )
}

/// Inodes of the sockets of a /proc/net/udp table that are bound to `port`.
fn sockets(table: &str, port: u16) -> Vec<u64> {
    let of_line = |line: &str| {
        let mut columns = line.split_whitespace();
        let local = columns.nth(1)?;
        let (_, local_port) = local.rsplit_once(':')?;
        let inode = columns.nth(7)?;
        (u16::from_str_radix(local_port, 16) == Ok(port)).then(|| inode.parse().ok())?
    };
    table.lines().skip(1).filter_map(of_line).collect()
}

/// `name (pid)` of the process that has a socket open.
fn owner(inode: u64) -> Option<String> {
    let link = format!("socket:[{inode}]");
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) else { continue };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        let mut links = descriptors.flatten().filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
        if links.any(|target| target.as_os_str() == link.as_str()) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("{} ({pid})", name.trim()));
        }
    }
    None
}

fn devices(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn rdma_devices(names: &[String]) -> Check {
    let none = || "none: hosts are read through the kernel responder or TCP".to_owned();
    Check::ok("RDMA devices", if names.is_empty() { none() } else { names.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, listen, recvfrom, send,
        socket_with,
    };
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn kernels_are_compared_as_numbers() {
        for (release, status) in [
            ("6.1.0-18-amd64", Status::Ok),
            ("6.18.3", Status::Ok),
            ("10.0", Status::Ok),
            ("5.15.0", Status::Warn),
            ("odd", Status::Warn),
        ] {
            assert_eq!(kernel(release).status, status, "{release}");
        }
    }

    #[test]
    fn what_is_missing_warns_and_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let nothing = dir.path().join("nothing");
        for check in
            [btf(&nothing), bpffs(&nothing), bpffs(dir.path()), clock_source(&nothing), memlock(Some(65_536), true)]
        {
            assert!(check.status == Status::Warn && !check.advice.is_empty(), "{check:?}");
        }
        for (mode, status) in
            [(0o40700, Status::Ok), (0o40755, Status::Ok), (0o41777, Status::Warn), (0o40720, Status::Warn)]
        {
            let check = bpffs_mode(dir.path(), mode);
            assert_eq!((check.status, check.advice.is_empty()), (status, status == Status::Ok), "{mode:o}");
        }
        assert_eq!((memlock(None, true).status, memlock(Some(65_536), false).status), (Status::Ok, Status::Ok));
        assert!(devices(&nothing).is_empty());
        fs::create_dir(dir.path().join("mlx5_0")).unwrap();
        assert_eq!(rdma_devices(&devices(dir.path())).detail, "mlx5_0");
        let file = dir.path().join("clock");
        fs::write(&file, "hpet\n").unwrap();
        assert_eq!(clock_source(&file).status, Status::Warn);
        fs::write(&file, "tsc\n").unwrap();
        assert_eq!(clock_source(&file), Check::ok("clock source", "tsc"));
    }

    #[test]
    fn the_owner_of_a_udp_port_is_named() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let table = fs::read_to_string("/proc/net/udp").unwrap();
        let inodes = sockets(&table, port);
        assert_eq!(inodes.len(), 1, "{table}");
        assert!(owner(inodes[0]).unwrap().ends_with(&format!("({})", std::process::id())));
        assert!(sockets(&table, 1).is_empty());
        assert!(sockets("sl local\n 0: x:12B7\n1: 0:12B7 0 0 0 0 0 0 0 nan\n", ROCE_PORT).is_empty());
    }

    /// An agent's socket that answers one hello with `answer`, or not at all.
    fn listening(path: &Path, answer: Option<&'static str>) -> std::thread::JoinHandle<()> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        listen(&socket, 1).unwrap();
        std::thread::spawn(move || {
            let peer = rustix::net::accept(socket.as_fd()).unwrap();
            let mut packet = [0; 4096];
            let (got, _, _) = recvfrom(&peer, &mut packet[..], RecvFlags::empty()).unwrap();
            let request: serde_json::Value = serde_json::from_slice(&packet[..got]).unwrap();
            assert_eq!((&request["op"], &request["version"]), (&"hello".into(), &1.into()));
            if let Some(answer) = answer {
                send(&peer, answer.as_bytes(), SendFlags::NOSIGNAL).unwrap();
            }
        })
    }

    #[test]
    fn the_agents_socket_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        assert_eq!(agent_socket(&at("none")).status, Status::Warn);
        for (name, answer, status, part) in [
            ("good", Some(r#"{"ok":true,"version":1,"agent":"0.1.0","socket_uid":0}"#), Status::Ok, "agent 0.1.0"),
            ("no", Some(r#"{"ok":false,"error":"denied","message":"not you"}"#), Status::Fail, "not you"),
            ("odd", Some("hm"), Status::Fail, "does not answer as an agent"),
            ("ended", None, Status::Fail, "does not answer as an agent"),
        ] {
            let thread = listening(&at(name), answer);
            let check = agent_socket(&at(name));
            assert!(check.status == status && check.detail.contains(part), "{check:?}");
            thread.join().unwrap();
        }
        let check = agent_socket(&at("good"));
        assert!(check.status == Status::Fail && check.detail.contains("nobody listens"), "{check:?}");
    }
}
