// SPDX-License-Identifier: Apache-2.0
//! Which files go, and when.

use super::*;

#[test]
fn whole_files_are_deleted_and_readers_keep_what_they_hold() {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = open(dir.path());
    for number in 0..5u32 {
        let from_ns = u64::from(number) * 100;
        warm.append(Level::Raw, &chunk(1, from_ns)).unwrap();
        warm.append(Level::Raw, &chunk(number + 10, 1_000 + from_ns)).unwrap();
        warm.write().unwrap();
        if number < 4 {
            warm.close(Level::Raw).unwrap();
        }
    }
    let reader = warm.reader();
    let held = reader.between(Level::Raw, TrackId(1), 0, 50).unwrap().remove(0);
    let bytes = reader.bytes(Level::Raw);
    assert_eq!(warm.drop_before(Level::Raw, 1_039, u64::MAX).unwrap(), 0, "its last row is of that time");
    let dropped = warm.drop_before(Level::Raw, 1_040, u64::MAX).unwrap();
    assert_eq!(reader.bytes(Level::Raw), bytes - dropped);
    assert_eq!(reader.tracks(Level::Raw).len(), 5);
    assert_eq!(read(&held).unwrap(), chunk(1, 0));
    let found = reader.between(Level::Raw, TrackId(1), 0, u64::MAX).unwrap();
    assert_eq!(found.iter().map(|place| place.chunk().from_ns).collect::<Vec<_>>(), [100, 200, 300, 400]);
    assert!(reader.between(Level::Raw, TrackId(10), 0, u64::MAX).unwrap().is_empty());
    while warm.drop_oldest(Level::Raw).unwrap().is_some() {}
    let found = reader.between(Level::Raw, TrackId(1), 0, u64::MAX).unwrap();
    assert_eq!(found.iter().map(|place| place.chunk().from_ns).collect::<Vec<_>>(), [400], "the file that is written");
    drop(warm);
    assert_eq!(all(&open(dir.path()), Level::Raw, 1), [chunk(1, 400)]);
}

#[test]
fn a_file_with_rows_of_a_clock_that_was_ahead_is_as_old_as_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = open(dir.path());
    for from_ns in [100, 10_000, 200] {
        warm.append(Level::Raw, &chunk(1, from_ns)).unwrap();
        warm.write().unwrap();
        if from_ns == 10_000 {
            warm.close(Level::Raw).unwrap();
        }
    }
    assert_eq!(warm.drop_before(Level::Raw, 150, u64::MAX).unwrap(), 0, "some rows are of later");
    assert_eq!(warm.drop_before(Level::Raw, 150, 1_000).unwrap(), 0, "some came right before those of the next file");
    assert!(warm.drop_before(Level::Raw, 500, 1_000).unwrap() > 0, "it is not as late yet");
}

#[test]
fn a_file_without_rows_says_nothing_of_the_age_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = open(dir.path());
    for (number, from_ns) in [(1, 10_000), (2, 20_000)] {
        warm.append(Level::Raw, &chunk(1, from_ns)).unwrap();
        warm.write().unwrap();
        drop(warm);
        if number == 2 {
            fs::write(file::path(&dir.path().join("warm"), Level::Raw, number), b"").unwrap();
        }
        warm = Warm::open(dir.path()).unwrap().0;
        warm.end_found();
    }
    warm.append(Level::Raw, &chunk(1, 700)).unwrap();
    warm.write().unwrap();
    assert_eq!(warm.drop_before(Level::Raw, 650, 1_000).unwrap(), 0, "the next one with rows is not as old");
    assert!(warm.drop_before(Level::Raw, 750, 1_000).unwrap() > 0);
}

#[test]
fn a_clock_that_was_ahead_and_behind_costs_no_good_rows() {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = open(dir.path());
    for from_ns in [700, 10_000, 10] {
        warm.append(Level::Raw, &chunk(1, from_ns)).unwrap();
        warm.write().unwrap();
        if from_ns != 700 {
            warm.close(Level::Raw).unwrap();
        }
    }
    assert_eq!(warm.drop_before(Level::Raw, 650, 1_000).unwrap(), 0, "it has good rows");
}
