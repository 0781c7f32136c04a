// SPDX-License-Identifier: Apache-2.0
//! Chunks are found and read again; what a cut, a flipped bit, a full or a broken disk costs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::chunk::{Builder, Chunk, Column, Shape};
use crate::types::{Kind, Line, TrackId};

mod age;
mod pieces;

const ROWS: u64 = 40;

fn column(number: usize) -> Column {
    Column::Value(if number.is_multiple_of(2) { Kind::Counter } else { Kind::Float })
}

/// A chunk that nearly all bits of matter, of times from `from_ns` to `from_ns + ROWS - 1`.
fn chunk(track: u32, from_ns: u64) -> Vec<u8> {
    let shape = Shape { columns: (0..6).map(column).collect(), is_table: false, bucket_s: 0 };
    let mut builder = Builder::new(TrackId(track), shape);
    builder.mark(from_ns + 1);
    for row in 0..ROWS {
        let mix = |column: u64| {
            (row << 40 ^ column << 20 ^ from_ns ^ u64::from(track) << 50).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        builder.push(Line::ONLY, from_ns + row, &[7, mix(1), mix(2), row, mix(4), row / 20]);
    }
    builder.finish().unwrap()
}

fn open(dir: &Path) -> Warm {
    let (mut warm, damaged) = Warm::open(dir).unwrap();
    warm.end_found();
    assert_eq!(damaged, []);
    warm
}

fn read(place: &Place) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    place.read(&mut bytes)?;
    Ok(bytes.split_off(frame::HEADER_BYTES))
}

/// All chunks of a track that can be read.
fn all(warm: &Warm, level: Level, track: u32) -> Vec<Vec<u8>> {
    let places = warm.reader().between(level, TrackId(track), 0, u64::MAX).unwrap();
    places.iter().filter_map(|place| read(place).ok()).collect()
}

#[test]
fn chunks_are_found_by_track_level_and_time_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = open(dir.path());
    for from_ns in (0..100).map(|number| number * 100) {
        for track in 1..=3 {
            warm.append(Level::Raw, &chunk(track, from_ns)).unwrap();
        }
    }
    warm.append(Level::Minute, &chunk(1, 77)).unwrap();
    assert_eq!(all(&warm, Level::Raw, 2), Vec::<Vec<u8>>::new(), "not written yet");
    warm.write().unwrap();
    assert!(warm.waiting_bytes() > 0);
    warm.sync().unwrap();
    assert_eq!(warm.waiting_bytes(), 0);
    assert!(fs::read_dir(dir.path().join("warm")).unwrap().count() > 3, "several files");
    for _ in 0..3 {
        let reader = warm.reader();
        let found = |from_ns, to_ns| {
            let places = reader.between(Level::Raw, TrackId(2), from_ns, to_ns).unwrap();
            places.iter().map(|place| place.chunk().from_ns).collect::<Vec<_>>()
        };
        assert_eq!(found(0, u64::MAX).len(), 100);
        assert_eq!(found(139, 300), [100, 200, 300]);
        assert_eq!(found(140, 199), [0u64; 0]);
        assert_eq!(found(9_939, u64::MAX), [9_900]);
        assert_eq!(found(9_940, u64::MAX), [0u64; 0]);
        for (number, bytes) in all(&warm, Level::Raw, 3).iter().enumerate() {
            assert_eq!(*bytes, chunk(3, number as u64 * 100));
        }
        assert_eq!(all(&warm, Level::Minute, 1), [chunk(1, 77)]);
        assert_eq!((reader.mark(Level::Raw, TrackId(2)), reader.mark(Level::Raw, TrackId(9))), (Some(9_901), None));
        let mut tracks = reader.tracks(Level::Raw);
        tracks.sort_unstable();
        assert_eq!(tracks, [1, 2, 3].map(TrackId));
        let bytes = |file: fs::DirEntry| file.metadata().unwrap().len();
        let files = fs::read_dir(dir.path().join("warm")).unwrap().map(|file| bytes(file.unwrap()));
        assert_eq!(files.sum::<u64>(), Level::ALL.map(|level| reader.bytes(level)).iter().sum::<u64>());
        drop(reader);
        drop(warm);
        warm = open(dir.path());
    }
    let mode = fs::metadata(file::path(&dir.path().join("warm"), Level::Raw, 1)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_chunk_that_is_longer_than_a_file_has_one_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = open(dir.path());
    let shape = Shape { columns: (0..20).map(column).collect(), is_table: false, bucket_s: 0 };
    let mut builder = Builder::new(TrackId(1), shape);
    for row in 0..1_000u64 {
        let noise = |word| (row * 20 + word as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        builder.push(Line::ONLY, 1_000 + row, &std::array::from_fn::<u64, 20, _>(noise));
    }
    let chunks = [chunk(1, 0), builder.finish().unwrap(), chunk(1, 5_000)];
    assert!(chunks[1].len() > usize::try_from(file::MAX_FILE_BYTES).unwrap());
    chunks.iter().for_each(|chunk| warm.append(Level::Raw, chunk).unwrap());
    warm.write().unwrap();
    assert_eq!(all(&warm, Level::Raw, 1), chunks);
    drop(warm);
    let warm = open(dir.path());
    assert_eq!(all(&warm, Level::Raw, 1), chunks);
    let places = warm.reader().between(Level::Raw, TrackId(1), 0, u64::MAX).unwrap();
    assert_eq!(places.iter().map(|place| place.chunk().file).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn columns_are_read_without_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = open(dir.path());
    // A small one, which is read as a whole, and a large one.
    let shape = Shape { columns: (0..20).map(column).collect(), is_table: false, bucket_s: 0 };
    let mut builder = Builder::new(TrackId(2), shape);
    for row in 0..300u64 {
        let mix = |number: u64| (number ^ number >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = |column: u64| if column.is_multiple_of(4) { column } else { mix(mix(row << 20 | column)) };
        builder.push(Line::ONLY, row, &std::array::from_fn::<u64, 20, _>(|column| word(column as u64)));
    }
    let chunks = [chunk(1, 0), builder.finish().unwrap()];
    assert!(chunks[1].len() > 30_000);
    for (track, bytes) in [1, 2].into_iter().zip(&chunks) {
        warm.append(Level::Raw, bytes).unwrap();
        warm.write().unwrap();
        let whole = Chunk::parse(bytes).unwrap();
        let place = warm.reader().between(Level::Raw, TrackId(track), 0, 1_000).unwrap().remove(0);
        let mut buffers = Buffers::default();
        let width = whole.head().columns;
        for columns in [0..1, 1..2, 3..4, 1..5, 0..width, width..width] {
            let (mut values, mut expected) = (Vec::new(), Vec::new());
            let read = place.read_columns(columns.clone(), &mut buffers, &mut values).unwrap();
            columns.for_each(|number| whole.column(number, &mut expected).unwrap());
            assert_eq!(values, expected);
            assert_eq!((read.head(), read.statistics(2)), (whole.head(), whole.statistics(2)));
        }
        assert!(place.read_columns(width - 1..width + 1, &mut buffers, &mut Vec::new()).is_err());
        assert_eq!(place.chunk_of(&place.front().unwrap()).unwrap().head(), whole.head());
    }
    // Of a flipped bit only the column that has it knows.
    let path = file::path(&dir.path().join("warm"), Level::Raw, 1);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 5_000;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let place = warm.reader().between(Level::Raw, TrackId(2), 0, 1_000).unwrap().remove(0);
    let mut buffers = Buffers::default();
    let is_wrong = |number: &usize| place.read_columns(*number..number + 1, &mut buffers, &mut Vec::new()).is_err();
    assert_eq!((0..20).filter(is_wrong).count(), 1);
    assert!(read(&place).is_err());
}

#[test]
fn a_cut_loses_only_what_lies_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let chunks: Vec<Vec<u8>> = (0..4).map(|number| chunk(1, number * 100)).collect();
    let mut warm = open(dir.path());
    chunks.iter().for_each(|chunk| warm.append(Level::Raw, chunk).unwrap());
    warm.write().unwrap();
    drop(warm);
    let path = file::path(&dir.path().join("warm"), Level::Raw, 1);
    let bytes = fs::read(&path).unwrap();
    let first = bytes.len() - chunks.iter().map(|chunk| frame::record_bytes(chunk.len())).sum::<usize>();
    for cut in (0..=bytes.len()).step_by(31).chain([bytes.len()]) {
        fs::write(&path, &bytes[..cut]).unwrap();
        let mut end = first;
        let whole = chunks.iter().take_while(|chunk| {
            end += frame::record_bytes(chunk.len());
            end <= cut
        });
        let whole: Vec<Vec<u8>> = whole.cloned().collect();
        let (mut warm, damaged) = Warm::open(dir.path()).unwrap();
        warm.end_found();
        assert_eq!(all(&warm, Level::Raw, 1), whole, "cut at {cut}");
        let good = first + whole.iter().map(|chunk| frame::record_bytes(chunk.len())).sum::<usize>();
        let lost = if cut < first { cut } else { cut - good };
        assert_eq!(damaged.iter().map(|found| found.bytes).sum::<u64>(), lost as u64);
        drop(warm);
        assert_eq!(all(&open(dir.path()), Level::Raw, 1), whole, "and again, from the index");
        fs::write(&path, &bytes).unwrap();
    }
}

#[test]
fn a_flipped_bit_costs_its_record_only() {
    let dir = tempfile::tempdir().unwrap();
    let chunks: Vec<Vec<u8>> = (0..4).map(|number| chunk(1, number * 100)).collect();
    let mut warm = open(dir.path());
    chunks.iter().for_each(|chunk| warm.append(Level::Raw, chunk).unwrap());
    warm.write().unwrap();
    drop(warm);
    let path = file::path(&dir.path().join("warm"), Level::Raw, 1);
    let open_file = fs::read(&path).unwrap();
    drop(open(dir.path()));
    let ended_file = fs::read(&path).unwrap();
    assert!(ended_file.len() > open_file.len(), "with an index");
    let first = open_file.len() - chunks.iter().map(|chunk| frame::record_bytes(chunk.len())).sum::<usize>();
    for (bytes, is_ended) in [(open_file, false), (ended_file, true)] {
        for bit in (0..bytes.len() * 8).step_by(151) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &flipped).unwrap();
            let (mut warm, damaged) = Warm::open(dir.path()).unwrap();
            warm.end_found();
            let mut start = first;
            let untouched = chunks.iter().filter(|chunk| {
                let record = start..start + frame::HEADER_BYTES + chunk.len();
                start += frame::record_bytes(chunk.len());
                // The end of a header and what a payload is padded with carry nothing.
                !record.contains(&(bit / 8)) || (record.start + 20..record.start + 24).contains(&(bit / 8))
            });
            let untouched: Vec<Vec<u8>> = untouched.cloned().collect();
            let found = all(&warm, Level::Raw, 1);
            assert_eq!(found, untouched, "bit {bit}");
            if found.len() < chunks.len() && !is_ended {
                assert_eq!(damaged.len(), 1, "bit {bit}");
            }
            if is_ended && (first..start).contains(&(bit / 8)) {
                assert_eq!(damaged, [], "only the index was read");
                let places = warm.reader().between(Level::Raw, TrackId(1), 0, u64::MAX).unwrap();
                let wrong = |place: &Place| matches!(read(place), Err(StoreError::Damaged { .. }));
                assert_eq!(places.iter().filter(|place| wrong(place)).count(), chunks.len() - untouched.len());
            }
        }
    }
}

#[test]
fn a_full_disk_leaves_nothing_half_written_and_the_same_bytes_are_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = open(dir.path());
    let chunks: Vec<Vec<u8>> = (0..6).map(|number| chunk(1, number * 100)).collect();
    for (number, chunk) in chunks.iter().enumerate() {
        warm.append(Level::Raw, chunk).unwrap();
        if number % 2 == 1 {
            warm.writers[0].disk.room = Some(chunk.len() / 2);
            assert!(matches!(warm.write(), Err(StoreError::Io { .. })));
            assert_eq!(all(&warm, Level::Raw, 1), chunks[..number - 1]);
            warm.writers[0].disk.room = None;
            warm.write().unwrap();
            assert_eq!(all(&warm, Level::Raw, 1), chunks[..=number]);
        }
    }
    warm.sync().unwrap();
    drop(warm);
    assert_eq!(all(&open(dir.path()), Level::Raw, 1), chunks);
}

#[test]
fn what_a_broken_disk_may_have_lost_is_written_again_and_there_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = open(dir.path());
    let chunks: Vec<Vec<u8>> = (0..3).map(|number| chunk(1, number * 100)).collect();
    warm.append(Level::Raw, &chunks[0]).unwrap();
    warm.write().unwrap();
    warm.sync().unwrap();
    warm.append(Level::Raw, &chunks[1]).unwrap();
    warm.write().unwrap();
    warm.writers[0].disk.is_broken = true;
    assert!(matches!(warm.sync(), Err(StoreError::Io { .. })));
    assert!(warm.waiting_bytes() > 0);
    assert_eq!(all(&warm, Level::Raw, 1), chunks[..2], "readable meanwhile");
    warm.append(Level::Raw, &chunks[2]).unwrap();
    warm.writers[0].disk.is_broken = false;
    warm.write().unwrap();
    assert_eq!(all(&warm, Level::Raw, 1), chunks, "once");
    let places = warm.reader().between(Level::Raw, TrackId(1), 0, u64::MAX).unwrap();
    assert_eq!(places.iter().map(|place| place.chunk().file).collect::<Vec<_>>(), [1, 2, 2]);
    warm.sync().unwrap();
    assert_eq!(warm.waiting_bytes(), 0);
    drop(warm);
    // The first attempt is on the disk, too.
    for _ in 0..2 {
        assert_eq!(all(&open(dir.path()), Level::Raw, 1), chunks);
    }
}

#[test]
fn what_an_ended_file_must_have_and_has_not_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let chunks: Vec<Vec<u8>> = (0..6).map(|number| chunk(1, number * 100)).collect();
    let mut warm = open(dir.path());
    for (number, pair) in chunks.chunks(2).enumerate() {
        pair.iter().for_each(|chunk| warm.append(Level::Raw, chunk).unwrap());
        warm.write().unwrap();
        // The first one is closed, the second one is ended by the next process, the third one is open.
        match number {
            0 => warm.close(Level::Raw).unwrap(),
            1 => warm = open(dir.path()),
            _ => drop(std::mem::replace(&mut warm, open(tempfile::tempdir().unwrap().path()))),
        }
    }
    let path = |number| file::path(&dir.path().join("warm"), Level::Raw, number);
    let read = |number| fs::read(path(number)).unwrap();
    let whole = [1, 2, 3].map(read);
    let again = || {
        let (mut warm, damaged) = Warm::open(dir.path()).unwrap();
        warm.end_found();
        let damaged: Vec<_> = damaged.iter().map(|one| (one.number(Level::Raw).unwrap(), one.bytes)).collect();
        let left = all(&warm, Level::Raw, 1);
        (left.iter().map(|left| chunks.iter().position(|chunk| chunk == left).unwrap()).collect::<Vec<_>>(), damaged)
    };
    for (number, before) in [(1, 0), (2, 2)] {
        let bytes = &whole[number as usize - 1];
        let listed = file::Listed { level: Level::Raw, number, cold: None };
        let end = usize::try_from(file::load(&dir.path().join("warm"), &listed).unwrap().ends_at).unwrap();
        let [first, second] = [before, before + 1].map(|at| frame::record_bytes(chunks[at].len()));
        // Between two records, where nothing else shows it; and all of it.
        for (cut, left) in [(end, 2), (end - second, 1), (end - second - first, 0), (0, 0)] {
            fs::write(path(number), &bytes[..cut]).unwrap();
            let expected: Vec<usize> = (0..before + left).chain(before + 2..6).collect();
            let damaged: Vec<_> = Some((number, (end - cut) as u64)).into_iter().filter(|_| cut < end).collect();
            assert_eq!(again(), (expected.clone(), damaged), "file {number} cut at {cut}");
            assert_eq!(again(), (expected, Vec::new()), "it was told");
            whole.iter().zip(1..).for_each(|(bytes, number)| fs::write(path(number), bytes).unwrap());
        }
    }
    fs::remove_file(path(2)).unwrap();
    let (left, damaged) = again();
    assert_eq!((left.len(), damaged.len()), (4, 1), "a file that is gone is missed");
    fs::remove_file(path(1)).unwrap();
    assert_eq!(again(), (vec![4, 5], Vec::new()), "unless those before it are, too: they were old");
}

#[test]
fn what_the_newest_file_has_lost_is_found_until_it_was_noted() {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = open(dir.path());
    for from_ns in [0, 100] {
        warm.append(Level::Raw, &chunk(1, from_ns)).unwrap();
        warm.close(Level::Raw).unwrap();
        warm.write().unwrap();
    }
    drop(warm);
    let path = file::path(&dir.path().join("warm"), Level::Raw, 2);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let found = || {
        let (warm, damaged) = Warm::open(dir.path()).unwrap();
        (warm, damaged.iter().map(|one| one.number(Level::Raw).unwrap()).collect::<Vec<_>>())
    };
    // A kill before that is noted, and another one.
    assert_eq!((found().1, found().1), (vec![2], vec![2]));
    let (mut warm, damaged) = found();
    assert_eq!(damaged, [2]);
    warm.end_found();
    warm.append(Level::Raw, &chunk(1, 200)).unwrap();
    warm.write().unwrap();
    drop(warm);
    assert_eq!(all(&open(dir.path()), Level::Raw, 1), [chunk(1, 0), chunk(1, 200)], "it was told");
}

#[test]
fn readers_read_beside_the_writer() {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = open(dir.path());
    let reader = warm.reader();
    let thread = std::thread::spawn(move || {
        loop {
            let places = reader.between(Level::Raw, TrackId(1), 0, u64::MAX).unwrap();
            for place in &places {
                assert_eq!(read(place).unwrap(), chunk(1, place.chunk().from_ns));
            }
            assert!(places.windows(2).all(|pair| pair[0].chunk().from_ns + 100 == pair[1].chunk().from_ns));
            if places.last().is_some_and(|place| place.chunk().from_ns == 19_900) {
                return;
            }
        }
    });
    for number in 0..200 {
        warm.append(Level::Raw, &chunk(1, number * 100)).unwrap();
        warm.write().unwrap();
        if number == 180 {
            warm.drop_oldest(Level::Raw).unwrap();
        }
    }
    thread.join().unwrap();
}

#[test]
fn files_of_another_version_are_refused_and_foreign_ones_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let warm = dir.path().join("warm");
    fs::write(warm.join("notes.txt"), b"mine").unwrap();
    fs::write(warm.join("raw-x.chunks"), b"mine").unwrap();
    drop(open(dir.path()));
    let mut record = Vec::new();
    frame::append(1, &[9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], &mut record);
    fs::write(file::path(&warm, Level::Raw, 1), record).unwrap();
    assert!(matches!(Warm::open(dir.path()), Err(StoreError::Version { found: 9, .. })));
    assert_eq!(fs::read(warm.join("notes.txt")).unwrap(), b"mine");
}

#[test]
fn what_is_no_chunk_is_refused_and_arbitrary_files_are_damage() {
    let dir = tempfile::tempdir().unwrap();
    assert!(open(dir.path()).append(Level::Raw, &[1; 100]).is_err());
    bolero::check!().with_type::<(Vec<u8>, bool)>().for_each(|(bytes, is_framed)| {
        let path = file::path(&dir.path().join("warm"), Level::Raw, 1);
        let mut content = bytes.clone();
        if *is_framed {
            // An index that nobody has written, in good records.
            content.clear();
            frame::append(frame::CHUNK, &chunk(1, 5), &mut content);
            let index = content.len() as u64;
            frame::append(3, bytes, &mut content);
            frame::append(4, &index.to_le_bytes(), &mut content);
        }
        fs::write(&path, &content).unwrap();
        let (mut warm, damaged) = Warm::open(dir.path()).unwrap();
        warm.end_found();
        assert!(!damaged.is_empty() || *is_framed || bytes.is_empty());
        let _ = all(&warm, Level::Raw, 1);
        drop(warm);
        let _ = fs::remove_file(&path);
    });
}
