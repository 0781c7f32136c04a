// SPDX-License-Identifier: Apache-2.0
//! Stores that earlier versions wrote: what is there is read, hot rows too, and the store goes on.

use std::fs;
use std::path::Path;

use onlooker_store::record::{Record, encode};
use onlooker_store::{Config, Description, Gap, Store, TrackId, Writer};

const ROWS: u64 = 604;

/// As the fixture was written with.
fn config(dir: &Path) -> Config {
    Config {
        dir: dir.join("log"),
        hot: dir.join("hot"),
        hot_bytes: 16 << 10,
        tile_rows: 8,
        segment_bytes: 6 << 10,
        max_bytes: 1 << 30,
    }
}

fn values(track: TrackId, sequence: u64) -> [u64; 3] {
    let mixed = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(track.0);
    #[allow(clippy::cast_precision_loss)]
    [sequence * 7, if sequence.is_multiple_of(10) { mixed } else { 3 }, (sequence as f64 / 8.0).to_bits()]
}

fn time_ns(sequence: u64) -> u64 {
    1_000_000_000 + sequence * 10_000_000
}

fn check(store: &Writer, until: u64) {
    for track in [TrackId(1), TrackId(2)] {
        let mut expected = 1..=until;
        let gaps = store.look().read(track, 0, u64::MAX, |sequence, time, row| {
            assert_eq!(Some(sequence), expected.next());
            assert_eq!((time, row), (time_ns(sequence), &values(track, sequence)[..]));
        });
        assert_eq!((gaps.unwrap(), expected.next()), (vec![], None));
    }
    let gap = Gap { track: TrackId(1), from_ns: 2_000_000_001, to_ns: 2_000_000_009, reason: "timeout".into() };
    assert_eq!(store.look().gaps(TrackId(1), 0, u64::MAX).collect::<Vec<_>>(), [gap]);
}

fn copy(version: u32) -> tempfile::TempDir {
    let (from, to) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-2"), tempfile::tempdir().unwrap());
    fs::create_dir(to.path().join("log")).unwrap();
    fs::copy(from.join("hot"), to.path().join("hot")).unwrap();
    for entry in fs::read_dir(from.join("log")).unwrap() {
        let path = entry.unwrap().path();
        let number = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let mut first = Vec::new();
        encode(&Record::Segment { version, number }, &[], &mut first);
        bytes[..first.len()].copy_from_slice(&first);
        fs::write(to.path().join("log").join(path.file_name().unwrap()), bytes).unwrap();
    }
    to
}

#[test]
fn logs_and_rings_of_earlier_versions_are_read_and_go_on() {
    for version in [1, 2] {
        let dir = copy(version);
        let (mut store, recovery) = Store::open(config(dir.path())).unwrap();
        assert_eq!((recovery.damaged.len(), recovery.lost_rows, recovery.unknown_tiles), (0, 0, 0));
        assert_eq!((recovery.rows, recovery.hot_rows), (2 * 600, 2 * 4));
        let hosts: Vec<_> = store.look().tracks().map(|(_, described)| described.host().unwrap()).collect();
        assert_eq!(hosts, ["h0", "h1"]);
        assert_eq!(store.look().tracks_of("h1").len(), 1);
        check(&store, ROWS);
        let mut next = ROWS;
        let mut appenders: Vec<_> = (0..2u32)
            .map(|i| {
                // The fixture's descriptions are `{"host":"h0"}` and no more.
                let description = Description { host: format!("h{i}"), ..Description::default() };
                let track = store.define(&description, 40).unwrap();
                assert_eq!(track, TrackId(i + 1));
                (track, store.appender(track).unwrap())
            })
            .collect();
        for _ in 0..200 {
            next += 1;
            for (track, appender) in &mut appenders {
                assert_eq!(appender.append(time_ns(next), &values(*track, next)), Ok(next));
            }
            store.seal(0).unwrap();
        }
        check(&store, next);
        drop((appenders, store));
        let (mut store, recovery) = Store::open(config(dir.path())).unwrap();
        assert_eq!((recovery.lost_rows, recovery.damaged.len()), (0, 0));
        check(&store, next);
        // All of it is in the log by then.
        store.seal(u64::MAX).unwrap();
        drop(store);
        fs::remove_file(dir.path().join("hot")).unwrap();
        check(&Store::open(config(dir.path())).unwrap().0, next);
    }
}

#[test]
fn a_leaf_only_saves_looking() {
    let dir = copy(2);
    let mut leaves = 0;
    for entry in fs::read_dir(dir.path().join("log")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        for at in (0..bytes.len() - 48).step_by(8) {
            if bytes[at..].starts_with(b"OLR1\x05") {
                bytes[at + 40..at + 48].fill(0xff);
                leaves += 1;
            }
        }
        fs::write(&path, bytes).unwrap();
    }
    assert!(leaves >= 4, "{leaves}");
    let (store, recovery) = Store::open(config(dir.path())).unwrap();
    assert_eq!((recovery.damaged.len(), recovery.lost_rows), (leaves, 0));
    check(&store, ROWS);
    drop(store);
    // Lost while the store is open.
    let dir = copy(2);
    let (store, _) = Store::open(config(dir.path())).unwrap();
    for entry in fs::read_dir(dir.path().join("log")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        for at in (0..bytes.len().saturating_sub(48)).step_by(8) {
            if bytes[at..].starts_with(b"OLR1\x05") {
                bytes[at + 40..at + 48].fill(0xff);
            }
        }
        if path.extension().is_some_and(|extension| extension == "olog") {
            fs::write(&path, bytes).unwrap();
        }
    }
    check(&store, ROWS);
}
