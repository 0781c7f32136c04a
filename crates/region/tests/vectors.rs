// SPDX-License-Identifier: Apache-2.0
//! docs/format/vectors.json, written by an independent implementation from the pages alone, against this one.
#![cfg(not(loom))]

use onlooker_region::block::{Identity, guarded_place, plain_place};
use onlooker_region::columns::{Plan, Value};
use onlooker_region::control::{ControlWriter, Directory, Entry, Header, Place, assemble_schema, schema_extent};
use onlooker_region::guard;
use onlooker_region::histogram::{Shape, merge};
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_region::number::decimal;
use onlooker_region::sync::{AtomicU64, Ordering};
use onlooker_region::table::{KeyPart, KeyType, KeyValue, Layout, Table, pack_key, put_text};
use onlooker_region::{Block, Schema, SchemaId};
use serde_json::Value as Json;
use std::collections::BTreeMap;

fn vectors(section: &str) -> Vec<Json> {
    let text = include_str!("../../../docs/format/vectors.json");
    let all: Json = serde_json::from_str(text).unwrap();
    let list = all[section].as_array().unwrap_or_else(|| panic!("no section {section}")).clone();
    assert!(!list.is_empty());
    list
}

fn number(value: &Json) -> u64 {
    match value {
        Json::Number(n) => n.as_u64().unwrap(),
        Json::String(text) => match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => text.parse().unwrap(),
        },
        other => panic!("{other} is not a number"),
    }
}

fn small(value: &Json) -> usize {
    usize::try_from(number(value)).unwrap()
}

fn narrow(value: &Json) -> u32 {
    u32::try_from(number(value)).unwrap()
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap()
}

fn bytes(value: &Json) -> Vec<u8> {
    let hex = text(value);
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn block(value: &Json) -> Block {
    let mut block = Block::default();
    block.bytes_mut().copy_from_slice(&bytes(value));
    block
}

fn identity(value: &Json) -> Identity {
    Identity::from_word(number(value)).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn crc32() {
    for v in vectors("crc32") {
        assert_eq!(u64::from(crc32fast::hash(&bytes(&v["bytes"]))), number(&v["crc"]), "{}", v["what"]);
    }
}

#[test]
fn identities_and_places() {
    for v in vectors("identity") {
        let me = Identity {
            region: narrow(&v["region"]),
            generation: narrow(&v["generation"]),
            index: u16::try_from(narrow(&v["index"])).unwrap(),
        };
        assert_eq!((me.word(), Identity::from_word(me.word())), (number(&v["word"]), Some(me)));
    }
    for v in vectors("place") {
        let place = if text(&v["kind"]) == "plain" { plain_place } else { guarded_place };
        assert_eq!(place(small(&v["slot"])), (small(&v["block"]), small(&v["word"])), "{v}");
    }
}

#[test]
fn guarded_blocks() {
    for v in vectors("guarded") {
        let expected = block(&v["block"]);
        let me = identity(&v["identity"]);
        let accepted = guard::check(&expected, me).unwrap();
        assert_eq!((u64::from(accepted.version()), accepted.time_ns()), (number(&v["version"]), number(&v["time_ns"])));
        let words: Vec<_> = (0..BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect();
        words[0].store(number(&v["version_before"]), Ordering::Relaxed);
        guard::commit(&words, me, accepted.time_ns(), |p| p.set_all(0, accepted.payload()));
        let mut made = Block::default();
        made.copy_from(&words);
        assert_eq!(made, expected, "{}", v["what"]);
    }
    for v in vectors("guarded_rejected") {
        let reject = guard::check(&block(&v["block"]), identity(&v["expected"])).unwrap_err();
        assert_eq!(reject.to_string(), text(&v["reason"]), "{}", v["what"]);
    }
}

#[test]
fn table_shapes_and_keys() {
    for v in vectors("table_layout") {
        let layout = Layout { key_words: small(&v["key_words"]), value_words: small(&v["value_words"]) };
        assert_eq!(
            (layout.row_words(), layout.rows_per_block()),
            (small(&v["row_words"]), small(&v["rows_per_block"]))
        );
        for row in v["rows"].as_array().unwrap() {
            assert_eq!(layout.place(small(&row[0])), (small(&row[1]), small(&row[2])), "{v}");
        }
    }
    let little = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    for v in vectors("table_text") {
        let mut words = vec![u64::MAX; small(&v["bytes"]) / 8];
        put_text(&mut words, text(&v["text"]));
        assert_eq!(little(&words), bytes(&v["key"]), "{v}");
    }
    let part = KeyPart { name: "a".into(), kind: KeyType::Address, bytes: 0 };
    for v in vectors("table_address") {
        let address = text(&v["address"]);
        let words = pack_key(std::slice::from_ref(&part), &[KeyValue::Address(address.parse().unwrap())]).unwrap();
        assert_eq!((little(&words), part.label(&words)), (bytes(&v["key"]), address.to_owned()));
    }
}

#[test]
fn a_table_block_decodes() {
    for v in vectors("table_block") {
        let schema = Schema::parse(text(&v["schema"])).unwrap();
        let me = identity(&v["identity"]);
        let blocks = schema.blocks() as usize;
        let mut frame = vec![Block::default(); blocks];
        frame[usize::from(me.index)] = block(&v["block"]);
        let plan = Plan::new(schema);
        let mut rows: BTreeMap<usize, (u32, Json, Json)> = BTreeMap::new();
        let refused = plan
            .decode(me.at(0), &frame, |s| {
                assert_eq!(s.time_ns, Some(number(&v["time_ns"])));
                let row = s.row.unwrap();
                let labels: serde_json::Map<_, _> = s
                    .labels()
                    .into_iter()
                    .filter(|(k, _)| !s.field.labels.contains_key(k))
                    .map(|(k, v)| (k, v.into()))
                    .collect();
                let entry =
                    rows.entry(row.number).or_insert((row.generation, Json::Object(labels), serde_json::json!({})));
                entry.2[&s.field.name] = match &s.value {
                    Value::U64(n) => n.to_string().into(),
                    Value::I64(n) => n.to_string().into(),
                    Value::F64(n) => decimal(*n).into(),
                    Value::Text(t) => t.clone().into(),
                    Value::Histogram { buckets, sum, .. } => {
                        let counts: serde_json::Map<_, _> = buckets
                            .iter()
                            .enumerate()
                            .filter(|(_, n)| **n > 0)
                            .map(|(i, n)| (i.to_string(), n.to_string().into()))
                            .collect();
                        serde_json::json!({"buckets": counts, "sum": sum.to_string()})
                    }
                };
            })
            .unwrap();
        assert_eq!(refused.len(), blocks - 1, "all but the block of the vector are unwritten");
        let live: Vec<_> = v["rows"].as_array().unwrap().iter().filter(|row| row["state"] == "live").collect();
        assert_eq!(rows.len(), live.len());
        for row in live {
            let (generation, key, values) = &rows[&small(&row["row"])];
            assert_eq!(
                (u64::from(*generation), key, values),
                (number(&row["generation"]), &row["key"], &row["values"])
            );
        }
    }
}

#[test]
fn row_generations_continue() {
    for v in vectors("table_block") {
        let schema = Schema::parse(text(&v["schema"])).unwrap();
        let group = &schema.groups[0];
        let words: Vec<_> = block(&v["block"]).0.iter().map(|w| AtomicU64::new(*w)).collect();
        let mut table = Table::new(group.layout().unwrap(), words, identity(&v["identity"]), 1);
        for row in v["rows"].as_array().unwrap() {
            let key = pack_key(
                &group.key,
                &[KeyValue::Text("x"), KeyValue::Address([0, 0, 0, 0].into()), KeyValue::U64(number(&row["row"]))],
            )
            .unwrap();
            table.upsert(&key, 2, |_| ()).unwrap();
            assert_eq!(table.generation(&key), Some(narrow(&row["next_generation"])), "{row}");
        }
    }
}

#[test]
fn schemas() {
    for v in vectors("schema") {
        let schema = Schema::parse(text(&v["given"])).unwrap_or_else(|e| panic!("{}: {e}", v["what"]));
        let canonical = schema.canonical();
        assert_eq!(canonical, text(&v["canonical"]), "{}", v["what"]);
        assert_eq!(SchemaId::of(&canonical).to_string(), text(&v["id"]));
        let columns: u32 =
            schema.groups.iter().flat_map(|g| &g.fields).map(onlooker_region::schema::Field::elements).sum();
        assert_eq!((schema.blocks(), columns), (narrow(&v["blocks"]), narrow(&v["columns"])));
    }
}

#[test]
fn refused_schemas() {
    let json_codes = ["bad_json", "duplicate_key", "unknown_key", "missing_key", "wrong_type", "unknown_value"];
    for v in vectors("schema_refused") {
        let (expected, given) = (text(&v["code"]), text(&v["given"]));
        let error = Schema::parse(given).expect_err(&format!("{v}"));
        let same = match error.code() {
            // Numbers of more than 32 bits are out of any group: the JSON reader says so first.
            "bad_json" => json_codes.contains(&expected) || given.contains(&u64::MAX.to_string()),
            "bad_key" => ["bad_key", "empty"].contains(&expected),
            got => got == expected,
        };
        assert!(same, "{expected}: {}: {error}", v["what"]);
    }
}

#[test]
fn histograms() {
    let shape = |v: &Json| Shape {
        grouping_power: u8::try_from(number(&v["g"])).unwrap(),
        max_power: u8::try_from(number(&v["n"])).unwrap(),
    };
    let filled = |shape: Shape, v: &Json| {
        let mut buckets = vec![0; shape.buckets()];
        for (index, count) in v["buckets"].as_object().unwrap() {
            buckets[index.parse::<usize>().unwrap()] = number(count);
        }
        buckets
    };
    for v in vectors("histogram") {
        let shape = shape(&v);
        assert_eq!((shape.buckets(), shape.slots()), (small(&v["buckets"]), small(&v["slots"])));
        for pair in v["index"].as_array().unwrap() {
            assert_eq!(shape.index(number(&pair[0])), small(&pair[1]), "{shape:?} {pair}");
        }
        for triple in v["range"].as_array().unwrap() {
            assert_eq!(shape.range(small(&triple[0])), (number(&triple[1]), number(&triple[2])), "{shape:?} {triple}");
        }
    }
    for v in vectors("histogram_merge") {
        let shape = shape(&v);
        let with_sum = |part: &Json| [filled(shape, part), vec![number(&part["sum"])]].concat();
        let mut merged = with_sum(&v["a"]);
        merge(&mut merged, &with_sum(&v["b"]));
        assert_eq!(merged, with_sum(&v["merged"]));
    }
    for v in vectors("histogram_prometheus") {
        let shape = shape(&v);
        let (buckets, scale) = (filled(shape, &v), text(&v["scale"]).parse().unwrap());
        let mut got: Vec<_> = shape
            .cumulative(&buckets, scale)
            .iter()
            .map(|c| serde_json::json!([decimal(c.le), c.count.to_string()]))
            .collect();
        let total: u64 = buckets.iter().fold(0, |a, b| a.wrapping_add(*b));
        got.push(serde_json::json!(["+Inf", total.to_string()]));
        assert_eq!(Json::Array(got), v["cumulative"], "{}", v["what"]);
    }
}

/// The control vectors as memory: (index, block), all of one incarnation.
fn control() -> (u32, BTreeMap<u32, Block>, Vec<Json>) {
    let list = vectors("control");
    let incarnation = identity(&list[0]["identity"]).generation;
    (incarnation, list.iter().map(|v| (narrow(&v["index"]), block(&v["block"]))).collect(), list)
}

#[test]
fn a_control_region_is_read() {
    let (incarnation, blocks, list) = control();
    let mut directory = Directory::new(incarnation);
    for index in directory.header(&blocks[&0]).unwrap() {
        directory.entry_block(index, &blocks[&index]).unwrap();
    }
    let (header, expected) = (directory.last_header().unwrap(), &list[0]["decoded"]);
    let numbers = [header.entry_blocks, header.live, header.schema_first, header.schema_blocks, header.blocks];
    let names = ["entry_blocks", "live_entries", "schema_first_block", "schema_blocks", "control_blocks"];
    assert_eq!(numbers, names.map(|name| narrow(&expected[name])));
    assert_eq!((header.generation, header.began_ns), (number(&expected["generation"]), number(&expected["began_ns"])));
    assert_eq!(
        (hex(&header.host_id).as_str(), hex(&header.boot_id).as_str()),
        (text(&expected["host_id"]), text(&expected["boot_id"]))
    );
    assert_eq!(header.ring.to_vec(), expected["ring"].as_array().unwrap().iter().map(narrow).collect::<Vec<_>>());

    let entries: Vec<&Json> = list[1..3].iter().flat_map(|v| v["decoded"].as_array().unwrap()).collect();
    assert_eq!(directory.entries().len(), entries.len());
    for (entry, expected) in directory.entries().iter().zip(entries) {
        match (entry, number(&expected["kind"])) {
            (Entry::Free, 0) => {}
            (Entry::Region(r), 1) => {
                assert_eq!(
                    (r.identity, u64::from(r.orphan)),
                    (identity(&expected["identity"]), number(&expected["flags"]))
                );
                assert_eq!(
                    [r.va, r.bytes, r.created_ns],
                    ["va", "length", "created_ns"].map(|name| number(&expected[name]))
                );
                assert_eq!(
                    [r.rkey, r.device_rkey, r.responders, r.pid, r.uid],
                    ["rkey", "device_rkey", "responders", "pid", "uid"].map(|name| narrow(&expected[name]))
                );
                assert_eq!(
                    (r.schema.to_string().as_str(), r.name.as_str()),
                    (text(&expected["schema_id"]), text(&expected["name"]))
                );
                let labels: serde_json::Map<_, _> =
                    r.labels.iter().map(|(k, v)| (k.clone(), v.clone().into())).collect();
                assert_eq!(Json::Object(labels), expected["labels"]);
            }
            (Entry::Schema(s), 2) => {
                assert_eq!([s.va, s.bytes], ["va", "length"].map(|name| number(&expected[name])));
                assert_eq!(
                    (s.id.to_string().as_str(), s.name.as_str()),
                    (text(&expected["schema_id"]), text(&expected["name"]))
                );
                assert_eq!(s.rkey, narrow(&expected["rkey"]));
                let control_va = s.va - 9 * 1024;
                let (first, count) = schema_extent(s, control_va, u64::from(header.blocks) * 1024).unwrap();
                let texts: Vec<_> = (first..first + count).map(|i| blocks[&i]).collect();
                assert_eq!(
                    assemble_schema(s, incarnation, first, &texts).unwrap().canonical(),
                    text(&list[3]["decoded"])
                );
            }
            (entry, kind) => panic!("{entry:?} is not of kind {kind}"),
        }
    }
}

#[test]
fn a_control_region_is_written_as_in_the_vectors() {
    let (incarnation, blocks, list) = control();
    let mut directory = Directory::new(incarnation);
    directory.header(&blocks[&0]).unwrap();
    directory.entry_block(1, &blocks[&1]).unwrap();
    let (Entry::Region(region), Entry::Schema(schema)) = (&directory.entries()[0], &directory.entries()[1]) else {
        panic!()
    };
    let header = directory.last_header().unwrap();
    let words: Vec<_> = (0..header.blocks as usize * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect();
    let place = Place { va: schema.va - 9 * 1024, rkey: schema.rkey, responders: region.responders, incarnation };
    let mut writer = ControlWriter::new(words, place, header.host_id, header.boot_id, 0, header.began_ns);
    writer.add(&Entry::Region(region.clone()), 1).unwrap();
    writer
        .hold_schema(schema.id, &schema.name, text(&list[3]["decoded"]), number(&list[1]["decoded"][1]["created_ns"]))
        .unwrap();
    let written = |index: u32| {
        let mut block = Block::default();
        block.copy_from(&writer.memory()[index as usize * BLOCK_WORDS..][..BLOCK_WORDS]);
        block
    };
    for index in [1, 9, 10] {
        assert_eq!(written(index).payload(), blocks[&index].payload(), "block {index}");
    }
    let made = Header::decode(written(0).payload()).unwrap();
    assert_eq!((made.live, made.entry_blocks, made.schema_first, made.generation), (2, 1, header.schema_first, 2));
}

#[test]
fn a_reader_reads_what_changed() {
    for v in vectors("control_read") {
        let me = Identity::first(0, 1);
        let header = |generation: u64, entry_blocks: u32, ring: &[Json]| {
            let (_, blocks, _) = control();
            let words: Vec<_> = blocks[&0].0.iter().map(|w| AtomicU64::new(*w)).collect();
            guard::commit(&words, me, 1, |p| {
                p.set(2, generation);
                p.set(7, u64::from(entry_blocks));
                p.set(9, 65_536);
                p.set(8, 0);
                for (i, pair) in ring.chunks(2).enumerate() {
                    p.set(60 + i, number(&pair[0]) | number(&pair[1]) << 32);
                }
            });
            let mut block = Block::default();
            block.copy_from(&words);
            block
        };
        let (ring, entry_blocks) = (v["ring"].as_array().unwrap(), narrow(&v["entry_blocks"]));
        let mut directory = Directory::new(1);
        if !v["known"].is_null() {
            directory.header(&header(number(&v["known"]), entry_blocks, ring)).unwrap();
            directory.complete();
        }
        let wanted = directory.header(&header(number(&v["seen"]), entry_blocks, ring)).unwrap();
        assert_eq!(wanted, v["read"].as_array().unwrap().iter().map(narrow).collect::<Vec<_>>(), "{}", v["what"]);
    }
}
