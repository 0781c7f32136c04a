// SPDX-License-Identifier: Apache-2.0
//! Counters that are floats: what is read of their rollups, also of those from before these had an increase.

use super::*;
use crate::chunk::Shape as Rows;

#[test]
fn float_counters_have_an_increase_and_older_rollups_are_read_without() {
    let mut world = World::new();
    let series = vec![Series::new("busy_seconds_total", Metric::Counter, Form::Float)];
    let layout = Arc::new(Layout::new(vec![Part::new("cpu", 0, series).shared()], false));
    let track = world.track(&Description { layout: layout.clone(), texts: Vec::new(), ..description("a", false) });
    let fill = |world: &mut World, minutes: std::ops::Range<u64>| {
        for at in minutes.start * 120..minutes.end * 120 {
            let (time_ns, value) = (FROM_NS + at * 500_000_000, (at % 3_000) as f64 / 4.0);
            world.appender().append(track, Line::ONLY, time_ns, &[value.to_bits()]).unwrap();
            if at % 512 == 511 {
                world.writer().try_turn().unwrap();
            }
        }
        (0..4).for_each(|_| world.writer().try_turn().unwrap());
    };
    fill(&mut world, 0..35);
    // As a program before this one has rolled up the first twenty minutes.
    let writer = world.writer();
    let mut buffers = Vec::new();
    for place in writer.warm.reader().between(Level::Raw, track, 0, u64::MAX).unwrap() {
        let mut bytes = Vec::new();
        place.read(&mut bytes).unwrap();
        buffers.push(bytes.split_off(HEADER_BYTES));
    }
    let chunks: Vec<Chunk> = buffers.iter().map(|bytes| Chunk::parse(bytes).unwrap()).collect();
    for window in 0..2 {
        let (from_ns, to_ns) = (FROM_NS + window * 10 * MINUTE_NS, FROM_NS + (window + 1) * 10 * MINUTE_NS);
        for chunk in roll(&chunks, &Rows::of(&layout), from_ns, to_ns, 1).unwrap() {
            writer.warm.append(Level::Second, &chunk).unwrap();
        }
    }
    writer.warm.write().unwrap();
    // The hour in which the programs changed is rolled up to windows of a minute, too.
    fill(&mut world, 35..400);
    world.settle();
    let wanted = world.store().series_of("a").remove(0);
    let columns = Columns { words: vec![0], ..wanted.columns };
    for (width_s, old_ones, least) in [(1, 1_198, 20_000), (10, 118, 2_000), (60, 0, 350)] {
        let (mut old, mut new, mut last) = (0, 0, None);
        let read = world.store().read_coarse(&columns, width_s * SECOND_NS, 0, u64::MAX, |sample| {
            let value = |words: &[u64]| f64::from_bits(words[0]);
            if let Some(bucket) = sample.bucket {
                let is_old = value(bucket.increase).to_bits() == 0 && bucket.before == sample.words;
                let at = (sample.time_ns - FROM_NS) / 500_000_000;
                if is_old {
                    old += 1;
                    assert!(at < 20 * 120, "{at}");
                } else {
                    new += 1;
                    let (before, now) = (value(bucket.before), value(sample.words));
                    // It begins again behind the largest.
                    let increase = if now < before { 749.75 - before + now } else { now - before };
                    assert_eq!(value(bucket.increase).to_bits(), increase.to_bits(), "{at}");
                    assert_eq!(bucket.before[0], last.unwrap_or(bucket.before[0]));
                }
                assert_eq!(
                    (bucket.least, bucket.largest),
                    if is_old { (bucket.least, sample.words) } else { (sample.words, sample.words) }
                );
                last = Some(sample.words[0]);
            }
            ControlFlow::Continue(())
        });
        assert_eq!(read.unwrap(), []);
        assert!(old >= old_ones && old + new >= least, "{old} and {new} at {width_s} s");
    }
    assert_eq!(world.store().all_gaps(track, 0, u64::MAX), []);
}
