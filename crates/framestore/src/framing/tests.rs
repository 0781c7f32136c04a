// SPDX-License-Identifier: Apache-2.0
//! Files that were cut, flipped and overwritten: what is whole is found, what is not is told.

use std::fs::File;
use std::io::Write as _;

use super::{Damaged, Found, Frame, HEADER_BYTES, POLYNOMIAL, Reader, append, begin, end, files, flip};
use crate::damage::{Damage, StoreError};

/// A directory that no disk holds up: what is durable is not what these tests are about.
pub(crate) fn memory_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Kind and payload of record `number`.
fn record(number: u8) -> (u8, Vec<u8>) {
    let length = [0, 1, 7, 8, 100, 33][usize::from(number) % 6];
    (number, (0..length).map(|at: u8| at.wrapping_mul(31) ^ number).collect())
}

fn written(records: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, payload) in (0..records).map(record) {
        append(kind, &payload, &mut bytes);
    }
    bytes
}

/// Where records begin, and where they all end.
fn offsets(bytes: &[u8]) -> Vec<u64> {
    let mut offsets = vec![0];
    while let Some(header) = bytes[usize::try_from(*offsets.last().unwrap()).unwrap()..].first_chunk() {
        offsets.push(offsets.last().unwrap() + Frame::parse(header).unwrap().record_bytes() as u64);
    }
    offsets
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

type Records = Vec<(u8, Vec<u8>, bool)>;

fn all(bytes: &[u8]) -> (Records, Vec<Damaged>) {
    let (file, mut records, mut damaged) = (file(bytes), Vec::new(), Vec::new());
    let mut reader = Reader::new(&file).unwrap();
    while let Some(found) = reader.next().unwrap() {
        match found {
            Found::Record(found) => records.push((found.kind, found.payload.to_vec(), found.is_mended)),
            Found::Damaged(found) => damaged.push(found),
        }
    }
    (records, damaged)
}

fn is_record(number: u8, found: &(u8, Vec<u8>, bool)) -> bool {
    let (kind, payload) = record(number);
    (found.0, &found.1) == (kind, &payload)
}

#[test]
fn records_come_back() {
    let bytes = written(40);
    assert_eq!(bytes.len() % 8, 0);
    let (records, damaged) = all(&bytes);
    assert_eq!((records.len(), damaged), (40, vec![]));
    assert!((0..40).zip(&records).all(|(number, found)| is_record(number, found) && !found.2));
}

#[test]
fn records_that_are_made_in_place_are_the_same() {
    let (mut made, mut appended) = (Vec::new(), Vec::new());
    let start = begin(&mut made);
    made.extend_from_slice(b"in place");
    end(start, 3, &mut made);
    append(3, b"in place", &mut appended);
    assert_eq!(made, appended);
}

#[test]
fn a_cut_loses_what_lies_after_it() {
    let bytes = written(12);
    let offsets = offsets(&bytes);
    for cut in 0..bytes.len() {
        let (records, damaged) = all(&bytes[..cut]);
        // Of the padding nothing is needed.
        let whole = offsets.windows(2).zip(0..).filter(|(_, number)| {
            let start = usize::try_from(offsets[usize::from(*number)]).unwrap();
            start + HEADER_BYTES + record(*number).1.len() <= cut
        });
        let whole = whole.count();
        assert_eq!(records.len(), whole, "cut at {cut}");
        assert!((0..).zip(&records).all(|(number, found)| is_record(number, found)));
        let is_between = offsets[whole] >= cut as u64;
        let bytes = cut as u64 - offsets[whole].min(cut as u64);
        assert!(damaged.iter().all(|damaged| damaged.is_torn && damaged.bytes == bytes), "cut at {cut}: {damaged:?}");
        assert_eq!(damaged.is_empty(), is_between, "cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_loses_nothing() {
    let bytes = written(12);
    let mut mended = 0;
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let (records, damaged) = all(&flipped);
        assert!(damaged.is_empty() && records.len() == 12, "bit {bit}: {damaged:?}");
        assert!((0..12).zip(&records).all(|(number, found)| is_record(number, found)), "bit {bit}");
        mended += records.iter().filter(|(_, _, is_mended)| *is_mended).count();
    }
    // All but the second sums and the padding.
    let payloads: usize = (0..12).map(|number| record(number).1.len()).sum();
    assert_eq!(mended, 8 * (12 * 20 + payloads));
}

/// More than one bit that the first sum takes for one.
#[test]
fn what_looks_like_a_flipped_bit_is_not_mended() {
    let payload: Vec<u8> = (0..100).collect();
    let mut bytes = Vec::new();
    append(1, &payload, &mut bytes);
    let frame = Frame::parse(bytes.first_chunk().unwrap()).unwrap();
    for at in 0..700 {
        // The polynomial itself changes nothing of the sum, wherever it is added.
        let mut broken = payload.clone();
        let bits = (0..32).filter(|bit| POLYNOMIAL >> bit & 1 == 1).map(|bit| bit + 1);
        bits.chain([0]).for_each(|bit| flip(&mut broken, at + bit));
        assert_eq!(frame.check(&broken), Ok(()), "bit {at}");
        flip(&mut broken, 750);
        let before = broken.clone();
        assert_eq!(frame.check(&broken), Err(Damage::Checksum));
        assert!(!frame.mend(&mut broken) && broken == before, "bit {at}");
    }
}

#[test]
fn damage_loses_its_record_and_is_told() {
    let bytes = written(12);
    let offsets = offsets(&bytes);
    let mut told = 0;
    for at in (0..bytes.len() - 8).step_by(3) {
        let mut broken = bytes.clone();
        broken[at..at + 8].iter_mut().for_each(|byte| *byte = !*byte);
        let (records, damaged) = all(&broken);
        let hit = |number: usize| offsets[number] < at as u64 + 8 && offsets[number + 1] > at as u64;
        let lost: Vec<usize> =
            (0..12).filter(|number| !records.iter().any(|found| usize::from(found.0) == *number)).collect();
        assert!(lost.iter().all(|number| hit(*number)), "at {at}: {lost:?}");
        assert!(records.iter().all(|found| is_record(found.0, found)), "at {at}");
        assert_eq!(lost.is_empty(), damaged.is_empty());
        let bytes: u64 = lost.iter().map(|number| offsets[number + 1] - offsets[*number]).sum();
        assert_eq!(damaged.iter().map(|damaged| damaged.bytes).sum::<u64>(), bytes);
        told += damaged.len();
    }
    assert!(told > 200, "{told}");
}

#[test]
fn long_files_are_read_in_pieces() {
    let long: Vec<u8> = (0..700_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut bytes = Vec::new();
    for number in 0..9u8 {
        append(number, &long[usize::from(number)..], &mut bytes);
        append(100 + number, &[number; 40], &mut bytes);
    }
    let offsets = offsets(&bytes);
    // The header of the third, so that its payload is looked through, and a bit of the fourth's payload.
    let (third, fourth) = (usize::try_from(offsets[2]).unwrap(), usize::try_from(offsets[4]).unwrap());
    bytes[third..third + 4].fill(0);
    bytes[fourth + 300_000] ^= 4;
    let (records, damaged) = all(&bytes);
    assert_eq!(records.iter().map(|found| found.0).collect::<Vec<_>>(), {
        let mut kinds: Vec<u8> = (0..9).flat_map(|number| [number, 100 + number]).collect();
        kinds.remove(2);
        kinds
    });
    assert_eq!(
        damaged,
        [Damaged {
            offset: offsets[2],
            bytes: offsets[3] - offsets[2],
            damage: Damage::Wrong("header"),
            is_torn: false
        }]
    );
    assert_eq!(records.iter().filter(|found| found.2).map(|found| found.0).collect::<Vec<_>>(), [2]);
    let mended = records.iter().find(|found| found.0 == 2).unwrap();
    assert_eq!(mended.1, long[2..]);
}

#[test]
fn whatever_stands_in_a_file_is_read_without_trust() {
    bolero::check!().with_type::<(Vec<u8>, Vec<(u16, u8)>, bool)>().for_each(|(noise, changes, is_behind)| {
        let mut bytes = written(if *is_behind { 5 } else { 0 });
        bytes.extend(noise);
        for (at, value) in changes {
            let count = bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(usize::from(*at) % count) {
                *byte = *value;
            }
        }
        let (records, damaged) = all(&bytes);
        let told: u64 = damaged.iter().map(|damaged| damaged.bytes).sum();
        assert!(told <= bytes.len() as u64 && records.len() * HEADER_BYTES <= bytes.len());
    });
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    let lock = files::Lock::take(&path).unwrap();
    assert!(matches!(files::Lock::take(&path), Err(StoreError::InUse(used)) if used == path));
    drop(lock);
    files::Lock::take(&path).unwrap();
}

#[test]
fn files_are_listed_by_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["0000000010.wal", "0000000002.wal", "2.wal", "x.wal", "0000000003.new", "0000000003.walx"] {
        std::fs::write(dir.path().join(name), b"").unwrap();
    }
    assert_eq!(files::numbers(dir.path(), "wal").unwrap(), [2, 10]);
    let path = files::numbered(dir.path(), 4, "catalogue");
    files::write_whole(&path, b"whole").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    files::remove(&path).unwrap();
    files::remove(&path).unwrap();
}
