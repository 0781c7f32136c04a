// SPDX-License-Identifier: Apache-2.0
//! What an instant selector finds by looking at the last rows is what all samples say.

use onlooker_framestore::client::Description;
use onlooker_framestore::layout::Layout;
use onlooker_framestore::types::TrackId;
use onlooker_framestore::warm::Level;
use onlooker_promql::labels::Matcher;
use onlooker_promql::limits::Budget;
use onlooker_promql::source::{Chunks, Found, Newest, SeriesSource, SourceError, Span};
use onlooker_promql::value::Value;
use onlooker_promql::{Options, Query, Times};
use onlooker_region::schema::Acquisition;
use onlooker_series::series::Series;

use super::fixture::{MS, S, T0, World, budget, description, gauge, pair};
use crate::StoreSource;

/// A value that stands is told again after this time.
const REPEAT_NS: u64 = 10 * S;

/// Both ways at each of these times; `most_ns` is what times may differ by.
fn compare(world: &mut World, selector: &str, times_ns: impl Iterator<Item = u64>, back_ns: u64, most_ns: u64) {
    for at_ns in times_ns {
        for (number, [newest, read]) in world.newest(selector, at_ns, back_ns).into_iter().enumerate() {
            let values = [newest, read].map(|sample| sample.map(|(_, value)| value.to_bits()));
            assert_eq!(values[0], values[1], "{number} at {at_ns}: {newest:?} {read:?}");
            if let (Some((one_ns, _)), Some((other_ns, _))) = (newest, read) {
                assert!(one_ns.abs_diff(other_ns) <= most_ns, "{number} at {at_ns}: {newest:?} {read:?}");
            }
        }
    }
}

/// Reads all samples, whatever is asked.
struct Reading<'a>(StoreSource<'a>);

impl SeriesSource for Reading<'_> {
    fn select(&self, matchers: &[Matcher], span: Span, budget: &Budget) -> Result<Vec<Found>, SourceError> {
        self.0.select(matchers, span, budget)
    }

    fn read<'a>(&'a self, key: u64, span: Span) -> Result<Box<dyn Chunks + 'a>, SourceError> {
        self.0.read(key, span)
    }
}

/// A range is the same whether the rows at the edges of steps and windows are looked at or all of them. Returns how much
/// of it was decoded both ways.
pub(crate) fn compare_steps(world: &mut World, selector: &str, until_ns: u64, step_ns: u64) -> [usize; 2] {
    world.writer.turn().unwrap();
    let [start_ns, end_ns] = [T0, T0 + until_ns].map(u64::cast_signed);
    let query = Query::parse(selector, Times { start_ns, end_ns, step_ns: step_ns.cast_signed() }).unwrap();
    let run = |source: &dyn SeriesSource| {
        let Value::Vector(all) = query.run(source, &Options::default()).unwrap().value else { panic!("no vector") };
        let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        all.into_iter().map(|series| (series.labels, bits(series.values))).collect::<Vec<_>>()
    };
    let (source, reading) = (StoreSource::new(&world.store), Reading(StoreSource::new(&world.store)));
    let found = run(&source);
    // Short windows have no two samples of what is acquired seldom.
    assert!(!found.is_empty() || selector.contains("[500ms]"));
    let read = run(&reading);
    assert_eq!(found.len(), read.len());
    for found in [found, run(&StoreSource::new(&world.store))] {
        for ((labels, found), (_, read)) in found.iter().zip(&read) {
            let differs = found.iter().zip(read).position(|(found, read)| found != read);
            let at = differs.map(|at| (at, f64::from_bits(found[at]), f64::from_bits(read[at])));
            assert_eq!(at, None, "{selector} every {step_ns}: {labels}");
        }
    }
    [source.decoded_bytes(), reading.0.decoded_bytes()]
}

/// 10 ms; a part acquired with each row, one each second and one each ten, told some rows later, one that changes
/// seldom, one never.
fn host(world: &mut World, name: &str) -> TrackId {
    let parts = ["fast", "slow", "slower", "seldom", "never"].map(|name| vec![gauge(name)]);
    world.track(&description(name, parts.to_vec()))
}

fn row(at_ns: u64) -> Vec<u64> {
    let time_ns = T0 + at_ns;
    let slow_ns = (at_ns.saturating_sub(30 * MS)) / S * S;
    // Not while nothing is read.
    let slower_ns = match at_ns.saturating_sub(170 * MS) / (10 * S) * 10 * S {
        70_000_000_000 => 60 * S,
        slower_ns => slower_ns,
    };
    let seldom_ns = at_ns / (40 * S) * 40 * S;
    let of = |ns: u64| [if ns == 0 { 0 } else { T0 + ns }, (ns as f64).to_bits()];
    [[time_ns - MS, (at_ns as f64).to_bits()], of(slow_ns), of(slower_ns), of(seldom_ns), [0, 0]].concat()
}

fn to_chunks(world: &mut World) {
    for _ in 0..20 {
        world.writer.turn().unwrap();
    }
    assert!(world.store.level_bytes(Level::Raw) > 0);
}

#[test]
fn parts_of_their_own_times_are_found_in_memory_and_in_chunks() {
    let mut world = World::new();
    let track = host(&mut world, "a");
    // A pause of 20 s, and a reading that is missing now and then.
    let is_read = |at: &u64| !(6_000..8_000).contains(at) && !at.is_multiple_of(97);
    for at in (1..10_000u64).filter(is_read) {
        world.append(track, T0 + at * 10 * MS, &row(at * 10 * MS));
    }
    let about = (1..6u64).flat_map(|at| [10, 90, 160, 170, 180].map(|ms| at * 10 * S + ms * MS));
    let times = || (1..120u64).map(|at| at * 911 * MS).chain([60 * S - 1, 64_980 * MS, 64_990 * MS, 65 * S, 80 * S]);
    let times = || times().chain(about.clone());
    for back_ns in [300 * S, 3 * S] {
        compare(&mut world, "{instance=\"a\"}", times(), back_ns, REPEAT_NS);
    }
    // Where nothing stands times are the same.
    compare(&mut world, "fast", times(), 300 * S, 0);
    compare(&mut world, "slow", times().filter(|at_ns| *at_ns < 60 * S), 300 * S, 0);
    to_chunks(&mut world);
    compare(&mut world, "{instance=\"a\"}", times(), 300 * S, REPEAT_NS);
    for step_ns in [13, 1_300, 1_500, 9_000, 30_000].map(|ms| ms * MS) {
        compare_steps(&mut world, "{instance=\"a\"}", 130 * S, step_ns);
    }
    let mut time = |text: &str, at_ns: u64| world.query(text, at_ns)[0].rsplit(' ').next().unwrap().to_owned();
    // `timestamp()` is when it was acquired, to the nearest double.
    let seconds = |ns: u64| onlooker_series::exposition::number((T0 + ns) as f64 / 1e9);
    assert_eq!(time("timestamp(fast)", 50 * S), seconds(50 * S - MS));
    assert_eq!(time("timestamp(slow)", 50_500 * MS), seconds(50 * S));
}

#[test]
fn of_several_tracks_the_one_that_is_shown_is_found() {
    let load = |acquisition| vec![vec![Series { acquisition, ..gauge("load") }]];
    let mut world = World::new();
    let computed = world.track(&description("a", load(Acquisition::Computed)));
    let sampled = world.track(&description("a", load(Acquisition::Sampled)));
    let other = vec![load(Acquisition::Computed).remove(0), vec![gauge("other")]];
    let changed = world.track(&description("a", other));
    for at in 1..=1_000u64 {
        let (time_ns, value) = (T0 + at * 100 * MS, (at as f64).to_bits());
        match at {
            200..=400 => world.append(computed, time_ns, &[value]),
            600..=700 => world.append(changed, time_ns, &[time_ns, value, time_ns, value]),
            _ => {}
        }
        world.append(sampled, time_ns + 30 * MS, &[(-(at as f64)).to_bits()]);
    }
    compare(&mut world, "load", (1..1_100).map(|at| at * 97 * MS), 300 * S, 0);
    compare(&mut world, "load", (1..1_100).map(|at| at * 97 * MS), S, 0);
    for step_ns in [S, 13 * S, 14_300 * MS, 27 * S] {
        compare_steps(&mut world, "load", 130 * S, step_ns);
    }
}

#[test]
fn lines_of_a_table_are_found_until_they_end() {
    let mut world = World::new();
    let one = description("a", vec![vec![gauge("disk_busy")]]);
    let parts = one.layout.parts().iter().map(|placed| (placed.id, placed.part.clone())).collect();
    let track = world.track(&Description { layout: Layout::new(parts, true).into(), ..one });
    let mut line = |name: &str| world.appender.line(track, &[pair("device", name)], &[], T0).unwrap();
    let lines = [(line("stays"), 10), (line("goes"), 1), (line("seldom"), 50)];
    for at in 1..=400u64 {
        for (line, every) in lines {
            if at % every == 0 && (every == 10 || at <= 100) {
                world.appender.append(track, line, T0 + at * S, &[(at as f64).to_bits()]).unwrap();
            }
        }
    }
    compare(&mut world, "disk_busy", (1..90).map(|at| at * 5 * S), 300 * S, 0);
    // Each 50 s: three of these after the last row.
    assert_eq!([159, 161, 249, 251].map(|at| world.query("disk_busy", at * S).len()), [3, 2, 2, 1]);
}

/// Rows that come in another order than that of their times are all read.
#[test]
fn a_clock_that_was_set_back_gives_the_same() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load")]]));
    for (at, second) in (0u64..).zip((1..20).chain(10..30)) {
        world.append(track, T0 + second * S, &[(at as f64).to_bits()]);
    }
    compare(&mut world, "load", (1..40).map(|at| at * S), 300 * S, 0);
}

#[test]
fn steps_far_apart_of_a_clock_that_was_set_back_give_the_same() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load")]]));
    for (at, ms) in (0u64..).zip((1..20_000).chain(10_000..30_000)) {
        world.append(track, T0 + ms * MS, &[(at as f64).to_bits()]);
    }
    for step_ns in [1, 3, 7].map(|seconds| seconds * S) {
        compare_steps(&mut world, "load", 40 * S, step_ns);
    }
}

/// An instant query decodes the last rows of each series, not those of five minutes; a range decodes each chunk once.
#[test]
fn an_instant_query_decodes_the_last_rows_only() {
    let mut world = World::new();
    let names: Vec<String> = (0..10).map(|at| format!("load{at}")).collect();
    let track = world.track(&description("a", vec![names.iter().map(|name| gauge(name)).collect()]));
    const ROWS: u64 = 30_000;
    for at in 1..=ROWS {
        world.append(track, T0 + at * 10 * MS, &[(at as f64).to_bits(); 10]);
        if at % 3_000 == 0 {
            world.writer.turn().unwrap();
        }
    }
    to_chunks(&mut world);
    let count = |source: &StoreSource<'_>, text: &str| {
        let query = Query::parse(text, Times::instant((T0 + ROWS * 10 * MS).cast_signed())).unwrap();
        let Value::Vector(series) = query.run(source, &Options::default()).unwrap().value else { panic!("no vector") };
        series[0].values[0]
    };
    let source = StoreSource::new(&world.store);
    assert_eq!(count(&source, "count({instance=\"a\"})"), 10.0);
    let one_column = usize::try_from(ROWS).unwrap() * 8;
    assert!(source.decoded_bytes() < 2 * one_column, "{}", source.decoded_bytes());
    // Times and columns of all rows, and what chunks have beside them: each once.
    let source = StoreSource::new(&world.store);
    assert_eq!(count(&source, "count(last_over_time({instance=\"a\"}[5m]))"), 10.0);
    let held = source.decoded_bytes();
    assert!((11 * one_column..14 * one_column).contains(&held), "{held}");
    // And one whose steps are far apart decodes the chunk before each.
    let [newest, read] = compare_steps(&mut world, "load3", 300 * S, 100 * S);
    assert!(newest * 3 / 2 < read, "{newest} and {read} bytes");
}

#[test]
fn where_nothing_is_asked_for_nothing_is_found() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load")]]));
    world.append(track, T0 + S, &[1.0f64.to_bits()]);
    world.writer.turn().unwrap();
    let source = StoreSource::new(&world.store);
    let span = Span { after_ns: 0, until_ns: i64::MAX };
    let found = source.select(&Query::selector("load").unwrap(), span, &budget(1)).unwrap();
    let before = Span { after_ns: -10, until_ns: -1 };
    assert_eq!(source.newest(found[0].key, before).unwrap(), Newest::Nothing);
    assert!(source.newest(found[0].key + 1, span).is_err());
}
