// SPDX-License-Identifier: Apache-2.0
//! Large tables: a piece of a rollup is several chunks, of which a kill may leave some and damage lose some.

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

#[test]
fn a_piece_of_several_chunks_that_was_half_written_is_made_whole() {
    let mut world = World::new();
    let table = Table::new(&mut world, 70);
    let track = table.track;
    table.window(&mut world, FROM_NS);
    let rows =
        |world: &mut World| world.chunks(Level::TenSeconds, track).iter().map(|(rows, _)| *rows).collect::<Vec<_>>();
    let whole = world.chunks(Level::TenSeconds, track);
    assert_eq!(rows(&mut world), [4_096, 104]);
    assert_eq!(rows(&mut world).iter().sum::<usize>(), 70 * 60);
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
    assert_eq!(whole.iter().map(|(rows, _)| *rows).collect::<Vec<_>>(), [4_096, 104, 4_096, 104]);
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

/// Flips a bit of the front of a chunk of 10 s.
fn flip(world: &World, place: &Place) {
    let (number, words) = place.chunk().arrival();
    let path = world.dir.path().join(format!("store/warm/10s-{number:010}.chunks"));
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
                flip(&world, place);
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
                flip(&world, place);
            }
        }
    }
}
