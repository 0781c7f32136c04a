// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::table::KeyType;

fn refused(json: &str) -> Rule {
    Schema::parse(json).expect_err(json).rule
}

/// A schema of one group with the given fields' JSON.
fn with_fields(kind: &str, fields: &str) -> String {
    format!(r#"{{"name":"t","groups":[{{"kind":"{kind}","blocks":1,"fields":[{fields}]}}]}}"#)
}

#[test]
fn canonical_form_leaves_defaults_out_and_sorts_labels() {
    let json = r#" {"groups":[{"fields":[{"type":"u64","slot":0,"name":"a_total","scale":1.0,"metric":"counter","help":"",
        "labels":{"z":"1","b":"\u0041\n"},"unit":"seconds"}],"blocks":1,"kind":"plain","acquisition":"direct"}],"name":"t"} "#;
    let schema = Schema::parse(json).unwrap();
    let expected = r#"{"name":"t","groups":[{"kind":"plain","blocks":1,"fields":[{"name":"a_total","metric":"counter","type":"u64","unit":"seconds","labels":{"b":"A\n","z":"1"}}]}]}"#;
    assert_eq!(schema.canonical(), expected);
    assert_eq!(Schema::parse(expected).unwrap(), schema);
    assert_eq!(SchemaId::of(expected).to_string().len(), 32);
}

#[test]
fn rules_are_told_apart() {
    let field = |rest: &str| format!(r#"{{"name":"a","metric":"counter","type":"u64"{rest}}}"#);
    let plain = |rest: &str| refused(&with_fields("plain", &field(rest)));
    assert!(matches!(refused("{}"), Rule::Json(_)));
    assert!(matches!(plain(r#","sloth":1"#), Rule::Json(_)));
    assert!(matches!(plain(r#","slot":127"#), Rule::Outside { end: 128, room: 127 }));
    assert!(matches!(plain(r#","scale":0"#), Rule::Scale));
    assert!(matches!(plain(r#","bytes":8"#), Rule::TextBytes));
    assert!(matches!(plain(r#","labels":{"__x":"1"}"#), Rule::ReservedLabel(_)));
    assert!(matches!(plain(r#","array":{"label":"cpu","count":0,"stride":1}"#), Rule::NoElements));
    assert!(matches!(plain(r#","array":{"label":"cpu","count":2,"stride":0}"#), Rule::Overlap(_)));
    assert!(matches!(plain(r#","array":{"label":"cpu","count":2,"stride":1,"values":["a"]}"#), Rule::Array));
    assert!(matches!(
        plain(r#","array":{"label":"cpu","count":4294967295,"stride":4294967295}"#),
        Rule::Limit { what: "MAX_COLUMNS", .. }
    ));
    assert!(matches!(
        plain(r#","labels":{"cpu":"1"},"array":{"label":"cpu","count":1,"stride":1}"#),
        Rule::DuplicateLabel(_)
    ));
    assert!(matches!(plain(r#","histogram":{"grouping_power":1,"max_power":9}"#), Rule::Histogram));
    assert!(matches!(
        refused(&with_fields("plain", r#"{"name":"1","metric":"gauge","type":"u64"}"#)),
        Rule::MetricName(_)
    ));
    assert!(matches!(
        refused(&with_fields("plain", r#"{"name":"a","metric":"counter","type":"i64"}"#)),
        Rule::Type { .. }
    ));
    assert!(matches!(refused(&with_fields("plain", r#"{"name":"a","metric":"gauge","type":"u32"}"#)), Rule::Narrow));
    assert!(matches!(
        refused(&with_fields("plain", r#"{"name":"a","metric":"histogram","type":"u64"}"#)),
        Rule::Histogram
    ));
    assert!(matches!(
        refused(&with_fields("foreign", r#"{"name":"a","metric":"gauge","type":"u32","slot":2}"#)),
        Rule::Misaligned(4)
    ));
    assert!(matches!(refused(&with_fields("table", &field(""))), Rule::Key));
    let two = |a: &str, b: &str| refused(&with_fields("plain", &format!("{},{}", field(a), field(b))));
    assert!(matches!(two("", r#","labels":{"x":"1"}"#), Rule::Overlap(_)));
    assert!(matches!(two("", r#","slot":1"#), Rule::DuplicateSeries));
    assert!(matches!(
        two(r#","labels":{"cpu":"1"},"slot":9"#, r#","array":{"label":"cpu","count":2,"stride":1}"#),
        Rule::DuplicateSeries
    ));
    let histogram =
        r#"{"name":"h","metric":"histogram","type":"u64","slot":100,"histogram":{"grouping_power":1,"max_power":20}}"#;
    let json = with_fields("guarded", histogram).replace(r#""blocks":1"#, r#""blocks":2"#);
    assert!(matches!(refused(&json), Rule::Spans));
}

#[test]
fn readers_pass_over_keys_that_they_do_not_know() {
    let known = with_fields(
        "plain",
        r#"{"name":"a","metric":"gauge","type":"u64","array":{"label":"cpu","count":2,"stride":1},"sum":{}}"#,
    );
    let newer = known
        .replace(r#""sum":{"#, r#""later":[{"x":null}],"sum":{"rounded":true"#)
        .replace(r#""stride":1"#, r#""stride":1,"order":"down""#)
        .replace(r#"{"name":"t""#, r#"{"since":7,"name":"t""#);
    assert_eq!(Schema::read(&newer).unwrap(), Schema::parse(&known).unwrap());
    assert!(refused(&newer).to_string().contains("unknown key `since`"), "{}", refused(&newer));
    assert!(Schema::read(&format!("{newer}x")).is_err());
}

#[test]
fn limits_have_names() {
    let name = "a".repeat(129);
    let json = with_fields("plain", &format!(r#"{{"name":"{name}","metric":"gauge","type":"u64"}}"#));
    assert_eq!(refused(&json), Rule::Limit { what: "MAX_NAME_BYTES", limit: 128, got: 129 });
    let help = "h".repeat(500);
    let fields: Vec<_> = (0..127)
        .map(|i| format!(r#"{{"name":"f{i}","metric":"gauge","type":"u64","slot":{i},"help":"{help}"}}"#))
        .collect();
    assert!(matches!(refused(&with_fields("plain", &fields.join(","))), Rule::Limit { what: "MAX_SCHEMA_BYTES", .. }));
    let json = r#"{"name":"t","groups":[{"kind":"plain","blocks":4294967295,"fields":[{"name":"a","metric":"gauge","type":"u64"}]},
        {"kind":"plain","blocks":4294967295,"fields":[{"name":"b","metric":"gauge","type":"u64"}]}]}"#;
    assert!(matches!(refused(json), Rule::Limit { what: "MAX_REGION_BLOCKS", .. }));
}

#[test]
fn a_twin_repeats_its_computed_group() {
    let group = |kind, rest: &str| {
        format!(r#"{{"kind":"{kind}","blocks":1{rest},"fields":[{{"name":"a","metric":"gauge","type":"u64"}}]}}"#)
    };
    let both = |a: String, b: String| format!(r#"{{"name":"t","groups":[{a},{b}]}}"#);
    assert!(Schema::parse(&both(group("computed", ""), group("guarded", r#","twin_of":0"#))).is_ok());
    assert_eq!(refused(&both(group("computed", ""), group("guarded", r#","twin_of":1"#))), Rule::Twin);
    assert_eq!(refused(&both(group("guarded", ""), group("guarded", r#","twin_of":0"#))), Rule::Twin);
}

#[test]
fn a_table_has_a_layout() {
    let json = r#"{"name":"t","groups":[{"kind":"table","blocks":2,"key":[{"name":"device","type":"text","bytes":16},{"name":"peer","type":"address"}],
        "fields":[{"name":"rx","metric":"counter","type":"u64"},{"name":"q","metric":"gauge","type":"u64","slot":3,"array":{"label":"i","count":3,"stride":2}}]}]}"#;
    let schema = Schema::parse(json).unwrap();
    assert_eq!(schema.groups[0].key[1].kind, KeyType::Address);
    let layout = schema.groups[0].layout().unwrap();
    assert_eq!((layout.key_words, layout.value_words, layout.rows_per_block()), (4, 8, 9));
}

#[test]
fn what_parses_has_a_stable_canonical_form_and_garbage_never_panics() {
    let seeds = [
        with_fields("plain", r#"{"name":"a","metric":"counter","type":"u64","scale":1e-9}"#),
        with_fields(
            "foreign",
            r#"{"name":"a","metric":"gauge","type":"f32","slot":4,"array":{"label":"i","count":3,"stride":8}}"#,
        ),
    ];
    bolero::check!().with_type::<(bool, Vec<(u16, u8)>)>().for_each(|(which, changes)| {
        let mut json = seeds[usize::from(*which)].clone().into_bytes();
        for (at, byte) in changes {
            let at = usize::from(*at) % json.len();
            json[at] = *byte;
        }
        if let Ok(schema) = Schema::parse(&String::from_utf8_lossy(&json)) {
            let canonical = schema.canonical();
            assert_eq!(Schema::parse(&canonical).unwrap().canonical(), canonical);
        }
    });
}
