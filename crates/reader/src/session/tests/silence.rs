// SPDX-License-Identifier: Apache-2.0
//! Hosts that do not answer, or not for some of their regions.

use super::*;

#[test]
fn a_silent_host_ends_at_the_deadline() {
    let (host, ..) = shop();
    let mut reading = Reading::of(&host, Limits::default());
    reading.direct.silent = true;
    assert_eq!(reading.read(), Err(DriveError::Read(ReadError::Timeout)));
    let waited_ns = reading.direct.now_ns.load(Ordering::Relaxed);
    assert!((1_000_000_000..1_200_000_000).contains(&waited_ns), "{waited_ns}");
}

/// Silent for READs of `rkey`, as a kernel responder is for what it does not know.
pub(super) fn silent_for(reading: &mut Reading, rkey: u32) -> Arc<Counter> {
    let asked = Arc::new(Counter::new(0));
    reading.direct.silent_for = Some((rkey, asked.clone()));
    asked
}

pub(super) fn over_kernel(host: &Host) -> Reading {
    let mut reading = Reading::of(host, Limits::default());
    reading.session = Session::new(&host.answer(1), Via::Kernel, 64, Limits::default());
    reading
}

#[test]
fn silence_about_one_region_costs_a_quarter_of_a_second_and_then_rest() {
    let mut host = Host::new(64);
    host.responders = onlooker_region::control::RESPONDER_KERNEL;
    host.region(1, "good", &[], GUARDED);
    let dumb = host.region(2, "dumb", &[], GUARDED);
    let mut reading = over_kernel(&host);
    let asked = silent_for(&mut reading, dumb.entry.rkey);
    let (clock, count) = (reading.direct.now_ns.clone(), || asked.load(Ordering::Relaxed));
    let problem = |reading: &Reading| reading.session.frames().nth(1).unwrap().problem().cloned();
    let begin_ns = clock.load(Ordering::Relaxed);
    reading.read().unwrap();
    let took_ns = clock.load(Ordering::Relaxed) - begin_ns;
    assert!((200_000_000..400_000_000).contains(&took_ns), "{took_ns}");
    assert_eq!((problem(&reading), count()), (Some(Problem::Read(Outcome::Timeout)), 1));
    assert_eq!(reading.session.counters().rounds, 1, "the directory was looked at again: it might have been stale");
    let begin_ns = clock.load(Ordering::Relaxed);
    reading.read().unwrap();
    assert_eq!((problem(&reading), count()), (Some(Problem::Silent), 1));
    assert!(clock.load(Ordering::Relaxed) - begin_ns < 1_000_000, "nothing was waited for");
    assert_eq!(reading.lines(), ["good.g 0"]);
    clock.fetch_add(1_000_000_000, Ordering::Relaxed);
    reading.direct.silent_for = None;
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["good.g 0", "dumb.g 0"]);
}

#[test]
fn a_region_that_moved_is_found_after_silence() {
    let mut host = Host::new(64);
    host.responders = onlooker_region::control::RESPONDER_KERNEL;
    let moved = host.region(1, "moved", &[], GUARDED);
    let mut reading = over_kernel(&host);
    silent_for(&mut reading, moved.entry.rkey);
    reading.read().unwrap();
    host.memory.insert(77, moved.entry.va, moved.words.clone());
    let entry = RegionEntry { rkey: 77, ..moved.entry.clone() };
    host.control.replace(moved.slot, &Entry::Region(entry), 9).unwrap();
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["moved.g 0"]);
}

#[test]
fn silence_about_the_directory_ends_soon_and_asks_for_a_bootstrap() {
    let host = Host::new(64);
    let mut reading = over_kernel(&host);
    silent_for(&mut reading, CONTROL_RKEY);
    let begin_ns = reading.direct.now_ns.load(Ordering::Relaxed);
    assert_eq!(reading.read(), Err(DriveError::Read(ReadError::Timeout)));
    assert!(reading.direct.now_ns.load(Ordering::Relaxed) - begin_ns < 400_000_000);
}
