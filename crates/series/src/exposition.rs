// SPDX-License-Identifier: Apache-2.0
//! Prometheus' text format 0.0.4 and OpenMetrics 1.0.

use std::fmt::Write as _;

use onlooker_region::columns::Value;
use onlooker_region::histogram::Shape;
use onlooker_region::number::decimal;
use onlooker_region::schema::Metric;

/// Which of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Text format 0.0.4.
    #[default]
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// A family's name and type as the header lines have them.
    #[must_use]
    pub fn declared(self, name: &str, metric: Metric) -> (&str, &'static str) {
        match (metric, self) {
            (Metric::Counter, Self::Text) => (name, "counter"),
            // OpenMetrics: a counter's samples are called as its family with `_total`, an info's with `_info`.
            (Metric::Counter, Self::OpenMetrics) => {
                name.strip_suffix("_total").map_or((name, "unknown"), |family| (family, "counter"))
            }
            (Metric::Info, Self::OpenMetrics) => {
                name.strip_suffix("_info").map_or((name, "gauge"), |family| (family, "info"))
            }
            // Format 0.0.4 has no type for infos; they are gauges of 1.
            (Metric::Gauge, _) | (Metric::Info, Self::Text) => (name, "gauge"),
            (Metric::Histogram, _) => (name, "histogram"),
        }
    }

    /// Appends a family's header lines.
    pub fn head(self, out: &mut String, name: &str, metric: Metric, help: &str) {
        let (name, kind) = self.declared(name, metric);
        if !help.is_empty() {
            let mut escaped = String::new();
            match self {
                Self::Text => escaped = help.replace('\\', "\\\\").replace('\n', "\\n"),
                Self::OpenMetrics => escape(help, &mut escaped),
            }
            let _ = writeln!(out, "# HELP {name} {escaped}");
        }
        let _ = writeln!(out, "# TYPE {name} {kind}");
    }
}

/// Appends the samples of a series' value: one line, or those of a histogram. `labels` are as [`labels_text`] has them; the value is to be multiplied with `scale`.
pub fn samples(out: &mut String, name: &str, labels: &str, value: &Value, scale: f64) {
    if let Value::Histogram { buckets, shape, sum } = value {
        let count = buckets.iter().fold(0u64, |all, count| all.wrapping_add(*count));
        // Before the brace that closes them.
        let open = labels.strip_suffix('}').map_or_else(|| "{".to_owned(), |labels| format!("{labels},"));
        for bucket in shape.cumulative(buckets, scale) {
            let _ = writeln!(out, "{name}_bucket{open}le=\"{}\"}} {}", decimal(bucket.le), bucket.count);
        }
        let sum = number(Value::U64(*sum).scaled(scale));
        let _ = writeln!(
            out,
            "{name}_bucket{open}le=\"+Inf\"}} {count}\n{name}_sum{labels} {sum}\n{name}_count{labels} {count}"
        );
        return;
    }
    out.push_str(name);
    out.push_str(labels);
    out.push(' ');
    push_value(out, value, scale);
    out.push('\n');
}

/// Upper bounds of a histogram's buckets, as [`samples`] has them, and how many of `shape`'s first buckets each counts.
#[must_use]
pub fn bounds(shape: Shape, scale: f64) -> Vec<(String, usize)> {
    let ones = vec![1; shape.buckets()];
    let all = shape.cumulative(&ones, scale).into_iter();
    let all = all.map(|bucket| (decimal(bucket.le), usize::try_from(bucket.count).unwrap_or(usize::MAX)));
    all.chain([("+Inf".to_owned(), shape.buckets())]).collect()
}

/// Appends the number of a value that is no histogram's, multiplied with `scale`.
#[inline]
pub fn push_value(out: &mut String, value: &Value, scale: f64) {
    let is_plain = scale.to_bits() == 1f64.to_bits();
    match value {
        Value::U64(whole) if is_plain => out.push_str(itoa::Buffer::new().format(*whole)),
        Value::I64(whole) if is_plain => out.push_str(itoa::Buffer::new().format(*whole)),
        other => push_number(out, other.scaled(scale)),
    }
}

/// Appends a number as a sample has it, without an allocation.
#[inline]
pub fn push_number(out: &mut String, value: f64) {
    /// Up to here all whole numbers are doubles.
    const WHOLE: f64 = (1u64 << 53) as f64;
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else if value.fract() == 0.0 && value.abs() < WHOLE && (value != 0.0 || value.is_sign_positive()) {
        #[allow(clippy::cast_possible_truncation)] // it is whole, and not as large
        out.push_str(itoa::Buffer::new().format(value as i64));
    } else if value == 0.0 {
        out.push_str("-0");
    } else {
        // As [`decimal`] has it in a third of the time, but where two texts of the least length are as near.
        out.push_str(ryu::Buffer::new().format_finite(value));
    }
}

/// A number as a sample has it.
#[must_use]
pub fn number(value: f64) -> String {
    let mut out = String::new();
    push_number(&mut out, value);
    out
}

/// `{name="value",...}`, or nothing without labels.
#[must_use]
pub fn labels_text<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        text.push(if text.is_empty() { '{' } else { ',' });
        push_label(&mut text, name, value);
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}

/// Appends `name="value"`.
pub fn push_label(out: &mut String, name: &str, value: &str) {
    out.push_str(name);
    out.push_str("=\"");
    escape(value, out);
    out.push('"');
}

fn escape(value: &str, out: &mut String) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples_of(labels: &str, value: &Value, scale: f64) -> String {
        let mut out = String::new();
        samples(&mut out, "x", labels, value, scale);
        out
    }

    #[test]
    fn values_are_as_exact_as_they_are() {
        for (value, scale, wanted) in [
            (Value::U64(u64::MAX), 1.0, "x 18446744073709551615\n"),
            (Value::I64(i64::MIN), 1.0, "x -9223372036854775808\n"),
            (Value::U64(3), 1e-9, "x 3e-9\n"),
            (Value::U64(1_500_000_000), 1e-9, "x 1.5\n"),
            (Value::U64(2_000_000_000), 1e-9, "x 2\n"),
            (Value::F64(1e300), 1.0, "x 1e300\n"),
            (Value::F64(-0.5), 1.0, "x -0.5\n"),
            (Value::F64(f64::NAN), 1.0, "x NaN\n"),
            (Value::F64(f64::NEG_INFINITY), 1.0, "x -Inf\n"),
            (Value::Text("v1".into()), 1.0, "x 1\n"),
        ] {
            assert_eq!(samples_of("", &value, scale), wanted, "{value:?}");
        }
    }

    /// What is written fast is as short as what the format's own function writes, and reads back to the same.
    #[test]
    fn every_number_is_as_it_is_told() {
        let expected = |value: f64| match value {
            _ if value.is_nan() => "NaN".to_owned(),
            f64::INFINITY => "+Inf".into(),
            f64::NEG_INFINITY => "-Inf".into(),
            whole if whole.fract() == 0.0 && whole.abs() < 9_007_199_254_740_992.0 => whole.to_string(),
            other => decimal(other),
        };
        for value in [0.0, -0.0, 1e-5, 9.999e-6, 1e15, 9_007_199_254_740_992.0, 1e16, 5e-324, f64::MAX, 0.1, -1.5] {
            assert_eq!(number(value), expected(value), "{value:e}");
        }
        bolero::check!().with_type::<(u64, i64)>().for_each(|(bits, scaled)| {
            #[allow(clippy::cast_precision_loss)] // any double will do
            for value in [f64::from_bits(*bits), *scaled as f64 / 1e9] {
                let (number, expected) = (number(value), expected(value));
                let read: f64 = number.parse().unwrap();
                assert!(read.to_bits() == value.to_bits() || value.is_nan(), "{number}");
                // 1125899906842624.25 is as near to .2 as to .3.
                assert_eq!(number.trim_end_matches(char::is_numeric), expected.trim_end_matches(char::is_numeric));
                assert_eq!(number.len(), expected.len(), "{number} {expected}");
            }
        });
    }

    #[test]
    fn histograms_follow_the_formats_vectors() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format/vectors.json");
        let vectors: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let cases = vectors["histogram_prometheus"].as_array().unwrap();
        assert!(!cases.is_empty());
        for case in cases {
            let power = |key: &str| u8::try_from(case[key].as_u64().unwrap()).unwrap();
            let shape = Shape { grouping_power: power("g"), max_power: power("n") };
            let mut buckets = vec![0u64; shape.buckets()];
            for (index, count) in case["buckets"].as_object().unwrap() {
                buckets[index.parse::<usize>().unwrap()] = count.as_str().unwrap().parse().unwrap();
            }
            let count = buckets.iter().sum::<u64>();
            let scale: f64 = case["scale"].as_str().unwrap().parse().unwrap();
            let sum: u64 = case["sum"].as_str().unwrap().parse().unwrap();
            let scaled_sum: f64 = case["scaled_sum"].as_str().unwrap().parse().unwrap();
            let cumulative: Vec<(String, String)> = serde_json::from_value(case["cumulative"].clone()).unwrap();
            let counted = bounds(shape, scale)
                .into_iter()
                .map(|(le, buckets_counted)| (le, buckets[..buckets_counted].iter().sum::<u64>().to_string()));
            assert_eq!(counted.collect::<Vec<_>>(), cumulative, "{}", case["what"]);
            let value = Value::Histogram { buckets, shape, sum };
            for (labels, open) in [("", "{"), (r#"{a="b"}"#, r#"{a="b","#)] {
                let lines = cumulative.iter().map(|(le, count)| format!("x_bucket{open}le=\"{le}\"}} {count}\n"));
                let ends = format!("x_sum{labels} {}\nx_count{labels} {count}\n", number(scaled_sum));
                let wanted: String = lines.chain([ends]).collect();
                assert_eq!(samples_of(labels, &value, scale), wanted, "{}", case["what"]);
            }
        }
    }

    #[test]
    fn any_label_value_stays_within_its_quotes() {
        bolero::check!().with_type::<String>().for_each(|value| {
            let text = labels_text([("a", value.as_str())]);
            let inner = text.strip_prefix("{a=\"").and_then(|rest| rest.strip_suffix("\"}")).unwrap();
            let (mut back, mut chars) = (String::new(), inner.chars());
            while let Some(c) = chars.next() {
                assert!(c != '"' && c != '\n');
                back.push(match c {
                    '\\' => match chars.next().unwrap() {
                        'n' => '\n',
                        escaped => escaped,
                    },
                    other => other,
                });
            }
            assert_eq!(back, *value);
        });
    }
}
