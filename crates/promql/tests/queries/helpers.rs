// SPDX-License-Identifier: Apache-2.0
//! Threads that help with a query change nothing but its time.

use std::sync::atomic::{AtomicUsize, Ordering};

use onlooker_promql::labels::{Labels, NAME};
use onlooker_promql::limits::Limits;
use onlooker_promql::notes::Note;
use onlooker_promql::{Answer, Helpers, Options, Query, QueryError, Times};

use crate::memory::{MS, Memory};

const SECOND_NS: i64 = 1_000 * MS;
const MINUTE: Times = Times { start_ns: 0, end_ns: 60 * SECOND_NS, step_ns: SECOND_NS };
const SERIES: u32 = 500;

/// Each with a sample a second for a minute.
fn memory() -> Memory {
    let mut memory = Memory::default();
    for number in 0..SERIES {
        let labels = Labels::new([(NAME.to_owned(), "some".to_owned()), ("n".to_owned(), number.to_string())]);
        let value = |second: u32| f64::from(second * (1 + number) % 1_009) / 7.0;
        memory.add(labels, (0..=60).map(|second| (i64::from(second) * SECOND_NS, value(second))));
    }
    memory
}

fn run(text: &str, memory: &Memory, options: &Options) -> Result<Answer, QueryError> {
    Query::parse(text, MINUTE).expect("a query").run(memory, options)
}

static HELPED: AtomicUsize = AtomicUsize::new(0);

fn helpers(threads: usize) -> Helpers {
    Helpers::new(threads, || _ = HELPED.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn an_answer_is_the_same_however_many_help() {
    let memory = memory();
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
        let alone = format!("{:?}", run(text, &memory, &Options::default()).expect("an answer"));
        for threads in [1, 3, 100] {
            let before = HELPED.load(Ordering::Relaxed);
            let options = Options { helpers: helpers(threads), ..Options::default() };
            for _ in 0..2 {
                assert_eq!(
                    format!("{:?}", run(text, &memory, &options).expect("an answer")),
                    alone,
                    "{text}, {threads}"
                );
            }
            assert!(HELPED.load(Ordering::Relaxed) >= before + 2, "{text}: nobody helped");
        }
    }
    let notes = run("rate(some[10s])", &memory, &Options { helpers: helpers(3), ..Options::default() });
    assert!(
        matches!(&notes.expect("an answer").notes[..], [Note::Info(text)] if text.contains("might not be a counter"))
    );
}

#[test]
fn limits_are_those_of_all_threads_together() {
    let memory = memory();
    let samples = u64::from(SERIES) * 61;
    let of = |limits: Limits| Options { limits, helpers: helpers(3), ..Options::default() };
    let enough = Limits { samples, ..Limits::default() };
    assert!(run("some", &memory, &of(enough)).is_ok());
    let samples = Limits { samples: samples - 1, ..enough };
    assert!(matches!(run("some", &memory, &of(samples)), Err(QueryError::Samples { .. })));
    let bytes = Limits { bytes: 200_000, ..enough };
    assert!(matches!(run("some", &memory, &of(bytes)), Err(QueryError::Bytes { .. })));
    let cancelled = of(enough);
    cancelled.cancel.cancel();
    assert!(matches!(run("some", &memory, &cancelled), Err(QueryError::Cancelled)));
    // What a query that failed has used is there for the next one.
    let options = of(enough);
    let before = HELPED.load(Ordering::Relaxed);
    assert!(run("some", &memory, &Options { limits: bytes, ..options.clone() }).is_err());
    assert!(run("some", &memory, &options).is_ok());
    assert!(HELPED.load(Ordering::Relaxed) >= before + 2 * 3);
}
