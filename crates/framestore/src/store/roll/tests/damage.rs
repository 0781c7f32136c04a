// SPDX-License-Identifier: Apache-2.0
//! Files of rollups that are damaged anywhere: what they lose is answered by another level or a gap, and nothing is
//! wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::pieces::flip;
use super::*;

const HOUR_NS: u64 = 60 * MINUTE_NS;

pub(super) type Files = BTreeMap<PathBuf, Vec<u8>>;

fn is_of(path: &Path, level: Level) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{}-", level.name()))
}

/// All files of the store.
pub(super) fn saved(world: &World) -> Files {
    let store = world.dir.path().join("store");
    let dirs = ["", "warm", "wal", "catalogue"].map(|dir| store.join(dir));
    let entries = dirs.iter().flat_map(|dir| fs::read_dir(dir).unwrap()).map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

pub(super) fn restore(world: &mut World, files: &Files) {
    world.open = None;
    saved(world).keys().filter(|path| !files.contains_key(*path)).for_each(|path| fs::remove_file(path).unwrap());
    files.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
}

/// What there is when all rows have gone and rollups are left.
pub(super) fn without_rows(world: &mut World) -> Files {
    world.lose_rows();
    world.open = None;
    let mut files = saved(world);
    files.retain(|path, _| !path.parent().unwrap().ends_with("wal"));
    restore(world, &files);
    fs::remove_file(world.dir.path().join("ring")).unwrap();
    files
}

/// What reading at a width says: which of all rows it has, each once, and gaps.
fn told(store: &Store, columns: &Columns, width_ns: u64, rows: &Samples) -> (BTreeSet<usize>, Vec<Gap>) {
    let steps: Vec<u64> = (0..rows.len())
        .map(|at| if at == 0 { 0 } else { crate::chunk::increase(rows[at - 1].1[0], rows[at].1[0]) })
        .collect();
    let mut found = BTreeSet::new();
    let to_ns = rows.last().unwrap().0;
    let read = store.read_coarse(columns, width_ns, 0, to_ns, |sample| {
        let last = rows.binary_search_by_key(&sample.time_ns, |(time_ns, _)| *time_ns).expect("what a row says");
        assert_eq!(sample.words, rows[last].1);
        let first = sample.bucket.map_or(last, |bucket| {
            let first = |width_s: u32| {
                let number = |at: usize| rows[at].0 / (u64::from(width_s) * SECOND_NS);
                let first = rows.partition_point(|row| row.0 / (u64::from(width_s) * SECOND_NS) < number(last));
                let is_last = rows.get(last + 1).is_none_or(|_| number(last + 1) > number(last));
                (is_last && steps[first..=last].iter().sum::<u64>() == bucket.increase[0]).then_some(first)
            };
            [60, 10, 1].into_iter().find_map(first).expect("an increase of rows of one bucket")
        });
        (first..=last).for_each(|at| assert!(found.insert(at), "row {at} is told twice at {width_ns}"));
        ControlFlow::Continue(())
    });
    let mut gaps = read.unwrap();
    gaps.extend(store.gaps(columns, 0, to_ns));
    (found, gaps)
}

/// Hours of rows of which the raw ones are gone but for the last.
fn world() -> (World, Columns, Samples) {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    for hour in 0..8 {
        world.fill(track, FROM_NS + hour * HOUR_NS + 10, FROM_NS + (hour + 1) * HOUR_NS, 500_000_000);
        if hour % 3 == 2 {
            world.again();
        }
    }
    let columns = world.columns(0);
    let rows = raw(world.store(), &columns);
    (world, columns, rows)
}

const WIDTHS_NS: [u64; 3] = [SECOND_NS, 10 * SECOND_NS, MINUTE_NS];

/// What a file becomes: a bit flips, or it is cut, at so many of eight parts of it.
fn harm(bytes: &[u8], part: usize, is_cut: bool) -> Vec<u8> {
    let at = (bytes.len() - 1) * part / 8;
    let mut harmed = bytes.to_vec();
    if is_cut {
        // Not where a record ends.
        harmed.truncate(at / 8 * 8 + 3);
    } else {
        harmed[at] ^= 4;
    }
    harmed
}

/// Of each level the first file and the last.
fn rollups(files: &Files) -> Vec<&PathBuf> {
    let of = |level: &Level| {
        let mine: Vec<&PathBuf> = files.keys().filter(|path| is_of(path, *level)).collect();
        let mut some = vec![mine[0], mine[mine.len() - 1]];
        some.dedup();
        some
    };
    ROLLED.iter().flat_map(of).collect()
}

/// Of a file that is harmed everywhere nothing is silently missing, nor wrong. Returns how many gaps that makes.
fn check_harmed(world: &mut World, columns: &Columns, rows: &Samples, files: &Files, path: &PathBuf) -> usize {
    restore(world, files);
    world.again();
    let good = WIDTHS_NS.map(|width_ns| told(world.store(), columns, width_ns, rows));
    assert!(good.iter().all(|(_, gaps)| gaps.is_empty()));
    let mut gaps_told = 0;
    for (part, is_cut) in [(0, false), (1, true), (4, false), (7, true)] {
        restore(world, files);
        fs::write(path, harm(&files[path], part, is_cut)).unwrap();
        // Found when the files are opened, or later; the second time the file has been put right.
        for (step, widths) in [WIDTHS_NS.len(), 1].into_iter().enumerate() {
            world.again();
            for (width_ns, (expected, _)) in WIDTHS_NS.into_iter().zip(&good).take(widths) {
                let (found, gaps) = told(world.store(), columns, width_ns, rows);
                let is_gap = |at: usize| gaps.iter().any(|gap| (gap.from_ns..=gap.to_ns).contains(&rows[at].0));
                assert!(gaps.iter().all(|gap| gap.reason == DAMAGED));
                let silent = expected.iter().find(|at| !found.contains(at) && !is_gap(**at));
                let both = found.iter().find(|at| is_gap(**at));
                let case = format!("{} part {part}, cut {is_cut}, {width_ns} ns, {step}", path.display());
                assert_eq!((silent, both), (None, None), "{case}");
                gaps_told += gaps.len();
            }
        }
    }
    gaps_told
}

#[test]
fn what_a_damaged_rollup_has_lost_is_in_another_level_or_a_gap() {
    let (mut world, columns, rows) = world();
    let files = without_rows(&mut world);
    for path in rollups(&files) {
        check_harmed(&mut world, &columns, &rows, &files, path);
    }
    // Of a level that is alone.
    for level in ROLLED {
        let is_other = |path: &PathBuf| ROLLED.iter().any(|other| *other != level && is_of(path, *other));
        let alone: Files = files.clone().into_iter().filter(|(path, _)| !is_other(path)).collect();
        let mine = rollups(&files).into_iter().filter(|path| is_of(path, level));
        let gaps: usize = mine.map(|path| check_harmed(&mut world, &columns, &rows, &alone, path)).sum();
        assert!(gaps > 0, "{level:?}");
    }
}

#[test]
fn while_there_are_finer_rows_damage_of_rollups_is_no_gap() {
    let (mut world, columns, rows) = world();
    world.open = None;
    let files = saved(&world);
    for (number, path) in rollups(&files).into_iter().enumerate() {
        restore(&mut world, &files);
        fs::write(path, harm(&files[path], 1 + number % 7, number % 2 == 0)).unwrap();
        world.again();
        for width_ns in WIDTHS_NS {
            let (found, gaps) = told(world.store(), &columns, width_ns, &rows);
            assert_eq!((found.len(), gaps), (rows.len(), Vec::new()), "{}", path.display());
        }
    }
}

#[test]
fn a_level_is_made_of_rows_where_the_one_before_it_is_damaged() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.fill(track, FROM_NS + 10, FROM_NS + 45 * MINUTE_NS, 500_000_000);
    world.again();
    let path = world.dir.path().join("store/warm/1s-0000000001.chunks");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, harm(&bytes, 3, false)).unwrap();
    world.fill(track, FROM_NS + 45 * MINUTE_NS + 10, FROM_NS + 80 * MINUTE_NS, 500_000_000);
    assert_eq!(world.chunks(Level::TenSeconds, track).len(), 1);
    let columns = world.columns(0);
    let rows = raw(world.store(), &columns);
    let (found, gaps) = told(world.store(), &columns, 10 * SECOND_NS, &rows);
    assert_eq!((found.len(), gaps), (rows.len(), Vec::new()));
}

#[test]
fn a_file_of_rollups_that_is_gone_is_a_gap() {
    let (mut world, columns, rows) = world();
    let files = without_rows(&mut world);
    // Nothing says that there ever was another level.
    let others = files.keys().filter(|path| is_of(path, Level::TenSeconds) || is_of(path, Level::Minute));
    others.for_each(|path| fs::remove_file(path).unwrap());
    let seconds: Vec<&PathBuf> = files.keys().filter(|path| is_of(path, Level::Second)).collect();
    fs::remove_file(seconds[seconds.len() / 2]).unwrap();
    world.again();
    let (found, gaps) = told(world.store(), &columns, SECOND_NS, &rows);
    let is_gap = |at: usize| gaps.iter().any(|gap| (gap.from_ns..=gap.to_ns).contains(&rows[at].0));
    let lost = (0..rows.len()).filter(|at| !found.contains(at) && is_gap(*at)).count();
    assert!(lost > 1_000, "{lost} rows are lost, and told: {gaps:?}");
}

/// What is lost was written beside what came by a clock that was wrong.
#[test]
fn lost_rows_are_in_a_gap_also_where_a_clock_was_set() {
    const DAY_NS: u64 = 24 * HOUR_NS;
    let right_ns = FROM_NS + 10 * DAY_NS;
    let hours = [0, 1, 2].map(|hours| right_ns + hours * HOUR_NS);
    let behind = |wrong_ns: u64| ([hours[0], wrong_ns, hours[1], hours[2]], 2);
    let before = |wrong_ns: u64| ([hours[0], hours[1], wrong_ns, hours[2]], 1);
    let wrong_ns = [FROM_NS, FROM_NS + 20 * DAY_NS];
    for (times, lost) in wrong_ns.into_iter().flat_map(|wrong_ns| [behind(wrong_ns), before(wrong_ns)]) {
        let mut world = World::new();
        let track = world.track(&description("a", false));
        let mut files = Vec::new();
        for from_ns in times {
            world.append(track, from_ns + 10, from_ns + 30 * MINUTE_NS, 500_000_000);
            world.writer().warm.close(Level::Raw).unwrap();
            files.push(saved(&world).into_keys().filter(|path| is_of(path, Level::Raw)).collect::<Vec<_>>());
        }
        let columns = world.columns(0);
        let all = raw(world.store(), &columns);
        world.open = None;
        files[lost][files[lost - 1].len()..].iter().for_each(|path| fs::remove_file(path).unwrap());
        world.again();
        let left: BTreeSet<u64> = raw(world.store(), &columns).into_iter().map(|(time_ns, _)| time_ns).collect();
        let gaps = world.store().gaps(&columns, 0, u64::MAX);
        let is_lost = |time_ns: &u64| !left.contains(time_ns) && (right_ns..right_ns + DAY_NS).contains(time_ns);
        let lost: Vec<u64> = all.into_iter().map(|(time_ns, _)| time_ns).filter(is_lost).collect();
        let is_told = |time_ns: &u64| gaps.iter().any(|gap| (gap.from_ns..=gap.to_ns).contains(time_ns));
        assert!(lost.len() > 1_000 && lost.iter().all(is_told), "{} rows, {gaps:?}", lost.len());
        let longest = gaps.iter().map(|gap| gap.to_ns - gap.from_ns).max();
        assert!(longest.is_some_and(|longest_ns| longest_ns < 3 * HOUR_NS), "{gaps:?}");
    }
}

#[test]
fn what_a_power_loss_leaves_of_the_last_rollup_is_no_gap_of_tracks_that_had_ended() {
    for with_rows in [false, true] {
        let mut world = World::new();
        let ended = world.track(&description("b", false));
        world.fill(ended, FROM_NS + 10, FROM_NS + HOUR_NS, 500_000_000);
        world.end(ended);
        if !with_rows {
            without_rows(&mut world);
            world.again();
        }
        let track = world.track(&description("a", false));
        world.fill(track, FROM_NS + 10, FROM_NS + 3 * HOUR_NS, 500_000_000);
        let reader = world.writer().warm.reader();
        let places = reader.between(Level::Second, track, 0, u64::MAX).unwrap();
        let (number, words) = places.last().unwrap().chunk().arrival();
        world.open = None;
        let path = world.dir.path().join(format!("store/warm/1s-{number:010}.chunks"));
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..words as usize * 8 + 40]).unwrap();
        world.again();
        let lost = |track: TrackId| lock(&world.store().0.gaps).lost(track, 0, u64::MAX);
        assert_eq!(lost(ended), [], "{with_rows}");
        let at_ns = places.last().unwrap().chunk().from_ns;
        assert!(lost(track).iter().any(|gap| (gap.from_ns..=gap.to_ns).contains(&at_ns)), "{:?}", lost(track));
    }
}

/// The chunk before the lost one, or all that was written then, is of a clock that was ahead; a host was down meanwhile.
#[test]
fn lost_rollups_of_a_host_are_told_also_beside_those_of_a_clock_that_was_ahead() {
    for is_last in [false, true] {
        let mut world = World::new();
        let [other, track] = ["b", "a"].map(|host| world.track(&description(host, false)));
        let live = |world: &mut World, track: TrackId, minutes: Range<u64>| {
            let [from_ns, to_ns] = [minutes.start, minutes.end].map(|minute| FROM_NS + minute * MINUTE_NS);
            world.writer().shown_ns = Some(to_ns);
            world.fill(track, from_ns + 10, to_ns, 500_000_000);
            world.end(track);
        };
        live(&mut world, track, 0..45);
        live(&mut world, other, 600..645);
        // The clock is right again, and what is written is in another file.
        world.writer().warm.close(Level::Second).unwrap();
        live(&mut world, track, if is_last { 45..65 } else { 45..75 });
        let reader = world.writer().warm.reader();
        let places = reader.between(Level::Second, track, FROM_NS + 45 * MINUTE_NS, u64::MAX).unwrap();
        let minutes = |place: &Place| (place.chunk().from_ns - FROM_NS) / MINUTE_NS;
        assert_eq!(places.iter().map(minutes).collect::<Vec<_>>(), if is_last { vec![50] } else { vec![50, 60] });
        let (number, words) = places[0].chunk().arrival();
        let at_ns = places[0].chunk().from_ns;
        if !is_last {
            without_rows(&mut world);
        }
        world.open = None;
        let path = world.dir.path().join(format!("store/warm/1s-{number:010}.chunks"));
        let mut bytes = fs::read(&path).unwrap();
        bytes[words as usize * 8 + 100] ^= 1;
        fs::write(&path, bytes).unwrap();
        world.again();
        let lost = lock(&world.store().0.gaps).lost(track, 0, u64::MAX);
        assert!(lost.iter().any(|gap| (gap.from_ns..=gap.to_ns).contains(&at_ns)), "{is_last}: {lost:?}");
    }
}

#[test]
fn a_gap_that_rolling_up_has_found_outlives_a_kill_as_what_was_made_does() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.append(track, FROM_NS + 10, FROM_NS + 25 * MINUTE_NS, 500_000_000);
    world.writer().warm.close(Level::Raw).unwrap();
    let lost = world.writer().warm.reader().between(Level::Raw, track, 0, u64::MAX).unwrap().remove(0);
    flip(&world, Level::Raw, &lost);
    world.writer().look_through();
    while world.writer().roll_some().unwrap() {}
    assert!(!world.chunks(Level::Second, track).is_empty());
    world.again();
    assert!(!world.chunks(Level::Second, track).is_empty());
    let gaps = world.store().all_gaps(track, 0, u64::MAX);
    assert!(gaps.contains(&gap(track, lost.chunk().from_ns, lost.chunk().to_ns)), "{gaps:?}");
}

/// The rows that were written last are of a clock that was behind; it is right when the store is opened.
#[test]
fn lost_rollups_are_no_gap_of_tracks_that_had_ended_also_after_a_clock_that_was_behind() {
    let mut world = World::new();
    let [ended, track] = ["b", "a"].map(|host| world.track(&description(host, false)));
    world.writer().shown_ns = Some(FROM_NS + HOUR_NS);
    world.fill(ended, FROM_NS + 10, FROM_NS + HOUR_NS, 500_000_000);
    world.end(ended);
    without_rows(&mut world);
    world.again();
    let now_ns = FROM_NS + 3 * HOUR_NS;
    let writer = world.writer();
    (writer.shown_ns, writer.trusted.utc_ns) = (Some(now_ns), now_ns);
    world.fill(track, FROM_NS + 10, now_ns, 500_000_000);
    world.end(track);
    let wrong_ns = 1_000 * HOUR_NS;
    world.writer().shown_ns = Some(wrong_ns + MINUTE_NS);
    for at in 0..120 {
        let words = row(FROM_NS + at * 500_000_000);
        let time_ns = wrong_ns + at * 500_000_000;
        let words = [time_ns, words[1], words[2], time_ns, words[4], words[5]];
        world.appender().append(track, Line::ONLY, time_ns, &words).unwrap();
    }
    world.end(track);
    let reader = world.writer().warm.reader();
    let places = reader.between(Level::Second, track, 0, u64::MAX).unwrap();
    let lost = *places.last().unwrap().chunk();
    let (number, words) = lost.arrival();
    world.open = None;
    let path = world.dir.path().join(format!("store/warm/1s-{number:010}.chunks"));
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..words as usize * 8 + 40]).unwrap();
    world.again();
    let lost_of = |track: TrackId| lock(&world.store().0.gaps).lost(track, 0, u64::MAX);
    assert!(lost_of(track).iter().any(|gap| (gap.from_ns..=gap.to_ns).contains(&lost.from_ns)), "{:?}", lost_of(track));
    assert_eq!(lost_of(ended), []);
}

/// The clock is behind when the store is opened.
#[test]
fn lost_rollups_are_told_also_by_a_clock_that_is_behind() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.fill(track, FROM_NS + 10, FROM_NS + 3 * HOUR_NS, 500_000_000);
    let reader = world.writer().warm.reader();
    let place = reader.between(Level::Second, track, 0, u64::MAX).unwrap().pop().unwrap();
    let (number, words) = place.chunk().arrival();
    let path = world.dir.path().join(format!("store/warm/1s-{number:010}.chunks"));
    let bytes = u64::from(place.chunk().bytes);
    let damaged = warm::Damaged { path, offset: u64::from(words) * 8, bytes, damage: Damage::Wrong("the end") };
    let writer = world.writer();
    (writer.shown_ns, writer.trusted.utc_ns) = (Some(1_000 * HOUR_NS), FROM_NS + 3 * HOUR_NS);
    writer.mark_holes(&[damaged]);
    let lost = lock(&world.store().0.gaps).lost(track, 0, u64::MAX);
    assert!(lost.iter().any(|gap| (gap.from_ns..=gap.to_ns).contains(&place.chunk().from_ns)), "{lost:?}");
}
