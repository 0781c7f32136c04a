// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::clock::{Moment, Relation};
use crate::drive::{DriveError, read_host};
use crate::memory::{self, CONTROL_RKEY, CONTROL_VA, Host, INCARNATION, Memory, PLACE, Region, write_blocks};
use crate::{Broken, Completion, Read, Requester, Via};
use onlooker_region::block::Identity;
use onlooker_region::columns::Value;
use onlooker_region::control::{Entry, RegionEntry};
use onlooker_region::guard::commit;
use onlooker_region::sync::Ordering;
use onlooker_region::{Block, Reject, Schema};
use onlooker_wire::tcp_read::{self, Refusal};
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Counter;
use std::time::Duration;

mod early;
mod limits;
mod mirror;
mod responders;
mod schemas;
mod silence;
mod sparing;

/// Answers every READ at the next poll. Time stands still but for waiting.
struct Direct {
    memory: Arc<Memory>,
    queue: Vec<Read>,
    /// Round trips.
    polls: u32,
    now_ns: Arc<Counter>,
    silent: bool,
    /// READs of this key get no answer, and are counted.
    silent_for: Option<(u32, Arc<Counter>)>,
}

impl Requester for Direct {
    fn max_read_blocks(&self) -> u32 {
        64
    }

    fn in_flight(&self) -> usize {
        self.queue.len()
    }

    fn submit(&mut self, reads: &[Read]) -> Result<usize, Broken> {
        self.queue.extend(reads);
        if let Some((rkey, asked)) = &self.silent_for {
            asked.fetch_add(reads.iter().filter(|read| read.rkey == *rkey).count() as u64, Ordering::Relaxed);
        }
        Ok(reads.len())
    }

    fn poll(&mut self, memory: &mut [Block], now_ns: u64, completions: &mut Vec<Completion>) -> Result<(), Broken> {
        let (all, host) = (self.silent, self.memory.clone());
        self.polls += u32::from(!self.queue.is_empty());
        let key = self.silent_for.as_ref().map(|(rkey, _)| *rkey);
        self.queue.retain(|read| {
            let silent = all || key == Some(read.rkey);
            if silent && now_ns < read.deadline_ns {
                return true;
            }
            let asked = tcp_read::Read { va: read.va, rkey: read.rkey, length_bytes: read.blocks * 1024 };
            assert!(read.blocks <= 64);
            let outcome = match if silent { Err(None) } else { host.read(&asked).map_err(Some) } {
                Err(None) => Outcome::Timeout,
                Err(Some(refusal)) => Outcome::Refused(refusal),
                Ok(bytes) => {
                    let blocks = &mut memory[read.at as usize..][..read.blocks as usize];
                    for (block, bytes) in blocks.iter_mut().zip(bytes.chunks_exact(1024)) {
                        block.bytes_mut().copy_from_slice(bytes);
                    }
                    Outcome::Done
                }
            };
            completions.push(Completion { id: read.id, outcome });
            false
        });
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Broken> {
        self.now_ns.fetch_add(u64::try_from(timeout.as_nanos()).unwrap(), Ordering::Relaxed);
        Ok(())
    }
}

struct Reading {
    session: Session,
    direct: Direct,
}

impl Reading {
    fn of(host: &Host, limits: Limits) -> Self {
        let direct = Direct {
            memory: host.memory.clone(),
            queue: Vec::new(),
            polls: 0,
            now_ns: Arc::new(Counter::new(1_000)),
            silent: false,
            silent_for: None,
        };
        Self { session: Session::new(&host.answer(1), Via::Tcp, 64, limits), direct }
    }

    fn read(&mut self) -> Result<(), DriveError> {
        let clock = self.direct.now_ns.clone();
        let deadline_ns = clock.load(Ordering::Relaxed) + 1_000_000_000;
        read_host(&mut self.direct, &mut self.session, deadline_ns, move || clock.load(Ordering::Relaxed))
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for frame in self.session.frames() {
            frame.decode(|sample| {
                lines.push(format!("{}.{} {}", frame.entry().name, sample.field.name, sample.scaled()))
            });
        }
        lines
    }
}

fn read_once(host: &Host) -> Reading {
    let mut reading = Reading::of(host, Limits::default());
    reading.read().unwrap();
    reading
}

const PLAIN: &str = r#"{"name":"shop","groups":[{"kind":"plain","blocks":2,"fields":[{"name":"a_total","metric":"counter","type":"u64"}]}]}"#;
const GUARDED: &str =
    r#"{"name":"node","groups":[{"kind":"guarded","blocks":1,"fields":[{"name":"g","metric":"gauge","type":"u64"}]}]}"#;
const TWIN: &str = r#"{"name":"cpu","groups":[
    {"kind":"computed","blocks":1,"acquisition":"computed","fields":[{"name":"c","metric":"gauge","type":"u64"}]},
    {"kind":"guarded","blocks":1,"acquisition":"published","twin_of":0,"fields":[{"name":"c","metric":"gauge","type":"u64"}]}]}"#;

fn shop() -> (Host, Region, Region) {
    let mut host = Host::new(64);
    let plain = host.region(1, "shop", &[("shard", "3")], PLAIN);
    plain.words.set(0, 1, 42);
    let guarded = host.region(2, "node", &[], GUARDED);
    commit(guarded.words.block(0), guarded.entry.identity, 5, |p| p.set(0, 7));
    (host, plain, guarded)
}

#[test]
fn regions_are_read_from_nothing_but_the_answer() {
    let (mut host, plain, _) = shop();
    let mut reading = read_once(&host);
    assert_eq!(reading.lines(), ["shop.a_total 42", "node.g 7"]);
    let before = reading.session.counters().clone();
    assert!(before.retries.is_empty() && before.refused.is_empty() && before.failed.is_empty());

    plain.words.set(0, 1, 43);
    reading.read().unwrap();
    assert_eq!(reading.lines()[0], "shop.a_total 43");
    let blocks = reading.session.counters().blocks - before.blocks;
    assert_eq!(blocks, 1 + 3, "header and regions, nothing else, where nothing has changed");

    host.control.remove(plain.slot, 9);
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["node.g 7"]);
}

#[test]
fn only_wanted_regions_are_read() {
    let (host, ..) = shop();
    let mut reading = Reading::of(&host, Limits::default());
    reading.session.select(|entry, schema| entry.name == "node" && schema.name == "node");
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["node.g 7"]);
    assert_eq!(reading.session.directory().regions().count(), 2);
}

#[test]
fn a_torn_block_is_read_again_until_it_is_whole() {
    let (host, _, guarded) = shop();
    guarded.words.set(0, 0, 3);
    let words = guarded.words.clone();
    let identity = guarded.entry.identity;
    let mut seen = 0;
    host.memory.hook(move |_, read| {
        if read.rkey == 1_002 {
            seen += 1;
            if seen == 4 {
                commit(words.block(0), identity, 6, |p| p.set(0, 8));
            }
        }
        None
    });
    let reading = read_once(&host);
    assert_eq!(reading.lines(), ["shop.a_total 42", "node.g 8"]);
    assert_eq!(reading.session.counters().retries["busy"], 3);
    assert!(reading.session.counters().refused.is_empty());
}

#[test]
fn a_block_torn_for_ever_is_given_up_and_the_rest_is_there() {
    let (host, _, guarded) = shop();
    guarded.words.set(0, 5, 99);
    let reading = read_once(&host);
    assert_eq!(reading.lines(), ["shop.a_total 42"]);
    let counters = reading.session.counters();
    assert_eq!((counters.retries["crc"], counters.refused["crc"]), (7, 1));
    let frame = reading.session.frames().nth(1).unwrap();
    assert_eq!((frame.refused().len(), frame.problem()), (1, None));
}

#[test]
fn a_region_that_moved_meanwhile_is_found_again() {
    let (mut host, plain, _) = shop();
    // When the old place is READ it has been given to nobody, and the directory names a new one.
    let old = plain.words.clone();
    let (entry, slot) = (plain.entry.clone(), plain.slot);
    let fresh = memory::Shared::new(2);
    let schema = Schema::parse(PLAIN).unwrap();
    write_blocks(&schema, Identity::first(77, 8), &fresh);
    fresh.set(0, 1, 1);
    host.memory.insert(5_000, 1 << 40, fresh);
    let moved = RegionEntry { identity: Identity::first(77, 8), va: 1 << 40, rkey: 5_000, ..entry };
    let memory = host.memory.clone();
    let answer_host = Host { memory: memory.clone(), control_words: host.control_words.clone(), ..Host::new(16) };
    let mut done = false;
    memory.hook(move |_, read| {
        if read.rkey == 1_001 && !done {
            done = true;
            old.set(0, 0, 0);
            host.control.replace(slot, &Entry::Region(moved.clone()), 9).unwrap();
        }
        None
    });
    let reading = read_once(&answer_host);
    assert_eq!(reading.lines(), ["shop.a_total 1", "node.g 7"]);
    assert_eq!(reading.session.counters().rounds, 1);
}

#[test]
fn an_identity_that_was_late_is_seen_in_the_next_round() {
    let (host, plain, _) = shop();
    plain.words.set(0, 0, 0);
    let (words, identity) = (plain.words.clone(), plain.entry.identity);
    let mut reads = 0;
    host.memory.hook(move |_, read| {
        reads += u32::from(read.rkey == CONTROL_RKEY && read.va == CONTROL_VA);
        if reads == 2 {
            words.set(0, 0, identity.word());
        }
        None
    });
    let reading = read_once(&host);
    assert_eq!(reading.lines(), ["shop.a_total 42", "node.g 7"]);
    assert!(reading.session.counters().refused.is_empty());
}

#[test]
fn a_directory_block_that_was_given_up_is_read_in_the_next_cycle() {
    let (host, ..) = shop();
    let version = host.control_words.block(1)[0].load(Ordering::Relaxed);
    host.control_words.set(1, 0, 1);
    let mut reading = read_once(&host);
    assert_eq!(reading.session.control_refused(), [(1, Reject::Busy)]);
    assert!(reading.session.directory().regions().count() < 2);
    // The header has not moved since.
    host.control_words.set(1, 0, version);
    reading.read().unwrap();
    assert_eq!(reading.session.control_refused(), []);
    assert_eq!(reading.lines(), ["shop.a_total 42", "node.g 7"]);
}

#[test]
fn an_agent_that_died_while_it_wrote_its_header_leaves_its_regions_readable() {
    let (host, plain, _) = shop();
    let mut reading = read_once(&host);
    let version = host.control_words.block(0)[0].load(Ordering::Relaxed);
    host.control_words.set(0, 0, version | 1);
    plain.words.set(0, 1, 43);
    for _ in 0..2 {
        reading.read().unwrap();
        assert_eq!(reading.session.control_refused(), [(0, Reject::Busy)]);
        assert_eq!(reading.lines(), ["shop.a_total 43", "node.g 7"]);
    }
    assert_eq!((reading.session.counters().retries["busy"], reading.session.counters().refused["busy"]), (4, 2));
    host.control_words.set(0, 0, version);
    reading.read().unwrap();
    assert_eq!(reading.session.control_refused(), []);
    assert_eq!(reading.lines(), ["shop.a_total 43", "node.g 7"]);
    // Who has never read the directory has nothing to read.
    host.control_words.set(0, 0, version | 1);
    assert!(Reading::of(&host, Limits::default()).read().is_err());
}

#[test]
fn a_schema_that_came_between_the_header_and_the_entries_is_looked_for_at_once() {
    let (mut host, plain, _) = shop();
    // Two schemas and two regions fill two blocks of entries: the new schema goes to a third.
    let (memory, new) = (host.memory.clone(), Schema::parse(&PLAIN.replace("a_total", "b_total")).unwrap());
    let mut reading = Reading::of(&host, Limits::default());
    memory.hook(move |number, _| {
        if number == 2 {
            let (canonical, id) = (new.canonical(), onlooker_region::SchemaId::of(&new.canonical()));
            host.control.hold_schema(id, &new.name, &canonical, 9).unwrap();
            let changed = RegionEntry { schema: id, ..plain.entry.clone() };
            host.control.replace(plain.slot, &Entry::Region(changed), 9).unwrap();
        }
        None
    });
    reading.read().unwrap();
    assert!(reading.lines().contains(&"shop.b_total 42".to_owned()), "{:?}", reading.lines());
    assert_eq!((reading.session.counters().rounds, reading.session.control_refused()), (1, &[][..]));
}

#[test]
fn frames_that_were_taken_out_outlive_the_next_cycle() {
    let (host, plain, _) = shop();
    let mut reading = read_once(&host);
    let mut frames = Frames::default();
    reading.session.take(&mut frames);
    assert_eq!(reading.session.frames().count(), 0);
    plain.words.set(0, 1, 43);
    reading.read().unwrap();
    let values = |frame: Frame<'_>| {
        let mut values = Vec::new();
        frame.decode(|sample| values.push(sample.value));
        values
    };
    let (old, new): (Vec<_>, Vec<_>) =
        (frames.iter().map(values).collect(), reading.session.frames().map(values).collect());
    assert_eq!((old.len(), &old[1]), (2, &new[1]));
    assert!(old[0].contains(&Value::U64(42)) && new[0].contains(&Value::U64(43)), "{old:?} {new:?}");
    // What they had allocated is used again, and nothing of it is seen.
    reading.session.take(&mut frames);
    reading.read().unwrap();
    assert_eq!(frames.iter().map(values).collect::<Vec<_>>(), new);
    assert_eq!(reading.lines(), ["shop.a_total 43", "node.g 7"]);
}

#[test]
fn a_twin_stands_in_for_its_computed_group_and_never_doubles_it() {
    let mut host = Host::new(64);
    let region = host.region(3, "cpu", &[], TWIN);
    let both = |host: &Host| read_once(host).lines();
    commit(region.words.block(0), region.entry.identity, 5, |p| p.set(0, 10));
    commit(region.words.block(1), region.entry.identity.at(1), 5, |p| p.set(0, 20));
    assert_eq!(both(&host), ["cpu.c 10"]);
    region.words.block(0).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    assert_eq!(both(&host), ["cpu.c 20"]);
    assert!(read_once(&host).session.counters().refused.is_empty(), "the computed block is not missed");
}

#[test]
fn refused_regions_are_told_with_the_reason() {
    let (mut host, plain, guarded) = shop();
    host.memory.remove(1_001);
    let reading = read_once(&host);
    let problem = reading.session.frames().next().unwrap().problem().cloned();
    assert_eq!(problem, Some(Problem::Read(Outcome::Refused(Refusal::Access))));
    assert_eq!((reading.lines(), reading.session.counters().rounds), (vec!["node.g 7".to_owned()], 2));

    let longer = RegionEntry { bytes: 3 * 1024, ..plain.entry };
    host.control.replace(plain.slot, &Entry::Region(longer), 9).unwrap();
    let lost = RegionEntry { schema: onlooker_region::SchemaId([9; 16]), ..guarded.entry };
    host.control.replace(guarded.slot, &Entry::Region(lost), 9).unwrap();
    let reading = read_once(&host);
    let problems: Vec<_> = reading.session.frames().map(|frame| frame.problem().unwrap().to_string()).collect();
    assert_eq!(problems[0], "its entry says 3 blocks, its schema 2");
    assert!(problems[1].contains("is not in the directory"), "{problems:?}");
}

#[test]
fn damaged_schemas_cost_only_their_regions() {
    let (host, ..) = shop();
    let first = {
        let reading = read_once(&host);
        reading.session.directory().last_header().unwrap().schema_first
    };
    // The first schema's text with one character changed, and a valid guard.
    let me = Identity { region: 0, generation: INCARNATION, index: u16::try_from(first).unwrap() };
    commit(host.control_words.block(first as usize), me, 3, |p| {
        let word = p.get(2);
        p.set(2, word ^ 1);
    });
    let reading = read_once(&host);
    assert_eq!(reading.lines(), ["node.g 7"]);
    let problem = reading.session.frames().next().unwrap().problem().unwrap().to_string();
    assert!(problem.contains("does not hash to its id"), "{problem}");
}

#[test]
fn control_lies_are_named() {
    let lie = |slot: usize, value: u64| {
        let host = Host::new(64);
        commit(host.control_words.block(0), Identity::first(0, PLACE.incarnation), 1, |p| p.set(slot, value));
        match Reading::of(&host, Limits::default()).read() {
            Err(DriveError::Read(ReadError::Control(error))) => error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(lie(0, 1), ControlError::Magic);
    assert_eq!(lie(1, 2 | 1024 << 32), ControlError::Version(2));
    assert!(matches!(lie(7, 64), ControlError::Header { .. }));
    // A header that claims a larger control region than bootstrap told, with entries there.
    let host = Host::new(64);
    commit(host.control_words.block(0), Identity::first(0, PLACE.incarnation), 1, |p| {
        p.set(7, 4_000);
        p.set(8, 60_000);
        p.set(9, 65_536);
    });
    let error = Reading::of(&host, Limits::default()).read().unwrap_err();
    assert!(matches!(error, DriveError::Read(ReadError::Control(ControlError::Header { limit: 64, .. }))), "{error}");
}

#[test]
fn computed_regions_are_read_block_by_block() {
    let schema = r#"{"name":"cpu","groups":[
        {"kind":"computed","blocks":3,"acquisition":"computed","fields":[{"name":"c","metric":"gauge","type":"u64"}]}]}"#;
    let mut host = Host::new(64);
    host.region(1, "cpu", &[], schema);
    host.region(2, "node", &[], r#"{"name":"m","groups":[{"kind":"plain","blocks":3,"fields":[]}]}"#);
    let lengths = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = lengths.clone();
    host.memory.hook(move |_, read| {
        if read.rkey != CONTROL_RKEY {
            log.lock().unwrap().push(read.length_bytes);
        }
        None
    });
    read_once(&host);
    assert_eq!(*lengths.lock().unwrap(), [1024, 1024, 1024, 3072]);
}

const SLOW: &str = r#"{"name":"slow","groups":[{"kind":"guarded","blocks":1,"acquisition":"sampled","max_age_ns":2000000,"fields":[{"name":"s","metric":"gauge","type":"u64"}]}]}"#;

#[test]
fn what_cannot_have_moved_is_left_alone_for_a_quarter_of_its_time_where_that_is_wanted() {
    let mut host = Host::new(64);
    let slow = host.region(1, "slow", &[], SLOW);
    let quick = host.region(2, "node", &[], GUARDED);
    let write = |value: u64| {
        for region in [&slow, &quick] {
            commit(region.words.block(0), region.entry.identity, 5, |p| p.set(0, value));
        }
    };
    write(1);
    let mut reading = Reading::of(&host, Limits::default());
    let read = |reading: &mut Reading, ns: u64, value: u64| {
        reading.direct.now_ns.fetch_add(ns, Ordering::Relaxed);
        write(value);
        reading.read().unwrap();
        let resting = reading.session.frames().filter(Frame::is_resting).count();
        (resting, reading.lines().join(", "))
    };
    assert_eq!(read(&mut reading, 0, 1), (0, "slow.s 1, node.g 1".into()));
    assert_eq!(read(&mut reading, 1, 2), (0, "slow.s 2, node.g 2".into()), "nobody has asked for rest");
    reading.session.rest();
    assert_eq!(read(&mut reading, 1, 3), (0, "slow.s 3, node.g 3".into()));
    assert_eq!(read(&mut reading, 499_000, 4), (1, "node.g 4".into()));
    assert_eq!(read(&mut reading, 1_001, 5), (0, "slow.s 5, node.g 5".into()));
    assert_eq!(read(&mut reading, 1, 6), (1, "node.g 6".into()));
}

#[test]
fn where_the_host_s_clock_is_known_there_is_a_look_for_each_sample() {
    let mut host = Host::new(64);
    let slow = host.region(1, "slow", &[], SLOW);
    // The host's clock is 7 s behind, and a sample is written every 2 ms of it.
    let sample = |at_ns: u64| commit(slow.words.block(0), slow.entry.identity, at_ns, |p| p.set(0, at_ns));
    sample(1);
    let mut reading = Reading::of(&host, Limits::default());
    let now_ns = reading.direct.now_ns.clone();
    now_ns.store(7_000_000_000, Ordering::Relaxed);
    let moment = |steady_ns| Moment { steady_ns, utc_ns: 0 };
    reading.session.rest();
    reading.session.know_clock(Relation::new(0, moment(7_000_000_000), moment(7_000_000_000)));
    let (mut looks, mut seen) = (0, Vec::new());
    for at_ns in (0..10_000_000).step_by(100_000) {
        // The third one is late by 1 ms.
        if (at_ns + 500_000) % 2_000_000 == 0 && at_ns != 5_500_000 || at_ns == 6_500_000 {
            sample(at_ns);
        }
        now_ns.store(7_000_000_000 + at_ns, Ordering::Relaxed);
        reading.read().unwrap();
        looks += usize::from(!reading.session.frames().all(|frame| frame.is_resting()));
        seen.extend(reading.lines().pop().filter(|line| seen.last() != Some(line)));
    }
    assert_eq!(
        seen,
        ["slow.s 1", "slow.s 1500000", "slow.s 3500000", "slow.s 6500000", "slow.s 7500000", "slow.s 9500000"]
    );
    assert!((10..25).contains(&looks), "{looks}");
}
