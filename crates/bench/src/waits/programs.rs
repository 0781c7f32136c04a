// SPDX-License-Identifier: Apache-2.0
//! The programs under test, attached for a run each: the product's as its loader does it, others by hand.

use std::fmt;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use libbpf_rs::{Link, MapCore as _, MapFlags, ObjectBuilder};
use onlooker_metrics::scheduler::{self, CPU_BLOCKS, Latency, SHAPE};
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_responder::{Config, Home, Pinned, Slab, SlabMapping};

use crate::responder::PORT;
use crate::world::World;

const BY_STORAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/waits_by_storage.bpf.o"));
const BY_HASH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/waits_by_hash.bpf.o"));

/// How it is remembered since when a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As the product does.
    Product,
    Storage,
    Hash,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::Product, Self::Storage, Self::Hash];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Product => "a table of words (ours)",
            Self::Storage => "task storage",
            Self::Hash => "an LRU hash",
        })
    }
}

/// A slab to count in, and where programs are pinned: in a file system that ends with this process.
pub(super) struct Programs {
    home: Home,
    slab: Slab,
    memory: SlabMapping,
    cpus: u32,
    _pinned: Pinned,
}

/// Programs that run until this is dropped.
pub(super) struct Attached<'a> {
    home: &'a Home,
    _links: Vec<Link>,
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        // Without it the run after this one would not be what it is taken for: the count of waits would show it.
        let _ = scheduler::remove(self.home);
    }
}

impl Programs {
    pub(super) fn new(world: &World) -> Result<Self> {
        let home = Home::new(world.bpffs(), "bench-waits")?;
        let pinned = Pinned::load(&Config::new(PORT), &home)?;
        let cpus = scheduler::cpus()?;
        let blocks = (cpus * CPU_BLOCKS).next_multiple_of(4);
        let slab = pinned.create_slab(0, blocks)?;
        let memory = slab.map(0, blocks, false)?;
        Ok(Self { home, slab, memory, cpus, _pinned: pinned })
    }

    pub(super) fn attach(&self, way: Way) -> Result<Attached<'_>> {
        let object = match way {
            Way::Product => {
                scheduler::install(&self.home, &self.slab)?;
                Latency::open(&self.home)?.start(self.cpus, (0, self.slab.blocks()))?;
                return Ok(Attached { home: &self.home, _links: Vec::new() });
            }
            Way::Storage => BY_STORAGE,
            Way::Hash => BY_HASH,
        };
        let mut open = ObjectBuilder::default().open_memory(object)?;
        for mut map in open.maps_mut().filter(|map| map.name() == "histograms") {
            map.reuse_fd(self.slab.as_fd())?;
        }
        let loaded = open.load().with_context(|| format!("loading {way}"))?;
        let place = loaded.maps().find(|map| map.name() == "place").context("no map `place`")?;
        place.update(&[0; 4], &(u64::from(self.cpus) << 32).to_le_bytes(), MapFlags::ANY)?;
        let links = loaded.progs_mut().map(|program| program.attach()).collect::<Result<Vec<_>, _>>()?;
        Ok(Attached { home: &self.home, _links: links })
    }

    /// Waits in all histograms.
    pub(super) fn counted(&self) -> u64 {
        let blocks = self.memory.words().chunks_exact(BLOCK_WORDS);
        blocks.flat_map(|block| &block[1..=SHAPE.buckets()]).map(|word| word.load(Ordering::Relaxed)).sum()
    }
}
