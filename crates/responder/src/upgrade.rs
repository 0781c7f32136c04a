// SPDX-License-Identifier: Apache-2.0
//! From whatever is pinned to a responder of this crate's programs with a certain configuration, without a READ lost where that can be done.
//!
//! Programs are replaced in this order, and whoever dies in between leaves a responder that answers and settings that say "in doubt":
//!
//! 1. load the new programs on the pinned maps (regions, slabs, sources, addresses, lease, counters and collectors stay where they are);
//! 2. settings: in doubt; 3. the new `finish` programs into the collectors' tables; 4. the new program into each link and filter, where the kernel changes
//!    one for the other between two packets; 5. pins of the new programs over those of the old; 6. settings: the new ones.
//!
//! All steps can be repeated, so the next [`Pinned::ensure`] begins again at 1. Until 6 is done some devices may have the old configuration and some the new one.
//! One loader at a time, as everywhere.

use std::fs;

use libbpf_rs::ErrorKind;
use onlooker_wire::profile::answer_ip_bytes;

use crate::attach::{adopt_filters, attachments, replace_program};
use crate::config::Config;
use crate::device::Device;
use crate::error::{Error, Result, system};
use crate::home::{BPFFS_ADVICE, Home, pin};
use crate::intf::FINISH_SLOT;
use crate::pinned::{Pinned, open_maps, open_programs};
use crate::responder::{Maps, Programs, Responder};
use crate::settings::Settings;

/// What [`Pinned::ensure`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// There was nothing; now there is a new responder, without slabs, regions, sources, lease or devices.
    Loaded,
    /// Everything was as wanted.
    Reopened,
    /// New programs are in the place of the old ones; all tables, counters and attachments went on.
    Replaced,
    /// What was there could not be taken over and was purged; now there is a new responder, as after [`Outcome::Loaded`].
    Reloaded {
        /// Why.
        because: String,
    },
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Loaded => f.write_str("loaded"),
            Outcome::Reopened => f.write_str("reopened: programs and configuration are as wanted"),
            Outcome::Replaced => f.write_str("programs replaced in place; memory, regions, counters and devices kept"),
            Outcome::Reloaded { because } => write!(f, "purged and loaded anew, everything was dropped: {because}"),
        }
    }
}

impl Pinned {
    /// A responder with this configuration and this crate's programs in `home`: opened, replaced in place, or loaded, as [`Outcome`] says. To be run in the
    /// devices' network namespace.
    ///
    /// # Errors
    /// [`Error::Limit`] for the configuration and [`Error::Mtu`] if its answers do not fit an attached device: the old responder goes on. Those of
    /// [`Pinned::load`], [`Home::purge`] and of replacing programs on devices: what is there goes on, and a further call begins again.
    pub fn ensure(config: &Config, home: &Home) -> Result<(Self, Outcome)> {
        config.check()?;
        if !home.exists() {
            return Ok((Self::load(config, home)?, Outcome::Loaded));
        }
        let (pinned, outcome) = match take_over(config, home) {
            Ok(taken) => taken,
            Err(error) if is_beyond_repair(&error) => {
                home.purge()?;
                return Ok((Self::load(config, home)?, Outcome::Reloaded { because: error.to_string() }));
            }
            Err(error) => return Err(error),
        };
        pinned.mend_slabs()?;
        Ok((pinned, outcome))
    }
}

/// Another layout, or pins missing: then whoever made them died before anybody could use them, or somebody removed some by hand.
fn is_beyond_repair(error: &Error) -> bool {
    match error {
        Error::Incompatible { .. } => true,
        Error::Bpf { operation: "opening", source, .. } => source.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

fn take_over(config: &Config, home: &Home) -> Result<(Pinned, Outcome)> {
    let (found, wanted) = (Settings::read(&home.settings())?, Settings::of(config));
    let maps = open_maps(home)?;
    if found == wanted
        && let Ok(programs) = open_programs(home)
    {
        return Ok((Pinned::new(Responder { config: *config, maps, programs }, home), Outcome::Reopened));
    }
    if let Some(what) = Responder::unlike_ours(&maps)? {
        return Err(Error::Incompatible { path: home.path().display().to_string(), what });
    }
    Ok((replace(config, home, &maps)?, Outcome::Replaced))
}

fn replace(config: &Config, home: &Home, maps: &Maps) -> Result<Pinned> {
    adopt_filters(home)?;
    let attachments = attachments(home);
    for attachment in &attachments {
        // One that is gone is for `reattach`.
        if let Ok(device) = Device::indexed(attachment.ifindex) {
            device.check(answer_ip_bytes(config.max_read_bytes, true))?;
        }
    }
    let (maps, programs) = Responder::load_apart(config, Some(maps))?;
    let wanted = Settings::of(config);
    wanted.in_doubt().write(&home.settings())?;
    let responder = Responder { config: *config, maps, programs };
    responder.put_program(FINISH_SLOT, &responder.programs.finish_tc, &responder.programs.finish_xdp)?;
    for attachment in &attachments {
        replace_program(home, attachment, &responder.programs)?;
    }
    pin_over(home, &responder.programs)?;
    wanted.write(&home.settings())?;
    Ok(Pinned::new(responder, home))
}

/// Pins programs in the place of others, each by one rename.
fn pin_over(home: &Home, programs: &Programs) -> Result<()> {
    for (name, program) in programs.all() {
        let (new, old) = (home.program(&format!("new_{name}")), home.program(name));
        // Of one that died here.
        let _ = fs::remove_file(&new);
        pin(program, &new)?;
        fs::rename(&new, &old).map_err(system("renaming", new.display().to_string(), BPFFS_ADVICE))?;
    }
    Ok(())
}
