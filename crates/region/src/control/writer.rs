// SPDX-License-Identifier: Apache-2.0
//! The agent's side: one writer, entries first, then the header that announces them.

use super::entry::{ENTRIES_PER_BLOCK, ENTRY_WORDS, RING};
use super::{CONTROL_REGION, ControlError, Entry, Header, RegionEntry, SchemaEntry};
use crate::block::Identity;
use crate::guard::commit;
use crate::limits::{BLOCK_BYTES, BLOCK_WORDS, GUARDED_BYTES, MAX_ENTRY_BLOCKS, MAX_REGION_BLOCKS};
use crate::schema::SchemaId;
use crate::slab::{Range, Ranges};
use crate::sync::AtomicU64;
use std::collections::{BTreeSet, HashMap};

/// Where the control region is for READs, and which incarnation writes it.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Address.
    pub va: u64,
    /// Key.
    pub rkey: u32,
    /// Who answers READs of it: RESPONDER_* bits.
    pub responders: u32,
    /// Generation of its identities, 1 to 2^24-1, random per agent start.
    pub incarnation: u32,
}

pub(super) struct StoredSchema {
    pub(super) slot: usize,
    pub(super) range: Range,
    pub(super) users: usize,
}

/// Writer of a control region in `M`: a mapping, or plain words in tests.
pub struct ControlWriter<M> {
    pub(super) memory: M,
    pub(super) place: Place,
    pub(super) header: Header,
    pub(super) max_entry_blocks: u32,
    /// Both entries of each entry block in use, as committed.
    pub(super) entries: Vec<[u64; ENTRY_WORDS]>,
    pub(super) free: BTreeSet<usize>,
    pub(super) schemas: HashMap<SchemaId, StoredSchema>,
    pub(super) schema_ranges: Ranges,
    reuse_delay_ns: u64,
}

impl<M: AsRef<[AtomicU64]>> ControlWriter<M> {
    /// Begins a control region that fills `memory`: an eighth for entries, the rest for schemas. The header is committed at once.
    ///
    /// # Panics
    /// If `memory` is not 16 to 65,536 whole blocks.
    pub fn new(
        memory: M,
        place: Place,
        host_id: [u8; 16],
        boot_id: [u8; 16],
        reuse_delay_ns: u64,
        now_ns: u64,
    ) -> Self {
        let words = memory.as_ref().len();
        let blocks = u32::try_from(words / BLOCK_WORDS).expect("checked below");
        assert!(words % BLOCK_WORDS == 0 && (16..=MAX_REGION_BLOCKS).contains(&blocks));
        let header = Header {
            generation: 0,
            host_id,
            boot_id,
            entry_blocks: 0,
            live: 0,
            schema_first: 1 + max_entry_blocks(blocks),
            schema_blocks: 0,
            blocks,
            began_ns: now_ns,
            ring: [0; RING],
        };
        let writer = Self::empty(memory, place, header, reuse_delay_ns);
        writer.commit_header(now_ns);
        writer
    }

    /// Without entries; `header` has sizes that belong together. Nothing is committed.
    pub(super) fn empty(memory: M, place: Place, header: Header, reuse_delay_ns: u64) -> Self {
        let schema_bytes = u64::from(header.blocks - header.schema_first) * BLOCK_BYTES as u64;
        Self {
            memory,
            place,
            max_entry_blocks: max_entry_blocks(header.blocks),
            header,
            entries: Vec::new(),
            free: BTreeSet::new(),
            schemas: HashMap::new(),
            schema_ranges: Ranges::new(schema_bytes),
            reuse_delay_ns,
        }
    }

    /// Where it is.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Generation of the last change.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.header.generation
    }

    /// Entries that are not free.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.header.live
    }

    /// Entries that there can be.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.max_entry_blocks.saturating_mul(u32::try_from(ENTRIES_PER_BLOCK).unwrap_or(u32::MAX))
    }

    /// Adds an entry and returns its slot.
    ///
    /// # Errors
    /// [`ControlError::NoEntry`], [`ControlError::LabelsTooLong`]; nothing has changed then.
    pub fn add(&mut self, entry: &Entry, now_ns: u64) -> Result<usize, ControlError> {
        let words = entry.encode()?;
        let slot = match self.free.pop_first() {
            Some(slot) => slot,
            None if self.header.entry_blocks < self.max_entry_blocks => {
                let slot = self.entries.len();
                self.entries.resize(slot + ENTRIES_PER_BLOCK, [0; ENTRY_WORDS]);
                self.free.extend(slot + 1..slot + ENTRIES_PER_BLOCK);
                self.header.entry_blocks += 1;
                slot
            }
            None => return Err(ControlError::NoEntry(self.entries.len())),
        };
        self.header.live += 1;
        self.put(slot, words, now_ns);
        Ok(slot)
    }

    /// Replaces the entry in a slot that [`ControlWriter::add`] returned.
    ///
    /// # Errors
    /// [`ControlError::LabelsTooLong`]; nothing has changed then.
    pub fn replace(&mut self, slot: usize, entry: &Entry, now_ns: u64) -> Result<(), ControlError> {
        let words = entry.encode()?;
        self.put(slot, words, now_ns);
        Ok(())
    }

    /// Frees a slot.
    ///
    /// # Panics
    /// If it is free already.
    pub fn remove(&mut self, slot: usize, now_ns: u64) {
        assert!(slot < self.entries.len() && self.free.insert(slot), "entry {slot} is not in use");
        self.header.live -= 1;
        self.put(slot, [0; ENTRY_WORDS], now_ns);
    }

    /// Makes sure that a schema's text is in the directory, and counts one more user of it.
    ///
    /// # Errors
    /// [`ControlError::NoSchemaRoom`], [`ControlError::NoEntry`]; nothing has changed then.
    pub fn hold_schema(&mut self, id: SchemaId, name: &str, canonical: &str, now_ns: u64) -> Result<(), ControlError> {
        if let Some(stored) = self.schemas.get_mut(&id) {
            stored.users += 1;
            return Ok(());
        }
        let blocks = canonical.len().div_ceil(GUARDED_BYTES);
        let no_room = ControlError::NoSchemaRoom(canonical.len());
        let range = self.schema_ranges.take((blocks * BLOCK_BYTES) as u64, now_ns).ok_or(no_room)?;
        let first =
            self.header.schema_first + u32::try_from(range.offset / BLOCK_BYTES as u64).expect("within the region");
        for (index, text) in (first..).zip(canonical.as_bytes().chunks(GUARDED_BYTES)) {
            commit(self.block(index), self.identity(index), now_ns, |payload| {
                for slot in 0..payload.len() {
                    payload.set(
                        slot,
                        u64::from_le_bytes(std::array::from_fn(|i| text.get(slot * 8 + i).copied().unwrap_or(0))),
                    );
                }
            });
        }
        let va = self.place.va + u64::from(first) * BLOCK_BYTES as u64;
        let entry = SchemaEntry {
            id,
            va,
            rkey: self.place.rkey,
            responders: self.place.responders,
            created_ns: now_ns,
            bytes: canonical.len() as u64,
            name: name.into(),
        };
        self.count_schema_blocks();
        match self.add(&Entry::Schema(entry), now_ns) {
            Ok(slot) => {
                self.schemas.insert(id, StoredSchema { slot, range, users: 1 });
                Ok(())
            }
            Err(error) => {
                self.schema_ranges.give(range, now_ns);
                self.count_schema_blocks();
                Err(error)
            }
        }
    }

    /// One user less; the last one frees the text, whose blocks rest for the reuse delay.
    ///
    /// # Panics
    /// If nobody holds the schema.
    pub fn release_schema(&mut self, id: SchemaId, now_ns: u64) {
        let stored = self.schemas.get_mut(&id).expect("held before");
        stored.users -= 1;
        if stored.users == 0 {
            let StoredSchema { slot, range, .. } = self.schemas.remove(&id).expect("just seen");
            self.schema_ranges.give(range, now_ns + self.reuse_delay_ns);
            self.count_schema_blocks();
            self.remove(slot, now_ns);
        }
    }

    /// Moves the region to another address and key. `regions` is what the entries of regions are from now on, each in the slot that it has; those of schemas follow
    /// the region. The caller makes sure that the old address is answered no more; whoever comes to the new one finds a directory that is whole.
    ///
    /// # Errors
    /// [`ControlError::LabelsTooLong`] of an entry that was not encoded before; nothing has changed then.
    pub fn relocate(
        &mut self,
        (va, rkey): (u64, u32),
        regions: &[(usize, RegionEntry)],
        now_ns: u64,
    ) -> Result<(), ControlError> {
        let mut moved = Vec::with_capacity(regions.len() + self.schemas.len());
        for (slot, region) in regions {
            moved.push((*slot, region.to_words()?));
        }
        for stored in self.schemas.values() {
            if let Entry::Schema(mut schema) = Entry::decode(&self.entries[stored.slot]) {
                (schema.va, schema.rkey) = (va + (schema.va - self.place.va), rkey);
                moved.push((stored.slot, Entry::Schema(schema).encode()?));
            }
        }
        (self.place.va, self.place.rkey) = (va, rkey);
        moved.into_iter().for_each(|(slot, words)| self.put(slot, words, now_ns));
        Ok(())
    }

    /// The memory it writes.
    #[must_use]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    pub(super) fn count_schema_blocks(&mut self) {
        let bytes = self.schema_ranges.used() / BLOCK_BYTES as u64;
        self.header.schema_blocks = u32::try_from(bytes).expect("within the region");
    }

    pub(super) fn put(&mut self, slot: usize, words: [u64; ENTRY_WORDS], now_ns: u64) {
        self.entries[slot] = words;
        let pair = slot / ENTRIES_PER_BLOCK;
        let index = 1 + u32::try_from(pair).expect("at most MAX_ENTRY_BLOCKS");
        commit(self.block(index), self.identity(index), now_ns, |payload| {
            for (at, words) in self.entries[pair * ENTRIES_PER_BLOCK..][..ENTRIES_PER_BLOCK].iter().enumerate() {
                payload.set_all(at * ENTRY_WORDS, words);
            }
        });
        self.header.generation += 1;
        self.header.ring[usize::try_from(self.header.generation % RING as u64).expect("below 64")] = index;
        self.commit_header(now_ns);
    }

    pub(super) fn commit_header(&self, now_ns: u64) {
        commit(self.block(0), self.identity(0), now_ns, |payload| self.header.encode(payload));
    }

    fn block(&self, index: u32) -> &[AtomicU64] {
        &self.memory.as_ref()[index as usize * BLOCK_WORDS..][..BLOCK_WORDS]
    }

    pub(super) fn identity(&self, index: u32) -> Identity {
        Identity::first(CONTROL_REGION, self.place.incarnation).at(u16::try_from(index).expect("at most 65536 blocks"))
    }
}

/// An eighth for entries, the rest for schemas.
pub(super) fn max_entry_blocks(blocks: u32) -> u32 {
    (blocks / 8).min(MAX_ENTRY_BLOCKS)
}
