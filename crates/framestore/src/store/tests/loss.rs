// SPDX-License-Identifier: Apache-2.0
//! What cuts and flipped bits cost, and where it is told.

use super::*;

/// What a disk does to files: everything that is left is right, what is not is in a gap, and tracks of other hosts lose nothing to what is not theirs.
#[test]
fn cuts_and_flips_lose_what_they_hit_and_make_gaps() {
    for seed in 0..12u64 {
        let mut world = World::new();
        let rows = 2_500;
        for at in 0..rows {
            let track = world.appender().track(&description("a", false), row(0).1[0]).unwrap();
            let (time_ns, words) = row(at);
            world.appender().append(track, Line::ONLY, time_ns, &words).unwrap();
            if at % 300 == 299 {
                world.turn();
            }
        }
        (0..3).for_each(|_| {
            world.turn();
        });
        world.open = None;
        let mut files: Vec<_> = ["warm", "wal", "catalogue"]
            .iter()
            .flat_map(|name| fs::read_dir(world.dir.path().join("store").join(name)).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|path| fs::metadata(path).unwrap().len() > 0)
            .collect();
        files.sort();
        let number = usize::try_from(seed).unwrap();
        let path = &files[number % files.len()];
        let mut bytes = fs::read(path).unwrap();
        let at = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % bytes.len();
        if seed % 2 == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << (seed % 8);
        }
        fs::write(path, &bytes).unwrap();
        world.again();
        // What comes next tells until when rows are lost.
        let track = world.appender().track(&description("a", false), row(0).1[0]).unwrap();
        let (time_ns, words) = row(rows);
        world.appender().append(track, Line::ONLY, time_ns, &words).unwrap();
        world.turn();
        let (all, right) = (world.all("a"), expected(rows + 1, "a"));
        let name = "cpu_total{instance=\"a\"}";
        let columns = world.store().series_of("a").into_iter().next().unwrap().columns;
        let gaps = world.store().gaps(&columns, 0, u64::MAX);
        let empty = Vec::new();
        let found = all.get(name).unwrap_or(&empty);
        for sample in found {
            assert!(right[name].contains(sample), "{seed}: {sample:?} of {}", path.display());
        }
        let in_gap = |time_ns: u64| gaps.iter().any(|gap| gap.from_ns <= time_ns && time_ns <= gap.to_ns);
        let lost: Vec<u64> = right[name]
            .iter()
            .map(|(time_ns, _)| *time_ns)
            .filter(|time_ns| !found.iter().any(|(there, _)| there == time_ns))
            .collect();
        let bare = lost.iter().filter(|time_ns| !in_gap(**time_ns)).count();
        assert_eq!(bare, 0, "{seed}: of {} lost samples, {}", lost.len(), path.display());
    }
}

/// Tracks that have rows behind what is lost, that have none, and that began later.
#[test]
fn what_an_ended_file_of_chunks_has_lost_is_in_gaps_of_its_tracks() {
    for cut in [0, 40] {
        let mut world = World::new();
        let append = |world: &mut World, hosts: [&str; 2], rows: std::ops::Range<u64>| {
            for at in rows {
                for host in hosts {
                    let (time_ns, words) = row(at);
                    let track = world.appender().track(&description(host, false), words[0]).unwrap();
                    world.appender().append(track, Line::ONLY, time_ns, &words).unwrap();
                }
                if at % 300 == 299 {
                    world.turn();
                }
            }
            world.turn();
            world.turn();
        };
        append(&mut world, ["a", "b"], 0..900);
        world.again();
        append(&mut world, ["a", "c"], 900..2_100);
        let right = ["a", "b", "c"].map(|host| world.all(host));
        world.open = None;
        let path = world.dir.path().join("store/warm/raw-0000000001.chunks");
        fs::write(&path, &fs::read(&path).unwrap()[..cut]).unwrap();
        world.again();
        for (host, right) in ["a", "b", "c"].into_iter().zip(right) {
            let left = world.all(host);
            let columns = world.store().series_of(host).into_iter().next().unwrap().columns;
            let gaps = world.store().gaps(&columns, 0, u64::MAX);
            let mut lost = 0;
            for (series, samples) in right {
                for (time_ns, words) in samples {
                    let is_left = left.get(&series).is_some_and(|left| left.contains(&(time_ns, words.clone())));
                    lost += u64::from(!is_left);
                    let is_right = |gap: &Gap| {
                        let is_inside = gap.from_ns < time_ns && time_ns < gap.to_ns;
                        if is_left { !is_inside } else { gap.from_ns <= time_ns && time_ns <= gap.to_ns }
                    };
                    let is_told = if is_left { gaps.iter().all(is_right) } else { gaps.iter().any(is_right) };
                    assert!(is_told, "{host}: {series} at {time_ns}, {gaps:?}");
                }
            }
            assert_eq!(lost > 0, host != "c", "{host}");
        }
    }
}
