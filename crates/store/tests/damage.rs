// SPDX-License-Identifier: Apache-2.0
//! Stores that were cut, flipped, filled up or left in the middle, against a model of what was appended.

#[allow(dead_code, reason = "others use the rest")]
mod common;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use onlooker_series::series::Form;
use onlooker_store::{
    Appender, Config, DAMAGED, Description, Full, Gap, Recovery, Sealed, Store, StoreError, TrackId, Writer, steady_ns,
};

const RING_ROWS: u64 = 32;
const TILE_ROWS: usize = 8;
/// Appended to each track, and how many of them are whole tiles.
const ROWS: u64 = 1012;
const DURABLE: u64 = 1008;

fn config(dir: &Path) -> Config {
    Config {
        dir: dir.join("log"),
        hot: dir.join("hot"),
        hot_bytes: 1 << 20,
        tile_rows: TILE_ROWS,
        segment_bytes: 4 << 10,
        max_bytes: 1 << 30,
    }
}

fn time_ns(sequence: u64) -> u64 {
    1_000_000_000 + sequence * 10_000_000
}

/// What row `sequence` of a track holds: checkable without a copy.
fn values(track: TrackId, sequence: u64) -> [u64; 3] {
    let mixed = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(track.0);
    #[allow(clippy::cast_precision_loss)]
    [sequence * 7, mixed, (sequence as f64 / 8.0).to_bits()]
}

/// The host's only track, with rows of [`values`].
fn track_of(host: &str) -> Description {
    common::described(host, &[Form::Unsigned, Form::Unsigned, Form::Float])
}

/// All rows of a track; panics if one is wrong, out of order or there twice.
fn rows(store: &Writer, track: TrackId) -> (Vec<u64>, Vec<Gap>) {
    let mut seen: Vec<u64> = Vec::new();
    let gaps = store
        .look()
        .read(track, 0, u64::MAX, |sequence, time, row| {
            assert_eq!((time, row), (time_ns(sequence), &values(track, sequence)[..]));
            assert!(seen.last().is_none_or(|last| *last < sequence), "{sequence} after {seen:?}");
            seen.push(sequence);
        })
        .unwrap();
    (seen, gaps)
}

fn append(appender: &mut Appender, track: TrackId, sequence: u64) -> Result<u64, Full> {
    appender.append(time_ns(sequence), &values(track, sequence))
}

struct Written {
    dir: tempfile::TempDir,
    /// Durable and appended rows by track.
    tracks: BTreeMap<TrackId, (u64, u64)>,
}

/// Three tracks, so many rows each of which all but the last few are durable, in several segments; closed as a kill would.
fn written() -> Written {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, recovery) = Store::open(config(dir.path())).unwrap();
    assert_eq!((recovery.tiles, recovery.damaged.len()), (0, 0));
    let mut appenders: Vec<(TrackId, Appender)> = (0..3)
        .map(|i| {
            let id = store.define(&track_of(&format!("h{i}")), RING_ROWS).unwrap();
            (id, store.appender(id).unwrap())
        })
        .collect();
    assert!(store.appender(appenders[0].0).is_none(), "one at a time");
    for sequence in 1..=ROWS {
        for (track, appender) in &mut appenders {
            assert_eq!(append(appender, *track, sequence), Ok(sequence));
        }
        store.seal(0).unwrap();
    }
    let tracks = appenders.iter().map(|(track, _)| (*track, (DURABLE, ROWS))).collect();
    assert!(appenders.iter().all(|(track, _)| store.look().durable_until_ns(*track) == Some(time_ns(DURABLE))));
    Written { dir, tracks }
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir.join("log"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "olog"))
        .collect();
    paths.sort();
    paths
}

fn copy_of(written: &Written) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("log")).unwrap();
    for entry in fs::read_dir(written.dir.path().join("log")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.path().join("log").join(path.file_name().unwrap())).unwrap();
    }
    fs::copy(written.dir.path().join("hot"), copy.path().join("hot")).unwrap();
    copy
}

fn open(dir: &Path) -> (Writer, Recovery) {
    Store::open(config(dir)).unwrap()
}

#[test]
fn a_kill_loses_nothing_and_numbers_go_on() {
    let written = written();
    let (mut store, recovery) = open(written.dir.path());
    assert_eq!(
        (recovery.rows, recovery.hot_rows, recovery.lost_rows, recovery.damaged.len()),
        (3 * DURABLE, 3 * 4, 0, 0)
    );
    for (track, (_, appended)) in &written.tracks {
        assert_eq!(rows(&store, *track).0, (1..=*appended).collect::<Vec<_>>());
        let mut appender = store.appender(*track).unwrap();
        assert_eq!(append(&mut appender, *track, ROWS + 1), Ok(ROWS + 1));
    }
    assert_eq!(store.define(&track_of("h1"), RING_ROWS).unwrap(), TrackId(2), "the same track as before");
    assert_eq!(store.seal(u64::MAX).unwrap(), Sealed { tiles: 3, rows: 15, ..Sealed::default() });
    drop(store);
    fs::remove_file(written.dir.path().join("hot")).unwrap();
    let (store, recovery) = open(written.dir.path());
    assert_eq!((recovery.hot_rows, rows(&store, TrackId(1)).0), (0, (1..=ROWS + 1).collect()));
}

#[test]
fn the_machine_lost_power_and_what_was_durable_is_there() {
    let written = written();
    fs::remove_file(written.dir.path().join("hot")).unwrap();
    let (store, _) = open(written.dir.path());
    for (track, (durable, _)) in &written.tracks {
        assert_eq!(rows(&store, *track).0, (1..=*durable).collect::<Vec<_>>());
    }
}

#[test]
fn a_cut_loses_only_what_lies_after_it() {
    let written = written();
    let paths = segments(written.dir.path());
    assert!(paths.len() > 2);
    let last = fs::read(paths.last().unwrap()).unwrap();
    for cut in (0..last.len()).step_by(37) {
        let copy = copy_of(&written);
        let path = copy.path().join("log").join(paths.last().unwrap().file_name().unwrap());
        fs::write(&path, &last[..cut]).unwrap();
        let (store, recovery) = open(copy.path());
        for (track, (_, appended)) in &written.tracks {
            let (seen, _) = rows(&store, *track);
            // The rings still have the last 32 rows, so that a cut of one tile costs nothing.
            assert_eq!(seen.last(), Some(appended), "cut at {cut}");
            let missing = appended - seen.len() as u64;
            let gaps = store.look().gaps(*track, 0, u64::MAX).filter(|gap| gap.reason == DAMAGED).count();
            assert_eq!(gaps > 0, missing > 0, "cut at {cut}: {missing} rows are missing, {gaps} gaps");
        }
        drop(store);
        fs::remove_file(copy.path().join("hot")).unwrap();
        let before: Vec<_> = (1..=3).map(|track| rows(&open(copy.path()).0, TrackId(track)).0).collect();
        assert!(before.iter().all(|seen| seen.iter().copied().eq(1..=seen.len() as u64)), "cut at {cut}");
        assert!(recovery.damaged.len() <= 1);
    }
}

#[test]
fn a_flipped_bit_costs_at_most_its_batch_and_is_told() {
    let written = written();
    let mut reached = [false; 2];
    for (number, path) in segments(written.dir.path()).iter().enumerate() {
        let bytes = fs::read(path).unwrap();
        for at in (number..bytes.len()).step_by(131) {
            let copy = copy_of(&written);
            fs::remove_file(copy.path().join("hot")).unwrap();
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(copy.path().join("log").join(path.file_name().unwrap()), flipped).unwrap();
            let (store, recovery) = open(copy.path());
            assert_eq!(recovery.unknown_tiles, 0);
            let mut missing = 0;
            for (track, (durable, _)) in &written.tracks {
                let (seen, _) = rows(&store, *track);
                let lost = durable - seen.len() as u64;
                missing += lost;
                let until = seen.last().copied().unwrap_or(0);
                if lost > 0 && until == *durable && seen[0] == 1 {
                    assert_eq!(store.look().gaps(*track, 0, u64::MAX).count(), 1, "segment {number}, byte {at}");
                }
            }
            // What one sync wrote of the three tracks.
            assert!(missing == 0 || missing == 3 * TILE_ROWS as u64, "segment {number}, byte {at}: {missing} rows");
            assert!(missing == 0 || recovery.damaged.len() == 1);
            reached[usize::from(missing > 0)] = true;
        }
    }
    assert_eq!(reached, [true; 2]);
}

#[test]
fn a_batch_that_is_damaged_later_is_a_gap_of_the_read() {
    let written = written();
    let (store, _) = open(written.dir.path());
    let path = &segments(written.dir.path())[0];
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8].fill(0xff);
    fs::write(path, bytes).unwrap();
    for (track, (_, appended)) in &written.tracks {
        let (seen, gaps) = rows(&store, *track);
        let at = seen.windows(2).position(|pair| pair[1] != pair[0] + 1).unwrap();
        let (before, after) = (seen[at], seen[at + 1]);
        assert_eq!((after - before - 1, seen.len() as u64), (TILE_ROWS as u64, appended - TILE_ROWS as u64));
        let gap = Gap { track: *track, from_ns: time_ns(before), to_ns: time_ns(after), reason: DAMAGED.into() };
        assert_eq!(gaps, [gap]);
    }
}

#[test]
fn definitions_outlive_the_loss_of_either_file() {
    let written = written();
    for lost in ["definitions-a", "definitions-b"] {
        let bytes = fs::read(written.dir.path().join("log").join(lost)).unwrap();
        let flipped = |at: usize| [&bytes[..at], &[!bytes[at]], &bytes[at + 1..]].concat();
        let mut all: Vec<Option<Vec<u8>>> = vec![None, Some(Vec::new())];
        all.extend((0..bytes.len()).step_by(7).map(|at| Some(bytes[..at].to_vec())));
        all.extend((0..bytes.len()).step_by(7).map(|at| Some(flipped(at))));
        for content in all {
            let copy = copy_of(&written);
            let path = copy.path().join("log").join(lost);
            match &content {
                Some(content) => fs::write(&path, content).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            let (store, recovery) = open(copy.path());
            assert_eq!((recovery.unknown_tiles, recovery.unknown_rings), (0, 0));
            assert!(written.tracks.iter().all(|(track, (_, last))| rows(&store, *track).0.len() as u64 == *last));
            drop(store);
            assert_eq!(fs::read(&path).unwrap(), bytes, "both are whole again");
        }
    }
}

#[test]
fn rows_are_read_beside_the_store() {
    let written = written();
    let (store, _) = open(written.dir.path());
    let track = TrackId(1);
    let [rows, few] = [(); 2].map(|()| store.look().rows(track, 0, u64::MAX).unwrap());
    // The oldest segment goes before anybody has read it.
    fs::remove_file(&segments(written.dir.path())[0]).unwrap();
    drop(store);
    let mut seen = Vec::new();
    let gaps = rows.read(|sequence, _, values| {
        assert_eq!(values, self::values(track, sequence));
        seen.push(sequence);
        ControlFlow::Continue(())
    });
    assert_eq!(gaps.unwrap(), [], "what was deleted is no damage");
    assert!(seen[0] > 1 && seen == (seen[0]..=ROWS).collect::<Vec<_>>(), "{seen:?}");
    let mut count = 0;
    let enough = |_, _, _: &[u64]| {
        count += 1;
        if count < 5 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    few.read(enough).unwrap();
    assert_eq!(count, 5);
}

#[test]
fn gaps_are_data() {
    let written = written();
    let (mut store, _) = open(written.dir.path());
    let gap = Gap { track: TrackId(1), from_ns: 10, to_ns: 20, reason: "timeout".into() };
    store.gap(&gap).unwrap();
    assert!(matches!(store.gap(&Gap { track: TrackId(99), ..gap.clone() }), Err(StoreError::NoTrack(99))));
    store.seal(0).unwrap();
    drop(store);
    let (store, _) = open(written.dir.path());
    assert_eq!(store.look().gaps(TrackId(1), 15, 100).collect::<Vec<_>>(), [gap]);
    assert_eq!(store.look().gaps(TrackId(1), 21, 100).count(), 0);
}

#[test]
fn a_full_ring_refuses_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    let track = store.define(&track_of("h"), RING_ROWS).unwrap();
    let mut appender = store.appender(track).unwrap();
    let taken = (1..=40).filter(|sequence| append(&mut appender, track, *sequence).is_ok()).count() as u64;
    assert_eq!(taken, RING_ROWS);
    store.seal(u64::MAX).unwrap();
    assert_eq!(append(&mut appender, track, 33), Ok(33));
    assert_eq!(rows(&store, track).0, (1..=33).collect::<Vec<_>>());
}

#[test]
fn the_oldest_go_first_and_a_retired_track_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let small = Config { max_bytes: 40 << 10, ..config(dir.path()) };
    let (mut store, _) = Store::open(small.clone()).unwrap();
    let old = store.define(&track_of("old"), RING_ROWS).unwrap();
    let mut appender = store.appender(old).unwrap();
    append(&mut appender, old, 1).unwrap();
    store.retire(old, appender);
    assert_eq!(rows(&store, old).0, [1]);
    let hot_bytes = store.look().hot_bytes();
    store.seal(0).unwrap();
    assert_eq!(rows(&store, old).0, [1]);
    let track = store.define(&track_of("new"), RING_ROWS).unwrap();
    assert_eq!(store.look().hot_bytes(), hot_bytes, "the ring of the retired one is used again");
    let mut appender = store.appender(track).unwrap();
    let mut dropped = 0;
    for sequence in 1..=20_000 {
        append(&mut appender, track, sequence).unwrap();
        dropped += store.seal(0).unwrap().dropped_segments;
    }
    assert!(dropped > 2);
    let size: u64 = segments(dir.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(size <= 48 << 10, "{size}");
    assert!(matches!(store.look().read(old, 0, u64::MAX, |_, _, _| {}), Err(StoreError::NoTrack(_))));
    let (seen, _) = rows(&store, track);
    assert!(seen[0] > 1 && seen.iter().copied().eq(seen[0]..=20_000));
    drop((appender, store));
    let (store, recovery) = Store::open(small).unwrap();
    assert_eq!((rows(&store, track).0, recovery.lost_rows), (seen, 0));
    assert_eq!(store.look().gaps(track, 0, u64::MAX).count(), 0, "deleted is not damaged");
}

#[test]
fn old_rows_are_sealed_however_few_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    let track = store.define(&track_of("h"), RING_ROWS).unwrap();
    let mut appender = store.appender(track).unwrap();
    append(&mut appender, track, 1).unwrap();
    let appended_ns = steady_ns();
    // However old it was when it came.
    assert!(store.look().durable_lag_ns().is_some_and(|lag_ns| lag_ns < 60_000_000_000));
    assert_eq!(store.seal(appended_ns - 60_000_000_000).unwrap().rows, 0);
    assert_eq!(store.seal(appended_ns + 1).unwrap().rows, 1);
    let look = store.look();
    assert_eq!((look.durable_lag_ns(), look.oldest_ns()), (None, Some(time_ns(1))));
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, _) = open(dir.path());
    assert!(matches!(Store::open(config(dir.path())), Err(StoreError::InUse(_))));
}

#[test]
fn any_history_is_read_back() {
    bolero::check!().with_iterations(40).with_type::<Vec<(u8, u8)>>().for_each(|steps| {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path()).0;
        let mut appended: BTreeMap<TrackId, u64> = BTreeMap::new();
        let mut appenders: BTreeMap<TrackId, Appender> = BTreeMap::new();
        for (what, which) in steps {
            let described = track_of(&format!("h{}", which % 4));
            match what % 8 {
                0 => drop(store.seal(u64::MAX).unwrap()),
                1 => {
                    appenders.clear();
                    drop(store);
                    store = open(dir.path()).0;
                }
                2 => {
                    let track = store.define(&described, RING_ROWS).unwrap();
                    if let Some(appender) = appenders.remove(&track) {
                        store.retire(track, appender);
                    }
                }
                _ => {
                    let track = store.define(&described, RING_ROWS).unwrap();
                    let appender = appenders.entry(track).or_insert_with(|| store.appender(track).unwrap());
                    let last = appended.entry(track).or_default();
                    for _ in 0..what % 50 {
                        if append(appender, track, *last + 1).is_ok() {
                            *last += 1;
                        }
                    }
                    store.seal(0).unwrap();
                }
            }
            // A track that never had a row may be forgotten.
            for (track, last) in appended.iter().filter(|(_, last)| **last > 0) {
                assert_eq!(rows(&store, *track).0, (1..=*last).collect::<Vec<_>>());
            }
        }
    });
}

#[test]
fn rings_that_a_restart_found_are_given_away_and_rows_stay_in_order_whatever_the_clock_does() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    let old = store.define(&track_of("old"), RING_ROWS).unwrap();
    let mut appender = store.appender(old).unwrap();
    append(&mut appender, old, 1).unwrap();
    // Set back by an hour, and on again.
    let times = [7_200_000_000_000, 3_600_000_000_000, 3_600_000_000_001, 9_000_000_000_000];
    for time_ns in times {
        appender.append(time_ns, &values(old, 2)).unwrap();
    }
    drop((appender, store));
    let (mut store, recovery) = open(dir.path());
    assert_eq!((recovery.hot_rows, store.look().newest_ns(old)), (5, Some(times[3])));
    let hot_bytes = store.look().hot_bytes();
    store.seal(0).unwrap();
    let look = store.look();
    assert_eq!((look.newest_ns(old), look.durable_until_ns(old)), (Some(times[3]), Some(times[3])));
    drop(look);
    let new = store.define(&track_of("new"), RING_ROWS).unwrap();
    assert_eq!(store.look().hot_bytes(), hot_bytes, "nobody asked for the old track's appender");
    assert_eq!(store.look().newest_ns(new), None);
    let times_between = |from_ns, to_ns| {
        let mut times = Vec::new();
        store.look().read(old, from_ns, to_ns, |_, time_ns, _| times.push(time_ns)).unwrap();
        times
    };
    assert_eq!(times_between(2_000_000_000, u64::MAX), times);
    assert_eq!(times_between(0, 4_000_000_000_000), [time_ns(1), times[1], times[2]]);
    assert_eq!(times_between(7_000_000_000_000, 8_000_000_000_000), [times[0]]);
}
