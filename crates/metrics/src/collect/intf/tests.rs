// SPDX-License-Identifier: Apache-2.0
use super::layout::{Header, half, word};
use super::*;

const HEADER: Header = Header(include_str!("../../../bpf/intf.h"));

#[test]
fn numbers_are_those_of_the_header() {
    assert_eq!(HEADER.defined("COLLECT_CPUS_PER_BLOCK"), CPUS_PER_BLOCK);
    assert_eq!(HEADER.defined("COLLECT_PAIR_SLOTS"), PAIR_SLOTS);
    assert_eq!(HEADER.defined("COLLECT_CPU_SLOTS"), CPU_SLOTS);
    assert_eq!(HEADER.defined("COLLECT_ROWS_PER_BLOCK"), ROWS_PER_BLOCK);
    assert_eq!(HEADER.defined("COLLECT_TURN_BLOCKS"), TURN_BLOCKS);
    assert_eq!(HEADER.defined("COLLECT_TIMER_BYTES") as usize, TIMER_BYTES);
    assert!(HEADER.0.contains(&format!("#define COLLECT_NONE {NONE:#x}\n")));
}

#[test]
fn tables_and_namespaces_are_as_in_the_header() {
    let table = TableFacts {
        first_row: half(0x11),
        rows: half(0x12),
        row_words: half(0x13),
        width: half(0x14),
        first_cpu: half(0x15),
        cpus: half(0x16),
    };
    let fields = [
        ("first_row", &[0x11; 4][..]),
        ("rows", &[0x12; 4]),
        ("row_words", &[0x13; 4]),
        ("width", &[0x14; 4]),
        ("first_cpu", &[0x15; 4]),
        ("cpus", &[0x16; 4]),
    ];
    HEADER.is_laid_out("onlooker_table", &table.to_bytes(), &fields);
    HEADER.has_size("onlooker_table", table.to_bytes().len());
    assert_eq!(TableFacts::from_bytes(&table.to_bytes()), Some(table));
    let space = Space { net: word(1), cookie: word(2) };
    HEADER.is_laid_out("onlooker_space", &space.to_bytes(), &[("net", &[1; 8]), ("cookie", &[2; 8])]);
    HEADER.has_size("onlooker_space", space.to_bytes().len());
}

#[test]
fn packed_blocks_are_as_in_the_header() {
    assert_eq!(HEADER.defined("COLLECT_PACKED_PIECES") as usize, PACKED_PIECES);
    let piece = PackedPiece { collector: 1, block: 2, at: 3, words: 4 };
    let fields = [("collector", &[1][..]), ("block", &[2]), ("at", &[3]), ("words", &[4])];
    HEADER.is_laid_out("onlooker_packed_piece", &piece.to_bytes(), &fields);
    HEADER.has_size("onlooker_packed_piece", piece.to_bytes().len());
    HEADER.has_offset("onlooker_packed_block", "pieces", 0);
    HEADER.has_offset("onlooker_packed_block", "piece", 4);
    assert_eq!(packed_block_bytes(&[piece]), [&[1, 0, 0, 0, 1, 2, 3, 4][..], &[0; 60]].concat());
}

#[test]
fn publications_are_as_in_the_header() {
    let publication = PublicationFacts {
        interval_ns: word(1),
        identity: word(2),
        first_block: half(0x11),
        blocks: half(0x12),
        turn_blocks: half(0x13),
    };
    let bytes = publication.to_bytes();
    for (field, at, value) in [
        ("interval_ns", 0, &[1; 8][..]),
        ("identity", 8, &[2; 8]),
        ("first_block", 16, &[0x11; 4]),
        ("blocks", 20, &[0x12; 4]),
        ("next", 24, &[0; 4]),
        ("turn_blocks", 28, &[0x13; 4]),
        ("runs", PublicationFacts::RUNS, &[0; 8]),
        ("spent_ns", PublicationFacts::SPENT, &[0; 8]),
    ] {
        assert_eq!(&bytes[at..at + value.len()], value, "{field}");
        HEADER.has_offset("onlooker_publication_facts", field, at);
    }
    HEADER.has_size("onlooker_publication_facts", PublicationFacts::BYTES);
}
