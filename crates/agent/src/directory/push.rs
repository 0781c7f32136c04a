// SPDX-License-Identifier: Apache-2.0
//! What of the control region is to be written to readers' copies of it: the entry blocks that the header's change ring names, the texts of schemas that are new, and the
//! header last, so that a copy has what its header names.
//!
//! A reader does not rely on that (docs/format/bootstrap.md, Copies of the directory): what is left out here costs it a READ.

use std::collections::BTreeSet;

use onlooker_region::Block;
use onlooker_region::control::{ENTRY_WORDS, Header};
use onlooker_region::limits::{BLOCK_BYTES, BLOCK_WORDS, GUARDED_BYTES, MAX_SCHEMA_BYTES};
use onlooker_region::sync::AtomicU64;

/// Words of an entry (docs/format/control.md): e0 with its kind, e2, e3 and e8.
const KIND_AT: usize = 0;
const VA_AT: usize = 2;
const BYTES_AT: usize = 3;
const CREATED_AT: usize = 8;
const SCHEMA_KIND: u64 = 2;

/// What copies were told last.
#[derive(Debug, Default)]
pub(super) struct Pushed {
    /// Generation of the directory; `None`: nobody knows.
    generation: Option<u64>,
    /// When, CLOCK_BOOTTIME ns.
    time_ns: u64,
}

impl Pushed {
    /// Whether this generation was told, or nobody had to be.
    pub(super) fn is_at(&self, generation: u64) -> bool {
        self.generation == Some(generation)
    }

    /// Copies have this generation from now on, or there are none.
    pub(super) fn follow(&mut self, generation: u64, now_ns: u64) {
        *self = Self { generation: Some(generation), time_ns: now_ns };
    }

    /// Ranges of the control region, which is `memory` and lies at `va` for READs: first byte and length, the header last. It alone where more has changed than its ring
    /// names: who is so far behind reads everything from the host.
    pub(super) fn changes(&self, memory: &[AtomicU64], va: u64) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        if let Ok(header) = Header::decode(block(memory, 0).payload())
            && let Some(known) = self.generation
            && header.generation.checked_sub(known).is_some_and(|behind| behind <= header.ring.len() as u64)
        {
            let entries: BTreeSet<u64> =
                (known + 1..=header.generation).map(|generation| header.ring_at(generation).into()).collect();
            let blocks = memory.len() / BLOCK_WORDS;
            let schemas: BTreeSet<u64> =
                entries.iter().flat_map(|index| self.new_schemas(&block(memory, *index), va, blocks)).collect();
            ranges.extend(joined(&schemas));
            ranges.extend(joined(&entries));
        }
        ranges.push((0, BLOCK_BYTES as u64));
        ranges
    }

    /// Blocks with texts of schemas that an entry block names and that were not there when copies were told last.
    fn new_schemas(&self, entries: &Block, va: u64, blocks: usize) -> Vec<u64> {
        let entries = entries.payload().chunks_exact(ENTRY_WORDS);
        let new = entries.filter(|entry| entry[KIND_AT] & 0xff == SCHEMA_KIND && entry[CREATED_AT] >= self.time_ns);
        let texts = new.flat_map(|entry| {
            let first = entry[VA_AT].wrapping_sub(va) / BLOCK_BYTES as u64;
            let count = entry[BYTES_AT].min(MAX_SCHEMA_BYTES as u64).div_ceil(GUARDED_BYTES as u64);
            first..first.saturating_add(count)
        });
        texts.filter(|index| *index < blocks as u64).collect()
    }
}

/// A block of the control region, of which nobody else is the writer.
fn block(memory: &[AtomicU64], index: u64) -> Block {
    let mut block = Block::default();
    let at = usize::try_from(index).ok().and_then(|index| memory.chunks_exact(BLOCK_WORDS).nth(index));
    if let Some(words) = at {
        block.copy_from(words);
    }
    block
}

/// Neighbours as one range.
fn joined(blocks: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for index in blocks {
        let begin = index * BLOCK_BYTES as u64;
        match ranges.last_mut() {
            Some((first, bytes)) if *first + *bytes == begin => *bytes += BLOCK_BYTES as u64,
            _ => ranges.push((begin, BLOCK_BYTES as u64)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_region::SchemaId;
    use onlooker_region::block::Identity;
    use onlooker_region::control::{ControlWriter, Entry, Place, RESPONDER_TCP, RegionEntry};
    use onlooker_region::map::{Map, sealed_memfd};

    const VA: u64 = 1 << 40;
    const BLOCKS: u64 = 64;

    fn writer() -> ControlWriter<Map> {
        let bytes = BLOCKS * 1024;
        let memory = Map::of(sealed_memfd("test", bytes).unwrap(), 0, bytes, true).unwrap();
        let place = Place { va: VA, rkey: 1, incarnation: 5, responders: RESPONDER_TCP };
        ControlWriter::new(memory, place, [1; 16], [2; 16], 0, 1)
    }

    fn entry(id: u32) -> Entry {
        Entry::Region(RegionEntry {
            identity: Identity::first(id, 7),
            va: 0,
            bytes: 1024,
            rkey: id,
            device_rkey: 0,
            responders: RESPONDER_TCP,
            schema: SchemaId([3; 16]),
            pid: 1,
            uid: 0,
            created_ns: 1,
            orphan: false,
            name: "a".into(),
            labels: Vec::new(),
        })
    }

    /// In blocks.
    fn changes(pushed: &Pushed, control: &ControlWriter<Map>) -> Vec<(u64, u64)> {
        let ranges = pushed.changes(control.memory().words(), VA);
        ranges.iter().map(|(begin, bytes)| (begin / 1024, bytes / 1024)).collect()
    }

    #[test]
    fn blocks_that_have_changed_go_before_the_header_that_says_so() {
        let (mut control, mut pushed) = (writer(), Pushed::default());
        assert!(!pushed.is_at(0));
        assert_eq!(changes(&pushed, &control), [(0, 1)], "what was told is not known");
        pushed.follow(control.generation(), 10);
        let slots: Vec<usize> = (1..=7).map(|id| control.add(&entry(id), 11).unwrap()).collect();
        assert_eq!(changes(&pushed, &control), [(1, 4), (0, 1)]);
        pushed.follow(control.generation(), 12);
        assert!(pushed.is_at(control.generation()));
        control.replace(slots[0], &entry(8), 13).unwrap();
        control.remove(slots[4], 13);
        control.replace(slots[0], &entry(9), 13).unwrap();
        assert_eq!(changes(&pushed, &control), [(1, 1), (3, 1), (0, 1)]);
        pushed.follow(control.generation(), 14);
        for id in 0..64 {
            control.replace(slots[1], &entry(id + 1), 15).unwrap();
        }
        assert_eq!(changes(&pushed, &control), [(1, 1), (0, 1)]);
        control.replace(slots[1], &entry(1), 15).unwrap();
        assert_eq!(changes(&pushed, &control), [(0, 1)], "the ring does not name all any more");
    }

    #[test]
    fn a_schemas_text_goes_along_once_and_first() {
        let (mut control, mut pushed) = (writer(), Pushed::default());
        pushed.follow(control.generation(), 10);
        let text = "x".repeat(2 * GUARDED_BYTES + 1);
        control.hold_schema(SchemaId([3; 16]), "c", &text, 10).unwrap();
        let first = 1 + BLOCKS / 8;
        assert_eq!(changes(&pushed, &control), [(first, 3), (1, 1), (0, 1)]);
        pushed.follow(control.generation(), 11);
        // Its neighbour in the entry block.
        control.add(&entry(1), 12).unwrap();
        assert_eq!(changes(&pushed, &control), [(1, 1), (0, 1)]);
    }

    #[test]
    fn an_entry_that_lies_names_no_block_outside() {
        let mut lying = Block::default();
        for entry in lying.0[3..127].chunks_exact_mut(ENTRY_WORDS) {
            (entry[KIND_AT], entry[VA_AT], entry[BYTES_AT]) = (SCHEMA_KIND, VA + 62 * 1024, u64::MAX);
        }
        let named = Pushed::default().new_schemas(&lying, VA, 64);
        assert_eq!(named, [62, 63, 62, 63]);
        lying.0[3 + VA_AT] = 0;
        assert_eq!(Pushed::default().new_schemas(&lying, VA, 64), [62, 63]);
    }
}
