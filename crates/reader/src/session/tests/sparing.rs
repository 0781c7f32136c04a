// SPDX-License-Identifier: Apache-2.0
//! What a reader that reads often spares the host: regions whose fields are in packed blocks, blocks of tables without rows.

use super::silence::{over_kernel, silent_for};
use super::*;
use onlooker_region::control::{PACKED_REGION, RESPONDER_KERNEL};
use onlooker_region::table::{KeyValue, Layout, Table, pack_key};

fn computed(name: &str, fields: &[(&str, u32)]) -> String {
    let field =
        |(name, slot): &(&str, u32)| format!(r#"{{"name":"{name}","metric":"gauge","type":"u64","slot":{slot}}}"#);
    let fields: Vec<String> = fields.iter().map(field).collect();
    let fields = fields.join(",");
    format!(
        r#"{{"name":"{name}","groups":[{{"kind":"computed","blocks":1,"acquisition":"computed","fields":[{fields}]}}]}}"#
    )
}

/// Regions `one` and `two`, and both packed.
fn packing() -> (Host, Region) {
    let mut host = Host::new(64);
    host.responders = RESPONDER_KERNEL;
    host.region(1, "one", &[], &computed("one", &[("a", 0), ("b", 1)]));
    host.region(2, "two", &[], &computed("two", &[("c", 0)]));
    let packed = computed(PACKED_REGION, &[("c", 0), ("a", 1), ("b", 2)]);
    let packed = host.region(3, PACKED_REGION, &[], &packed);
    host.region(4, "three", &[], &computed("three", &[("d", 0)]));
    commit(packed.words.block(0), packed.entry.identity, 5, |p| {
        [7, 8, 9].into_iter().enumerate().for_each(|(at, v)| p.set(at, v))
    });
    (host, packed)
}

#[test]
fn packed_blocks_are_read_in_place_of_the_regions_whose_fields_they_have() {
    let (host, _) = packing();
    let mut reading = over_kernel(&host);
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["one.a 0", "one.b 0", "two.c 0", "three.d 0"], "who reads once reads the regions");
    reading.session.rest();
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["node_packed.c 7", "node_packed.a 8", "node_packed.b 9", "three.d 0"]);
    // Whoever does not want one of the regions does not get its values by the packed blocks.
    reading.session.select(|entry, _| entry.name != "two");
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["one.a 0", "one.b 0", "three.d 0"]);
}

#[test]
fn while_packed_blocks_are_silent_the_regions_are_read() {
    let (host, packed) = packing();
    let mut reading = over_kernel(&host);
    reading.session.rest();
    let asked = silent_for(&mut reading, packed.entry.rkey);
    for _ in 0..2 {
        // Already in the cycle that meets with silence.
        reading.read().unwrap();
        assert_eq!(reading.lines(), ["one.a 0", "one.b 0", "two.c 0", "three.d 0"]);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
    reading.direct.silent_for = None;
    reading.direct.now_ns.fetch_add(1_000_000_000, Ordering::Relaxed);
    reading.read().unwrap();
    assert_eq!(reading.lines()[0], "node_packed.c 7");
}

#[test]
fn a_region_with_a_field_that_is_not_packed_is_read() {
    let mut host = Host::new(64);
    host.region(1, "one", &[], &computed("one", &[("a", 0), ("b", 1)]));
    host.region(2, PACKED_REGION, &[], &computed(PACKED_REGION, &[("a", 0)]));
    let mut reading = Reading::of(&host, Limits::default());
    reading.session.rest();
    reading.read().unwrap();
    assert!(reading.lines().contains(&"one.b 0".to_owned()), "{:?}", reading.lines());
    // A program cannot stand in for the agent, whatever its region is called.
    let mut host = Host::new(64);
    host.region(1, "one", &[], &computed("one", &[("a", 0)]));
    host.region(300, PACKED_REGION, &[], &computed(PACKED_REGION, &[("a", 0)]));
    let mut reading = Reading::of(&host, Limits::default());
    reading.session.rest();
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["one.a 0", "node_packed.a 0"]);
}

const TABLE: &str = r#"{"name":"t","groups":[{"kind":"table","blocks":6,"key":[{"name":"n","type":"u64"}],
    "fields":[{"name":"v","metric":"gauge","type":"u64","slot":59}]}]}"#;

#[test]
fn blocks_of_the_agent_s_tables_without_a_row_are_read_now_and_then() {
    let mut host = Host::new(64);
    let agents = host.region(1, "t", &[], TABLE);
    let program = host.region(300, "u", &[], TABLE);
    let schema = Schema::parse(TABLE).unwrap();
    let layout: Layout = schema.groups[0].layout().unwrap();
    assert_eq!(layout.rows_per_block(), 2);
    let table = |region: &Region| Table::new(layout, region.words.clone(), region.entry.identity, 5);
    let (mut rows, _others) = (table(&agents), table(&program));
    let put = |rows: &mut Table<_>, numbers: std::ops::Range<u64>| {
        for number in numbers {
            let key = pack_key(&schema.groups[0].key, &[KeyValue::U64(number)]).unwrap();
            rows.upsert(&key, 6, |row| row.set(59, number)).unwrap();
        }
    };
    put(&mut rows, 0..3);
    let mut reading = Reading::of(&host, Limits::default());
    reading.session.rest();
    let read = |reading: &mut Reading, after_ns: u64| {
        reading.direct.now_ns.fetch_add(after_ns, Ordering::Relaxed);
        let before = reading.session.counters().blocks;
        reading.read().unwrap();
        (reading.lines().len(), reading.session.counters().blocks - before)
    };
    assert_eq!(read(&mut reading, 0).0, 3);
    // The header; three of the agent's blocks, two with rows and one behind; all of the program's.
    assert_eq!(read(&mut reading, 1), (3, 1 + 3 + 6));
    // Rows in blocks that are read are seen at once, one in another block when that is looked into.
    put(&mut rows, 3..7);
    assert_eq!(read(&mut reading, 1), (6, 1 + 3 + 6));
    assert_eq!(read(&mut reading, 1_000_000_000), (7, 1 + 6 + 6));
    assert_eq!(read(&mut reading, 1), (7, 1 + 5 + 6));
    (0..6).for_each(|number| {
        let key = pack_key(&schema.groups[0].key, &[KeyValue::U64(number)]).unwrap();
        assert!(rows.remove(&key, 7));
    });
    assert_eq!(read(&mut reading, 1), (1, 1 + 5 + 6));
    assert_eq!(read(&mut reading, 1_000_000_000), (1, 1 + 6 + 6));
    // The first block tells the time, rows or none.
    assert_eq!(read(&mut reading, 1), (1, 1 + 3 + 6));
    reading.session.wake();
    assert_eq!(read(&mut reading, 1), (1, 1 + 6 + 6));
}
