// SPDX-License-Identifier: Apache-2.0
//! Sessions that have their schemas in common, and hosts that make use of that.

use super::*;
use crate::SchemaCache;
use onlooker_region::SchemaId;
use onlooker_region::columns::Plan;
use onlooker_region::control::SchemaEntry;

fn sharing(host: &Host, limits: Limits, schemas: &Arc<SchemaCache>) -> Reading {
    let mut reading = Reading::of(host, limits);
    reading.session.share(schemas);
    reading
}

fn read_sharing(host: &Host, schemas: &Arc<SchemaCache>) -> Reading {
    let mut reading = sharing(host, Limits::default(), schemas);
    reading.read().unwrap();
    reading
}

/// Counts READs of schemas' texts from now on.
fn count_texts(host: &Host) -> Arc<Counter> {
    let header = read_once(host).session.directory().last_header().unwrap().clone();
    let (texts, asked) = (CONTROL_VA + u64::from(header.schema_first) * 1024, Arc::new(Counter::new(0)));
    let counting = asked.clone();
    host.memory.hook(move |_, read| {
        counting.fetch_add(u64::from(read.rkey == CONTROL_RKEY && read.va >= texts), Ordering::Relaxed);
        None
    });
    asked
}

fn plans(reading: &Reading) -> Vec<Arc<Plan>> {
    reading.session.frames().map(|frame| frame.plan().unwrap().clone()).collect()
}

fn text(json: &str) -> String {
    Schema::parse(json).unwrap().canonical()
}

/// The host's entry of a schema says something else from now on.
fn claim(host: &mut Host, json: &str, change: impl FnOnce(&mut SchemaEntry)) {
    let id = SchemaId::of(&text(json));
    let reading = read_once(host);
    let entries = reading.session.directory().entries();
    let is_it = |entry: &Entry| matches!(entry, Entry::Schema(schema) if schema.id == id);
    let slot = entries.iter().position(is_it).unwrap();
    let Entry::Schema(mut schema) = entries[slot].clone() else { unreachable!("found as one") };
    change(&mut schema);
    host.control.replace(slot, &Entry::Schema(schema), 9).unwrap();
}

#[test]
fn a_schema_is_read_of_one_host_and_serves_all() {
    let (one, ..) = shop();
    let (mut other, ..) = shop();
    let asked = [count_texts(&one), count_texts(&other)];
    let schemas = Arc::new(SchemaCache::default());
    let first = read_sharing(&one, &schemas);
    let mut second = read_sharing(&other, &schemas);
    assert_eq!((first.lines(), second.lines()), (vec!["shop.a_total 42".into(), "node.g 7".into()], first.lines()));
    let (of_first, of_second) = (plans(&first), plans(&second));
    assert_eq!((of_first.len(), of_second.len()), (2, 2));
    assert!(of_first.iter().zip(&of_second).all(|(a, b)| Arc::ptr_eq(a, b)));
    let texts = || asked.each_ref().map(|asked| asked.load(Ordering::Relaxed));
    assert!(texts()[0] > 0);
    assert_eq!(texts()[1], 0, "a known text is not READ");
    // What is new is READ, and nothing else.
    other.region(3, "cpu", &[], TWIN);
    second.read().unwrap();
    assert_eq!((second.lines().len(), texts()[1], schemas.in_use()), (3, 1, 3));
    // Who has a cache of their own asks for themselves.
    assert!(!Arc::ptr_eq(&plans(&read_once(&other))[0], &of_second[0]));
}

#[test]
fn what_no_session_has_is_forgotten() {
    let (mut host, plain, _) = shop();
    let schemas = Arc::new(SchemaCache::default());
    let (mut one, other) = (read_sharing(&host, &schemas), read_sharing(&host, &schemas));
    assert_eq!(schemas.in_use(), 2);
    drop(other);
    host.control.remove(plain.slot, 9);
    one.read().unwrap();
    assert_eq!(schemas.in_use(), 1, "the host refers to one of them only");
    // Frames that were taken out have theirs as long as they are there.
    let mut frames = Frames::default();
    one.session.take(&mut frames);
    drop(one);
    assert_eq!(schemas.in_use(), 1);
    drop(frames);
    assert_eq!(schemas.in_use(), 0);
    let asked = count_texts(&host);
    assert_eq!(read_sharing(&host, &schemas).lines(), ["node.g 7"]);
    assert_eq!(asked.load(Ordering::Relaxed), 1, "it is READ anew");
}

#[test]
fn an_entry_of_another_length_is_refused_as_its_text_would_be() {
    let (good, ..) = shop();
    let changes: [fn(u64) -> u64; 5] = [|bytes| bytes - 1, |bytes| bytes + 1, |_| 0, |_| 100 * 1024, |_| u64::MAX];
    for change in changes {
        let (mut liar, ..) = shop();
        claim(&mut liar, PLAIN, |schema| schema.bytes = change(schema.bytes));
        let schemas = Arc::new(SchemaCache::default());
        let alone = read_sharing(&liar, &schemas);
        let keeper = read_sharing(&good, &schemas);
        let beside = read_sharing(&liar, &schemas);
        for reading in [&alone, &beside] {
            assert_eq!(reading.lines(), ["node.g 7"]);
            let problem = reading.session.frames().next().unwrap().problem().cloned();
            assert!(matches!(problem, Some(Problem::Schema(_))), "{problem:?}");
        }
        assert_eq!((keeper.lines().len(), schemas.in_use()), (2, 2));
    }
}

#[test]
fn entries_are_looked_at_before_the_cache() {
    let (good, ..) = shop();
    let schemas = Arc::new(SchemaCache::default());
    let _keeper = read_sharing(&good, &schemas);
    type Change = fn(&mut SchemaEntry);
    let changes: [(Change, &str); 2] = [
        (|schema| schema.va = 7 << 40, "outside of the control region"),
        (|schema| schema.responders = 0, "is not served by the tcp responder"),
    ];
    for (change, expected) in changes {
        let (mut liar, ..) = shop();
        claim(&mut liar, PLAIN, change);
        let reading = read_sharing(&liar, &schemas);
        let problem = reading.session.frames().next().unwrap().problem().unwrap().to_string();
        assert!(problem.contains(expected), "{problem}");
        assert_eq!(reading.lines(), ["node.g 7"]);
    }
}

#[test]
fn no_host_puts_its_text_in_the_place_of_anothers() {
    let (evil, ..) = shop();
    let first = read_once(&evil).session.directory().last_header().unwrap().schema_first;
    // The first schema's text with its field under another name, a whole schema and a valid guard.
    let other = text(&PLAIN.replace("a_total", "b_total"));
    assert_eq!(other.len(), text(PLAIN).len());
    let me = Identity { region: 0, generation: INCARNATION, index: u16::try_from(first).unwrap() };
    commit(evil.control_words.block(first as usize), me, 3, |payload| {
        for (at, bytes) in other.as_bytes().chunks(8).enumerate() {
            payload.set(at, u64::from_le_bytes(std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0))));
        }
    });
    let schemas = Arc::new(SchemaCache::default());
    let reading = read_sharing(&evil, &schemas);
    let problem = reading.session.frames().next().unwrap().problem().unwrap().to_string();
    assert!(problem.contains("does not hash to its id"), "{problem}");
    assert_eq!((reading.lines(), schemas.in_use()), (vec!["node.g 7".to_owned()], 1));
    let (good, ..) = shop();
    assert_eq!(read_sharing(&good, &schemas).lines(), ["shop.a_total 42", "node.g 7"]);
}

#[test]
fn limits_are_the_same_whatever_others_have() {
    let host = {
        let mut host = Host::new(64);
        host.region(300, "program", &[], PLAIN);
        host.region(301, "other", &[], TWIN);
        host.region(1, "node", &[], GUARDED);
        host
    };
    let schemas = Arc::new(SchemaCache::default());
    let _keeper = read_sharing(&host, &schemas);
    assert_eq!(schemas.in_use(), 3);
    let bytes = |json: &str| text(json).len() as u64;
    let schema_bytes = bytes(GUARDED) + bytes(PLAIN) + bytes(TWIN) - 1;
    // Three entry blocks, one schema and one region.
    let one = 3 * 1024 + bytes(GUARDED) * Limits::SCHEMA_COST + 1024 + 1024;
    for limits in [Limits { schema_bytes, ..Limits::default() }, Limits { bytes: one, ..Limits::default() }] {
        let (mut alone, mut beside) = (Reading::of(&host, limits), sharing(&host, limits, &schemas));
        for _ in 0..3 {
            let told = [&mut alone, &mut beside].map(|reading| {
                reading.read().unwrap();
                let told = reading.session.frames();
                told.map(|frame| (frame.entry().name.clone(), frame.problem().cloned())).collect::<Vec<_>>()
            });
            assert_eq!(told[0], told[1]);
            assert!(told[0].iter().any(|(_, problem)| problem.is_some()), "{told:?}");
        }
    }
}
