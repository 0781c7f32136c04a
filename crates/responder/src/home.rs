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
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapHandle, ProgramHandle};

use crate::attach;
use crate::config::Config;
use crate::error::{Error, Result, bpf, system};
use crate::intf::{BLOCK_BYTES, EXITS, MAX_COLLECTORS, MAX_REGIONS, MAX_SLABS, REGION_BYTES};
use crate::program::Program;
use crate::responder::{Maps, Programs, Responder};
use crate::settings::Settings;
use crate::slab::Slab;
use crate::sys;

const REGION_SHAPE_BYTES: u32 = 40;
const _: () = assert!(REGION_SHAPE_BYTES as usize == REGION_BYTES);
/// `BPF_FS_MAGIC` of linux/magic.h.
const BPFFS_MAGIC: i64 = 0xcafe_4a11;
const MAX_NAME_BYTES: usize = 64;
const OTHERS_MAY_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;
const HOME_MODE: u32 = 0o700;
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
    fn check_owners(&self) -> Result<()> {
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

    fn slab(&self, index: u32) -> PathBuf {
        self.path.join("slabs").join(index.to_string())
    }

    /// Detaches and removes everything pinned here; what is gone already is no error. Returns what it did, a line each. To be run in the network
    /// namespace of the devices where clsact filters are used (kernels before 6.6).
    ///
    /// # Errors
    /// [`Error::System`] if a pin cannot be removed; the rest is removed all the same. [`Error::NotOurs`]: nothing was touched.
    pub fn purge(&self) -> Result<Vec<String>> {
        self.check_owners()?;
        let mut done = attach::detach_all(self);
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

/// A responder whose programs, maps, slabs and attachments are pinned: dropping this value changes nothing for the data plane.
#[derive(Debug)]
pub struct Pinned {
    responder: Responder,
    home: Home,
}

impl Deref for Pinned {
    type Target = Responder;

    fn deref(&self) -> &Responder {
        &self.responder
    }
}

impl Pinned {
    /// Loads a responder and pins it.
    ///
    /// # Errors
    /// [`Error::Exists`] if the home is taken, those of [`Responder::load`], [`Error::System`] from pinning; nothing stays pinned then.
    pub fn load(config: &Config, home: &Home) -> Result<Self> {
        if home.exists() {
            return Err(Error::Exists { path: home.path.display().to_string() });
        }
        let responder = Responder::load(config)?;
        let pinned = Self { responder, home: home.clone() };
        if let Err(error) = pinned.pin_all() {
            // The first error is the one to tell.
            let _ = home.purge();
            return Err(error);
        }
        Ok(pinned)
    }

    fn pin_all(&self) -> Result<()> {
        for directory in ["maps", "programs", "slabs", "links", "filters"] {
            let path = self.home.path.join(directory);
            let created = fs::DirBuilder::new().recursive(true).mode(HOME_MODE).create(&path);
            created.map_err(system("creating", path.display().to_string(), BPFFS_ADVICE))?;
        }
        // Somebody may have been there first since it was looked at.
        self.home.check_owners()?;
        for (name, map) in self.responder.maps.all() {
            pin(map, &self.home.map(name))?;
        }
        for (name, program) in self.responder.programs.all() {
            pin(program, &self.home.program(name))?;
        }
        let settings = Settings::of(&self.responder.config).create()?;
        // Last, so that its presence says that the rest is whole.
        pin(&settings, &self.home.settings())
    }

    /// Takes over what another process pinned, as it is. The configuration is that of its loader. [`Pinned::ensure`] is for those who want a certain one.
    ///
    /// # Errors
    /// [`Error::Bpf`] if there is nothing, [`Error::Incompatible`] if it is another version's, incomplete, or was being replaced by a process that died.
    pub fn open(home: &Home) -> Result<Self> {
        let settings = Settings::read(&home.settings())?;
        if settings.is_in_doubt() {
            let what = "the replacement of its programs was interrupted".to_owned();
            return Err(Error::Incompatible { path: home.path.display().to_string(), what });
        }
        let responder = Responder {
            config: Config::from_bytes(&settings.config),
            maps: open_maps(home)?,
            programs: open_programs(home)?,
        };
        Ok(Self::new(responder, home))
    }

    pub(crate) fn new(responder: Responder, home: &Home) -> Self {
        Self { responder, home: home.clone() }
    }

    /// Its directory.
    #[must_use]
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// [`Responder::create_slab`], pinned.
    ///
    /// # Errors
    /// Those, and [`Error::System`] from pinning (EEXIST where a slab of this index is pinned).
    pub fn create_slab(&self, index: u32, blocks: u32) -> Result<Slab> {
        let slab = Slab::create(index, blocks)?;
        pin(&slab, &self.home.slab(index))?;
        self.responder.put_slab(&slab)?;
        Ok(slab)
    }

    /// Puts slabs into the table that are pinned and not there: their making or removal was interrupted.
    pub(crate) fn mend_slabs(&self) -> Result<()> {
        for index in self.slabs()? {
            let slab = self.slab(index)?;
            if !self.responder.has_slab(&slab)? {
                self.responder.put_slab(&slab)?;
            }
        }
        Ok(())
    }

    /// A slab that this or an earlier process created.
    ///
    /// # Errors
    /// [`Error::Bpf`] (ENOENT where there is none), [`Error::Incompatible`].
    pub fn slab(&self, index: u32) -> Result<Slab> {
        let path = self.home.slab(index);
        let map = open_map(&path)?;
        let blocks = map.max_entries();
        expect_shape(&path, &map, 4, BLOCK_BYTES, blocks)?;
        Ok(Slab::from_map(index, map))
    }

    /// Indices of the pinned slabs.
    ///
    /// # Errors
    /// [`Error::System`] if the directory cannot be read.
    pub fn slabs(&self) -> Result<Vec<u32>> {
        let path = self.home.path.join("slabs");
        let entries = fs::read_dir(&path).map_err(system("reading", path.display().to_string(), BPFFS_ADVICE))?;
        let mut indices: Vec<u32> =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        indices.sort_unstable();
        Ok(indices)
    }

    /// [`Responder::remove_slab`] and its pin.
    ///
    /// # Errors
    /// Those, and [`Error::System`] if the pin cannot be removed.
    pub fn remove_slab(&self, index: u32) -> Result<()> {
        self.responder.remove_slab(index)?;
        let path = self.home.slab(index);
        fs::remove_file(&path).map_err(system("removing", path.display().to_string(), BPFFS_ADVICE))
    }
}

/// All pinned maps, of the shapes that this crate's programs have them in as far as its own accesses need it.
pub(crate) fn open_maps(home: &Home) -> Result<Maps> {
    let maps = Maps::try_from_names(|name| open_map(&home.map(name)))?;
    for (map, name, key, value, entries) in [
        (&maps.slabs, "slabs", 4, 4, MAX_SLABS),
        (&maps.regions, "regions", 4, REGION_SHAPE_BYTES, MAX_REGIONS),
        (&maps.counters, "counters", 4, 8, EXITS),
        (&maps.collectors_tc, "collectors_tc", 4, 4, MAX_COLLECTORS),
    ] {
        expect_shape(&home.map(name), map, key, value, entries)?;
    }
    Ok(maps)
}

/// All pinned programs.
pub(crate) fn open_programs(home: &Home) -> Result<Programs> {
    let program = |name| {
        let path = home.program(name);
        ProgramHandle::from_pinned_path(&path).map(Program::new).map_err(bpf(
            "opening",
            path.display().to_string(),
            "the pins are incomplete: `ensure` mends them, or purge and load again",
        ))
    };
    Ok(Programs {
        tc: program("tc")?,
        xdp: program("xdp")?,
        finish_tc: program("finish_tc")?,
        finish_xdp: program("finish_xdp")?,
    })
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
