// SPDX-License-Identifier: Apache-2.0
use bolero::check;

use super::*;

const TIMES: Times = Times { start_ns: 10_000_000_000, end_ns: 40_000_000_000, step_ns: 5_000_000_000 };

fn parsed(text: &str) -> Expr {
    parse(text, TIMES).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    parse(text, TIMES).map_or_else(|error| error.to_string(), |expr| panic!("{text} is {expr:?}"))
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
    for text in ["0", "1x", "1m1h", "1s1s", "", "1 +", "(1", "step(", "1h 2h", "inf", "nan"] {
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
        ("a </ 2", "native histograms"),
        ("histogram_avg(a)", "native histograms"),
        ("limitk(2, a)", "limitk"),
        ("mad_over_time(a[5m])", "mad_over_time"),
        ("a + fill(0) b", "fill"),
        (r#"a{b="c" or d="e"}"#, "alternatives"),
        (r#"a{b="\xff"}"#, "single bytes"),
        (r#"{a=~".*"}"#, "non-empty matcher"),
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
    assert!(matches!(parsed("# nothing\n1"), Expr::Number(one) if one == 1.0));
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
        if let Err(error) = parse(&text, TIMES) {
            assert!(!error.to_string().is_empty());
        }
    });
}
