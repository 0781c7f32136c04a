// SPDX-License-Identifier: Apache-2.0
//! Slabs and regions: registration is a table entry, memory is live.

use std::sync::atomic::Ordering;

use onlooker_responder::{Error, Exit, Kind, Region, SlabMapping};

use crate::support::{Ask, FIRST_BLOCK, Outcome, PORT, RKEY, Rig, SLAB_BLOCKS, Side, VA, region, unlimited};

#[test]
fn memory_is_read_live() {
    let rig = Rig::new(&unlimited(PORT));
    let word = &rig.memory.words()[usize::try_from(FIRST_BLOCK).unwrap() * 128 + 3];
    for value in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
        word.store(value, Ordering::Relaxed);
        let Outcome::Answer(answer) = rig.run(Side::Tc, &Ask::v4().at(24, 8).frame()) else { panic!() };
        assert_eq!(answer[58..66], value.to_le_bytes());
    }
}

#[test]
fn regions_come_and_go() {
    let rig = Rig::new(&unlimited(PORT));
    let other = Region { va: VA ^ (1 << 40), blocks: 1, kind: Kind::Memory { slab: 5, first_block: 0 } };
    rig.responder.add_region(RKEY + 1, &other).unwrap();
    let mut regions = rig.responder.regions().unwrap();
    regions.sort_by_key(|(rkey, _)| *rkey);
    assert_eq!(regions, [(RKEY, region()), (RKEY + 1, other)]);
    rig.responder.remove_region(RKEY).unwrap();
    assert_eq!(rig.run(Side::Xdp, &Ask::v4().frame()), Outcome::Drop(Exit::Rkey));
    assert!(matches!(rig.responder.remove_region(RKEY), Err(Error::Bpf { .. })));
    rig.responder.add_region(RKEY, &Region { blocks: 1, ..region() }).unwrap();
    assert_eq!(rig.run(Side::Xdp, &Ask::v4().at(1024, 8).frame()), Outcome::Drop(Exit::Range));
}

#[test]
fn entries_that_point_nowhere_are_harmless() {
    let rig = Rig::new(&unlimited(PORT));
    for kind in [
        Kind::Memory { slab: 6, first_block: 0 },
        Kind::Memory { slab: 5, first_block: SLAB_BLOCKS },
        Kind::Memory { slab: 5, first_block: u32::MAX - 8 },
    ] {
        rig.responder.add_region(RKEY, &Region { va: VA, blocks: 1, kind }).unwrap();
        for length in [8, 1024] {
            assert_eq!(rig.run(Side::Tc, &Ask::v4().at(0, length).frame()), Outcome::Drop(Exit::Slab), "{kind:?}");
        }
    }
    rig.responder.add_region(RKEY, &region()).unwrap();
    rig.responder.remove_slab(5).unwrap();
    assert_eq!(rig.run(Side::Tc, &Ask::v4().frame()), Outcome::Drop(Exit::Slab));
}

#[test]
fn slabs_of_different_length_stand_side_by_side() {
    let rig = Rig::new(&unlimited(PORT));
    let slab = rig.responder.create_slab(63, 1024).unwrap();
    let last = SlabMapping::of(&slab, 1020, 4, true).unwrap();
    last.words()[511].store(42, Ordering::Relaxed);
    rig.responder
        .add_region(9, &Region { va: 0, blocks: 1024, kind: Kind::Memory { slab: 63, first_block: 0 } })
        .unwrap();
    let mut ask = Ask::v6().rkey(9);
    ask.request.va = 1024 * 1024 - 8;
    ask.request.length_bytes = 8;
    let Outcome::Answer(answer) = rig.run(Side::Tc, &ask.frame()) else { panic!() };
    assert_eq!(answer[78..86], 42u64.to_le_bytes());
    assert!(matches!(SlabMapping::of(&slab, 1020, 8, false), Err(Error::System { operation: "mmap", .. })));
    assert!(matches!(SlabMapping::of(&slab, 1, 4, false), Err(Error::Limit { .. })));
    assert!(matches!(SlabMapping::of(&slab, 0, 0, false), Err(Error::Limit { .. })));
    for (index, blocks) in [(64, 4), (0, 0), (0, 5), (0, (1 << 20) + 4)] {
        assert!(matches!(rig.responder.create_slab(index, blocks), Err(Error::Limit { .. })), "{index} {blocks}");
    }
}
