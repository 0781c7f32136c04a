// SPDX-License-Identifier: Apache-2.0
//! Logs and rings as versions before the last one wrote them, and what nobody has written.

use std::fs;

use super::*;

/// Of each track of the fixture, the last four in hot memory only.
const ROWS: u64 = 604;

fn values(track: u32, number: u64) -> [u64; 3] {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(track);
    [number * 7, if number.is_multiple_of(10) { mixed } else { 3 }, (number as f64 / 8.0).to_bits()]
}

fn time_ns(number: u64) -> u64 {
    1_000_000_000 + number * 10_000_000
}

/// A copy of the fixture, with another version in the first record of each segment.
fn copy(version: u32) -> tempfile::TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-2");
    let to = tempfile::tempdir().unwrap();
    fs::copy(from.join(HOT), to.path().join(HOT)).unwrap();
    for number in numbers(&from.join("log"), EXTENSION).unwrap() {
        let mut bytes = fs::read(numbered(&from.join("log"), number, EXTENSION)).unwrap();
        let mut first = Vec::new();
        FORM.append(SEGMENT, [version, number].map(u32::to_le_bytes).as_flattened(), &mut first);
        bytes[..first.len()].copy_from_slice(&first);
        fs::write(numbered(to.path(), number, EXTENSION), bytes).unwrap();
    }
    to
}

/// Times and values of a track, and what is damaged.
fn rows(old: &Old, id: u32) -> (Vec<(u64, Vec<u64>)>, Vec<Gap>) {
    let mut rows = Vec::new();
    let damaged = old.read((id, id), |track, time_ns, values| {
        assert_eq!(track, id);
        rows.push((time_ns, values.to_vec()));
        Ok(())
    });
    (rows, damaged.unwrap())
}

fn expected(id: u32, numbers: impl Iterator<Item = u64>) -> Vec<(u64, Vec<u64>)> {
    numbers.map(|number| (time_ns(number), values(id, number).to_vec())).collect()
}

fn gap(id: u32, from_ns: u64, to_ns: u64, reason: &str) -> Gap {
    Gap { track: TrackId(id), of: None, from_ns, to_ns, reason: reason.into() }
}

#[test]
fn logs_and_rings_of_earlier_versions_are_read() {
    for version in [1, 2] {
        let dir = copy(version);
        let old = Old::open(dir.path()).unwrap();
        let hosts: Vec<_> = old.tracks().map(|(id, track)| (id, track.description().unwrap().host)).collect();
        assert_eq!(hosts, [(1, "h0".to_owned()), (2, "h1".to_owned())]);
        assert_eq!(old.tracks[&1].gaps, [gap(1, 2_000_000_001, 2_000_000_009, "timeout")]);
        for id in [1, 2] {
            assert_eq!(rows(&old, id), (expected(id, 1..=ROWS), vec![]));
        }
        let mut together = [Vec::new(), Vec::new()];
        let damaged = old.read((1, 2), |id, time_ns, values| {
            together[usize::from(id == 2)].push((time_ns, values.to_vec()));
            Ok(())
        });
        assert_eq!((damaged.unwrap(), together), (vec![], [1, 2].map(|id| expected(id, 1..=ROWS))));
    }
    let dir = copy(VERSION + 1);
    assert!(matches!(Old::open(dir.path()), Err(StoreError::Version { found: 4, known: VERSION, .. })));
}

#[test]
fn what_is_damaged_or_gone_is_a_gap_between_the_rows_on_either_side() {
    let dir = copy(2);
    let path = |number| numbered(dir.path(), number, EXTENSION);
    // Deleted with its segment: nothing is said of it.
    fs::remove_file(path(1)).unwrap();
    let whole = Old::open(dir.path()).unwrap();
    let (first, _) = whole.tracks[&1].first.unwrap();
    assert!(first > 1);
    assert_eq!(rows(&whole, 1), (expected(1, first..=ROWS), vec![]));
    // A tile in the middle of another one, and all of the ring.
    let place = *whole.tracks[&1].tiles.iter().find(|place| place.segment == 3).unwrap();
    let mut bytes = fs::read(path(3)).unwrap();
    let at = usize::try_from(place.offset).unwrap();
    let tile = Tile::parse(&bytes[at + HEADER_BYTES..][..usize::try_from(place.bytes).unwrap()]).unwrap();
    bytes[at + HEADER_BYTES..][..8].fill(0xff);
    fs::write(path(3), &bytes).unwrap();
    fs::remove_file(dir.path().join(HOT)).unwrap();
    let (lost, sealed) = (tile.first..tile.first + tile.times_ns.len() as u64, ROWS - 4);
    let there = (first..=sealed).filter(|number| !lost.contains(number));
    let damaged = gap(1, time_ns(lost.start - 1), time_ns(lost.end), DAMAGED);
    assert_eq!(rows(&Old::open(dir.path()).unwrap(), 1), (expected(1, there), vec![damaged]));
}

#[test]
fn records_that_lie_are_errors() {
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(kind, payload)| {
        let (dir, hot) = (Path::new("").to_owned(), None);
        let mut old = Old { dir, hot, tracks: BTreeMap::new(), batches: Vec::new() };
        let _ = old.take(Place { segment: 1, offset: 0, bytes: 0 }, kind % 7, payload);
        let _ = (Tile::parse(payload), Description::unpack(payload));
        if let Ok(batch) = Batch::parse(payload) {
            let _ = batch.tiles(|_| true);
        }
        for rows in [1, 2, 100] {
            if let Ok(values) = column::take(&mut Input(payload), rows) {
                assert_eq!(values.len(), rows);
            }
        }
    });
    for column in [&[9; 9][..], &[5; 1], &[5, 0x80, 0x80], &[6, 9, 0, 0], &[1; 17], &[3; 10], &[4; 8]] {
        assert!(column::take(&mut Input(column), 2).is_err(), "{column:?}");
    }
    let huge = b"\"a\"\n\xff\xff\xff\xff\x00";
    assert_eq!(Description::unpack(huge), None, "of four gigabytes");
}
