// SPDX-License-Identifier: Apache-2.0
//! Large tables: a piece of a rollup is several chunks, of which a kill may leave some and damage lose some.

use super::damage::{restore, saved, without_rows};
use super::*;

const HOUR_NS: u64 = 60 * MINUTE_NS;
const STEP_NS: u64 = 5 * SECOND_NS;

/// A table and its lines.
struct Table {
    track: TrackId,
    lines: Vec<Line>,
}

impl Table {
    fn new(world: &mut World, lines: u64) -> Self {
        let track = world.track(&description("a", true));
        let line = |number: u64| {
            world.appender().line(track, &[pair("disk", &format!("{number}"))], &[(1, "x".into())], FROM_NS).unwrap()
        };
        Self { track, lines: (0..lines).map(line).collect() }
    }

    /// Rows of some of the lines.
    fn append(&self, world: &mut World, lines: Range<usize>, time_ns: u64) {
        let value = (time_ns - FROM_NS) / SECOND_NS;
        for line in &self.lines[lines] {
            let words = [value, (value as f64).to_bits()];
            world.appender().append(self.track, *line, time_ns, &words).unwrap();
        }
        world.writer().try_turn().unwrap();
    }

    /// A piece of 10 s, and so many rows behind its window that it is over and rolled up, by a clock that shows that.
    fn window(&self, world: &mut World, from_ns: u64) {
        (0..120).for_each(|at| self.append(world, 0..self.lines.len(), from_ns + at * STEP_NS));
        (0..60)
            .for_each(|at| self.append(world, 0..self.lines.len(), from_ns + HOUR_NS + 2 * MINUTE_NS + at * SECOND_NS));
        world.writer().shown_ns = Some(from_ns + HOUR_NS + 4 * MINUTE_NS);
        world.settle();
    }

    fn columns(&self, world: &World, line: Line) -> Columns {
        Columns { line, words: vec![0, 1], ..world.columns(0) }
    }
}

/// When the samples of a line are that are read of a time at a width of 10 s, and whether they are of buckets.
fn told(world: &World, columns: &Columns, from_ns: u64, to_ns: u64) -> Vec<(u64, bool)> {
    let mut told = Vec::new();
    let read = world.store().read_coarse(columns, 10 * SECOND_NS, from_ns, to_ns, |sample| {
        told.push((sample.time_ns, sample.bucket.is_some()));
        ControlFlow::Continue(())
    });
    assert_eq!(read.unwrap(), []);
    told
}

/// How many rows each chunk has.
fn rows(chunks: &[(usize, Vec<u8>)]) -> Vec<usize> {
    chunks.iter().map(|(rows, _)| *rows).collect()
}

#[test]
fn a_piece_of_several_chunks_that_was_half_written_is_made_whole() {
    let mut world = World::new();
    let table = Table::new(&mut world, 70);
    let track = table.track;
    table.window(&mut world, FROM_NS);
    let whole = world.chunks(Level::TenSeconds, track);
    assert_eq!(rows(&whole), [4_096, 104]);
    assert_eq!(rows(&whole).iter().sum::<usize>(), 70 * 60);
    assert!(world.chunks(Level::Second, track).is_empty(), "of 5 s there is no level of 1 s");
    let path = world.dir.path().join("store/warm/10s-0000000001.chunks");
    let bytes = fs::read(&path).unwrap();
    for cut in [bytes.len() - 40, bytes.len() / 2] {
        world.open = None;
        // What the last attempt has added is in another file.
        let _ = fs::remove_file(path.with_file_name("10s-0000000002.chunks"));
        fs::write(&path, &bytes[..cut]).unwrap();
        world.again();
        world.settle();
        assert_eq!(world.chunks(Level::TenSeconds, track), whole);
    }
}

/// Cuts the last file of 10 s that has chunks in the middle of the last one, as a kill does that comes while it is written.
fn kill_in_the_middle(world: &mut World, track: TrackId) {
    let reader = world.writer().warm.reader();
    let places = reader.between(Level::TenSeconds, track, 0, u64::MAX).unwrap();
    let last = places.iter().map(|place| *place.chunk()).max_by_key(|chunk| chunk.arrival()).unwrap();
    let (number, words) = last.arrival();
    world.open = None;
    let path = world.dir.path().join(format!("store/warm/10s-{number:010}.chunks"));
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..words as usize * 8 + 40]).unwrap();
    world.again();
}

#[test]
fn a_piece_that_was_half_written_while_marks_are_ahead_is_made_whole() {
    let mut world = World::new();
    let table = Table::new(&mut world, 70);
    let later_ns = FROM_NS + 8_766 * HOUR_NS;
    table.window(&mut world, later_ns);
    // The clock is right again.
    table.window(&mut world, FROM_NS);
    let whole = world.chunks(Level::TenSeconds, table.track);
    assert_eq!(rows(&whole), [4_096, 104, 4_096, 104]);
    kill_in_the_middle(&mut world, table.track);
    let columns = table.columns(&world, table.lines[69]);
    let to_ns = FROM_NS + 10 * MINUTE_NS - 1;
    assert_eq!(told(&world, &columns, FROM_NS, to_ns).len(), 120, "rows, as long as it is not whole");
    world.writer().shown_ns = Some(FROM_NS + 2 * HOUR_NS);
    world.settle();
    assert!(world.chunks(Level::TenSeconds, table.track) == whole, "once");
    assert_eq!(told(&world, &columns, FROM_NS, to_ns).len(), 60);
}

#[test]
fn what_was_half_written_of_a_time_that_comes_again_is_there_once() {
    let mut world = World::new();
    let table = Table::new(&mut world, 70);
    let later_ns = FROM_NS + 6 * HOUR_NS;
    // The clock is ahead, and the controller is killed while it writes that time's piece.
    table.window(&mut world, later_ns);
    kill_in_the_middle(&mut world, table.track);
    assert_eq!(world.chunks(Level::TenSeconds, table.track).len(), 1);
    table.window(&mut world, FROM_NS);
    assert_eq!(world.chunks(Level::TenSeconds, table.track).len(), 3);
    // The time comes, and other rows of it.
    table.window(&mut world, later_ns + 2 * SECOND_NS);
    for _ in 0..2 {
        let rows: Vec<usize> = world.chunks(Level::TenSeconds, table.track).iter().map(|(rows, _)| *rows).collect();
        assert_eq!(rows, [4_096, 104, 420, 4_096, 104]);
        for line in [0, 30, 69] {
            let columns = table.columns(&world, table.lines[line]);
            let all = told(&world, &columns, later_ns, later_ns + 10 * MINUTE_NS - 1);
            let last = |bucket: u64| (later_ns + 2 * SECOND_NS + bucket * 10 * SECOND_NS + STEP_NS, true);
            assert_eq!(all, (0..60).map(last).collect::<Vec<_>>(), "of both, line {line}");
        }
        world.again();
    }
}

/// Flips a bit of the front of a chunk.
pub(super) fn flip(world: &World, level: Level, place: &Place) {
    let (number, words) = place.chunk().arrival();
    let path = world.dir.path().join(format!("store/warm/{}-{number:010}.chunks", level.name()));
    let mut bytes = fs::read(&path).unwrap();
    bytes[words as usize * 8 + HEADER_BYTES + 70] ^= 1;
    fs::write(&path, &bytes).unwrap();
}

#[test]
fn lines_of_a_piece_are_told_once_and_in_order_whatever_of_it_is_damaged() {
    // Lines and buckets of the first ones; the others live at another time. With the first ones one chunk is full, or
    // one of them goes on in the next chunk.
    for (first, times, others) in [(128, 0..32, 32..60), (103, 20..60, 0..12)] {
        let mut world = World::new();
        let table = Table::new(&mut world, first as u64 + 4);
        let of = |bucket: u64| {
            let first = if times.contains(&bucket) { 0..first } else { 0..0 };
            let others = if others.contains(&bucket) { table.lines.len() - 4..table.lines.len() } else { 0..0 };
            [first, others]
        };
        for at in 0..120 {
            for lines in of(at / 2) {
                table.append(&mut world, lines, FROM_NS + at * STEP_NS);
            }
        }
        table.window(&mut world, FROM_NS + 2 * HOUR_NS);
        let reader = world.writer().warm.reader();
        let to_ns = FROM_NS + 10 * MINUTE_NS - 1;
        let places = reader.between(Level::TenSeconds, table.track, FROM_NS, to_ns).unwrap();
        assert_eq!(places.iter().map(|place| place.chunk().rows()).max(), Some(4_096));
        assert_eq!(places.len(), 2);
        for damaged in [None, Some(&places[0]), Some(&places[1])] {
            if let Some(place) = damaged {
                flip(&world, Level::TenSeconds, place);
            }
            for (line, times) in [(0, &times), (first - 1, &times), (first, &others), (first + 3, &others)] {
                let all = told(&world, &table.columns(&world, table.lines[line]), FROM_NS, to_ns);
                let expected: Vec<(u64, bool)> = match damaged {
                    None => times.clone().map(|at| (FROM_NS + (2 * at + 1) * STEP_NS, true)).collect(),
                    Some(_) => (2 * times.start..2 * times.end).map(|at| (FROM_NS + at * STEP_NS, false)).collect(),
                };
                assert_eq!(all, expected, "line {line}, {damaged:?} is damaged");
            }
            if let Some(place) = damaged {
                flip(&world, Level::TenSeconds, place);
            }
        }
    }
}

/// Samples of a line that are read at a width of 10 s, in order and each once, and gaps.
fn told_with_gaps(world: &World, columns: &Columns, to_ns: u64) -> (Vec<u64>, Vec<Gap>) {
    let mut times = Vec::new();
    let read = world.store().read_coarse(columns, 10 * SECOND_NS, FROM_NS, to_ns, |sample| {
        assert!(times.last().is_none_or(|last_ns| *last_ns < sample.time_ns), "{}", sample.time_ns);
        times.push(sample.time_ns);
        ControlFlow::Continue(())
    });
    let mut gaps = read.unwrap();
    gaps.extend(world.store().gaps(columns, FROM_NS, to_ns));
    (times, gaps)
}

#[test]
fn what_is_left_of_a_piece_is_told_and_the_rest_is_a_gap() {
    let mut world = World::new();
    let table = Table::new(&mut world, 140);
    table.window(&mut world, FROM_NS);
    let whole = world.chunks(Level::TenSeconds, table.track);
    assert_eq!(rows(&whole), [4_096, 4_096, 208]);
    let reader = world.writer().warm.reader();
    let places = reader.between(Level::TenSeconds, table.track, 0, u64::MAX).unwrap();
    let to_ns = FROM_NS + 10 * MINUTE_NS - 1;
    world.open = None;
    let with_rows = saved(&world);
    world.again();
    let without_rows = without_rows(&mut world);
    for (has_rows, lost) in [(true, 0), (true, 1), (true, 2), (false, 0), (false, 1), (false, 2)] {
        let files = if has_rows { &with_rows } else { &without_rows };
        restore(&mut world, files);
        let (file, words) = places[lost].chunk().arrival();
        let path = world.dir.path().join(format!("store/warm/10s-{file:010}.chunks"));
        let mut bytes = fs::read(&path).unwrap();
        bytes[words as usize * 8 + HEADER_BYTES + 70] ^= 1;
        // As after a kill: without an index.
        bytes.truncate(end_of(&places));
        fs::write(&path, bytes).unwrap();
        for _ in 0..2 {
            world.again();
            let mut found = 0;
            for line in &table.lines {
                let (times, gaps) = told_with_gaps(&world, &table.columns(&world, *line), to_ns);
                found += times.len();
                if has_rows {
                    assert_eq!((times.len(), gaps), (120, Vec::new()), "rows are asked");
                    continue;
                }
                let is_told = |at: u64| {
                    let last_ns = FROM_NS + (2 * at + 1) * STEP_NS;
                    times.contains(&last_ns) || gaps.iter().any(|gap| (gap.from_ns..=gap.to_ns).contains(&last_ns))
                };
                assert!((0..60).all(is_told), "{lost}: {} and {gaps:?}", times.len());
            }
            let left: usize = (0..3).filter(|number| *number != lost).map(|number| whole[number].0).sum();
            assert_eq!(found, if has_rows { 140 * 120 } else { left }, "{lost}");
        }
        if has_rows {
            world.writer().shown_ns = Some(FROM_NS + 2 * HOUR_NS);
            world.settle();
            assert!(world.chunks(Level::TenSeconds, table.track) == whole, "made again");
        }
    }
}

/// Where the last of these chunks ends in its file, in which all of them are.
fn end_of(places: &[Place]) -> usize {
    let last = places.iter().map(Place::chunk).max_by_key(|chunk| chunk.arrival()).unwrap();
    last.arrival().1 as usize * 8 + (HEADER_BYTES + last.bytes as usize).next_multiple_of(8)
}

#[test]
fn what_a_kill_has_left_of_a_piece_stays_where_its_rows_have_gone() {
    let mut world = World::new();
    let table = Table::new(&mut world, 70);
    world.writer().shown_ns = Some(FROM_NS + 5 * MINUTE_NS);
    (0..60).for_each(|at| table.append(&mut world, 0..70, FROM_NS + at * STEP_NS));
    world.end(table.track);
    world.writer().warm.close(Level::Raw).unwrap();
    (60..120).for_each(|at| table.append(&mut world, 0..70, FROM_NS + at * STEP_NS));
    (0..60).for_each(|at| table.append(&mut world, 0..70, FROM_NS + HOUR_NS + 2 * MINUTE_NS + at * SECOND_NS));
    world.writer().shown_ns = Some(FROM_NS + HOUR_NS + 4 * MINUTE_NS);
    world.settle();
    assert_eq!(rows(&world.chunks(Level::TenSeconds, table.track)), [4_096, 104]);
    kill_in_the_middle(&mut world, table.track);
    // What there was of the first half.
    while world.writer().warm.reader().first_ns(Level::Raw, table.track, 0, false) == Some(FROM_NS) {
        world.writer().warm.drop_oldest(Level::Raw).unwrap().unwrap();
    }
    for _ in 0..2 {
        world.writer().shown_ns = Some(FROM_NS + 2 * HOUR_NS);
        world.settle();
        let (times, _) = told_with_gaps(&world, &table.columns(&world, table.lines[0]), FROM_NS + 10 * MINUTE_NS - 1);
        let half_ns = FROM_NS + 5 * MINUTE_NS;
        assert_eq!(times.iter().filter(|time_ns| **time_ns < half_ns).count(), 30, "buckets: {times:?}");
        assert!(times.iter().filter(|time_ns| **time_ns >= half_ns).count() >= 30, "{times:?}");
        world.again();
    }
}

#[test]
fn damage_before_a_piece_keeps_nobody_from_making_it_whole() {
    let mut world = World::new();
    let table = Table::new(&mut world, 70);
    (0..240).for_each(|at| table.append(&mut world, 0..70, FROM_NS + at * STEP_NS));
    (0..60).for_each(|at| table.append(&mut world, 0..70, FROM_NS + HOUR_NS + 2 * MINUTE_NS + at * SECOND_NS));
    world.writer().shown_ns = Some(FROM_NS + HOUR_NS + 4 * MINUTE_NS);
    world.settle();
    let whole = world.chunks(Level::TenSeconds, table.track);
    assert_eq!(rows(&whole), [4_096, 104, 4_096, 104]);
    world.writer().warm.close(Level::Raw).unwrap();
    kill_in_the_middle(&mut world, table.track);
    assert_eq!(rows(&world.chunks(Level::TenSeconds, table.track)), [4_096, 104, 4_096]);
    let reader = world.writer().warm.reader();
    let mut before = reader.between(Level::Raw, table.track, 0, FROM_NS + 10 * MINUTE_NS - 1).unwrap();
    before.retain(|place| place.chunk().to_ns < FROM_NS + 10 * MINUTE_NS);
    flip(&world, Level::Raw, before.last().unwrap());
    world.writer().shown_ns = Some(FROM_NS + 2 * HOUR_NS);
    world.settle();
    assert!(world.chunks(Level::TenSeconds, table.track) == whole);
}

#[test]
fn the_part_that_another_level_has_is_no_answer_for_what_is_good_of_a_damaged_piece() {
    let mut world = World::new();
    let table = Table::new(&mut world, 420);
    table.window(&mut world, FROM_NS);
    world.writer().shown_ns = Some(FROM_NS + 7 * HOUR_NS);
    world.end(table.track);
    assert_eq!(rows(&world.chunks(Level::Minute, table.track))[..2], [4_096, 104]);
    let reader = world.writer().warm.reader();
    let to_ns = FROM_NS + 10 * MINUTE_NS - 1;
    let minutes = reader.between(Level::Minute, table.track, FROM_NS, to_ns).unwrap();
    without_rows(&mut world);
    let (number, words) = minutes[1].chunk().arrival();
    let path = world.dir.path().join(format!("store/warm/60s-{number:010}.chunks"));
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..words as usize * 8 + 40]).unwrap();
    world.again();
    let reader = world.writer().warm.reader();
    let seconds = reader.between(Level::TenSeconds, table.track, FROM_NS, to_ns).unwrap();
    assert!(seconds.len() > 2);
    flip(&world, Level::TenSeconds, &seconds[0]);
    let (times, gaps) = told_with_gaps(&world, &table.columns(&world, table.lines[419]), to_ns);
    assert_eq!(times.len(), 60, "{times:?}");
    assert!(gaps.iter().all(|gap| gap.reason == DAMAGED) && !gaps.is_empty());
}
