// SPDX-License-Identifier: Apache-2.0
//! `make dta-longevity`: how long values live in a Key-Write table ([`onlooker_dta::key_write`]) that is given more and
//! more keys, with one to four copies of each, beside what the model says (PAPERS A2); answers for keys that were never
//! written; and ages.
//!
//! `QUICK=1`: fewer keys and questions. `SEED` (1).

use std::io::Write as _;

use anyhow::Result;
use onlooker_dta::key_write::{CheckBytes, Consensus, Found, MAX_COPIES, Stamp, Table};

use crate::machine::{is_quick, parameter};
use crate::report::Results;

/// Keys by slot.
const LOADS: [f64; 8] = [0.05, 0.1, 0.25, 0.5, 0.8, 1.0, 1.5, 2.0];
const SLOTS_LOG2: u8 = 20;
/// The oldest keys are those of which so large a part of all has come behind.
const OLDEST: f64 = 0.95;
/// Key of a flow: addresses, ports, protocol.
type Flow = [u8; 13];

/// A table in memory that is this process's.
struct Memory {
    table: Table,
    bytes: Vec<u8>,
}

impl Memory {
    fn new(seed: u64, check: CheckBytes) -> Result<Self> {
        let mut seeds = [0; 16];
        seeds[..8].copy_from_slice(&seed.to_le_bytes());
        // Five switches' numbers: the path of a flow.
        let table = Table { seed: seeds, slots_log2: SLOTS_LOG2, payload_bytes: 20, check };
        Ok(Self { table, bytes: vec![0; usize::try_from(table.len_bytes())?] })
    }

    #[allow(clippy::cast_possible_truncation, reason = "the table is in memory")]
    fn entry(&self, offset: u64) -> std::ops::Range<usize> {
        offset as usize..offset as usize + self.table.entry_bytes()
    }

    fn write(&mut self, number: u64, copies: u8) {
        let hash = self.table.hash(&flow(number));
        for copy in 0..copies {
            let range = self.entry(self.table.offset(&hash, copy));
            self.table.encode(&hash, Stamp::of(written_ns(number)), &path(number), &mut self.bytes[range]);
        }
    }

    /// Nobody knows how many copies were written, so all places are looked at.
    fn find(&self, number: u64) -> Found<'_> {
        let hash = self.table.hash(&flow(number));
        let entries = [0, 1, 2, 3].map(|copy| &self.bytes[self.entry(self.table.offset(&hash, copy))]);
        self.table.find(&hash, entries, Consensus::Plurality)
    }
}

fn flow(number: u64) -> Flow {
    let mut flow = [6; 13];
    flow[..8].copy_from_slice(&number.to_be_bytes());
    flow
}

fn path(number: u64) -> [u8; 20] {
    let mut path = [0; 20];
    path.chunks_mut(8).zip(1..).for_each(|(word, hop)| {
        word.copy_from_slice(&number.wrapping_mul(hop).to_le_bytes()[..word.len()]);
    });
    path
}

/// When a key is written, ns: one a millisecond and a bit.
fn written_ns(number: u64) -> u64 {
    (number + 1) << 20
}

/// The part of keys that are still there of those between which and the end lie `from` to `to` of all (PAPERS A2).
fn expected(load: f64, copies: u8, from: f64, to: f64) -> f64 {
    const STEPS: u32 = 10_000;
    let copies = f64::from(copies);
    let lives = |after: f64| 1.0 - (1.0 - (-copies * load * after).exp()).powf(copies);
    let step = |number: u32| from + (to - from) * (f64::from(number) + 0.5) / f64::from(STEPS);
    (0..STEPS).map(|number| lives(step(number))).sum::<f64>() / f64::from(STEPS)
}

/// What became of the keys of one load.
#[derive(Default)]
struct Lived {
    all: u64,
    found: u64,
    oldest: u64,
    oldest_found: u64,
    wrong: u64,
    wrong_age: u64,
}

impl Lived {
    /// Points of a hundred by which they are beside the model: all, and the oldest.
    fn off(&self, load: f64, copies: u8) -> (f64, f64) {
        let off = |found: u64, all: u64, expected: f64| 100.0 * (found as f64 / all as f64 - expected).abs();
        let all = off(self.found, self.all, expected(load, copies, 0.0, 1.0));
        (all, off(self.oldest_found, self.oldest, expected(load, copies, OLDEST, 1.0)))
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of keys")]
fn live(load: f64, copies: u8, least: u64, seed: u64) -> Result<Lived> {
    let keys = (load * f64::from(1 << SLOTS_LOG2)) as u64;
    let mut lived = Lived::default();
    for round in 0.. {
        if lived.all >= least {
            break;
        }
        let mut memory = Memory::new(seed + 1_000 * round, CheckBytes::Four)?;
        (0..keys).for_each(|number| memory.write(number, copies));
        let now_ns = written_ns(keys);
        for number in 0..keys {
            let is_oldest = (keys - 1 - number) as f64 >= OLDEST * keys as f64;
            let (mut is_found, payload) = (false, path(number));
            if let Found::Value { payload: found, stamp, .. } = memory.find(number) {
                is_found = found == payload;
                lived.wrong += u64::from(!is_found);
                lived.wrong_age += u64::from(is_found && stamp.age_ns(now_ns) != now_ns - written_ns(number));
            }
            lived.all += 1;
            lived.found += u64::from(is_found);
            lived.oldest += u64::from(is_oldest);
            lived.oldest_found += u64::from(is_oldest && is_found);
        }
    }
    Ok(lived)
}

/// How often a full table answers for keys that it never had.
fn absent(check: CheckBytes, questions: u64, seed: u64) -> Result<u64> {
    let mut memory = Memory::new(seed, check)?;
    (0..1 << SLOTS_LOG2).for_each(|number| memory.write(number, 2));
    Ok((0..questions).map(|number| u64::from(memory.find(1 << 32 | number) != Found::Empty)).sum())
}

pub(crate) fn run() -> Result<bool> {
    let (mut results, seed) = (Results::default(), parameter("SEED", 1, 1)?);
    let least = if is_quick() { 400_000 } else { 4_000_000 };
    println!(
        "found after so many keys a slot, in per cent: all, the oldest twentieth; in brackets what the model says"
    );
    let (mut most, mut most_of_oldest, mut wrong, mut wrong_ages) = (0.0_f64, 0.0_f64, 0, 0);
    for load in LOADS {
        print!("{load:>5}");
        for copies in 1..=MAX_COPIES {
            let lived = live(load, copies, least, seed)?;
            let (off, off_of_oldest) = lived.off(load, copies);
            (most, most_of_oldest) = (most.max(off), most_of_oldest.max(off_of_oldest));
            (wrong, wrong_ages) = (wrong + lived.wrong, wrong_ages + lived.wrong_age);
            let percent = |found: u64, all: u64| 100.0 * found as f64 / all as f64;
            print!(
                "   N={copies} {:5.1} {:5.1} ({:.1} {:.1})",
                percent(lived.found, lived.all),
                percent(lived.oldest_found, lived.oldest),
                100.0 * expected(load, copies, 0.0, 1.0),
                100.0 * expected(load, copies, OLDEST, 1.0)
            );
            std::io::stdout().flush()?;
        }
        println!();
    }
    let questions = if is_quick() { 2_000_000 } else { 100_000_000 };
    println!("{questions} questions for keys that a full table never had");
    let four = absent(CheckBytes::Four, questions, seed)?;
    let eight = absent(CheckBytes::Eight, questions, seed)?;
    results.at_most("dta_longevity_off", most, "points", 0.5);
    results.at_most("dta_longevity_oldest_off", most_of_oldest, "points", 0.5);
    let none = |results: &mut Results, name: &str, count: u64, unit: &str| {
        results.line(name, &count.to_string(), unit, "= 0", count == 0);
    };
    none(&mut results, "dta_longevity_wrong_values", wrong, "values");
    none(&mut results, "dta_longevity_wrong_ages", wrong_ages, "values");
    // By chance 0.09 are expected of 10^8 questions for four entries each: more than 2 come once in 10,000 runs.
    results.line("dta_absent_4_byte_check", &four.to_string(), "wrong_answers", "<= 2", four <= 2);
    none(&mut results, "dta_absent_8_byte_check", eight, "wrong_answers");
    Ok(results.passed())
}
