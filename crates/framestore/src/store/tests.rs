// SPDX-License-Identifier: Apache-2.0
//! Rows are there at once and after kills, and go when they are too many.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};

use super::*;
use crate::client::{Appender, Description};
use crate::damage::StoreError;
use crate::fixture::{self, pair};
use crate::layout::{Layout, Part};
use crate::types::{Gap, Line, SECOND_NS};

/// Of a host whose instance is called like it.
pub(super) fn description(host: &str, is_table: bool) -> Description {
    fixture::description(host, host, is_table)
}

impl Writer {
    /// Turns until nothing is left to do.
    pub(crate) fn settle(&mut self) {
        for _ in 0..4 {
            self.turn().unwrap();
        }
        // What is looked for while rows are still on their way to chunks is not all.
        for _ in 0..2 {
            self.turn().unwrap();
            while !self.rolling.is_done() {
                self.turn().unwrap();
            }
        }
    }
}

fn config(dir: &Path) -> Config {
    let (dir, ring) = (dir.join("store"), dir.join("ring"));
    Config::keeping_all(dir, ring, 4 << 20, 64 << 20)
}

pub(super) struct World {
    pub(super) dir: tempfile::TempDir,
    pub(super) open: Option<(Store, Writer, Appender)>,
}

/// Times and words of a series' samples.
pub(super) type Samples = Vec<(u64, Vec<u64>)>;
type Take<'a> = &'a mut dyn FnMut(u64, &[u64]) -> ControlFlow<()>;
type Read = Result<Vec<Gap>, StoreError>;

impl World {
    pub(super) fn new() -> Self {
        let mut world = Self { dir: tempfile::tempdir().unwrap(), open: None };
        world.again();
        world
    }

    /// As after a kill: nobody has said goodbye.
    pub(super) fn again(&mut self) -> Recovery {
        self.open = None;
        let (store, writer, appender, recovery) = open(config(self.dir.path())).unwrap();
        self.open = Some((store, writer, appender));
        recovery
    }

    pub(super) fn store(&self) -> &Store {
        &self.open.as_ref().unwrap().0
    }

    pub(super) fn appender(&mut self) -> &mut Appender {
        &mut self.open.as_mut().unwrap().2
    }

    pub(super) fn turn(&mut self) -> Turned {
        self.open.as_mut().unwrap().1.turn().unwrap()
    }

    /// All samples of all series of a host.
    fn all(&self, host: &str) -> BTreeMap<String, Samples> {
        self.read_all(host, |wanted, take| self.store().read(wanted, 0, u64::MAX, take))
    }

    /// The same, where what is decoded for one series is kept for the next.
    fn all_decoded(&self, host: &str) -> BTreeMap<String, Samples> {
        let decoded = Decoded::new(1 << 20);
        self.read_all(host, |wanted, take| {
            let take = &mut |sample: &Sample<'_>| take(sample.time_ns, sample.words);
            self.store().read_decoded(&decoded, wanted, 0, u64::MAX, take)
        })
    }

    fn read_all(&self, host: &str, read: impl Fn(&Columns, Take<'_>) -> Read) -> BTreeMap<String, Samples> {
        let mut all: BTreeMap<String, Samples> = BTreeMap::new();
        for named in self.store().series_of(host) {
            for one in &named.series {
                let words = (one.at..).take(one.form.words()).collect();
                let wanted = Columns { words, ..named.columns.clone() };
                let mut samples = Vec::new();
                let damaged = read(&wanted, &mut |time_ns, words| {
                    samples.push((time_ns, words.to_vec()));
                    ControlFlow::Continue(())
                });
                assert_eq!(damaged.unwrap(), []);
                all.entry(one.text()).or_default().extend(samples);
            }
        }
        all
    }
}

/// Row number `at` of a host's two parts; the second one has something new with every third row.
fn row(at: u64) -> (u64, [u64; 6]) {
    let time_ns = 1_000_000_000 + at * 10_000_000;
    let seldom = at / 3 * 3;
    let seldom_ns = 1_000_000_000 + seldom * 10_000_000 - 5;
    (time_ns, [time_ns - 7, at * 3, (at as f64 / 4.0).to_bits(), seldom_ns, seldom, 0])
}

fn expected(rows: u64, host: &str) -> BTreeMap<String, Samples> {
    let mut all: BTreeMap<String, Samples> = BTreeMap::new();
    let mut put = |name: &str, time_ns: u64, words: &[u64]| {
        all.entry(name.to_owned()).or_default().push((time_ns, words.to_vec()));
    };
    let named = |name: &str, more: &str| format!("{name}{{instance=\"{host}\"{more}}}");
    for at in 0..rows {
        let (_, words) = row(at);
        put(&named("cpu_total", ""), words[0], &words[1..2]);
        put(&named("cpu_info", ",value=\"zen\""), words[0], &[]);
        put(&named("cpu_load", ""), words[0], &words[2..3]);
        if at % 3 == 0 {
            put(&named("memory_total", ""), words[3], &words[4..5]);
            put(&named("memory_info", ""), words[3], &[]);
            put(&named("memory_load", ""), words[3], &words[5..6]);
        }
    }
    all
}

mod loss;

#[test]
fn rows_are_there_at_once_and_after_kills_at_any_time() {
    let mut world = World::new();
    let hosts = ["a", "b"];
    let rows = 3_000;
    for at in 0..rows {
        for host in hosts {
            let track = world.appender().track(&description(host, false), row(0).1[0]).unwrap();
            let (time_ns, words) = row(at);
            world.appender().append(track, Line::ONLY, time_ns, &words).unwrap();
        }
        match at % 700 {
            // Rows in the ring, in the log, in chunks.
            211 => {
                world.turn();
            }
            420 => drop(world.again()),
            630 => {
                world.turn();
                world.again();
            }
            _ => continue,
        }
        hosts.iter().for_each(|host| assert_eq!(world.all(host), expected(at + 1, host), "{at}"));
        hosts.iter().for_each(|host| assert_eq!(world.all_decoded(host), expected(at + 1, host), "{at}"));
    }
    let recovery = world.again();
    assert_eq!((recovery.unknown_rows, recovery.log.lost_rows), (0, 0));
    (0..3).for_each(|_| {
        world.turn();
    });
    hosts.iter().for_each(|host| assert_eq!(world.all(host), expected(rows, host)));
    let newest = world.store().newest_of_hosts();
    assert_eq!(newest["a"], row(rows - 1).0);
    assert!(world.store().oldest_ns().is_some(), "some are in chunks");
    // The same track again, whoever asks.
    assert_eq!(world.store().known().tracks_of("a").len(), 1);
}

#[test]
fn what_one_reader_decodes_of_a_head_is_there_for_the_next() {
    let mut world = World::new();
    let track = world.appender().track(&description("a", false), row(0).1[0]).unwrap();
    for (at, rows) in (0..500).zip(1..) {
        let (time_ns, words) = row(at);
        world.appender().append(track, Line::ONLY, time_ns, &words).unwrap();
        if rows % 100 == 0 {
            world.turn();
            assert_eq!(world.all_decoded("a"), expected(at + 1, "a"));
            assert_eq!(world.store().0.grown.rows_of(track), Some(rows));
        }
    }
}

#[test]
fn a_part_that_stands_leaves_chunks_in_their_order() {
    let mut world = World::new();
    let rows = 4_000_u64;
    for at in 0..rows {
        // It is told with a time a bit later, in the middle of a chunk: another process has compared clocks.
        let seldom_ns = row(0).0 - 5 + at.saturating_sub(500) / 1_000;
        let track = world.appender().track(&description("a", false), row(0).1[0]).unwrap();
        let (time_ns, words) = row(at);
        world.appender().append(track, Line::ONLY, time_ns, &[words[0], words[1], words[2], seldom_ns, 7, 0]).unwrap();
        if at % 1_000 == 999 {
            world.open.as_mut().unwrap().1.settle();
        }
        if at % 2_000 == 1_999 {
            // Who makes the next chunk does not know what the last one has, which is not the first of its process.
            world.again();
        }
    }
    let all = world.all("a");
    let name = |name: &str| format!("{name}{{instance=\"a\"}}");
    assert_eq!(all[&name("cpu_total")], expected(rows, "a")[&name("cpu_total")]);
    let seldom: Vec<_> = (0..4).map(|later| (row(0).0 - 5 + later, vec![7])).collect();
    assert_eq!(all[&name("memory_total")], seldom);
}

#[test]
fn lines_of_a_table_come_and_go_and_have_their_own_rows() {
    let mut world = World::new();
    let track = world.appender().track(&description("a", true), row(0).1[0]).unwrap();
    let lines: Vec<Line> = ["sda", "sdb", "sdc"]
        .iter()
        .map(|disk| {
            let texts = [(1, format!("model of {disk}"))];
            world.appender().line(track, &[pair("disk", disk)], &texts, row(0).1[0]).unwrap()
        })
        .collect();
    let mut told: BTreeMap<usize, Samples> = BTreeMap::new();
    for at in 0..5_000u64 {
        let line = (at % 7 % 3) as usize;
        let words = [at, (at as f64).to_bits()];
        world.appender().append(track, lines[line], at + 1, &words).unwrap();
        told.entry(line).or_default().push((at + 1, vec![words[0]]));
        if at % 1_000 == 500 {
            world.turn();
        }
        if at == 2_700 {
            world.again();
        }
    }
    world.appender().end(track);
    world.turn();
    let all = world.all("a");
    for (line, disk) in ["sda", "sdb", "sdc"].iter().enumerate() {
        assert_eq!(all[&format!("disk_total{{disk=\"{disk}\",instance=\"a\"}}")], told[&line]);
        assert!(all.contains_key(&format!("disk_info{{disk=\"{disk}\",instance=\"a\",value=\"model of {disk}\"}}")));
    }
    assert_eq!(all.len(), 9);
    assert_eq!(world.all_decoded("a"), all);
}

#[test]
fn gaps_are_told_and_kept() {
    let mut world = World::new();
    let track = world.appender().track(&description("a", false), row(0).1[0]).unwrap();
    let gap = |of, from_ns, reason: &str| Gap { track, of, from_ns, to_ns: from_ns + 5, reason: reason.into() };
    let told = [gap(None, 10, "late"), gap(Some(1), 30, "over_quota")];
    told.iter().for_each(|gap| world.appender().gap(gap));
    world.again();
    let (time_ns, words) = row(0);
    world.appender().append(track, Line::ONLY, time_ns, &words).unwrap();
    world.turn();
    world.again();
    let columns = |part| {
        let named = world.store().series_of("a");
        named.into_iter().find(|named| named.columns.part == part).unwrap().columns
    };
    assert_eq!(world.store().gaps(&columns(0), 0, 100), told[..1]);
    assert_eq!(world.store().gaps(&columns(1), 0, 100), told);
    assert_eq!(world.store().gaps(&columns(1), 50, 100), []);
}

#[test]
fn of_a_time_the_tracks_are_named_that_have_rows_or_gaps_of_it() {
    let mut world = World::new();
    let add = |world: &mut World, source: u64, pid: &str, second: u64| {
        let region = vec![pair("pid", pid)];
        let of = Description { source, region, ..description("a", false) };
        let track = world.appender().track(&of, second * SECOND_NS).unwrap();
        let (_, mut words) = row(0);
        (words[0], words[3]) = (second * SECOND_NS, second * SECOND_NS);
        world.appender().append(track, Line::ONLY, second * SECOND_NS, &words).unwrap();
        track
    };
    let oldest = add(&mut world, 5, "1", 1_000);
    world.appender().end(oldest);
    for _ in 0..3 {
        world.open.as_mut().unwrap().1.looked_ns = 0;
        world.turn();
    }
    assert!(world.store().0.chunks.extent(Level::Raw, oldest).is_some(), "it is in a chunk");
    add(&mut world, 6, "2", 10_000);
    let silent = add(&mut world, 7, "3", 20_000);
    let (from_ns, to_ns) = (5_000 * SECOND_NS, 5_001 * SECOND_NS);
    world.appender().gap(&Gap { track: silent, of: None, from_ns, to_ns, reason: "late".into() });
    let newest = add(&mut world, 5, "4", 30_000);
    for _ in 0..2 {
        world.turn();
        let sources = |from: u64, to: u64| {
            let named = world.store().series_between("a", from * SECOND_NS, to * SECOND_NS);
            named.iter().filter(|named| named.columns.part == 0).map(|named| named.source).collect::<Vec<_>>()
        };
        assert_eq!(sources(0, 2_000), [5]);
        assert_eq!(sources(5_001, 6_000), [7], "it has a gap");
        assert!(sources(6_000, 9_900).is_empty());
        assert_eq!(sources(9_000, 10_000), [6]);
        assert_eq!(sources(25_000, 40_000), [5]);
        assert_eq!(sources(0, 40_000), [5, 6, 7, 5]);
        let oldest_of: Vec<TrackId> = [5, 6, 7].map(|source| world.store().oldest_tracks("a")[&source]).into();
        assert!(oldest_of[0] == oldest && oldest_of[2] == silent && !oldest_of.contains(&newest));
        assert!(world.store().series_between("b", 0, u64::MAX).is_empty());
        world.again();
    }
}

#[test]
fn heads_of_another_time_are_not_copied() {
    let mut world = World::new();
    let track = world.appender().track(&description("a", true), 1).unwrap();
    let line = world.appender().line(track, &[pair("disk", "sda")], &[], 1).unwrap();
    for second in [1_000, 1_010, 2_000, 2_010] {
        if second == 2_000 {
            lock(&world.store().0.rows).tracks.get_mut(&track).unwrap().cut();
        }
        world.appender().append(track, line, second * SECOND_NS, &[second, 0]).unwrap();
        world.turn();
    }
    let store = world.store();
    let columns = Columns { track, line, part: 0, time: None, words: vec![0] };
    for (from, to, heads, rows) in [
        (0, 9_000, 2, &[1_000, 1_010, 2_000, 2_010][..]),
        (1_010, 2_000, 2, &[1_010, 2_000]),
        (0, 939, 0, &[]),
        (0, 940, 1, &[]),
        (1_070, 1_939, 1, &[]),
        (1_071, 1_939, 0, &[]),
        (2_005, 2_020, 1, &[2_010]),
        (2_071, 9_000, 0, &[]),
    ] {
        let (from_ns, to_ns) = (from * SECOND_NS, to * SECOND_NS);
        assert_eq!(lock(&store.0.rows).tracks[&track].in_memory(&[], from_ns, to_ns).len(), heads, "{from} to {to}");
        let (mut samples, mut all) = (Vec::new(), Vec::new());
        let read = store.read(&columns, from_ns, to_ns, |_, words| {
            samples.push(words[0]);
            ControlFlow::Continue(())
        });
        let of_rows = store.rows(track, from_ns, to_ns, |_, _, words| {
            all.push(words[0]);
            ControlFlow::Continue(())
        });
        assert_eq!((read.unwrap(), of_rows.unwrap()), (Vec::new(), Vec::new()));
        assert_eq!((&samples[..], &all[..]), (rows, rows));
    }
}

#[test]
fn a_full_ring_refuses_and_what_it_took_is_there() {
    let mut world = World::new();
    let track = world.appender().track(&description("a", false), row(0).1[0]).unwrap();
    let mut taken = 0;
    loop {
        let (time_ns, words) = row(taken);
        if world.appender().append(track, Line::ONLY, time_ns, &words).is_err() {
            break;
        }
        taken += 1;
    }
    assert!(world.appender().used_bytes() > world.appender().capacity_bytes() / 2);
    world.turn();
    assert_eq!(world.appender().used_bytes(), 0);
    let (time_ns, words) = row(taken);
    world.appender().append(track, Line::ONLY, time_ns, &words).unwrap();
    world.turn();
    world.again();
    assert_eq!(world.all("a"), expected(taken + 1, "a"));
}

#[test]
fn the_oldest_rows_go_where_there_are_too_many() {
    let mut world = World::new();
    let mut config = config(world.dir.path());
    world.open = None;
    config.max_bytes = 400 << 10;
    let (store, mut writer, mut appender, _) = open(config).unwrap();
    let (mut dropped, mut at) = (0, 0u64);
    while dropped < 4 {
        let track = appender.track(&description("a", false), row(0).1[0]).unwrap();
        for _ in 0..2_000 {
            // Words that do not pack.
            let noise = std::array::from_fn::<u64, 6, _>(|word| {
                (at * 6 + word as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1
            });
            let (time_ns, mut words) = row(at);
            words[1..3].copy_from_slice(&noise[1..3]);
            appender.append(track, Line::ONLY, time_ns, &words).unwrap();
            at += 1;
        }
        dropped += writer.turn().unwrap().dropped_files;
        assert!(store.bytes() < (400 << 10) + (150 << 10), "{}", store.bytes());
        assert!(at < 1_000_000);
    }
    assert!(store.oldest_ns().unwrap() > row(2_000).0);
    drop((writer, appender));
    world.open = None;
    let recovery = world.again();
    assert_eq!((recovery.unknown_rows, recovery.log.lost_rows, recovery.chunks.len()), (0, 0, 0));
}

/// More than one record of the log has room for waits in the ring when the process is killed: the next one logs it all,
/// and goes on.
#[test]
fn what_a_kill_leaves_in_a_large_ring_is_logged_however_much_it_is() {
    const WIDTH: usize = 400;
    const ROWS: u64 = 12_000;
    let dir = tempfile::tempdir().unwrap();
    let config = Config { ring_bytes: 96 << 20, max_bytes: 1 << 30, ..config(dir.path()) };
    let own = (0..WIDTH).map(|at| Series::new(&format!("noise_{at}"), Metric::Gauge, Form::Unsigned)).collect();
    let layout = Arc::new(Layout::new(vec![Part::new("noise", 0, own).shared()], false));
    let tracks = |appender: &mut Appender| {
        ["a", "b", "c"].map(|host| {
            let description = Description { layout: layout.clone(), texts: Vec::new(), ..description(host, false) };
            appender.track(&description, 1).unwrap()
        })
    };
    let append = |appender: &mut Appender, rows: std::ops::Range<u64>| {
        let tracks = tracks(appender);
        for at in rows {
            let noise = |word: usize| (at * 997 + word as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let words: [u64; WIDTH] = std::array::from_fn(noise);
            appender.append(tracks[usize::try_from(at % 3).unwrap()], Line::ONLY, 1 + at, &words).unwrap();
        }
    };
    let (store, writer, mut appender, _) = open(config.clone()).unwrap();
    append(&mut appender, 0..ROWS);
    drop((store, writer, appender));
    let (store, mut writer, mut appender, _) = open(config.clone()).unwrap();
    writer.turn().unwrap();
    append(&mut appender, ROWS..ROWS + 30);
    writer.turn().unwrap();
    drop((store, writer, appender));
    // All of it is in files now.
    fs::remove_file(&config.ring).unwrap();
    let (store, _writer, _appender, recovery) = open(config).unwrap();
    assert_eq!((recovery.unknown_rows, recovery.log.lost_rows), (0, 0));
    for host in ["a", "b", "c"] {
        let columns = Columns { words: vec![0], ..store.series_of(host).remove(0).columns };
        let mut rows = 0;
        let damaged = store.read(&columns, 0, u64::MAX, |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        });
        assert_eq!((damaged.unwrap(), rows), (Vec::new(), ROWS / 3 + 10), "{host}");
    }
}

/// A file goes while the first row of a track is under way.
#[test]
fn a_track_that_was_just_defined_is_not_forgotten() {
    let mut world = World::new();
    for at in 0..1_000 {
        let track = world.appender().track(&description("a", false), 1).unwrap();
        let (time_ns, words) = row(at);
        world.appender().append(track, Line::ONLY, time_ns, &words).unwrap();
    }
    (0..3).for_each(|_| {
        world.turn();
    });
    world.again();
    let track = world.appender().track(&description("b", false), 1).unwrap();
    while world.open.as_mut().unwrap().1.drop_oldest().unwrap() {}
    let (time_ns, words) = row(0);
    world.appender().append(track, Line::ONLY, time_ns, &words).unwrap();
    assert_eq!(world.turn().unknown_rows, 0);
    assert!(!world.all("b").is_empty());
    assert!(world.all("a").is_empty(), "what nobody uses is forgotten");
}

/// UTC is three years behind the last row's: whoever set the clock wrong does not lose the history by it.
#[test]
fn a_clock_that_is_far_ahead_deletes_nothing_at_once() {
    let mut world = World::new();
    let track = world.appender().track(&description("a", false), 1).unwrap();
    // Of 2023.
    let later_ns = 1_700_000_000 * SECOND_NS;
    world.open.as_mut().unwrap().1.shown_ns = Some(later_ns);
    for at in 0..1_000 {
        let (time_ns, words) = row(at);
        let words = [words[0] + later_ns, words[1], words[2], words[3] + later_ns, words[4], words[5]];
        world.appender().append(track, Line::ONLY, time_ns + later_ns, &words).unwrap();
    }
    world.appender().end(track);
    (0..3).for_each(|_| {
        world.turn();
    });
    world.again();
    let all = world.all("a");
    let writer = &mut world.open.as_mut().unwrap().1;
    writer.config.keep_ns = [3_600_000_000_000; 4];
    for _ in 0..10 {
        writer.turn().unwrap();
    }
    assert_eq!(world.all("a"), all);
    world.open.as_mut().unwrap().1.trusted.utc_ns = u64::MAX;
    (0..10).for_each(|_| {
        world.turn();
    });
    assert!(world.all("a").is_empty(), "rows that are too old by a clock that is right");
}
