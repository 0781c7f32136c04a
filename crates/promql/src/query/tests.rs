// SPDX-License-Identifier: Apache-2.0
//! Long loops look whether they are to end: the more they have to do, the more often.

use std::sync::atomic::Ordering;

use super::*;
use crate::labels::{Matcher, NAME};
use crate::limits::{LOOK_AFTER, Limits};
use crate::source::{Chunk, Chunks, Found, SourceError, Span};

/// Series with a sample each second from 1 on, falling and rising.
struct Many {
    series: u64,
    samples: i64,
}

const SECOND_NS: i64 = 1_000_000_000;

impl SeriesSource for Many {
    fn select(&self, _: &[Matcher], _: Span, _: &Budget) -> Result<Vec<Found>, SourceError> {
        let labels = |key: u64| Labels::new([(NAME, "x".to_owned()), ("n", key.to_string()), ("le", key.to_string())]);
        Ok((0..self.series).map(|key| Found { key, labels: labels(key) }).collect())
    }

    fn read<'a>(&'a self, _: u64, span: Span) -> Result<Box<dyn Chunks + 'a>, SourceError> {
        let next = span.after_ns.div_euclid(SECOND_NS).max(0) + 1;
        Ok(Box::new(Samples { next, last: self.samples, times_ns: Vec::new(), values: Vec::new() }))
    }
}

struct Samples {
    next: i64,
    last: i64,
    times_ns: Vec<i64>,
    values: Vec<f64>,
}

impl Chunks for Samples {
    #[allow(clippy::cast_precision_loss)] // small
    fn next(&mut self) -> Result<Option<Chunk<'_>>, SourceError> {
        let numbers = self.next..self.last.min(self.next + 1_000) + 1;
        self.next = numbers.end;
        self.times_ns = numbers.clone().map(|number| number * SECOND_NS).collect();
        self.values = numbers.map(|number| (number * 7 % 10) as f64).collect();
        Ok((!self.times_ns.is_empty()).then_some(Chunk {
            times_ns: &self.times_ns,
            values: &self.values,
            histograms: &[],
        }))
    }
}

fn run(text: &str, source: &Many, times: Times, cancel_at: u64) -> (u64, Result<Answer, QueryError>) {
    let options = Options { limits: Limits { bytes: usize::MAX, ..Limits::default() }, ..Options::default() };
    options.cancel.looks.cancel_at.store(cancel_at, Ordering::Relaxed);
    let answer = Query::parse(text, times).expect("a query").run(source, &options);
    (options.cancel.looks.count.load(Ordering::Relaxed), answer)
}

/// Looks while `text` is evaluated, beside those that `without` takes. It ends when it is told to.
fn looks(text: &str, without: &[&str], source: &Many, times: Times) -> u64 {
    let count = |text: &str| {
        let (count, answer) = run(text, source, times, 0);
        assert!(answer.is_ok(), "{text}: {answer:?}");
        count
    };
    let (all, others) = (count(text), without.iter().map(|text| count(text)).sum::<u64>());
    let (ended, answer) = run(text, source, times, all - 1);
    assert!(matches!(answer, Err(QueryError::Cancelled)), "{text}");
    assert_eq!(ended, all - 1, "{text} goes on");
    all.saturating_sub(others)
}

#[test]
fn columns_are_looked_at_piece_by_piece() {
    let source = Many { series: 48, samples: 1 << 13 };
    let times = Times { start_ns: SECOND_NS, end_ns: SECOND_NS << 13, step_ns: SECOND_NS };
    let wanted = (48 << 13) / LOOK_AFTER - 1;
    for text in [
        "-x",
        "abs(x)",
        "round(x)",
        "clamp(x, 1, 2)",
        "x * 2",
        "x > 5",
        "5 < bool x",
        "sum(x)",
        "stddev by (n) (x)",
        "quantile(0.5, x)",
        "topk(2, x)",
        "absent(x)",
        "scalar(x)",
        "histogram_quantile(0.5, x)",
        "count_values(\"v\", x)",
    ] {
        let found = looks(text, &["x"], &source, times);
        assert!(found >= wanted, "{text}: {found} looks, not {wanted}");
    }
    for text in ["x + x", "x > ignoring(n) x", "x * on(n) group_left x", "x and x", "x or on() x", "x unless on() x"] {
        let found = looks(text, &["x", "x"], &source, times);
        assert!(found >= wanted, "{text}: {found} looks, not {wanted}");
    }
}

#[test]
fn windows_are_looked_at_piece_by_piece() {
    const SAMPLES: i64 = 5 << 16;
    let source = Many { series: 1, samples: SAMPLES };
    let wanted = SAMPLES.unsigned_abs() / LOOK_AFTER - 1;
    for function in [
        "rate(x[W])",
        "increase(x[W] anchored)",
        "rate(x[W] smoothed)",
        "changes(x[W])",
        "resets(x[W] anchored)",
        "max_over_time(x[W])",
        "min_over_time(x[W])",
        "sum_over_time(x[W])",
        "avg_over_time(x[W])",
        "stddev_over_time(x[W])",
        "quantile_over_time(0.3, x[W])",
        "deriv(x[W])",
        "predict_linear(x[W], 60)",
    ] {
        let of_all = |text: &str| text.replace('W', &format!("{SAMPLES}s"));
        let without = of_all("count_over_time(x[W])");
        let found = looks(&of_all(function), &[&without], &source, Times::instant(SAMPLES * SECOND_NS));
        assert!(found >= wanted, "{function}: {found} looks, not {wanted}");
    }
    // Each window has all resets of the one before.
    let times = Times { start_ns: 10_000 * SECOND_NS, end_ns: 10_500 * SECOND_NS, step_ns: SECOND_NS };
    let found = looks("rate(x[2h])", &["count_over_time(x[2h])"], &source, times);
    assert!(found >= 10, "rate: {found} looks");
}

#[test]
fn sorting_looks_too() {
    let source = Many { series: 20_000, samples: 1 };
    let time = Times::instant(SECOND_NS);
    // Of the best the labels are sorted, too.
    for (text, without, wanted) in
        [("sort(x)", "x", 5), ("histogram_quantile(0.5, x)", "count(x)", 5), ("topk(20000, x)", "count(x)", 14)]
    {
        let found = looks(text, &[without], &source, time);
        assert!(found >= wanted, "{text}: {found} looks, not {wanted}");
    }
}

#[test]
fn selectors_of_series_have_nothing_beside() {
    assert_eq!(Query::selector("x{a=\"b\"}").map(|matchers| matchers.len()), Ok(2));
    for text in ["(x)", "x[5m]", "x offset 1m", "x @ 0", "x @ start()", "x offset step()", "x anchored", "-x", "1"] {
        assert!(Query::selector(text).is_err(), "{text}");
    }
}
