// SPDX-License-Identifier: Apache-2.0
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::fixture::{FROM_NS, Filled, STEP_NS, contents};
use super::*;
use crate::chunk::{Builder, Chunk, Column, Shape};
use crate::cold::{self, SeriesData, Window};
use crate::framing;
use crate::types::{Kind, Line, SECOND_NS, TrackId};
use crate::warm::Level;

/// Chunks of most rows, the others in the log.
const ROWS: u64 = 3_000;

/// With a cold file of an hour before.
fn filled() -> Filled {
    let mut filled = Filled::new(ROWS);
    filled.gap("a", None, FROM_NS, FROM_NS + 5);
    filled.turn();
    let from = FROM_NS / SECOND_NS - 3_600;
    let mut writer = cold::Writer::create(&filled.store_dir(), Window::new(from, from + 3_600).unwrap()).unwrap();
    let store = &filled.open.as_ref().unwrap().0;
    let named = store.series_of("a").into_iter().next().unwrap();
    let series = &named.series[0];
    let labels: Vec<_> = series.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let times_ns: Vec<u64> = (0..500).map(|at| from * SECOND_NS + at * SECOND_NS).collect();
    writer.push(&SeriesData { series, labels: &labels, times_ns: &times_ns, words: &[&times_ns] }).unwrap();
    writer.gap(cold::GapData { instance: "a".into(), region: String::new(), from_ns: 1, to_ns: 2, reason: "x".into() });
    writer.finish().unwrap();
    filled
}

fn verified(dir: &Path) -> Verified {
    verify(dir, |done, all| assert!(done <= all)).unwrap()
}

#[test]
fn who_looks_sees_what_there_is_and_changes_nothing() {
    let filled = filled();
    let dir = filled.store_dir();
    let before = contents(&dir);
    let found = survey(&dir).unwrap();
    let raw = found.levels[Level::Raw as usize].1;
    assert_eq!((found.counts.hosts, found.counts.tracks, found.counts.lines), (2, 3, 3));
    assert_eq!(raw.rows + found.log_only_rows, 3 * ROWS);
    assert!(raw.rows > ROWS && found.log_only_rows > 0 && raw.pieces > 3, "{found:?}");
    assert_eq!(raw.from_ns, Some(FROM_NS - 7), "the part's time");
    assert_eq!(found.times_ns().unwrap().1, FROM_NS + (ROWS - 1) * STEP_NS);
    assert_eq!((found.cold.files, found.cold.rows, found.cold.values), (1, 500, 500));
    assert_eq!(found.bytes(), before.values().map(|bytes| bytes.len() as u64).sum::<u64>());
    assert_eq!((found.hosts.len(), &*found.hosts[0].name, found.hosts[0].tracks), (2, "a", 2));
    // Two parts of two values, and a table of two.
    let values = [4 * ROWS + 2 * ROWS, 4 * ROWS];
    assert_eq!(found.hosts.iter().map(|host| host.amount.values).collect::<Vec<_>>(), values);
    assert_eq!(found.hosts.iter().map(|host| host.amount.rows).sum::<u64>(), 3 * ROWS);
    let shares: u64 = found.hosts.iter().map(|host| host.amount.bytes).sum();
    assert!(shares <= found.bytes() && shares > raw.bytes / 2 + found.cold.bytes, "{shares} of {found:?}");
    let verified = verified(&dir);
    assert!(verified.is_whole() && verified.findings.is_empty() && verified.unread.is_empty(), "{verified:?}");
    let rolled = found.levels[Level::Minute as usize].1;
    // From a quarter past ten to noon, of two tracks: the table has no chunk yet.
    assert_eq!((rolled.pieces, rolled.rows, rolled.values), (2, 2 * 106, 2 * 106 * 4));
    assert_eq!((verified.chunks, verified.groups, verified.unknown_rows), (raw.pieces + rolled.pieces, 1, 0));
    assert_eq!(verified.records, found.log.pieces);
    assert_eq!(verified.rows, raw.rows + rolled.rows + found.log.rows + 500);
    assert_eq!(verified.bytes, found.bytes());
    assert_eq!(contents(&dir), before, "the store was open meanwhile");
}

#[test]
fn a_directory_that_is_no_store_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    assert!(survey(dir.path()).is_err() && verify(dir.path(), |_, _| ()).is_err());
    assert!(contents(dir.path()).is_empty());
}

/// Flips bits and cuts all files: nothing is passed over in silence, and what is told has file and place.
#[test]
fn damage_anywhere_is_found() {
    let mut filled = filled();
    filled.close();
    let dir = filled.store_dir();
    let files = contents(&dir);
    let whole = verified(&dir);
    let counted = |verified: &Verified| (verified.chunks, verified.records, verified.groups, verified.values);
    let mut silent = 0;
    let mut tried = 0;
    for (path, bytes) in files.iter().filter(|(path, bytes)| !bytes.is_empty() && !path.ends_with("lock")) {
        for seed in 0..24u64 {
            let at = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % bytes.len() as u64;
            let at = usize::try_from(at).unwrap();
            let mut damaged = bytes.clone();
            if seed % 4 == 0 {
                damaged.truncate(at);
            } else {
                damaged[at] ^= 1 << (seed % 8);
            }
            fs::write(path, &damaged).unwrap();
            let found = verified(&dir);
            assert!(found.unread.is_empty(), "{:?}", found.unread);
            tried += 1;
            if found.findings.is_empty() {
                // Bytes that nobody reads, and the end of the log, which may as well never have been.
                silent += 1;
                assert!(counted(&found) == counted(&whole) || seed % 4 == 0, "{} at {at}: {found:?}", path.display());
            } else {
                let is_it = |finding: &Finding| finding.path == *path || path.starts_with(dir.join("catalogue"));
                assert!(found.findings.iter().any(is_it), "{} at {at}: {:?}", path.display(), found.findings);
            }
            let is_log = path.starts_with(dir.join("wal")) || path.starts_with(dir.join("catalogue"));
            if is_log && seed % 4 > 0 {
                assert!(found.findings.iter().all(|finding| finding.weight != Weight::Lost), "{:?}", found.findings);
            }
        }
        fs::write(path, bytes).unwrap();
    }
    assert!(silent * 12 < tried, "{silent} of {tried}");
    assert!(verified(&dir).is_whole());
}

#[test]
fn what_a_kill_leaves_of_a_write_is_no_damage_and_is_told() {
    let mut filled = filled();
    filled.close();
    let dir = filled.store_dir();
    let newest = |folder: &str| contents(&dir.join(folder)).into_keys().next_back().unwrap();
    let mut record = Vec::new();
    framing::append(2, &[7; 100], &mut record);
    for path in [newest("wal"), newest("warm"), dir.join("gaps.log")] {
        let bytes = fs::read(&path).unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        file.write_all_at(&record[..50], bytes.len() as u64).unwrap();
        let found = verified(&dir);
        assert!(found.is_whole(), "{found:?}");
        let [finding] = &found.findings[..] else { panic!("{found:?}") };
        let place = (&finding.path, finding.offset, finding.bytes, finding.weight);
        assert_eq!(place, (&path, bytes.len() as u64, 50, Weight::Unfinished));
        // The next process goes on behind it, and it is no damage then either.
        if path.extension().is_some_and(|extension| extension == "chunks") {
            filled.again();
            filled.close();
            let found = verified(&dir);
            assert!(found.is_whole() && found.findings.len() == 1, "{found:?}");
        }
        fs::write(&path, &bytes).unwrap();
    }
    let left = dir.join("cold/20261124T100000Z-20261124T110000Z-0.parquet.tmp");
    fs::write(&left, b"PAR1").unwrap();
    let found = verified(&dir);
    assert!(found.is_whole() && found.findings[0].path == left, "{found:?}");
    let outline = dir.join("warm/raw-0000000001-20261124T100000Z-20261124T110000Z-0.outline.tmp");
    fs::write(&outline, b"").unwrap();
    let found = verified(&dir);
    let found_left: Vec<_> = found.findings.iter().map(|finding| (&finding.path, finding.weight)).collect();
    assert_eq!(found_left, [(&outline, Weight::Unfinished), (&left, Weight::Unfinished)]);
}

#[test]
fn a_segment_or_a_twin_that_is_missing_is_damage() {
    let mut filled = Filled::new(200);
    for _ in 0..3 {
        filled.again();
        filled.fill(10);
    }
    filled.close();
    let dir = filled.store_dir();
    let segments = contents(&dir.join("wal"));
    assert!(segments.len() > 2);
    let (path, bytes) = segments.iter().nth(1).unwrap();
    fs::remove_file(path).unwrap();
    let found = verified(&dir);
    assert!(found.findings.iter().any(|finding| finding.path == *path && finding.weight == Weight::Lost), "{found:?}");
    fs::write(path, bytes).unwrap();
    assert!(verified(&dir).is_whole());
    let twin = contents(&dir.join("catalogue")).into_keys().next_back().unwrap();
    fs::remove_file(&twin).unwrap();
    let found = verified(&dir);
    assert!(matches!(&found.findings[..], [one] if one.path == twin && one.weight == Weight::Mended), "{found:?}");
}

#[test]
fn a_record_that_makes_no_sense_is_told_where_it_stands() {
    let mut filled = Filled::new(50);
    filled.close();
    let dir = filled.store_dir();
    let path = contents(&dir.join("wal")).into_keys().next().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() as u64;
    framing::append(2, &[1; 90], &mut bytes);
    framing::append(77, &[1; 90], &mut bytes);
    fs::write(&path, &bytes).unwrap();
    let found = verified(&dir);
    let places = found.findings.iter().map(|finding| (&finding.path, finding.offset, finding.weight));
    assert_eq!(places.collect::<Vec<_>>(), [(&path, at, Weight::Lost), (&path, at + 120, Weight::Lost)], "{found:?}");
}

#[test]
fn a_file_of_another_version_is_an_error() {
    let mut filled = Filled::new(50);
    filled.close();
    let dir = filled.store_dir();
    let path = contents(&dir.join("wal")).into_keys().next().unwrap();
    let mut bytes = Vec::new();
    framing::append(1, &[99, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &mut bytes);
    fs::write(&path, bytes).unwrap();
    assert!(matches!(verify(&dir, |_, _| ()), Err(crate::damage::StoreError::Version { found: 99, .. })));
}

/// Columns of all kinds, constant ones and others, more than a list has without looking for them.
fn wide_chunk(is_table: bool) -> Vec<u8> {
    let kinds = [Kind::Counter, Kind::Float, Kind::Integer { signed: true }, Kind::Integer { signed: false }];
    let columns: Vec<Column> = (0..100).map(|at| Column::Value(kinds[at % 4])).collect();
    let first = if is_table { None } else { Some(Column::Time) };
    let columns = first.into_iter().chain(columns).collect();
    let mut builder = Builder::new(TrackId(1), Shape { columns, is_table, bucket_s: 0 });
    for at in 1..300u64 {
        let line = if is_table { Line(1 + u32::try_from(at % 7).unwrap()) } else { Line::ONLY };
        let value = |column: u64| match column % 5 {
            0 => 0,
            1 => column.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            2 => at * column,
            3 => ((at % 50) as f64).sqrt().to_bits(),
            _ => at * at * column,
        };
        let time = first.map(|_| at * 10 - 1);
        let words: Vec<u64> = time.into_iter().chain((0..100).map(value)).collect();
        builder.push(line, at * 10, &words);
    }
    builder.finish().unwrap()
}

#[test]
fn a_chunk_is_checked_whatever_its_bytes_are() {
    assert_eq!(Chunk::check(&wide_chunk(true)), Ok(299 * 100));
    let chunk = wide_chunk(false);
    assert_eq!(Chunk::check(&chunk), Ok(299 * 101));
    bolero::check!().with_type::<Vec<(u16, u8)>>().for_each(|changes| {
        let mut bytes = chunk.clone();
        for (at, bits) in changes {
            let at = usize::from(*at) % bytes.len();
            bytes[at] ^= bits;
        }
        if bytes != chunk {
            assert!(Chunk::check(&bytes).is_err());
        }
        let _ = Chunk::check(&bytes[..changes.len() % bytes.len()]);
    });
}
