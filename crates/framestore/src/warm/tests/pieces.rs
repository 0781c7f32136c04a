// SPDX-License-Identifier: Apache-2.0
//! Which chunks of a level's pieces count, by what the last one's mark says.

use super::*;
use crate::types::SECOND_NS;

const LEVEL: Level = Level::Second;
/// When a piece of a minute begins.
const FROM_NS: u64 = 1_764_000_000 / 60 * 60 * SECOND_NS;
const TO_NS: u64 = FROM_NS + 60 * SECOND_NS;

/// A chunk of a piece that is known by its number.
fn part(number: u64, mark: u64) -> Vec<u8> {
    let shape = Shape { columns: (0..2).map(column).collect(), is_table: false, bucket_s: LEVEL.bucket_s() };
    let mut builder = Builder::new(TrackId(1), shape);
    builder.mark(mark);
    for row in 0..ROWS {
        builder.push(Line::ONLY, FROM_NS + row * SECOND_NS, &[number, row]);
    }
    builder.finish().unwrap()
}

/// Of chunks that are written one behind the other the numbers of those that count, and whether they are whole.
fn found(parts: &[(u64, u64)]) -> (Vec<u64>, bool) {
    found_again(&[parts])
}

/// The same where a kill comes behind each attempt.
fn found_again(attempts: &[&[(u64, u64)]]) -> (Vec<u64>, bool) {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = open(dir.path());
    for (at, parts) in attempts.iter().enumerate() {
        if at > 0 {
            drop(std::mem::replace(&mut warm, open(dir.path())));
        }
        for (number, mark) in *parts {
            warm.append(LEVEL, &part(*number, *mark)).unwrap();
            warm.write().unwrap();
        }
    }
    // Who has written knows nothing of copies yet.
    if attempts.len() > 1 {
        warm = open(dir.path());
    }
    let look = |warm: &Warm| {
        let reader = warm.reader();
        let mut pieces = reader.pieces(LEVEL, TrackId(1), FROM_NS + 50 * SECOND_NS, u64::MAX).unwrap();
        let piece = pieces.remove(0);
        assert_eq!((pieces.len(), piece.span(LEVEL.piece_ns())), (0, (FROM_NS, TO_NS - 1)));
        let is_whole = piece.is_whole;
        let covered = |is_whole| reader.covered(LEVEL, TrackId(1), SECOND_NS, (0, u64::MAX), is_whole);
        assert_eq!((covered(is_whole), covered(!is_whole)), (vec![(FROM_NS, FROM_NS + ROWS * SECOND_NS - 1)], vec![]));
        let number = |place: &Place| {
            let mut numbers = Vec::new();
            place.read_columns(0..1, &mut Buffers::default(), &mut numbers).unwrap();
            numbers[0]
        };
        (piece.chunks.iter().map(number).collect::<Vec<_>>(), is_whole)
    };
    let written = look(&warm);
    drop(warm);
    // As found without an index, and with it.
    for _ in 0..2 {
        assert_eq!(look(&open(dir.path())), written);
    }
    written
}

#[test]
fn a_piece_is_whole_with_so_many_chunks_before_the_last_one_as_that_says() {
    let last = |chunks: usize| last_mark(TO_NS, chunks);
    assert_eq!(found(&[(1, last(1))]), (vec![1], true));
    assert_eq!(found(&[(1, 0), (2, 0), (3, last(3))]), (vec![1, 2, 3], true));
    for left in [&[(2, 0), (3, last(3))][..], &[(1, 0), (3, last(3))], &[(1, 0), (2, 0)], &[(3, last(3))]] {
        let numbers = left.iter().map(|(number, _)| *number).collect();
        assert_eq!(found(left), (numbers, false));
    }
    // What a kill has left counts no more where all of it was made again.
    assert_eq!(found(&[(1, 0), (2, 0), (3, last(1))]), (vec![3], true));
    assert_eq!(found(&[(1, 0), (2, 0), (3, 0), (4, last(2))]), (vec![3, 4], true));
    // Nor does the end of one that has lost its beginning.
    assert_eq!(found(&[(2, last(2)), (3, 0), (4, last(2))]), (vec![3, 4], true));
    assert_eq!(found(&[(3, 0), (4, last(2)), (5, 0)]), (vec![3, 4], true));
}

#[test]
fn the_last_chunk_of_an_earlier_version_has_all_before_it() {
    assert_eq!(found(&[(1, TO_NS)]), (vec![1], true));
    assert_eq!(found(&[(1, 0), (2, 0), (3, TO_NS)]), (vec![1, 2, 3], true));
    assert_eq!(found(&[(1, 0), (2, 0)]), (vec![1, 2], false));
}

#[test]
fn a_piece_that_was_written_again_is_there_once_and_whole() {
    let last = |chunks: usize| last_mark(TO_NS, chunks);
    let whole: &[(u64, u64)] = &[(1, 0), (2, 0), (3, last(3))];
    let one: &[(u64, u64)] = &[(1, last(1))];
    assert_eq!(found_again(&[whole, whole]), (vec![1, 2, 3], true));
    assert_eq!(found_again(&[one, one, one]), (vec![1], true));
    // What a power loss has left of the first attempt.
    for left in [&[(1, 0), (3, last(3))][..], &[(2, 0), (3, last(3))], &[(1, 0), (2, 0)], &[(3, last(3))]] {
        assert_eq!(found_again(&[left, whole]), (vec![1, 2, 3], true), "{left:?}");
        assert_eq!(found_again(&[whole, left]), (vec![1, 2, 3], true), "{left:?}");
    }
    // Rows have come in between.
    assert_eq!(found_again(&[&[(1, 0), (2, 0)], &[(1, 0), (4, 0), (5, last(3))]]), (vec![1, 4, 5], true));
    assert_eq!(found_again(&[&[(1, 0), (2, 0)], &[(1, 0), (2, 0)], &[(2, 0)]]), (vec![1, 2], false));
    // Of an earlier version.
    assert_eq!(found_again(&[&[(1, 0), (2, 0)], &[(1, 0), (2, 0), (3, TO_NS)]]), (vec![1, 2, 3], true));
    let old: &[(u64, u64)] = &[(1, 0), (2, TO_NS)];
    assert_eq!(found_again(&[old, old, &[(1, 0)]]), (vec![1, 2], true));
}

#[test]
fn a_piece_that_is_written_again_after_a_failed_sync_is_whole_all_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = open(dir.path());
    for (number, mark) in [(1, 0), (2, 0), (3, last_mark(TO_NS, 3))] {
        warm.append(LEVEL, &part(number, mark)).unwrap();
    }
    warm.write().unwrap();
    let is_whole = |warm: &Warm| warm.reader().covered(LEVEL, TrackId(1), 1, (FROM_NS, TO_NS), true).len() == 1;
    assert!(is_whole(&warm));
    // Where a file ends in between, and the disk is full then.
    for entry in warm.writers[LEVEL as usize].waiting.clone() {
        let mut moved = entry;
        moved.place.file += 1;
        warm.shared.with(LEVEL, |shelf| shelf.put(&moved, Some(entry.place)));
        assert!(is_whole(&warm), "{entry:?}");
    }
    warm.writers[LEVEL as usize].disk.is_broken = true;
    assert!(matches!(warm.sync(), Err(StoreError::Io { .. })));
    warm.drop_oldest(LEVEL).unwrap().unwrap();
    assert!(is_whole(&warm), "of the second attempt");
}
