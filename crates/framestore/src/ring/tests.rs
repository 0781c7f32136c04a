// SPDX-License-Identifier: Apache-2.0
//! Rings against a model of them, and after kills, cuts and flipped bits.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::*;
use crate::damage::StoreError;

const PAGE_BYTES: u64 = 4096;
/// A kind that is no row.
const NOTE: u8 = 7;

/// Where rings are, if the machine has one: elsewhere a rename may wait for a disk.
fn tmpfs() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn opened(path: &Path, bytes: u64) -> (Producer, Consumer, Recovery) {
    opened_after(path, bytes, 0)
}

fn opened_after(path: &Path, bytes: u64, after: u64) -> (Producer, Consumer, Recovery) {
    open(path, bytes, after).unwrap()
}

/// What record number `sequence` holds: checkable without a copy.
fn words_of(sequence: u64) -> Vec<u64> {
    (0..sequence * 7 % 40).map(|at| (sequence << 8 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
}

/// Each third one is no row, and ends within a word.
fn push(producer: &mut Producer) -> Result<u64, Refused> {
    let sequence = producer.sequence() + 1;
    let words = words_of(sequence);
    if sequence.is_multiple_of(3) {
        let bytes = bytemuck::cast_slice(&words);
        return producer.push_bytes(NOTE, &bytes[..bytes.len().saturating_sub(3)]);
    }
    let track = TrackId(u32::try_from(sequence % 1_000).unwrap());
    producer.push(ROW, track, Line(track.0 * 2), sequence * 1_000, &words)
}

/// Panics if it is not as [`push`] made it.
fn check(record: &Record<'_>) -> u64 {
    let sequence = record.sequence;
    let words = words_of(sequence);
    if sequence.is_multiple_of(3) {
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        assert_eq!((record.kind, record.bytes()), (NOTE, &bytes[..bytes.len().saturating_sub(3)]));
    } else {
        let track = TrackId(u32::try_from(sequence % 1_000).unwrap());
        let ids = (record.kind, record.track, record.line, record.time_ns);
        assert_eq!(ids, (ROW, track, Line(track.0 * 2), sequence * 1_000));
        assert_eq!(record.words(), words);
    }
    sequence
}

fn all(consumer: &mut Consumer) -> Vec<u64> {
    std::iter::from_fn(|| consumer.next().map(|record| check(&record))).collect()
}

#[test]
fn records_outlive_their_process_and_a_full_ring_refuses() {
    let dir = tmpfs();
    let path = dir.path().join("ring");
    let (mut producer, mut consumer, recovery) = opened(&path, PAGE_BYTES);
    assert_eq!((recovery, consumer.capacity_bytes(), consumer.used_bytes()), (Recovery::default(), PAGE_BYTES, 0));
    assert!(consumer.next().is_none());
    assert!(matches!(open(&path, PAGE_BYTES, 0), Err(StoreError::InUse(_))));
    assert_eq!(push(&mut producer), Ok(1));
    assert_eq!(producer.push(ROW, TrackId(1), Line(0), 1, &[0; 300]), Err(Refused::TooLarge { bytes: 305 * 8 }));
    let taken = 1 + std::iter::from_fn(|| push(&mut producer).ok()).count() as u64;
    assert_eq!((push(&mut producer), producer.sequence()), (Err(Refused::Full), taken));
    assert_eq!(check(&consumer.next().unwrap()), 1);
    assert_eq!(check(&consumer.next().unwrap()), 2);
    assert_eq!(push(&mut producer), Err(Refused::Full), "it has been read, and is not safe yet");
    let second = consumer.position();
    assert_eq!(second.sequence(), 2);
    assert_eq!(all(&mut consumer), (3..=taken).collect::<Vec<_>>());
    consumer.release(second);
    let used = consumer.used_bytes();
    drop((producer, consumer));

    let (mut producer, mut consumer, recovery) = opened(&path, PAGE_BYTES);
    assert_eq!(recovery, Recovery { records: taken - 2, ..Recovery::default() });
    assert_eq!(consumer.used_bytes(), used);
    assert_eq!(all(&mut consumer), (3..=taken).collect::<Vec<_>>());
    let last = consumer.position();
    consumer.release(last);
    assert_eq!((push(&mut producer), consumer.used_bytes() > 0), (Ok(taken + 1), true));
    assert_eq!((all(&mut consumer), consumer.lost_bytes()), (vec![taken + 1], 0));
    let last = consumer.position();
    consumer.release(last);
    drop((producer, consumer));

    // Numbers go on, also behind what is known from elsewhere.
    let (mut producer, consumer, recovery) = opened_after(&path, PAGE_BYTES, taken + 50);
    assert_eq!((recovery.records, push(&mut producer)), (0, Ok(taken + 51)));
    drop((producer, consumer));
    let (producer, mut consumer, _) = opened(&path, PAGE_BYTES);
    assert_eq!((all(&mut consumer), producer.sequence()), (vec![taken + 51], taken + 51));
    fs::remove_file(&path).unwrap();
    let (mut producer, ..) = opened_after(&path, PAGE_BYTES, 9);
    assert_eq!(push(&mut producer), Ok(10), "the memory was lost");
}

/// Whenever a turn takes four times as long as others, there is room for what comes meanwhile.
#[test]
fn a_slow_turn_of_the_consumer_has_no_record_refused() {
    const TURN: usize = 256;
    let dir = tmpfs();
    let words = vec![1u64; 1_024];
    for slow in 0..40 {
        let (mut producer, mut consumer, _) = opened(&dir.path().join("ring"), 64 << 20);
        for turn in 0..=slow {
            let turns = if turn == slow { 4 } else { 1 };
            for record in 0..turns * TURN {
                let pushed = producer.push(ROW, TrackId(1), Line::ONLY, 1, &words);
                assert!(pushed.is_ok(), "turn {turn}, record {record}: {} bytes wait", producer.used_bytes());
            }
            let waiting = (turns * TURN * (words.len() + HEADER_WORDS) * 8) as u64;
            assert_eq!(producer.used_bytes(), waiting, "what was skipped is not used");
            while consumer.next().is_some() {}
            consumer.release(consumer.position());
        }
        drop((producer, consumer));
        fs::remove_file(dir.path().join("ring")).unwrap();
    }
}

#[test]
#[should_panic(expected = "of another ring")]
fn only_what_was_read_is_released() {
    let dir = tmpfs();
    let (mut producer, mut consumer, _) = opened(&dir.path().join("a"), PAGE_BYTES);
    let (_, mut other, _) = opened(&dir.path().join("b"), PAGE_BYTES);
    push(&mut producer).unwrap();
    all(&mut consumer);
    other.release(consumer.position());
}

#[test]
fn a_ring_is_what_a_queue_is() {
    bolero::check!().with_type::<Vec<(u8, u8)>>().for_each(|steps| {
        let dir = tmpfs();
        let path = dir.path().join("ring");
        let mut bytes = PAGE_BYTES;
        let (mut producer, mut consumer, _) = opened(&path, bytes);
        // What is not released, and how many of it have been read.
        let (mut queue, mut read) = (VecDeque::new(), 0);
        for (step, count) in steps {
            match step % 8 {
                0..3 => queue.extend((0..*count % 40).map_while(|_| push(&mut producer).ok())),
                3..5 => {
                    for _ in 0..*count % 40 {
                        let record = consumer.next().map(|record| check(&record));
                        assert_eq!(record, queue.get(read).copied());
                        read += usize::from(record.is_some());
                    }
                }
                5..7 => {
                    consumer.release(consumer.position());
                    queue.drain(..std::mem::take(&mut read));
                }
                _ => {
                    drop((producer, consumer));
                    bytes = PAGE_BYTES * (1 + u64::from(*count % 3));
                    let recovery;
                    (producer, consumer, recovery) = opened(&path, bytes);
                    assert_eq!(recovery, Recovery { records: queue.len() as u64, ..Recovery::default() });
                    assert!(consumer.capacity_bytes() >= bytes);
                    read = 0;
                }
            }
            assert!(queue.back().is_none_or(|last| *last == producer.sequence()));
        }
        assert_eq!(all(&mut consumer), queue.into_iter().skip(read).collect::<Vec<_>>());
        assert_eq!(consumer.lost_bytes(), 0);
    });
}

#[test]
fn one_thread_appends_while_another_reads() {
    const RECORDS: u64 = 50_000;
    let dir = tmpfs();
    let (mut producer, mut consumer, _) = opened(&dir.path().join("ring"), PAGE_BYTES);
    let writer = std::thread::spawn(move || {
        while producer.sequence() < RECORDS {
            if push(&mut producer).is_err() {
                std::thread::yield_now();
            }
        }
    });
    let mut expected = 1;
    while expected <= RECORDS {
        while let Some(record) = consumer.next() {
            assert_eq!(check(&record), expected);
            expected += 1;
        }
        consumer.release(consumer.position());
    }
    writer.join().unwrap();
}

/// A ring of a page's size that has gone round, with records that are not released; their numbers.
fn left_behind(path: &Path) -> Vec<u64> {
    let (mut producer, mut consumer, _) = opened(path, PAGE_BYTES);
    for _ in 0..60 {
        push(&mut producer).unwrap();
        all(&mut consumer);
        consumer.release(consumer.position());
    }
    (0..12).map(|_| push(&mut producer).unwrap()).collect()
}

#[test]
fn a_flipped_bit_costs_its_record_only() {
    let dir = tmpfs();
    let path = dir.path().join("ring");
    let pending = left_behind(&path);
    let whole = fs::read(&path).unwrap();
    let mut damaged = 0;
    // Of the page, words that are used.
    for at in (0..40 * 8).chain(4096..whole.len()) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at * 5 % 8);
        fs::write(&path, bytes).unwrap();
        let (mut producer, mut consumer, recovery) = opened(&path, PAGE_BYTES);
        let mut left = all(&mut consumer);
        assert_eq!(recovery.records, left.len() as u64);
        assert!(left.is_sorted());
        left.retain(|sequence| *sequence >= pending[0]);
        let missing = pending.iter().filter(|sequence| !left.contains(sequence)).count();
        assert!(missing <= usize::from(at >= 4096), "{missing} by byte {at}: {left:?} {recovery:?}");
        assert!(missing == 0 || (recovery.lost, recovery.is_damaged) == (1, true), "byte {at}: {recovery:?}");
        damaged += missing;
        // It goes on, and what it has is there the next time.
        consumer.release(consumer.position());
        push(&mut producer).unwrap();
        drop((producer, consumer));
        let recovery = opened(&path, PAGE_BYTES).2;
        assert_eq!(recovery, Recovery { records: 1, ..Recovery::default() }, "after byte {at}");
    }
    let bytes: usize = pending.iter().map(|sequence| (HEADER_WORDS + words_of(*sequence).len()) * 8).sum();
    assert_eq!(damaged, bytes, "every byte of a record counts");
}

#[test]
fn a_file_that_was_cut_or_is_something_else_gives_what_is_in_it() {
    let dir = tmpfs();
    let path = dir.path().join("ring");
    let pending = left_behind(&path);
    let whole = fs::read(&path).unwrap();
    for end in (0..whole.len()).step_by(56) {
        fs::write(&path, &whole[..end]).unwrap();
        let (_, mut consumer, recovery) = opened(&path, PAGE_BYTES);
        assert_eq!(recovery.is_damaged, end > 0);
        let left = all(&mut consumer);
        assert_eq!(left.len() as u64, recovery.records);
        assert!(left.is_sorted() && left.iter().all(|sequence| sequence <= pending.last().unwrap()));
    }
    for junk in [0, 0xff, b'O'] {
        fs::write(&path, vec![junk; 100_000]).unwrap();
        let (mut producer, mut consumer, recovery) = opened(&path, PAGE_BYTES);
        assert_eq!(recovery, Recovery { is_damaged: true, ..Recovery::default() });
        assert_eq!((push(&mut producer), all(&mut consumer)), (Ok(1), vec![1]));
    }
}

#[test]
fn a_record_that_was_whole_before_it_was_published_is_taken_and_half_a_one_is_not() {
    let dir = tmpfs();
    let path = dir.path().join("ring");
    let pending = left_behind(&path);
    let last = words_of(*pending.last().unwrap()).len() + HEADER_WORDS;
    let file = fs::File::options().read(true).write(true).open(&path).unwrap();
    let word_at = |at: u64| {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, at).unwrap();
        u64::from_le_bytes(word)
    };
    let before = word_at(PUBLISHED as u64 * 8) - last as u64;
    file.write_all_at(&before.to_le_bytes(), PUBLISHED as u64 * 8).unwrap();
    assert_eq!(all(&mut opened(&path, PAGE_BYTES).1), pending);
    // The same once more, with a word of it not written.
    file.write_all_at(&before.to_le_bytes(), PUBLISHED as u64 * 8).unwrap();
    let inside = PAGE_BYTES + (before + HEADER_WORDS as u64 + 1) % 512 * 8;
    file.write_all_at(&0u64.to_le_bytes(), inside).unwrap();
    let (mut producer, mut consumer, recovery) = opened(&path, PAGE_BYTES);
    assert_eq!(all(&mut consumer), pending[..11]);
    assert_eq!(recovery, Recovery { records: 11, ..Recovery::default() });
    assert_eq!(push(&mut producer), Ok(pending[11]), "its number is free again");
    assert_eq!(all(&mut consumer), pending[11..]);
}

#[test]
fn half_a_release_is_none() {
    let dir = tmpfs();
    let path = dir.path().join("ring");
    let pending = left_behind(&path);
    let whole = fs::read(&path).unwrap();
    for slot in SLOTS {
        // All is released by its first word; a kill has left the others as they were.
        let mut bytes = whole.clone();
        bytes.copy_within(PUBLISHED * 8..PUBLISHED * 8 + 8, slot * 8);
        fs::write(&path, bytes).unwrap();
        let (_, mut consumer, recovery) = opened(&path, PAGE_BYTES);
        let left = all(&mut consumer);
        assert!(left.ends_with(&pending) && left.len() <= pending.len() + 1, "{left:?}");
        assert!(!recovery.is_damaged);
    }
}

/// Where the child of the test below finds its ring; set for it alone.
const CHILD: &str = "ONLOOKER_RING_CHILD";

/// Appends, reads and releases until it is killed, and says how far it is: the last record that was taken, the last
/// that was released.
#[test]
fn a_child_that_is_killed() {
    let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let (mut producer, mut consumer, _) = opened(&path, 4 * PAGE_BYTES);
    let reader = std::thread::spawn(move || {
        loop {
            for _ in 0..7 {
                consumer.next().map(|record| check(&record));
            }
            if consumer.used_bytes() > 0 {
                say([0, consumer.position().sequence()]);
                consumer.release(consumer.position());
            }
        }
    });
    while !reader.is_finished() {
        if let Ok(sequence) = push(&mut producer) {
            say([1, sequence]);
        }
    }
}

/// In one write, so that the two threads do not mix.
fn say(what: [u64; 2]) {
    std::io::stderr().write_all(bytemuck::cast_slice(&what)).unwrap();
}

#[test]
fn a_kill_loses_nothing_that_was_taken() {
    let dir = tmpfs();
    let path = dir.path().join("ring");
    let (mut before, mut released) = (0, 0);
    for round in 0..30u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ring::tests::a_child_that_is_killed", "--nocapture", "--test-threads=1"])
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = child.stderr.take().unwrap();
        let mut taken = before;
        let mut heard = |words: [u64; 2]| match words {
            [0, sequence] => released = sequence,
            [1, sequence] => taken = sequence,
            other => panic!("{other:x?}"),
        };
        // It is killed somewhere behind so many words, and what it has said until then is read.
        let mut words = [0; 2];
        for _ in 0..200 + round * 37 {
            said.read_exact(bytemuck::cast_slice_mut(&mut words)).unwrap();
            heard(words);
        }
        child.kill().unwrap();
        while said.read_exact(bytemuck::cast_slice_mut(&mut words)).is_ok() {
            heard(words);
        }
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        let (producer, mut consumer, recovery) = opened(&path, 4 * PAGE_BYTES);
        let left = all(&mut consumer);
        assert_eq!((recovery.records, recovery.is_damaged), (left.len() as u64, false), "round {round}");
        assert!(producer.sequence() >= taken && taken > before, "round {round}: {taken} were taken");
        assert!(left.windows(2).all(|pair| pair[0] + 1 == pair[1]), "round {round}");
        let (first, last) = (left.first().copied(), left.last().copied());
        assert!(first.is_none_or(|first| first <= released + 1), "round {round}: {first:?} after {released}");
        assert!(last.unwrap_or(released) >= taken, "round {round}: {last:?} of {taken}");
        before = producer.sequence();
    }
}
