// SPDX-License-Identifier: Apache-2.0
use bolero::{TypeGenerator, check};

use super::*;

const NOW_NS: u64 = 1 << 50;

#[derive(Debug, Clone, TypeGenerator)]
struct Shape {
    seed: Seed,
    slots_log2: u8,
    payload_bytes: u8,
    is_eight: bool,
}

impl Shape {
    fn table(&self) -> Table {
        Table {
            seed: self.seed,
            slots_log2: 2 + self.slots_log2 % 9,
            payload_bytes: 1 + self.payload_bytes % 64,
            check: if self.is_eight { CheckBytes::Eight } else { CheckBytes::Four },
        }
    }
}

struct Memory {
    table: Table,
    bytes: Vec<u8>,
}

impl Memory {
    fn new(table: Table) -> Self {
        Self { table, bytes: vec![0; usize::try_from(table.len_bytes()).unwrap()] }
    }

    fn entry(&self, hash: &Hash, copy: u8) -> std::ops::Range<usize> {
        let from = usize::try_from(self.table.offset(hash, copy)).unwrap();
        from..from + self.table.entry_bytes()
    }

    fn write(&mut self, key: &[u8], copies: u8, time_ns: u64, payload: &[u8]) {
        let hash = self.table.hash(key);
        for copy in 0..copies {
            let range = self.entry(&hash, copy);
            self.table.encode(&hash, Stamp::of(time_ns), payload, &mut self.bytes[range]);
        }
    }

    fn find(&self, key: &[u8], consensus: Consensus) -> Found<'_> {
        let hash = self.table.hash(key);
        self.table.find(&hash, [0, 1, 2, 3].map(|copy| &self.bytes[self.entry(&hash, copy)]), consensus)
    }
}

fn value(payload: &[u8], time_ns: u64, copies: u8, is_disputed: bool) -> Found<'_> {
    Found::Value { payload, stamp: Stamp::of(time_ns), copies, is_disputed }
}

#[test]
fn what_was_written_last_is_found() {
    check!().with_type::<(Shape, Vec<u8>, [u8; 64], [u8; 64], u8)>().for_each(|(shape, key, one, other, copies)| {
        let table = shape.table();
        let (mut memory, copies) = (Memory::new(table), 1 + copies % MAX_COPIES);
        let [one, other] = [one, other].map(|payload| &payload[..table.payload_bytes.into()]);
        assert!(table.entry_bytes().is_power_of_two() && table.entry_bytes() <= MAX_ENTRY_BYTES);
        for consensus in [Consensus::Plurality, Consensus::Strict] {
            assert_eq!(Memory::new(table).find(key, consensus), Found::Empty);
        }
        for payload in [one, other] {
            memory.write(key, copies, NOW_NS, payload);
            for consensus in [Consensus::Plurality, Consensus::Strict] {
                assert_eq!(memory.find(key, consensus), value(payload, NOW_NS, copies, false));
            }
        }
    });
}

/// A write of which a part has arrived, by bytes or in any mixture of words.
#[test]
fn half_of_one_entry_and_half_of_another_fit_no_key() {
    check!().with_type::<(Shape, [[u8; 64]; 2], u64)>().for_each(|(shape, payloads, words)| {
        let table = Table { check: CheckBytes::Eight, ..shape.table() };
        let hash = table.hash(b"a flow");
        let [one, other] = [0, 1].map(|at| {
            let mut entry = vec![0xee; table.entry_bytes()];
            let stamp = Stamp::of(NOW_NS + (3 << 20) * at as u64);
            table.encode(&hash, stamp, &payloads[at][..table.payload_bytes.into()], &mut entry);
            entry
        });
        let cut = |at: usize| [&one[..at], &other[at..]].concat();
        let mixed = one.chunks(8).zip(other.chunks(8)).enumerate();
        let mixed: Vec<u8> =
            mixed.flat_map(|(at, (one, other))| if words >> at & 1 == 0 { one } else { other }).copied().collect();
        for torn in (0..=one.len()).map(cut).chain([mixed]) {
            assert_eq!(table.decode(&hash, &torn).is_some(), torn == one || torn == other, "{torn:02x?}");
        }
    });
}

#[test]
fn copies_that_differ_are_told() {
    let table = Table { seed: [7; 16], slots_log2: 10, payload_bytes: 4, check: CheckBytes::Four };
    let (mut memory, key) = (Memory::new(table), b"10.0.0.1");
    memory.write(key, 3, NOW_NS, b"old.");
    memory.write(key, 1, NOW_NS + (5 << 20), b"new.");
    // Two of three have the old value: the other copies of the new one were lost.
    assert_eq!(memory.find(key, Consensus::Plurality), value(b"old.", NOW_NS, 2, true));
    assert_eq!(memory.find(key, Consensus::Strict), Found::Conflict);
    memory.write(key, 2, NOW_NS + (5 << 20), b"new.");
    assert_eq!(memory.find(key, Consensus::Plurality), value(b"new.", NOW_NS + (5 << 20), 2, true));
    // Of as many the newest.
    memory.write(key, 4, NOW_NS, b"old.");
    memory.write(key, 2, NOW_NS + (5 << 20), b"new.");
    assert_eq!(memory.find(key, Consensus::Plurality), value(b"new.", NOW_NS + (5 << 20), 2, true));
}

#[test]
fn other_keys_and_tables_find_nothing() {
    check!().with_type::<(Shape, [u8; 13], [u8; 64])>().for_each(|(shape, key, payload)| {
        let table = Table { check: CheckBytes::Eight, ..shape.table() };
        let mut memory = Memory::new(table);
        memory.write(key, 4, NOW_NS, &payload[..table.payload_bytes.into()]);
        let mut other = *key;
        other[12] ^= 1;
        assert_eq!(memory.find(&other, Consensus::Plurality), Found::Empty);
        memory.table.seed[0] ^= 1;
        assert_eq!(memory.find(key, Consensus::Plurality), Found::Empty);
    });
}

#[test]
fn stamps_have_an_age() {
    let stamp = Stamp::of(NOW_NS);
    assert_eq!(stamp.age_ns(NOW_NS + (1 << 20) - 1), 0);
    assert_eq!(stamp.age_ns(NOW_NS + (9 << 20)), 9 << 20);
    assert_eq!(stamp.age_ns(NOW_NS - (9 << 20)), 0, "another clock");
    // Zero is no stamp: memory that nobody wrote to has it.
    assert_eq!(Stamp::of(1 << 52), Stamp::of(1 << 20));
    assert_eq!(Stamp::of((1 << 52) - 1).age_ns((1 << 52) + (3 << 20)), 4 << 20, "around the wrap");
    assert_eq!(Stamp::of(0).age_ns(0), 0);
}

#[test]
fn entries_are_as_long_as_the_page_says() {
    let bytes = |check, payload_bytes| Table { seed: [0; 16], slots_log2: 2, payload_bytes, check }.entry_bytes();
    let four = [(1, 16), (8, 16), (9, 32), (24, 32), (25, 64), (56, 64), (57, 128), (64, 128)];
    let eight = [(1, 16), (4, 16), (5, 32), (20, 32), (21, 64), (52, 64), (53, 128), (64, 128)];
    four.iter().for_each(|(payload, entry)| assert_eq!(bytes(CheckBytes::Four, *payload), *entry));
    eight.iter().for_each(|(payload, entry)| assert_eq!(bytes(CheckBytes::Eight, *payload), *entry));
}
