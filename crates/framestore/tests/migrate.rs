// SPDX-License-Identifier: Apache-2.0
//! A store that the version before has written has all its rows, names and gaps afterwards: those of `fixtures`.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::Path;

use onlooker_framestore::migrate::{Migrated, migrate};
use onlooker_framestore::{Columns, Config, Named, Store};
use onlooker_region::histogram::Shape;
use onlooker_series::series::Series;

/// Of each group; the last 50 are in hot memory only, as a kill leaves them. Of host b 100 are damaged.
const ROWS: u64 = 1_000;
const DAMAGED: std::ops::Range<u64> = 600..700;
/// Of each line of a table.
const LINE_ROWS: u64 = 300;
const SHAPE: Shape = Shape { grouping_power: 0, max_power: 4 };
/// Two hosts with a group and two lines each.
const WHOLE: Migrated =
    Migrated { tracks: 6, rows: 2 * (ROWS + 2 * LINE_ROWS) - (DAMAGED.end - DAMAGED.start), gaps: 5, unknown: 0 };

/// Row `at` of a group. After row 400 the clock was set back by a second; loads go up in hundredths, then they jump.
fn row(at: u64) -> (u64, Vec<u64>) {
    let time_ns = 2_000_000_000 + at * 10_000_000 - if at > 400 { 1_000_000_000 } else { 0 };
    let load = if at < 500 { (at % 7) as f64 / 100.0 } else { (at as f64).sqrt() };
    let mut row = vec![at * 3, load.to_bits(), 5u64.wrapping_sub(at % 11)];
    row.extend((0..SHAPE.slots() as u64).map(|slot| at / (slot + 1)));
    (time_ns, row)
}

fn config(dir: &Path) -> Config {
    let (dir, ring) = (dir.join("store"), dir.join("hot"));
    Config::keeping_all(dir, ring, 1 << 20, 64 << 20)
}

/// The recorded store, its log in `log` and its hot rows in `hot`.
fn write_old(log: &Path, hot: &Path) {
    fs::create_dir_all(log).unwrap();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-3")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap();
        let to = if name == "hot" { hot.to_owned() } else { log.join(name) };
        fs::write(to, zstd::decode_all(File::open(&path).unwrap()).unwrap()).unwrap();
    }
}

fn rows(store: &Store, named: &Named) -> Vec<(u64, Vec<u64>)> {
    let words = named.series.iter().flat_map(|series| series.at..series.at + series.form.words()).collect();
    let mut rows = Vec::new();
    let damaged = store.read(&Columns { words, ..named.columns.clone() }, 0, u64::MAX, |time_ns, words| {
        rows.push((time_ns, words.to_vec()));
        ControlFlow::Continue(())
    });
    assert_eq!(damaged.unwrap(), []);
    rows
}

fn check(store: &Store) {
    let late = (row(500).0 + 1, row(501).0 - 1, "late".to_owned());
    let timeout = (row(200).0 + 1, row(201).0 - 1, "timeout".to_owned());
    let damaged = (row(DAMAGED.start - 1).0, row(DAMAGED.end).0, "damaged".to_owned());
    for host in ["a", "b"] {
        let expected = [
            vec![
                "orders_total{instance=\"?\",shop=\"a\"}",
                "shop_balance{instance=\"?\"}",
                "shop_info{instance=\"?\",value=\"1.2\"}",
                "shop_load{instance=\"?\"}",
                "shop_seconds{instance=\"?\"}",
            ],
            vec!["queue_length{instance=\"?\",queue=\"in\"}"],
            vec!["queue_length{instance=\"?\",queue=\"out\"}"],
        ];
        let mut all = store.series_of(host);
        all.sort_by_key(|named| named.columns.track);
        for (named, texts) in all.iter().zip(&expected) {
            let mut names: Vec<String> = named.series.iter().map(Series::text).collect();
            names.sort();
            assert_eq!(names, texts.iter().map(|text| text.replace('?', host)).collect::<Vec<_>>());
            assert_eq!((named.source, &*named.region), (7, "shop"));
        }
        let all: [Named; 3] = all.try_into().unwrap();
        let is_there = |at: &u64| host == "a" || !DAMAGED.contains(at);
        assert!(rows(store, &all[0]).into_iter().eq((0..ROWS).filter(is_there).map(row)), "{host}");
        for line in &all[1..] {
            let lengths = (0..LINE_ROWS).map(|at| (row(at).0, row(at).1[..1].to_vec()));
            assert!(rows(store, line).into_iter().eq(lengths), "{host}");
        }
        let gaps = all.each_ref().map(|named| {
            let mut gaps = store.gaps(&named.columns, 0, u64::MAX);
            gaps.sort_by_key(|gap| gap.from_ns);
            gaps.into_iter().map(|gap| (gap.from_ns, gap.to_ns, gap.reason)).collect::<Vec<_>>()
        });
        let late_and_damaged = if host == "a" { vec![late.clone()] } else { vec![late.clone(), damaged.clone()] };
        assert_eq!(gaps, [late_and_damaged, vec![], vec![timeout.clone()]], "{host}");
    }
}

#[test]
fn what_the_version_before_has_written_is_there_and_an_interrupted_migration_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(migrate(&config(dir.path()), |_, _| ()).ok().flatten(), None, "nothing is there");
    write_old(&dir.path().join("store"), &dir.path().join("hot"));
    // A kill in the middle: the old files are moved, and some of the new ones are there.
    let killed = tempfile::tempdir().unwrap();
    let old = killed.path().join("store/old");
    write_old(&old, &old.join("hot"));
    fs::create_dir_all(killed.path().join("store/warm")).unwrap();
    fs::write(killed.path().join("store/warm/raw-0000000001.chunks"), b"half a chunk").unwrap();
    for dir in [dir.path(), killed.path()] {
        let config = config(dir);
        let mut told = 0;
        let migrated = migrate(&config, |_, of| told += usize::from(of == 6)).unwrap();
        assert_eq!((migrated, told), (Some(WHOLE), 1), "few tracks are read together");
        let (store, writer, appender, recovery) = onlooker_framestore::open(config.clone()).unwrap();
        check(&store);
        assert_eq!((recovery.chunks.len(), recovery.unknown_rows), (0, 0));
        assert_eq!(store.newest_of_hosts()["a"], row(ROWS - 1).0);
        drop((writer, appender));
        // As a kill leaves it that comes while the old files are removed.
        let rest = config.dir.join("old.migrated");
        fs::create_dir(&rest).unwrap();
        fs::write(rest.join("0000000001.olog"), b"").unwrap();
        assert_eq!(migrate(&config, |_, _| ()).unwrap(), None, "it is done");
        assert!(!rest.exists());
        check(&store);
    }
}

#[test]
fn tracks_that_nobody_can_name_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("store");
    write_old(&log, &dir.path().join("hot"));
    for name in ["definitions-a", "definitions-b"] {
        let file = File::options().write(true).open(log.join(name)).unwrap();
        // The last one is that of host b's second line.
        file.set_len(file.metadata().unwrap().len() - 16).unwrap();
    }
    let migrated = migrate(&config(dir.path()), |_, _| ()).unwrap().unwrap();
    let without = Migrated { tracks: 5, rows: WHOLE.rows - LINE_ROWS, gaps: WHOLE.gaps - 1, unknown: 1 };
    assert_eq!(migrated, without);
}

/// The version before has run again: nobody but the operator knows which store is worth more, so both stay.
#[test]
fn two_stores_in_one_directory_are_left_alone() {
    let names = |dir: &Path| {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.retain(|name| name != "lock");
        names.sort();
        names
    };
    for is_done in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        write_old(&store, &dir.path().join("hot"));
        if is_done {
            migrate(&config(dir.path()), |_, _| ()).unwrap().unwrap();
        } else {
            fs::create_dir(store.join("old")).unwrap();
            for path in fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
                fs::rename(&path, store.join("old").join(path.file_name().unwrap())).unwrap();
            }
        }
        write_old(&store, &dir.path().join("hot"));
        let before = names(&store);
        let error = migrate(&config(dir.path()), |_, _| ()).unwrap_err();
        assert!(error.to_string().contains("neither is touched"), "{error}");
        assert_eq!(names(&store), before);
    }
}
