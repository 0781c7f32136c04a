// SPDX-License-Identifier: Apache-2.0
//! A responder under its home: loaded and pinned there, or opened as another process has left it.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt as _;

use libbpf_rs::{MapCore, ProgramHandle};

use crate::config::Config;
use crate::error::{Error, Result, bpf, system};
use crate::home::{BPFFS_ADVICE, Home, expect_shape, open_map, pin};
use crate::intf::{BLOCK_BYTES, EXITS, MAX_COLLECTORS, MAX_REGIONS, MAX_SLABS, REGION_BYTES};
use crate::program::Program;
use crate::responder::{Maps, Programs, Responder};
use crate::settings::Settings;
use crate::slab::Slab;

const REGION_SHAPE_BYTES: u32 = 40;
const _: () = assert!(REGION_SHAPE_BYTES as usize == REGION_BYTES);
const HOME_MODE: u32 = 0o700;

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
            return Err(Error::Exists { path: home.path().display().to_string() });
        }
        let responder = Responder::load(config)?;
        let pinned = Self { responder, home: home.clone() };
        if let Err(error) = pinned.pin_all() {
            // The first error is the one to tell.
            let _ = home.check_owners().and_then(|()| home.remove_pins(Vec::new()));
            return Err(error);
        }
        Ok(pinned)
    }

    fn pin_all(&self) -> Result<()> {
        for directory in ["maps", "programs", "slabs", "links", "filters"] {
            let path = self.home.path().join(directory);
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
            return Err(Error::Incompatible { path: home.path().display().to_string(), what });
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
        let path = self.home.path().join("slabs");
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
