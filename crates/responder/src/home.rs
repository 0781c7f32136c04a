// SPDX-License-Identifier: Apache-2.0
//! Where a responder lives while no process holds it: pins under `<bpffs>/onlooker/<name>/`.
//!
//! ```text
//! ledger                    what the owner must know again after a restart (optional)
//! settings                  configuration as loaded, fingerprint of the programs, version of this layout: see `settings`
//! maps/<map>  programs/<program>  slabs/<index>
//! devices, publications, connections, scheduler/<link, program or map>
//!                           of the collectors: crate metrics
//! links/<hook>_<ifindex>    tcx and XDP attachments: removing the pin detaches
//! filters/<ifindex>_<priority>_<handle>[_qdisc]
//!                           directories that remember clsact filters, which are no BPF objects; `_qdisc`: we made the qdisc too
//! ```
//!
//! Nobody but root can put anything else there or take anything away: the directories are 0700, and one that is another user's, or that others may write, is
//! refused before a pin in it is believed. Written by one loader at a time; the kernel keeps it until reboot or [`Home::purge`].

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapHandle};

use crate::error::{Error, Result, bpf, system};
use crate::sys;

/// `BPF_FS_MAGIC` of linux/magic.h.
const BPFFS_MAGIC: i64 = 0xcafe_4a11;
const MAX_NAME_BYTES: usize = 64;
const OTHERS_MAY_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;
const NOT_OURS_ADVICE: &str = "whoever that is could hide a responder or put another in its place; see what is pinned there and what is attached (`ip link`, `tc filter`, bpftool), remove it, and mount the BPF file system with mode=0700";
/// Advice for what fails on the BPF file system.
pub const BPFFS_ADVICE: &str = "needs write access to the BPF file system (root)";

/// A directory for a responder's pins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    base: PathBuf,
    path: PathBuf,
}

impl Home {
    /// The directory for the responder `name` on the BPF file system at `bpffs`, usually `/sys/fs/bpf`. Nothing is created yet.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::NoBpffs`], [`Error::NotOurs`] where others could change what is pinned there.
    pub fn new(bpffs: &Path, name: &str) -> Result<Self> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(good) {
            return Err(Error::Name { name: name.to_owned() });
        }
        // The type of the magic number differs between architectures.
        #[allow(clippy::unnecessary_cast)]
        let is_bpffs = rustix::fs::statfs(bpffs).is_ok_and(|stat| stat.f_type as i64 == BPFFS_MAGIC);
        if !is_bpffs {
            return Err(Error::NoBpffs { path: bpffs.display().to_string() });
        }
        let base = bpffs.join("onlooker");
        let home = Self { path: base.join(name), base };
        home.check_owners()?;
        Ok(home)
    }

    /// The directories down to this one, as far as they are there, are root's alone. Others may write to the file system's root if it is sticky, as it is
    /// unless it was mounted with a mode; then they can be there before us, and are found out here.
    pub(crate) fn check_owners(&self) -> Result<()> {
        let root = self.base.parent().unwrap_or(&self.base);
        for (path, may_be_sticky) in [(root, true), (&self.base, false), (&self.path, false)] {
            let text = || path.display().to_string();
            let metadata = match fs::symlink_metadata(path) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(system("looking at", text(), BPFFS_ADVICE)(error)),
            };
            let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
            let is_closed = mode & OTHERS_MAY_WRITE == 0 || (may_be_sticky && mode & STICKY != 0);
            if !metadata.is_dir() || owner != 0 || !is_closed {
                return Err(Error::NotOurs { path: text(), owner, mode, advice: NOT_OURS_ADVICE });
            }
        }
        Ok(())
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a responder is pinned here.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    pub(crate) fn links(&self) -> PathBuf {
        self.path.join("links")
    }

    pub(crate) fn filters(&self) -> PathBuf {
        self.path.join("filters")
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.path.join("ledger")
    }

    pub(crate) fn settings(&self) -> PathBuf {
        self.path.join("settings")
    }

    /// Pin of one of the responder's maps.
    #[must_use]
    pub fn map(&self, name: &str) -> PathBuf {
        self.path.join("maps").join(name)
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.path.join("programs").join(name)
    }

    pub(crate) fn slab(&self, index: u32) -> PathBuf {
        self.path.join("slabs").join(index.to_string())
    }

    /// Removes everything pinned here; what is gone already is no error. `done` has what was done before, a line each, and is returned with what is done here.
    /// Whether the home is ours is for the caller to look at.
    ///
    /// # Errors
    /// [`Error::System`] if a pin cannot be removed; the rest is removed all the same.
    pub(crate) fn remove_pins(&self, mut done: Vec<String>) -> Result<Vec<String>> {
        let mut failed = None;
        remove_tree(&self.path, &mut done, &mut failed);
        // Other responders may live there.
        let _ = fs::remove_dir(&self.base);
        match failed {
            None => Ok(done),
            Some((path, error)) => Err(system("removing", path.display().to_string(), BPFFS_ADVICE)(error)),
        }
    }
}

/// Removes pins and directories, in depth first order, and goes on after failures.
fn remove_tree(path: &Path, done: &mut Vec<String>, failed: &mut Option<(PathBuf, io::Error)>) {
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&path, done, failed);
        } else {
            match fs::remove_file(&path) {
                Ok(()) => done.push(format!("removed pin {}", path.display())),
                Err(error) => *failed = Some((path, error)),
            }
        }
    }
    if let Err(error) = fs::remove_dir(path) {
        *failed = Some((path.to_owned(), error));
    }
}

/// Pins any BPF object.
///
/// # Errors
/// [`Error::System`] (EEXIST where something is pinned), [`Error::Name`].
pub fn pin(object: impl std::os::fd::AsFd, path: &Path) -> Result<()> {
    let text = path.display().to_string();
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::Name { name: text.clone() })?;
    sys::pin(object, &c_path).map_err(system("pinning", text, BPFFS_ADVICE))
}

/// Opens a pinned map.
///
/// # Errors
/// [`Error::Bpf`] if there is none.
pub fn open_map(path: &Path) -> Result<MapHandle> {
    let advice = "no complete responder is pinned there: load one (after a purge if some pins are there)";
    MapHandle::from_pinned_path(path).map_err(bpf("opening", path.display().to_string(), advice))
}

pub(crate) fn expect_shape(path: &Path, map: &MapHandle, key: u32, value: u32, entries: u32) -> Result<()> {
    let (found, expected) = ((map.key_size(), map.value_size(), map.max_entries()), (key, value, entries));
    if found == expected {
        return Ok(());
    }
    let what = format!("map with (key, value, entries) {found:?}, not {expected:?}");
    Err(Error::Incompatible { path: path.display().to_string(), what })
}
