// SPDX-License-Identifier: Apache-2.0
//! Times and durations as Prometheus' API has them: decimal seconds with up to nine digits, RFC 3339, `1h30m`. Pure.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const SECOND_NS: i64 = 1_000_000_000;

/// ns since 1970 of a time.
pub(super) fn time_ns(text: &str) -> Option<i64> {
    seconds_ns(text).or_else(|| rfc3339_ns(text))
}

/// ns of a duration.
pub(super) fn duration_ns(text: &str) -> Option<i64> {
    seconds_ns(text).or_else(|| onlooker_promql::duration_ns(text))
}

/// Decimal seconds, to the nanosecond.
fn seconds_ns(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain = !(whole.is_empty() && fraction.is_empty()) && is_number(whole) && is_number(fraction);
    if !is_plain {
        // With an exponent, as few write it.
        let seconds: f64 = text.parse().ok().filter(|seconds: &f64| seconds.abs() < 9.2e9)?;
        #[allow(clippy::cast_possible_truncation)] // it fits
        return Some((seconds * 1e9).round() as i64);
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // As late, or early, as can be: what people mean by it is "all".
    Some(whole.saturating_mul(SECOND_NS).saturating_add(fraction_ns(fraction)?).saturating_mul(sign))
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Of the digits behind a point; beyond the ninth they are left out.
fn fraction_ns(digits: &str) -> Option<i64> {
    let digits = digits.get(..9).unwrap_or(digits);
    if digits.is_empty() || !is_number(digits) {
        return digits.is_empty().then_some(0);
    }
    let scale = 10i64.pow(9 - u32::try_from(digits.len()).ok()?);
    Some(digits.parse::<i64>().ok()? * scale)
}

/// `2026-11-24T10:30:00.5+01:00`.
fn rfc3339_ns(text: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        for (text, ns) in [
            ("4", 4 * SECOND_NS),
            ("1795300000.123456789", 1_795_300_000_123_456_789),
            ("1795300000.01", 1_795_300_000_010_000_000),
            (".5", SECOND_NS / 2),
            ("-1.5", -3 * SECOND_NS / 2),
            ("9999999999", i64::MAX),
            ("1.7953e9", 1_795_300_000 * SECOND_NS),
            ("1970-01-01T00:00:00Z", 0),
            ("2024-02-29T12:00:00.25Z", 1_709_208_000_250_000_000),
            ("2024-02-29T13:30:00+01:30", 1_709_208_000_000_000_000),
            ("2024-02-29T11:00:00-01:00", 1_709_208_000_000_000_000),
            ("1969-12-31T23:59:59Z", -SECOND_NS),
        ] {
            assert_eq!(time_ns(text), Some(ns), "{text}");
        }
        for text in
            ["", ".", "x", "1s", "1e30", "NaN", "2024-02-30T00:00:00Z", "2024-02-29T00:00:00", "2024-2-9T0:0:0Z"]
        {
            assert_eq!(time_ns(text), None, "{text}");
        }
    }

    #[test]
    fn durations_are_seconds_or_have_units() {
        for (text, ns) in [
            ("15s", 15 * SECOND_NS),
            ("0.01", SECOND_NS / 100),
            ("1h30m", 5_400 * SECOND_NS),
            ("1d12h", 129_600 * SECOND_NS),
            ("10ms", SECOND_NS / 100),
            ("1m500ms", 60 * SECOND_NS + SECOND_NS / 2),
        ] {
            assert_eq!(duration_ns(text), Some(ns), "{text}");
        }
        for text in ["", "s", "1m1h", "1s1s", "1x", "1 s", "99999999y"] {
            assert_eq!(duration_ns(text), None, "{text}");
        }
    }
}
