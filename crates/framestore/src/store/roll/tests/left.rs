// SPDX-License-Identifier: Apache-2.0
//! What is not rolled up on purpose is not looked at again.

use super::damage::without_rows;
use super::*;

/// Whether a window of a level is due, of those that are over.
fn is_due(world: &mut World, level: Level, track: TrackId) -> bool {
    world.writer().due(level, track).is_some()
}

#[test]
fn windows_that_would_save_nothing_are_left_out_for_good() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.fill(track, FROM_NS + 10, FROM_NS + 55 * MINUTE_NS, SECOND_NS);
    for _ in 0..2 {
        assert!(world.chunks(Level::Second, track).is_empty());
        assert!(!is_due(&mut world, Level::Second, track));
        world.again();
    }
    // What comes next is looked at.
    world.append(track, FROM_NS + 55 * MINUTE_NS + 10, FROM_NS + 75 * MINUTE_NS, 100_000_000);
    assert!(is_due(&mut world, Level::Second, track));
    world.settle();
    assert!(!world.chunks(Level::Second, track).is_empty());
}

#[test]
fn what_a_level_does_not_keep_is_not_made_again() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.fill(track, FROM_NS + 10, FROM_NS + 55 * MINUTE_NS, 500_000_000);
    assert!(!world.chunks(Level::Second, track).is_empty());
    world.writer().warm.close(Level::Second).unwrap();
    while world.writer().warm.drop_oldest(Level::Second).unwrap().is_some() {}
    world.again();
    assert!(is_due(&mut world, Level::Second, track), "as long as it is kept");
    world.again();
    let writer = world.writer();
    writer.config.keep_ns[Level::Second as usize] = 10 * MINUTE_NS;
    writer.trusted.utc_ns = FROM_NS + 120 * MINUTE_NS;
    assert!(!is_due(&mut world, Level::Second, track));
}

#[test]
fn damage_that_was_told_is_not_told_again_after_a_restart() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    for minute in 0..26 {
        // A chunk of ten minutes each.
        world.append(track, FROM_NS + minute * MINUTE_NS, FROM_NS + (minute + 1) * MINUTE_NS, 500_000_000);
        if minute % 10 == 9 {
            world.appender().end(track);
            for _ in 0..3 {
                world.writer().looked_ns = 0;
                world.writer().try_turn().unwrap();
            }
        }
    }
    world.writer().warm.close(Level::Raw).unwrap();
    let places = world.writer().warm.reader().between(Level::Raw, track, 0, FROM_NS + 10 * MINUTE_NS - 1).unwrap();
    for place in &places {
        let (number, words) = place.chunk().arrival();
        let path = world.dir.path().join(format!("store/warm/raw-{number:010}.chunks"));
        let mut byte = [0];
        let file = File::options().read(true).write(true).open(path).unwrap();
        let at = u64::from(words) * 8 + HEADER_BYTES as u64 + 100;
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[!byte[0]], at).unwrap();
    }
    world.settle();
    let told = |world: &World| {
        let mut gaps = world.store().all_gaps(track, 0, u64::MAX);
        gaps.retain(|gap| gap.reason == DAMAGED);
        gaps
    };
    let once = told(&world);
    assert!(!once.is_empty());
    // Others come meanwhile.
    for number in 0..40 {
        let (from_ns, reason) = (FROM_NS + number * SECOND_NS, "late".to_owned());
        world.appender().gap(&Gap { track, of: None, from_ns, to_ns: from_ns + 1, reason });
    }
    world.turn();
    world.again();
    world.settle();
    assert_eq!(told(&world), once);
}

#[test]
fn a_level_that_a_power_loss_has_taken_is_made_again_beside_coarser_ones() {
    for has_gone in [false, true] {
        let mut world = World::new();
        let track = world.track(&description("a", false));
        for (from, to) in [(0, 35), (35, 75)] {
            world.fill(track, FROM_NS + from * MINUTE_NS + 10, FROM_NS + to * MINUTE_NS, 500_000_000);
            world.writer().warm.close(Level::Raw).unwrap();
        }
        world.end(track);
        let made = ROLLED.map(|level| world.chunks(level, track));
        assert!(made.iter().all(|chunks| !chunks.is_empty()));
        if has_gone {
            world.writer().warm.drop_oldest(Level::Raw).unwrap().unwrap();
        }
        world.open = None;
        for entry in fs::read_dir(world.dir.path().join("store/warm")).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_str().unwrap().starts_with("1s-") {
                fs::remove_file(path).unwrap();
            }
        }
        world.again();
        world.settle();
        if !has_gone {
            assert!(ROLLED.map(|level| world.chunks(level, track)) == made);
            continue;
        }
        // No piece is made of what is left of its rows: the coarser one has them all.
        let reader = world.writer().warm.reader();
        let first_ns = reader.first_ns(Level::Raw, track, 0, false).unwrap();
        let covered = reader.covered(Level::Second, track, MINUTE_NS, (0, u64::MAX), true);
        assert!(first_ns > FROM_NS + MINUTE_NS && !first_ns.is_multiple_of(MINUTE_NS), "{first_ns}");
        assert_eq!(covered, [(first_ns.next_multiple_of(MINUTE_NS), FROM_NS + 75 * MINUTE_NS - 1)]);
    }
}

#[test]
fn rollups_that_have_made_room_are_not_made_again() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.fill(track, FROM_NS + 10, FROM_NS + 95 * MINUTE_NS, 500_000_000);
    // Coarser levels do not have all of it.
    let [seconds, tens] = [Level::Second, Level::TenSeconds].map(|level| world.chunks(level, track).len());
    assert!(seconds > 6 && tens == 1, "{seconds} windows of 10 minutes, {tens} of an hour");
    let writer = world.writer();
    writer.warm.close(Level::Second).unwrap();
    while writer.drop_first_of([Level::Second].into_iter()).unwrap() {}
    world.turn();
    for _ in 0..2 {
        world.settle();
        assert!(world.chunks(Level::Second, track).is_empty());
        world.again();
    }
    // What comes next is made.
    world.fill(track, FROM_NS + 95 * MINUTE_NS + 10, FROM_NS + 115 * MINUTE_NS, 500_000_000);
    assert!(!world.chunks(Level::Second, track).is_empty());
}

#[test]
fn tracks_that_have_ended_are_rolled_up_to_the_end_of_what_is_left_of_them() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.writer().shown_ns = Some(FROM_NS + 57 * MINUTE_NS);
    world.fill(track, FROM_NS + 10, FROM_NS + 55 * MINUTE_NS, 500_000_000);
    world.end(track);
    assert_eq!(ROLLED.map(|level| world.chunks(level, track).len()), [5, 0, 0]);
    without_rows(&mut world);
    world.again();
    world.settle();
    assert_eq!(ROLLED.map(|level| world.chunks(level, track).len()), [5, 1, 1]);
}
