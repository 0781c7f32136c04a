// SPDX-License-Identifier: Apache-2.0
//! How long tasks wait for a CPU: histograms of each CPU, counted at every wake-up and every switch (`latency.bpf.c`). Only where it is asked for, since the watched
//! programs pay for it (docs/kernel-metrics.md, "How long tasks wait"; `make bench-scheduler-latency`).
//!
//! The loader ([`install`]) attaches three programs to the scheduler's tracepoints and pins the links under `<home>/scheduler/`, so that they go on without any process until they
//! are removed. They count nothing until they are told where ([`Latency::start`]), which another process may do: the one that gives out the slab's ranges; and nothing
//! past the lease of the home's responder ([`onlooker_responder::Responder::set_lease`]), until it is renewed. A responder that was never given one sets no end.
//!
//! Who writes what: the programs the blocks' slots, each CPU its own two blocks; whoever starts them the identities, before. Readers need nothing but the slab.

use std::fs;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder};
use onlooker_region::Schema;
use onlooker_region::block::Identity;
use onlooker_region::histogram::Shape;
use onlooker_region::limits::{BLOCK_WORDS, PLAIN_SLOTS};
use onlooker_region::schema::{Array, Field, Group, Kind, Metric, Type};
use onlooker_responder::error::{CHECK_KERNEL_LOG, Error, Result, bpf, system};
use onlooker_responder::home::{BPFFS_ADVICE, open_map, pin};
use onlooker_responder::log::with_log;
use onlooker_responder::{Home, Slab, sys};

use crate::collect::object::map_of;
use crate::procfs::present_cpus;
use crate::tracing::{attach, remove_pins};

/// Name of the region and of its class.
pub const REGION: &str = "onlooker_scheduler";
/// Blocks of a CPU: SCHEDULER_CPU_BLOCKS.
pub const CPU_BLOCKS: u32 = 2;
/// CPUs that have blocks, at most.
pub const MOST_CPUS: u32 = 1024;
/// Of both histograms, in ns: 4.3 s and more count in the last bucket. SCHEDULER_GROUPING_POWER and SCHEDULER_MAX_POWER.
pub const SHAPE: Shape = Shape { grouping_power: 2, max_power: 32 };

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/latency.bpf.o"));
/// Of the home.
const DIRECTORY: &str = "scheduler";
const PROGRAMS: [&str; 3] = ["onlooker_woken", "onlooker_new", "onlooker_switch"];
const PLACE: &str = "place";
const HISTOGRAMS: &str = "histograms";
/// The responder's map.
const LEASE: &str = "lease";
/// SCHEDULER_UNSEEN_SLOT, SCHEDULER_ELSEWHERE_SLOT.
const UNSEEN_SLOT: u32 = 125;
const ELSEWHERE_SLOT: u32 = 126;
/// A whole block's slots, of which a CPU has two.
const BLOCK_SLOTS: u32 = 127;
const _: () = assert!(BLOCK_SLOTS as usize == PLAIN_SLOTS);

/// CPUs that are present, counted to the highest, as far as there are blocks for them.
///
/// # Errors
/// [`Error::System`].
pub fn cpus() -> Result<u32> {
    let path = "/sys/devices/system/cpu/present";
    let cpus = present_cpus().map_err(system("reading", path, "sysfs must be mounted"))?;
    Ok(cpus.min(MOST_CPUS))
}

/// The class of a region for so many CPUs.
#[must_use]
pub fn schema(cpus: u32) -> Schema {
    let by_cpu = |mut field: Field| {
        let stride = CPU_BLOCKS * BLOCK_SLOTS;
        field.array = Some(Array { label: "cpu".into(), count: cpus, stride, values: None });
        field
    };
    let histogram = |name: &str, slot, help: &str| {
        let mut field = Field::new(name, Metric::Histogram, Type::U64, slot);
        field.histogram = Some(SHAPE);
        (field.unit, field.scale, field.help) = ("seconds".into(), 1e-9, help.into());
        by_cpu(field)
    };
    let lost = |reason: &str, slot| {
        let mut field = Field::new("onlooker_scheduler_waits_lost_total", Metric::Counter, Type::U64, slot);
        field.labels.insert("reason".into(), reason.into());
        field.help = "Waits of tasks for a CPU that are in no histogram: their beginning was not seen (unseen), or they ended on a CPU without one (cpu)".into();
        field
    };
    let fields = vec![
        histogram(
            "onlooker_run_queue_latency_seconds",
            0,
            "How long tasks that were taken off a CPU and could go on waited until they ran again, by the CPU on which they did",
        ),
        by_cpu(lost("unseen", UNSEEN_SLOT)),
        lost("cpu", ELSEWHERE_SLOT),
        histogram(
            "onlooker_wakeup_latency_seconds",
            BLOCK_SLOTS,
            "How long tasks waited from being woken, or made, until they ran, by the CPU on which they did",
        ),
    ];
    Schema { name: REGION.into(), groups: vec![Group::new(Kind::Plain, cpus.max(1) * CPU_BLOCKS, fields)] }
}

/// Loads the programs, which are to write into `slab`, and attaches them, in place of what an earlier loader has pinned. They count nothing yet.
///
/// # Errors
/// [`Error::Load`], [`Error::Bpf`] (no responder is pinned in `home`, too), [`Error::System`].
pub fn install(home: &Home, slab: &Slab) -> Result<()> {
    remove(home)?;
    let object = load(home, slab)?;
    let directory = home.path().join(DIRECTORY);
    fs::create_dir_all(&directory).map_err(system("creating", directory.display().to_string(), BPFFS_ADVICE))?;
    let attached = pin(&map_of(&object, PLACE)?, &directory.join(PLACE)).and_then(|()| {
        PROGRAMS.into_iter().try_for_each(|program| attach(&object, program, sys::TRACE_RAW_TP, &directory))
    });
    // Half of them would be of no use, and cost nonetheless.
    attached.inspect_err(|_| drop(remove(home)))
}

/// Detaches the programs and removes what is pinned, if anything is.
///
/// # Errors
/// [`Error::System`].
pub fn remove(home: &Home) -> Result<()> {
    remove_pins(&home.path().join(DIRECTORY), &[PROGRAMS[0], PROGRAMS[1], PROGRAMS[2], PLACE])
}

fn load(home: &Home, slab: &Slab) -> Result<Object> {
    let lease = open_map(&home.map(LEASE))?;
    let attempt = || {
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        for mut map in open.maps_mut() {
            if map.name() == HISTOGRAMS {
                map.reuse_fd(slab.as_fd())?;
            } else if map.name() == LEASE {
                map.reuse_fd(lease.as_fd())?;
            }
        }
        open.load()
    };
    let (result, log) = with_log(attempt);
    result.map_err(|source| Error::Load { source, log })
}

/// The programs as a loader has attached them.
#[derive(Debug)]
pub struct Latency {
    place: MapHandle,
}

impl Latency {
    /// Opens what is pinned. Needs CAP_BPF where the kernel forbids BPF to others.
    ///
    /// # Errors
    /// [`Error::Bpf`] if there is nothing.
    pub fn open(home: &Home) -> Result<Self> {
        Ok(Self { place: open_map(&home.path().join(DIRECTORY).join(PLACE))? })
    }

    /// From now on they count, in as many blocks as the class for `cpus` CPUs has from `first_block` on of the slab that they were loaded for, which has `slab_blocks`. The
    /// blocks must have been given their identities ([`identify`]).
    ///
    /// # Errors
    /// [`Error::Limit`] for blocks beyond the slab's end, [`Error::Bpf`].
    pub fn start(&self, cpus: u32, (first_block, slab_blocks): (u32, u32)) -> Result<()> {
        let blocks = cpus.saturating_mul(CPU_BLOCKS);
        if first_block.checked_add(blocks).is_none_or(|end| end > slab_blocks) {
            let limits = format!("with {blocks} blocks from there on it must end within the slab's {slab_blocks}");
            return Err(Error::Limit { what: "first block of the histograms", value: first_block.into(), limits });
        }
        // First where, then that: no other block is ever written.
        self.put(first_block, 0)?;
        self.put(first_block, cpus)
    }

    /// From now on they count nothing, but are still run at each event; [`remove`] ends that.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn pause(&self) -> Result<()> {
        self.put(0, 0)
    }

    fn put(&self, first_block: u32, cpus: u32) -> Result<()> {
        let value = (u64::from(cpus) << 32 | u64::from(first_block)).to_le_bytes();
        self.place.update(&[0; 4], &value, MapFlags::ANY).map_err(bpf("writing", PLACE, CHECK_KERNEL_LOG))
    }
}

/// Writes the identities of a region's blocks. What is counted there already stays.
pub fn identify(words: &[AtomicU64], first: Identity) {
    for (index, block) in words.chunks_exact(BLOCK_WORDS).enumerate() {
        let identity = first.at(u16::try_from(index).unwrap_or(u16::MAX));
        block[0].store(identity.word(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        let header = include_str!("intf.h");
        for (name, number) in [
            ("CPU_BLOCKS", CPU_BLOCKS),
            ("GROUPING_POWER", SHAPE.grouping_power.into()),
            ("MAX_POWER", SHAPE.max_power.into()),
            ("UNSEEN_SLOT", UNSEEN_SLOT),
            ("ELSEWHERE_SLOT", ELSEWHERE_SLOT),
            ("BLOCK_SLOTS", BLOCK_SLOTS),
        ] {
            assert!(header.contains(&format!("#define SCHEDULER_{name} {number}\n")), "{name}");
        }
        // `Latency::put` writes both halves at once.
        for (field, at) in [("first_block", 0), ("cpus", 4)] {
            let line = format!("__builtin_offsetof(struct onlooker_scheduler_place, {field}) == {at}");
            assert!(header.contains(&line), "{line}");
        }
    }

    #[test]
    fn the_class_is_a_good_one_up_to_the_largest_machine() {
        for cpus in [1, 2, 127, MOST_CPUS] {
            let schema = schema(cpus);
            schema.check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
            assert_eq!(schema.blocks(), cpus * CPU_BLOCKS);
        }
        assert_eq!(SHAPE.slots(), UNSEEN_SLOT as usize, "a histogram fits its block, and two counters beside it");
    }
}
