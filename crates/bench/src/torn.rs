// SPDX-License-Identifier: Apache-2.0
//! `make bench-torn`: are copies of guarded blocks that are torn ever accepted, and are 8-byte words ever split?
//!
//! A writer commits a guarded block in a tight loop, and at times with pauses; every payload word and the time are the
//! number of the commit. A reader copies the block through a mapping of its own (as another process, or a card, has it)
//! in three orders and asks `guard::check_words`. A copy that was accepted must be one commit's; a copy that mixes
//! commits must have been refused. Then the same for single words whose halves must agree.
//!
//! `QUICK=1` does 1/20 of the volume.

use onlooker_region::block::{GUARDED_FIRST, GUARDED_TIME};
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_region::map::{Map, sealed_memfd};
use onlooker_region::{Block, Identity, Reject, guard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::machine::is_quick;
use crate::report::Results;

const ME: Identity = Identity { region: 7, generation: 77, index: 3 };
/// Copies between two looks at the clock.
const BATCH: u64 = 10_000;
const LINES: usize = BLOCK_WORDS / 8;

/// How a copy is made.
#[derive(Clone, Copy)]
enum Order {
    /// 8-byte loads, ascending: what responders do.
    Ascending,
    /// Cache lines in another order each time: what a card may do.
    Lines,
    /// 4-byte loads in another order each time: what nobody should do.
    Halves,
}

const ORDERS: [(Order, &str); 3] =
    [(Order::Ascending, "ascending"), (Order::Lines, "mixed lines"), (Order::Halves, "mixed halves")];

/// What became of the copies of one order.
#[derive(Clone, Copy, Default)]
struct Tally {
    accepted: u64,
    torn_accepted: u64,
    unwritten: u64,
    busy: u64,
    version: u64,
    crc: u64,
    identity: u64,
    /// Refused, and the payload was of several commits.
    mixed_refused: u64,
    /// Of these, refused by the CRC alone.
    mixed_crc: u64,
}

impl Tally {
    fn refused(&self) -> u64 {
        self.unwritten + self.busy + self.version + self.crc + self.identity
    }

    fn reads(&self) -> u64 {
        self.accepted + self.refused()
    }

    fn count(&mut self, copy: &[u64; BLOCK_WORDS]) {
        let payload = &copy[GUARDED_FIRST..BLOCK_WORDS - 1];
        let mixed = payload.iter().any(|word| *word != payload[0]);
        match guard::check_words(copy, ME) {
            Ok(()) => {
                self.accepted += 1;
                self.torn_accepted += u64::from(mixed || copy[GUARDED_TIME] != payload[0]);
                return;
            }
            Err(Reject::Unwritten) => self.unwritten += 1,
            Err(Reject::Busy) => self.busy += 1,
            Err(Reject::Version) => self.version += 1,
            Err(Reject::Crc) => {
                self.crc += 1;
                self.mixed_crc += u64::from(mixed);
            }
            Err(Reject::Identity) => self.identity += 1,
        }
        self.mixed_refused += u64::from(mixed);
    }

    fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.torn_accepted += other.torn_accepted;
        self.unwritten += other.unwritten;
        self.busy += other.busy;
        self.version += other.version;
        self.crc += other.crc;
        self.identity += other.identity;
        self.mixed_refused += other.mixed_refused;
        self.mixed_crc += other.mixed_crc;
    }
}

/// xorshift64: for orders, not for secrets.
struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize
    }

    /// A random permutation of one cycle length: start and odd step, so that every place comes once (`places` is a
    /// power of two).
    fn permutation(&mut self, places: usize) -> impl Iterator<Item = usize> + use<> {
        let (start, step) = (self.next(), self.next() | 1);
        (0..places).map(move |i| start.wrapping_add(i.wrapping_mul(step)) % places)
    }
}

/// Reads half a word of shared memory.
fn half(words: &[AtomicU64], index: usize) -> u32 {
    assert!(index < words.len() * 2);
    // SAFETY: within the slice, aligned to 4. The memory belongs to a mapping of its own, which this process only
    // reads; it changes as memory shared with another process changes, which is what volatile reads are for. Any bits
    // are a valid u32.
    unsafe { words.as_ptr().cast::<u32>().add(index).read_volatile() }
}

fn copy(order: Order, words: &[AtomicU64], random: &mut Random, to: &mut Block) {
    match order {
        Order::Ascending => to.copy_from(words),
        Order::Lines => {
            for line in random.permutation(LINES) {
                let line = line * 8..line * 8 + 8;
                for (to, from) in to.0[line.clone()].iter_mut().zip(&words[line]) {
                    *to = from.load(Relaxed);
                }
            }
        }
        Order::Halves => {
            for index in random.permutation(BLOCK_WORDS * 2) {
                let (word, shift) = (index / 2, index % 2 * 32);
                to.0[word] = to.0[word] & !(0xffff_ffff << shift) | u64::from(half(words, index)) << shift;
            }
        }
    }
}

/// Commits until told to stop: half of the time in a tight loop, else with pauses in which a copy can be whole.
fn commit_until(words: &[AtomicU64], stop: &AtomicBool) {
    let mut number = 0;
    while !stop.load(Relaxed) {
        for pause in [0, 40] {
            let phase = Instant::now();
            while phase.elapsed() < Duration::from_millis(20) {
                for _ in 0..100 {
                    number += 1;
                    guard::commit(words, ME, number, |payload| {
                        (0..payload.len()).for_each(|slot| payload.set(slot, number));
                    });
                    (0..pause).for_each(|_| std::hint::spin_loop());
                }
            }
        }
    }
}

/// Stores words whose halves agree until told to stop.
fn store_until(words: &[AtomicU64], stop: &AtomicBool) {
    let mut number = 0u64;
    while !stop.load(Relaxed) {
        for _ in 0..100 {
            number = number.wrapping_add(1) & 0xffff_ffff;
            words.iter().for_each(|word| word.store(number | number << 32, Relaxed));
        }
    }
}

fn split(words: &[u64]) -> u64 {
    words.iter().filter(|word| (**word >> 32) != (**word & 0xffff_ffff)).count() as u64
}

/// Runs `read` beside `write` on memory mapped twice: once for the writer, once for the reader.
fn beside<R>(write: impl Fn(&[AtomicU64], &AtomicBool) + Sync, read: impl FnOnce(&[AtomicU64]) -> R) -> R {
    let fd = sealed_memfd("torn", 4096).expect("a memfd");
    let [writers, readers] = [true, false].map(|writable| Map::of(&fd, 0, 4096, writable).expect("a mapping"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| write(&writers.words()[..BLOCK_WORDS], &stop));
        let result = read(&readers.words()[..BLOCK_WORDS]);
        stop.store(true, Relaxed);
        result
    })
}

/// Guarded reads, in each order in turn.
fn guarded(reads: u64) -> [Tally; 3] {
    beside(commit_until, |words| {
        let mut tallies = [Tally::default(); 3];
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut block = Block::default();
        let mut said = Instant::now();
        while block.0[0] == 0 {
            block.copy_from(words);
        }
        while tallies.iter().map(Tally::reads).sum::<u64>() < reads {
            for (tally, (order, _)) in tallies.iter_mut().zip(ORDERS) {
                for _ in 0..BATCH {
                    copy(order, words, &mut random, &mut block);
                    tally.count(&block.0);
                }
            }
            if said.elapsed() > Duration::from_secs(3) {
                said = Instant::now();
                eprintln!("guarded reads: {} of {reads}", tallies.iter().map(Tally::reads).sum::<u64>());
            }
        }
        tallies
    })
}

/// Split words among `count` by aligned copies of blocks, among a tenth of that by halves, and by a byte copy to a
/// misaligned place.
fn plain(count: u64) -> (u64, u64, [(u64, u64); 2]) {
    beside(store_until, |words| {
        let mut block = Block::default();
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        let (mut read, mut splits) = (0, 0);
        let mut said = Instant::now();
        while read < count {
            for _ in 0..BATCH {
                block.copy_from(words);
                splits += split(&block.0);
                read += BLOCK_WORDS as u64;
            }
            if said.elapsed() > Duration::from_secs(3) {
                said = Instant::now();
                eprintln!("words: {read} of {count}");
            }
        }
        let mut contrast = [(0, 0); 2];
        while contrast[0].0 < count / 10 {
            copy(Order::Halves, words, &mut random, &mut block);
            contrast[0].1 += split(&block.0);
            contrast[0].0 += BLOCK_WORDS as u64;
            contrast[1].1 += split(&misaligned(words));
            contrast[1].0 += BLOCK_WORDS as u64;
        }
        (read, splits, contrast)
    })
}

/// The block by way of a buffer at an odd address, as a packet may have it.
fn misaligned(words: &[AtomicU64]) -> [u64; BLOCK_WORDS] {
    let mut packet = [0u8; BLOCK_WORDS * 8 + 7];
    let to = &mut packet[3..3 + BLOCK_WORDS * 8];
    // SAFETY: both ends are `BLOCK_WORDS` words long and do not overlap. The source is another mapping's memory, see
    // `half`: this copy is the very mistake that the bench shows, so its result is only counted.
    unsafe { std::ptr::copy_nonoverlapping(words.as_ptr().cast::<u8>(), to.as_mut_ptr(), to.len()) };
    let packet = std::hint::black_box(&packet);
    std::array::from_fn(|i| u64::from_le_bytes(std::array::from_fn(|j| packet[3 + i * 8 + j])))
}

#[allow(clippy::cast_precision_loss)]
fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

pub(crate) fn run() -> bool {
    let part = if is_quick() { 20 } else { 1 };
    let (reads, words) = (10_000_000 / part, 1_000_000_000 / part);
    // Some more than asked for, so that rounding cannot fail a result.
    let tallies = guarded(reads * 2);
    let mut all = Tally::default();
    for (tally, (_, name)) in tallies.iter().zip(ORDERS) {
        all.add(tally);
        println!(
            "{name}: {} reads, {} accepted, refused {:.2} % (unwritten {}, busy {}, version {}, crc {}, identity {}); mixed commits: {} refused, {} by the CRC alone",
            tally.reads(),
            tally.accepted,
            percent(tally.refused(), tally.reads()),
            tally.unwritten,
            tally.busy,
            tally.version,
            tally.crc,
            tally.identity,
            tally.mixed_refused,
            tally.mixed_crc,
        );
    }
    let (read, splits, [halves, bytes]) = plain(words);
    println!("for contrast: {} of {} words split when copied by halves in mixed order", halves.1, halves.0);
    println!("for contrast: {} of {} words split by a byte copy to a misaligned place", bytes.1, bytes.0);

    let mut results = Results::default();
    let mut result = |name: &str, value: u64, unit: &str, expected: &str, pass: bool| {
        results.line(name, &value.to_string(), unit, expected, pass);
    };
    let (least_reads, least_words) = (format!(">= {reads}"), format!(">= {words}"));
    result("torn_accepted", all.torn_accepted, "blocks", "0", all.torn_accepted == 0);
    result("guarded_reads", all.reads(), "blocks", &least_reads, all.reads() >= reads);
    result("guarded_accepted", all.accepted, "blocks", &format!(">= {}", reads / 100), all.accepted >= reads / 100);
    result("tearing_seen", all.mixed_refused, "copies", "> 0", all.mixed_refused > 0);
    result("split_words", splits, "words", "0", splits == 0);
    result("words_read", read, "words", &least_words, read >= words);
    results.passed()
}
