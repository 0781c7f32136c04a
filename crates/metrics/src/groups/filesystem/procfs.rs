// SPDX-License-Identifier: Apache-2.0
//! Group `filesystem`: statfs of what is mounted for the first process of the pid namespace, but for node_exporter's default exclusions.
//!
//! File systems behind a network or a process in user space are not asked: a dead server would hold up the sample, and with it the agent. Every file system has its
//! constant labels (a mount point is longer than a table's key), so the region is made anew when something is mounted or unmounted.

use std::io;

use rustix::fs::{stat, statfs};

use crate::procfs::Source;
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};

const LABELS: &[&str] = &["device", "fstype", "mountpoint"];

const fn bytes(name: &'static str, help: &'static str) -> Definition {
    Definition::gauge(name, help).unit("bytes", 1.0).labels(LABELS)
}

static SIZE: Definition = bytes("node_filesystem_size_bytes", "Filesystem size in bytes.");
static FREE: Definition = bytes("node_filesystem_free_bytes", "Filesystem free space in bytes.");
static AVAILABLE: Definition =
    bytes("node_filesystem_avail_bytes", "Filesystem space available to non-root users in bytes.");
static FILES: Definition = Definition::gauge("node_filesystem_files", "Filesystem total file nodes.").labels(LABELS);
static FILES_FREE: Definition =
    Definition::gauge("node_filesystem_files_free", "Filesystem total free file nodes.").labels(LABELS);
static READ_ONLY: Definition =
    Definition::gauge("node_filesystem_readonly", "Filesystem read-only status.").labels(LABELS);
static ERROR: Definition = Definition::gauge(
    "node_filesystem_device_error",
    "Whether an error occurred while getting statistics for the given device.",
)
.labels(LABELS);

/// `--collector.filesystem.fs-types-exclude` of node_exporter.
const LEFT_OUT: [&str; 24] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "fusectl",
    "hugetlbfs",
    "iso9660",
    "mqueue",
    "nsfs",
    "overlay",
    "proc",
    "procfs",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "squashfs",
    "sysfs",
    "tracefs",
];
/// Whose statfs may wait for another machine, or for a process.
const REMOTE: [&str; 16] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "coda",
    "glusterfs",
    "lustre",
    "ncpfs",
    "ocfs2",
    "gfs2",
    "orangefs",
    "virtiofs",
];

struct Filesystem {
    mounts: Source,
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    // The service's own view has what its unit hides or makes read-only.
    let mounts = Source::open("/proc/1/mountinfo").or_else(|_| Source::open("/proc/self/mountinfo"))?;
    listed(Filesystem { mounts }, ask, context)
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// Device number, as `major:minor`.
    number: String,
    device: String,
    point: String,
    kind: String,
    is_read_only: bool,
}

/// A line of mountinfo (proc_pid_mountinfo(5)).
fn parse(line: &[u8]) -> Option<Mount> {
    let line = std::str::from_utf8(line).ok()?;
    let (front, back) = line.split_once(" - ")?;
    let mut front = front.split(' ');
    let (number, _root, point, options) = (front.nth(2)?, front.next()?, front.next()?, front.next()?);
    let mut back = back.split(' ');
    let (kind, device) = (back.next()?, back.next()?);
    let is_ro = |options: &str| options.split(',').any(|option| option == "ro");
    let is_read_only = is_ro(options) || back.next().is_some_and(is_ro);
    if kind.is_empty() || !point.starts_with('/') {
        return None;
    }
    Some(Mount {
        number: number.into(),
        device: unescape(device),
        point: unescape(point),
        kind: kind.into(),
        is_read_only,
    })
}

/// Spaces and the like stand as `\040` (mangle in fs/seq_file.c).
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        };
        match after.get(..3).filter(|_| *first == b'\\').and_then(octal) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Mount {
    /// `--collector.filesystem.mount-points-exclude` and `fs-types-exclude` of node_exporter, as they are by default.
    fn is_left_out(&self) -> bool {
        let below =
            |front: &str| self.point.strip_prefix(front).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let within = |front: &str| {
            self.point.strip_prefix(front).and_then(|rest| rest.strip_prefix('/')).is_some_and(|rest| !rest.is_empty())
        };
        LEFT_OUT.contains(&self.kind.as_str())
            || ["/dev", "/proc", "/sys"].into_iter().any(below)
            || ["/run/credentials", "/var/lib/docker", "/var/lib/containers/storage"].into_iter().any(within)
    }

    /// Whether the agent sees it there, not what its unit or another mount namespace has put in its place. (A volume of btrfs has other numbers than its mount.)
    fn is_visible(&self) -> bool {
        let number = |dev| format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
        self.kind == "btrfs" || stat(self.point.as_str()).map_or(true, |found| number(found.st_dev) == self.number)
    }

    fn is_remote(&self) -> bool {
        REMOTE.contains(&self.kind.as_str()) || self.kind == "fuse" || self.kind.starts_with("fuse.")
    }
}

impl Read for Filesystem {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        let mut mounts: Vec<Mount> = Vec::new();
        let (remote, hidden) = timed(context, &["filesystem"], |context| {
            let (mut remote, mut hidden) = (Vec::new(), Vec::new());
            self.mounts.each_line(context.buffer, |line| {
                let Some(mount) = parse(line).filter(|mount| !mount.is_left_out()) else { return };
                if mount.is_remote() {
                    remote.push(format!("{} ({})", mount.point, mount.kind));
                } else if !mounts
                    .iter()
                    .any(|other| other.device == mount.device && other.point == mount.point && other.kind == mount.kind)
                {
                    mounts.push(mount);
                }
            })?;
            for mount @ Mount { device, point, kind, is_read_only, .. } in &mounts {
                if !mount.is_visible() {
                    hidden.push(point.clone());
                    continue;
                }
                let labels = [device.as_str(), kind.as_str(), point.as_str()];
                let found = statfs(point.as_str());
                values.put(&ERROR, &labels, u64::from(found.is_err()));
                values.put(&READ_ONLY, &labels, u64::from(*is_read_only));
                let Ok(found) = found else { continue };
                let block_bytes = u64::try_from(found.f_bsize).unwrap_or(0);
                values.put(&SIZE, &labels, found.f_blocks.saturating_mul(block_bytes));
                values.put(&FREE, &labels, found.f_bfree.saturating_mul(block_bytes));
                values.put(&AVAILABLE, &labels, found.f_bavail.saturating_mul(block_bytes));
                values.put(&FILES, &labels, found.f_files);
                values.put(&FILES_FREE, &labels, found.f_ffree);
            }
            Ok((remote, hidden))
        })?;
        for (why, points) in [
            ("are behind a network or a process, and a dead one would hold up the agent", remote),
            ("are not where the agent sees them", hidden),
        ] {
            if !points.is_empty() {
                context
                    .notes
                    .push(format!("file systems that {why} are not asked for their space: {}", points.join(", ")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let mount = parse(b"27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard").unwrap();
        assert_eq!(
            (mount.device.as_str(), mount.point.as_str(), mount.kind.as_str(), mount.is_read_only),
            ("/dev/vda", "/", "ext4", false)
        );
        let mount = parse(br"28 27 0:25 / /mnt/a\040b\134 ro,nosuid - tmpfs no\011ne rw").unwrap();
        assert_eq!((mount.device.as_str(), mount.point.as_str(), mount.is_read_only), ("no\tne", "/mnt/a b\\", true));
        assert!(parse(b"1 2 3:4 / /x rw - xfs /dev/b ro").unwrap().is_read_only);
        for line in [
            "",
            " - ",
            "1 2 3 / /",
            "1 2 3:4 / /x rw ext4 /dev/b rw",
            "1 2 3:4 / x rw - ext4 /dev/b rw",
            "1 2 3:4 / /x rw - ext4",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(unescape(r"\04\9\\041"), "\\04\\9\\!");
    }

    #[test]
    fn what_is_left_out_and_what_is_not_asked() {
        let mount = |point: &str, kind: &str| Mount {
            number: "1:2".into(),
            device: "d".into(),
            point: point.into(),
            kind: kind.into(),
            is_read_only: false,
        };
        for (point, kind) in [
            ("/dev", "tmpfs"),
            ("/dev/shm", "tmpfs"),
            ("/sys/fs/cgroup", "tmpfs"),
            ("/x", "overlay"),
            ("/var/lib/docker/x", "ext4"),
            ("/run/credentials/a", "ramfs"),
        ] {
            assert!(mount(point, kind).is_left_out(), "{point} {kind}");
        }
        for (point, kind) in
            [("/", "ext4"), ("/devel", "ext4"), ("/var/lib/docker", "ext4"), ("/run", "tmpfs"), ("/mnt", "nfs4")]
        {
            assert!(!mount(point, kind).is_left_out(), "{point} {kind}");
        }
        assert!(
            mount("/mnt", "nfs4").is_remote()
                && mount("/mnt", "fuse.sshfs").is_remote()
                && !mount("/", "fuseblk").is_remote()
        );
    }
}
