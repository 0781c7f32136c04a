// SPDX-License-Identifier: Apache-2.0
//! Published twins: a timer of the kernel writes a group's blocks into a slab, at most eight each time it fires, by the same function that computes them for
//! READs. Timers fire at multiples of their interval, so that twins of one interval share an interrupt. The timer is part of a map: it ends when nobody holds that map any more, which is why a home pins it, and why [`Home::purge`] ends it.
//!
//! Past the responder's lease ([`Responder::set_lease`]) a twin writes nothing; its timer fires once a second at most, and it goes on when the lease is renewed.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, ProgramHandle};
use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Kind};
use onlooker_responder::error::{CHECK_KERNEL_LOG, Error, Result, absent, bpf, system};
use onlooker_responder::home::{open_map, pin};
use onlooker_responder::{Home, Responder, Slab, sys};

use super::InstalledGroup;
use super::intf::{PublicationFacts, TIMER_BYTES, TURN_BLOCKS};
use super::object::{self, Purpose};
use crate::groups::Group;

/// Shortest time between two blocks of a twin: a block takes up to 5 us, and a twin is to cost no more than a twentieth of a processor.
const SHORTEST_STEP: Duration = Duration::from_micros(100);
/// How often a timer is asked for, and the time between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);
const MAP: &str = "publication";
const PROGRAM: &str = "publish";
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
        self.fact(PublicationFacts::RUNS)
    }

    /// What they took, without the interrupts.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn spent(&self) -> Result<Duration> {
        self.fact(PublicationFacts::SPENT).map(Duration::from_nanos)
    }

    fn fact(&self, at: usize) -> Result<u64> {
        let value = self.map.lookup(&[0; 4], MapFlags::ANY).map_err(bpf("reading", MAP, CHECK_KERNEL_LOG))?;
        let at = TIMER_BYTES + at;
        let word = value.as_ref().and_then(|value| value.get(at..at + 8)?.try_into().ok());
        Ok(word.map_or(0, u64::from_le_bytes))
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
            // Nothing moves more often than it is published.
            let least_ns = group.max_age_ns;
            group.fields.iter_mut().for_each(|field| field.resolution_ns = field.resolution_ns.max(least_ns));
        }
        schema
    }

    /// Starts to write the group's blocks into a slab. `responder` is the one it was installed in.
    ///
    /// # Errors
    /// [`Error::Limit`] for intervals under 100 us a block and for blocks beyond the slab's end, [`Error::Load`], [`Error::Bpf`], [`Error::System`].
    pub fn publish(&self, responder: &Responder, publication: &Publication<'_>) -> Result<Published> {
        let Publication { interval, slab, first_block, identity, home } = *publication;
        let facts = facts(interval, self.blocks, (first_block, slab.blocks()), identity)?;
        let object = self.image.load(Purpose::Publish(responder, slab))?;
        let map = object::map_of(&object, MAP)?;
        write(&map, &facts)?;
        if let Some(home) = home {
            // Two writers of one block would spoil it: the old one ends first.
            stop_publishing(home, self.group)?;
            pin_one(&map, &pin_path(home, self.group))?;
        }
        start(|| object::run(&object, PROGRAM))?;
        Ok(Published { schema: self.published_schema(interval), map })
    }

    /// Pins the group's twin so that another process can start it ([`Twin`]), which knows where in the slab it belongs; it writes nothing before. One that is pinned
    /// there ends.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::Bpf`], [`Error::System`].
    pub fn pin_twin(&self, responder: &Responder, slab: &Slab, home: &Home) -> Result<()> {
        let object = self.image.load(Purpose::Publish(responder, slab))?;
        let program = object.progs_mut().find(|program| program.name() == PROGRAM).ok_or_else(|| absent(PROGRAM));
        let program = program.and_then(|program| ProgramHandle::try_from(&program));
        let program = program.map_err(bpf("opening", PROGRAM, CHECK_KERNEL_LOG))?;
        stop_publishing(home, self.group)?;
        pin_one(&object::map_of(&object, MAP)?, &pin_path(home, self.group))?;
        pin_one(&program, &program_path(home, self.group))
    }
}

/// A twin as an installer has pinned it ([`InstalledGroup::pin_twin`]).
#[derive(Debug)]
pub struct Twin {
    program: ProgramHandle,
    map: MapHandle,
}

impl Twin {
    /// Opens what is pinned. Needs CAP_BPF where the kernel forbids BPF to others.
    ///
    /// # Errors
    /// [`Error::Bpf`] if there is nothing.
    pub fn open(home: &Home, group: Group) -> Result<Self> {
        let path = program_path(home, group);
        let advice = "no twin of the group is pinned there: install it";
        let program = ProgramHandle::from_pinned_path(&path);
        let program = program.map_err(bpf("opening", path.display().to_string(), advice))?;
        Ok(Self { program, map: open_map(&pin_path(home, group))? })
    }

    /// Starts to write `blocks` blocks of the slab that it was pinned for, from the first of `place` on, of as many as the second says; it goes on until the pins are
    /// removed. Needs CAP_BPF as [`Twin::open`]. Once: a twin that writes already is to be pinned anew.
    ///
    /// # Errors
    /// As [`InstalledGroup::publish`].
    pub fn start(&self, interval: Duration, blocks: u32, place: (u32, u32), identity: u64) -> Result<()> {
        write(&self.map, &facts(interval, blocks, place, identity)?)?;
        start(|| {
            let verdict = sys::run_syscall(self.program.as_fd());
            verdict.map_err(system("BPF_PROG_TEST_RUN", PROGRAM, "needs CAP_BPF"))
        })
    }
}

fn facts(
    interval: Duration,
    blocks: u32,
    (first_block, slab_blocks): (u32, u32),
    identity: u64,
) -> Result<PublicationFacts> {
    let step = interval / blocks.max(1);
    if step < SHORTEST_STEP {
        let value = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        let limits = format!("at least 100 for each of its {blocks} blocks");
        return Err(Error::Limit { what: "interval of a published group, us,", value, limits });
    }
    if first_block.checked_add(blocks).is_none_or(|end| end > slab_blocks) {
        let limits = format!("with {blocks} blocks from there on it must end within the slab's {slab_blocks}");
        return Err(Error::Limit { what: "first block of a published group", value: first_block.into(), limits });
    }
    // As few turns as their greatest length allows.
    let turns = blocks.div_ceil(TURN_BLOCKS).max(1);
    let interval_ns = u64::try_from((interval / turns).as_nanos()).unwrap_or(u64::MAX);
    Ok(PublicationFacts { interval_ns, identity, first_block, blocks, turn_blocks: blocks.div_ceil(turns) })
}

fn write(map: &MapHandle, facts: &PublicationFacts) -> Result<()> {
    let mut value = vec![0; TIMER_BYTES];
    value.extend(facts.to_bytes());
    map.update(&[0; 4], &value, MapFlags::ANY).map_err(bpf("writing", MAP, CHECK_KERNEL_LOG))
}

/// Runs the program that starts the timer. Kernels of today allocate one without waiting for anybody, so that on a busy
/// machine they have no memory for it now and then.
fn start(run: impl Fn() -> Result<u32>) -> Result<()> {
    let mut tries = 0;
    loop {
        let error = match run()? {
            0 => return Ok(()),
            error => io::Error::from_raw_os_error(error.cast_signed()),
        };
        tries += 1;
        if error.raw_os_error() != Some(libc::ENOMEM) || tries == TRIES {
            let advice = "the kernel refused a timer: see the kernel log";
            return Err(bpf("starting", "the timer of a published group", advice)(error.into()));
        }
        thread::sleep(PAUSE);
    }
}

fn pin_one(object: impl AsFd, path: &Path) -> Result<()> {
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory).map_err(system("creating", directory.display().to_string(), ADVICE))?;
    pin(object, path)
}

/// Ends the twin of a group that is pinned there, if there is one.
///
/// # Errors
/// [`Error::System`] if the pin cannot be removed.
pub fn stop_publishing(home: &Home, group: Group) -> Result<()> {
    for path in [pin_path(home, group), program_path(home, group)] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(system("removing", path.display().to_string(), ADVICE)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn pin_path(home: &Home, group: Group) -> PathBuf {
    home.path().join("publications").join(group.name())
}

fn program_path(home: &Home, group: Group) -> PathBuf {
    home.path().join("publications").join(format!("{}_publish", group.name()))
}
