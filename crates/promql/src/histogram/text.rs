// SPDX-License-Identifier: Apache-2.0
//! Histograms as Prometheus writes them.

use std::fmt;

use super::bounds::Bucket;
use super::{Histogram, Scale};

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{count:{}, sum:{}", short(self.count), short(self.sum))?;
        let is_custom = self.is_custom();
        let write = |f: &mut fmt::Formatter<'_>, bucket: Bucket, is_zero: bool| {
            let Bucket { lower, upper, count } = bucket;
            let has_lower = is_zero || if is_custom { lower == f64::NEG_INFINITY } else { lower < 0.0 };
            let has_upper = is_zero || is_custom || upper > 0.0;
            let (open, close) = (if has_lower { '[' } else { '(' }, if has_upper { ']' } else { ')' });
            write!(f, ", {open}{},{}{close}:{}", short(lower), short(upper), short(count))
        };
        for bucket in self.negatives().rev().filter(|bucket| bucket.count != 0.0) {
            write(f, bucket, false)?;
        }
        if let (Scale::Exponential { zero_threshold, .. }, false) = (&self.scale, self.zero_count == 0.0) {
            write(f, Bucket { lower: -zero_threshold, upper: *zero_threshold, count: self.zero_count }, true)?;
        }
        for bucket in self.positives().filter(|bucket| bucket.count != 0.0) {
            write(f, bucket, false)?;
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
