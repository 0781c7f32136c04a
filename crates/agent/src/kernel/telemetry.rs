// SPDX-License-Identifier: Apache-2.0
//! Loads the kernel translator behind the responder, or puts right the one that is there: programs, tables and their memory, sources. Run by the loader when an
//! agent begins. Tables that are as configured go on with what is in them; the memory of others is zeroed before another table has it. Slabs that no table is in any more
//! are the agent's to remove, as all that nobody has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use onlooker_dta::Geometry;
use onlooker_dta::append::Position;
use onlooker_dta::increment::Epoch;
use onlooker_dta::translator::Shape;
use onlooker_responder::MAX_SLAB_BLOCKS;
use onlooker_responder::mapping::PAGE_BLOCKS;
use onlooker_responder::{Home, Pinned, Rate};
use onlooker_translator::{Config, Counters, Place, Table, Translator};
use serde::{Deserialize, Serialize};

use super::ledger::FIRST_USER_SLAB;
use super::sources::prefixes;
use super::{BLOCK_BYTES, KernelError, TABLES_SLAB};
use crate::config::{self, telemetry::Telemetry};
use crate::host;

/// Slab, first block and blocks.
pub type Part = (u32, u32, u32);

/// A table that reports write to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableState {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u16,
    /// What it is like: bits of its geometry, and its seed.
    pub geometry: u64,
    /// Of its keys' hash.
    pub seed: [u8; 16],
    /// Where it begins: slab and block. Beyond 1 GiB it goes on in the next slab.
    pub place: (u32, u32),
    /// Whether it was there before, with what is in it.
    pub is_kept: bool,
}

impl TableState {
    /// What it is like.
    #[must_use]
    pub fn geometry(&self) -> Option<Geometry> {
        Geometry::from_bits(self.geometry, self.seed)
    }

    /// Its parts, each in a slab.
    pub fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        let (slab, first_block) = self.place;
        parts(slab, first_block, self.geometry().map_or(0, |geometry| blocks_of(&geometry)))
    }
}

impl std::fmt::Display for TableState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, number, is_kept, .. } = self;
        let Some(geometry) = self.geometry() else { return write!(f, "telemetry table {name} is of no known kind") };
        let places = 1u64 << geometry.slots_log2();
        let (primitive, mib) = (geometry.primitive(), geometry.len_bytes().div_ceil(1 << 20));
        write!(f, "telemetry table {name} ({primitive}, number {number}): {places} places in {mib} MiB")?;
        if *is_kept { f.write_str(", as before") } else { Ok(()) }
    }
}

fn parts(slab: u32, first_block: u32, blocks: u64) -> impl Iterator<Item = Part> {
    let mut left = blocks;
    (slab..).zip(std::iter::once(first_block).chain(std::iter::repeat(0))).map_while(move |(slab, first)| {
        let here = left.min(u64::from(MAX_SLAB_BLOCKS - first));
        left -= here;
        u32::try_from(here).ok().filter(|here| *here > 0).map(|here| (slab, first, here))
    })
}

/// Whole pages.
fn blocks_of(geometry: &Geometry) -> u64 {
    geometry.len_bytes().div_ceil(BLOCK_BYTES).next_multiple_of(PAGE_BLOCKS.into())
}

/// Carries it out.
pub(super) fn put_right(pinned: &Pinned, config: &Telemetry) -> Result<Vec<TableState>, KernelError> {
    if !config.is_on() {
        Translator::uninstall(pinned)?;
        return Ok(Vec::new());
    }
    let per_second = config.source_reports_per_s;
    let settings = Config {
        port: config.port,
        source_rate: Some(Rate { per_second, burst: (per_second / 10).max(1) }),
        wait: config.wait.as_duration(),
    };
    let (translator, _) = Translator::ensure(&settings, pinned)?;
    // Nobody is let in by an old list while tables change.
    translator.set_sources(&prefixes(&config.allow)?)?;
    let mut states = keep(&translator, config)?;
    let mut memory = Memory::of(pinned, &states)?;
    let missing: Vec<_> =
        config.tables.iter().filter(|table| states.iter().all(|it| it.number != table.number)).collect();
    let random = |source| KernelError::System { operation: "get random numbers", source };
    let mut new = Vec::new();
    let mut geometries = Vec::new();
    for table in missing {
        let geometry = table.geometry(host::random().map_err(random)?);
        geometries.push((table, geometry.ok_or(KernelError::Incomplete("a telemetry table has no memory"))?));
    }
    let mut later: u64 = geometries.iter().map(|(_, geometry)| blocks_of(geometry)).sum();
    for (table, geometry) in geometries {
        let blocks = blocks_of(&geometry);
        let place = memory.take(blocks, later)?;
        later -= blocks;
        if let Geometry::KeyIncrement(_) = geometry {
            begin_epoch(pinned, place)?;
        }
        let shape = match geometry {
            Geometry::KeyWrite(table) => Shape::KeyWrite(table),
            Geometry::Append(list) => Shape::Append(list, Position::default()),
            Geometry::KeyIncrement(counters) => Shape::KeyIncrement(counters, 0),
        };
        let (slab, first_block) = place;
        let made = Table { access: table.access_key.0, shape, place: Place { slab, first_block } };
        new.push((table.number, made));
        states.push(TableState { is_kept: false, ..state(&table.name, table.number, &made) });
    }
    translator.put_tables(&new)?;
    Ok(states)
}

/// The tables that there are, and what became of reports, by reason; `None`: there is no translator.
///
/// # Errors
/// What is pinned cannot be opened.
pub fn status(config: &config::Kernel) -> Result<Option<(Vec<TableState>, Counters)>, KernelError> {
    let Some(translator) = Translator::open(&Home::new(&config.bpffs, &config.name)?)? else { return Ok(None) };
    let states = translator.tables()?.into_iter().map(|(number, table)| {
        let named = config.telemetry.tables.iter().find(|named| named.number == number);
        state(named.map_or("?", |named| &named.name), number, &table)
    });
    Ok(Some((states.collect(), translator.counters()?)))
}

fn state(name: &str, number: u16, table: &Table) -> TableState {
    let (geometry, Place { slab, first_block }) = (table.shape.geometry(), table.place);
    TableState {
        name: name.to_owned(),
        number,
        geometry: geometry.to_bits(),
        seed: geometry.seed(),
        place: (slab, first_block),
        is_kept: true,
    }
}

/// Ends the tables that are not configured like this any more; those that are, go on.
fn keep(translator: &Translator, config: &Telemetry) -> Result<Vec<TableState>, KernelError> {
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for (number, table) in translator.tables()? {
        let geometry = table.shape.geometry();
        let wanted = config.tables.iter().find(|wanted| {
            wanted.number == number && wanted.geometry(geometry.seed()).is_some_and(|wanted| wanted == geometry)
        });
        let Some(wanted) = wanted else {
            gone.push(number);
            continue;
        };
        if wanted.access_key.0 != table.access {
            translator.change_table(number, &Table { access: wanted.access_key.0, ..table })?;
        }
        kept.push(state(&wanted.name, number, &table));
    }
    translator.remove_tables(&gone)?;
    Ok(kept)
}

/// Epoch 0 begins now.
fn begin_epoch(pinned: &Pinned, (slab, first_block): (u32, u32)) -> Result<(), KernelError> {
    let header = pinned.slab(slab)?.map(first_block, PAGE_BLOCKS, true)?;
    let epoch = Epoch { number: 0, began_ns: host::wall_time_ns(), before_began_ns: 0 };
    for (word, bytes) in header.words().iter().zip(epoch.to_bytes().as_chunks::<8>().0) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    Ok(())
}

/// Slabs of tables, and what of them is taken.
struct Memory<'a> {
    pinned: &'a Pinned,
    /// Blocks of each slab.
    slabs: BTreeMap<u32, u32>,
    /// First block to end of what is taken, by slab.
    taken: BTreeMap<u32, BTreeMap<u32, u32>>,
}

impl<'a> Memory<'a> {
    /// With what tables have that go on.
    fn of(pinned: &'a Pinned, kept: &[TableState]) -> Result<Self, KernelError> {
        let mut memory = Self { pinned, slabs: BTreeMap::new(), taken: BTreeMap::new() };
        for (slab, first, blocks) in kept.iter().flat_map(TableState::parts) {
            memory.slabs.insert(slab, pinned.slab(slab)?.blocks());
            memory.taken.entry(slab).or_default().insert(first, first + blocks);
        }
        Ok(memory)
    }

    /// Room for a table, all zero; `later` is what this one and those after it need.
    fn take(&mut self, blocks: u64, later: u64) -> Result<(u32, u32), KernelError> {
        let small = u32::try_from(blocks).ok().filter(|blocks| *blocks <= MAX_SLAB_BLOCKS);
        if let Some(blocks) = small {
            let slabs: Vec<(u32, u32)> = self.slabs.iter().map(|(slab, blocks)| (*slab, *blocks)).collect();
            for (slab, room) in slabs {
                if let Some(first) = self.gap(slab, room, blocks) {
                    // What was there may have been another table's.
                    let memory = self.pinned.slab(slab)?.map(first, blocks, true)?;
                    memory.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
                    self.taken.entry(slab).or_default().insert(first, first + blocks);
                    return Ok((slab, first));
                }
            }
        }
        let room = if small.is_some() { later.min(MAX_SLAB_BLOCKS.into()) } else { blocks };
        let first_slab = self.free_slabs(room.div_ceil(MAX_SLAB_BLOCKS.into()))?;
        for (slab, _, size) in parts(first_slab, 0, room) {
            self.pinned.create_slab(slab, size)?;
            self.slabs.insert(slab, size);
        }
        for (slab, first, blocks) in parts(first_slab, 0, blocks) {
            self.taken.entry(slab).or_default().insert(first, first + blocks);
        }
        Ok((first_slab, 0))
    }

    /// The first gap of that length.
    fn gap(&self, slab: u32, room: u32, blocks: u32) -> Option<u32> {
        let mut from = 0;
        for (first, end) in self.taken.get(&slab).into_iter().flatten() {
            if first - from >= blocks {
                return Some(from);
            }
            from = *end;
        }
        (room - from >= blocks).then_some(from)
    }

    /// Places of the responder's table that nobody has, one behind the other, as far from users' as can be.
    fn free_slabs(&self, count: u64) -> Result<u32, KernelError> {
        let pinned: BTreeSet<u32> = self.pinned.slabs()?.into_iter().collect();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let mut firsts = (FIRST_USER_SLAB..=TABLES_SLAB.saturating_sub(count)).rev();
        firsts.find(|first| (*first..first + count).all(|slab| !pinned.contains(&slab))).ok_or(KernelError::Incomplete(
            "the responder's table of slabs has no room for the telemetry tables: 62 slabs of at most 1 GiB are for them and for users",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_tables_go_on_in_the_next_slab() {
        let all = |slab, first, blocks| parts(slab, first, blocks).collect::<Vec<_>>();
        assert_eq!(all(40, 8, 100), [(40, 8, 100)]);
        assert_eq!(all(40, 0, 1 << 20), [(40, 0, 1 << 20)]);
        assert_eq!(all(40, 0, (2 << 20) + 4), [(40, 0, 1 << 20), (41, 0, 1 << 20), (42, 0, 4)]);
        assert_eq!(all(40, 0, 0), []);
    }
}
