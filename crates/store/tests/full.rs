// SPDX-License-Identifier: Apache-2.0
//! Disks without room or without writing, on small file systems of their own (root): collection goes on, the oldest goes first, and nothing ends the process.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::of_columns;
use onlooker_store::{Appender, Config, Store, StoreError, TrackId, Writer};

const RING_ROWS: u64 = 256;
const COLUMNS: usize = 4;

/// A tmpfs of some size, which goes with its value.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None`, and said aloud, for users who may not mount.
    #[allow(clippy::print_stderr)] // a skipped test must be seen
    fn new(options: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("##############################################################################");
            eprintln!("## SKIPPED: NOT tested, it needs root: a store on a full disk              ##");
            eprintln!("##############################################################################");
            return None;
        }
        let disk = Self(tempfile::tempdir().unwrap());
        disk.mount(&["-t", "tmpfs", "-o", options, "tmpfs"]);
        Some(disk)
    }

    fn mount(&self, arguments: &[&str]) {
        let status = Command::new("mount").args(arguments).arg(self.path()).status().unwrap();
        assert!(status.success(), "mount {arguments:?}");
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

fn config(dir: &Path, hot: &Path) -> Config {
    Config {
        dir: dir.join("log"),
        hot: hot.join("hot"),
        hot_bytes: 1 << 20,
        tile_rows: 64,
        segment_bytes: 64 << 10,
        max_bytes: 1 << 30,
    }
}

/// Words that do not pack.
fn values(sequence: u64) -> [u64; 4] {
    std::array::from_fn(|i| {
        let mixed = (sequence << 3 | i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    })
}

/// Numbers of all rows of a track; panics if one is wrong.
fn rows(store: &Writer, track: TrackId) -> Vec<u64> {
    let mut seen = Vec::new();
    store
        .look()
        .read(track, 0, u64::MAX, |sequence, time_ns, row| {
            assert_eq!((time_ns, row), (sequence * 1_000, &values(sequence)[..]));
            seen.push(sequence);
        })
        .unwrap();
    seen
}

fn append(appender: &mut Appender, sequence: u64) -> bool {
    appender.append(sequence * 1_000, &values(sequence)).is_ok()
}

#[test]
fn a_full_disk_costs_the_oldest_rows_and_nothing_else() {
    let Some(disk) = Disk::new("size=512k") else { return };
    let hot = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(config(disk.path(), hot.path())).unwrap();
    let track = store.define(&of_columns("track", COLUMNS), RING_ROWS).unwrap();
    let mut appender = store.appender(track).unwrap();
    let (mut next, mut for_room) = (1, 0);
    // Several times what the disk holds: every row is taken.
    while next <= 40_000 {
        for _ in 0..64 {
            assert!(append(&mut appender, next), "row {next} was not taken");
            next += 1;
        }
        let sealed = store.seal(0).unwrap();
        for_room += sealed.dropped_for_room;
        assert!(sealed.dropped_segments == sealed.dropped_for_room, "the log's own limit is far away");
    }
    let seen = rows(&store, track);
    assert!(for_room > 5 && seen[0] > 1, "{for_room}");
    assert!(seen.iter().copied().eq(seen[0]..next) && seen.len() > 5_000, "the newest are there without a hole");

    // Somebody else takes all of the disk but a little: what the store has is given up, but for the segment it writes.
    let greedy = disk.path().join("greedy");
    let mut size = 512 << 10;
    while fs::write(&greedy, vec![1; size]).is_err() {
        size -= 4096;
    }
    let (mut refused, mut failures) = (0, 0);
    let full_from = next;
    for _ in 0..200 {
        for _ in 0..64 {
            if append(&mut appender, next) {
                next += 1;
            } else {
                refused += 1;
            }
        }
        let sealed = store.seal(0);
        failures += u64::from(sealed.is_err());
        // Takes what it gives up.
        size += 8192;
        while fs::write(&greedy, vec![1; size]).is_err() {
            size -= 4096;
        }
    }
    assert!(refused > 0 && failures > 0, "{refused} rows refused, {failures} failures");
    let seen = rows(&store, track);
    assert!(seen.iter().copied().eq(seen[0]..next), "what was taken is there without a hole");
    let durable_ns = store.look().durable_until_ns(track).unwrap();
    assert!(durable_ns >= (full_from - 1) * 1_000);

    // There is room again, and all goes on.
    fs::remove_file(&greedy).unwrap();
    store.seal(u64::MAX).unwrap();
    for _ in 0..640 {
        assert!(append(&mut appender, next));
        next += 1;
        store.seal(0).unwrap();
    }
    store.seal(u64::MAX).unwrap();
    let seen = rows(&store, track);
    assert!(seen.iter().copied().eq(seen[0]..next));
    drop((appender, store));
    fs::remove_file(hot.path().join("hot")).unwrap();
    let (store, recovery) = Store::open(config(disk.path(), hot.path())).unwrap();
    assert_eq!((recovery.damaged.len(), recovery.lost_rows, rows(&store, track)), (0, 0, seen));
}

#[test]
fn hot_rows_on_a_full_tmpfs_are_an_error_and_no_signal() {
    let Some(small) = Disk::new("size=128k") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(config(dir.path(), small.path())).unwrap();
    let mut tracks = Vec::new();
    let error = loop {
        match store.define(&of_columns(&format!("track {}", tracks.len()), COLUMNS), RING_ROWS) {
            Ok(track) => tracks.push((track, store.appender(track).unwrap())),
            Err(error) => break error,
        }
    };
    let text = error.to_string();
    assert!(matches!(error, StoreError::Io { .. }) && text.contains("room for hot rows in"), "{text}");
    // 14 KiB a ring.
    assert!((6..10).contains(&tracks.len()), "{}", tracks.len());
    // The rings that there are can be written from end to end.
    for sequence in 1..=RING_ROWS {
        assert!(tracks.iter_mut().all(|(_, appender)| append(appender, sequence)));
    }
    store.seal(u64::MAX).unwrap();
    assert!(tracks.iter().all(|(track, _)| rows(&store, *track).len() == 256));
    let ids: Vec<TrackId> = tracks.iter().map(|(track, _)| *track).collect();
    drop((tracks, store));
    // Opened again, also where all of it is taken by now.
    let _ = fs::write(small.path().join("greedy"), vec![1; 128 << 10]);
    let (store, _) = Store::open(config(dir.path(), small.path())).unwrap();
    assert!(ids.iter().all(|track| rows(&store, *track).len() == 256));
    drop(store);
    // No room for anything from the start.
    fs::remove_file(small.path().join("hot")).unwrap();
    let _ = fs::write(small.path().join("greedy"), vec![1; 256 << 10]);
    let error = Store::open(config(dir.path(), small.path())).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("room for hot rows in") && error.contains("hot"), "{error}");
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_and_one_that_becomes_so_is_an_error() {
    let Some(disk) = Disk::new("size=4m") else { return };
    let hot = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(config(disk.path(), hot.path())).unwrap();
    let track = store.define(&of_columns("track", COLUMNS), RING_ROWS).unwrap();
    let mut appender = store.appender(track).unwrap();
    assert!(append(&mut appender, 1));
    drop((appender, store));
    disk.mount(&["-o", "remount,ro"]);
    let error = Store::open(config(disk.path(), hot.path())).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("lock") && error.contains("Read-only"), "{error}");
    disk.mount(&["-o", "remount,rw"]);
    let (store, _) = Store::open(config(disk.path(), hot.path())).unwrap();
    assert_eq!(rows(&store, track), [1]);
}
