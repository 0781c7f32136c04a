// SPDX-License-Identifier: Apache-2.0
//! A translator under its responder's home, behind it on each of its devices: it goes on when no process holds it.
//!
//! ```text
//! telemetry/maps/<map>               what goes on when programs are replaced
//! telemetry/<hook>_<fingerprint>     programs of one build and configuration
//! ```
//!
//! A change of programs is one update of the responder's table; whoever dies on the way leaves the old ones or the new ones there.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapHandle, ProgramHandle};
use onlooker_responder::barrier::wait_for_programs;
use onlooker_responder::error::{Result, system};
use onlooker_responder::home::{BPFFS_ADVICE, pin};
use onlooker_responder::{Home, Pinned};

use crate::translator::{Config, MAPS, Translator};

const HOME_MODE: u32 = 0o700;

/// What [`Translator::ensure`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There was none, or one whose memory cannot be taken over: now there is one without tables and sources.
    Loaded,
    /// As it should be.
    Kept,
    /// Other programs work on the same tables.
    Replaced,
}

fn path(home: &Home) -> PathBuf {
    home.path().join("telemetry")
}

impl Translator {
    /// A translator with this configuration and this crate's programs behind a responder: opened, replaced in place, or loaded.
    ///
    /// # Errors
    /// Those of [`Translator::load`], and from pinning: what is there goes on, and a further call begins again.
    pub fn ensure(config: &Config, responder: &Pinned) -> Result<(Self, Outcome)> {
        let home = path(responder.home());
        let maps = open_maps(&home);
        let pins = ["tc", "xdp"].map(|hook| home.join(format!("{hook}_{}", config.fingerprint())));
        if let (Some(maps), [Ok(tc), Ok(xdp)]) = (&maps, pins.each_ref().map(ProgramHandle::from_pinned_path)) {
            let kept = Self::of(maps, tc, xdp)?;
            responder.set_next(&kept.tc, &kept.xdp)?;
            return Ok((kept, Outcome::Kept));
        }
        let maps = match maps {
            Some(maps) if Self::are_like_ours(&maps)? => Some(maps),
            _ => None,
        };
        let (translator, new) = Self::load_on(config, responder, maps.as_ref())?;
        let outcome = if maps.is_some() { Outcome::Replaced } else { Outcome::Loaded };
        if outcome == Outcome::Loaded {
            remove_all(&home)?;
            let directory = home.join("maps");
            let created = fs::DirBuilder::new().recursive(true).mode(HOME_MODE).create(&directory);
            created.map_err(system("creating", directory.display().to_string(), BPFFS_ADVICE))?;
            for (name, map) in &new {
                pin(map, &directory.join(name))?;
            }
        }
        responder.set_next(&translator.tc, &translator.xdp)?;
        // Last, so that their presence says that the rest is done.
        let [tc, xdp] = &pins;
        pin(&translator.tc, tc)?;
        pin(&translator.xdp, xdp)?;
        remove_others(&home, &pins)?;
        Ok((translator, outcome))
    }

    /// The translator that is there, if one is.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(home: &Home) -> Result<Option<Self>> {
        let home = path(home);
        let pinned = |hook: &str| {
            let mut entries = fs::read_dir(&home).into_iter().flatten().flatten();
            let found = entries.find(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{hook}_")));
            found.and_then(|entry| ProgramHandle::from_pinned_path(entry.path()).ok())
        };
        match (open_maps(&home), pinned("tc"), pinned("xdp")) {
            (Some(maps), Some(tc), Some(xdp)) => Self::of(&maps, tc, xdp).map(Some),
            _ => Ok(None),
        }
    }

    /// Ends the translator of a responder: reports pass to whoever listens, and nothing writes to memory any more when this returns. What is there stays. False
    /// where there is none.
    ///
    /// # Errors
    /// The responder's table cannot be changed, or a pin not be removed.
    pub fn uninstall(responder: &Pinned) -> Result<bool> {
        responder.clear_next()?;
        let home = path(responder.home());
        let was_there = home.exists();
        // With the pins the timers of lists go, too.
        remove_all(&home)?;
        if was_there {
            wait_for_programs();
        }
        Ok(was_there)
    }
}

/// All of them, or none.
fn open_maps(home: &Path) -> Option<Vec<(&'static str, MapHandle)>> {
    let open = |name: &&'static str| Some((*name, MapHandle::from_pinned_path(home.join("maps").join(name)).ok()?));
    MAPS.iter().map(open).collect()
}

fn remove_others(home: &Path, pins: &[PathBuf]) -> Result<()> {
    for entry in fs::read_dir(home).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| !kind.is_dir()) && !pins.contains(&path) {
            fs::remove_file(&path).map_err(system("removing", path.display().to_string(), BPFFS_ADVICE))?;
        }
    }
    Ok(())
}

fn remove_all(home: &Path) -> Result<()> {
    match fs::remove_dir_all(home) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(system("removing", home.display().to_string(), BPFFS_ADVICE)(error))
        }
        _ => Ok(()),
    }
}
