// SPDX-License-Identifier: Apache-2.0
//! Whatever a host says, a cycle ends within its limits.

use super::*;

#[test]
fn endless_churn_ends() {
    let (mut host, plain, _) = shop();
    let (mut entry, slot) = (plain.entry.clone(), plain.slot);
    let memory = host.memory.clone();
    let answer_host = Host { memory: memory.clone(), control_words: host.control_words.clone(), ..Host::new(16) };
    // Each READ of the region finds it to be another one by now.
    memory.hook(move |_, read| {
        if read.rkey == 1_001 {
            entry.identity = Identity::first(1, entry.identity.generation + 1);
            entry.orphan = !entry.orphan;
            host.control.replace(slot, &Entry::Region(entry.clone()), 9).unwrap();
            plain.words.set(0, 0, entry.identity.at(0).word());
        }
        None
    });
    let reading = read_once(&answer_host);
    assert_eq!(reading.lines(), ["node.g 7"]);
    assert_eq!((reading.session.counters().rounds, reading.session.counters().refused["identity"]), (2, 2));
}

#[test]
fn the_byte_limit_holds() {
    let (host, ..) = shop();
    // Two entry blocks, both schemas and the first region of two blocks fit; the second one does not any more.
    let text = |json: &str| Schema::parse(json).unwrap().canonical().len() as u64 * Limits::SCHEMA_COST + 1024;
    let bytes = 2 * 1024 + text(PLAIN) + text(GUARDED) + 2 * 1024;
    let mut reading = Reading::of(&host, Limits { bytes, ..Limits::default() });
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["shop.a_total 42"]);
    let problems: Vec<_> = reading.session.frames().map(|frame| frame.problem().cloned()).collect();
    assert_eq!(problems, [None, Some(Problem::Limit(bytes))]);
    let mut reading = Reading::of(&host, Limits { bytes: 1024, ..Limits::default() });
    assert_eq!(reading.read(), Err(DriveError::Read(ReadError::Limit(1024))));
}

/// Programs' regions that stand before the agent's own in the directory.
fn crowded() -> Host {
    let mut host = Host::new(64);
    host.region(300, "program", &[], PLAIN);
    host.region(301, "other", &[], TWIN);
    host.region(1, "node", &[], GUARDED);
    host
}

#[test]
fn the_agents_own_regions_have_what_there_is_first() {
    let host = crowded();
    // Three entry blocks, one schema and one region.
    let text = Schema::parse(GUARDED).unwrap().canonical().len() as u64 * Limits::SCHEMA_COST + 1024;
    let mut reading = Reading::of(&host, Limits { bytes: 3 * 1024 + text + 1024, ..Limits::default() });
    reading.read().unwrap();
    let read: Vec<_> =
        reading.session.frames().map(|frame| (frame.entry().name.clone(), frame.problem().is_none())).collect();
    let expected = [("node", true), ("program", false), ("other", false)];
    assert_eq!(read, expected.map(|(name, is_read)| (name.to_owned(), is_read)));
}

#[test]
fn the_schemas_that_are_kept_are_bounded_over_all_cycles() {
    let host = crowded();
    let text = |json: &str| Schema::parse(json).unwrap().canonical().len() as u64;
    let schema_bytes = text(GUARDED) + text(PLAIN) + text(TWIN) - 1;
    let mut reading = Reading::of(&host, Limits { schema_bytes, ..Limits::default() });
    for _ in 0..3 {
        reading.read().unwrap();
        let problems: Vec<_> = reading.session.frames().filter_map(|frame| frame.problem().cloned()).collect();
        assert!(matches!(&problems[..], [Problem::Schema(why)] if why.contains("bytes of schemas")), "{problems:?}");
    }
}

#[test]
fn any_host_is_read_or_refused_within_its_limits() {
    bolero::check!().with_type::<(Vec<(u8, u8, u64)>, Vec<(u8, u8, u64)>, Vec<u8>)>().for_each(
        |(control, blocks, refusals)| {
            let (host, plain, guarded) = shop();
            for (index, slot, value) in control {
                let index = u16::from(*index % 12);
                let me = Identity { region: 0, generation: INCARNATION, index };
                commit(host.control_words.block(index.into()), me, 1, |p| p.set(usize::from(*slot) % 124, *value));
            }
            for (block, word, value) in blocks {
                let words = if block % 2 == 0 { &plain.words } else { &guarded.words };
                words.set(0, usize::from(*word) % 128, *value);
            }
            let refusals = refusals.clone();
            host.memory.hook(move |number, _| {
                match refusals.get(usize::try_from(number).unwrap() % (refusals.len() + 1)) {
                    Some(0) => Some(Refusal::Access),
                    Some(1) => Some(Refusal::Overloaded),
                    Some(2) => Some(Refusal::InvalidRequest),
                    _ => None,
                }
            });
            let limits = Limits { bytes: 4 << 20, ..Limits::default() };
            let mut reading = Reading::of(&host, limits);
            for _ in 0..2 {
                let _ = reading.read();
                assert!(reading.session.is_done());
                let _ = reading.lines();
            }
            assert!(reading.session.counters().blocks * 1024 <= 2 * (limits.bytes + 8 * 3 * 1024));
        },
    );
}
