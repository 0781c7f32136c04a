// SPDX-License-Identifier: Apache-2.0
use super::described::of_columns;
use super::*;

const COLUMNS: usize = 20;

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    onlooker_testbed::until(what, || is_so().then_some(()));
}

fn ask(tracks: &Tracks, tag: u64) {
    ask_of(tracks, "host", tag);
}

fn ask_of(tracks: &Tracks, host: &str, tag: u64) {
    let entity = onlooker_series::series::EntityKey { region: tag, group: 0, row: None };
    tracks.define(tag, Description { entity, ..of_columns(host, COLUMNS) }, 1_000_000_000);
}

#[test]
fn tracks_without_hot_memory_hold_up_no_rows_and_get_theirs_when_there_is_some() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        dir: dir.path().join("log"),
        hot: dir.path().join("hot"),
        hot_bytes: 1 << 16,
        tile_rows: 64,
        segment_bytes: 1 << 16,
        max_bytes: 1 << 30,
    };
    let said = Arc::new(Mutex::new(Vec::new()));
    let (keeper, tracks, _) = Keeper::start(config, {
        let said = said.clone();
        move |text: &str| lock(&said).push(text.to_owned())
    })
    .unwrap();
    let counters = keeper.counters();
    let waiting_tracks = || counters.waiting_tracks.load(Ordering::Relaxed);

    (0..100).for_each(|tag| ask(&tracks, tag));
    let (mut made, mut waits) = (Vec::new(), Vec::new());
    until("each is made or waits", || {
        made.extend(tracks.made());
        waits.extend(tracks.waits());
        made.len() + waits.len() == 100
    });
    assert!(made.len() > 10 && waits.len() > 10, "{} made", made.len());
    until("they are counted", || waiting_tracks() == waits.len() as u64);

    // Rings of eight rows: more rows only find room once those before them are durable.
    for row in 1..=24 {
        for Made { appender, .. } in &mut made {
            until("rows are sealed while others wait", || appender.append(row, &[row; COLUMNS]).is_ok());
        }
    }
    until("all are sealed", || counters.rows.load(Ordering::Relaxed) == 24 * made.len() as u64);
    assert_eq!(lock(&said).len(), 1, "told once: {:?}", lock(&said));

    let nobody_s = waits.pop().unwrap();
    tracks.cancel(nobody_s);
    until("who cancels is told", || tracks.waits() == Some(nobody_s));
    until("it is not counted any more", || waiting_tracks() == waits.len() as u64);

    let had = made.len();
    tracks.retire(made.drain(..).map(|made| (made.track, made.appender)).collect());
    until("others have what is free now", || {
        made.extend(tracks.made());
        made.len() == waits.len().min(had)
    });
    assert!(made.iter().all(|made| waits.contains(&made.tag)));
    until("nobody waits who has", || waiting_tracks() == (waits.len() - made.len()) as u64);
}

#[test]
fn hosts_that_take_all_they_can_leave_room_for_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        dir: dir.path().join("log"),
        hot: dir.path().join("hot"),
        hot_bytes: 1 << 20,
        tile_rows: 64,
        segment_bytes: 1 << 16,
        max_bytes: 1 << 30,
    };
    let (keeper, tracks, _) = Keeper::start(config, |_: &str| {}).unwrap();
    let mut made = BTreeMap::new();
    // Of one and then the next, as much as a quota of a quarter lets each.
    for host in 0..5 {
        (0..150).for_each(|tag| ask_of(&tracks, &format!("hostile-{host}"), host * 1000 + tag));
    }
    (0..4).for_each(|tag| ask_of(&tracks, "honest", 10_000 + tag));
    let mut waits = 0;
    until("each is made or waits", || {
        std::iter::from_fn(|| tracks.made()).for_each(|one| drop(made.insert(one.tag, one)));
        waits += std::iter::from_fn(|| tracks.waits()).count();
        made.len() + waits == 754
    });
    assert!(waits > 0, "it is scarce");
    assert!((0..4).all(|tag| made.contains_key(&(10_000 + tag))), "honest tracks are among those that wait");
    drop(keeper);
}
