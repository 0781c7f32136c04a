// SPDX-License-Identifier: Apache-2.0
//! Taking over a control region whose writer was killed at an arbitrary instant, in place: readers go on with a later generation.
//! They read the whole directory once more, and nothing else changes for them.
//!
//! What is in memory is not trusted where a kill can have torn it: the regions come from the caller, who keeps them elsewhere, and a schema counts
//! only if its text hashes to its id. Everything else is free. Entries that do not stand as they should are committed again.

use super::entry::{ENTRIES_PER_BLOCK, ENTRY_WORDS, RING};
use super::writer::{StoredSchema, max_entry_blocks};
use super::{ControlWriter, Entry, Header, Place, RegionEntry, SchemaEntry, assemble_schema, schema_extent};
use crate::block::Block;
use crate::guard;
use crate::limits::{BLOCK_BYTES, BLOCK_WORDS};
use crate::slab::{PAGE_BYTES, Range};
use crate::sync::AtomicU64;

/// A control region that was taken over.
pub struct Resumed<M> {
    /// Its writer.
    pub writer: ControlWriter<M>,
    /// Slots of given regions that could not be kept, since their schema's text is damaged, or no such slot exists.
    pub lost: Vec<usize>,
}

impl<M: AsRef<[AtomicU64]>> ControlWriter<M> {
    /// Takes over the control region that another writer has left at `place`. `regions` are all that shall be in it, each in the slot that it had; each
    /// holds its schema once. Freed schema blocks do not rest again: a reader who is that late sees that the text does not hash to its id.
    ///
    /// `None` where `memory` is no control region of this format, host and boot and of this size: begin a new one.
    #[must_use]
    pub fn resume(
        memory: M,
        place: Place,
        host_id: [u8; 16],
        boot_id: [u8; 16],
        reuse_delay_ns: u64,
        now_ns: u64,
        regions: &[(usize, RegionEntry)],
    ) -> Option<Resumed<M>> {
        let words = memory.as_ref();
        // Payload words that a torn commit leaves as they were; the generation is the old or the new one, and either is after what readers have seen.
        let old = Header::decode(copy(words, 0).payload()).ok()?;
        let blocks = u32::try_from(words.len() / BLOCK_WORDS).ok()?;
        let schema_first = 1 + max_entry_blocks(blocks);
        if (old.host_id, old.boot_id, old.blocks, old.schema_first) != (host_id, boot_id, blocks, schema_first) {
            return None;
        }
        let mut writer = Self::empty(memory, place, old, reuse_delay_ns);
        let schemas = writer.find_schemas();
        let lost = writer.restore(regions, &schemas, now_ns);
        // A kill between an entry block and the header that names it: readers have not heard of the change. Past the ring they read everything.
        writer.header.generation += RING as u64 + 1;
        writer.commit_header(now_ns);
        Some(Resumed { writer, lost })
    }

    /// Schema entries that stand in memory and whose text is whole, with their slots.
    fn find_schemas(&self) -> Vec<(usize, SchemaEntry)> {
        let slots = self.max_entry_blocks as usize * ENTRIES_PER_BLOCK;
        let entries = (0..slots).map(|slot| (slot, Entry::decode(&self.standing(slot))));
        entries
            .filter_map(|(slot, entry)| match entry {
                Entry::Schema(schema) if self.is_whole(&schema) => Some((slot, schema)),
                _ => None,
            })
            .collect()
    }

    fn is_whole(&self, schema: &SchemaEntry) -> bool {
        let bytes = u64::from(self.header.blocks) * BLOCK_BYTES as u64;
        schema_extent(schema, self.place.va, bytes).is_ok_and(|(first, count)| {
            let blocks: Vec<Block> = (first..first + count).map(|index| copy(self.memory.as_ref(), index)).collect();
            first >= self.header.schema_first && assemble_schema(schema, self.place.incarnation, first, &blocks).is_ok()
        })
    }

    /// Puts every slot as it should be; returns the slots of regions that cannot be kept.
    fn restore(
        &mut self,
        regions: &[(usize, RegionEntry)],
        schemas: &[(usize, SchemaEntry)],
        now_ns: u64,
    ) -> Vec<usize> {
        let mut lost = Vec::new();
        let mut wanted = vec![None; self.max_entry_blocks as usize * ENTRIES_PER_BLOCK];
        for (slot, region) in regions {
            let free = wanted.get(*slot).is_some_and(Option::is_none);
            let encoded = region.to_words().ok().filter(|_| free && self.hold_found(region, schemas, now_ns));
            match encoded {
                Some(words) => wanted[*slot] = Some(words),
                None => lost.push(*slot),
            }
        }
        for (slot, schema) in schemas {
            if self.schemas.get(&schema.id).is_some_and(|stored| stored.slot == *slot) {
                wanted[*slot] = Some(self.standing(*slot));
            }
        }
        let used = wanted.iter().rposition(Option::is_some).map_or(0, |last| last / ENTRIES_PER_BLOCK + 1);
        let pairs = used.max(self.header.entry_blocks as usize);
        self.header.entry_blocks = u32::try_from(pairs).expect("at most max_entry_blocks");
        self.header.live = u32::try_from(wanted.iter().flatten().count()).expect("two an entry block");
        wanted.truncate(pairs * ENTRIES_PER_BLOCK);
        self.free = (0..wanted.len()).filter(|slot| wanted[*slot].is_none()).collect();
        self.entries = wanted.into_iter().map(|words| words.unwrap_or([0; ENTRY_WORDS])).collect();
        self.count_schema_blocks();
        for pair in 0..pairs {
            let slot = pair * ENTRIES_PER_BLOCK;
            let index = u32::try_from(pair + 1).expect("at most MAX_ENTRY_BLOCKS");
            let accepted = guard::check(&copy(self.memory.as_ref(), index), self.identity(index)).is_ok();
            if !accepted || (slot..slot + ENTRIES_PER_BLOCK).any(|slot| self.standing(slot) != self.entries[slot]) {
                self.put(slot, self.entries[slot], now_ns);
            }
        }
        lost
    }

    /// One more user of a schema that was found in memory.
    fn hold_found(&mut self, region: &RegionEntry, schemas: &[(usize, SchemaEntry)], now_ns: u64) -> bool {
        if let Some(stored) = self.schemas.get_mut(&region.schema) {
            stored.users += 1;
            return true;
        }
        let Some((slot, schema)) = schemas.iter().find(|(_, schema)| schema.id == region.schema) else { return false };
        let bytes = u64::from(self.header.blocks) * BLOCK_BYTES as u64;
        let Ok((first, count)) = schema_extent(schema, self.place.va, bytes) else { return false };
        let range = Range {
            offset: u64::from(first - self.header.schema_first) * BLOCK_BYTES as u64,
            bytes: (u64::from(count) * BLOCK_BYTES as u64).next_multiple_of(PAGE_BYTES),
        };
        let taken = self.schema_ranges.take_at(range, now_ns);
        if taken {
            self.schemas.insert(region.schema, StoredSchema { slot: *slot, range, users: 1 });
        }
        taken
    }

    /// An entry as it stands in memory, torn or not.
    fn standing(&self, slot: usize) -> [u64; ENTRY_WORDS] {
        let index = u32::try_from(slot / ENTRIES_PER_BLOCK + 1).expect("at most MAX_ENTRY_BLOCKS");
        let block = copy(self.memory.as_ref(), index);
        let from = slot % ENTRIES_PER_BLOCK * ENTRY_WORDS;
        std::array::from_fn(|word| block.payload()[from + word])
    }
}

fn copy(words: &[AtomicU64], index: u32) -> Block {
    let mut block = Block::default();
    block.copy_from(&words[index as usize * BLOCK_WORDS..][..BLOCK_WORDS]);
    block
}

#[cfg(all(test, not(loom)))]
mod tests;
