// SPDX-License-Identifier: Apache-2.0
//! Rollups have each sample once, whenever the writer is killed, and never say what rows did not.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;

use onlooker_region::histogram::Shape;
use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};

use super::*;
use crate::chunk::MAX_COLUMNS;
use crate::client::Description;
use crate::events::About;
use crate::fixture::pair;
use crate::layout::Part;
use crate::store::tests::{Samples, World, description};
use crate::store::{Columns, DAMAGED, Store, figure};
use crate::types::{Gap, Line};

/// A whole number of windows of each level.
const FROM_NS: u64 = 78_704 * 21_600 * SECOND_NS;
const MINUTE_NS: u64 = 60 * SECOND_NS;
const ROLLED: [Level; 3] = [Level::Second, Level::TenSeconds, Level::Minute];

/// A row of two parts: a counter that begins again now and then, and a float; the second part is new now and then.
fn row(time_ns: u64) -> [u64; 6] {
    let at = (time_ns - FROM_NS) / 500_000_000;
    let seldom = at / 3 * 3;
    let load = ((at * 37 % 101) as f64 / 7.0).to_bits();
    [time_ns - 7, at % 5_000 * 3, load, FROM_NS + seldom * 500_000_000 - 5, seldom % 900, 1.5f64.to_bits()]
}

impl World {
    fn track(&mut self, of: &Description) -> TrackId {
        self.appender().track(of, FROM_NS).unwrap()
    }

    /// Rows from a time to another, as far as they become chunks.
    fn append(&mut self, track: TrackId, from_ns: u64, to_ns: u64, step_ns: u64) {
        let times = (from_ns..to_ns).step_by(usize::try_from(step_ns).unwrap());
        for (number, time_ns) in times.enumerate() {
            self.appender().append(track, Line::ONLY, time_ns, &row(time_ns)).unwrap();
            if number % 512 == 511 {
                self.writer().try_turn().unwrap();
            }
        }
        for _ in 0..4 {
            self.writer().try_turn().unwrap();
        }
    }

    /// The same, and what is due is rolled up.
    fn fill(&mut self, track: TrackId, from_ns: u64, to_ns: u64, step_ns: u64) {
        self.append(track, from_ns, to_ns, step_ns);
        self.settle();
    }

    /// From now on rows of a level are kept for a nanosecond, by a clock that is right.
    fn age(&mut self, level: Level) {
        let writer = self.writer();
        (writer.config.keep_ns[level as usize], writer.trusted.utc_ns) = (1, u64::MAX);
    }

    /// Turns until nothing is left to do.
    fn settle(&mut self) {
        self.writer().settle();
    }

    fn writer(&mut self) -> &mut Writer {
        &mut self.open.as_mut().unwrap().1
    }

    /// Heads of tracks that have ended become chunks.
    fn end(&mut self, track: TrackId) {
        self.appender().end(track);
        for _ in 0..3 {
            self.writer().looked_ns = 0;
            self.turn();
        }
        self.settle();
    }

    /// Chunks of rows go.
    fn lose_rows(&mut self) {
        let writer = self.writer();
        writer.warm.close(Level::Raw).unwrap();
        writer.warm.sync().unwrap();
        while writer.warm.drop_oldest(Level::Raw).unwrap().is_some() {}
    }

    /// The words of one of the parts.
    fn columns(&self, part: u32) -> Columns {
        let named = self.store().series_of("a").into_iter().find(|named| named.columns.part == part).unwrap();
        let at = named.series[0].at;
        Columns { words: vec![at, at + 1], ..named.columns }
    }

    /// Rows and bytes of each chunk of a level that counts, as they were written.
    fn chunks(&mut self, level: Level, track: TrackId) -> Vec<(usize, Vec<u8>)> {
        let reader = self.writer().warm.reader();
        let pieces = || reader.pieces(level, track, 0, u64::MAX).unwrap().into_iter().flat_map(|piece| piece.chunks);
        let places = match level {
            Level::Raw => reader.between(level, track, 0, u64::MAX).unwrap(),
            _ => pieces().collect(),
        };
        let mut bytes = Vec::new();
        let mut read = |place: &Place| {
            let rows = place.read(&mut bytes).unwrap().head().rows;
            (rows, bytes.clone())
        };
        places.iter().map(&mut read).collect()
    }
}

mod clock;
mod damage;
mod floats;
mod left;
mod pieces;
mod words;

fn raw(store: &Store, columns: &Columns) -> Samples {
    let mut samples = Samples::new();
    let gaps = store.read(columns, 0, u64::MAX, |time_ns, words| {
        samples.push((time_ns, words.to_vec()));
        ControlFlow::Continue(())
    });
    assert_eq!(gaps.unwrap(), []);
    samples
}

/// What is read coarsely is what rows say, all of it and once. Returns how many buckets there were, and rows.
fn check(store: &Store, columns: &Columns, width_ns: u64, rows: &Samples) -> (usize, usize) {
    let (mut at, mut buckets, mut single) = (0, 0, 0);
    let gaps = store.read_coarse(columns, width_ns, 0, u64::MAX, |sample| {
        let mine = rows[at..].iter().take_while(|(time_ns, _)| *time_ns <= sample.time_ns).count();
        let (before, mine) = (at.checked_sub(1).map(|at| &rows[at].1), &rows[at..at + mine]);
        let (time_ns, words) = mine.last().expect("nothing that rows do not say");
        assert_eq!((sample.time_ns, sample.words), (*time_ns, &words[..]));
        at += mine.len();
        let Some(bucket) = sample.bucket else {
            single += 1;
            assert_eq!(mine.len(), 1);
            return ControlFlow::Continue(());
        };
        buckets += 1;
        assert_eq!(mine[0].0 / width_ns, time_ns / width_ns, "in one bucket");
        let counter =
            |number: usize| if number == 0 { before.map(|words| words[0]) } else { Some(mine[number - 1].1[0]) };
        let steps =
            (0..mine.len()).filter_map(|number| Some(crate::chunk::increase(counter(number)?, mine[number].1[0])));
        assert_eq!(bucket.increase[0], steps.sum::<u64>(), "{time_ns}");
        assert_eq!((bucket.least[0], bucket.largest[0]), (words[0], words[0]));
        assert_eq!(bucket.before[0], words[0].saturating_sub(bucket.increase[0]));
        let floats = || mine.iter().map(|(_, words)| f64::from_bits(words[1]));
        let ends = [floats().reduce(f64::min), floats().reduce(f64::max)].map(|end| end.unwrap().to_bits());
        assert_eq!([bucket.least[1], bucket.largest[1]], ends);
        assert_eq!((bucket.increase[1], bucket.before[1]), (0, words[1]));
        ControlFlow::Continue(())
    });
    assert_eq!(gaps.unwrap(), []);
    assert_eq!(at, rows.len(), "all rows");
    (buckets, single)
}

#[test]
fn each_level_says_what_rows_say_and_says_it_once_after_kills_as_well() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    let hours = |hours: u64| FROM_NS + hours * 3_600 * SECOND_NS;
    for hour in 0..7 {
        world.fill(track, hours(hour), hours(hour + 1), 500_000_000);
        world.again();
    }
    world.settle();
    for part in [0, 1] {
        let columns = world.columns(part);
        let rows = raw(world.store(), &columns);
        let (buckets, single) = check(world.store(), &columns, MINUTE_NS, &rows);
        // Six hours of minutes, and then what has no window that is over yet.
        assert!(buckets >= 360 && single < 2 * 1_500, "{buckets} and {single}");
        let (buckets, single) = check(world.store(), &columns, 10 * SECOND_NS, &rows);
        assert!(buckets >= 6 * 360 && single < 2 * 1_500, "{buckets} and {single}");
        check(world.store(), &columns, SECOND_NS, &rows);
        assert_eq!(check(world.store(), &columns, SECOND_NS - 1, &rows).0, 0);
    }
    // The last rows become chunks some time or other: now, so that nothing is due later.
    world.end(track);
    let made = ROLLED.map(|level| world.chunks(level, track));
    assert_eq!(made[2].iter().map(|(rows, _)| *rows).collect::<Vec<_>>(), [360, 60]);
    assert!(made[1].iter().all(|(rows, _)| *rows == 360) && made[0].iter().all(|(rows, _)| *rows == 600));
    world.again();
    world.settle();
    assert_eq!(ROLLED.map(|level| world.chunks(level, track)), made, "nothing more");
    // From the beginning again: the same bytes.
    world.open = None;
    for entry in fs::read_dir(world.dir.path().join("store/warm")).unwrap() {
        let path = entry.unwrap().path();
        if !path.file_name().unwrap().to_str().unwrap().starts_with("raw") {
            fs::remove_file(path).unwrap();
        }
    }
    world.again();
    world.settle();
    assert!(ROLLED.map(|level| world.chunks(level, track)) == made, "the same bytes");
}

#[test]
fn a_kill_between_two_steps_costs_nothing() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.fill(track, FROM_NS, FROM_NS + 9 * MINUTE_NS, 500_000_000);
    let mut kept = Vec::new();
    for step in 0..13 {
        world.append(track, FROM_NS + (9 + 10 * step) * MINUTE_NS, FROM_NS + (19 + 10 * step) * MINUTE_NS, 500_000_000);
        let writer = world.writer();
        writer.look_through();
        if let Some(mut job) = writer.due(Level::Second, track) {
            for _ in 0..step.min(10) {
                writer.roll_piece(&mut job).unwrap();
            }
            if job.at_ns == job.end_ns {
                // In memory, not written.
                writer.finish(job).unwrap();
            }
        }
        world.again();
        world.settle();
        let chunks = world.chunks(Level::Second, track);
        assert_eq!(chunks[..kept.len()], kept[..], "{step}");
        kept = chunks;
    }
    assert!(kept.len() >= 11, "{}", kept.len());
    let columns = world.columns(0);
    check(world.store(), &columns, SECOND_NS, &raw(world.store(), &columns));
}

#[test]
fn the_oldest_window_is_rolled_up_first_and_told_until_it_is() {
    let mut world = World::new();
    let tracks = ["a", "b"].map(|host| world.track(&description(host, false)));
    let window = |number: u64| FROM_NS + number * 10 * MINUTE_NS;
    // The second one begins earlier.
    world.append(tracks[0], window(2) + 10, window(5), 500_000_000);
    world.append(tracks[1], window(1) + 10, window(4), 500_000_000);
    let due_ns = |world: &mut World| {
        world.writer().tell_figures();
        figure(&world.store().0.figures.due_ns[Level::Second as usize])
    };
    assert_eq!((due_ns(&mut world), world.store().rollup_lag_ns(Level::Second)), (None, 0), "nobody has looked");
    world.writer().look_through();
    let mut told = Vec::new();
    while world.writer().roll_some().unwrap() {
        // While tracks are looked at the oldest is not known yet.
        if world.writer().rolling.job.is_some() {
            told.extend(due_ns(&mut world));
            assert!(world.store().rollup_lag_ns(Level::Second) > 0);
        }
    }
    told.dedup();
    // A part of the first row was acquired before it.
    let ends: Vec<u64> = (1..=told.len() as u64).map(window).collect();
    assert_eq!(told, ends, "in the order of time");
    assert!(told.len() >= 3, "{told:?}");
    assert_eq!((due_ns(&mut world), world.store().rollup_lag_ns(Level::Second)), (None, 0));
}

#[test]
fn a_clock_that_was_set_back_makes_no_wrong_value() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.fill(track, FROM_NS, FROM_NS + 35 * MINUTE_NS, 500_000_000);
    let done = world.chunks(Level::Second, track);
    assert!(done.len() >= 2);
    world.fill(track, FROM_NS + 15 * MINUTE_NS + 3, FROM_NS + 75 * MINUTE_NS, 500_000_000);
    assert_eq!(world.chunks(Level::Second, track)[..done.len()], done[..]);
    let columns = world.columns(0);
    let rows = raw(world.store(), &columns);
    let (mut last_ns, mut buckets) = (0, 0);
    let read = world.store().read_coarse(&columns, SECOND_NS, 0, u64::MAX, |sample| {
        let is_said = |(time_ns, words): &(u64, Vec<u64>)| (*time_ns, &words[..]) == (sample.time_ns, sample.words);
        assert!(rows.iter().any(is_said), "{}", sample.time_ns);
        if let Some(bucket) = sample.bucket {
            assert!(sample.time_ns > last_ns && bucket.least[1] <= sample.words[1]);
            last_ns = sample.time_ns;
            buckets += 1;
        }
        ControlFlow::Continue(())
    });
    assert_eq!(read.unwrap(), []);
    assert!(buckets >= 60 * 60 - 1, "an hour of seconds, each once: {buckets}");
}

#[test]
fn what_of_the_rows_is_damaged_is_a_gap() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.append(track, FROM_NS, FROM_NS + 8 * MINUTE_NS, 500_000_000);
    let lost = *world.writer().warm.reader().between(Level::Raw, track, 0, u64::MAX).unwrap()[0].chunk();
    let path = world.dir.path().join("store/warm/raw-0000000001.chunks");
    let mut byte = [0];
    let file = File::options().read(true).write(true).open(path).unwrap();
    file.read_exact_at(&mut byte, 700).unwrap();
    file.write_all_at(&[!byte[0]], 700).unwrap();
    world.fill(track, FROM_NS + 8 * MINUTE_NS, FROM_NS + 25 * MINUTE_NS, 500_000_000);
    let columns = world.columns(0);
    let mut times = Vec::new();
    let read = world.store().read_coarse(&columns, SECOND_NS, 0, u64::MAX, |sample| {
        times.extend(sample.bucket.map(|_| sample.time_ns));
        ControlFlow::Continue(())
    });
    assert!(read.unwrap().iter().all(|gap| gap.reason == DAMAGED), "rows are asked before the first bucket");
    assert!(times[0] > lost.to_ns && times.len() > 60, "{} from {}", times.len(), times[0]);
    let gaps = world.store().gaps(&columns, 0, u64::MAX);
    assert!(
        gaps.iter().any(|gap| gap.reason == DAMAGED && gap.from_ns <= FROM_NS && gap.to_ns == lost.to_ns),
        "{gaps:?}"
    );
}

#[test]
fn programs_that_come_anew_each_second_leave_no_rollups_and_go_with_their_rows() {
    let mut world = World::new();
    for second in 0..90 {
        let mut of = description("a", false);
        (of.source, of.region) = (9, vec![pair("pid", &format!("{second}"))]);
        let track = world.track(&of);
        for at in 0..10 {
            let time_ns = FROM_NS + second * SECOND_NS + at * 100_000_000;
            world.appender().append(track, Line::ONLY, time_ns, &row(time_ns)).unwrap();
        }
        world.end(track);
    }
    assert_eq!(world.writer().warm.reader().tracks(Level::Raw).len(), 90);
    assert!(ROLLED.iter().all(|level| world.writer().warm.reader().tracks(*level).is_empty()));
    world.age(Level::Raw);
    world.settle();
    assert_eq!(world.store().known().tracks().count(), 0);
}

#[test]
fn rollups_stay_when_rows_have_gone_and_who_reads_rows_reads_them_to_the_end() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.fill(track, FROM_NS + 10, FROM_NS + 420 * MINUTE_NS, 10 * SECOND_NS);
    world.again();
    world.end(track);
    assert!(world.chunks(Level::Second, track).is_empty() && world.chunks(Level::TenSeconds, track).is_empty());
    let columns = world.columns(0);
    let rows = raw(world.store(), &columns);
    assert_eq!(
        check(world.store(), &columns, MINUTE_NS, &rows),
        (420, 0),
        "a track that ended is rolled up to its end"
    );
    let (store, writer, _) = world.open.as_mut().unwrap();
    (writer.config.keep_ns[0], writer.trusted.utc_ns) = (1, u64::MAX);
    let mut read = 0;
    let gaps = store.read(&columns, 0, u64::MAX, |_, _| {
        if read == 0 {
            writer.turn().unwrap();
        }
        read += 1;
        ControlFlow::Continue(())
    });
    assert_eq!((gaps.unwrap(), read), (Vec::new(), rows.len()));
    assert!(raw(world.store(), &columns).is_empty());
    assert_eq!(check(world.store(), &columns, MINUTE_NS, &rows), (420, 0));
    let hour = FROM_NS + 60 * MINUTE_NS..FROM_NS + 120 * MINUTE_NS;
    assert_eq!(world.store().series_between("a", hour.start, hour.end).len(), 2);
    assert!(world.store().series_between("a", 0, FROM_NS - MINUTE_NS).is_empty());
    // Finer than there is: what there is.
    let mut found = 0;
    let read = world.store().read_coarse(&columns, 1, 0, u64::MAX, |sample| {
        found += usize::from(sample.bucket.is_some());
        ControlFlow::Continue(())
    });
    assert_eq!((read.unwrap(), found), (Vec::new(), 420));
    world.age(Level::Minute);
    world.settle();
    assert_eq!((world.store().known().tracks().count(), world.store().oldest_ns()), (0, None));
}

#[test]
fn rollups_take_half_of_the_room_at_most_and_rows_are_read_where_one_has_gone() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.fill(track, FROM_NS, FROM_NS + 240 * MINUTE_NS, 500_000_000);
    let sizes = |world: &World| Level::ALL.map(|level| world.store().level_bytes(level));
    let before = sizes(&world);
    let rolled: u64 = before[1..].iter().sum();
    let columns = world.columns(0);
    let rows = raw(world.store(), &columns);
    let (buckets, _) = check(world.store(), &columns, SECOND_NS, &rows);
    let most = world.store().bytes().min(2 * rolled) - 1;
    world.writer().config.max_bytes = most;
    assert!(world.turn().dropped_files > 0);
    let after = sizes(&world);
    assert!(after[0] >= before[0] && after[1] < before[1], "{before:?} {after:?}");
    assert!(check(world.store(), &columns, SECOND_NS, &rows).0 < buckets);
}

#[test]
fn rows_that_are_too_old_already_are_rolled_up_before_they_go() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.append(track, FROM_NS + 10, FROM_NS + 20 * MINUTE_NS, 500_000_000);
    let columns = world.columns(0);
    let rows = raw(world.store(), &columns);
    world.age(Level::Raw);
    world.end(track);
    assert!(world.chunks(Level::Raw, track).is_empty());
    assert_eq!(check(world.store(), &columns, SECOND_NS, &rows), (1_200, 0));
}

#[test]
fn events_are_not_rolled_up() {
    let mut world = World::new();
    let (host, common, labels) = ("a".into(), Vec::new(), vec![pair("list", "drops")]);
    let list = world.appender().list(&About { host, common, source: 9, labels, bytes: 8 }, FROM_NS).unwrap();
    for at in 0..2_400 {
        world.appender().event(&list, FROM_NS + at * 500_000_000, b"dropped").unwrap();
    }
    world.end(list.track);
    assert_eq!(world.chunks(Level::Raw, list.track).len(), 1);
    assert!(ROLLED.iter().all(|level| world.chunks(*level, list.track).is_empty()));
}

#[test]
fn the_hours_of_a_new_track_are_rolled_up_whose_rows_have_gone_before_the_window_is_over() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    let (from_ns, gone_ns) = (FROM_NS + 120 * MINUTE_NS, FROM_NS + 300 * MINUTE_NS);
    world.fill(track, from_ns + 10, gone_ns, 500_000_000);
    world.lose_rows();
    world.fill(track, gone_ns + 10, FROM_NS + 375 * MINUTE_NS, 500_000_000);
    let first_ns = raw(world.store(), &world.columns(0))[0].0;
    assert!(first_ns > gone_ns - 10 * MINUTE_NS, "the others have gone: {}", (first_ns - FROM_NS) / MINUTE_NS);
    let mut times = Vec::new();
    // The last rows that went were not rolled up at all.
    let to_ns = gone_ns - 15 * MINUTE_NS - 1;
    let read = world.store().read_coarse(&world.columns(0), MINUTE_NS, from_ns, to_ns, |sample| {
        times.push(sample.time_ns / MINUTE_NS);
        ControlFlow::Continue(())
    });
    assert_eq!(read.unwrap(), []);
    assert_eq!(times, (from_ns / MINUTE_NS..=to_ns / MINUTE_NS).collect::<Vec<_>>(), "of each minute one");
}

#[test]
fn rows_whose_rollup_would_be_too_wide_are_not_rolled_up_and_not_damaged() {
    let mut world = World::new();
    let shape = Shape { grouping_power: 8, max_power: 23 };
    let series: Vec<_> =
        (0..9).map(|at| Series::new(&format!("h{at}"), Metric::Histogram, Form::Histogram(shape))).collect();
    let layout = Arc::new(Layout::new(vec![Part::new("wide", 0, series).shared()], false));
    let width = layout.kinds().len();
    assert!(width < MAX_COLUMNS && 2 * width + 2 > MAX_COLUMNS, "{width}");
    let track = world.track(&Description { layout, texts: Vec::new(), ..description("a", false) });
    for minute in 0..15 {
        let words = vec![minute; width];
        world.appender().append(track, Line::ONLY, FROM_NS + minute * MINUTE_NS, &words).unwrap();
        world.turn();
    }
    world.end(track);
    assert_eq!(world.chunks(Level::Raw, track).iter().map(|(rows, _)| rows).sum::<usize>(), 15);
    assert!(ROLLED.iter().all(|level| world.chunks(*level, track).is_empty()));
    assert_eq!(world.store().all_gaps(track, 0, u64::MAX), []);
}

#[test]
fn a_part_that_was_new_long_ago_hides_no_rollups_after_a_restart() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    let append = |world: &mut World, from: u64, to: u64| {
        for time_ns in (from..to).map(|second| FROM_NS + second * SECOND_NS + 10) {
            // The second part has never been new again.
            let [first_ns, total, load, ..] = row(time_ns);
            let words = [first_ns, total, load, FROM_NS, 7, 0];
            world.appender().append(track, Line::ONLY, time_ns, &words).unwrap();
        }
        world.end(track);
    };
    append(&mut world, 0, 6_000);
    world.lose_rows();
    append(&mut world, 6_000, 7_200);
    world.again();
    append(&mut world, 7_200, 7_500);
    let mut found = (0, 0);
    let read = world.store().read_coarse(&world.columns(0), 1, 0, u64::MAX, |sample| {
        let of = if sample.bucket.is_some() { &mut found.0 } else { &mut found.1 };
        *of += 1;
        ControlFlow::Continue(())
    });
    assert_eq!((read.unwrap(), found), (Vec::new(), (600, 1_500)));
}
