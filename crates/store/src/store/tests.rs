// SPDX-License-Identifier: Apache-2.0
//! Stores with many tracks: what one costs, the others do not pay.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::{Config, Store, Writer};
use crate::common::of_columns;
use crate::error::StoreError;
use crate::record::TrackId;
use crate::ring::{Appender, ring_rows};

const SECOND_NS: u64 = 1_000_000_000;

fn config(dir: &Path) -> Config {
    Config {
        dir: dir.join("log"),
        hot: dir.join("hot"),
        hot_bytes: 64 << 20,
        tile_rows: 64,
        segment_bytes: 64 << 10,
        max_bytes: 1 << 30,
    }
}

fn define(store: &mut Writer, name: &str, columns: usize, rows: u64) -> (TrackId, Appender) {
    let track = store.define(&of_columns(name, columns), rows).unwrap();
    (track, store.appender(track).unwrap())
}

#[test]
fn readers_never_wait_for_the_disk() {
    const SLOW: Duration = Duration::from_millis(1_500);
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(Config { segment_bytes: 64 << 20, ..config(dir.path()) }).unwrap();
    let mut tracks: Vec<_> = (0..4_000).map(|i| define(&mut store, &format!("track {i}"), 10, 8)).collect();
    for (number, (_, appender)) in tracks.iter_mut().enumerate() {
        appender.append(SECOND_NS, &[number as u64; 10]).unwrap();
    }
    let (shared, ended, track) = (store.store(), Arc::new(AtomicBool::new(false)), tracks[0].0);
    let reader = std::thread::spawn({
        let ended = ended.clone();
        move || {
            let (mut longest, mut looks) = (Duration::ZERO, 0u64);
            while !ended.load(Ordering::Relaxed) {
                let begin = Instant::now();
                let store = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = (store.bytes(), store.hot_bytes(), store.durable_lag_ns(), store.oldest_ns());
                let rows = store.rows(track, 0, u64::MAX).unwrap();
                drop(store);
                let mut count = 0;
                rows.read(|_, _, _| {
                    count += 1;
                    std::ops::ControlFlow::Continue(())
                })
                .unwrap();
                assert_eq!(count, 1, "once, whether it is hot or in the log");
                longest = longest.max(begin.elapsed());
                looks += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            (longest, looks)
        }
    });
    store.log.slow = SLOW;
    let begin = Instant::now();
    assert_eq!(store.seal(u64::MAX).unwrap().rows, 4_000);
    assert!(begin.elapsed() >= 2 * SLOW, "a write and a sync");
    ended.store(true, Ordering::Relaxed);
    let (longest, looks) = reader.join().unwrap();
    assert!(longest < SLOW / 2 && looks > 10, "{longest:?} in {looks} looks");
}

#[test]
fn a_seal_costs_the_same_however_many_definitions_there_are() {
    const ROWS: u64 = 1_000;
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(config(dir.path())).unwrap();
    // Twenty segments' worth.
    let meta = "m".repeat(640);
    let tracks: Vec<_> = (0..2_000).map(|i| define(&mut store, &format!("{meta} {i}"), 1, 8)).collect();
    let (mut tracks, before) = (tracks, store.log.bytes());
    assert!(store.catalogue.bytes() > 2 * 2_000 * 640);
    for row in 1..=ROWS {
        tracks[7].1.append(row, &[row.wrapping_mul(0x9e37_79b9_7f4a_7c15)]).unwrap();
        store.seal(u64::MAX).unwrap();
    }
    let bytes = store.log.bytes() - before;
    assert!(bytes < ROWS * 300, "{bytes} bytes for {ROWS} rows");
    assert!(bytes > 64 << 10, "over more than one segment");
    drop((tracks, store));
    let (store, recovery) = Store::open(config(dir.path())).unwrap();
    assert_eq!((recovery.rows, recovery.lost_rows, store.look().tracks().count()), (ROWS, 0, 2_000));
}

#[test]
fn short_lived_tracks_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let small = Config { hot_bytes: 1 << 18, max_bytes: 1 << 20, ..config(dir.path()) };
    let (mut store, _) = Store::open(small.clone()).unwrap();
    let meta = "m".repeat(640);
    let mut most = 0;
    let (lasting, mut appender) = define(&mut store, "lasting", 4, 8);
    for round in 1..=300u64 {
        let tracks: Vec<_> = (0..50).map(|i| define(&mut store, &format!("{meta} {round} {i}"), 40, 8)).collect();
        for (track, mut appender) in tracks {
            // A third of them never has a row.
            if track.0 % 3 > 0 {
                let noise = |i: usize| (u64::from(track.0) << 32 | i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                appender.append(round, &std::array::from_fn::<u64, 40, _>(noise)).unwrap();
            }
            store.retire(track, appender);
        }
        appender.append(round, &[round; 4]).unwrap();
        store.seal(u64::MAX).unwrap();
        most = most.max(store.bytes());
    }
    // 15,000 of them were twenty megabytes of definitions.
    assert!(most < 6 << 20, "{most}");
    assert!(store.look().tracks().count() < 4_000, "{}", store.look().tracks().count());
    assert!(store.look().hot_bytes() < 1_000, "{}", store.look().hot_bytes());
    let definitions = store.catalogue.bytes();
    drop((appender, store));
    let (store, recovery) = Store::open(small).unwrap();
    assert_eq!((recovery.lost_rows, recovery.unknown_tiles, recovery.unknown_rings), (0, 0, 0));
    assert!(store.catalogue.bytes() <= definitions);
    assert_eq!(store.look().newest_ns(lasting), Some(300));
}

#[test]
fn a_track_without_hot_memory_leaves_no_trace_and_gets_some_when_others_end() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(Config { hot_bytes: 1 << 16, ..config(dir.path()) }).unwrap();
    let mut tracks = Vec::new();
    let error = loop {
        match store.define(&of_columns(&format!("narrow {}", tracks.len()), 20), 8) {
            Ok(track) => tracks.push((track, store.appender(track).unwrap())),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::HotMemory { .. }), "{error}");
    let (count, definitions) = (store.look().tracks().count(), store.catalogue.bytes());
    assert_eq!(count, tracks.len());
    assert!(store.define(&of_columns("wide", 100), 8).is_err());
    assert_eq!((store.look().tracks().count(), store.catalogue.bytes()), (count, definitions));
    // Those that have rings go on.
    for row in 1..=100 {
        tracks.iter_mut().for_each(|(_, appender)| assert_eq!(appender.append(row, &[row; 20]), Ok(row)));
        store.seal(u64::MAX).unwrap();
    }
    // Narrow ones make room for a wide one, also where they were found by a restart.
    for _ in 0..6 {
        let (track, appender) = tracks.pop().unwrap();
        store.retire(track, appender);
    }
    store.seal(0).unwrap();
    let (wide, appender) = define(&mut store, "wide", 100, 8);
    assert_eq!(appender.ring_bytes(), crate::ring_bytes(100, 8));
    drop((tracks, appender, store));
    let (mut store, _) = Store::open(Config { hot_bytes: 1 << 16, ..config(dir.path()) }).unwrap();
    store.seal(0).unwrap();
    let look = store.look();
    assert_eq!((look.hot_bytes(), look.is_hot(wide)), (0, false));
    drop(look);
    assert!(store.define(&of_columns("wider", 200), 30).is_ok());
}

#[test]
fn a_ring_grows_with_what_is_asked_of_it_and_keeps_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(config(dir.path())).unwrap();
    let (track, mut appender) = define(&mut store, "track", 2, 8);
    (1..=8).for_each(|row| assert_eq!(appender.append(row, &[row; 2]), Ok(row)));
    drop((appender, store));
    let (mut store, _) = Store::open(config(dir.path())).unwrap();
    let (again, mut appender) = define(&mut store, "track", 2, 400);
    assert_eq!(again, track);
    (9..=400).for_each(|row| assert_eq!(appender.append(row, &[row; 2]), Ok(row)));
    drop((appender, store));
    let (mut store, recovery) = Store::open(config(dir.path())).unwrap();
    assert_eq!((recovery.hot_rows, recovery.unknown_rings), (400, 0));
    assert_eq!(store.seal(u64::MAX).unwrap().rows, 400);
    let bytes = store.look().hot_bytes();
    assert_eq!(bytes, 0, "nobody has asked for it again");
}

/// Rows as hosts have them: two thirds of the values never change, the others are counters and gauges; a quarter of all moves from one row to the next at 1 s.
fn value(host: u64, column: u64, step: u64, moves: u64) -> u64 {
    let mix = |a: u64| {
        let a = a.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (a ^ a >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
    };
    let of = mix(host << 32 | column);
    match mix(column) % 100 {
        0..40 => 0,
        40..64 => mix(column) >> (mix(column + 7) % 40),
        // Moves in some of the steps, by so much.
        kind => {
            let size = 1 << (mix(column + 3) % 12);
            let steps = step * moves / 100 + of % 100;
            let base = of >> (4 + of % 30);
            if kind < 88 { base + steps * size + mix(of ^ steps) % size } else { base + mix(of ^ steps) % (16 * size) }
        }
    }
}

#[test]
fn the_few_rows_of_many_tracks_pack_together() {
    const HOSTS: u64 = 8;
    const GROUPS: u64 = 44;
    const COLUMNS: u64 = 16;
    // At 1 s a tile has two rows, since they are to be durable soon; each by itself they took more than eight bytes.
    for (interval_ms, moves, most) in [(10, 40, 0.8), (100, 60, 0.8), (1_000, 75, 1.7)] {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(Config { segment_bytes: 64 << 20, ..config(dir.path()) }).unwrap();
        let mut tracks = Vec::new();
        for host in 0..HOSTS {
            for group in 0..GROUPS {
                let rows = ring_rows(interval_ms * 1_000_000);
                let name = format!("{host} {group}");
                tracks.push((host, group, define(&mut store, &name, usize::try_from(COLUMNS).unwrap(), rows).1));
            }
        }
        let before = store.log.bytes();
        let (mut values, mut sealed) = (0, 0);
        // Ten seconds, with a seal of all that fills a tile each half second, and of what has waited for more than a second, as the controller does it.
        let wait_ms = 1_500.max(2 * interval_ms);
        for step in 1..=10_000 / interval_ms {
            let now_ns = 1_700_000_000 * SECOND_NS + step * interval_ms * 1_000_000;
            for (host, group, appender) in &mut tracks {
                let row: Vec<u64> =
                    (0..COLUMNS).map(|column| value(*host, *group * COLUMNS + column, step, moves)).collect();
                let time_ns = now_ns + *host * 31_000_003 + *group * 1_700 + value(*host, 99, step * 7, 100) % 5_000;
                appender.append(time_ns, &row).unwrap();
                values += COLUMNS;
            }
            if (step * interval_ms).is_multiple_of(wait_ms) {
                sealed += store.seal(u64::MAX).unwrap().rows;
            } else if (step * interval_ms).is_multiple_of(500) {
                sealed += store.seal(0).unwrap().rows;
            }
        }
        sealed += store.seal(u64::MAX).unwrap().rows;
        assert_eq!(sealed * COLUMNS, values);
        #[allow(clippy::cast_precision_loss)]
        let each = (store.log.bytes() - before) as f64 / values as f64;
        assert!(each <= most, "{each:.3} bytes a value at {interval_ms} ms");
        // What appenders are told of it adds up.
        let told: u64 = tracks.iter().map(|(_, _, appender)| appender.logged_bytes()).sum();
        let bytes = store.log.bytes() - before;
        assert!((bytes..bytes + bytes / 20).contains(&told), "{told} of {bytes}");
    }
}
