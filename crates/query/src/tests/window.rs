// SPDX-License-Identifier: Apache-2.0
//! What functions of ranges and instant selectors make of the edges of their windows is what they make of all samples.

use onlooker_framestore::client::Description;
use onlooker_framestore::layout::Layout;
use onlooker_framestore::types::{Line, TrackId};
use onlooker_promql::source::{SeriesSource as _, Span, Windows};
use onlooker_promql::{Options, Query, Times};
use onlooker_region::schema::{Acquisition, Metric};
use onlooker_series::series::{Form, Series};

use super::fixture::{MS, S, T0, World, budget, description, gauge, pair};
use super::newest::compare_steps;
use crate::StoreSource;

const FUNCTIONS: [&str; 7] =
    ["rate", "increase", "delta", "count_over_time", "first_over_time", "last_over_time", "present_over_time"];

/// Windows that are longer than steps, and shorter; and what is newest at each step.
fn compare(world: &mut World, selector: &str, until_ns: u64) {
    for step_ns in [70 * MS, S, 3_300 * MS, 20 * S] {
        compare_steps(world, selector, until_ns, step_ns);
    }
    for function in FUNCTIONS {
        for (range, step_ns) in [("4s", S), ("500ms", 7 * S), ("31s", 3_300 * MS), ("5m", 60 * S)] {
            compare_steps(world, &format!("{function}({selector}[{range}])"), until_ns, step_ns);
        }
    }
}

fn to_chunks(world: &mut World) {
    (0..20).for_each(|_| _ = world.writer.turn().unwrap());
}

/// Every form of a number, each of a part that is acquired with each row, with some, seldom, and never.
fn host(world: &mut World) -> TrackId {
    let scaled = Series { scale: 1e-9, ..Series::new("some_seconds_total", Metric::Counter, Form::Unsigned) };
    let all = [
        Series::new("some_total", Metric::Counter, Form::Unsigned),
        scaled,
        Series::new("signed", Metric::Gauge, Form::Signed),
        Series::new("float_total", Metric::Counter, Form::Float),
    ];
    let labelled = |part: i32, series: &Series| {
        let labels = vec![pair("part", &part.to_string()), pair("of", &series.name)];
        Series { labels: labels.into(), ..series.clone() }
    };
    let parts = (0..4).map(|part| all.iter().map(|series| labelled(part, series)).collect());
    world.track(&description("a", parts.collect()))
}

fn row(at: u64) -> Vec<u64> {
    row_of(at, T0, 10 * MS)
}

/// Of rows that begin at a time and are so far apart.
fn row_of(at: u64, from_ns: u64, apart_ns: u64) -> Vec<u64> {
    let of = |acquired: u64| {
        let time_ns = if acquired == 0 { 0 } else { from_ns + acquired * apart_ns - MS };
        // It begins again now and then, also twice in a second.
        let count = acquired % 2_777 % 1_903;
        let signed = 500i64 - count.cast_signed();
        [time_ns, count * 1_000_003, count * 77_777_777, signed.cast_unsigned(), (count as f64 * 0.1).to_bits()]
    };
    [of(at), of(at / 100 * 100), of(at / 4_000 * 4_000), of(0)].concat()
}

#[test]
fn parts_of_their_own_times_with_counters_that_begin_again() {
    let mut world = World::new();
    let track = host(&mut world);
    // A pause in which series end, and readings that are missing.
    let is_read = |at: &u64| !(6_000..8_000).contains(at) && !at.is_multiple_of(97);
    for at in (1..10_000u64).filter(is_read) {
        world.append(track, T0 + at * 10 * MS, &row(at));
    }
    compare(&mut world, "{instance=\"a\"}", 130 * S);
    to_chunks(&mut world);
    for at in 10_000..11_000u64 {
        world.append(track, T0 + at * 10 * MS, &row(at));
    }
    compare(&mut world, "{instance=\"a\"}", 130 * S);
}

/// The better one begins later, pauses, and ends; rows are close together.
#[test]
fn two_that_have_the_same_series() {
    let mut world = World::new();
    let of = |acquisition| {
        let series = ["some_total", "other_total"]
            .map(|name| vec![Series { acquisition, ..Series::new(name, Metric::Counter, Form::Unsigned) }]);
        description("a", series.to_vec())
    };
    let [computed, sampled] = [Acquisition::Computed, Acquisition::Sampled].map(|by| world.track(&of(by)));
    for at in 1..=12_000u64 {
        let time_ns = T0 + at * 10 * MS;
        if (1_500..5_000).contains(&at) || (6_000..10_500).contains(&at) {
            world.append(computed, time_ns, &[time_ns, at % 900, time_ns - MS, at]);
        }
        if at % 100 == 7 {
            world.append(sampled, time_ns, &[time_ns, 10 * at % 7_000, time_ns, at / 100]);
        }
    }
    for _ in 0..2 {
        ["some_total", "other_total"].iter().for_each(|name| compare(&mut world, name, 140 * S));
        to_chunks(&mut world);
    }
    for (from_s, is_summarised) in [(20, true), (44, true), (48, true), (54, false), (70, true)] {
        assert_eq!(summarises(&world, "some_total", from_s), is_summarised, "from {from_s} s");
    }
}

/// Whether ten windows of a second of the one series are answered without handing its samples on.
fn summarises(world: &World, selector: &str, from_s: u64) -> bool {
    let (budget, source) = (budget(10), StoreSource::new(&world.store));
    let [after_ns, until_ns] = [from_s, from_s + 10].map(|s| (T0 + s * S).cast_signed());
    let found = source.select(&Query::selector(selector).unwrap(), Span { after_ns, until_ns }, &budget).unwrap();
    let (step_ns, range_ns) = (S.cast_signed(), S.cast_signed());
    let windows = Windows { first_end_ns: after_ns + step_ns, step_ns, count: 10, range_ns, is_counter: true };
    source.summaries(found[0].key, windows, &budget, &mut |_, _| {}).unwrap()
}

/// As after restarts of the agent, soon and late, with a worse one all the time and without.
#[test]
fn some_that_follow_one_another() {
    for has_worse in [false, true] {
        let mut world = World::new();
        let of = |acquisition, other: &str| {
            let series = |name| Series { acquisition, ..Series::new(name, Metric::Counter, Form::Unsigned) };
            description("a", vec![vec![series("some_total")], vec![series("slow_total")], vec![gauge(other)]])
        };
        let sampled = has_worse.then(|| world.track(&of(Acquisition::Sampled, "worse")));
        let all = ["one", "two", "three"].map(|other| world.track(&of(Acquisition::Computed, other)));
        for at in 1..=12_000u64 {
            let time_ns = T0 + at * 10 * MS;
            let current = match at {
                500..4_711 => Some(all[0]),
                4_730..8_000 => Some(all[1]),
                9_100.. => Some(all[2]),
                _ => None,
            };
            if let Some(track) = current {
                // A new track's first row has again what was acquired before.
                let slow_ns = T0 + at / 300 * 3 * S;
                world.append(track, time_ns, &[time_ns + MS, at % 900, slow_ns, at / 300 % 7, time_ns, 0]);
            }
            if let Some(track) = sampled.filter(|_| at % 100 == 7) {
                world.append(track, time_ns, &[time_ns, 10 * at % 7_000, time_ns, at, time_ns, 0]);
            }
        }
        for _ in 0..2 {
            compare(&mut world, "some_total", 140 * S);
            compare(&mut world, "slow_total", 140 * S);
            to_chunks(&mut world);
        }
        for from_s in [20, 41, 60, 100] {
            assert!(summarises(&world, "some_total", from_s), "from {from_s} s");
        }
    }
}

/// Windows of whole seconds: a column of a chunk is decoded for the first who asks.
#[test]
fn who_asks_again_decodes_nothing() {
    let mut world = World::new();
    let track = host(&mut world);
    (1..10_000u64).for_each(|at| world.append(track, T0 + at * 10 * MS, &row(at)));
    to_chunks(&mut world);
    let bytes = |text: &str, step_ns: u64| {
        let times =
            Times { start_ns: T0.cast_signed(), end_ns: (T0 + 80 * S).cast_signed(), step_ns: step_ns.cast_signed() };
        let source = StoreSource::new(&world.store);
        Query::parse(text, times).unwrap().run(&source, &Options::default()).unwrap();
        source.decoded_bytes()
    };
    for query in ["rate(some_total{part=\"0\"}[4s])", "signed{part=\"1\"}", "delta(float_total{part=\"0\"}[1s])"] {
        let first = bytes(query, S);
        let again = bytes(query, S);
        assert!(again + 4_096 * 8 < first, "{query}: {again} bytes after {first}");
        assert!(bytes(query, 100 * MS) > again, "{query}");
    }
}

/// Rows of a second are many between two minutes, and few between two seconds.
#[test]
fn who_asks_for_a_day_again_decodes_nothing() {
    let mut world = World::new();
    let track = host(&mut world);
    let from_ns = T0.next_multiple_of(60 * S);
    (1..10_000u64).for_each(|at| world.append(track, from_ns + at * S, &row_of(at, from_ns, S)));
    to_chunks(&mut world);
    let bytes = |text: &str, start_ns: u64, step_ns: u64| {
        let end_ns = from_ns + 120 * 60 * S;
        let [start_ns, end_ns, step_ns] = [start_ns, end_ns, step_ns].map(u64::cast_signed);
        let source = StoreSource::new(&world.store);
        let times = Times { start_ns, end_ns, step_ns };
        Query::parse(text, times).unwrap().run(&source, &Options::default()).unwrap();
        source.decoded_bytes()
    };
    for query in ["rate(some_total{part=\"0\"}[5m])", "signed{part=\"0\"}", "delta(float_total{part=\"0\"}[1m])"] {
        let first = bytes(query, from_ns, 60 * S);
        let again = bytes(query, from_ns, 60 * S);
        assert!(again + 4_096 * 8 < first, "{query}: {again} bytes after {first}");
        assert!(bytes(query, from_ns + S, 60 * S) > again, "{query}");
    }
    for step_ns in [60 * S, 90 * S] {
        compare_steps(&mut world, "some_total", 9_000 * S, step_ns);
        for function in FUNCTIONS {
            compare_steps(&mut world, &format!("{function}(some_total[5m])"), 9_000 * S, step_ns);
        }
    }
}

#[test]
fn lines_of_a_table() {
    let mut world = World::new();
    let one = description("a", vec![vec![Series::new("disk_total", Metric::Counter, Form::Unsigned)]]);
    let parts = one.layout.parts().iter().map(|placed| (placed.id, placed.part.clone())).collect();
    let track = world.track(&Description { layout: Layout::new(parts, true).into(), ..one });
    let mut line = |name: &str| world.appender.line(track, &[pair("device", name)], &[], T0).unwrap();
    let lines: [(Line, u64); 3] = [(line("stays"), 10), (line("goes"), 1), (line("seldom"), 50)];
    for at in 1..=4_000u64 {
        for (line, every) in lines {
            if at % every == 0 && (every == 10 || at <= 1_000 || at > 3_500) {
                world.appender.append(track, line, T0 + at * 100 * MS, &[at % 333]).unwrap();
            }
        }
    }
    compare(&mut world, "disk_total", 400 * S);
    to_chunks(&mut world);
    compare(&mut world, "disk_total", 400 * S);
}

#[test]
fn rows_of_a_clock_that_was_set_back() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load")]]));
    for (at, ms) in (0u64..).zip((1..20_000).chain(10_000..30_000)) {
        world.append(track, T0 + ms * MS, &[(at as f64).to_bits()]);
    }
    compare(&mut world, "load", 70 * S);
}
