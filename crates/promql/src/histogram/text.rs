// SPDX-License-Identifier: Apache-2.0
//! Histograms as Prometheus writes them.

use std::fmt;

use super::{Histogram, Interval};

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{count:{}, sum:{}", short(self.count), short(self.sum))?;
        for Interval { lower, upper, has_lower, has_upper, count } in self.intervals() {
            let (open, close) = (if has_lower { '[' } else { '(' }, if has_upper { ']' } else { ')' });
            write!(f, ", {open}{},{}{close}:{}", short(lower), short(upper), short(count))?;
        }
        f.write_str("}")
    }
}

/// With an exponent only if the value is small or large.
fn short(value: f64) -> String {
    if value.is_nan() || value.is_infinite() {
        return if value.is_nan() {
            "NaN".into()
        } else if value > 0.0 {
            "+Inf".into()
        } else {
            "-Inf".into()
        };
    }
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
