// SPDX-License-Identifier: Apache-2.0
use bolero::{TypeGenerator, check};

use super::*;

const NOW_NS: u64 = 1 << 50;

/// A ring of bytes, one who writes and one who reads.
struct World {
    list: List,
    bytes: Vec<u8>,
    open: Open,
    tail: Position,
    written: u64,
    read: Vec<u64>,
    lost: u64,
}

impl World {
    fn new(list: List) -> Self {
        let bytes = vec![0; usize::try_from(list.len_bytes()).unwrap()];
        let (open, tail) = (Open::new(list, Position::default()), Position::default());
        Self { list, bytes, open, tail, written: 0, read: Vec::new(), lost: 0 }
    }

    fn slot(&self, batch: u64) -> std::ops::Range<usize> {
        let from = usize::try_from(self.list.offset(batch)).unwrap();
        from..from + self.list.batch_bytes()
    }

    fn flush(&mut self) {
        let mut batch = vec![0xee; self.list.batch_bytes()];
        if let Some(offset) = self.open.take(NOW_NS, &mut batch) {
            let from = usize::try_from(offset).unwrap();
            self.bytes[from..from + batch.len()].copy_from_slice(&batch);
        }
    }

    fn append(&mut self) {
        let entry = &self.written.to_le_bytes()[..self.list.entry_bytes.into()];
        if self.open.push(entry, NOW_NS) {
            self.flush();
        }
        self.written += 1;
    }

    fn read(&mut self) {
        loop {
            let range = self.slot(self.tail.batch);
            match self.list.next(self.tail, &self.bytes[range]) {
                Next::Batch(batch, lost) => {
                    self.read.extend(batch.entries.chunks(self.list.entry_bytes.into()).map(word));
                    (self.lost, self.tail) = (self.lost + lost, batch.end());
                }
                Next::Overrun(batch) => {
                    assert!(batch > self.tail.batch);
                    self.tail.batch = batch;
                }
                Next::NotYet => return,
                Next::Torn => panic!("nothing is torn here"),
            }
        }
    }
}

#[derive(Debug, Clone, TypeGenerator)]
enum Step {
    Append(u8),
    Flush,
    Read,
    Restart,
}

/// Whatever happens, what is read is what was written, in order, and what is missing is counted.
#[test]
fn a_reader_has_all_or_knows_how_much_is_lost() {
    check!().with_type::<(u8, u8, Vec<Step>)>().for_each(|(batch, log2, steps)| {
        let list = List { entry_bytes: 8, batch: 1 + batch % MAX_BATCH, batches_log2: 1 + log2 % 4 };
        let mut world = World::new(list);
        for step in steps {
            match step {
                Step::Append(count) => (0..*count).for_each(|_| world.append()),
                Step::Flush => world.flush(),
                Step::Read => world.read(),
                // What waited in a translator that ends is gone, and never had a number.
                Step::Restart => {
                    world.flush();
                    let size = world.list.batch_bytes();
                    let end = world.list.end(world.bytes.chunks(size));
                    world.open = Open::new(world.list, end);
                }
            }
        }
        world.flush();
        world.read();
        assert_eq!(world.read.len() as u64 + world.lost, world.written, "{} lost", world.lost);
        assert!(world.read.is_sorted_by(|one, next| one < next));
        assert_eq!(world.read.last().copied(), world.written.checked_sub(1), "the newest is always there");
        let is_padded = steps.iter().any(|step| matches!(step, Step::Flush | Step::Restart));
        let room = u64::from(list.batch) << list.batches_log2;
        assert!(world.lost == 0 || world.written > room || is_padded, "there was room for all");
    });
}

#[test]
fn half_a_batch_is_torn() {
    let list = List { entry_bytes: 18, batch: 16, batches_log2: 2 };
    let encoded = |position: Position| {
        let mut out = vec![0; list.batch_bytes()];
        list.encode(position, Stamp::of(NOW_NS), &[position.batch.to_le_bytes()[0]; 18 * 16], &mut out);
        out
    };
    let (before, now) = (Position { batch: 3, entry: 48 }, Position { batch: 7, entry: 112 });
    let (one, other) = (encoded(before), encoded(now));
    // What is behind the entries is not looked at.
    let end = HEADER_BYTES + 18 * 16;
    for cut in 1..end {
        let torn = [&other[..cut], &one[cut..]].concat();
        if torn[..end] != one[..end] && torn[..end] != other[..end] {
            assert_eq!(list.next(now, &torn), Next::Torn, "{cut}");
        }
    }
    assert!(matches!(list.next(now, &other), Next::Batch(_, 0)));
    assert_eq!(list.next(now, &one), Next::NotYet);
    assert_eq!(list.next(before, &other), Next::Overrun(4));
    assert_eq!(list.next(now, &vec![0; list.batch_bytes()]), Next::NotYet);
    assert_eq!(list.next(now, &[]), Next::NotYet);
}

#[test]
fn arbitrary_bytes_are_no_batch() {
    check!().with_type::<(u8, u8, Vec<u8>)>().for_each(|(entry_bytes, batch, bytes)| {
        let list = List { entry_bytes: 1 + entry_bytes % 64, batch: 1 + batch % MAX_BATCH, batches_log2: 3 };
        assert!(list.decode(bytes).is_none());
        let _ = list.next(Position::default(), bytes);
    });
}

#[test]
fn batches_cross_no_block_and_wait_since_their_first_entry() {
    let bytes = |entry_bytes, batch| List { entry_bytes, batch, batches_log2: 1 }.batch_bytes();
    assert_eq!(
        [bytes(4, 1), bytes(4, 4), bytes(4, 16), bytes(18, 16), bytes(64, 16), bytes(64, 64)],
        [64, 64, 128, 512, 2048, 5120]
    );
    let mut open = Open::new(List { entry_bytes: 1, batch: 3, batches_log2: 1 }, Position::default());
    assert_eq!(open.waits_since_ns(), None);
    assert!(!open.push(b"a", 5) && !open.push(b"b", 9));
    assert_eq!(open.waits_since_ns(), Some(5));
    assert!(open.push(b"c", 11));
    let mut out = [0; 64];
    assert_eq!((open.take(12, &mut out), open.take(12, &mut out)), (Some(0), None));
    assert!(!open.push(b"d", 20));
    assert_eq!(open.waits_since_ns(), Some(20));
}
