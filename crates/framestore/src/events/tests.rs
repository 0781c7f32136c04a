// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::store::{Config, Writer, open};

type World = (Store, Writer, Appender);
type Events = Vec<(u64, Vec<u8>)>;

fn again(dir: &std::path::Path) -> World {
    let (data, ring) = (dir.join("store"), dir.join("ring"));
    let config = Config::keeping_all(data, ring, 4 << 20, 64 << 20);
    let (store, writer, appender, _) = open(config).unwrap();
    (store, writer, appender)
}

fn about(list: &str, bytes: usize) -> About {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let (common, labels) = (vec![pair("instance", "a")], vec![pair("list", list)]);
    About { host: "a".into(), common, source: 7, labels, bytes }
}

fn all(store: &Store, list: &List) -> Events {
    let mut events = Events::new();
    let damaged = store.events(list, 0, u64::MAX, |time_ns, payload| {
        events.push((time_ns, payload.to_vec()));
        ControlFlow::Continue(())
    });
    assert_eq!(damaged.unwrap(), []);
    events
}

/// Several at once, the same ones again and again, of any length: each counts, before and after kills.
#[test]
fn every_event_is_there_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = Some(again(dir.path()));
    let (mut drops, mut paths) = (Events::new(), Events::new());
    for at in 0..4_000u64 {
        let (store, writer, appender) = world.as_mut().unwrap();
        let of_drops = appender.list(&about("drops", 4), 1_000).unwrap();
        let of_paths = appender.list(&about("paths", MAX_BYTES), 1_000).unwrap();
        // Three have the same time.
        let time_ns = 1_000 + at / 3 * 1_000_000;
        let dropped = u32::try_from(at % 5).unwrap().to_le_bytes().to_vec();
        let path = vec![u8::try_from(at % 251).unwrap(); usize::try_from(at % 65).unwrap()];
        appender.event(&of_drops, time_ns, &dropped).unwrap();
        appender.event(&of_paths, time_ns, &path).unwrap();
        drops.push((time_ns, dropped));
        paths.push((time_ns, path));
        if at % 700 == 699 {
            writer.turn().unwrap();
            assert_eq!(all(store, &of_drops), drops);
            assert_eq!(all(store, &of_paths), paths);
        }
        if at % 1_500 == 1_499 {
            drop(world.take());
            world = Some(again(dir.path()));
        }
    }
    let (store, writer, appender) = world.as_mut().unwrap();
    writer.turn().unwrap();
    let list = appender.list(&about("paths", MAX_BYTES), 1_000).unwrap();
    assert_eq!(all(store, &list), paths);
    let mut first = None;
    let times = store.events(&list, 1_001, u64::MAX, |time_ns, payload| {
        first = Some((time_ns, payload.to_vec()));
        ControlFlow::Break(())
    });
    assert_eq!((times.unwrap(), first), (Vec::new(), Some(paths[3].clone())));
}

#[test]
fn what_is_too_long_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, _writer, mut appender) = again(dir.path());
    for bytes in [0, MAX_BYTES + 1, usize::MAX] {
        assert!(appender.list(&about("drops", bytes), 1).is_err());
    }
    let list = appender.list(&about("drops", 9), 1).unwrap();
    assert_eq!(appender.event(&list, 1, &[1; 17]), Err(Rejected::TooLong { bytes: 17, most: 16 }));
    appender.event(&list, 1, &[]).unwrap();
}
