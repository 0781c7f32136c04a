// SPDX-License-Identifier: Apache-2.0
//! Kernel metrics from procfs in guarded blocks, with node_exporter's names, labels and units.
//!
//! One region per group, so that a reader can read each at its own rate. Written by whoever holds the sampler's lock. A sample allocates nothing
//! but a row's key when a device is new. Cost: the kernel's for the file (30-100 us) plus 100 ns a block.

mod draft;

use std::io;

use onlooker_kernel::collect::DeviceKey;
use onlooker_region::Schema;
use onlooker_region::block::Identity;
use onlooker_region::guard::commit;
use onlooker_region::limits::{BLOCK_WORDS, GUARDED_SLOTS};
use onlooker_region::map::{Map, MapError};
use onlooker_region::table::{Table, TableError, put_text};

use crate::host;
use crate::procfs::{self, CPU_MODES, LINE_BYTES, Source, Stat};

pub use draft::{Covered, Draft, left_name};

/// CPU time that goes back by less is an estimate corrected, by more a CPU's new beginning (jumpBackSeconds in node_exporter).
const CPU_RESET_S: u64 = 3;
/// IFNAMSIZ, two words.
const DEVICE_WORDS: usize = 2;

/// Why a group of kernel metrics is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A file.
    #[error("{path}: {source}; take the group out of [sampled] groups if this host has no such file")]
    File {
        /// Which.
        path: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing in it was understood.
    #[error("{path} holds nothing that this agent understands; take the group out of [sampled] groups")]
    Content {
        /// Which.
        path: &'static str,
    },
    /// Its memory.
    #[error("memory for kernel metrics: {0}")]
    Memory(#[from] MapError),
}

/// A group ready to be sampled.
pub struct Sampled {
    /// Region name.
    pub name: &'static str,
    /// Its class.
    pub schema: Schema,
    /// Its memory.
    pub memory: Map,
    path: &'static str,
    source: Source,
    identity: Identity,
    content: Content,
}

enum Content {
    Cpu { ticks: Vec<u64>, stat_block: Option<usize>, reset_ticks: u64 },
    Load,
    Memory { names: Vec<Vec<u8>> },
    Network { tables: Vec<DeviceTable>, seen: Vec<DeviceKey> },
}

struct DeviceTable {
    table: Table<Map>,
    /// Places in /proc/net/dev, by value slot.
    columns: Vec<usize>,
    /// Only devices that have no computed row.
    is_of_uncovered: bool,
}

/// What a sample could not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loss {
    /// The file could not be read.
    pub failed: bool,
    /// Devices without a row.
    pub rows_dropped: u64,
}

impl Sampled {
    /// The file that is sampled.
    #[must_use]
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Takes a sample. A file that cannot be read leaves the blocks as they were: their time tells their age. `computed`: devices that have a computed row, if that
    /// is known; otherwise the table of the others stays as it is.
    pub fn sample(&mut self, buffer: &mut [u8; LINE_BYTES], computed: Option<&[DeviceKey]>) -> Loss {
        let now_ns = host::boot_time_ns();
        let mut loss = Loss::default();
        let (memory, identity) = (&self.memory, self.identity);
        let put = |block: usize, values: &[u64]| {
            let index = u16::try_from(block).unwrap_or(u16::MAX);
            let words = &memory.words()[block * BLOCK_WORDS..][..BLOCK_WORDS];
            commit(words, identity.at(index), now_ns, |payload| payload.set_all(0, values));
        };
        let read = match &mut self.content {
            Content::Cpu { ticks, stat_block, reset_ticks } => {
                let mut other = [0; 6];
                let read = self.source.each_line(buffer, |line| match procfs::stat(line) {
                    Some(Stat::Cpu { cpu, ticks: new }) => {
                        // A CPU beyond those present at start has no place; one that is offline keeps its last values.
                        if let Some(own) = ticks.as_chunks_mut::<{ CPU_MODES.len() }>().0.get_mut(cpu) {
                            *own = procfs::steady_ticks(own, &new, *reset_ticks);
                        }
                    }
                    Some(Stat::BootTime(value)) => other[0] = value,
                    Some(Stat::ContextSwitches(value)) => other[1] = value,
                    Some(Stat::Forks(value)) => other[2] = value,
                    Some(Stat::Interrupts(value)) => other[3] = value,
                    Some(Stat::Running(value)) => other[4] = value,
                    Some(Stat::Blocked(value)) => other[5] = value,
                    None => {}
                });
                if read.is_ok() {
                    ticks.chunks_exact(GUARDED_SLOTS).enumerate().for_each(|(block, values)| put(block, values));
                    if let Some(block) = stat_block {
                        put(*block, &other);
                    }
                }
                read
            }
            Content::Load => {
                let mut loads = None;
                let read = self.source.each_line(buffer, |line| loads = loads.or(procfs::loadavg(line)));
                if let Some(loads) = loads {
                    put(0, &loads.map(f64::to_bits));
                }
                read
            }
            Content::Memory { names } => {
                let mut values = [0; GUARDED_SLOTS];
                let mut next = 0;
                let read = self.source.each_line(buffer, |line| {
                    let Some((name, value, _)) = procfs::meminfo(line) else { return };
                    // The kernel's order does not change while it runs, so the first look finds it.
                    let found = names.get(next).filter(|expected| *expected == name).map(|_| next);
                    if let Some(slot) = found.or_else(|| names.iter().position(|known| known == name)) {
                        values[slot] = value;
                        next = slot + 1;
                    }
                });
                if read.is_ok() {
                    put(0, &values[..names.len()]);
                }
                read
            }
            Content::Network { tables, seen } => {
                seen.clear();
                let has_computed_row = |key: &[u64]| computed.is_some_and(|keys| keys.iter().any(|other| other == key));
                let are_known = |table: &DeviceTable| computed.is_some() || !table.is_of_uncovered;
                let read = self.source.each_line(buffer, |line| {
                    let Some((device, counters)) = procfs::netdev(line) else { return };
                    let mut key = [0; DEVICE_WORDS];
                    put_text(&mut key, device);
                    seen.push(key);
                    for one in tables.iter_mut().filter(|one| are_known(one)) {
                        if one.is_of_uncovered && has_computed_row(&key) {
                            continue;
                        }
                        let fill = (0..).zip(&one.columns);
                        let upserted = one.table.upsert(&key, now_ns, |row| {
                            fill.for_each(|(slot, column)| row.set(slot, counters[*column]));
                        });
                        if let Err(TableError::Full(_) | TableError::Key(_)) = upserted {
                            loss.rows_dropped += 1;
                        }
                    }
                });
                if read.is_ok() {
                    for one in tables.iter_mut().filter(|one| are_known(one)) {
                        let is_of_uncovered = one.is_of_uncovered;
                        one.table.retain(now_ns, |key| {
                            seen.iter().any(|other| other == key) && !(is_of_uncovered && has_computed_row(key))
                        });
                    }
                }
                read
            }
        };
        loss.failed = read.is_err();
        loss
    }
}

#[cfg(test)]
mod tests;
