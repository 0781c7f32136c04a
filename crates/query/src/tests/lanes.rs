// SPDX-License-Identifier: Apache-2.0
//! One series on several tracks, and on chunks and rollups.

use onlooker_framestore::client::Description;
use onlooker_framestore::warm::Level;
use onlooker_promql::source::STALE;
use onlooker_region::schema::{Acquisition, Metric};
use onlooker_series::series::{Form, Series};

use super::fixture::{MS, S, T0, World, description, gauge, pair};

fn load(acquisition: Acquisition) -> Series {
    Series { acquisition, ..gauge("load") }
}

/// The agent's rows get other columns and go back: three pieces, two tracks.
#[test]
fn a_change_of_the_layout_leaves_no_trace() {
    let mut world = World::new();
    let one = world.track(&description("a", vec![vec![gauge("load")], vec![gauge("other")]]));
    let two = world.track(&description("a", vec![vec![gauge("load")], vec![gauge("another")]]));
    for at in 1..=90u64 {
        let (time_ns, value) = (T0 + at * S, (at as f64).to_bits());
        // The first row of a track repeats what has nothing new.
        let track = if (31..=60).contains(&at) { two } else { one };
        world.append(track, time_ns + MS, &[time_ns, value, time_ns, value]);
    }
    let all = world.samples("load", 0, 90 * S);
    assert_eq!(all.len(), 1);
    let expected: Vec<(u64, f64)> = (1..=90u64).map(|at| (at * S, at as f64)).collect();
    assert_eq!(all[0].1, expected);
    // What was acquired before the range is not told with the first row in it.
    assert_eq!(world.query("count_over_time(load[1m])", 90 * S), [r#"{instance="a"} 60"#]);
    assert_eq!(world.query("changes(load[1m])", 90 * S), [r#"{instance="a"} 59"#]);
    // What went meanwhile has ended.
    assert_eq!(world.query("other", 40 * S), [""; 0]);
    assert_eq!(world.query("other", 65 * S).len(), 1);
}

/// What is read together has one row, with the time of what was acquired first.
#[test]
fn a_range_that_begins_within_a_reading_has_what_was_acquired_in_it() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("first")], vec![gauge("load")]]));
    for at in 1..=60u64 {
        let (time_ns, value) = (T0 + at * S, (at as f64).to_bits());
        world.append(track, time_ns, &[time_ns, value, time_ns + 5 * MS, value]);
    }
    for (selector, range, count) in [("first", "10s", 10), ("load", "10s", 10), ("load", "9994ms", 9)] {
        let until_ns = 40 * S + 2 * MS;
        let counted = world.query(&format!("count_over_time({selector}[{range}])"), until_ns);
        assert_eq!(counted, [format!(r#"{{instance="a"}} {count}"#)], "{selector}[{range}]");
    }
    assert_eq!(world.query("delta(load[10s] anchored)", 40 * S + 2 * MS), [r#"{instance="a"} 10"#]);
    assert_eq!(
        world.query("max_over_time(load[10s]) - min_over_time(load[10s])", 40 * S + 2 * MS),
        [r#"{instance="a"} 9"#]
    );
}

#[test]
fn the_better_of_two_is_shown_while_it_goes_on() {
    let mut world = World::new();
    let computed = world.track(&description("a", vec![vec![load(Acquisition::Computed)]]));
    let sampled = world.track(&description("a", vec![vec![load(Acquisition::Sampled)]]));
    let program = description("a", vec![vec![load(Acquisition::Computed)]]);
    let program = world.track(&Description { source: 300 << 32, ..program });
    for at in 1..=100u64 {
        let time_ns = T0 + at * S;
        if (20..=60).contains(&at) {
            world.append(computed, time_ns, &[1.0f64.to_bits()]);
        }
        world.append(sampled, time_ns + 100 * MS, &[2.0f64.to_bits()]);
        world.append(program, time_ns + 200 * MS, &[3.0f64.to_bits()]);
    }
    let at = |at: u64| world.query("load", at * S + 900 * MS)[0].rsplit(' ').next().unwrap().to_owned();
    assert_eq!([10, 20, 40, 60, 64, 66, 90].map(at), ["2", "1", "1", "1", "1", "2", "2"]);
    let all = world.samples("load", 0, 100 * S);
    assert!(all[0].1.iter().all(|(_, value)| *value < 3.0 && value.to_bits() != STALE.to_bits()));
}

/// The better one is read each minute: it goes on for three.
#[test]
fn a_better_one_that_is_read_seldom_is_shown_while_it_goes_on() {
    let mut world = World::new();
    let seldom = world.track(&description("a", vec![vec![load(Acquisition::Computed)]]));
    let often = world.track(&description("a", vec![vec![load(Acquisition::Sampled)]]));
    for at in 1..=800u64 {
        if at % 60 == 0 && at <= 600 {
            world.append(seldom, T0 + at * S, &[1.0f64.to_bits()]);
        }
        world.append(often, T0 + at * S, &[2.0f64.to_bits()]);
    }
    // Its last row was long before the beginning.
    let all = world.samples("load", 700 * S, 710 * S);
    assert!(all[0].1.iter().all(|(_, value)| *value == 1.0), "{all:?}");
    let at = |at: u64| world.query("load", at * S)[0].rsplit(' ').next().unwrap().to_owned();
    assert_eq!([700, 779, 782].map(at), ["1", "1", "2"]);
}

/// Rows in memory, in chunks, and rollups where rows are gone give the same.
#[test]
fn chunks_and_memory_give_the_same() {
    let mut world = World::new();
    let counter = Series::new("done_total", Metric::Counter, Form::Unsigned);
    let track = world.track(&description("a", vec![vec![counter, gauge("load")]]));
    (0..5_000u64).for_each(|at| world.append(track, T0 + at * 10 * MS, &[at * 3, (at as f64).to_bits()]));
    let in_memory = world.samples("{instance=\"a\"}", 0, 50 * S);
    assert_eq!(in_memory.iter().map(|(_, samples)| samples.len()).collect::<Vec<_>>(), [4_999, 4_999]);
    for _ in 0..20 {
        world.writer.turn().unwrap();
    }
    assert!(world.store.level_bytes(Level::Raw) > 0);
    assert_eq!(world.samples("{instance=\"a\"}", 0, 50 * S), in_memory);
    // Steps of 10 ms.
    assert_eq!(world.query("round(increase(done_total[10s]))", 40 * S), [r#"{instance="a"} 3000"#]);
    assert_eq!(world.query("count_over_time(load[100ms])", 40 * S), [r#"{instance="a"} 10"#]);
}

#[test]
fn a_clock_that_was_set_back_costs_the_times_that_come_twice() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load")]]));
    for (time_s, value) in [(1, 1.0), (2, 2.0), (3, 3.0), (2, 4.0), (3, 5.0), (4, 6.0f64)] {
        world.append(track, T0 + time_s * S, &[value.to_bits()]);
    }
    assert_eq!(world.samples("load", 0, 4 * S)[0].1, [(S, 1.0), (2 * S, 2.0), (3 * S, 3.0), (4 * S, 6.0)]);
}

/// A host with another label is another series.
#[test]
fn labels_tell_series_apart() {
    let mut world = World::new();
    let plain = description("a", vec![vec![gauge("load")]]);
    let labelled = Description { common: vec![pair("instance", "a"), pair("dc", "b")], ..plain.clone() };
    for (at, description) in [(1, &plain), (2, &labelled)] {
        let track = world.track(description);
        world.append(track, T0 + at * S, &[1.0f64.to_bits()]);
    }
    assert_eq!(world.query("load", 3 * S).len(), 2);
    assert_eq!(world.query("load{dc=\"\"}", 3 * S).len(), 1);
}
