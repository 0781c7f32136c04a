// SPDX-License-Identifier: Apache-2.0
//! Questions to memory that a model translator writes.

use onlooker_dta::Geometry;
use onlooker_dta::append::{List, Open, Position};
use onlooker_dta::increment::{Counters, Epoch};
use onlooker_dta::key_write::{CheckBytes, Consensus, Stamp, Table as KeyWrite};
use onlooker_region::Block;
use onlooker_region::control::TableEntry;
use onlooker_region::limits::BLOCK_BYTES;

use super::*;

/// A table's bytes.
struct Bytes(Vec<u8>);

impl Bytes {
    fn new(geometry: Geometry) -> (Self, Table) {
        let bytes = geometry.len_bytes().next_multiple_of(BLOCK_BYTES as u64);
        let entry = TableEntry {
            geometry: geometry.to_bits(),
            seed: geometry.seed(),
            number: 1,
            part: 0,
            va: 0,
            bytes,
            rkey: 1,
            responders: 2,
            created_ns: 0,
            name: "t".into(),
        };
        let table = Table::of(&std::iter::once((0, &entry)).collect()).unwrap();
        (Self(vec![0; usize::try_from(bytes).unwrap()]), table)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let from = usize::try_from(offset).unwrap();
        self.0[from..from + bytes.len()].copy_from_slice(bytes);
    }
}

impl Readable for Bytes {
    fn blocks(&mut self, table: &Table, offsets: &[u64], blocks: &mut Vec<Block>) -> Result<(), AskError> {
        blocks.clear();
        for offset in offsets {
            let (va, _) = table.block(*offset).ok_or(AskError::Short)?;
            let from = usize::try_from(va).unwrap();
            let mut block = Block::default();
            block.bytes_mut().copy_from_slice(&self.0[from..from + BLOCK_BYTES]);
            blocks.push(block);
        }
        Ok(())
    }
}

#[test]
fn values_are_what_was_written() {
    let of = KeyWrite { seed: [5; 16], slots_log2: 10, payload_bytes: 20, check: CheckBytes::Eight };
    let (mut memory, table) = Bytes::new(Geometry::KeyWrite(of));
    let mut entry = [0; 32];
    let mut put = |memory: &mut Bytes, key: &[u8], value: u8, copies: std::ops::Range<u8>, time: u64| {
        let hash = of.hash(key);
        of.encode(&hash, Stamp::of(time << 20), &[value; 20], &mut entry);
        copies.for_each(|copy| memory.write(of.offset(&hash, copy), &entry));
    };
    put(&mut memory, b"a", 1, 0..2, 10);
    put(&mut memory, b"b", 2, 0..4, 10);
    put(&mut memory, b"b", 3, 0..1, 11);
    let asked = values(&mut memory, &table, &[b"a", b"b", b"c"], Consensus::Plurality).unwrap();
    let value = |of: u8, time: u64, copies, is_disputed| Asked::Value {
        payload: vec![of; 20],
        stamp: Stamp::of(time << 20),
        copies,
        is_disputed,
    };
    assert_eq!(asked, [value(1, 10, 2, false), value(2, 10, 3, true), Asked::Empty]);
    assert_eq!(values(&mut memory, &table, &[b"b"], Consensus::Strict).unwrap(), [Asked::Conflict]);
    let wrong = counts(&mut memory, &table, &[b"a"], 2).unwrap_err();
    assert_eq!(wrong.to_string(), "table t is for key-write");
}

#[test]
fn counts_are_those_of_this_epoch_and_the_one_before() {
    let of = Counters { seed: [5; 16], slots_log2: 10 };
    let (mut memory, table) = Bytes::new(Geometry::KeyIncrement(of));
    let mut put = |epoch: u64, key: &[u8], count: u64| {
        let hash = of.hash(key);
        (0..2).for_each(|copy| memory.write(of.offset(&hash, copy, epoch), &count.to_le_bytes()));
    };
    put(7, b"a", 3);
    put(6, b"a", 5);
    put(7, b"b", u64::MAX);
    let epoch = Epoch { number: 7, began_ns: 70, before_began_ns: 60 };
    memory.write(0, &epoch.to_bytes());
    let (found, counted) = counts(&mut memory, &table, &[b"a", b"b", b"c"], 2).unwrap();
    assert_eq!(found, epoch);
    let count = |now, before| Count { now, before: Some(before) };
    assert_eq!(counted, [count(3, 5), count(u64::MAX, 0), count(0, 0)]);
    memory.write(0, &Epoch { number: 0, ..epoch }.to_bytes());
    assert_eq!(counts(&mut memory, &table, &[b"a"], 2).unwrap().1, [Count { now: 5, before: None }]);
}

/// A ring, what was appended to it, and its readers.
struct Ring {
    memory: Bytes,
    table: Table,
    open: Open,
    list: List,
    appended: u64,
}

impl Ring {
    fn new(batch: u8, batches_log2: u8) -> Self {
        let list = List { entry_bytes: 8, batch, batches_log2 };
        let (memory, table) = Bytes::new(Geometry::Append(list));
        Self { memory, table, open: Open::new(list, Position::default()), list, appended: 0 }
    }

    fn append(&mut self, count: u64) {
        for _ in 0..count {
            if self.open.push(&self.appended.to_le_bytes(), 1 << 30) {
                self.flush();
            }
            self.appended += 1;
        }
    }

    fn flush(&mut self) {
        let mut bytes = [0; 5120];
        if let Some(offset) = self.open.take(1 << 30, &mut bytes) {
            self.memory.write(offset, &bytes[..self.list.batch_bytes()]);
        }
    }

    /// All that is there; each entry is its own number.
    fn drain(&mut self, tail: &mut Tail, seen: &mut u64, lost: &mut u64) {
        loop {
            let entries = tail.read(&mut self.memory, &self.table).unwrap();
            if entries == Entries::default() {
                return;
            }
            *lost += entries.lost;
            *seen += entries.entries.len() as u64;
            for (number, _, entry) in &entries.entries {
                assert_eq!(entry.as_slice(), number.to_le_bytes());
            }
            let numbers: Vec<u64> = entries.entries.iter().map(|(number, ..)| *number).collect();
            assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
        }
    }
}

#[test]
fn entries_come_once_and_in_order_and_what_is_lost_is_counted() {
    bolero::check!().with_type::<(u8, u8, Vec<(u8, bool, bool)>)>().for_each(|(batch, log2, steps)| {
        let mut ring = Ring::new(1 + batch % 64, 1 + log2 % 5);
        let mut tail = Tail::newest(&mut ring.memory, &ring.table).unwrap();
        let (mut seen, mut lost) = (0, 0);
        for (count, flush, read) in steps {
            ring.append((*count).into());
            if *flush {
                ring.flush();
            }
            if *read {
                ring.drain(&mut tail, &mut seen, &mut lost);
            }
        }
        ring.flush();
        ring.drain(&mut tail, &mut seen, &mut lost);
        assert_eq!(seen + lost, ring.appended, "{seen} seen, {lost} lost");
        let newest = Tail::newest(&mut ring.memory, &ring.table).unwrap();
        assert_eq!(newest.next_entry(), ring.appended);
        let mut oldest = Tail::oldest(&mut ring.memory, &ring.table).unwrap();
        let (mut seen, mut lost) = (0, 0);
        let from = oldest.next_entry();
        ring.drain(&mut oldest, &mut seen, &mut lost);
        assert_eq!((from + seen, lost), (ring.appended, 0), "from the oldest one on nothing is missing");
    });
}

#[test]
fn a_restarted_translator_s_entries_are_counted_as_lost() {
    let mut ring = Ring::new(4, 4);
    let mut tail = Tail::newest(&mut ring.memory, &ring.table).unwrap();
    ring.append(10);
    // Two of them were waiting; what numbers they had is not in the ring.
    ring.open = Open::new(ring.list, Position { batch: 2, entry: 10 });
    ring.append(4);
    let (mut seen, mut lost) = (0, 0);
    ring.drain(&mut tail, &mut seen, &mut lost);
    assert_eq!((seen, lost), (12, 2));
}
