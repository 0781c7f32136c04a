// SPDX-License-Identifier: Apache-2.0
//! Threads that help with a query change nothing but its time.

use std::sync::atomic::{AtomicUsize, Ordering};

use onlooker_promql::labels::{Labels, Matcher, NAME};
use onlooker_promql::limits::{Budget, Limits};
use onlooker_promql::notes::Note;
use onlooker_promql::source::{Chunks, Found, SeriesSource, Shared, SourceError, Span};
use onlooker_promql::{Answer, Helpers, Options, Query, QueryError, Times};

use crate::memory::{MS, Memory};

const SECOND_NS: i64 = 1_000 * MS;
const MINUTE: Times = Times { start_ns: 0, end_ns: 60 * SECOND_NS, step_ns: SECOND_NS };
const SERIES: u32 = 500;

/// Series with a sample a second for a minute, which several threads may read.
struct Shareable {
    memory: Memory,
    /// How many threads have helped.
    helped: AtomicUsize,
}

/// As one of the threads that help sees it.
struct Helper<'a>(&'a Memory);

impl SeriesSource for Helper<'_> {
    fn select(&self, _: &[Matcher], _: Span, _: &Budget) -> Result<Vec<Found>, SourceError> {
        Err("who helps selects nothing".into())
    }

    fn read<'a>(&'a self, key: u64, span: Span) -> Result<Box<dyn Chunks + 'a>, SourceError> {
        self.0.read(key, span)
    }
}

impl SeriesSource for Shareable {
    fn select(&self, matchers: &[Matcher], span: Span, budget: &Budget) -> Result<Vec<Found>, SourceError> {
        self.memory.select(matchers, span, budget)
    }

    fn read<'a>(&'a self, key: u64, span: Span) -> Result<Box<dyn Chunks + 'a>, SourceError> {
        self.memory.read(key, span)
    }

    fn share(&self) -> Option<Shared<'_>> {
        Some(Box::new(|| {
            self.helped.fetch_add(1, Ordering::Relaxed);
            Box::new(Helper(&self.memory))
        }))
    }
}

fn shareable() -> Shareable {
    let mut memory = Memory::default();
    for number in 0..SERIES {
        let labels = Labels::new([(NAME.to_owned(), "some".to_owned()), ("n".to_owned(), number.to_string())]);
        let value = |second: u32| f64::from(second * (1 + number) % 1_009) / 7.0;
        memory.add(labels, (0..=60).map(|second| (i64::from(second) * SECOND_NS, value(second))));
    }
    Shareable { memory, helped: AtomicUsize::new(0) }
}

fn run(text: &str, source: &Shareable, options: &Options) -> Result<Answer, QueryError> {
    Query::parse(text, MINUTE).expect("a query").run(source, options)
}

#[test]
fn an_answer_is_the_same_however_many_help() {
    let source = shareable();
    for text in [
        "some",
        "some @ 30 offset 3s",
        "timestamp(some)",
        "some smoothed",
        "sum(rate(some[10s]))",
        "avg_over_time(some[20s])",
        "max by (n) (max_over_time(sum without (x) (some)[10s:1s]))",
        "topk(3, some)",
        "quantile_over_time(0.7, some[5s]) / on(n) some",
    ] {
        let alone = format!("{:?}", run(text, &source, &Options::default()).expect("an answer"));
        for threads in [1, 3, 100] {
            let before = source.helped.load(Ordering::Relaxed);
            let options = Options { helpers: Helpers::new(threads), ..Options::default() };
            for _ in 0..2 {
                let helped = format!("{:?}", run(text, &source, &options).expect("an answer"));
                assert_eq!(helped, alone, "{text}, {threads}");
            }
            assert!(source.helped.load(Ordering::Relaxed) >= before + 2, "{text}: nobody helped");
        }
    }
    let notes = run("rate(some[10s])", &source, &Options { helpers: Helpers::new(3), ..Options::default() });
    assert!(
        matches!(&notes.expect("an answer").notes[..], [Note::Info(text)] if text.contains("might not be a counter"))
    );
}

#[test]
fn limits_are_those_of_all_threads_together() {
    let source = shareable();
    let samples = u64::from(SERIES) * 61;
    let of = |limits: Limits| Options { limits, helpers: Helpers::new(3), ..Options::default() };
    let enough = Limits { samples, ..Limits::default() };
    assert!(run("some", &source, &of(enough)).is_ok());
    let samples = Limits { samples: samples - 1, ..enough };
    assert!(matches!(run("some", &source, &of(samples)), Err(QueryError::Samples { .. })));
    let bytes = Limits { bytes: 200_000, ..enough };
    assert!(matches!(run("some", &source, &of(bytes)), Err(QueryError::Bytes { .. })));
    let cancelled = of(enough);
    cancelled.cancel.cancel();
    assert!(matches!(run("some", &source, &cancelled), Err(QueryError::Cancelled)));
    // What a query that failed has used is there for the next one.
    let options = of(enough);
    assert!(run("some", &source, &Options { limits: bytes, ..options.clone() }).is_err());
    let before = source.helped.load(Ordering::Relaxed);
    assert!(run("some", &source, &options).is_ok());
    assert!(source.helped.load(Ordering::Relaxed) == before + 3);
}
