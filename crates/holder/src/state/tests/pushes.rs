// SPDX-License-Identifier: Apache-2.0
//! Readers' copies of the control region, and what is written to them.

use super::*;
use crate::protocol::MAX_RANGES;

#[test]
fn a_push_goes_to_every_copy_in_order_and_to_the_same_places() {
    let mut bench = Bench::open();
    bench.register("slab-0", (VA, 16_384), &memory(16_384)).unwrap();
    let plain = bench.pair(1, 17).unwrap();
    assert_eq!(bench.push("slab-0", 4096, &[(0, 1024)]), Ok(0), "nobody has one");
    let (a, b) = (bench.copied(2, 12_288), bench.copied(3, 12_288));
    assert_eq!(bench.hello(HERE).unwrap().copies, Some(2));
    assert_eq!(bench.push("slab-0", 4096, &[(2048, 3072), (0, 1024)]), Ok(2));
    let at = |pair, reader: u64| [(pair, 4096 + 2048, (reader << 32) + 2048, 3072), (pair, 4096, reader << 32, 1024)];
    assert_eq!(bench.written(), [at(a, 2), at(b, 3)].concat());
    assert!(a != plain && b != plain);
    // A reader that connects anew says again what it has.
    bench.pair(2, 18).unwrap();
    assert_eq!(bench.push("slab-0", 4096, &[(0, 1024)]), Ok(1));
    assert_eq!(bench.written(), [(b, 4096, 3_u64 << 32, 1024)]);
    bench.ask(Request::Release {}).unwrap();
    assert_eq!(code(bench.push("slab-0", 4096, &[(0, 1024)])), Code::Unknown);
    assert_eq!(bench.status().counters.pushes, 3);
}

#[test]
fn what_a_copy_has_not_is_clipped_out() {
    let mut bench = Bench::open();
    bench.register("slab-0", (VA, 16_384), &memory(16_384)).unwrap();
    let pair = bench.copied(1, 4096);
    bench.push("slab-0", 0, &[(8192, 1024), (4096, 1024), (3072, 3072), (0, 1024)]).unwrap();
    let va: u64 = 1 << 32;
    assert_eq!(bench.written(), [(pair, 3072, va + 3072, 1024), (pair, 0, va, 1024)]);
    assert_eq!(bench.status().counters.ranges_clipped, 3);
}

#[test]
fn ranges_outside_of_the_registration_and_copies_that_cannot_be_are_refused() {
    let mut bench = Bench::open();
    bench.register("slab-0", (VA, 8192), &memory(8192)).unwrap();
    bench.copied(1, 8192);
    for (base, range) in [
        (0, (8192, 8)),
        (0, (0, 8200)),
        (4096, (4096, 8)),
        (8192, (0, 8)),
        (u64::MAX - 7, (8, 8)),
        (0, (u64::MAX - 7, 16)),
        (0, (0, 0)),
        (0, (0, 7)),
        (4, (0, 8)),
        (0, (4, 8)),
    ] {
        assert_eq!(code(bench.push("slab-0", base, &[(0, 8), range])), Code::BadRequest, "{base} {range:?}");
    }
    assert_eq!(code(bench.push("slab-0", 0, &[])), Code::BadRequest);
    assert_eq!(code(bench.push("slab-0", 0, &[(0, 8); MAX_RANGES + 1])), Code::BadRequest);
    assert_eq!(code(bench.push("slab-1", 0, &[(0, 8)])), Code::Unknown);
    assert!(bench.written().is_empty(), "refused as a whole");
    for wrong in [copy(2, 0), copy(2, 1000), ControlCopy { va: u64::MAX - 1023, ..copy(2, 2048) }] {
        assert_eq!(code(bench.pair_with(2, 17, Some(wrong))), Code::BadRequest, "{wrong:?}");
    }
    assert_eq!(bench.status().pairs, 1);
}

#[test]
fn a_copy_without_room_misses_pushes_until_it_has_some() {
    let mut bench = Bench::open();
    bench.register("slab-0", (VA, 8192), &memory(8192)).unwrap();
    let (slow, quick) = (bench.copied(1, 8192), bench.copied(2, 8192));
    let ranges = [(1024, 1024), (0, 1024)];
    let pushes = MAX_WRITES / 2;
    for _ in 0..pushes {
        bench.push("slab-0", 0, &ranges).unwrap();
        bench.world.0.borrow_mut().end_writes(quick, true);
    }
    bench.written();
    assert_eq!(bench.push("slab-0", 0, &ranges), Ok(2));
    assert!(bench.written().iter().all(|(pair, ..)| *pair == quick), "all of one or nothing");
    assert_eq!(bench.status().counters.pushes_missed, 1);
    bench.world.0.borrow_mut().end_writes(slow, true);
    bench.push("slab-0", 0, &ranges).unwrap();
    assert_eq!(bench.written().iter().filter(|(pair, ..)| *pair == slow).count(), 2);
    let Counters { pushes: made, pushes_missed, pushes_failed, .. } = bench.status().counters;
    assert_eq!((made, pushes_missed, pushes_failed), (u64::from(2 * pushes) + 3, 1, 0));
}

#[test]
fn a_copy_whose_write_has_failed_gets_no_more_and_its_queue_pair_goes_first() {
    let mut bench = Bench::new(8, 4);
    bench.hello(HERE).unwrap();
    bench.register("slab-0", (VA, 8192), &memory(8192)).unwrap();
    let oldest = bench.pair(1, 17).unwrap();
    let (failing, refusing) = (bench.copied(2, 8192), bench.copied(3, 8192));
    assert_eq!(bench.push("slab-0", 0, &[(0, 1024), (1024, 1024)]), Ok(2));
    bench.world.0.borrow_mut().end_writes(failing, false);
    bench.world.0.borrow_mut().refusing = Some(refusing);
    bench.written();
    assert_eq!(bench.push("slab-0", 0, &[(0, 1024)]), Ok(0));
    assert!(bench.written().is_empty());
    assert_eq!(bench.status().counters.pushes_failed, 2, "once a copy, not once a WRITE");
    bench.pair(4, 17).unwrap();
    bench.pair(5, 17).unwrap();
    bench.pair(6, 17).unwrap();
    assert_eq!(bench.ended(), [failing, refusing, oldest].map(Ended::Pair));
    // Their WRITEs that completed with their end are nobody's.
    bench.push("slab-0", 0, &[(0, 1024)]).unwrap();
    assert_eq!((bench.status().counters.pushes_failed, bench.status().counters.pairs_evicted_failed), (2, 2));
}

#[test]
fn readers_beyond_the_devices_room_for_writes_read_without_a_copy() {
    let mut bench = Bench::open();
    bench.world.0.borrow_mut().writers = 1;
    bench.register("slab-0", (VA, 8192), &memory(8192)).unwrap();
    let first = bench.copied(1, 8192);
    assert_eq!(bench.pair_with(2, 17, Some(copy(2, 8192))).unwrap().copies, 1);
    assert_eq!(bench.push("slab-0", 0, &[(0, 1024)]), Ok(1));
    assert_eq!(bench.written(), [(first, 0, 1_u64 << 32, 1024)]);
    assert_eq!((bench.status().pairs, bench.status().counters.copies_refused), (2, 1));
}
