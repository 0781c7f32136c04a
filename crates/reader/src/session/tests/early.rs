// SPDX-License-Identifier: Apache-2.0
//! The header and the agent's own regions in one batch.

use super::silence::{over_kernel, silent_for};
use super::*;
use onlooker_region::control::RESPONDER_KERNEL;

/// A host with two regions of its agent's, and a reader that has read it once.
fn known() -> (Host, [Region; 2], Reading) {
    let mut host = Host::new(64);
    host.responders = RESPONDER_KERNEL;
    let own = [host.region(1, "one", &[], GUARDED), host.region(2, "two", &[], GUARDED)];
    let mut reading = over_kernel(&host);
    reading.session.rest();
    reading.read().unwrap();
    (host, own, reading)
}

/// Round trips of a reading, and what it brings.
fn read(reading: &mut Reading) -> (u32, String) {
    let before = reading.direct.polls;
    reading.read().unwrap();
    (reading.direct.polls - before, reading.lines().join(", "))
}

fn write(region: &Region, value: u64) {
    commit(region.words.block(0), region.entry.identity, 5, |p| p.set(0, value));
}

#[test]
fn a_host_without_programs_takes_one_round_trip_and_one_with_them_two() {
    let (mut host, own, mut reading) = known();
    own.iter().for_each(|region| write(region, 3));
    assert_eq!(read(&mut reading), (1, "one.g 3, two.g 3".into()));
    let program = host.region(300, "shop", &[], GUARDED);
    write(&program, 4);
    // The header tells of another entry block, which is read, and then the program's region; the schema is known.
    assert_eq!(read(&mut reading), (3, "one.g 3, two.g 3, shop.g 4".into()));
    own.iter().for_each(|region| write(region, 5));
    assert_eq!(read(&mut reading), (2, "one.g 5, two.g 5, shop.g 4".into()));
    let blocks = reading.session.counters().blocks;
    reading.read().unwrap();
    assert_eq!(reading.session.counters().blocks - blocks, 4, "the header and three regions, each once");
}

#[test]
fn a_region_that_was_replaced_once_waits_for_the_header() {
    let (mut host, own, mut reading) = known();
    host.control.remove(own[0].slot, 9);
    host.memory.remove(own[0].entry.rkey);
    let next = host.region(3, "one", &[], GUARDED);
    write(&next, 7);
    let begin_ns = reading.direct.now_ns.load(Ordering::Relaxed);
    // In this reading the old one has gone, and its answer is waited for.
    reading.direct.silent_for = Some((own[0].entry.rkey, Arc::default()));
    reading.read().unwrap();
    let took_ns = reading.direct.now_ns.load(Ordering::Relaxed) - begin_ns;
    assert!((200_000_000..400_000_000).contains(&took_ns), "{took_ns}");
    assert_eq!(reading.lines(), ["one.g 7", "two.g 0"]);
    let asked = silent_for(&mut reading, next.entry.rkey);
    host.control.remove(next.slot, 9);
    let last = host.region(4, "one", &[], GUARDED);
    write(&last, 8);
    assert_eq!(read(&mut reading), (3, "one.g 8, two.g 0".into()));
    assert_eq!(asked.load(Ordering::Relaxed), 0, "the header said first that it has gone");
}

#[test]
fn what_came_damaged_or_torn_is_read_once_more() {
    let (_host, own, mut reading) = known();
    write(&own[0], 3);
    let word = &own[0].words.block(0)[60];
    word.fetch_xor(1, Ordering::Relaxed);
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["two.g 0"]);
    let frame = reading.session.frames().find(|frame| frame.entry().name == "one").unwrap();
    assert_eq!(frame.refused()[0].reject, Reject::Crc);
    word.fetch_xor(1, Ordering::Relaxed);
    assert_eq!(read(&mut reading), (1, "one.g 3, two.g 0".into()));
}

#[test]
fn without_a_header_nothing_is_told() {
    let (_host, _, mut reading) = known();
    silent_for(&mut reading, CONTROL_RKEY);
    assert_eq!(reading.read(), Err(DriveError::Read(ReadError::Timeout)));
    assert_eq!(reading.session.frames().count(), 0);
    reading.direct.silent_for = None;
    assert_eq!(read(&mut reading), (1, "one.g 0, two.g 0".into()));
}
