// SPDX-License-Identifier: Apache-2.0
use bolero::check;
use serde_json::json;

use super::*;

fn printed(text: &str) -> String {
    formatted(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn json(text: &str) -> serde_json::Value {
    tree(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_line_has_one_form() {
    for (text, line) in [
        ("SUM BY(a , \"b c\",) ( x{} )", "sum by (a, \"b c\") (x)"),
        ("sum(x) without ()", "sum without () (x)"),
        ("sum by () (x)", "sum(x)"),
        ("{b='c',\"x\",a=~`\\d`}", "{__name__=\"x\",a=~\"\\\\d\",b=\"c\"}"),
        ("x{\"é f\"!=\"\\u00ad\\n\"}", "x{\"é f\"!=\"\\u00ad\\n\"}"),
        ("x[300] OFFSET -90d", "x[5m] offset -90d"),
        ("x[14d:0.5] @ 3 offset 1001ms", "x[2w:500ms] @ 3.000 offset 1s1ms"),
        ("x @ end() offset 0s smoothed", "x @ end() smoothed"),
        ("rate(x[5m] offset 1m anchored)", "rate(x[5m] anchored offset 1m)"),
        ("x[((5m))+ +60*-STEP()]", "x[(5m) + 60 * -step()]"),
        ("x offset +Min_Of(1m,range( ))", "x offset min_of(1m, range())"),
        ("a+ON()b", "a + on () b"),
        ("a+ignoring()b", "a + b"),
        ("a / on(x) group_left b", "a / on (x) group_left () b"),
        ("a>bool 1", "a > bool 1"),
        ("1+on()2", "1 + 2"),
        ("- -5m + +(0x1F) # why", "5m + +(31)"),
        ("1e21 * -Inf", "1000000000000000000000 * -Inf"),
        ("count_values('v', x)", "count_values(\"v\", x)"),
    ] {
        assert_eq!(printed(text), line, "{text}");
        assert_eq!(printed(line), line);
    }
}

#[test]
fn what_is_finer_than_milliseconds_stays_so() {
    assert_eq!(printed("x[0.0005] @ 1.00025 offset 0.000001"), "x[0.0005] @ 1.00025 offset 0.000001");
    assert_eq!(json("x[0.0005] @ 1.00025")["range"], 0.5);
    assert_eq!(printed("x[1001ms]"), "x[1s1ms]");
}

#[test]
fn what_is_long_has_lines() {
    let (name, range) = ("a_metric_whose_name_is_longer_than_most_names", "rate(b[5m])");
    let sides = format!("({range} + {range} > bool {range}) * on (x) group_left () -{name} ^ {name}");
    let text = format!("topk without (y) (3, {sides})");
    let lines = format!(
        "topk without (y) (\n  3,\n    ({range} + {range} > bool {range})\n  * on (x) group_left ()\n    -{name} ^ {name}\n)"
    );
    assert_eq!(printed(&text), lines);
    // A sign stands where its operand would; selectors are not parted.
    let long = format!("{{a=\"{}\"}}", "b".repeat(100));
    assert_eq!(printed(&format!("-{long} ^ 2")), format!("-{long}\n^\n  2"));
    assert_eq!(printed(&format!("-({long})")), format!("-(\n  {long}\n)"));
    // What stands behind a subquery stays there; one that fits is not indented.
    let subquery = format!("max_over_time(({long})[5m:] offset 1m)");
    assert_eq!(printed(&subquery), format!("max_over_time(\n  (\n    {long}\n  )[5m:] offset 1m\n)"));
    let short = format!("label_join(sum_over_time(({name} / {name})[1h:]), \"a\", \"b\")");
    let inner = format!("({name} / {name})[1h:]");
    assert_eq!(printed(&short), format!("label_join(\n  sum_over_time(\n{inner}\n  ),\n  \"a\",\n  \"b\"\n)"));
}

#[test]
fn trees_have_what_is_written() {
    let selector = json(r#"a{b=~"\\d"}[5m:step()] @ start() offset -1m"#);
    let matchers = json!([
        { "name": "b", "value": "\\d", "type": "=~" },
        { "name": "__name__", "value": "a", "type": "=" },
    ]);
    assert_eq!(
        selector,
        json!({
            "type": "subquery", "range": 300_000, "rangeExpr": null, "step": 0, "offset": -60_000, "offsetExpr": null,
            "stepExpr": { "type": "durationExpr", "op": "step", "lhs": null, "rhs": null, "wrapped": false },
            "timestamp": null, "startOrEnd": "start",
            "expr": {
                "type": "vectorSelector", "name": "a", "matchers": matchers, "offset": 0, "offsetExpr": null,
                "timestamp": null, "startOrEnd": null, "anchored": false, "smoothed": false,
            },
        })
    );
    let call = json("round(+(a @ 1.5), 0.5)");
    assert_eq!(
        call["func"],
        json!({ "name": "round", "argTypes": ["vector", "scalar"], "variadic": 1, "returnType": "vector" })
    );
    assert_eq!((&call["args"][0]["op"], &call["args"][0]["expr"]["type"]), (&json!("+"), &json!("parenExpr")));
    assert_eq!(call["args"][0]["expr"]["expr"]["timestamp"], 1_500);
    assert_eq!(call["args"][1], json!({ "type": "numberLiteral", "val": "0.5" }));
    assert_eq!(json("a and b")["matching"]["card"], "many-to-many");
    assert_eq!(json("a * on (c) group_right (d) b")["matching"]["card"], "one-to-many");
    assert_eq!(json("a > bool 1")["matching"], json!(null));
    assert_eq!(json("topk without (a) (1, b)")["param"]["val"], "1");
}

#[test]
fn nothing_is_calculated() {
    // At no time that is known it is more than 0.
    assert_eq!(printed("a[step() - 5s] offset (1 / (1 - 1))"), "a[step() - 5s] offset (1 / (1 - 1))");
    for text in ["", "a[5m / 0]", "a[-5m]", "rate(a)", "limitk(1, a)", "a{b=~\"(\"}"] {
        assert!(formatted(text).is_err() && tree(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_printed_is_the_same_query() {
    // `$`: what there is so far.
    const STEPS: [&str; 23] = [
        "($)",
        "-$",
        "+$",
        "$ ^ 2",
        "$ + vector(5m)",
        "0.1 > bool $",
        "$ and on (c) y",
        "y * ignoring (d, \"d d\") group_right (e) $",
        "$ or y{f=\"\\\\d|g\",h!=\"\"}",
        "SUM($)",
        "avg by (i) ($)",
        "count without () ($)",
        "topk(scalar(y), $)",
        "rate($)",
        "label_join($, \"j\", \"\\t\", \"k\")",
        "$[5m]",
        "$[min_of(1h, 90) * (2)]",
        "$[1d:]",
        "$[1d:step()]",
        "$ @ end()",
        "$ @ 1.5",
        "$ offset -7d",
        "$ anchored",
    ];
    check!().with_iterations(1_000).with_type::<Vec<u8>>().for_each(|bytes| {
        let mut text = "x".to_owned();
        for byte in bytes.iter().take(40) {
            let more = STEPS[usize::from(*byte) % STEPS.len()].replace('$', &text);
            if parse::parse(&more, None).is_ok() {
                text = more;
            }
        }
        let printed = printed(&text);
        assert_eq!(formatted(&printed).as_ref(), Ok(&printed), "{text}");
        assert_eq!(json(&printed), json(&text), "{text}");
    });
}

#[test]
fn the_deepest_and_the_widest_end() {
    let deep = |before: &str, after: &str| format!("{}a{}", before.repeat(90), after.repeat(90));
    let long = format!("{{a=\"{}\"}}", "b".repeat(30_000));
    for text in [
        deep("(", ")"),
        deep("abs(", ")"),
        format!("{}a{}", "-(".repeat(65), ")".repeat(65)),
        deep("a + ", ""),
        deep("a ^ ", ""),
        format!("{}{long}{}", "abs(".repeat(90), ")".repeat(90)),
        format!("{}label_join(a{}){}", "abs(".repeat(90), ", \"\"".repeat(12_000), ")".repeat(90)),
        format!("a{{{}}}", "b=\"c\",".repeat(10_000)),
    ] {
        let printed = printed(&text);
        assert!(tree(&text).is_ok());
        assert!(printed.len() < 300 * text.len(), "{}", printed.len());
    }
    for text in [deep("((", "))"), "a".repeat(70_000), deep("-------", "")] {
        assert!(matches!(formatted(&text), Err(ParseError::Large { .. })));
    }
}
