// SPDX-License-Identifier: Apache-2.0
//! `make bench-dta-query`: how fast a core answers questions to telemetry in its own memory: keys by copies that are looked at, and how much of that is the hash;
//! entries of lists, idle and beside a translator that appends to them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use onlooker_dta::append::{List, Next, Position};
use onlooker_dta::hash::Hash;
use onlooker_dta::key_write::{CheckBytes, Consensus, Found, Stamp, Table as KeyWrite};
use onlooker_dta::translator::Shape;
use onlooker_responder::{Config as ResponderConfig, Hook, Prefix, Responder, SlabMapping};
use onlooker_translator::{Config, Exit, Place, Table, Translator};
use onlooker_wire::dta::{Body, PORT};

use super::{ACCESS, KEY, frame_to};
use crate::machine::{ASKING_CORE, WATCHED_CORE, is_quick, pin, thread_cpu_ns};
use crate::report::{Results, median};

/// 32 bytes an entry: 128 MiB, which is more than any cache has.
const SLOTS_LOG2: u8 = 22;
const KEYS: u64 = 1 << 20;
const LISTS: usize = 255;
const BATCHES_LOG2: u8 = 8;
const MAC: onlooker_wire::Mac = onlooker_wire::Mac([2, 0, 0, 0, 0, 2]);

struct Keys {
    table: KeyWrite,
    memory: Vec<u8>,
}

fn key_of(number: u64) -> [u8; 13] {
    let mut key = KEY;
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

impl Keys {
    fn new() -> Self {
        let table = KeyWrite { seed: [7; 16], slots_log2: SLOTS_LOG2, payload_bytes: 20, check: CheckBytes::Eight };
        let mut memory = vec![0; usize::try_from(table.len_bytes()).unwrap_or(0)];
        let size = table.entry_bytes();
        let mut entry = vec![0; size];
        for number in 0..KEYS {
            let hash = table.hash(&key_of(number));
            table.encode(&hash, Stamp::of(1 << 30), &[5; 20], &mut entry);
            for copy in 0..4 {
                let from = usize::try_from(table.offset(&hash, copy)).unwrap_or(0);
                memory[from..from + size].copy_from_slice(&entry);
            }
        }
        Self { table, memory }
    }

    /// Answers for a while; questions a second of this thread's time, and the share that had an answer.
    fn ask(&self, copies: u8, time: Duration, first: u64) -> (f64, f64) {
        let (begun, begun_ns) = (Instant::now(), thread_cpu_ns());
        let (mut asked, mut found, mut number) = (0u64, 0u64, first);
        while begun.elapsed() < time {
            for _ in 0..4096 {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let hash = self.table.hash(&key_of((number >> 33) % KEYS));
                let entries = std::array::from_fn(|copy| {
                    let copy = u8::try_from(copy).unwrap_or(0);
                    let from = usize::try_from(self.table.offset(&hash, copy)).unwrap_or(0);
                    if copy < copies { &self.memory[from..from + 32] } else { &[][..] }
                });
                found +=
                    u64::from(matches!(self.table.find(&hash, entries, Consensus::Plurality), Found::Value { .. }));
            }
            asked += 4096;
        }
        #[allow(clippy::cast_precision_loss)]
        (asked as f64 * 1e9 / (thread_cpu_ns() - begun_ns) as f64, found as f64 / asked as f64)
    }
}

/// What the hash of a key takes, ns.
fn hash_ns() -> f64 {
    let begun_ns = thread_cpu_ns();
    let mut mixed = 0;
    for number in 0..1_000_000u64 {
        mixed ^= std::hint::black_box(Hash::of(&[7; 16], &key_of(number))).check;
    }
    std::hint::black_box(mixed);
    #[allow(clippy::cast_precision_loss)]
    let taken_ns = (thread_cpu_ns() - begun_ns) as f64;
    taken_ns / 1e6
}

/// Lists in a slab, and a translator that appends to them.
struct Lists {
    _responder: Responder,
    translator: Translator,
    memory: SlabMapping,
    list: List,
}

impl Lists {
    fn new() -> Result<Self> {
        let list = List { entry_bytes: 4, batch: 16, batches_log2: BATCHES_LOG2 };
        let responder =
            Responder::load(&ResponderConfig { source_rate: None, cpu_rate: None, ..ResponderConfig::new(4792) })?;
        let blocks = u32::try_from(LISTS as u64 * list.len_bytes() / 1024)?.next_multiple_of(4);
        let memory = responder.create_slab(0, blocks)?.map(0, blocks, true)?;
        responder.set_own_addresses(&["10.1.2.4".parse()?])?;
        responder.set_lease(Duration::from_secs(3600))?;
        let config = Config { port: PORT, source_rate: None, wait: Duration::from_millis(10) };
        let translator = Translator::load(&config, &responder)?;
        translator.set_sources(&[Prefix::host("10.1.2.3".parse()?)])?;
        let blocks_of_one = u32::try_from(list.len_bytes() / 1024)?;
        let tables: Vec<_> = (0..u16::try_from(LISTS)?)
            .map(|number| {
                let place = Place { slab: 0, first_block: u32::from(number) * blocks_of_one };
                (number, Table { access: ACCESS, shape: Shape::Append(list, Position::default()), place })
            })
            .collect();
        translator.put_tables(&tables)?;
        Ok(Self { _responder: responder, translator, memory, list })
    }

    /// Entries that are read by going around lists for a while, and how many of them were new; each batch is checked. Per second of this thread's time.
    fn poll(&self, lists: usize, time: Duration, is_fresh: bool) -> (f64, u64) {
        let words = self.list.batch_bytes() / 8;
        let ring_words = usize::try_from(self.list.len_bytes()).unwrap_or(0) / 8;
        let mut next = vec![Position::default(); lists];
        let mut bytes = vec![0; self.list.batch_bytes()];
        let (begun, begun_ns) = (Instant::now(), thread_cpu_ns());
        let mut entries = 0;
        while begun.elapsed() < time {
            for (number, next) in next.iter_mut().enumerate() {
                for _ in 0..16 {
                    let at = number * ring_words + usize::try_from(self.list.offset(next.batch)).unwrap_or(0) / 8;
                    for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&self.memory.words()[at..at + words])
                    {
                        *to = word.load(Ordering::Relaxed).to_le_bytes();
                    }
                    match self.list.next(*next, &bytes) {
                        Next::Batch(batch, _) => {
                            entries += u64::from(self.list.batch);
                            *next = batch.end();
                        }
                        // Idle: what is there is read again and again, as if it were new.
                        Next::NotYet if !is_fresh => *next = Position::default(),
                        Next::NotYet | Next::Torn => break,
                        Next::Overrun(oldest) => next.batch = oldest + (1 << (BATCHES_LOG2 - 1)),
                    }
                }
            }
        }
        #[allow(clippy::cast_precision_loss)]
        (entries as f64 * 1e9 / (thread_cpu_ns() - begun_ns).max(1) as f64, entries)
    }

    /// Appends to lists in turn until it is over; with pauses as long as the work. Reports a second of time.
    fn append(&self, lists: usize, is_over: &AtomicBool, appended: &AtomicU64) -> Result<()> {
        let frames: Vec<Vec<u8>> = (0..u16::try_from(lists)?)
            .map(|number| frame_to(MAC, number, Body::Append { payload: &[1, 2, 3, 4] }))
            .collect::<Result<_>>()?;
        while !is_over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            for frame in frames.iter().cycle().take(64) {
                self.translator.run(Hook::Xdp, frame, 256)?;
                appended.fetch_add(256, Ordering::Relaxed);
            }
            thread::sleep(begun.elapsed());
        }
        Ok(())
    }
}

pub(crate) fn run() -> Result<bool> {
    let (rounds, time) = if is_quick() { (3, Duration::from_millis(200)) } else { (9, Duration::from_millis(500)) };
    let mut results = Results::default();
    let keys = Keys::new();
    pin(ASKING_CORE)?;
    let mut hashes: Vec<f64> = (0..rounds).map(|_| hash_ns()).collect();
    let hash = median(&mut hashes);
    let mut of_four = 0.0;
    for copies in 1..=4 {
        let mut rates = Vec::new();
        for round in 0..rounds {
            let (rate, found) = keys.ask(copies, time, round);
            ensure!(found > 0.5, "only {found} of the questions had an answer");
            rates.push(rate);
        }
        let rate = median(&mut rates);
        println!(
            "{copies} copies: {:.2} million questions a second and core, {:.0} ns each, {:.0} % of it the hash",
            rate / 1e6,
            1e9 / rate,
            hash * rate / 1e7
        );
        of_four = rate;
    }
    results.at_least("dta_query_n4", of_four, "questions_per_s_and_core", 1.5e6);
    let mut gains = Vec::new();
    for round in 0..rounds {
        let both = thread::scope(|scope| {
            let ask = |core| {
                let keys = &keys;
                scope.spawn(move || {
                    let _ = pin(core);
                    let begun = Instant::now();
                    let (rate, _) = keys.ask(4, time, round);
                    (rate, begun.elapsed())
                })
            };
            [ask(ASKING_CORE), ask(WATCHED_CORE)].map(|thread| thread.join().map_or(0.0, |(rate, _)| rate))
        });
        let (alone, _) = keys.ask(4, time, round);
        gains.push(both.iter().sum::<f64>() / alone);
    }
    results.at_least("dta_query_two_cores", median(&mut gains), "times_one", 1.8);
    polling(&mut results, rounds, time)?;
    Ok(results.passed())
}

fn polling(results: &mut Results, rounds: u64, time: Duration) -> Result<()> {
    let lists = Lists::new()?;
    // All of each ring is there.
    for number in 0..u16::try_from(LISTS)? {
        let frame = frame_to(MAC, number, Body::Append { payload: &[1, 2, 3, 4] })?;
        lists.translator.run(Hook::Xdp, &frame, 16 << BATCHES_LOG2)?;
    }
    let mut idle_of = Vec::new();
    for count in [1, 16, LISTS] {
        let mut rates: Vec<f64> = (0..rounds).map(|_| lists.poll(count, time, false).0).collect();
        let rate = median(&mut rates);
        println!("{count} lists, idle: {:.1} million entries a second and core", rate / 1e6);
        idle_of.push(rate);
    }
    let least = idle_of.iter().copied().fold(f64::MAX, f64::min);
    results.at_least("dta_poll_idle", least, "entries_per_s_and_core", 50e6);
    let before = lists.translator.counters()?.get(Exit::Stored);
    let mut beside = Vec::new();
    for _ in 0..rounds {
        let (is_over, appended) = (AtomicBool::new(false), AtomicU64::new(0));
        let rate = thread::scope(|scope| -> Result<f64> {
            let appending = scope.spawn(|| {
                pin(WATCHED_CORE)?;
                lists.append(LISTS, &is_over, &appended)
            });
            let (rate, _) = lists.poll(LISTS, time, false);
            is_over.store(true, Ordering::Relaxed);
            appending.join().map_err(|_| anyhow::anyhow!("the translator's thread has panicked"))??;
            Ok(rate)
        })?;
        beside.push(rate);
    }
    ensure!(lists.translator.counters()?.get(Exit::Stored) > before, "nothing was appended");
    let beside = median(&mut beside);
    println!(
        "{LISTS} lists, beside a core that appends half of its time: {:.1} million entries a second and core",
        beside / 1e6
    );
    results.at_least("dta_poll_beside_idle", beside / idle_of.last().copied().unwrap_or(f64::MAX), "of_idle", 0.8);
    Ok(())
}
