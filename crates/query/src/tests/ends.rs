// SPDX-License-Identifier: Apache-2.0
//! Where a series ends, and what goes on.

use onlooker_framestore::client::Description;
use onlooker_framestore::layout::Layout;
use onlooker_promql::source::STALE;

use super::fixture::{MS, S, T0, World, description, gauge, pair};

fn is_end(sample: &(u64, f64)) -> bool {
    sample.1.to_bits() == STALE.to_bits()
}

/// Times of the ends among samples.
fn ends(samples: &[(u64, f64)]) -> Vec<u64> {
    samples.iter().filter(|sample| is_end(sample)).map(|sample| sample.0).collect()
}

#[test]
fn a_host_that_falls_silent_ends_its_series_and_a_missing_reading_does_not() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load")]]));
    // 10 ms; a second without a reading, then a minute.
    let times = (0..1_000u64).map(|at| at * 10 * MS).filter(|time_ns| !(4 * S..5 * S).contains(time_ns));
    for time_ns in times.chain((70 * S / (10 * MS)..8_000).map(|at| at * 10 * MS)) {
        world.append(track, T0 + time_ns, &[1.0f64.to_bits()]);
    }
    let all = world.samples("load", 0, 75 * S);
    let (_, samples) = &all[0];
    assert_eq!(ends(samples), [10 * S - 10 * MS + 5 * S]);
    assert_eq!(world.query("load", 4_900 * MS).len(), 1);
    // Until it is known that the host is silent its last values are shown, as in /metrics.
    assert_eq!([14 * S, 15 * S, 69 * S, 71 * S].map(|at_ns| world.query("load", at_ns).len()), [1, 0, 0, 1]);
    // After its last row.
    assert_eq!([84 * S, 86 * S].map(|at_ns| world.query("load", at_ns).len()), [1, 0]);
}

/// A host that is read once a minute.
#[test]
fn three_intervals_are_no_silence() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load")]]));
    (1..=10u64).for_each(|at| world.append(track, T0 + at * 60 * S, &[1.0f64.to_bits()]));
    assert_eq!(ends(&world.samples("load", 0, 700 * S)[0].1), [0; 0]);
    assert_eq!(ends(&world.samples("load", 0, 900 * S)[0].1), [(600 + 180) * S]);
    assert_eq!(world.query("load", 700 * S).len(), 1);
}

/// A pause makes the time between readings no longer.
#[test]
fn a_slow_host_that_paused_ends_three_intervals_after_its_last_row() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load")]]));
    for at in (1..=10).chain(40..=50) {
        world.append(track, T0 + at * 60 * S, &[1.0f64.to_bits()]);
    }
    assert_eq!(ends(&world.samples("load", 0, 3_600 * S)[0].1), [780 * S, 3_180 * S]);
    assert_eq!([779, 781, 3_179, 3_181].map(|at| world.query("load", at * S).len()), [1, 0, 1, 0]);
}

/// A part that has nothing new for an hour, while the others have.
#[test]
fn a_value_that_stands_is_told_again() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load")], vec![gauge("seldom")]]));
    for at in 1..=3_600u64 {
        let seldom = if at < 3_000 { [T0 + S, 7.0f64.to_bits()] } else { [T0 + 3_000 * S, 8.0f64.to_bits()] };
        let time_ns = T0 + at * S;
        world.append(track, time_ns, &[time_ns, 1.0f64.to_bits(), seldom[0], seldom[1]]);
    }
    let at = |at: u64| world.query("seldom", at * S)[0].rsplit(' ').next().unwrap().to_owned();
    assert_eq!([2, 1_500, 2_999, 3_000, 3_600].map(at), ["7", "7", "7", "8", "8"]);
    let all = world.samples("seldom", 0, 3_600 * S);
    assert_eq!(ends(&all[0].1), [0; 0]);
    assert!((300..=400).contains(&all[0].1.len()), "{}", all[0].1.len());
    // It ends with its host, not with its own last change.
    assert_eq!(ends(&world.samples("seldom", 0, 4_000 * S)[0].1), [3_605 * S]);
}

/// One that is acquired every 10 s, and comes a bit later than the row with which its predecessor is told again.
#[test]
fn what_comes_after_its_predecessor_was_told_again_is_not_lost() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load")], vec![gauge("slow")]]));
    for at in 100..=1_000u64 {
        let (time_ns, slow) = (T0 + at * 100 * MS, (at - 2) / 100);
        world.append(track, time_ns, &[time_ns, 1.0f64.to_bits(), T0 + slow * 10 * S, (slow as f64).to_bits()]);
    }
    // By the last rows, and by all.
    for query in ["slow", "last_over_time(slow[1m])"] {
        let at = |at_ns: u64| world.query(query, at_ns)[0].rsplit(' ').next().unwrap().to_owned();
        let times_ns = [19_900, 20_100, 29_900, 30_100, 60_300, 90_300].map(|ms| ms * MS);
        assert_eq!(times_ns.map(at), ["1", "2", "2", "3", "6", "9"], "{query}");
    }
    assert_eq!(world.query("changes(slow[1m])", 90_300 * MS), [r#"{instance="a"} 5"#]);
}

#[test]
fn a_line_of_a_table_that_has_gone_ends_and_one_that_does_not_change_does_not() {
    let mut world = World::new();
    let one = description("a", vec![vec![gauge("disk_busy")]]);
    let parts = one.layout.parts().iter().map(|placed| (placed.id, placed.part.clone())).collect();
    let track = world.track(&Description { layout: Layout::new(parts, true).into(), ..one });
    let [stays, goes] =
        ["sda", "sdb"].map(|disk| world.appender.line(track, &[pair("device", disk)], &[], T0).unwrap());
    for at in 1..=300u64 {
        if at % 10 == 0 {
            world.appender.append(track, stays, T0 + at * S, &[1.0f64.to_bits()]).unwrap();
        }
        if at <= 100 {
            world.appender.append(track, goes, T0 + at * S, &[2.0f64.to_bits()]).unwrap();
        }
    }
    assert_eq!(ends(&world.samples("disk_busy{device=\"sda\"}", 0, 300 * S)[0].1), [0; 0]);
    assert_eq!(ends(&world.samples("disk_busy{device=\"sdb\"}", 0, 300 * S)[0].1), [160 * S]);
    assert_eq!([150, 170].map(|at| world.query("count(disk_busy)", at * S)), [["{} 2"], ["{} 1"]]);
}
