// SPDX-License-Identifier: Apache-2.0
//! Answers of range queries as columns of doubles (docs/promql.md#columns), for who takes them: to print and to parse
//! hundreds of thousands of values as text is most of what they cost.
//!
//! A head, which is the answer's JSON without the values, then a column a series.

use std::fmt::Write as _;
use std::iter::repeat_n;

use onlooker_promql::Answer;
use onlooker_promql::labels::Labels;
use onlooker_promql::value::{Grid, Value};

use super::json::{end, fits, metric};

/// What it is called in `Accept` and `Content-Type`.
pub(super) const TYPE: &str = "application/vnd.onlooker.columns";

/// What the head's length takes.
const LENGTH_BYTES: usize = size_of::<u32>();
/// What a value takes. The first one lies at a multiple of it.
const VALUE_BYTES: usize = size_of::<f64>();

/// A range's columns. No more than `most` series are told. `stats`: JSON. `None` where there are none, for a native
/// histogram or a text, or where they would be too long: of series that have few values JSON is the shorter one.
pub(super) fn written(answer: &Answer, most: usize, stats: Option<&str>) -> Option<Vec<u8>> {
    let nameless = Labels::default();
    let (series, is_truncated): (Vec<(&Labels, &[f64])>, bool) = match &answer.value {
        Value::Scalar(values) => (vec![(&nameless, values.as_slice())], false),
        Value::Vector(all) => {
            let told = &all[..all.len().min(most)];
            if told.iter().any(|one| one.histograms.iter().any(Option::is_some)) {
                return None;
            }
            (told.iter().map(|one| (&one.labels, one.values.as_slice())).collect(), all.len() > most)
        }
        Value::Matrix(_) | Value::String(_) => return None,
    };
    let Grid { start_ns, step_ns, count: steps } = answer.grid;
    let value_bytes = series.len().checked_mul(steps)?.checked_mul(VALUE_BYTES)?;
    // The length has its place first.
    let mut head = " ".repeat(LENGTH_BYTES);
    head.push_str(r#"{"status":"success","data":{"resultType":"matrix","start_ms":"#);
    milliseconds(&mut head, start_ns);
    head.push_str(r#","step_ms":"#);
    milliseconds(&mut head, step_ns);
    let _ = write!(head, r#","steps":{steps},"series":{},"result":["#, series.len());
    for (at, (labels, _)) in series.iter().enumerate() {
        head.push_str(if at > 0 { "," } else { "" });
        metric(&mut head, labels);
        head.push('}');
        fits(head.len().checked_add(value_bytes)?).ok()?;
    }
    head.push(']');
    end(&mut head, &answer.notes, is_truncated, stats);
    head.extend(repeat_n(' ', head.len().next_multiple_of(VALUE_BYTES) - head.len()));
    fits(head.len() + value_bytes).ok()?;
    let length = u32::try_from(head.len() - LENGTH_BYTES).ok()?;
    let mut out = head.into_bytes();
    out[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    out.reserve_exact(value_bytes);
    for (_, values) in series {
        // A hole is one already: the stale marker.
        debug_assert_eq!(values.len(), steps);
        values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
    }
    Some(out)
}

/// Decimal, with as many digits as it needs.
fn milliseconds(out: &mut String, ns: i64) {
    let (whole, fraction) = (ns.unsigned_abs() / 1_000_000, ns.unsigned_abs() % 1_000_000);
    let _ = write!(out, "{}{whole}", if ns < 0 { "-" } else { "" });
    if fraction != 0 {
        let digits = format!("{fraction:06}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
}

#[cfg(test)]
mod tests;
