// SPDX-License-Identifier: Apache-2.0
//! Published twins: a timer of the kernel writes a group's blocks into a slab, one block each time it fires, by the same function that computes them for
//! READs. The timer is part of a map: it ends when nobody holds that map any more, which is why a home pins it, and why [`crate::Home::purge`] ends it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Kind};

use super::intf::{PublicationFacts, TIMER_BYTES};
use super::object::{self, Purpose};
use super::{Group, InstalledGroup};
use crate::error::{CHECK_KERNEL_LOG, Error, Result, absent, bpf, system};
use crate::home::{Home, pin};
use crate::responder::Responder;
use crate::slab::Slab;

/// Shortest time between two blocks of a twin: a block takes up to 5 us, and a twin is to cost no more than a twentieth of a processor.
const SHORTEST_STEP: Duration = Duration::from_micros(100);
const ADVICE: &str = "needs write access to the BPF file system (root)";

/// Where a twin goes and how often it is written.
#[derive(Debug, Clone, Copy)]
pub struct Publication<'a> {
    /// Each block is written once in this time.
    pub interval: Duration,
    /// Its memory.
    pub slab: &'a Slab,
    /// The region's first block in the slab; as many as the group has follow.
    pub first_block: u32,
    /// Identity word of the region's block 0.
    pub identity: u64,
    /// Pins the twin there, so that it goes on without this process; it replaces one that is pinned there. Without, it ends with [`Published`].
    pub home: Option<&'a Home>,
}

/// A twin that is being written.
#[derive(Debug)]
pub struct Published {
    /// The region's class.
    pub schema: Schema,
    map: MapHandle,
}

impl Published {
    /// Blocks written up to now.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn written(&self) -> Result<u64> {
        let value = self.map.lookup(&[0; 4], MapFlags::ANY).map_err(bpf("reading", "publication", CHECK_KERNEL_LOG))?;
        let at = TIMER_BYTES + PublicationFacts::RUNS;
        let runs = value.as_ref().and_then(|value| value.get(at..at + 8)?.try_into().ok());
        Ok(runs.map_or(0, u64::from_le_bytes))
    }
}

impl InstalledGroup {
    /// The class of the group's published twin.
    #[must_use]
    pub fn published_schema(&self, interval: Duration) -> Schema {
        let mut schema = self.schema.clone();
        for group in &mut schema.groups {
            if group.kind == Kind::Computed {
                group.kind = Kind::Guarded;
            }
            group.acquisition = Acquisition::Published;
            group.max_age_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        }
        schema
    }

    /// Starts to write the group's blocks into a slab. `responder` is the one it was installed in.
    ///
    /// # Errors
    /// [`Error::Limit`] for intervals under 100 us a block and for blocks beyond the slab's end, [`Error::Load`], [`Error::Bpf`], [`Error::System`].
    pub fn publish(&self, responder: &Responder, publication: &Publication<'_>) -> Result<Published> {
        let Publication { interval, slab, first_block, identity, home } = *publication;
        let step = interval / self.blocks.max(1);
        if step < SHORTEST_STEP {
            let value = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
            let limits = format!("at least 100 for each of its {} blocks", self.blocks);
            return Err(Error::Limit { what: "interval of a published group, us,", value, limits });
        }
        if first_block.checked_add(self.blocks).is_none_or(|end| end > slab.blocks()) {
            let limits =
                format!("with {} blocks from there on it must end within the slab's {}", self.blocks, slab.blocks());
            return Err(Error::Limit { what: "first block of a published group", value: first_block.into(), limits });
        }
        let object = self.image.load(Purpose::Publish(responder, slab))?;
        let map = object::map_of(&object, "publication")?;
        let interval_ns = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX);
        let facts = PublicationFacts { interval_ns, identity, first_block, blocks: self.blocks };
        let mut value = vec![0; TIMER_BYTES];
        value.extend(facts.to_bytes());
        map.update(&[0; 4], &value, MapFlags::ANY).map_err(bpf("writing", "publication", CHECK_KERNEL_LOG))?;
        if let Some(home) = home {
            // Two writers of one block would spoil it: the old one ends first.
            stop_publishing(home, self.group)?;
            let path = pin_path(home, self.group);
            let directory = path.parent().unwrap_or(&path);
            fs::create_dir_all(directory).map_err(system("creating", directory.display().to_string(), ADVICE))?;
            pin(&map, &path)?;
        }
        if object::run(&object, "publish")? != 0 {
            let advice = "the kernel refused a timer: see the kernel log";
            return Err(bpf("starting", "the timer of a published group", advice)(absent("timer that starts")));
        }
        Ok(Published { schema: self.published_schema(interval), map })
    }
}

/// Ends the twin of a group that is pinned there, if there is one.
///
/// # Errors
/// [`Error::System`] if the pin cannot be removed.
pub fn stop_publishing(home: &Home, group: Group) -> Result<()> {
    let path = pin_path(home, group);
    match fs::remove_file(&path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(system("removing", path.display().to_string(), ADVICE)(error)),
    }
}

fn pin_path(home: &Home, group: Group) -> PathBuf {
    home.path().join("publications").join(group.name())
}
