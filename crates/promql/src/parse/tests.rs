// SPDX-License-Identifier: Apache-2.0
use bolero::check;

use super::*;
use crate::expr::{Binary, Call, Edges, Select};
use crate::times::Times;
use crate::written::Number;

const TIMES: Times = Times { start_ns: 10_000_000_000, end_ns: 40_000_000_000, step_ns: 5_000_000_000 };

fn parsed(text: &str) -> Expr {
    parse(text, Some(TIMES)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    parse(text, Some(TIMES)).map_or_else(|error| error.to_string(), |expr| panic!("{text} is {expr:?}"))
}

fn select(text: &str) -> Select {
    match parsed(text) {
        Expr::Select(select) => select,
        other => panic!("{text} is {other:?}"),
    }
}

#[test]
fn durations_are_calculated() {
    let range_ns = |text: &str| match parsed(&format!("a[{text}]")) {
        Expr::Range(range) => range.range_ns,
        other => panic!("{text} is {other:?}"),
    };
    let second_ns = 1_000_000_000;
    for (text, ns) in [
        ("1h30m", 5_400 * second_ns),
        ("1w2d", 9 * 86_400 * second_ns),
        ("250ms", second_ns / 4),
        ("0.000001", 1_000),
        ("0x10", 16 * second_ns),
        ("2 * step() + range()", 40 * second_ns),
        ("2 ^ 3 ^ 0", 2 * second_ns),
        ("-(1s - 3)", 2 * second_ns),
        ("MIN_OF(1m, 7 % 4)", 3 * second_ns),
    ] {
        assert_eq!(range_ns(text), ns, "{text}");
    }
    for text in
        ["0", "1x", "1m1h", "1s1s", "", "1 +", "(1", "step(", "1h 2h", "inf", "nan", "1/0", "1%(1-1)", "step()-5"]
    {
        refused(&format!("a[{text}]"));
    }
}

#[test]
fn offsets_take_one_duration() {
    let offset_ns = |text: &str| select(text).when.offset_ns;
    assert_eq!(offset_ns("a offset 5m"), 300_000_000_000);
    assert_eq!(offset_ns("a OFFSET -0.5"), -500_000_000);
    assert_eq!(offset_ns("a{} offset -(2s * 3)"), -6_000_000_000);
    assert_eq!(offset_ns("a offset 0s"), 0);
    assert_eq!(offset_ns("a @ end() offset step()"), 5_000_000_000);
    assert!(matches!(parsed("a offset 5m + 2"), Expr::Binary(_)));
    assert!(matches!(parsed("a offset -(5m) * 2"), Expr::Binary(_)));
    // What begins with a parenthesis, or with two signs, goes on.
    assert_eq!(offset_ns("a offset (5m) * 2"), 600_000_000_000);
    assert_eq!(offset_ns("a offset --1 + 2"), 3_000_000_000);
    refused("a offset (5m) + b");
    refused("a offset range() offset 5m");
    // As names they are names.
    for text in ["offset", "sum by (offset) (a)", r#"a{offset="1"}"#, r#"sum(offset{a="b"})"#] {
        parsed(text);
    }
}

#[test]
fn edges_are_the_selectors_own() {
    assert_eq!(select("a smoothed").edges, Edges::Smoothed);
    assert_eq!(select(r#"a{b="anchored"} @ 5 offset 1m anchored"#).edges, Edges::Anchored);
    assert_eq!(select(r#"{b="c",} anchored"#).matchers.len(), 1);
    let Expr::Binary(binary) = parsed("rate(a[5m] anchored) + b") else { panic!("no sum") };
    let Expr::Call(Call { args, .. }) = &binary.left else { panic!("no call") };
    assert!(matches!(&args[..], [Expr::Range(range)] if range.edges() == Edges::Anchored));
    assert!(matches!(&binary.right, Expr::Select(select) if select.edges == Edges::Plain));
    for text in ["a[5m:1m] anchored", "1 smoothed", "rate(a[1m]) anchored", "a smoothed anchored"] {
        refused(text);
    }
    // They are no matchers.
    for text in ["{} anchored", r#"rate({a=""}[1m] smoothed)"#, r#"{a=~".*", b!="c"} anchored"#] {
        assert!(refused(text).contains("non-empty matcher"), "{text}");
    }
}

#[test]
fn times_are_those_of_the_query() {
    assert_eq!(select("a @ start()").when.at_ns, Some(TIMES.start_ns));
    assert_eq!(select("a @ end()").when.at_ns, Some(TIMES.end_ns));
    assert_eq!(select("a @ -1.5").when.at_ns, Some(-1_500_000_000));
    refused("a @ 1e300");
}

#[test]
fn what_is_refused_is_named() {
    for (text, name) in [
        ("limitk(2, a)", "limitk"),
        ("mad_over_time(a[5m])", "mad_over_time"),
        ("a + fill(0) b", "fill"),
        (r#"a{b="c" or d="e"}"#, r#"unexpected identifier "or" in label matching"#),
        (r#"a{b="\xff"}"#, "no UTF-8"),
        (r#"count_values("a\xc5z", b)"#, r#"invalid label name "a\xc5z""#),
        (r#"{a=~".*"}"#, "non-empty matcher"),
        (r#"{a=~"b**("}"#, "error parsing regexp"),
        ("1 > 2", "BOOL"),
    ] {
        let told = refused(text);
        assert!(told.contains(name), "{text}: {told}");
    }
}

#[test]
fn strings_and_comments_are_left_alone() {
    let value = |text: &str| select(text).matchers[0].value.clone();
    assert_eq!(value(r#"{a="x[5m] offset # \" 1"} # and [this"#), "x[5m] offset # \" 1");
    assert_eq!(value("{a=`\\`}"), "\\");
    let commented = select("{a=\"b\", # not } \" this\n c='#'}");
    assert_eq!(commented.matchers.iter().map(|own| &*own.value).collect::<Vec<_>>(), ["b", "#"]);
    assert!(matches!(parsed("# nothing\n1"), Expr::Number(one) if one.value == 1.0));
}

#[test]
fn errors_have_their_place() {
    for (text, told) in [
        ("", "1:1: parse error: no expression found in input"),
        ("a +", "1:4: parse error: unexpected end of input"),
        ("a\n  b", "2:3: parse error: unexpected identifier \"b\""),
        ("sum(a", "1:6: parse error: unexpected end of input in aggregation, expected \")\""),
        ("(a", "1:1: parse error: unclosed left parenthesis"),
        ("rate(a)", "1:6: parse error: expected type range vector in call to function \"rate\", got instant vector"),
        ("rate(a[5m], 1)", "1:1: parse error: expected 1 argument(s) in call to \"rate\", got 2"),
        ("1 + nosuch(a)", "1:5: parse error: unknown function with name \"nosuch\""),
        ("topk(a)", "1:1: parse error: wrong number of arguments for aggregate expression provided, expected 2, got 1"),
        ("a and 1", "1:1: parse error: set operator \"and\" not allowed in binary scalar expression"),
        ("a + bool b", "1:3: parse error: bool modifier can only be used on comparison operators"),
        ("a{b=~\"(\"}", "1:3: parse error: error parsing regexp: \"(\""),
        ("(a)[5m]", "1:4: parse error: ranges only allowed for vector selectors"),
        ("a offset 5m[5m]", "1:12: parse error: no offset modifiers allowed before range"),
        ("a @ 1 @ 2", "1:1: parse error: @ <timestamp> may not be set multiple times"),
        ("\"x", "1:1: parse error: unterminated quoted string: \"\\\"x\""),
        ("rate(a) + $", "1:11: parse error: unexpected character: \"$\""),
        ("a[5m:1m", "1:8: parse error: unexpected end of input in subquery selector \"]\""),
    ] {
        let got = refused(text);
        assert!(got.starts_with(told), "{text}: {got}");
    }
}

#[test]
fn names_may_be_keywords_and_quoted() {
    for text in [
        "sum",
        "by",
        "offset offset 5m",
        "step + range",
        "anchored",
        "start{end=\"x\"}",
        "and and or",
        "fill + fill",
        "sum by (by, on, sum,) (without)",
        "SUM(a) BY (b)",
        "sum without () (a)",
        "a:b:c",
        "a + ON (b) GROUP_LEFT c",
        "a / on (x) group_right (y) b",
        "count_values(\"v\", a)",
    ] {
        parsed(text);
    }
    assert_eq!(select("{\"a.b\", \"c d\"=\"e\"}").matchers.len(), 2);
    for text in ["on", "bool + 1", "a by (b)", "sum(a) by b", "by(a)", "{a=b}", "a{b}", "{}", "a[5m]b", "[5m]", "1[5m]"]
    {
        refused(text);
    }
}

fn without_parentheses(expr: Expr) -> Expr {
    match expr {
        Expr::Parentheses(inner) => without_parentheses(*inner),
        Expr::Negate(inner) => Expr::Negate(Box::new(without_parentheses(*inner))),
        Expr::Binary(binary) => {
            let Binary { left, right, .. } = *binary;
            let (left, right) = (without_parentheses(left), without_parentheses(right));
            Expr::Binary(Box::new(Binary { left, right, ..*binary }))
        }
        other => other,
    }
}

#[test]
fn operators_bind_as_in_prometheus() {
    // Neither places nor parentheses are part of it.
    let places = regex::Regex::new(r"Place \{[^}]*\}").expect("an expression");
    let told = |text: &str| places.replace_all(&format!("{:?}", without_parentheses(parsed(text))), "").into_owned();
    let same = |text: &str, other: &str| assert_eq!(told(text), told(other), "{text}");
    same("a or b and c", "a or (b and c)");
    same("a - b - c", "(a - b) - c");
    same("a ^ b ^ c", "a ^ (b ^ c)");
    same("-a ^ b", "-(a ^ b)");
    same("-a * b", "(-a) * b");
    same("a < b + c * d", "a < (b + (c * d))");
    same("a atan2 b / c", "(a atan2 b) / c");
    same("a offset -2 ^ 2", "(a offset -2) ^ 2");
    same("-a offset 1m", "-(a offset 1m)");
    same("a == bool b", "a ==BOOL(b)");
    same("017 + 0x1F + 1_000", "15 + 31 + 1000");
    same("+5", "5");
    assert!(matches!(parsed("5m"), Expr::Number(Number { value: 300.0, has_units: true })));
    assert!(matches!(parsed("-1 ^ 2"), Expr::Negate(_)));
    ["1_e2", "1e400", "1__0", "0x_", "1_"].into_iter().for_each(|number| drop(refused(number)));
}

#[test]
fn no_text_is_too_much() {
    const WORDS: [&str; 32] = [
        "a", "{", "}", "[", "]", "(", ")", "5m", "1e9", "0x", "offset", "-", "+", "^", "@", "start", "end", "step",
        "anchored", "smoothed", "sum", "by", ":", ",", "\"", "'", "#", "rate", "=", " ", "é", "or",
    ];
    check!().with_iterations(2_000).with_type::<Vec<u8>>().for_each(|bytes| {
        let text: String = bytes.iter().map(|byte| WORDS[usize::from(*byte) % WORDS.len()]).collect();
        // Whatever it is, it ends.
        if let Err(error) = parse(&text, Some(TIMES)) {
            assert!(!error.to_string().is_empty());
        }
    });
}
