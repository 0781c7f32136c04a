// SPDX-License-Identifier: Apache-2.0
use super::*;

fn groups(text: &str) -> Vec<Group> {
    read(Path::new("a.yaml"), text).unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
}

/// `LINE:COLUMN: ...` of each mistake.
fn mistakes(text: &str) -> Vec<String> {
    let mistakes = read(Path::new("a.yaml"), text).expect_err(text);
    mistakes.iter().map(ToString::to_string).collect()
}

/// A file with this rule, which begins at column 5.
fn rule(fields: &[&str]) -> String {
    format!("groups:\n- name: g\n  rules:\n  - {}\n", fields.join("\n    "))
}

#[test]
fn a_file_is_read_as_a_whole() {
    let text = r#"
groups:
  - name: shop
    interval: 100ms
    query_offset: 1m30s
    limit: 3
    labels: {team: shop, severity: none}
    rules:
      # The first one.
      - record: "shop:visits:rate1m"
        expr: sum by (instance) (rate(shop_visits_total[1m]))
      - alert: Idle
        expr: 1
        for: 0
        keep_firing_for: 5m
        labels: {severity: page, number: 7, no: no, nothing: }
        annotations:
          summary: "{{ $labels.instance }} sells nothing"
  - name: empty
    rules:
"#;
    let groups = groups(text);
    let texts = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let record = Rule {
        what: What::Record { name: "shop:visits:rate1m".to_owned() },
        expr: "sum by (instance) (rate(shop_visits_total[1m]))".to_owned(),
        labels: texts(&[("team", "shop"), ("severity", "none")]),
        line: 10,
    };
    let alert = Rule {
        what: What::Alert {
            name: "Idle".to_owned(),
            hold_ns: 0,
            keep_firing_ns: 300_000_000_000,
            annotations: texts(&[("summary", "{{ $labels.instance }} sells nothing")]),
        },
        expr: "1".to_owned(),
        labels: texts(&[("team", "shop"), ("severity", "page"), ("number", "7"), ("no", "no"), ("nothing", "")]),
        line: 12,
    };
    let shop = Group {
        name: "shop".to_owned(),
        file: "a.yaml".into(),
        interval_ns: Some(100_000_000),
        offset_ns: 90_000_000_000,
        limit: 3,
        rules: vec![record, alert],
    };
    assert_eq!(groups[0], shop);
    assert_eq!((groups.len(), groups[1].rules.len(), groups[1].interval_ns, groups[1].offset_ns), (2, 0, None, 0));
}

#[test]
fn a_file_may_be_empty() {
    for text in ["", "\n# nothing\n", "---\n", "groups:\n", "groups: []\n", "{}\n"] {
        assert_eq!(groups(text), [], "{text:?}");
    }
}

#[test]
fn aliases_and_merged_maps_mean_what_they_stand_for() {
    let text = "
groups:
- name: a
  rules:
  - &down
    alert: &name Down
    expr: &expr |
      up
      == 0
    labels: {severity: &severity page}
  - record: b
    expr: *expr
  - <<: *down
    alert: Down2
    labels: {severity: *severity}
";
    let rules = &groups(text)[0].rules;
    assert!(rules.iter().all(|rule| rule.expr == "up\n== 0\n"), "{rules:?}");
    assert_eq!(rules.iter().map(Rule::name).collect::<Vec<_>>(), ["Down", "b", "Down2"]);
    assert_eq!(rules[2].labels["severity"], "page");
    // Mistakes in what is used elsewhere are where it is defined.
    let wrong = mistakes(&text.replace("== 0", "==="));
    assert!(wrong.iter().all(|mistake| mistake.starts_with("9:")), "{wrong:?}");
}

#[test]
fn what_prometheus_refuses_is_refused_with_its_place() {
    let mut wrong = String::new();
    for (text, wanted) in [
        (rule(&["record: a", "expr: rate(hi)"]), "5:16: group \"g\", rule 1, \"a\": could not parse expression: "),
        (
            rule(&["alert: a", "record: b", "expr: 1"]),
            "4:12: group \"g\", rule 1, \"a\": only one of 'record' and 'alert'",
        ),
        (rule(&["expr: 1"]), "4:5: group \"g\", rule 1, \"\": one of 'record' or 'alert' must be set"),
        (rule(&["record: a"]), "4:5: group \"g\", rule 1, \"a\": field 'expr' must be set"),
        (rule(&["record: a", "expr:"]), "4:5: group \"g\", rule 1, \"a\": field 'expr' must be set"),
        (rule(&["record: a{b=\"c\"}", "expr: 1"]), "4:14: group \"g\", rule 1, \"a{b=\\\"c\\\"}\": braces present"),
        (rule(&["record: a", "expr: 1", "for: 1m"]), "4:13: group \"g\", rule 1, \"a\": invalid field 'for'"),
        (
            rule(&["record: a", "expr: 1", "keep_firing_for: 1m"]),
            "4:13: group \"g\", rule 1, \"a\": invalid field 'keep_f",
        ),
        (
            rule(&["record: a", "expr: 1", "annotations: {b: c}"]),
            "4:13: group \"g\", rule 1, \"a\": invalid field 'annot",
        ),
        (rule(&["alert: a", "expr: 1", "for: 1x"]), "6:10: group \"g\", rule 1, \"a\": not a valid duration"),
        (rule(&["alert: a", "expr: 1", "for: 5"]), "6:10: group \"g\", rule 1, \"a\": not a valid duration"),
        (
            rule(&["record: a", "expr: 1", "labels: {__name__: b}"]),
            "6:14: group \"g\", rule 1, \"a\": invalid label name",
        ),
        (
            rule(&["alert: a", "expr: 1", "labels: {b: \"{{ $c }}\"}"]),
            "6:21: group \"g\", rule 1, \"a\": label \"b\": undefined variable",
        ),
        (
            rule(&["alert: a", "expr: 1", "annotations:", "  b: \"{{ nope }}\""]),
            "7:14: group \"g\", rule 1, \"a\": annotation \"b\": function",
        ),
        (rule(&["record: a", "expr: 1", "label: {}"]), "6:5: "),
        (rule(&["record: a", "expr: 1", "expr: 2"]), "6:5: "),
        (rule(&["record: a", "expr: [1]"]), "5:11: "),
        (
            "groups:\n- name: a\n- name: a\n".to_owned(),
            "3:9: group \"a\": a group of this name is in the file already: a",
        ),
        ("groups:\n- rules: []\n".to_owned(), "2:3: group \"\": a group must have a name"),
        ("groups:\n- name: a\n  intervall: 1m\n".to_owned(), "3:3: "),
        ("groups:\n- name: a\n  interval: soon\n".to_owned(), "3:13: group \"a\": not a valid duration"),
        ("rules: []\n".to_owned(), "1:1: "),
        ("groups:\n- name: a\n  limit: many\n".to_owned(), "3:10: "),
        ("groups: [\n".to_owned(), "1:9: "),
        ("groups: []\n---\ngroups: []\n".to_owned(), "3:1: more than one document"),
    ] {
        let found = mistakes(&text);
        if found.len() != 1 || !found[0].starts_with(wanted) {
            wrong.push_str(&format!("{text}\n  wanted {wanted}\n  found {found:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn all_mistakes_of_a_file_are_told() {
    let text =
        rule(&["record: a", "expr: (", "for: 1m"]) + "  - alert: b\n    expr: up ==== 1\n    labels: {x: '{{'}\n";
    assert_eq!(mistakes(&text).len(), 4, "{:?}", mistakes(&text));
}

#[test]
fn a_mistake_is_found_within_every_kind_of_text() {
    for (expr, line, column) in [
        ("expr: sum(up) + nope(up)", 5, 21),
        ("expr: \"sum(up) + nope(up)\"", 5, 22),
        ("expr: 'sum(up) + nope(up)'", 5, 22),
        ("expr: |\n      sum(up)\n        + nope(up)", 7, 11),
        ("expr: >-\n      sum(up)\n\n      + nope(up)", 8, 9),
        ("expr: sum(up)\n      + nope(up)", 6, 9),
        ("expr: \"up{a=\\\"b\\\"} + nope(up)\"", 5, 26),
        ("expr: 'up{a=''b''} + nope(up)'", 5, 26),
        ("expr: sum(up{a=\"\u{e9}\u{e9}\"}) + nope(up)", 5, 29),
    ] {
        let found = read(Path::new("a.yaml"), &rule(&["record: a", expr])).unwrap_err();
        let place = (found[0].line, found[0].column, found[0].offending.as_str());
        assert_eq!(place, (line, column, "nope"), "{expr}");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let long = format!("# {}\n", "x".repeat(MAX_FILE_BYTES));
    assert!(mistakes(&long)[0].starts_with("the file has more than"));
    // References that multiply when they are resolved.
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for at in 1..12 {
        bomb.push_str(&format!("a{at}: &a{at} [{}]\n", format!("*a{},", at - 1).repeat(10)));
    }
    assert!(read(Path::new("a.yaml"), &bomb).is_err());
}

#[test]
fn no_text_panics() {
    const WORDS: [&str; 24] = [
        "groups:",
        "- name: a",
        "rules:",
        "- record: b",
        "- alert: c",
        "expr: |",
        "expr: ",
        "up ==",
        "\n",
        "\n  ",
        "\n    ",
        "\n      ",
        "'",
        "\"",
        "{{ $labels.",
        "}}",
        "labels: {",
        "}",
        "&a ",
        "*a",
        "<<: ",
        "for: 1m",
        "\u{e9}",
        ">-\n",
    ];
    bolero::check!().with_type::<Vec<u8>>().for_each(|choices| {
        let text: String = choices.iter().map(|at| WORDS[usize::from(*at) % WORDS.len()]).collect();
        for mistake in read(Path::new("a.yaml"), &text).err().unwrap_or_default() {
            assert!(mistake.line <= text.lines().count() + 1, "{mistake}");
        }
    });
}
