// SPDX-License-Identifier: Apache-2.0
//! Sessions with a copy of the control region, which is right, late, torn, or stopped.

use super::*;
use std::collections::BTreeSet;

/// A copy; its blocks change when a test says that the host's device has written them.
#[derive(Clone)]
struct Copied(memory::Shared);

impl Mirror for Copied {
    fn copy(&self, first_block: u32, to: &mut [Block]) {
        for (index, block) in (first_block as usize..).zip(to) {
            block.copy_from(self.0.block(index));
        }
    }
}

const BLOCKS: usize = 64;

impl Copied {
    fn write(&self, host: &Host, blocks: impl IntoIterator<Item = usize>) {
        for index in blocks {
            for (to, from) in self.0.block(index).iter().zip(host.control_words.block(index)) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    fn write_all(&self, host: &Host) {
        self.write(host, (1..BLOCKS).chain([0]));
    }
}

/// A reading with a copy, after its first cycle; and how often the host's control region is READ from then on.
fn mirrored(host: &Host) -> (Reading, Copied, Arc<Counter>) {
    let copied = Copied(memory::Shared::new(BLOCKS));
    copied.write_all(host);
    let mut reading = Reading::of(host, Limits::default());
    reading.session.mirror(Box::new(copied.clone()));
    let asked = Arc::new(Counter::new(0));
    let counting = asked.clone();
    host.memory.hook(move |_, read| {
        counting.fetch_add(u64::from(read.rkey == CONTROL_RKEY), Ordering::Relaxed);
        None
    });
    reading.read().unwrap();
    assert!(asked.swap(0, Ordering::Relaxed) > 1, "at first the host is asked for all");
    assert_eq!(reading.session.counters().mirror_used, 0);
    (reading, copied, asked)
}

fn fell_back(reading: &Reading) -> Vec<(&'static str, u64)> {
    reading.session.counters().mirror_fell_back.iter().map(|(why, count)| (*why, *count)).collect()
}

fn orphaned(region: &Region) -> Entry {
    Entry::Region(RegionEntry { orphan: true, ..region.entry.clone() })
}

fn orphans(reading: &Reading) -> Vec<&str> {
    reading.session.directory().regions().filter(|entry| entry.orphan).map(|entry| entry.name.as_str()).collect()
}

#[test]
fn a_region_that_is_new_in_the_copy_is_read_without_reads_of_the_directory() {
    let (mut host, ..) = shop();
    let (mut reading, copied, asked) = mirrored(&host);
    let third = host.region(3, "third", &[], GUARDED);
    copied.write(&host, [3, 0]);
    let reads = reading.session.counters().reads;
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["shop.a_total 42", "node.g 7", "third.g 0"]);
    assert_eq!(reading.session.counters().reads - reads, 3, "one for each region");
    // With a schema that is new, too.
    host.region(4, "fourth", &[], TWIN);
    copied.write_all(&host);
    reading.read().unwrap();
    assert_eq!(reading.lines()[3], "fourth.c 0");
    host.control.remove(third.slot, 9);
    copied.write(&host, [3, 0]);
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["shop.a_total 42", "node.g 7", "fourth.c 0"]);
    reading.read().unwrap();
    assert_eq!((asked.load(Ordering::Relaxed), fell_back(&reading)), (0, vec![]));
    assert_eq!((reading.session.counters().mirror_used, reading.session.counters().rounds), (4, 0));
}

#[test]
fn a_copy_that_has_stopped_is_noticed_within_a_second() {
    let (mut host, plain, _) = shop();
    let (mut reading, copied, asked) = mirrored(&host);
    host.region(3, "third", &[], GUARDED);
    reading.read().unwrap();
    assert_eq!((reading.lines().len(), asked.load(Ordering::Relaxed)), (2, 0), "nobody has told");
    reading.direct.now_ns.fetch_add(MIRROR_CHECK_NS - 1, Ordering::Relaxed);
    reading.read().unwrap();
    assert_eq!((reading.lines().len(), asked.load(Ordering::Relaxed)), (2, 0));
    reading.direct.now_ns.fetch_add(1, Ordering::Relaxed);
    reading.read().unwrap();
    assert_eq!((reading.lines().len(), asked.swap(0, Ordering::Relaxed)), (3, 2), "header and entry block");
    // From now on the copy is older than what is known.
    host.control.replace(plain.slot, &orphaned(&plain), 9).unwrap();
    reading.read().unwrap();
    assert_eq!((orphans(&reading), asked.swap(0, Ordering::Relaxed)), (vec!["shop"], 2));
    assert_eq!(fell_back(&reading), [("old", 1)]);
    // And when it goes on it is of use again.
    copied.write_all(&host);
    reading.read().unwrap();
    assert_eq!((asked.load(Ordering::Relaxed), fell_back(&reading)), (0, vec![("old", 1)]));
}

#[test]
fn an_entry_block_that_is_older_than_the_header_is_read_from_the_host() {
    let (mut host, plain, guarded) = shop();
    let (mut reading, copied, asked) = mirrored(&host);
    // The header alone.
    host.control.replace(plain.slot, &orphaned(&plain), 9).unwrap();
    copied.write(&host, [0]);
    reading.read().unwrap();
    assert_eq!((orphans(&reading), asked.swap(0, Ordering::Relaxed)), (vec!["shop"], 1));
    // The first of two commits.
    host.control.replace(guarded.slot, &orphaned(&guarded), 9).unwrap();
    copied.write(&host, [2]);
    host.control.replace(guarded.slot, &Entry::Region(guarded.entry.clone()), 9).unwrap();
    copied.write(&host, [0]);
    reading.read().unwrap();
    assert_eq!((orphans(&reading), asked.swap(0, Ordering::Relaxed)), (vec!["shop"], 1));
    // Of a block that was never seen it could be the first, too.
    host.region(3, "third", &[], GUARDED);
    copied.write(&host, [3]);
    host.region(4, "fourth", &[], GUARDED);
    copied.write(&host, [0]);
    reading.read().unwrap();
    assert_eq!(reading.lines()[2..], ["third.g 0", "fourth.g 0"]);
    assert_eq!((asked.load(Ordering::Relaxed), fell_back(&reading)), (1, vec![("stale", 2), ("unseen", 1)]));
    assert_eq!(reading.session.counters().mirror_used, 3);
}

#[test]
fn one_newer_than_the_header_is_as_good() {
    let (mut host, plain, _) = shop();
    let (mut reading, copied, asked) = mirrored(&host);
    host.control.replace(plain.slot, &Entry::Region(plain.entry.clone()), 9).unwrap();
    copied.write(&host, [0]);
    host.control.replace(plain.slot, &orphaned(&plain), 9).unwrap();
    copied.write(&host, [1]);
    reading.read().unwrap();
    assert_eq!((orphans(&reading), asked.swap(0, Ordering::Relaxed)), (vec!["shop"], 0));
    // The ring names it again; that there is nothing new the copy cannot say.
    copied.write(&host, [0]);
    reading.read().unwrap();
    assert_eq!((orphans(&reading), asked.load(Ordering::Relaxed)), (vec!["shop"], 1));
}

type Damage = &'static dyn Fn(&Copied);

#[test]
fn a_header_that_is_torn_or_anothers_is_read_from_the_host() {
    fn header(generation: u32) -> Identity {
        Identity::first(0, generation)
    }
    let damages: [(&str, Damage); 7] = [
        ("crc", &|copied| copied.0.set(0, 5, 99)),
        ("busy", &|copied| copied.0.set(0, 0, 3)),
        ("unwritten", &|copied| copied.0.block(0).iter().for_each(|word| word.store(0, Ordering::Relaxed))),
        ("version", &|copied| copied.0.set(0, 127, 0)),
        ("identity", &|copied| commit(copied.0.block(0), header(INCARNATION + 1), 1, |_| ())),
        ("header", &|copied| commit(copied.0.block(0), header(INCARNATION), 1, |p| p.set(0, 1))),
        ("header", &|copied| {
            commit(copied.0.block(0), header(INCARNATION), 1, |p| {
                p.set(7, 64);
                p.set(9, 65_536);
            });
        }),
    ];
    for (why, damage) in damages {
        let (mut host, ..) = shop();
        let (mut reading, copied, asked) = mirrored(&host);
        host.region(3, "third", &[], GUARDED);
        copied.write_all(&host);
        damage(&copied);
        reading.read().unwrap();
        assert_eq!(reading.lines(), ["shop.a_total 42", "node.g 7", "third.g 0"], "{why}");
        assert_eq!((asked.load(Ordering::Relaxed), fell_back(&reading)), (2, vec![(why, 1)]));
    }
}

#[test]
fn more_changes_than_the_ring_names_are_read_from_the_host() {
    let (mut host, plain, _) = shop();
    let (mut reading, copied, asked) = mirrored(&host);
    for _ in 0..65 {
        host.control.replace(plain.slot, &orphaned(&plain), 9).unwrap();
    }
    copied.write_all(&host);
    reading.read().unwrap();
    assert_eq!((orphans(&reading), fell_back(&reading)), (vec!["shop"], vec![("behind", 1)]));
    assert_eq!(asked.load(Ordering::Relaxed), 2, "header and both entry blocks at once");
}

#[test]
fn a_schema_that_the_copy_has_not_is_read_from_the_host() {
    let (mut host, ..) = shop();
    let (mut reading, copied, asked) = mirrored(&host);
    host.region(3, "third", &[], TWIN);
    // All entry blocks.
    copied.write(&host, (1..=8).chain([0]));
    reading.read().unwrap();
    assert_eq!(reading.lines()[2], "third.c 0");
    assert_eq!((asked.load(Ordering::Relaxed), fell_back(&reading)), (2, vec![("schema", 1), ("unseen", 1)]));
}

#[test]
fn a_region_that_has_gone_sends_the_cycle_to_the_hosts_header() {
    let (mut host, plain, _) = shop();
    let (mut reading, _, asked) = mirrored(&host);
    host.control.remove(plain.slot, 9);
    host.memory.remove(plain.entry.rkey);
    reading.read().unwrap();
    assert_eq!((reading.lines(), asked.load(Ordering::Relaxed)), (vec!["node.g 7".to_owned()], 2));
    assert_eq!((reading.session.counters().mirror_used, reading.session.counters().rounds), (1, 1));
}

#[test]
fn a_cycle_that_would_read_nothing_asks_the_host() {
    let (host, ..) = shop();
    let (mut reading, _, asked) = mirrored(&host);
    reading.session.select(|_, _| false);
    reading.read().unwrap();
    assert_eq!((reading.lines().len(), asked.load(Ordering::Relaxed)), (0, 1));
    host.memory.remove(CONTROL_RKEY);
    assert!(matches!(reading.read(), Err(DriveError::Read(ReadError::Gone(_)))));
}

#[test]
fn no_copy_leads_to_regions_that_are_none_nor_hides_one_for_longer_than_a_second() {
    bolero::check!().with_type::<Vec<(u8, u8, u64)>>().with_iterations(300).for_each(|steps| {
        let mut host = Host::new(BLOCKS);
        host.region(1, "r1", &[], GUARDED);
        let (mut reading, copied, _) = mirrored(&host);
        let mut live: Vec<Region> = Vec::new();
        let truth = |live: &[Region]| {
            let names = live.iter().map(|region| format!("{}.g 0", region.entry.name));
            names.chain(["r1.g 0".to_owned()]).collect::<BTreeSet<String>>()
        };
        for (id, (step, which, value)) in (2_u32..).zip(steps) {
            let which = usize::from(*which);
            match step % 7 {
                0 | 1 if live.len() < 10 => live.push(host.region(id, &format!("r{id}"), &[], GUARDED)),
                2 if !live.is_empty() => {
                    let gone = live.swap_remove(which % live.len());
                    host.control.remove(gone.slot, 9);
                    host.memory.remove(gone.entry.rkey);
                }
                3 => copied.write(&host, [which % 9]),
                4 => copied.write(&host, [0]),
                5 => copied.0.set(which % 9, usize::from(step / 7), *value),
                _ => {
                    reading.direct.now_ns.fetch_add(MIRROR_CHECK_NS / 3, Ordering::Relaxed);
                }
            }
            reading.read().unwrap();
            let lines: BTreeSet<String> = reading.lines().into_iter().collect();
            assert!(lines.is_subset(&truth(&live)), "{lines:?}");
        }
        reading.direct.now_ns.fetch_add(MIRROR_CHECK_NS, Ordering::Relaxed);
        reading.read().unwrap();
        assert_eq!(reading.lines().into_iter().collect::<BTreeSet<String>>(), truth(&live));
    });
}
