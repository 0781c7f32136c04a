// SPDX-License-Identifier: Apache-2.0
//! What damage costs: nothing where one bit or one record of a group is hit, else its records and what follows up to
//! the next cut, and it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use zstd::bulk::Decompressor;

use super::super::record::{ENTRIES, Entries, PARITY, Parity};
use super::{End, HEAD_ROWS, Heads, Reader, SEGMENT_BYTES, Writer, copy_of, read, segments, total};
use crate::framing::bytes::put_unsigned;
use crate::framing::tests::memory_dir;
use crate::framing::{self, Frame, HEADER_BYTES};

/// Where the records of a file are.
pub(super) fn records(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while let Some(header) = bytes[at..].first_chunk() {
        let end = at + Frame::parse(header).unwrap().record_bytes();
        ranges.push(at..end);
        at = end;
    }
    ranges
}

fn kind(bytes: &[u8], record: &Range<usize>) -> u8 {
    Frame::parse(bytes[record.start..].first_chunk().unwrap()).unwrap().kind
}

/// So many records of four tracks, in one segment.
fn written(syncs: usize) -> (tempfile::TempDir, Heads, Vec<u8>) {
    let dir = memory_dir();
    let mut writer = Writer::new(dir.path(), SEGMENT_BYTES);
    (0..syncs).for_each(|_| writer.sync(4));
    let heads = writer.heads.clone();
    drop(writer);
    let bytes = fs::read(&segments(dir.path())[0]).unwrap();
    (dir, heads, bytes)
}

fn read_changed(dir: &Path, bytes: &[u8]) -> (super::Recovery, Reader) {
    let copy = copy_of(dir);
    fs::write(&segments(copy.path())[0], bytes).unwrap();
    let (_, recovery, reader) = read(copy.path());
    (recovery, reader)
}

#[test]
fn a_flipped_bit_loses_nothing() {
    let (dir, heads, bytes) = written(37);
    let mut mended = 0;
    for bit in (0..bytes.len() * 8).step_by(67) {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let (recovery, reader) = read_changed(dir.path(), &flipped);
        assert_eq!((reader.rows(&heads), recovery.damaged.len()), (total(&heads), 0), "bit {bit}");
        mended += recovery.mended_records;
    }
    assert!(mended > 300, "{mended}");
}

#[test]
fn a_damaged_record_of_a_group_loses_nothing() {
    let (dir, heads, bytes) = written(64);
    let ranges = records(&bytes);
    assert_eq!(ranges.len(), 1 + 64 + 4);
    for record in &ranges[1..] {
        // Its header, its payload, all of it.
        let payload = record.start + HEADER_BYTES..record.end - 8;
        for hit in [record.start..record.start + 9, payload, record.clone()] {
            let mut broken = bytes.clone();
            broken[hit].fill(0x5a);
            let (recovery, reader) = read_changed(dir.path(), &broken);
            assert_eq!(reader.rows(&heads), total(&heads), "record at {}", record.start);
            assert_eq!((recovery.lost_rows, recovery.lost_records, recovery.damaged.len()), (0, 0, 1));
            assert_eq!(recovery.rebuilt_records, u64::from(kind(&bytes, record) == ENTRIES));
        }
    }
}

/// The group that a write which failed has left begins anew.
#[test]
fn groups_after_a_write_that_failed_are_right() {
    let dir = memory_dir();
    let mut writer = Writer::new(dir.path(), SEGMENT_BYTES);
    for number in 0..40 {
        writer.rows(number % 3, 2);
        writer.finish();
        if number == 5 {
            let read_only = Arc::new(File::open(&segments(dir.path())[0]).unwrap());
            let file = std::mem::replace(&mut writer.wal.file, read_only);
            assert!(writer.wal.write().is_err());
            writer.wal.file = file;
        }
        writer.wal.write().unwrap();
        writer.wal.sync().unwrap();
    }
    let heads = writer.heads.clone();
    drop(writer);
    let bytes = fs::read(&segments(dir.path())[0]).unwrap();
    // Records 5 to 36, and two parities.
    for record in &records(&bytes)[6..40] {
        let mut broken = bytes.clone();
        broken[record.clone()].fill(0);
        let (recovery, reader) = read_changed(dir.path(), &broken);
        assert_eq!((reader.rows(&heads), recovery.lost_records), (total(&heads), 0));
    }
}

/// One after which the parity has not come yet.
#[test]
fn a_damaged_record_of_the_last_group_costs_what_follows_in_its_heads() {
    let (dir, heads, bytes) = written(60);
    let ranges = records(&bytes);
    let last = ranges.iter().rposition(|record| kind(&bytes, record) == PARITY).unwrap() + 1;
    for (at, record) in ranges.iter().enumerate().skip(last) {
        let mut broken = bytes.clone();
        broken[record.start + 8..record.start + 40].fill(0xee);
        let (recovery, reader) = read_changed(dir.path(), &broken);
        let rows = reader.rows(&heads);
        let left = ranges.len() - at;
        for (track, all) in total(&heads) {
            assert!(rows[&track] < all && rows[&track] + 2 * left >= all, "{} of {all}", rows[&track]);
        }
        // That the last one is damaged nothing that follows tells: but it is damaged, and the ring has it, or it was
        // never durable.
        let lost = total(&heads).values().sum::<usize>() - rows.values().sum::<usize>();
        assert_eq!(recovery.damaged.len(), 1);
        if at + 1 < ranges.len() {
            assert_eq!(recovery.lost_records, 1);
            assert!(recovery.lost_rows > 0 && recovery.lost_rows <= lost as u64);
            assert!(reader.heads.values().flatten().filter(|(_, _, end)| *end == End::Lost).count() >= 4);
        }
    }
}

/// Two of a group: the heads in them lose up to their next cut, others nothing.
#[test]
fn two_damaged_records_of_a_group_cost_their_heads_only() {
    let dir = memory_dir();
    let mut writer = Writer::new(dir.path(), SEGMENT_BYTES);
    // Tracks 0 and 1 by turns, track 2 always.
    for round in 0..160u32 {
        writer.rows(round % 2, 1);
        writer.rows(2, 1);
        writer.finish();
        writer.wal.write().unwrap();
        writer.wal.sync().unwrap();
    }
    let heads = writer.heads.clone();
    drop(writer);
    let bytes = fs::read(&segments(dir.path())[0]).unwrap();
    let ranges = records(&bytes);
    // Records 4 and 6, both with rows of track 0.
    let mut broken = bytes.clone();
    for record in [&ranges[1 + 4], &ranges[1 + 6]] {
        broken[record.clone()].fill(0);
    }
    let (recovery, reader) = read_changed(dir.path(), &broken);
    let (rows, all) = (reader.rows(&heads), total(&heads));
    assert_eq!((recovery.lost_records, recovery.rebuilt_records, recovery.damaged.len()), (2, 0, 2));
    assert_eq!(rows[&1], all[&1], "it was in neither");
    // From the third of its rows and the fifth on, to the cut.
    assert_eq!((all[&0] - rows[&0], all[&2] - rows[&2]), (HEAD_ROWS - 2, HEAD_ROWS - 4));
    assert_eq!(recovery.lost_rows, 2 * HEAD_ROWS as u64 - 6);
}

#[test]
fn a_cut_loses_what_lies_after_it() {
    let (dir, heads, bytes) = written(40);
    let ranges = records(&bytes);
    let counts = |number: usize| (0..4).map(move |track| 1 + (number + track) % 2);
    for cut in (0..bytes.len()).step_by(13).chain(ranges.iter().map(|record| record.end)) {
        let (recovery, reader) = read_changed(dir.path(), &bytes[..cut]);
        let mut expected: BTreeMap<u32, usize> = BTreeMap::new();
        let whole = ranges.iter().filter(|record| kind(&bytes, record) == ENTRIES).zip(0..);
        let payload_end = |record: &Range<usize>| {
            record.start
                + HEADER_BYTES
                + Frame::parse(bytes[record.start..].first_chunk().unwrap()).unwrap().payload_bytes
        };
        for (_, number) in whole.filter(|(record, _)| payload_end(record) <= cut) {
            (0..).zip(counts(number)).for_each(|(track, rows)| *expected.entry(track).or_default() += rows);
        }
        assert_eq!(reader.rows(&heads), expected, "cut at {cut}");
        assert!(recovery.lost_rows == 0 && recovery.lost_records == 0);
        assert!(recovery.damaged.iter().all(|(_, damaged)| damaged.is_torn));
    }
}

/// After damage the process that found it goes on, and whoever opens the log then finds the same and what came since.
#[test]
fn a_log_that_was_damaged_goes_on() {
    let (dir, heads, bytes) = written(60);
    let ranges = records(&bytes);
    let mut broken = bytes.clone();
    broken[ranges[58].start..ranges[59].end].fill(0);
    fs::write(&segments(dir.path())[0], &broken).unwrap();
    let (mut wal, before, reader) = read(dir.path());
    assert!(before.lost_rows > 0);
    let rows = reader.rows(&heads);
    for track in 0..4 {
        wal.rows(crate::types::TrackId(track), 1, b"next").unwrap();
    }
    wal.finish(0, 5_000);
    wal.write().unwrap();
    drop(wal);
    let (_, recovery, mut reader) = read(dir.path());
    assert_eq!((recovery.lost_rows, recovery.lost_records), (before.lost_rows, before.lost_records));
    for heads in reader.heads.values_mut() {
        // A head that was cut since goes on, of the others another one has begun.
        let (bytes, rows, end) = heads.last_mut().unwrap();
        assert!(bytes.ends_with(b"next") && *end == End::Open);
        bytes.truncate(bytes.len() - 4);
        *rows -= 1;
    }
    assert_eq!(reader.rows(&heads), rows);
}

#[test]
fn any_damage_to_any_history_is_no_wrong_row() {
    type History = (Vec<(u8, u8)>, Vec<(u16, u8, u8)>);
    bolero::check!().with_iterations(120).with_type::<History>().for_each(|(steps, damage)| {
        let dir = memory_dir();
        let mut writer = Writer::new(dir.path(), 2 << 10);
        let mut failed = 0;
        for (what, which) in steps.iter().cycle().take(steps.len() * 6) {
            let track = u32::from(which % 5);
            match what % 16 {
                0 if writer.heads.contains_key(&track) => writer.cut(track),
                2..=5 => {
                    writer.finish();
                    writer.wal.write().unwrap();
                    writer.wal.sync().unwrap();
                }
                6 => {
                    writer.finish();
                    writer.wal.write().unwrap();
                    let error = crate::damage::StoreError::Limit { what: "nothing", limit: 0, got: 0 };
                    assert!(writer.wal.end_sync(Err(error)).is_err());
                    failed += 1;
                }
                _ => writer.rows(track, usize::from(what % 7)),
            }
        }
        writer.finish();
        writer.wal.write().unwrap();
        let heads = writer.heads.clone();
        drop(writer);
        let paths = segments(dir.path());
        for (at, length, value) in damage {
            let path = &paths[usize::from(*at) % paths.len()];
            let mut bytes = fs::read(path).unwrap();
            let start = usize::from(*at) * 31 % bytes.len();
            let end = bytes.len().min(start + usize::from(*length));
            bytes[start..end].fill(*value);
            fs::write(path, bytes).unwrap();
        }
        let (_, recovery, reader) = read(dir.path());
        let rows = reader.rows(&heads);
        if damage.is_empty() {
            let expected: BTreeMap<u32, usize> = total(&heads).into_iter().filter(|(_, rows)| *rows > 0).collect();
            assert_eq!((rows, recovery.lost_records), (expected, 0), "{failed} syncs have failed");
        }
    });
}

#[test]
fn payloads_that_lie_are_errors() {
    bolero::check!().with_type::<(Vec<u8>, [u32; 2], u8, Vec<u8>)>().for_each(|(raw, halves, shard, noise)| {
        let mut zstd = Decompressor::new().unwrap();
        let _ = Entries::parse(noise, &mut zstd, &mut Vec::new());
        // As it would be written, of anything.
        let mut payload = Vec::new();
        for word in [0, 7, u64::from(*shard), raw.len() as u64, u64::from(halves[0] % 9)] {
            put_unsigned(word, &mut payload);
        }
        payload.extend(zstd::bulk::compress(raw, 1).unwrap());
        let mut unpacked = Vec::new();
        if let Ok(entries) = Entries::parse(&payload, &mut zstd, &mut unpacked) {
            assert!(entries.iter().all(|entry| entry.is_ok()));
        }
        if let Ok(parity) = Parity::parse(noise) {
            let _ = parity.rebuild(&[(u64::from(halves[1]), raw.clone()), (0, noise.clone())]);
        }
        let dir = memory_dir();
        drop(read(dir.path()));
        let mut bytes = fs::read(&segments(dir.path())[0]).unwrap();
        for (kind, payload) in [(ENTRIES, &payload), (PARITY, noise), (*shard, raw), (ENTRIES, noise)] {
            framing::append(kind, payload, &mut bytes);
        }
        fs::write(&segments(dir.path())[0], &bytes).unwrap();
        let mut tracks = BTreeSet::new();
        let lock = crate::framing::files::Lock::take(dir.path()).unwrap();
        let opened = super::Wal::open(&lock, SEGMENT_BYTES, |source, entry| {
            tracks.insert((source.segment, format!("{entry:?}")));
        });
        assert!(opened.is_ok() || *shard == 1, "only a Segment record can say that it is of another version");
    });
}
