// SPDX-License-Identifier: Apache-2.0
use super::super::tests::{PLACE, Words, block, refresh, region, schema, writer};
use super::*;
use crate::control::Directory;
use crate::schema::SchemaId;
use crate::sync::Ordering;

const HOST: [u8; 16] = [1; 16];
const BOOT: [u8; 16] = [2; 16];

fn take_over(memory: &Words, regions: &[(usize, RegionEntry)]) -> Option<Resumed<Words>> {
    let copy = memory.iter().map(|word| AtomicU64::new(word.load(Ordering::Relaxed))).collect();
    ControlWriter::resume(copy, PLACE, HOST, BOOT, 1_000, 100, regions)
}

/// A directory of five regions, one of them removed, and what of it shall survive.
fn left_behind() -> (ControlWriter<Words>, Vec<(usize, RegionEntry)>) {
    let mut writer = writer(128);
    let (_, canonical, id) = schema();
    let mut kept = Vec::new();
    for number in 1..=5 {
        writer.hold_schema(id, "shop", &canonical, 20).unwrap();
        let entry = region(number, "shop");
        kept.push((writer.add(&Entry::Region(entry.clone()), 20).unwrap(), entry));
    }
    let (slot, gone) = kept.remove(2);
    writer.remove(slot, 30);
    writer.release_schema(gone.schema, 30);
    (writer, kept)
}

fn numbers(directory: &Directory) -> Vec<u32> {
    let mut numbers: Vec<_> = directory.regions().map(|region| region.identity.region).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn readers_go_on_after_a_clean_take_over() {
    let (old, kept) = left_behind();
    let mut reader = Directory::new(PLACE.incarnation);
    refresh(&mut reader, old.memory()).unwrap();
    let Resumed { mut writer, lost } = take_over(old.memory(), &kept).unwrap();
    assert!(lost.is_empty());
    assert_eq!(writer.live(), old.live());
    assert_eq!(refresh(&mut reader, writer.memory()).unwrap(), [1, 2, 3], "all of it once");
    assert_eq!((numbers(&reader), refresh(&mut reader, writer.memory()).unwrap()), (vec![1, 2, 4, 5], vec![]));
    // It goes on: the freed slot is given out again, the schema goes with its last user.
    let (_, canonical, id) = schema();
    writer.hold_schema(id, "shop", &canonical, 200).unwrap();
    let slot = writer.add(&Entry::Region(region(9, "shop")), 200).unwrap();
    assert!(kept.iter().all(|(other, _)| *other != slot));
    assert_eq!(refresh(&mut reader, writer.memory()).unwrap().len(), 1);
    assert_eq!(numbers(&reader), [1, 2, 4, 5, 9]);
    for slot in kept.iter().map(|(slot, _)| *slot).chain([slot]) {
        writer.remove(slot, 300);
        writer.release_schema(id, 300);
    }
    assert_eq!(writer.live(), 0);
}

#[test]
fn regions_that_were_not_given_leave_and_readers_see_it() {
    let (old, mut kept) = left_behind();
    let mut reader = Directory::new(PLACE.incarnation);
    refresh(&mut reader, old.memory()).unwrap();
    kept.truncate(1);
    let resumed = take_over(old.memory(), &kept).unwrap();
    assert!(!refresh(&mut reader, resumed.writer.memory()).unwrap().is_empty());
    assert_eq!(numbers(&reader), [1]);
    assert_eq!(resumed.writer.live(), 2, "the region and its schema");
}

#[test]
fn a_change_that_the_header_did_not_tell_is_noticed() {
    let (mut old, kept) = left_behind();
    let mut reader = Directory::new(PLACE.incarnation);
    refresh(&mut reader, old.memory()).unwrap();
    let header = block(old.memory(), 0);
    old.remove(kept[3].0, 40);
    for (to, from) in old.memory().iter().zip(header.0) {
        to.store(from, Ordering::Relaxed);
    }
    assert_eq!(refresh(&mut reader, old.memory()).unwrap(), [0u32; 0], "killed before the header");
    let resumed = take_over(old.memory(), &kept[..3]).unwrap();
    refresh(&mut reader, resumed.writer.memory()).unwrap();
    assert_eq!(numbers(&reader), [1, 2, 4]);
}

#[test]
fn a_kill_in_any_commit_leaves_what_can_be_taken_over() {
    // Every prefix of the stores of a commit, in each block, with the payload half old and half new.
    let (old, kept) = left_behind();
    for index in [0, 1, 2, 3] {
        for words in 0..BLOCK_WORDS {
            let (torn, _) = left_behind();
            let at = index as usize * BLOCK_WORDS;
            let words_of = torn.memory();
            for at in [at, at + BLOCK_WORDS - 1] {
                let version = words_of[at].load(Ordering::Relaxed) & 0xffff_fffe | 1;
                words_of[at].store(version, Ordering::Relaxed);
            }
            // The removed region's slot half written anew: entries of a pair share the block.
            if index == 2 {
                for word in 3 + ENTRY_WORDS..(3 + ENTRY_WORDS + words).min(BLOCK_WORDS - 1) {
                    words_of[at + word].store(0x0101_0101_0101_0101, Ordering::Relaxed);
                }
            }
            let kept: Vec<_> = kept.iter().filter(|(slot, _)| index != 2 || *slot != 3).cloned().collect();
            let Resumed { writer, lost } = take_over(words_of, &kept).unwrap();
            assert!(lost.is_empty());
            let mut reader = Directory::new(PLACE.incarnation);
            refresh(&mut reader, writer.memory()).unwrap();
            assert_eq!(numbers(&reader), kept.iter().map(|(_, r)| r.identity.region).collect::<Vec<_>>());
            assert!(writer.generation() > old.generation());
        }
    }
}

#[test]
fn a_damaged_schema_takes_its_regions_with_it() {
    let (old, kept) = left_behind();
    let (_, _, id) = schema();
    let mut reader = Directory::new(PLACE.incarnation);
    refresh(&mut reader, old.memory()).unwrap();
    let (first, _) = schema_extent(reader.schema(id).unwrap(), PLACE.va, 128 * 1024).unwrap();
    old.memory()[first as usize * BLOCK_WORDS + 5].store(1, Ordering::Relaxed);
    let resumed = take_over(old.memory(), &kept).unwrap();
    assert_eq!(resumed.lost, kept.iter().map(|(slot, _)| *slot).collect::<Vec<_>>());
    assert_eq!(resumed.writer.live(), 0);
}

#[test]
fn regions_that_cannot_be_right_are_lost() {
    let (old, mut kept) = left_behind();
    kept.push((kept[0].0, region(7, "shop")));
    kept.push((1_000_000, region(8, "shop")));
    kept.push((9, RegionEntry { schema: SchemaId([9; 16]), ..region(9, "shop") }));
    assert_eq!(take_over(old.memory(), &kept).unwrap().lost, [kept[0].0, 1_000_000, 9]);
}

#[test]
fn other_memory_is_not_taken_over() {
    let (old, _) = left_behind();
    let words = || old.memory().iter().map(|word| AtomicU64::new(word.load(Ordering::Relaxed))).collect::<Words>();
    let resume = |memory: Words, host, boot| ControlWriter::resume(memory, PLACE, host, boot, 1, 2, &[]).is_some();
    assert!(resume(words(), HOST, BOOT));
    assert!(!resume(words(), HOST, [3; 16]), "another boot");
    assert!(!resume(words(), [3; 16], BOOT), "another host");
    assert!(!resume(words().into_iter().take(64 * BLOCK_WORDS).collect(), HOST, BOOT), "another size");
    assert!(!resume((0..128 * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect(), HOST, BOOT), "no control region");
    assert_eq!(block(old.memory(), 0).payload()[0], u64::from_le_bytes(*b"ONLOOKER"));
}

#[test]
fn a_region_survives_its_words() {
    let entry = region(3, "shop");
    assert_eq!(RegionEntry::from_words(&entry.to_words().unwrap()), Some(entry));
    assert_eq!(RegionEntry::from_words(&[0; ENTRY_WORDS]), None);
}
