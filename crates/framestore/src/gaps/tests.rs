// SPDX-License-Identifier: Apache-2.0
//! Gaps outlive the process, in a file that is no longer than they need.

use std::fs;

use super::*;

fn gap(track: u32, from_ns: u64, reason: &str) -> Gap {
    Gap { track: TrackId(track), of: None, from_ns, to_ns: from_ns + 5, reason: reason.into() }
}

fn all(log: &GapLog, track: u32) -> Vec<Gap> {
    log.look().between(TrackId(track), 0, 0, u64::MAX)
}

#[test]
fn gaps_outlive_the_process_and_what_was_half_written_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, damaged) = GapLog::open(dir.path()).unwrap();
    assert_eq!(damaged, 0);
    let told = [gap(1, 10, "late"), gap(1, 30, "lost"), gap(2, 10, "late"), Gap { of: Some(3), ..gap(2, 50, "x") }];
    told.iter().for_each(|gap| log.push(gap));
    log.write().unwrap();
    log.sync().unwrap();
    drop(log);
    let path = dir.path().join(NAME);
    let mut bytes = fs::read(&path).unwrap();
    let whole = bytes.len();
    bytes.extend_from_within(..30);
    fs::write(&path, &bytes).unwrap();
    let (mut log, damaged) = GapLog::open(dir.path()).unwrap();
    assert_eq!((damaged, all(&log, 1)), (0, told[..2].to_vec()));
    assert_eq!(all(&log, 2), [told[2].clone()], "of another line");
    assert_eq!(log.look().between(TrackId(2), 3, 0, u64::MAX).len(), 2);
    // Told again after a restart, and something new.
    log.push(&told[1]);
    log.push(&gap(1, 70, "late"));
    log.write().unwrap();
    assert_eq!(all(&log, 1).len(), 3);
    assert!(fs::metadata(&path).unwrap().len() > whole as u64);
    drop(log);
    assert_eq!(all(&GapLog::open(dir.path()).unwrap().0, 1).len(), 3);
}

#[test]
fn a_track_has_so_many_gaps_and_they_cover_what_they_were() {
    let mut gaps = Gaps::default();
    for at in 0..3 * MAX_GAPS as u64 {
        assert!(gaps.push(GAP, &gap(1, at * 100, if at % 3 == 0 { "late" } else { "lost" })));
    }
    let left = gaps.between(TrackId(1), 0, 0, u64::MAX);
    assert!(left.len() <= MAX_GAPS);
    for at in 0..3 * MAX_GAPS as u64 {
        assert!(left.iter().any(|gap| gap.from_ns <= at * 100 && gap.to_ns >= at * 100 + 5), "{at}");
    }
}

#[test]
fn the_file_is_written_again_when_most_of_it_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = GapLog::open(dir.path()).unwrap();
    for at in 0..30_000 {
        log.push(&gap(u32::try_from(at % 20).unwrap(), at * 100, "late"));
    }
    log.push_lost(&gap(1, 2_950_000, "damaged"));
    // In any order; what touches is one.
    let left_out = [(2_970_000, 2_979_999), (2_950_000, 2_959_999), (2_960_000, 2_969_999), (10, 20)];
    left_out.iter().for_each(|(from_ns, to_ns)| log.leave_out(&of_level(TrackId(1), 10, *from_ns, *to_ns)));
    [5, 7].into_iter().for_each(|utc_ns| log.note_clock(utc_ns));
    log.write().unwrap();
    let before = log.bytes();
    log.keep(2_900_000, |track| track.0 != 7).unwrap();
    assert!(log.bytes() < before / 10, "{} of {before}", log.bytes());
    log.push(&gap(1, 3_000_000, "lost"));
    log.write().unwrap();
    let told = all(&log, 1);
    drop(log);
    let (log, damaged) = GapLog::open(dir.path()).unwrap();
    assert_eq!((damaged, all(&log, 1)), (0, told));
    assert_eq!(log.clock_ns(), 7);
    assert_eq!(log.look().lost(TrackId(1), 0, u64::MAX), [gap(1, 2_950_000, "damaged")]);
    assert_eq!(log.left_out(10, TrackId(1), 0), [(2_950_000, 2_979_999)]);
    assert!(all(&log, 7).is_empty());
}

#[test]
fn the_file_is_no_longer_than_twice_what_is_needed_also_while_no_file_of_rows_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = GapLog::open(dir.path()).unwrap();
    let mut most = 0;
    for at in 0..100_000u64 {
        // A host that is late for days, and a clock.
        log.push(&gap(1, at * 100, "late"));
        log.note_clock(at);
        if at % 100 == 99 {
            log.write().unwrap();
            most = most.max(log.bytes());
        }
    }
    assert!(most < SMALL_BYTES + (SMALL_BYTES >> 4), "{most}");
    assert_eq!(log.bytes(), fs::metadata(dir.path().join(NAME)).unwrap().len());
    let told = all(&log, 1);
    drop(log);
    let (log, damaged) = GapLog::open(dir.path()).unwrap();
    assert_eq!((damaged, all(&log, 1), log.clock_ns()), (0, told, 99_999));
}

#[test]
fn times_that_are_left_out_are_told_from_a_time_on() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = GapLog::open(dir.path()).unwrap();
    (0..9).for_each(|at| log.leave_out(&of_level(TrackId(1), 10, at * 100, at * 100 + 9)));
    assert_eq!(log.left_out(10, TrackId(1), 610), [(700, 709), (800, 809)]);
    assert_eq!(log.left_out(10, TrackId(1), 709), [(700, 709), (800, 809)]);
    assert_eq!(log.left_out(1, TrackId(1), 0), []);
}
