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
    let ahead_ns = [4 * HOUR_NS, 4 * HOUR_NS + 4 * MINUTE_NS, 3 * HOUR_NS + 37 * MINUTE_NS].map(|ns| FROM_NS + ns);
    for wrong_ns in [FROM_NS + YEAR_NS, 1_000 * HOUR_NS].into_iter().chain(ahead_ns) {
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
            assert!((most - 2 * 60..=most).contains(&all), "{all} of {most}, {wrong_ns}, {with_restarts}");
            for level in [Level::TenSeconds, Level::Minute] {
                let last =
                    world.writer().warm.reader().covered(level, track, 1, (FROM_NS, FROM_NS + 8 * HOUR_NS), true);
                let hours = last.iter().map(|(_, to_ns)| to_ns / HOUR_NS).max().unwrap() - FROM_NS / HOUR_NS;
                assert!(hours >= if level == Level::Minute { 5 } else { 6 }, "{level:?} to hour {hours}");
            }
        }
    }
}

/// A time comes of which there are rollups already, and finds what is before it not rolled up: the controller was down.
#[test]
fn what_was_not_rolled_up_when_the_time_comes_that_a_clock_was_ahead_to_is_still() {
    for with_restart in [false, true] {
        let mut world = World::new();
        let track = world.track(&description("a", false));
        let at = |minute: u64| FROM_NS + minute * MINUTE_NS;
        world.live(track, FROM_NS, 25);
        world.live(track, at(44), 25);
        world.live(track, at(25), 7);
        let columns = world.columns(0);
        let rows = raw(world.store(), &columns);
        let of_time = |from_ns: u64, to_ns: u64| rows.iter().filter(|row| (from_ns..to_ns).contains(&row.0)).count();
        assert!(of_time(at(25), at(32)) > 800 && of_time(at(33), at(43)) == 0);
        if with_restart {
            world.again();
        }
        world.live(track, at(75), 30);
        assert!(seconds(&world, at(0), at(32) - 1) >= 32 * 60 - 1);
        assert!(seconds(&world, at(44), at(60) - 1) >= 16 * 60 - 1);
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

/// Files go by the earlier one of the two times that UTC is taken for; which rows are of the future the later one says.
#[test]
fn rows_that_are_good_by_one_of_both_clocks_make_no_file_old() {
    const DAY_NS: u64 = 24 * HOUR_NS;
    let now_ns = FROM_NS + 100 * DAY_NS;
    // What is trusted has fallen back with a clock that was behind, or the clock is behind what is trusted.
    for (trusted_ns, shown_ns) in [(now_ns - 30 * DAY_NS, now_ns + HOUR_NS), (now_ns + HOUR_NS, now_ns - 30 * DAY_NS)] {
        let mut world = World::new();
        let track = world.track(&description("a", false));
        // A file of a time long ago is behind the good ones.
        for from_ns in [now_ns, FROM_NS] {
            world.live(track, from_ns, 30);
            world.end(track);
            world.writer().warm.close(Level::Raw).unwrap();
        }
        let columns = world.columns(0);
        let good = |world: &World| raw(world.store(), &columns).iter().filter(|row| row.0 >= now_ns).count();
        let all = good(&world);
        assert!(all >= 30 * 120 - 1);
        let turn = |world: &mut World, trusted_ns: u64, shown_ns: u64| {
            let writer = world.writer();
            (writer.config.keep_ns, writer.shown_ns) = ([7 * DAY_NS; 4], Some(shown_ns));
            writer.trusted.utc_ns = trusted_ns;
            world.settle();
        };
        turn(&mut world, trusted_ns, shown_ns);
        assert_eq!(good(&world), all, "trusted {trusted_ns}, shown {shown_ns}");
        turn(&mut world, now_ns + 10 * DAY_NS, now_ns + 10 * DAY_NS);
        assert_eq!(good(&world), 0, "too old by both");
    }
}
