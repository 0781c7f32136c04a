// SPDX-License-Identifier: Apache-2.0
//! Answers of queries as Prometheus writes them: times in decimal seconds, values as texts.

use std::fmt::Write as _;

use onlooker_promql::labels::Labels;
use onlooker_promql::value::{Grid, Value, is_hole};
use serde_json::to_string;

use super::TRUNCATED;
use super::notes;

/// Text of an answer at most.
const MAX_BYTES: usize = 64 << 20;

/// The text would be too long.
#[derive(Debug)]
pub(super) struct TooLong;

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the answer would be longer than {} MiB; ask for fewer series or a wider step", MAX_BYTES >> 20)
    }
}

/// An answer's text; of a range where `is_range`. No more than `most` series are told. `stats`: JSON.
pub(super) fn written(
    answer: &onlooker_promql::Answer,
    is_range: bool,
    most: usize,
    stats: Option<&str>,
) -> Result<String, TooLong> {
    let Grid { start_ns, .. } = answer.grid;
    let mut out = String::from(r#"{"status":"success","data":{"resultType":"#);
    let mut count = 0;
    match &answer.value {
        Value::Scalar(values) if !is_range => {
            out.push_str(r#""scalar","result":"#);
            sample(&mut out, start_ns, values.first().copied().unwrap_or(f64::NAN));
        }
        Value::String(text) => {
            out.push_str(r#""string","result":["#);
            time(&mut out, start_ns);
            let _ = write!(out, ",{}]", quoted(text));
        }
        Value::Scalar(values) => {
            out.push_str(r#""matrix","result":["#);
            columns(&mut out, &Labels::default(), &answer.grid, values);
            out.push(']');
        }
        Value::Vector(all) => {
            out.push_str(if is_range { r#""matrix","result":["# } else { r#""vector","result":["# });
            count = all.len();
            for (at, one) in all.iter().take(most).enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                if is_range {
                    columns(&mut out, &one.labels, &answer.grid, &one.values);
                } else {
                    metric(&mut out, &one.labels);
                    out.push_str(r#","value":"#);
                    sample(&mut out, start_ns, one.values.first().copied().unwrap_or(f64::NAN));
                    out.push('}');
                }
                fits(&out)?;
            }
            out.push(']');
        }
        Value::Matrix(all) => {
            out.push_str(r#""matrix","result":["#);
            count = all.len();
            for (at, one) in all.iter().take(most).enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                let times = one.times_ns.iter().copied();
                samples(&mut out, &one.labels, times.zip(one.values.iter().copied()));
                fits(&out)?;
            }
            out.push(']');
        }
    }
    if let Some(stats) = stats {
        let _ = write!(out, r#","stats":{stats}"#);
    }
    out.push('}');
    let [mut warnings, infos] = notes(&answer.notes);
    warnings.extend((count > most).then(|| TRUNCATED.to_owned()));
    for (name, list) in [("warnings", warnings), ("infos", infos)] {
        if !list.is_empty() {
            let list: Vec<String> = list.iter().map(|text| quoted(text)).collect();
            let _ = write!(out, r#","{name}":[{}]"#, list.join(","));
        }
    }
    out.push('}');
    fits(&out)?;
    Ok(out)
}

fn fits(out: &str) -> Result<(), TooLong> {
    if out.len() > MAX_BYTES { Err(TooLong) } else { Ok(()) }
}

fn quoted(text: &str) -> String {
    // A text always has a JSON form.
    to_string(text).unwrap_or_default()
}

/// `{"metric":{...}`, still open.
fn metric(out: &mut String, labels: &Labels) {
    out.push_str(r#"{"metric":{"#);
    for (at, (name, value)) in labels.iter().enumerate() {
        let _ = write!(out, "{}{}:{}", if at > 0 { "," } else { "" }, quoted(name), quoted(value));
    }
    out.push('}');
}

fn columns(out: &mut String, labels: &Labels, grid: &Grid, values: &[f64]) {
    let steps = values.iter().enumerate().filter(|(_, value)| !is_hole(**value));
    samples(out, labels, steps.map(|(step, value)| (grid.time_ns(step), *value)));
}

fn samples(out: &mut String, labels: &Labels, samples: impl Iterator<Item = (i64, f64)>) {
    metric(out, labels);
    out.push_str(r#","values":["#);
    for (at, (time_ns, value)) in samples.enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        sample(out, time_ns, value);
    }
    out.push_str("]}");
}

fn sample(out: &mut String, time_ns: i64, value: f64) {
    out.push('[');
    time(out, time_ns);
    out.push_str(",\"");
    number(out, value);
    out.push_str("\"]");
}

/// Decimal seconds: to the millisecond as Prometheus has them, finer ones with as many digits as they need.
fn time(out: &mut String, ns: i64) {
    let (whole, fraction) = (ns.unsigned_abs() / 1_000_000_000, ns.unsigned_abs() % 1_000_000_000);
    let sign = if ns < 0 { "-" } else { "" };
    let _ = write!(out, "{sign}{whole}");
    if fraction % 1_000_000 != 0 {
        let digits = format!("{fraction:09}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    } else if fraction != 0 {
        let _ = write!(out, ".{:03}", fraction / 1_000_000);
    }
}

/// The shortest text that reads back, as Go's `strconv` writes it.
fn number(out: &mut String, value: f64) {
    let size = value.abs();
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else if size != 0.0 && !(1e-6..1e21).contains(&size) {
        with_exponent(out, value);
    } else {
        let _ = write!(out, "{value}");
    }
}

fn with_exponent(out: &mut String, value: f64) {
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    let _ = write!(out, "{digits}e{sign}{exponent:0>2}");
}

/// The same, always with an exponent, as the values of alerts are written.
pub(super) fn exponent(value: f64) -> String {
    let mut out = String::new();
    if value.is_finite() {
        with_exponent(&mut out, value)
    } else {
        number(&mut out, value)
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_are_as_prometheus_writes_them() {
        let written = |ns, value| {
            let mut out = String::new();
            sample(&mut out, ns, value);
            out
        };
        for (ns, value, text) in [
            (0, 0.0, r#"[0,"0"]"#),
            (1_435_781_451_781_000_000, 1.0, r#"[1435781451.781,"1"]"#),
            (1_010_000_000, -0.25, r#"[1.010,"-0.25"]"#),
            (1_000_000_001, 1e21, r#"[1.000000001,"1e+21"]"#),
            (1_000_500_000, 1e-7, r#"[1.0005,"1e-07"]"#),
            (-1_500_000_000, 1.5e300, r#"[-1.500,"1.5e+300"]"#),
            (0, f64::NAN, r#"[0,"NaN"]"#),
            (0, f64::INFINITY, r#"[0,"+Inf"]"#),
            (0, f64::NEG_INFINITY, r#"[0,"-Inf"]"#),
            (0, 123_456_789_012_345_680_000.0, r#"[0,"123456789012345680000"]"#),
        ] {
            assert_eq!(written(ns, value), text);
        }
        for (value, text) in [(0.0, "0e+00"), (123.5, "1.235e+02"), (-1e-7, "-1e-07"), (f64::INFINITY, "+Inf")] {
            assert_eq!(exponent(value), text);
        }
    }
}
