// SPDX-License-Identifier: Apache-2.0
//! What a query may cost, and that it can be stopped.

use std::time::{Duration, Instant};

use onlooker_promql::labels::{Labels, Matcher, NAME};
use onlooker_promql::limits::{Budget, Cancel, Limits};
use onlooker_promql::source::{Chunk, Chunks, Found, SeriesSource, SourceError, Span, Summary, Windows};
use onlooker_promql::value::Value;
use onlooker_promql::{Options, ParseError, Query, QueryError, Times};

use crate::memory::{MS, Memory};

const SECOND_NS: i64 = 1_000 * MS;
const MINUTE: Times = Times { start_ns: 0, end_ns: 60 * SECOND_NS, step_ns: SECOND_NS };

/// 20 series with a sample a second for a minute.
fn memory() -> Memory {
    let mut memory = Memory::default();
    for number in 0..20 {
        let labels = Labels::new([(NAME.to_owned(), "some_total".to_owned()), ("n".to_owned(), number.to_string())]);
        memory.add(labels, (0..=60).map(|second| (second * SECOND_NS, 1.0)));
    }
    memory
}

fn run(text: &str, times: Times, limits: Limits) -> Result<Value, QueryError> {
    let options = Options { limits, ..Options::default() };
    let query = Query::parse(text, times).expect("a query");
    query.run(&memory(), &options).map(|answer| answer.value)
}

#[test]
fn a_query_within_its_limits_has_an_answer_one_beyond_says_which() {
    let text = "max_over_time(sum by (n) (some_total)[10s:1s])";
    let enough = Limits { series: 20, samples: 20 * 61, steps: 61, subquery_steps: 70, bytes: 1 << 20 };
    assert!(run(text, MINUTE, enough).is_ok());
    let beyond = |limits| run(text, MINUTE, limits).expect_err("a limit");
    assert!(matches!(beyond(Limits { series: 19, ..enough }), QueryError::Series { most: 19 }));
    assert!(matches!(beyond(Limits { samples: 1_219, ..enough }), QueryError::Samples { most: 1_219 }));
    assert!(matches!(beyond(Limits { subquery_steps: 69, ..enough }), QueryError::Steps { most: 69 }));
    assert!(matches!(beyond(Limits { steps: 60, ..enough }), QueryError::Steps { most: 60 }));
    assert!(matches!(beyond(Limits { bytes: 20_000, ..enough }), QueryError::Bytes { most: 20_000 }));
}

/// The largest count of steps there is: one more is not a number.
#[test]
fn times_without_end_have_too_many_steps() {
    let all = Times { start_ns: i64::MIN, end_ns: i64::MAX, step_ns: 1 };
    assert!(matches!(run("some_total", all, Limits::default()), Err(QueryError::Steps { .. })));
    let long = run("sum_over_time(some_total[9223372036:0.000000001])", MINUTE, Limits::default());
    assert!(matches!(long, Err(QueryError::Steps { .. })), "{long:?}");
}

#[test]
fn what_is_done_with_does_not_count_as_memory() {
    let limits = Limits { bytes: 60_000, ..Limits::default() };
    let sums = vec!["sum(some_total)"; 50].join(" + ");
    assert!(run(&sums, MINUTE, limits).is_ok());
}

#[test]
fn operators_cannot_make_more_series_than_a_query_may_have() {
    let limits = Limits { series: 20, ..Limits::default() };
    let error = run(r#"count_values("v", some_total + time())"#, MINUTE, limits).expect_err("too many");
    assert!(matches!(error, QueryError::Series { most: 20 }));
}

/// The least memory that a query can do with.
fn least(text: &str, memory: &Memory, times: Times) -> usize {
    let query = Query::parse(text, times).expect("a query");
    let is_enough = |bytes: usize| {
        let options = Options { limits: Limits { bytes, ..Limits::default() }, ..Options::default() };
        match query.run(memory, &options) {
            Ok(_) => true,
            Err(QueryError::Bytes { .. }) => false,
            Err(error) => panic!("{text}: {error}"),
        }
    };
    let (mut not, mut enough) = (0, 64 << 20);
    assert!(is_enough(enough), "{text}");
    while enough - not > 1 {
        let middle = not.midpoint(enough);
        if is_enough(middle) { enough = middle } else { not = middle }
    }
    enough
}

const STEPS: usize = 601;
const TEN_MINUTES: Times = Times { start_ns: 0, end_ns: 600 * SECOND_NS, step_ns: SECOND_NS };

#[test]
fn what_goes_on_is_counted_once_what_is_dropped_not_at_all() {
    let memory = memory();
    let all = least("some_total", &memory, TEN_MINUTES);
    let or = least("some_total or on(none) some_total", &memory, TEN_MINUTES);
    assert!(or < all * 9 / 4, "{or} of {all}");
    let filtered = least("(some_total > 5) or (some_total > 5)", &memory, TEN_MINUTES);
    assert!(filtered < all * 5 / 4, "{filtered} of {all}");
}

#[test]
fn what_matching_remembers_is_counted() {
    let memory = memory();
    let all = least("some_total", &memory, TEN_MINUTES);
    // The left side and the result, and at which steps each of its 20 series has been there.
    let grouped = least("some_total * on() group_left vector(2)", &memory, TEN_MINUTES);
    assert!(grouped >= 2 * all + 20 * STEPS, "{grouped}, each {all}");
}

#[test]
fn samples_of_a_subquery_are_counted() {
    let memory = memory();
    let found = least("some_total[600s:1s]", &memory, Times::instant(360 * SECOND_NS));
    // Times and values: those of a minute are there for five more.
    assert!(found >= 20 * 360 * 16, "{found}");
}

#[test]
fn what_is_kept_of_a_window_is_counted() {
    let mut memory = Memory::default();
    let falling = (0..600_u32).map(|second| (i64::from(second) * SECOND_NS, f64::from(600 - second)));
    memory.add(Labels::new([(NAME, "falling_total")]), falling);
    let of = |call: &str| least(&call.replace('W', "falling_total[10m]"), &memory, Times::instant(600 * SECOND_NS));
    let window = of("count_over_time(W)");
    for (call, bytes) in [
        ("rate(W)", 16),
        ("max_over_time(W)", 16),
        ("changes(W)", 8),
        ("resets(W)", 8),
        ("quantile_over_time(0.5, W)", 8),
    ] {
        // Without the answer, which is there when the window no longer is.
        assert!(of(call) >= window + 570 * bytes, "{call}: {} of {window}", of(call));
    }
}

#[test]
fn texts_are_counted_before_they_are_made() {
    let mut memory = Memory::default();
    let labels = [(NAME, "wordy".to_owned()), ("word", "w".repeat(1_000))];
    memory.add(Labels::new(labels), [(0, 1.0)]);
    let options = Options { limits: Limits { bytes: 1 << 20, ..Limits::default() }, ..Options::default() };
    for text in [
        format!(r#"label_replace(wordy, "to", "{}", "word", ".*")"#, "$0".repeat(20_000)),
        format!(r#"label_join(wordy, "to", "" {})"#, r#","word""#.repeat(1_100)),
    ] {
        let query = Query::parse(&text, Times::instant(0)).expect("a query");
        assert!(matches!(query.run(&memory, &options), Err(QueryError::Bytes { .. })), "{text:.40}");
    }
}

/// One series that never ends, and stops the query itself when it has been read for some time.
struct Endless {
    cancel: Option<(Cancel, u32)>,
}

struct Forever {
    next_ns: i64,
    times_ns: Vec<i64>,
    values: Vec<f64>,
    cancel: Option<(Cancel, u32)>,
}

impl SeriesSource for Endless {
    fn select(&self, _: &[Matcher], _: Span, _: &Budget) -> Result<Vec<Found>, SourceError> {
        Ok(vec![Found { key: 0, labels: Labels::new([(NAME, "endless")]) }])
    }

    fn read<'a>(&'a self, _: u64, _: Span) -> Result<Box<dyn Chunks + 'a>, SourceError> {
        let (times_ns, values) = (Vec::new(), vec![1.0; 1_000]);
        Ok(Box::new(Forever { next_ns: 0, times_ns, values, cancel: self.cancel.clone() }))
    }
}

impl Chunks for Forever {
    fn next(&mut self) -> Result<Option<Chunk<'_>>, SourceError> {
        self.times_ns = (self.next_ns..self.next_ns + 1_000).collect();
        self.next_ns += 1_000;
        if let Some((cancel, chunks)) = &mut self.cancel {
            *chunks = chunks.saturating_sub(1);
            if *chunks == 0 {
                cancel.cancel();
            }
        }
        Ok(Some(Chunk { times_ns: &self.times_ns, values: &self.values, histograms: &[] }))
    }
}

fn unlimited() -> Options {
    let limits = Limits { samples: u64::MAX, bytes: usize::MAX, ..Limits::default() };
    Options { limits, ..Options::default() }
}

#[test]
fn a_query_that_is_cancelled_ends() {
    let cancel = Cancel::default();
    let source = Endless { cancel: Some((cancel.clone(), 10)) };
    for text in ["endless", "rate(endless[1m])", "sum_over_time(endless[1ms])"] {
        let query = Query::parse(text, Times::instant(i64::MAX / 2)).expect("a query");
        let options = Options { cancel: cancel.clone(), ..unlimited() };
        assert!(matches!(query.run(&source, &options), Err(QueryError::Cancelled)), "{text}");
    }
}

#[test]
fn a_query_that_takes_too_long_ends() {
    let query = Query::parse("rate(endless[1m])", Times::instant(i64::MAX / 2)).expect("a query");
    let options = Options { until: Some(Instant::now() + Duration::from_millis(20)), ..unlimited() };
    assert!(matches!(query.run(&Endless { cancel: None }, &options), Err(QueryError::Time)));
}

#[test]
fn texts_that_are_too_large_are_refused() {
    let refused = |text: String| Query::parse(&text, Times::instant(0)).expect_err("too large");
    assert!(matches!(refused("a".repeat(70_000)), ParseError::Large { what: "bytes", .. }));
    assert!(matches!(refused("1+".repeat(201) + "1"), ParseError::Large { .. }));
    assert!(matches!(refused("(".repeat(200) + "1" + &")".repeat(200)), ParseError::Large { .. }));
    assert!(matches!(refused("-".repeat(3_000) + "1"), ParseError::Large { .. }));
    let regexes = "a=~\"b\",".repeat(65);
    assert!(matches!(refused(format!("{{{regexes}}}")), ParseError::Large { what: "regular expressions", .. }));
    // What is allowed does not overflow the stack.
    for deep in ["(".repeat(100) + "1" + &")".repeat(100), "-".repeat(200) + "1", "1^".repeat(200) + "1"] {
        let query = Query::parse(&deep, Times::instant(0)).expect("a query");
        assert!(query.run(&memory(), &Options::default()).is_ok());
    }
    let long = "1+".repeat(200) + "1";
    let query = Query::parse(&long, Times::instant(0)).expect("a query");
    assert!(query.run(&memory(), &Options::default()).is_ok());
}

/// Has no samples, only what it knows of windows.
struct Summaries;

impl SeriesSource for Summaries {
    fn select(&self, _: &[Matcher], _: Span, _: &Budget) -> Result<Vec<Found>, SourceError> {
        Ok(vec![Found { key: 7, labels: Labels::new([(NAME, "some_total")]) }])
    }

    fn read<'a>(&'a self, _: u64, _: Span) -> Result<Box<dyn Chunks + 'a>, SourceError> {
        Err("there are no samples any longer".into())
    }

    fn summaries(
        &self,
        key: u64,
        windows: Windows,
        budget: &Budget,
        take: &mut dyn FnMut(usize, Summary),
    ) -> Result<bool, SourceError> {
        assert_eq!(key, 7);
        budget.samples(6)?;
        assert_eq!((windows.step_ns, windows.count, windows.range_ns), (SECOND_NS, 61, 60 * SECOND_NS));
        let end_ns = windows.first_end_ns + 60 * windows.step_ns;
        let (first_ns, last_ns) = (end_ns - 50 * SECOND_NS, end_ns);
        let (count, first, last) = (6, 100.0, 20.0);
        // It went up to 130 and began again.
        let increase = if windows.is_counter { 50.0 } else { -80.0 };
        take(60, Summary { count, first_ns, last_ns, first, last, increase });
        Ok(true)
    }
}

#[test]
fn summaries_answer_what_they_can() {
    let last = |text: &str| {
        let query = Query::parse(text, MINUTE).expect("a query");
        let Value::Vector(series) = query.run(&Summaries, &Options::default())?.value else { panic!("no vector") };
        Ok::<f64, QueryError>(series[0].values[60])
    };
    assert_eq!(last("first_over_time(some_total[1m])").expect("an answer"), 100.0);
    assert_eq!(last("last_over_time(some_total[1m])").expect("an answer"), 20.0);
    assert_eq!(last("count_over_time(some_total[1m])").expect("an answer"), 6.0);
    // 50 s of samples every 10 s, of a minute.
    assert_eq!(last("increase(some_total[1m])").expect("an answer"), 60.0);
    assert_eq!(last("rate(some_total[1m])").expect("an answer"), 1.0);
    assert_eq!(last("delta(some_total[1m])").expect("an answer"), -96.0);
    assert!(matches!(last("stddev_over_time(some_total[1m])"), Err(QueryError::Source(_))));
}
