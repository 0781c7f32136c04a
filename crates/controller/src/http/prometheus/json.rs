// SPDX-License-Identifier: Apache-2.0
//! Answers of queries as Prometheus writes them: times in decimal seconds, values as texts.

use std::fmt::Write as _;

use onlooker_promql::histogram::{Histogram, Interval};
use onlooker_promql::labels::Labels;
use onlooker_promql::notes::Note;
use onlooker_promql::value::{Grid, Series, Value, is_hole};
use serde_json::to_string;

use super::TRUNCATED;
use super::notes;

/// An answer at most, whatever its form.
const MAX_BYTES: usize = 64 << 20;

const VALUES: &str = "values";
const HISTOGRAMS: &str = "histograms";

/// The answer would be too long.
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
            metric(&mut out, &Labels::default());
            list(&mut out, VALUES, columns(&answer.grid, values), sample);
            out.push_str("}]");
        }
        Value::Vector(all) => {
            out.push_str(if is_range { r#""matrix","result":["# } else { r#""vector","result":["# });
            count = all.len();
            for (at, one) in all.iter().take(most).enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                metric(&mut out, &one.labels);
                if is_range {
                    list(&mut out, VALUES, columns(&answer.grid, &one.values), sample);
                    list(&mut out, HISTOGRAMS, natives(&answer.grid, one), histogram);
                } else if let Some(own) = one.histogram(0) {
                    out.push_str(r#","histogram":"#);
                    histogram(&mut out, start_ns, own);
                } else {
                    out.push_str(r#","value":"#);
                    sample(&mut out, start_ns, one.values.first().copied().unwrap_or(f64::NAN));
                }
                out.push('}');
                fits(out.len())?;
            }
            out.push(']');
        }
        Value::Matrix(all) => {
            out.push_str(r#""matrix","result":["#);
            count = all.len();
            for (at, one) in all.iter().take(most).enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                metric(&mut out, &one.labels);
                list(&mut out, VALUES, one.times_ns.iter().copied().zip(one.values.iter().copied()), sample);
                list(&mut out, HISTOGRAMS, one.histograms.iter().map(|(time_ns, own)| (*time_ns, &**own)), histogram);
                out.push('}');
                fits(out.len())?;
            }
            out.push(']');
        }
    }
    end(&mut out, &answer.notes, count > most, stats);
    fits(out.len())?;
    Ok(out)
}

/// What comes after the series: `data` and the answer are closed.
pub(super) fn end(out: &mut String, told: &[Note], is_truncated: bool, stats: Option<&str>) {
    if let Some(stats) = stats {
        let _ = write!(out, r#","stats":{stats}"#);
    }
    out.push('}');
    let [mut warnings, infos] = notes(told);
    warnings.extend(is_truncated.then(|| TRUNCATED.to_owned()));
    for (name, list) in [("warnings", warnings), ("infos", infos)] {
        if !list.is_empty() {
            let list: Vec<String> = list.iter().map(|text| quoted(text)).collect();
            let _ = write!(out, r#","{name}":[{}]"#, list.join(","));
        }
    }
    out.push('}');
}

/// Whether an answer may have so many bytes.
pub(super) fn fits(bytes: usize) -> Result<(), TooLong> {
    if bytes > MAX_BYTES { Err(TooLong) } else { Ok(()) }
}

fn quoted(text: &str) -> String {
    // A text always has a JSON form.
    to_string(text).unwrap_or_default()
}

/// `{"metric":{...}`, still open.
pub(super) fn metric(out: &mut String, labels: &Labels) {
    out.push_str(r#"{"metric":{"#);
    for (at, (name, value)) in labels.iter().enumerate() {
        let _ = write!(out, "{}{}:{}", if at > 0 { "," } else { "" }, quoted(name), quoted(value));
    }
    out.push('}');
}

/// Values of a series that has any, with their times.
fn columns<'a>(grid: &'a Grid, values: &'a [f64]) -> impl Iterator<Item = (i64, f64)> + 'a {
    let steps = values.iter().enumerate().filter(|(_, value)| !is_hole(**value));
    steps.map(|(step, value)| (grid.time_ns(step), *value))
}

fn natives<'a>(grid: &'a Grid, series: &'a Series) -> impl Iterator<Item = (i64, &'a Histogram)> + 'a {
    let steps = series.histograms.iter().enumerate();
    steps.filter_map(|(step, own)| Some((grid.time_ns(step), &**own.as_ref()?)))
}

/// A list, if there are any.
fn list<T>(out: &mut String, name: &str, all: impl Iterator<Item = (i64, T)>, write: fn(&mut String, i64, T)) {
    let mut is_open = false;
    for (time_ns, value) in all {
        if is_open {
            out.push(',');
        } else {
            let _ = write!(out, r#","{name}":["#);
        }
        write(out, time_ns, value);
        is_open = true;
    }
    out.push_str(if is_open { "]" } else { "" });
}

fn sample(out: &mut String, time_ns: i64, value: f64) {
    out.push('[');
    time(out, time_ns);
    out.push_str(",\"");
    number(out, value);
    out.push_str("\"]");
}

/// A native histogram, with the buckets that have observations.
fn histogram(out: &mut String, time_ns: i64, histogram: &Histogram) {
    out.push('[');
    time(out, time_ns);
    out.push_str(r#",{"count":""#);
    number(out, histogram.count);
    out.push_str(r#"","sum":""#);
    number(out, histogram.sum);
    out.push('"');
    let intervals = histogram.intervals();
    for (at, Interval { lower, upper, has_lower, has_upper, count }) in intervals.iter().copied().enumerate() {
        out.push_str(if at == 0 { r#","buckets":["# } else { "," });
        let bounds = match (has_lower, has_upper) {
            (false, true) => 0,
            (true, false) => 1,
            (false, false) => 2,
            (true, true) => 3,
        };
        let _ = write!(out, "[{bounds}");
        for value in [lower, upper, count] {
            out.push_str(",\"");
            number(out, value);
            out.push('"');
        }
        out.push(']');
    }
    out.push_str(if intervals.is_empty() { "}]" } else { "]}]" });
}

/// Decimal seconds: to the millisecond as Prometheus has them, finer ones with as many digits as they need.
fn time(out: &mut String, ns: i64) {
    let (whole, fraction) = (ns.unsigned_abs() / 1_000_000_000, ns.unsigned_abs() % 1_000_000_000);
    out.push_str(if ns < 0 { "-" } else { "" });
    out.push_str(itoa::Buffer::new().format(whole));
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
    } else if size == 0.0 || (1e-5..1e16).contains(&size) {
        // Without an exponent, there.
        let mut buffer = zmij::Buffer::new();
        let text = buffer.format_finite(value);
        out.push_str(text.strip_suffix(".0").unwrap_or(text));
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
    use bolero::check;
    use onlooker_promql::histogram::Scale;

    use super::*;

    #[test]
    fn histograms_are_as_prometheus_writes_them() {
        let written = |of: &Histogram| {
            let mut out = String::new();
            histogram(&mut out, 1_500_000_000, of);
            out
        };
        let empty = Histogram::empty(Scale::Exponential { schema: 0, zero_threshold: 0.25 });
        assert_eq!(written(&empty), r#"[1.500,{"count":"0","sum":"0"}]"#);
        let all = Histogram {
            count: 10.0,
            sum: -1.5,
            zero_count: 3.0,
            positive: vec![(1, 2.0), (2, 0.0), (3, 1.0)],
            negative: vec![(0, 4.0)],
            ..empty
        };
        let buckets = r#"[[1,"-1","-0.5","4"],[3,"-0.25","0.25","3"],[0,"1","2","2"],[0,"4","8","1"]]"#;
        assert_eq!(written(&all), format!(r#"[1.500,{{"count":"10","sum":"-1.5","buckets":{buckets}}}]"#));
        let custom = Histogram {
            count: 3.0,
            positive: vec![(0, 1.0), (2, 2.0)],
            ..Histogram::empty(Scale::Custom([0.5, 1.0].into()))
        };
        let buckets = r#"[[3,"-Inf","0.5","1"],[0,"1","+Inf","2"]]"#;
        assert_eq!(written(&custom), format!(r#"[1.500,{{"count":"3","sum":"0","buckets":{buckets}}}]"#));
    }

    #[test]
    fn numbers_are_the_shortest_that_read_back() {
        check!().with_type::<(u64, i32, u8)>().for_each(|(bits, whole, digits)| {
            let decimal = f64::from(*whole) / 10f64.powi((digits % 12).into());
            for value in [f64::from_bits(*bits), decimal, decimal * 1e12] {
                let mut out = String::new();
                number(&mut out, value);
                let is_plain = value == 0.0 || (1e-6..1e21).contains(&value.abs());
                if is_plain {
                    // Of two that are as short and as close Go and we take the even one.
                    assert_eq!(out.len(), value.to_string().len(), "{out}");
                }
                assert!(value.is_nan() || out.parse() == Ok(value), "{out}");
            }
        });
    }

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
            (0, -8_455_454_712_000_001.0 / 4.0, r#"[0,"-2113863678000000.2"]"#),
            (0, 123_456_789_012_345_680_000.0, r#"[0,"123456789012345680000"]"#),
        ] {
            assert_eq!(written(ns, value), text);
        }
        for (value, text) in [(0.0, "0e+00"), (123.5, "1.235e+02"), (-1e-7, "-1e-07"), (f64::INFINITY, "+Inf")] {
            assert_eq!(exponent(value), text);
        }
    }
}
