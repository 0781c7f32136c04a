// SPDX-License-Identifier: Apache-2.0
//! Logs that were closed as a kill closes them, cut, flipped, overwritten and given up, against a model of what was
//! entered.

mod cost;
mod damage;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Entry, Recovery, Segment, Source, VERSION, Wal};
use crate::damage::StoreError;
use crate::framing::files::Lock;
use crate::framing::tests::memory_dir;
use crate::types::TrackId;

const SEGMENT_BYTES: u64 = 1 << 20;
/// Rows with which a head is cut.
const HEAD_ROWS: usize = 20;

/// What row `at` of head `head` of a track is in bytes: checkable without a copy, and of any length.
fn row(track: u32, head: usize, at: usize) -> Vec<u8> {
    let small = |number: usize| u8::try_from(number % 251).unwrap();
    let length = 3 + (head * 7 + at * 5 + track as usize) % 23;
    (0..length)
        .map(|byte| match byte {
            0 => small(head),
            1 => small(at),
            2 => small(length),
            _ => small(byte * 31 + at * 17 + head * 5 + track as usize),
        })
        .collect()
}

/// Rows of each head of each track, in order; the last head of a track is not cut.
type Heads = BTreeMap<u32, Vec<usize>>;

/// The owner of heads.
struct Writer {
    wal: Wal,
    heads: Heads,
    sequence: u64,
}

impl Writer {
    fn new(dir: &Path, segment_bytes: u64) -> Self {
        let (wal, recovery) = Wal::open(&Lock::take(dir).unwrap(), segment_bytes, |_, _| panic!("it is new")).unwrap();
        assert_eq!(recovery, Recovery::default());
        Self { wal, heads: Heads::new(), sequence: 0 }
    }

    fn rows(&mut self, track: u32, rows: usize) {
        let heads = self.heads.entry(track).or_insert_with(|| vec![0]);
        let (head, before) = (heads.len() - 1, *heads.last().unwrap());
        let bytes: Vec<u8> = (before..before + rows).flat_map(|at| row(track, head, at)).collect();
        self.wal.rows(TrackId(track), u32::try_from(rows).unwrap(), &bytes).unwrap();
        *heads.last_mut().unwrap() += rows;
        if *heads.last().unwrap() >= HEAD_ROWS {
            self.cut(track);
        }
    }

    fn cut(&mut self, track: u32) {
        self.wal.cut(TrackId(track)).unwrap();
        self.heads.get_mut(&track).unwrap().push(0);
    }

    fn finish(&mut self) {
        self.sequence += 10;
        self.wal.finish(0, self.sequence);
    }

    /// One record in which each of some tracks has a row or two.
    fn sync(&mut self, tracks: u32) {
        for track in 0..tracks {
            let rows = 1 + (self.sequence / 10 + u64::from(track)) % 2;
            self.rows(track, usize::try_from(rows).unwrap());
        }
        self.finish();
        self.wal.write().unwrap();
        self.wal.sync().unwrap();
    }
}

/// What a head ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Cut,
    Lost,
}

/// What the owner of heads makes of what it is given.
#[derive(Default)]
struct Reader {
    /// Of each track, bytes and number of rows of each head.
    heads: BTreeMap<u32, Vec<(Vec<u8>, usize, End)>>,
    sources: Vec<Source>,
}

impl Reader {
    fn take(&mut self, source: &Source, entry: Entry<'_>) {
        self.sources.push(*source);
        let (track, end) = match entry {
            Entry::Rows { track, .. } => (track, End::Open),
            Entry::Cut { track } => (track, End::Cut),
            Entry::Lost { track, .. } => (track, End::Lost),
        };
        let heads = self.heads.entry(track.0).or_default();
        if heads.last().is_none_or(|(_, _, end)| *end != End::Open) {
            heads.push((Vec::new(), 0, End::Open));
        }
        let head = heads.last_mut().unwrap();
        head.2 = end;
        if let Entry::Rows { rows, bytes, .. } = entry {
            head.0.extend_from_slice(bytes);
            head.1 += rows as usize;
        }
    }

    /// Each head is what the beginning of a written one was, in their order. Returns how many rows of each track there
    /// are.
    fn rows(&self, written: &Heads) -> BTreeMap<u32, usize> {
        let mut all = BTreeMap::new();
        for (track, heads) in &self.heads {
            let mut next = 0;
            for (bytes, rows, end) in heads.iter().filter(|(_, rows, _)| *rows > 0) {
                let head = (next..written[track].len()).find(|head| bytes[0] == u8::try_from(head % 251).unwrap());
                let head = head.unwrap_or_else(|| panic!("track {track} has no head {} after {next}", bytes[0]));
                let expected: Vec<u8> = (0..*rows).flat_map(|at| row(*track, head, at)).collect();
                assert_eq!(bytes, &expected, "track {track}, head {head}");
                assert!(*end != End::Cut || *rows == written[track][head], "a head that was cut is whole");
                *all.entry(*track).or_default() += rows;
                next = head + 1;
            }
        }
        all
    }
}

fn read(dir: &Path) -> (Wal, Recovery, Reader) {
    let mut reader = Reader::default();
    let lock = Lock::take(dir).unwrap();
    let (wal, recovery) = Wal::open(&lock, SEGMENT_BYTES, |source, entry| reader.take(source, entry)).unwrap();
    (wal, recovery, reader)
}

fn total(heads: &Heads) -> BTreeMap<u32, usize> {
    heads.iter().map(|(track, heads)| (*track, heads.iter().sum())).collect()
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir.join("wal")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn copy_of(dir: &Path) -> tempfile::TempDir {
    let copy = memory_dir();
    fs::create_dir(copy.path().join("wal")).unwrap();
    for path in segments(dir) {
        fs::copy(&path, copy.path().join("wal").join(path.file_name().unwrap())).unwrap();
    }
    copy
}

#[test]
fn everything_comes_back_in_its_order() {
    let dir = memory_dir();
    let mut writer = Writer::new(dir.path(), 4 << 10);
    for _ in 0..200 {
        writer.sync(5);
    }
    writer.wal.finish(7, 99);
    writer.wal.write().unwrap();
    let Writer { wal, heads, sequence, .. } = writer;
    drop(wal);
    assert!(segments(dir.path()).len() > 3);
    let (wal, recovery, reader) = read(dir.path());
    assert_eq!(reader.rows(&heads), total(&heads));
    assert_eq!(recovery.covered, BTreeMap::from([(0, sequence), (7, 99)]));
    let (rows, records) = (total(&heads).values().sum::<usize>() as u64, 201);
    assert_eq!(recovery, Recovery { rows, records, covered: recovery.covered.clone(), ..Recovery::default() });
    for (track, heads) in &heads {
        let ends = reader.heads[track].iter().map(|(_, rows, end)| (*rows, *end));
        let cut = heads
            .iter()
            .zip(1..)
            .map(|(rows, number)| (*rows, if number < heads.len() { End::Cut } else { End::Open }));
        assert!(ends.eq(cut.filter(|(rows, _)| *rows > 0)), "track {track}");
    }
    assert!(reader.sources.is_sorted_by_key(|source| source.segment));
    assert_eq!(wal.segment_of_now(), u32::try_from(segments(dir.path()).len()).unwrap());
}

/// Heads go on over restarts, with or without a cut.
#[test]
fn restarts_go_on_where_the_log_ends() {
    let dir = memory_dir();
    let mut writer = Writer::new(dir.path(), SEGMENT_BYTES);
    for restart in 0..10 {
        for _ in 0..7 {
            writer.sync(3);
        }
        let Writer { wal, heads, sequence } = writer;
        drop(wal);
        let (wal, recovery, reader) = read(dir.path());
        assert_eq!((reader.rows(&heads), recovery.lost_rows), (total(&heads), 0), "restart {restart}");
        writer = Writer { wal, heads, sequence };
        if restart % 3 == 0 {
            writer.cut(1);
        }
    }
}

#[test]
fn what_a_failed_sync_may_have_lost_is_written_again() {
    let dir = memory_dir();
    let mut writer = Writer::new(dir.path(), SEGMENT_BYTES);
    for round in 0..60 {
        for track in 0..3 {
            writer.rows(track, 2);
        }
        writer.finish();
        writer.wal.write().unwrap();
        let syncing = writer.wal.begin_sync();
        if round % 7 < 2 {
            let error = StoreError::Limit { what: "nothing", limit: 0, got: 0 };
            assert!(writer.wal.end_sync(Err(error)).is_err());
            assert!(writer.wal.sync().is_err(), "not before it is written again");
            // Once it has written: what was finished meanwhile comes behind it.
            writer.rows(4, 1);
            writer.finish();
            writer.wal.write().unwrap();
            // One that is told too late says nothing of the new segment.
            let waiting = writer.wal.unsynced.len();
            writer.wal.end_sync(syncing.run()).unwrap();
            assert_eq!(writer.wal.unsynced.len(), waiting);
            writer.wal.sync().unwrap();
        } else {
            writer.wal.end_sync(syncing.run()).unwrap();
        }
        assert!(writer.wal.unsynced.is_empty());
    }
    let Writer { wal, heads, .. } = writer;
    drop(wal);
    assert!(segments(dir.path()).len() > 15);
    let whole = copy_of(dir.path());
    let (_, recovery, reader) = read(whole.path());
    assert_eq!((reader.rows(&heads), recovery.lost_records, recovery.lost_rows), (total(&heads), 0, 0));
    // The kernel has dropped the last record of each segment that was given up: its copy is in the next one.
    for pair in segments(dir.path()).windows(2) {
        let bytes = fs::read(&pair[0]).unwrap();
        let last = damage::records(&bytes).last().unwrap().clone();
        fs::write(&pair[0], [&bytes[..last.start], &vec![0; last.len()]].concat()).unwrap();
    }
    let (_, recovery, reader) = read(dir.path());
    assert_eq!((reader.rows(&heads), recovery.lost_records, recovery.lost_rows), (total(&heads), 0, 0));
    assert!(recovery.damaged.len() > 10);
}

#[test]
fn what_could_not_be_written_is_written_later() {
    let dir = memory_dir();
    let mut writer = Writer::new(dir.path(), SEGMENT_BYTES);
    for round in 0..60 {
        writer.rows(0, 2);
        writer.rows(1, 1);
        writer.finish();
        if round % 5 < 2 {
            let read_only = Arc::new(File::open(segments(dir.path()).last().unwrap()).unwrap());
            let file = std::mem::replace(&mut writer.wal.file, read_only);
            assert!(matches!(writer.wal.write(), Err(StoreError::Io { operation: "write to", .. })));
            writer.wal.file = file;
        } else {
            writer.wal.write().unwrap();
            writer.wal.sync().unwrap();
        }
    }
    let Writer { wal, heads, .. } = writer;
    drop(wal);
    let (_, recovery, reader) = read(dir.path());
    assert_eq!((reader.rows(&heads), recovery.records, recovery.damaged.len()), (total(&heads), 60, 0));
}

#[test]
fn segments_go_when_their_rows_are_in_chunks() {
    let dir = memory_dir();
    let mut writer = Writer::new(dir.path(), SEGMENT_BYTES);
    assert!(!writer.wal.roll().unwrap(), "it has nothing");
    for round in 0..30 {
        writer.rows(0, 2);
        writer.rows(1, 1);
        writer.finish();
        writer.wal.write().unwrap();
        assert!(!writer.wal.roll().unwrap(), "it is not durable");
        writer.wal.sync().unwrap();
        if round % 3 == 0 {
            assert!(writer.wal.roll().unwrap());
        }
    }
    // Heads of 20 rows: the third of track 0 and the second of track 1 began with record 20, in the eighth segment.
    let before = writer.wal.bytes();
    let freed = writer.wal.delete_before(6).unwrap();
    assert_eq!((segments(dir.path()).len(), writer.wal.bytes()), (6, before - freed));
    drop(writer.wal);
    let (mut wal, recovery, reader) = read(dir.path());
    // Records before the cuts that are in the log still: what was in chunks by then is not given.
    assert!(recovery.old_rows > 0);
    assert_eq!((recovery.lost_rows, recovery.lost_records, recovery.missing_segments), (0, 0, 0));
    assert_eq!(reader.rows(&writer.heads), BTreeMap::from([(0, 20), (1, 10)]));
    assert_eq!(wal.delete_before(u32::MAX).unwrap(), before - freed);
    assert_eq!(segments(dir.path()).len(), 1, "the one that is written stays");
    // What comes then has the numbers that come next.
    wal.rows(TrackId(0), 1, &row(0, 3, 20)).unwrap();
    wal.finish(0, 1_000);
    wal.write().unwrap();
    let next = wal.next_record;
    drop(wal);
    let (wal, recovery, _) = read(dir.path());
    assert_eq!((wal.next_record, recovery.old_rows, recovery.lost_records), (next, 0, 0));
}

#[test]
fn a_segment_that_is_gone_is_told() {
    let dir = memory_dir();
    let mut writer = Writer::new(dir.path(), 1 << 10);
    (0..120).for_each(|_| writer.sync(3));
    let heads = writer.heads.clone();
    drop(writer);
    let paths = segments(dir.path());
    fs::remove_file(&paths[paths.len() / 2]).unwrap();
    let (_, recovery, reader) = read(dir.path());
    assert_eq!(recovery.missing_segments, 1);
    assert!(recovery.lost_records > 0 && recovery.lost_rows > 0);
    let rows = reader.rows(&heads);
    for (track, all) in total(&heads) {
        assert!(rows[&track] < all && rows[&track] + 3 * HEAD_ROWS + 40 > all, "{} of {all}", rows[&track]);
        assert!(reader.heads[&track].iter().any(|(_, _, end)| *end == End::Lost));
    }
}

#[test]
fn limits_are_errors() {
    let dir = memory_dir();
    let (mut wal, ..) = read(dir.path());
    assert!(!wal.is_full());
    wal.rows(TrackId(1), 1, &[7; 1 << 20]).unwrap();
    assert!(wal.is_full());
    let error = wal.rows(TrackId(2), 1, &[7; 16 << 20]);
    assert!(matches!(error, Err(StoreError::Limit { .. })));
    wal.rows(TrackId(2), 1, &[8; 5]).unwrap();
    wal.finish(0, 1);
    let noise: Vec<u8> = (0..8u32 << 20).map(|at| (at.wrapping_mul(at ^ 2_654_435_761) >> 24) as u8).collect();
    let mut count = 0;
    while wal.has_room() {
        wal.rows(TrackId(3), 1, &noise).unwrap();
        wal.finish(0, 2 + count);
        count += 1;
        assert!(count < 1_000);
    }
    wal.write().unwrap();
    wal.sync().unwrap();
    assert!(wal.has_room());
    drop(wal);
    let (_, recovery, reader) = read(dir.path());
    assert_eq!((recovery.records, reader.heads[&2][0].0.len()), (1 + count, 5));
}

#[test]
fn nothing_is_written_of_nothing() {
    let dir = memory_dir();
    let mut writer = Writer::new(dir.path(), SEGMENT_BYTES);
    writer.sync(1);
    let bytes = writer.wal.bytes();
    writer.wal.finish(0, writer.sequence);
    writer.wal.rows(TrackId(0), 0, &[]).unwrap();
    writer.wal.finish(0, writer.sequence);
    writer.wal.write().unwrap();
    assert_eq!(writer.wal.bytes(), bytes);
    // That the ring has gone on is something, even without rows.
    writer.wal.finish(0, writer.sequence + 1);
    writer.wal.write().unwrap();
    assert!(writer.wal.bytes() > bytes);
}

#[test]
fn another_versions_log_is_left_alone() {
    let dir = memory_dir();
    drop(read(dir.path()));
    let mut bytes = Vec::new();
    Segment { version: VERSION + 1, number: 1, first: 0 }.append(&mut bytes);
    fs::write(&segments(dir.path())[0], &bytes).unwrap();
    let opened = Wal::open(&Lock::take(dir.path()).unwrap(), SEGMENT_BYTES, |_, _| {});
    assert!(matches!(opened, Err(StoreError::Version { found, .. }) if found == VERSION + 1));
    assert_eq!(fs::read(&segments(dir.path())[0]).unwrap(), bytes);
}
