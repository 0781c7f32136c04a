// SPDX-License-Identifier: Apache-2.0
//! What is asked of rollups word by word.

use super::*;

fn buckets(world: &World, columns: &Columns) -> Samples {
    let mut buckets = Samples::new();
    let read = world.store().read_coarse(columns, 0, 0, u64::MAX, |sample| {
        assert!(sample.bucket.is_some(), "rows have gone");
        buckets.push((sample.time_ns, sample.words.to_vec()));
        ControlFlow::Continue(())
    });
    read.unwrap();
    buckets
}

#[test]
fn a_part_s_time_may_be_one_of_its_words() {
    let mut world = World::new();
    let track = world.track(&description("a", false));
    world.fill(track, FROM_NS, FROM_NS + 30 * MINUTE_NS, 500_000_000);
    world.end(track);
    world.lose_rows();
    for part in [0, 1] {
        let mut columns = world.columns(part);
        let mut by_time = buckets(&world, &columns);
        assert!(by_time.len() > 500, "{}", by_time.len());
        by_time.iter_mut().for_each(|(time_ns, words)| words.push(*time_ns));
        columns.words.extend(columns.time.take());
        assert_eq!(columns.words.len(), 3);
        assert_eq!(buckets(&world, &columns), by_time);
    }
}
