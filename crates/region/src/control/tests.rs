// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::block::{Block, Identity};
use crate::limits::BLOCK_WORDS;
use crate::schema::{Schema, SchemaId};
use crate::sync::{AtomicU64, Ordering};

pub(super) const PLACE: Place = Place { va: 0x7000_0000_0000, rkey: 99, responders: RESPONDER_TCP, incarnation: 5 };

pub(super) type Words = Vec<AtomicU64>;

pub(super) fn writer(blocks: usize) -> ControlWriter<Words> {
    let words = (0..blocks * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect();
    ControlWriter::new(words, PLACE, [1; 16], [2; 16], 1_000, 10)
}

pub(super) fn schema() -> (Schema, String, SchemaId) {
    let schema =
        Schema::parse(r#"{"name":"shop","groups":[{"kind":"plain","blocks":2,"fields":[{"name":"a_total","metric":"counter","type":"u64"}]}]}"#)
            .unwrap();
    let canonical = schema.canonical();
    let id = SchemaId::of(&canonical);
    (schema, canonical, id)
}

pub(super) fn region(id: u32, name: &str) -> RegionEntry {
    RegionEntry {
        identity: Identity::first(id, 7),
        va: 0x10_0000,
        bytes: 2048,
        rkey: 1 << 31,
        device_rkey: 0,
        responders: RESPONDER_TCP,
        schema: schema().2,
        pid: 1,
        uid: 1000,
        created_ns: 11,
        orphan: false,
        name: name.into(),
        labels: vec![("a".into(), "b".into()), ("program".into(), "x".into())],
    }
}

pub(super) fn block(memory: &[AtomicU64], index: u32) -> Block {
    let mut block = Block::default();
    block.copy_from(&memory[index as usize * BLOCK_WORDS..][..BLOCK_WORDS]);
    block
}

/// What a reader does each cycle; returns the blocks it read.
pub(super) fn refresh(directory: &mut Directory, memory: &[AtomicU64]) -> Result<Vec<u32>, ControlError> {
    let wanted = directory.header(&block(memory, 0))?;
    for index in &wanted {
        directory.entry_block(*index, &block(memory, *index))?;
    }
    directory.complete();
    Ok(wanted)
}

#[test]
fn a_reader_follows_the_writer_by_reading_only_what_changed() {
    let mut writer = writer(64);
    let mut reader = Directory::new(5);
    assert_eq!(refresh(&mut reader, writer.memory()).unwrap(), [0u32; 0]);
    let (parsed, canonical, id) = schema();
    writer.hold_schema(id, "shop", &canonical, 20).unwrap();
    let slots: Vec<_> = (1..=5).map(|i| writer.add(&Entry::Region(region(i, "shop")), 20).unwrap()).collect();
    assert_eq!(refresh(&mut reader, writer.memory()).unwrap(), [1, 2, 3]);
    assert_eq!(reader.regions().count(), 5);
    assert_eq!(reader.regions().next(), Some(&region(1, "shop")));
    assert_eq!(refresh(&mut reader, writer.memory()).unwrap(), [0u32; 0]);

    let entry = reader.schema(id).unwrap().clone();
    let (first, count) = schema_extent(&entry, PLACE.va, 64 * 1024).unwrap();
    let blocks: Vec<_> = (first..first + count).map(|i| block(writer.memory(), i)).collect();
    assert_eq!(assemble_schema(&entry, 5, first, &blocks).unwrap(), parsed);

    writer.remove(slots[3], 30);
    writer.replace(slots[4], &Entry::Region(RegionEntry { orphan: true, ..region(5, "shop") }), 30).unwrap();
    assert_eq!(refresh(&mut reader, writer.memory()).unwrap(), [3]);
    assert_eq!(reader.regions().filter(|r| r.orphan).count(), 1);
    assert_eq!((reader.regions().count(), writer.live()), (4, 5));
}

#[test]
fn a_reader_that_fell_behind_reads_all() {
    let mut writer = writer(64);
    let mut reader = Directory::new(5);
    for i in 1..=9 {
        writer.add(&Entry::Region(region(i, "a")), 20).unwrap();
    }
    refresh(&mut reader, writer.memory()).unwrap();
    for i in 0..70u64 {
        writer.replace(0, &Entry::Region(RegionEntry { created_ns: i, ..region(1, "a") }), 20).unwrap();
    }
    assert_eq!(refresh(&mut reader, writer.memory()).unwrap(), [1, 2, 3, 4, 5]);
}

#[test]
fn schemas_are_shared_and_their_room_rests_before_reuse() {
    let mut writer = writer(16); // 13 schema blocks, 12 of them in whole pages
    let text = |c: char| format!("{{\"name\":\"{}\"}}", c.to_string().repeat(9_000));
    let hold =
        |writer: &mut ControlWriter<Words>, c, now| writer.hold_schema(SchemaId::of(&text(c)), "x", &text(c), now);
    hold(&mut writer, 'a', 1).unwrap();
    hold(&mut writer, 'a', 1).unwrap();
    assert_eq!(writer.live(), 1);
    assert_eq!(hold(&mut writer, 'b', 1), Err(ControlError::NoSchemaRoom(9_011)));
    writer.release_schema(SchemaId::of(&text('a')), 100);
    assert!(hold(&mut writer, 'b', 5_000).is_err(), "one user is left");
    writer.release_schema(SchemaId::of(&text('a')), 5_000);
    assert!(hold(&mut writer, 'b', 5_999).is_err(), "rests");
    hold(&mut writer, 'b', 6_000).unwrap();
    assert_eq!(writer.live(), 1);
}

#[test]
fn a_full_directory_says_so_and_stays_as_it_was() {
    let mut writer = writer(16);
    for i in 1..=4 {
        writer.add(&Entry::Region(region(i, "a")), 1).unwrap();
    }
    let generation = writer.generation();
    assert_eq!(writer.add(&Entry::Region(region(5, "a")), 1), Err(ControlError::NoEntry(4)));
    let long =
        RegionEntry { labels: vec![("a".into(), "x".repeat(250)), ("b".into(), "y".repeat(40))], ..region(1, "a") };
    assert_eq!(writer.replace(0, &Entry::Region(long), 1), Err(ControlError::LabelsTooLong(296)));
    assert_eq!(writer.generation(), generation);
}

#[test]
fn a_devices_key_has_half_a_word_of_its_own() {
    let responders = RESPONDER_TCP | RESPONDER_VERBS;
    let entry = RegionEntry { device_rkey: 0x8765_4321, responders, ..region(1, "a") };
    let mut words = entry.to_words().unwrap();
    assert_eq!((words[9], words[4] >> 32), (0x8765_4321, 5));
    assert_eq!(region(1, "a").to_words().unwrap()[9], 0, "none");
    // What a later version puts beside it is passed over.
    words[9] |= 1 << 32;
    assert_eq!(RegionEntry::from_words(&words), Some(entry));
}

#[test]
fn lies_are_refused_and_never_panic() {
    let mut honest = writer(16);
    let (_, canonical, id) = schema();
    honest.hold_schema(id, "shop", &canonical, 1).unwrap();
    honest.add(&Entry::Region(region(1, "a")), 1).unwrap();
    // Any words with a valid guard: a liar knows the CRC too.
    bolero::check!().with_type::<Vec<(u8, u8, u64)>>().for_each(|changes| {
        let memory: Words = honest.memory().iter().map(|w| AtomicU64::new(w.load(Ordering::Relaxed))).collect();
        for (index, slot, value) in changes {
            let index = u16::from(*index % 3);
            let me = Identity { region: CONTROL_REGION, generation: 5, index };
            let words = &memory[usize::from(index) * BLOCK_WORDS..][..BLOCK_WORDS];
            crate::guard::commit(words, me, 1, |p| p.set(usize::from(*slot) % 124, *value));
        }
        let mut reader = Directory::new(5);
        if refresh(&mut reader, &memory).is_ok() {
            for region in reader.regions() {
                assert!(region.bytes % 1024 == 0 && region.va.checked_add(region.bytes).is_some());
            }
            for entry in reader.entries().iter().filter_map(|e| if let Entry::Schema(s) = e { Some(s) } else { None }) {
                if let Ok((first, count)) = schema_extent(entry, PLACE.va, 16 * 1024) {
                    let blocks: Vec<_> = (first..first + count).map(|i| block(&memory, i)).collect();
                    let _ = assemble_schema(entry, 5, first, &blocks);
                }
            }
        }
    });
}

#[test]
fn each_lie_has_its_own_answer() {
    let honest = writer(16);
    let lie = |slot: usize, value: u64| {
        let memory: Words = honest.memory().iter().map(|w| AtomicU64::new(w.load(Ordering::Relaxed))).collect();
        crate::guard::commit(&memory[..BLOCK_WORDS], Identity::first(0, 5), 1, |p| p.set(slot, value));
        Directory::new(5).header(&block(&memory, 0)).unwrap_err()
    };
    assert_eq!(lie(0, 1), ControlError::Magic);
    assert_eq!(lie(1, 2), ControlError::Version(2));
    assert_eq!(lie(7, 16), ControlError::Header { what: "entry_blocks", got: 16, limit: 15 });
    assert_eq!(lie(8, 17), ControlError::Header { what: "schema_first", got: 17, limit: 16 });
    assert_eq!(lie(9, 1 << 31), ControlError::Header { what: "blocks", got: 1 << 31, limit: 65_536 });
    let mut other = Directory::new(6);
    let reject = crate::guard::Reject::Identity;
    assert_eq!(other.header(&block(honest.memory(), 0)).unwrap_err(), ControlError::Block { index: 0, reject });
    let (_, canonical, id) = schema();
    let entry = SchemaEntry {
        id,
        va: PLACE.va,
        rkey: 1,
        responders: 1,
        created_ns: 0,
        bytes: canonical.len() as u64,
        name: "shop".into(),
    };
    assert!(schema_extent(&SchemaEntry { va: PLACE.va - 1024, ..entry.clone() }, PLACE.va, 1 << 20).is_err());
    assert!(schema_extent(&SchemaEntry { va: PLACE.va + 512, ..entry.clone() }, PLACE.va, 1 << 20).is_err());
    assert!(schema_extent(&SchemaEntry { bytes: 40_000, ..entry }, PLACE.va, 16 * 1024).is_err());
}

#[test]
fn a_region_that_moves_is_whole_at_its_new_place() {
    let mut writer = writer(64);
    let (parsed, canonical, id) = schema();
    writer.hold_schema(id, "shop", &canonical, 20).unwrap();
    let slots: Vec<_> = (1..=3).map(|i| writer.add(&Entry::Region(region(i, "shop")), 20).unwrap()).collect();
    let moved = |i: u32| RegionEntry { va: u64::from(i) << 30, rkey: 7 + i, ..region(i, "shop") };
    let (va, rkey) = (0x5000_0000_0000, 3);
    let entries: Vec<_> = slots.into_iter().zip(1..).map(|(slot, i)| (slot, moved(i))).collect();
    writer.relocate((va, rkey), &entries, 30).unwrap();

    let mut reader = Directory::new(5);
    refresh(&mut reader, writer.memory()).unwrap();
    assert!(reader.regions().cloned().eq((1..=3).map(moved)));
    let entry = reader.schema(id).unwrap().clone();
    assert_eq!((entry.rkey, writer.place().va, writer.place().rkey), (rkey, va, rkey));
    let (first, count) = schema_extent(&entry, va, 64 * 1024).unwrap();
    let blocks: Vec<_> = (first..first + count).map(|i| block(writer.memory(), i)).collect();
    assert_eq!(assemble_schema(&entry, 5, first, &blocks).unwrap(), parsed);
    assert_eq!(schema_extent(&entry, PLACE.va, 64 * 1024).ok(), None, "nothing points at the old one");
    // It goes on from there.
    let slot = writer.add(&Entry::Region(region(4, "late")), 40).unwrap();
    writer.remove(slot, 40);
    writer.hold_schema(id, "shop", &canonical, 50).unwrap();
    assert_eq!(writer.live(), 4);
}
