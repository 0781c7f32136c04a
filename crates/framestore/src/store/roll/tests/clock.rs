// SPDX-License-Identifier: Apache-2.0
//! A clock that is far ahead or far behind for a while stops neither rollups nor age, and costs no rows that are good.

use super::*;

const HOUR_NS: u64 = 60 * MINUTE_NS;
const YEAR_NS: u64 = 8_766 * HOUR_NS;

impl World {
    /// Rows of some minutes by a clock that shows these times.
    fn live(&mut self, track: TrackId, from_ns: u64, minutes: u64) {
        let to_ns = from_ns + minutes * MINUTE_NS;
        self.writer().shown_ns = Some(to_ns);
        self.fill(track, from_ns + 10, to_ns, 500_000_000);
        self.writer().warm.close(Level::Raw).unwrap();
    }
}

/// Seconds since `from_ns` that are read as buckets of 1 s, each once, and are what raw rows say.
fn seconds(world: &World, from_ns: u64, to_ns: u64) -> usize {
    let columns = world.columns(0);
    let rows: std::collections::BTreeMap<u64, Vec<u64>> = raw(world.store(), &columns).into_iter().collect();
    let mut seconds = std::collections::BTreeSet::new();
    let read = world.store().read_coarse(&columns, SECOND_NS, from_ns, to_ns, |sample| {
        assert_eq!(sample.words, rows[&sample.time_ns]);
        if sample.bucket.is_some() {
            assert!(seconds.insert(sample.time_ns / SECOND_NS), "twice");
        }
        ControlFlow::Continue(())
    });
    assert_eq!(read.unwrap(), []);
    seconds.len()
}

#[test]
fn rolling_up_goes_on_after_a_clock_was_ahead_or_behind() {
    for wrong_ns in [FROM_NS + YEAR_NS, FROM_NS + 4 * HOUR_NS, 1_000 * HOUR_NS] {
        for with_restarts in [false, true] {
            let mut world = World::new();
            let track = world.track(&description("a", false));
            let again = |world: &mut World| {
                if with_restarts {
                    world.again();
                }
            };
            // `row` counts from there.
            let offset = |time_ns: u64| time_ns.max(FROM_NS);
            world.live(track, FROM_NS, 95);
            again(&mut world);
            if wrong_ns > FROM_NS {
                world.live(track, offset(wrong_ns), 25);
            } else {
                world.writer().shown_ns = Some(wrong_ns + 25 * MINUTE_NS);
                for at in 0..3_000 {
                    let words = row(FROM_NS + at * 500_000_000 + 10);
                    let time_ns = wrong_ns + at * 500_000_000;
                    let words = [time_ns, words[1], words[2], time_ns, words[4], words[5]];
                    world.appender().append(track, Line::ONLY, time_ns, &words).unwrap();
                    if at % 512 == 511 {
                        world.writer().try_turn().unwrap();
                    }
                }
                world.settle();
            }
            again(&mut world);
            for half in 4..16 {
                world.live(track, FROM_NS + half * 30 * MINUTE_NS, 30);
                if half % 5 == 0 {
                    again(&mut world);
                }
            }
            // Of the piece in which the clock was set, and of the window that is open, there are rows.
            let (from_ns, to_ns) = (FROM_NS + 2 * HOUR_NS, FROM_NS + 8 * HOUR_NS - 20 * MINUTE_NS);
            let most = ((to_ns - from_ns) / SECOND_NS) as usize;
            let all = seconds(&world, from_ns, to_ns);
            // What came of a time of which there were rollups already is in raw rows.
            let least = if wrong_ns == FROM_NS + 4 * HOUR_NS { most - 31 * 60 } else { most - 2 * 60 };
            assert!((least..=most).contains(&all), "{all} of {most}, {wrong_ns}, {with_restarts}");
            for level in [Level::TenSeconds, Level::Minute] {
                let last = world.writer().warm.reader().covered(level, track, 1, FROM_NS, FROM_NS + 8 * HOUR_NS);
                let hours = last.iter().map(|(_, to_ns)| to_ns / HOUR_NS).max().unwrap() - FROM_NS / HOUR_NS;
                assert!(hours >= if level == Level::Minute { 5 } else { 6 }, "{level:?} to hour {hours}");
            }
        }
    }
}

#[test]
fn a_clock_that_is_ahead_costs_no_rows_and_its_own_go_in_time() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    let keep = |world: &mut World| world.writer().config.keep_ns = [7 * 24 * HOUR_NS; 4];
    keep(&mut world);
    world.live(track, FROM_NS, 60);
    let good = raw(world.store(), &world.columns(0)).len();
    world.live(track, FROM_NS + YEAR_NS, 30);
    world.again();
    keep(&mut world);
    world.live(track, FROM_NS + YEAR_NS + 30 * MINUTE_NS, 30);
    let columns = world.columns(0);
    let of_time = |world: &World, from_ns: u64| {
        raw(world.store(), &columns).iter().filter(|(time_ns, _)| *time_ns / HOUR_NS == from_ns / HOUR_NS).count()
    };
    assert!(of_time(&world, FROM_NS) + 1 >= good, "all rows of before");
    world.live(track, FROM_NS + 2 * HOUR_NS, 60);
    assert!(of_time(&world, FROM_NS) + 1 >= good && of_time(&world, FROM_NS + YEAR_NS) > 0);
    world.live(track, FROM_NS + 3 * HOUR_NS, 60);
    // Eight days later.
    let later_ns = FROM_NS + 8 * 24 * HOUR_NS;
    world.writer().trusted.utc_ns = later_ns + HOUR_NS;
    world.live(track, later_ns, 60);
    for _ in 0..3 {
        world.turn();
    }
    assert_eq!([FROM_NS, FROM_NS + YEAR_NS].map(|from_ns| of_time(&world, from_ns)), [0, 0], "files go in order");
    assert!(of_time(&world, later_ns) > 0);
}
