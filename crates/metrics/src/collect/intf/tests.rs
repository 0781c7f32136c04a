// SPDX-License-Identifier: Apache-2.0
use super::*;
use std::collections::BTreeSet;

use crate::groups::stat::computed::facts_bytes;
use crate::groups::stat::totals::Totals;

const HEADER: &str = include_str!("../../../bpf/intf.h");

/// The offsets that the header asserts of a struct are those at which `bytes` have these values, each of which is there once.
fn offsets(name: &str, bytes: &[u8], fields: &[(&str, &[u8])]) {
    let ours: BTreeSet<String> = fields
        .iter()
        .map(|(field, value)| {
            let found: Vec<usize> =
                bytes.windows(value.len()).enumerate().filter(|(_, at)| at == value).map(|(at, _)| at).collect();
            assert_eq!(found.len(), 1, "{name}.{field}");
            format!("COLLECT_OFFSET({name}, {field}, {});", found[0])
        })
        .collect();
    let prefix = format!("COLLECT_OFFSET({name}, ");
    let header: BTreeSet<String> = HEADER.lines().filter(|line| line.starts_with(&prefix)).map(str::to_owned).collect();
    assert_eq!(ours, header);
}

/// Numbers none of whose bytes is another's.
fn word(number: u8) -> u64 {
    u64::from_le_bytes([number; 8])
}

fn half(number: u8) -> u32 {
    u32::from_le_bytes([number; 4])
}

#[test]
fn offsets_are_those_of_the_header() {
    let (words, halves) = (
        [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|number| [number; 8]),
        [0x11, 0x12, 0x13, 0x14, 0x15, 0x16].map(|number: u8| [number; 4]),
    );
    let cpu = Cpu { runqueue: word(1), cpustat: word(2), tick: word(3) };
    let w = |index: usize| words[index - 1].as_slice();
    let h = |index: usize| halves[index - 1].as_slice();
    offsets("onlooker_cpu", &cpu.to_bytes(), &[("runqueue", w(1)), ("cpustat", w(2)), ("tick", w(3))]);
    for (name, field) in [
        ("onlooker_load_facts", "avenrun"),
        ("onlooker_schedstat_cpu", "runqueue"),
        ("onlooker_vmstat_cpu", "events"),
        ("onlooker_pressure_cpu", "group"),
    ] {
        offsets(name, &address_bytes(word(1)), &[(field, w(1))]);
        assert!(HEADER.contains(&format!("COLLECT_SIZE({name}, {});", address_bytes(0).len())));
    }
    let memory = MemoryFacts {
        zone_stat: word(1),
        node_stat: word(2),
        total_ram: word(3),
        deferred: word(4),
        total_reserve_pages: word(5),
        watermark_low_pages: word(6),
        zone_stats: half(0x11),
        node_stats: half(0x12),
        items: [[0x21; 2]; MEMORY_ITEMS],
        available: [0x31; 5],
    };
    offsets(
        "onlooker_memory_facts",
        &memory.to_bytes(),
        &[
            ("zone_stat", w(1)),
            ("node_stat", w(2)),
            ("total_ram", w(3)),
            ("deferred", w(4)),
            ("total_reserve_pages", w(5)),
            ("watermark_low_pages", w(6)),
            ("zone_stats", h(1)),
            ("node_stats", h(2)),
            ("items", &[0x21; 2 * MEMORY_ITEMS]),
            ("free", &[0x31; 5]),
        ],
    );
    offsets("onlooker_disks", &disks_bytes(word(1), half(0x11)), &[("list", w(1)), ("capacity", h(1))]);
    let table = TableFacts {
        first_row: half(0x11),
        rows: half(0x12),
        row_words: half(0x13),
        width: half(0x14),
        first_cpu: half(0x15),
        cpus: half(0x16),
    };
    let names = ["first_row", "rows", "row_words", "width", "first_cpu", "cpus"];
    let fields: Vec<(&str, &[u8])> = names.into_iter().zip(halves.iter().map(<[u8; 4]>::as_slice)).collect();
    offsets("onlooker_table", &table.to_bytes(), &fields);
    assert_eq!(TableFacts::from_bytes(&table.to_bytes()), Some(table));
    let stat = StatCpu {
        kstat: word(1),
        irq_stat: word(2),
        pending: word(3),
        hot: word(4),
        runqueue: word(5),
        mce_exceptions: word(6),
        mce_polls: word(7),
        files: word(8),
        processes: word(9),
    };
    let names =
        ["kstat", "irq_stat", "pending", "hot", "runqueue", "mce_exceptions", "mce_polls", "files", "processes"];
    let fields: Vec<(&str, &[u8])> = names.into_iter().zip(words.iter().map(<[u8; 8]>::as_slice)).collect();
    offsets("onlooker_stat_cpu", &stat.to_bytes(), &fields);
    let space = Space { net: word(1), cookie: word(2) };
    offsets("onlooker_space", &space.to_bytes(), &[("net", w(1)), ("cookie", w(2))]);
    let mib = Mib { first: word(3), words: half(0x11), at: half(0x12) };
    offsets("onlooker_mib", &mib.to_bytes(), &[("first", w(3)), ("words", h(1)), ("at", h(2))]);
    let netstat = NetstatFacts { space, mibs: vec![mib], items: [0x2121; NETSTAT_SLOTS] };
    let fields = [("space", space.to_bytes()), ("mibs", mib.to_bytes()), ("items", vec![0x21; 2 * NETSTAT_SLOTS])];
    let fields: Vec<(&str, &[u8])> = fields.iter().map(|(name, value)| (*name, value.as_slice())).collect();
    offsets("onlooker_netstat_facts", &netstat.to_bytes(), &fields);
    let number = Number { address: word(3), beside: word(4), width: half(0x11), add: 0x1212_1212 };
    let fields = [("address", w(3)), ("beside", w(4)), ("width", h(1)), ("add", h(2))];
    offsets("onlooker_number", &number.to_bytes(), &fields);
    let part = Number { address: word(5), beside: word(6), width: half(0x13), add: 0x1414_1414 };
    let facts = SockstatFacts { space, wholes: [number; SOCKSTAT_WHOLES], parts: [part; SOCKSTAT_PARTS] };
    let all = |number: Number, count| std::iter::repeat_n(number.to_bytes(), count).flatten().collect::<Vec<u8>>();
    let fields =
        [("space", space.to_bytes()), ("wholes", all(number, SOCKSTAT_WHOLES)), ("parts", all(part, SOCKSTAT_PARTS))];
    let fields: Vec<(&str, &[u8])> = fields.iter().map(|(name, value)| (*name, value.as_slice())).collect();
    offsets("onlooker_sockstat_facts", &facts.to_bytes(), &fields);
}

/// What is not written whole by a function above.
#[test]
fn offsets_that_loaders_know_are_those_of_the_header() {
    let publication = PublicationFacts {
        interval_ns: word(1),
        identity: word(2),
        first_block: half(0x11),
        blocks: half(0x12),
        turn_blocks: half(0x13),
    };
    let bytes = publication.to_bytes();
    for (field, at, value) in [
        ("interval_ns", 0, &word(1).to_le_bytes()[..]),
        ("identity", 8, &word(2).to_le_bytes()),
        ("first_block", 16, &half(0x11).to_le_bytes()),
        ("blocks", 20, &half(0x12).to_le_bytes()),
        ("next", 24, &[0; 4]),
        ("turn_blocks", 28, &half(0x13).to_le_bytes()),
        ("runs", PublicationFacts::RUNS, &[0; 8]),
        ("spent_ns", PublicationFacts::SPENT, &[0; 8]),
    ] {
        assert_eq!(&bytes[at..at + value.len()], value, "{field}");
        assert!(HEADER.contains(&format!("COLLECT_OFFSET(onlooker_publication_facts, {field}, {at});")), "{field}");
    }
    let asserted = |name: &str, field: &str, at: usize| {
        assert!(HEADER.contains(&format!("COLLECT_OFFSET({name}, {field}, {at});")), "{name}.{field}");
    };
    let bytes = namespace_bytes(word(1), half(0x11));
    assert_eq!((&bytes[..8], &bytes[8..12]), (&[1; 8][..], &[0x11; 4][..]));
    for (field, at) in [
        ("net", 0),
        ("capacity", 8),
        ("used", namespace::USED),
        ("sequence", namespace::SEQUENCE),
        ("cursor", namespace::CURSOR),
        ("free", namespace::FREE),
    ] {
        asserted("onlooker_namespace", field, at);
    }
    for (field, at) in ["total_forks", "threads", "most_files", "files"].into_iter().zip((0..).step_by(8)) {
        asserted("onlooker_stat_facts", field, at);
    }
    asserted("onlooker_vmstat_facts", "numbers", 0);
    asserted("onlooker_vmstat_facts", "events", 4 * VMSTAT_EVENTS);
    asserted("onlooker_pressure_facts", "group", 0);
    asserted("onlooker_pressure_facts", "states", 8);
}

fn defined(name: &str) -> u32 {
    let line = HEADER.lines().find(|line| line.starts_with(&format!("#define {name} "))).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn numbers_and_sizes_are_those_of_the_header() {
    assert_eq!(defined("COLLECT_CPUS_PER_BLOCK"), CPUS_PER_BLOCK);
    assert_eq!(defined("COLLECT_PAIR_SLOTS"), PAIR_SLOTS);
    assert_eq!(defined("COLLECT_CPU_SLOTS"), CPU_SLOTS);
    assert_eq!(defined("COLLECT_RESPONDER_CPUS_PER_BLOCK"), RESPONDER_CPUS_PER_BLOCK);
    assert_eq!(defined("COLLECT_STATS"), STATS);
    assert_eq!(defined("COLLECT_ZONE_STATS"), ZONE_STATS);
    assert_eq!(defined("COLLECT_MEMORY_ITEMS") as usize, MEMORY_ITEMS);
    let memory = MemoryFacts {
        zone_stat: 0,
        node_stat: 0,
        total_ram: 0,
        deferred: 0,
        total_reserve_pages: 0,
        watermark_low_pages: 0,
        zone_stats: 0,
        node_stats: 0,
        items: [[0; 2]; MEMORY_ITEMS],
        available: [0; 5],
    };
    let size = |name: &str, bytes: usize| assert!(HEADER.contains(&format!("COLLECT_SIZE({name}, {bytes});")));
    size("onlooker_cpu", Cpu { runqueue: 0, cpustat: 0, tick: 0 }.to_bytes().len());
    assert!(HEADER.contains(&format!("#define COLLECT_NONE {NONE:#x}\n")));
    assert_eq!(defined("COLLECT_VMSTAT_EVENTS") as usize, VMSTAT_EVENTS);
    size("onlooker_vmstat_facts", 4 * VMSTAT_EVENTS + 8);
    assert_eq!(defined("COLLECT_PRESSURE_STATES") as usize, PRESSURE_STATES);
    size("onlooker_pressure_facts", 8 + PRESSURE_STATES);
    assert_eq!(defined("COLLECT_STAT_CPUS_PER_BLOCK"), STAT_CPUS_PER_BLOCK);
    size("onlooker_stat_cpu", StatCpu::default().to_bytes().len());
    size("onlooker_stat_facts", facts_bytes(0, Totals::default()).len());
    assert_eq!(defined("COLLECT_ROWS_PER_BLOCK"), ROWS_PER_BLOCK);
    assert_eq!(defined("COLLECT_BUCKETS"), BUCKETS);
    assert_eq!(defined("COLLECT_DEVICE_CPUS"), DEVICE_CPUS);
    let table = TableFacts { first_row: 0, rows: 0, row_words: 0, width: 0, first_cpu: 0, cpus: 0 };
    size("onlooker_table", table.to_bytes().len());
    size("onlooker_row", ROW_BYTES);
    size("onlooker_namespace", namespace_bytes(0, 0).len());
    for (name, way) in [("LSTATS", WAY_LSTATS), ("TSTATS", WAY_TSTATS), ("VETH", WAY_VETH)] {
        assert!(HEADER.contains(&format!("ONLOOKER_WAY_{name} = {way},")), "{name}");
    }
    assert_eq!(defined("COLLECT_TURN_BLOCKS"), TURN_BLOCKS);
    assert_eq!(defined("COLLECT_TIMER_BYTES") as usize, TIMER_BYTES);
    size("onlooker_publication_facts", PublicationFacts::BYTES);
    size("onlooker_memory_facts", memory.to_bytes().len());
}

#[test]
fn sockstat_is_as_in_the_header() {
    assert_eq!(defined("COLLECT_SOCKSTAT_WHOLES") as usize, SOCKSTAT_WHOLES);
    assert_eq!(defined("COLLECT_SOCKSTAT_PARTS") as usize, SOCKSTAT_PARTS);
    let (space, one) = (Space { net: 0, cookie: 0 }, Number::default());
    let facts = SockstatFacts { space, wholes: [one; SOCKSTAT_WHOLES], parts: [one; SOCKSTAT_PARTS] };
    assert!(HEADER.contains("COLLECT_SIZE(onlooker_number, 24);"));
    assert_eq!(facts.to_bytes().len(), 16 + 24 * (SOCKSTAT_WHOLES + SOCKSTAT_PARTS));
}

#[test]
fn disk_is_as_in_the_header() {
    assert_eq!((defined("COLLECT_DISK_CPUS"), 8 * defined("COLLECT_DISK_NAME_WORDS")), (DISK_CPUS, DISK_NAME_BYTES));
    assert!(HEADER.contains(&format!("COLLECT_SIZE(onlooker_disk, {DISK_BYTES});")));
    assert!(HEADER.contains(&format!("COLLECT_SIZE(onlooker_disks, {});", disks_bytes(0, 0).len())));
}

#[test]
fn netstat_is_as_in_the_header() {
    assert_eq!(defined("COLLECT_NETSTAT_SLOTS") as usize, NETSTAT_SLOTS);
    assert_eq!(defined("COLLECT_MIBS") as usize, MIBS);
    assert_eq!((defined("COLLECT_MIB_WORDS"), defined("COLLECT_MIB_ROOM")), (MIB_WORDS, MIB_ROOM));
    let space = Space { net: 0, cookie: 0 };
    assert!(HEADER.contains("COLLECT_SIZE(onlooker_space, 16);") && space.to_bytes().len() == 16);
    assert!(HEADER.contains("COLLECT_SIZE(onlooker_netstat_facts, 16 + 16 * COLLECT_MIBS + 128);"));
    let facts = NetstatFacts { space, mibs: Vec::new(), items: [0; NETSTAT_SLOTS] };
    assert_eq!(facts.to_bytes().len(), 16 + 16 * MIBS + 128);
}
