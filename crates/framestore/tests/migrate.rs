// SPDX-License-Identifier: Apache-2.0
//! A store that the version before has written has all its rows, names and gaps afterwards.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use onlooker_framestore::migrate::{Migrated, migrate};
use onlooker_framestore::{Columns, Config, Store};
use onlooker_region::schema::{Acquisition, Metric};
use onlooker_series::series::{EntityKey, Form, Series};
use onlooker_store::Description;

const ROWS: u64 = 3_000;

fn series(name: &str, labels: &[(&str, &str)], metric: Metric, form: Form, at: usize) -> Series {
    let labels: Vec<(String, String)> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Series {
        name: name.into(),
        labels: labels.into(),
        metric,
        unit: "".into(),
        help: "".into(),
        scale: 1.0,
        resolution_ns: 0,
        acquisition: Acquisition::Computed,
        form,
        at,
    }
}

/// A group of a host, as that version described it: series with all their labels.
fn described(host: &str) -> Description {
    let instance = ("instance", host);
    let series = vec![
        series("orders_total", &[instance, ("shop", "a")], Metric::Counter, Form::Unsigned, 0),
        series("shop_info", &[instance, ("value", "1.2")], Metric::Info, Form::Text, 1),
        series("shop_load", &[instance], Metric::Gauge, Form::Float, 1),
    ];
    Description {
        host: host.into(),
        region: "shop".into(),
        entity: EntityKey { region: 7, group: 0, row: None },
        series,
    }
}

fn row(at: u64) -> (u64, [u64; 2]) {
    (1_000_000_000 + at * 10_000_000, [at * 3, 0.25f64.to_bits() + at % 2])
}

fn config(dir: &Path) -> Config {
    let (dir, ring) = (dir.join("store"), dir.join("hot"));
    Config { dir, ring, ring_bytes: 1 << 20, max_bytes: 64 << 20, keep_ns: [u64::MAX; 4] }
}

/// Two hosts' rows and a gap; the last rows are in hot memory only, as a kill leaves them.
fn write_old(dir: &Path) {
    let config = onlooker_store::Config {
        dir: dir.join("store"),
        hot: dir.join("hot"),
        hot_bytes: 4 << 20,
        tile_rows: 64,
        segment_bytes: 1 << 16,
        max_bytes: 64 << 20,
    };
    let (mut writer, _) = onlooker_store::Store::open(config).unwrap();
    for host in ["a", "b"] {
        let track = writer.define(&described(host), 256).unwrap();
        let mut appender = writer.appender(track).unwrap();
        for at in 0..ROWS {
            let (time_ns, words) = row(at);
            appender.append(time_ns, &words).unwrap();
            if at % 100 == 50 {
                writer.seal(u64::MAX).unwrap();
            }
        }
        let (from_ns, to_ns, reason) = (row(500).0 + 1, row(501).0 - 1, "late".to_owned());
        writer.gap(&onlooker_store::Gap { track, from_ns, to_ns, reason }).unwrap();
        writer.flush().unwrap();
    }
}

fn check(store: &Store) {
    for host in ["a", "b"] {
        let all = store.series_of(host);
        assert_eq!(all.len(), 1);
        let texts: Vec<String> = all[0].series.iter().map(Series::text).collect();
        let expected = [
            "orders_total{instance=\"?\",shop=\"a\"}",
            "shop_info{instance=\"?\",value=\"1.2\"}",
            "shop_load{instance=\"?\"}",
        ];
        assert_eq!(texts, expected.map(|text| text.replace('?', host)));
        let wanted = Columns { words: vec![0, 1], ..all[0].columns.clone() };
        let mut rows = Vec::new();
        let damaged = store.read(&wanted, 0, u64::MAX, |time_ns, words| {
            rows.push((time_ns, [words[0], words[1]]));
            ControlFlow::Continue(())
        });
        assert_eq!(damaged.unwrap(), []);
        assert!(rows.into_iter().eq((0..ROWS).map(row)), "{host}");
        let gaps = store.gaps(&wanted, 0, u64::MAX);
        assert_eq!(gaps.iter().map(|gap| (gap.from_ns, &*gap.reason)).collect::<Vec<_>>(), [(row(500).0 + 1, "late")]);
    }
}

#[test]
fn what_the_version_before_has_written_is_there_and_an_interrupted_migration_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(migrate(&config(dir.path()), |_, _| ()).ok().flatten(), None, "nothing is there");
    write_old(dir.path());
    let done = Migrated { tracks: 2, rows: 2 * ROWS, gaps: 2, unknown: 0 };
    // A kill in the middle: the old files are moved, and some of the new ones are there.
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir_all(copy.path().join("store/old")).unwrap();
    fs::create_dir_all(copy.path().join("store/warm")).unwrap();
    for entry in fs::read_dir(dir.path().join("store")).unwrap() {
        let entry = entry.unwrap();
        let is_lock = entry.file_name().to_str() == Some("lock");
        let to = if is_lock { "store" } else { "store/old" };
        fs::copy(entry.path(), copy.path().join(to).join(entry.file_name())).unwrap();
    }
    fs::copy(dir.path().join("hot"), copy.path().join("store/old/hot")).unwrap();
    fs::write(copy.path().join("store/warm/raw-0000000001.chunks"), b"half a chunk").unwrap();
    for dir in [dir.path(), copy.path()] {
        let config = config(dir);
        let mut told = 0;
        let migrated = migrate(&config, |_, of| told += usize::from(of == 2)).unwrap();
        assert_eq!((migrated, told), (Some(done), 2));
        let (store, writer, appender, recovery) = onlooker_framestore::open(config.clone()).unwrap();
        check(&store);
        assert_eq!((recovery.chunks.len(), recovery.unknown_rows), (0, 0));
        assert_eq!(store.newest_of_hosts()["a"], row(ROWS - 1).0);
        drop((writer, appender));
        assert_eq!(migrate(&config, |_, _| ()).unwrap(), None, "it is done");
        check(&store);
    }
}
