// SPDX-License-Identifier: Apache-2.0
use onlooker_framestore::layout::{Layout, Part};
use onlooker_framestore::store::{self, Config};
use onlooker_framestore::types::Line;

use super::*;

/// The store's disk takes nothing for a while: one host's rows are refused, and another's are not.
#[test]
fn a_host_that_fills_the_ring_leaves_room_for_the_others() {
    const RING_BYTES: u64 = 1 << 20;
    const WORDS: usize = 100;
    let dir = tempfile::tempdir().unwrap();
    let (data, ring) = (dir.path().join("store"), dir.path().join("hot"));
    let config = Config::keeping_all(data, ring, RING_BYTES, 64 << 20);
    let (_store, mut writer, mut appender, _) = store::open(config).unwrap();
    let track = {
        let part = Part::new("shop", 0, Vec::new()).shared();
        let (host, layout) = ("a".to_owned(), Arc::new(Layout::new(vec![part], false)));
        let (common, region, texts) = Default::default();
        appender.track(&Description { host, common, source: 0, region, layout, texts }, 1).unwrap()
    };
    let mut time_ns = 0;
    let mut admitted = |share: &mut Share, appender: &mut Appender| {
        let mut rows = 0;
        while share.admits(WORDS, appender) {
            time_ns += 1;
            appender.append(track, Line::ONLY, time_ns, &[0; WORDS]).unwrap();
            rows += 1;
        }
        rows * WORDS as u64 * 8
    };
    let (mut one, mut other, mut third) = (Share::default(), Share::default(), Share::default());
    let first = admitted(&mut one, &mut appender);
    assert!((RING_BYTES / 3..=RING_BYTES / 2).contains(&first), "{first}");
    for share in [&mut other, &mut third] {
        let bytes = admitted(share, &mut appender);
        assert!((RING_BYTES / 64 - 1_000..=RING_BYTES / 64).contains(&bytes), "{bytes}");
    }
    assert!(!one.admits(WORDS, &appender));
    writer.turn().unwrap();
    assert!(one.admits(WORDS, &appender), "the ring has room again");
}
