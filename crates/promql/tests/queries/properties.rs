// SPDX-License-Identifier: Apache-2.0
//! What holds for all series: an instant is a range of one step; a range is the same however it is cut, and however its
//! samples come; what slides gives what a look at each window alone gives.

use bolero::check;
use onlooker_promql::labels::{Labels, NAME};
use onlooker_promql::source::STALE;
use onlooker_promql::value::{Value, is_hole};
use onlooker_promql::{Options, Query, Times};

use crate::memory::{MS, Memory};

/// Steps of a range.
const STEPS: i64 = 12;
const STEP_NS: i64 = 7 * MS;
/// All queries with so many sets of series: seconds without optimisation.
const ROUNDS: usize = 40;

const QUERIES: [&str; 30] = [
    "x",
    "x offset 9ms",
    "x @ 0.02",
    "-x",
    "x + on(n) x",
    "x > 1",
    "x > bool 1",
    "x or y",
    "x and y",
    "x unless y",
    "sum(x)",
    "avg by (n) (x)",
    "topk(1, x)",
    "quantile(0.3, x)",
    "count_values('v', x)",
    "rate(x[20ms])",
    "increase(x[33ms])",
    "delta(x[5ms] offset 3ms)",
    "max_over_time(x[20ms])",
    "min_over_time(x[20ms])",
    "sum_over_time(x[50ms])",
    "avg_over_time(x[3ms])",
    "changes(x[21ms])",
    "resets(x[21ms])",
    "deriv(x[30ms])",
    "quantile_over_time(0.7, x[30ms])",
    "max_over_time(rate(x[10ms])[30ms:4ms])",
    "absent_over_time(x[4ms])",
    "increase(x[20ms] smoothed)",
    "timestamp(x)",
];

/// Gap before a sample in ms, and what it is.
type Sample = (u8, u8);

fn memory(series: &[Vec<Sample>; 4], chunk: usize) -> Memory {
    let mut memory = Memory::of_chunks(chunk);
    for (number, samples) in series.iter().enumerate() {
        let mut time_ns = 0;
        let samples = samples.iter().take(24).map(|(gap_ms, value)| {
            time_ns += (1 + i64::from(*gap_ms) % 16) * MS;
            let value = match value {
                0..=9 => STALE,
                10..=14 => f64::NAN,
                15 => f64::INFINITY,
                _ => f64::from(*value % 8) * 0.5,
            };
            (time_ns, value)
        });
        let name = if number < 2 { "x" } else { "y" };
        let labels = Labels::new([(NAME.to_owned(), name.to_owned()), ("n".to_owned(), (number % 2).to_string())]);
        memory.add(labels, samples.collect::<Vec<_>>());
    }
    memory
}

/// Values as bits at each step, by labels.
fn run(text: &str, memory: &Memory, times: Times) -> Vec<(Labels, i64, u64)> {
    let options = Options { lookback_ns: 25 * MS, ..Options::default() };
    let answer = Query::parse(text, times).expect("a query").run(memory, &options);
    let Ok(answer) = answer else { return Vec::new() };
    let Value::Vector(series) = answer.value else { panic!("{text} gives no vector") };
    let mut all = Vec::new();
    for one in series {
        assert!(one.values.iter().any(|value| !is_hole(*value)), "{text} gives a series without values");
        for (step, value) in one.values.iter().enumerate().filter(|(_, value)| !is_hole(**value)) {
            let bits = if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
            all.push((one.labels.clone(), answer.grid.time_ns(step), bits));
        }
    }
    all.sort();
    all
}

fn range(from: i64, steps: i64) -> Times {
    Times { start_ns: from * STEP_NS, end_ns: (from + steps - 1) * STEP_NS, step_ns: STEP_NS }
}

#[test]
fn a_range_is_its_instants_however_it_is_cut() {
    check!().with_iterations(ROUNDS).with_type::<[Vec<Sample>; 4]>().for_each(|series| {
        let all = memory(series, 5);
        for text in QUERIES {
            let whole = run(text, &all, range(0, STEPS));
            for cut in [1, 5] {
                let mut parts = run(text, &all, range(0, cut));
                parts.extend(run(text, &all, range(cut, STEPS - cut)));
                parts.sort();
                assert_eq!(parts, whole, "{text} cut after {cut} steps");
            }
            let mut instants: Vec<_> =
                (0..STEPS).flat_map(|step| run(text, &all, Times::instant(step * STEP_NS))).collect();
            instants.sort();
            assert_eq!(instants, whole, "{text} at each step");
        }
    });
}

#[test]
fn chunks_make_no_difference() {
    check!().with_iterations(ROUNDS).with_type::<[Vec<Sample>; 4]>().for_each(|series| {
        for text in QUERIES {
            let whole = run(text, &memory(series, 1_000), range(0, STEPS));
            for chunk in [1, 2, 3] {
                assert_eq!(run(text, &memory(series, chunk), range(0, STEPS)), whole, "{text} in chunks of {chunk}");
            }
        }
    });
}
