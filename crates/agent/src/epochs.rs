// SPDX-License-Identifier: Apache-2.0
//! Epochs of telemetry counters: when one is over, the other set is cleared and counts from then on (docs/format/dta.md, Counters).
//!
//! Part of the event loop: one deadline. Clearing goes on in a thread of its own, some 5 GiB/s, once an epoch; else nothing wakes up. What epoch it is stands
//! in the table's memory, so that a restart changes nothing.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use onlooker_dta::Geometry;
use onlooker_dta::increment::{Counters, Epoch};
use onlooker_dta::translator::Shape;
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_responder::MAX_SLAB_BLOCKS;
use onlooker_responder::mapping::PAGE_BLOCKS;
use onlooker_responder::{Slab, SlabMapping};
use onlooker_translator::{Place, Table, Translator};

use crate::config::telemetry::Telemetry;
use crate::host::wall_time_ns;
use crate::kernel::telemetry::TableState;
use crate::kernel::{Kernel, KernelError};
use crate::system;

/// What is tried again after a failure.
const RETRY_NS: u64 = 1_000_000_000;

/// The epochs.
#[derive(Debug)]
pub struct Epochs {
    kernel: Rc<Kernel>,
    tables: Vec<Counting>,
}

#[derive(Debug)]
struct Counting {
    name: String,
    number: u16,
    counters: Counters,
    access: u32,
    place: (u32, u32),
    every_ns: u64,
    next_ns: u64,
    clearing: Option<JoinHandle<()>>,
}

impl Epochs {
    /// Of those of the tables that count.
    #[must_use]
    pub fn new(kernel: Rc<Kernel>, config: &Telemetry, tables: &[TableState], now_ns: u64) -> Self {
        let counting = tables.iter().filter_map(|table| {
            let configured = config.tables.iter().find(|configured| configured.number == table.number)?;
            let Some(Geometry::KeyIncrement(counters)) = table.geometry() else { return None };
            Some(Counting {
                name: table.name.clone(),
                number: table.number,
                counters,
                access: configured.access_key.0,
                place: table.place,
                every_ns: configured.epoch().as_ns(),
                next_ns: now_ns,
                clearing: None,
            })
        });
        let mut epochs = Self { tables: counting.collect(), kernel };
        let Self { kernel, tables } = &mut epochs;
        for table in tables {
            match table.resume(kernel) {
                Ok(epoch) => table.next_ns = now_ns + table.left_ns(&epoch),
                Err(error) => table.warn(&error),
            }
        }
        epochs
    }

    /// When [`Epochs::expire`] has something to do next.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.tables.iter().map(|table| table.next_ns).min()
    }

    /// Begins the epochs that are due.
    pub fn expire(&mut self, now_ns: u64) {
        let Self { kernel, tables } = self;
        for table in tables.iter_mut().filter(|table| table.next_ns <= now_ns) {
            // Of two that are due at once, as after a suspension, one begins.
            table.next_ns = match table.begin_next(kernel) {
                Ok(()) => now_ns + table.every_ns,
                Err(error) => {
                    table.warn(&error);
                    now_ns + RETRY_NS
                }
            };
        }
    }
}

impl Counting {
    fn warn(&self, error: &KernelError) {
        system::log(&format!("warning: the epochs of telemetry table {}: {error}", self.name));
    }

    fn left_ns(&self, epoch: &Epoch) -> u64 {
        epoch.began_ns.saturating_add(self.every_ns).saturating_sub(wall_time_ns()).min(self.every_ns)
    }

    fn table(&self, epoch: u64) -> Table {
        let (slab, first_block) = self.place;
        Table {
            access: self.access,
            shape: Shape::KeyIncrement(self.counters, epoch),
            place: Place { slab, first_block },
        }
    }

    fn header(&self, kernel: &Kernel) -> Result<SlabMapping, KernelError> {
        let (slab, first_block) = self.place;
        Ok(kernel.open_slab(slab)?.0.map(first_block, PAGE_BLOCKS, true)?)
    }

    /// Lets the set count that the header names: an earlier agent may have ended in between.
    fn resume(&self, kernel: &Kernel) -> Result<Epoch, KernelError> {
        let epoch = read(&self.header(kernel)?);
        if let Some(translator) = kernel.translator()? {
            translator.change_table(self.number, &self.table(epoch.number))?;
        }
        Ok(epoch)
    }

    fn begin_next(&mut self, kernel: &Kernel) -> Result<(), KernelError> {
        if self.clearing.as_ref().is_some_and(|clearing| !clearing.is_finished()) {
            return Err(KernelError::Incomplete("the last set is still being cleared: make epochs longer"));
        }
        let header = self.header(kernel)?;
        let next = read(&header).next(wall_time_ns());
        let translator = kernel.translator()?.ok_or(KernelError::Incomplete("there is no translator"))?;
        let sets = self.set(kernel, next.number)?;
        let (number, table, name) = (self.number, self.table(next.number), self.name.clone());
        self.clearing = Some(std::thread::spawn(move || {
            if let Err(error) =
                sets.iter().try_for_each(clear).and_then(|()| begin(&header, &next, &translator, number, &table))
            {
                system::log(&format!("warning: an epoch of telemetry table {name} goes on: {error}"));
            }
        }));
        Ok(())
    }

    /// Where an epoch's set is: slab, first word in it, words.
    fn set(&self, kernel: &Kernel, epoch: u64) -> Result<Vec<(Slab, u64, u64)>, KernelError> {
        const SLAB_WORDS: u64 = MAX_SLAB_BLOCKS as u64 * WORDS;
        const WORDS: u64 = BLOCK_BYTES as u64 / 8;
        let (slab, first_block) = self.place;
        let mut at = u64::from(first_block) * WORDS + self.counters.set_offset(epoch) / 8;
        let mut left = self.counters.set_bytes() / 8;
        let mut sets = Vec::new();
        while left > 0 {
            let index = slab + u32::try_from(at / SLAB_WORDS).unwrap_or(u32::MAX);
            let here = left.min(SLAB_WORDS - at % SLAB_WORDS);
            sets.push((kernel.open_slab(index)?.0, at % SLAB_WORDS, here));
            (at, left) = (at + here, left - here);
        }
        Ok(sets)
    }
}

fn read(header: &SlabMapping) -> Epoch {
    let mut bytes = [0; 24];
    for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(header.words()) {
        *to = word.load(Ordering::Relaxed).to_le_bytes();
    }
    Epoch::from_bytes(&bytes)
}

/// Piece by piece, so that little is mapped at once.
fn clear((slab, from, words): &(Slab, u64, u64)) -> Result<(), KernelError> {
    const PIECE_BLOCKS: u32 = 4096;
    const WORDS: u64 = BLOCK_BYTES as u64 / 8;
    let (mut at, end) = (*from, from + words);
    while at < end {
        let first = u32::try_from(at / WORDS).unwrap_or(u32::MAX) / PAGE_BLOCKS * PAGE_BLOCKS;
        let blocks = PIECE_BLOCKS.min(slab.blocks() - first);
        let base = u64::from(first) * WORDS;
        let piece_end = end.min(base + u64::from(blocks) * WORDS);
        let piece = slab.map(first, blocks, true)?;
        let index = |word: u64| usize::try_from(word - base).unwrap_or(usize::MAX);
        piece.words()[index(at)..index(piece_end)].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        at = piece_end;
    }
    Ok(())
}

/// Readers first: what is still counted before the programs know is counted for the epoch that is over.
fn begin(
    header: &SlabMapping,
    next: &Epoch,
    translator: &Translator,
    number: u16,
    table: &Table,
) -> Result<(), KernelError> {
    for (word, bytes) in header.words().iter().zip(next.to_bytes().as_chunks::<8>().0) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Release);
    }
    Ok(translator.change_table(number, table)?)
}
