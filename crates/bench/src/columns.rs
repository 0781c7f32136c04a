// SPDX-License-Identifier: Apache-2.0
//! What a value costs from copied blocks to a row: ns to check its block, to decode it with its names, and to copy it
//! to its column; with all blocks in the cache, and of 4,000 hosts in random order. `QUICK=1` for fewer rounds.

use onlooker_region::block::init_plain;
use onlooker_region::checked::Verdicts;
use onlooker_region::columns::{Plan, Value};
use onlooker_region::guard::commit;
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_region::schema::{Kind, Schema};
use onlooker_region::sync::AtomicU64;
use onlooker_region::table::{KeyValue, RowValues, Table, pack_key};
use onlooker_region::{Block, Identity};
use std::hint::black_box;
use std::time::Instant;

use crate::machine::is_quick;
use crate::report::{Results, median};

const ME: Identity = Identity { region: 1, generation: 1, index: 0 };
const HOSTS: usize = 4_000;

/// Fields in a row, each an array of `elements` that lie interleaved.
fn fields(count: usize, elements: usize, kind: &str, width: usize) -> String {
    let field = |at: usize| {
        let array = format!(r#","array":{{"label":"cpu","count":{elements},"stride":{}}}"#, count * width);
        let array = if elements > 1 { array } else { String::new() };
        format!(r#"{{"name":"f{at}","metric":"gauge","type":"{kind}","slot":{}{array}}}"#, at * width)
    };
    (0..count).map(field).collect::<Vec<_>>().join(",")
}

fn plan(kind: &str, blocks: usize, fields: &str) -> Plan {
    let key = if kind == "table" { r#","key":[{"name":"device","type":"text","bytes":16}]"# } else { "" };
    let group = format!(r#"{{"kind":"{kind}","blocks":{blocks}{key},"fields":[{fields}]}}"#);
    Plan::new(Schema::parse(&format!(r#"{{"name":"t","groups":[{group}]}}"#)).expect("a valid schema"))
}

/// Blocks with something in every word of the payload.
fn blocks(plan: &Plan) -> Vec<Block> {
    let group = &plan.schema().groups[0];
    let words: Vec<AtomicU64> = (0..group.blocks as usize * BLOCK_WORDS).map(|n| AtomicU64::new(n as u64)).collect();
    for (index, words) in (0..).zip(words.chunks_exact(BLOCK_WORDS)) {
        match group.kind {
            Kind::Plain => init_plain(words, ME.at(index)),
            Kind::Guarded | Kind::Computed => commit(words, ME.at(index), 5, |_| ()),
            Kind::Foreign | Kind::Table => {}
        }
    }
    if let Some(layout) = group.layout() {
        let mut table = Table::new(layout, &words[..], ME, 5);
        for row in 0..group.blocks as usize * layout.rows_per_block() {
            let key = pack_key(&group.key, &[KeyValue::Text(&format!("device{row}"))]).expect("a key of one text");
            let fill = |row: &mut RowValues<'_, '_>| (0..layout.value_words).for_each(|at| row.set(at, at as u64));
            table.upsert(&key, 6, fill).expect("rows are free");
        }
    }
    let mut blocks = vec![Block::default(); group.blocks as usize];
    blocks.iter_mut().zip(words.chunks_exact(BLOCK_WORDS)).for_each(|(block, words)| block.copy_from(words));
    blocks
}

fn copy(plan: &Plan, verdicts: &Verdicts, blocks: &[Block], row: &mut [u64]) -> usize {
    let checked = verdicts.on(plan, blocks);
    if checked.copy_group(0, row, |_| 1).is_some() {
        black_box(&row);
        return plan.compiled().groups()[0].width();
    }
    let mut values = 0;
    checked.rows(0, |_| 1, |_, columns, time_ns| values += black_box((columns, time_ns)).0.len());
    values
}

fn decode(plan: &Plan, verdicts: &Verdicts, blocks: &[Block]) -> usize {
    let mut values = 0;
    verdicts.on(plan, blocks).decode(|sample| {
        if let Value::U64(value) = sample.value {
            black_box(value);
        }
        values += 1;
    });
    values
}

/// Median over `rounds` of ns a value.
fn ns_a_value(rounds: usize, times: usize, mut run: impl FnMut(usize) -> usize) -> f64 {
    let mut all: Vec<f64> = (0..rounds)
        .map(|_| {
            let begun = Instant::now();
            let values: usize = (0..times).map(&mut run).sum();
            begun.elapsed().as_nanos() as f64 / values as f64
        })
        .collect();
    median(&mut all)
}

pub(crate) fn run() -> bool {
    let rounds = if is_quick() { 21 } else { 201 };
    let cases = [
        ("16_cpus", plan("guarded", 2, &fields(12, 16, "u64", 1))),
        ("2_cpus", plan("guarded", 1, &fields(12, 2, "u64", 1))),
        ("scalars", plan("guarded", 1, &fields(110, 1, "u64", 1))),
        ("plain", plan("plain", 4, &fields(25, 20, "u64", 1))),
        ("program_u64", plan("foreign", 1, &fields(100, 1, "u64", 8))),
        ("program_u32", plan("foreign", 1, &fields(100, 2, "u32", 4))),
        ("table", plan("table", 4, &fields(9, 1, "u64", 1))),
    ];
    let mut results = Results::default();
    for (name, plan) in &cases {
        let blocks = blocks(plan);
        let verdicts = Verdicts::of(plan, ME, &blocks).expect("all blocks");
        let mut row = vec![0; plan.compiled().groups()[0].width()];
        let values = copy(plan, &verdicts, &blocks, &mut row);
        assert_eq!(values, decode(plan, &verdicts, &blocks), "{name}");
        let check_ns = ns_a_value(rounds, 200, |_| {
            black_box(Verdicts::of(plan, ME, black_box(&blocks)).expect("all blocks"));
            values
        });
        let decode_ns = ns_a_value(rounds, 200, |_| decode(plan, &verdicts, black_box(&blocks)));
        let copy_ns = ns_a_value(rounds, 200, |_| copy(plan, &verdicts, black_box(&blocks), &mut row));
        let all: Vec<Vec<Block>> = (0..HOSTS).map(|_| blocks.clone()).collect();
        // Each host once, in an order that no prefetcher sees.
        let cold_ns = ns_a_value(rounds / 10 + 1, HOSTS, |turn| {
            let host = (turn * 2_887) % HOSTS;
            copy(plan, &verdicts, black_box(&all[host]), &mut row)
        });
        println!("{name}: {values} values; ns a value: check {check_ns:.2}, decode {decode_ns:.2}, copy {copy_ns:.2}");
        let ratio = decode_ns / copy_ns;
        println!("{name}: decode / copy {ratio:.1}; copy, of {HOSTS} hosts in random order: {cold_ns:.2} ns a value");
        results.at_most(&format!("copied_value_{name}"), copy_ns, "ns", 2.0);
    }
    results.passed()
}
