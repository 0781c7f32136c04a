// SPDX-License-Identifier: Apache-2.0
//! Numbers as texts: as Go prints them, and as people read them.

/// A number's text without its underscores, which stand between digits. `None`: they do not.
pub(super) fn without_underscores(text: &str) -> Option<String> {
    let is_digit = |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)).is_some_and(u8::is_ascii_alphanumeric);
    let is_apart = |at: usize| is_digit(at.checked_sub(1)) && is_digit(at.checked_add(1));
    text.match_indices('_').all(|(at, _)| is_apart(at)).then(|| text.replace('_', ""))
}

/// `%g`: so many significant digits at most, or as many as it needs.
pub(super) fn general(value: f64, digits: Option<usize>) -> String {
    if let Some(text) = special(value) {
        return text.to_owned();
    }
    let digits = digits.map(|digits| digits.clamp(1, MAX_DIGITS));
    let scientific = match digits {
        Some(digits) => format!("{value:.*e}", digits - 1),
        None => format!("{value:e}"),
    };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let mantissa = if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let length = mantissa.bytes().filter(u8::is_ascii_digit).count();
    // In full it still has an exponent as if it had six digits.
    let most = digits.map_or(6, |digits| i32::try_from(digits).unwrap_or(i32::MAX));
    if exponent < -4 || exponent >= most {
        return format!("{mantissa}{}", tail(exponent));
    }
    let after = i32::try_from(length).unwrap_or(i32::MAX) - 1 - exponent;
    format!("{value:.*}", usize::try_from(after).unwrap_or(0))
}

/// Digits of a number at most, and behind a point.
pub(super) const MAX_DIGITS: usize = 400;

/// `%e`.
pub(super) fn scientific(value: f64, digits: usize) -> String {
    if let Some(text) = special(value) {
        return text.to_owned();
    }
    let text = format!("{value:.*e}", digits.min(MAX_DIGITS));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{mantissa}{}", tail(exponent.parse().unwrap_or(0)))
}

/// `%f`.
pub(super) fn fixed(value: f64, digits: usize) -> String {
    special(value).map_or_else(|| format!("{value:.*}", digits.min(MAX_DIGITS)), str::to_owned)
}

fn tail(exponent: i32) -> String {
    format!("e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn special(value: f64) -> Option<&'static str> {
    match value {
        _ if value.is_nan() => Some("NaN"),
        f64::INFINITY => Some("+Inf"),
        f64::NEG_INFINITY => Some("-Inf"),
        _ => None,
    }
}

/// Four significant digits.
fn short(value: f64) -> String {
    general(value, Some(4))
}

const LARGE: [&str; 8] = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
const BINARY: [&str; 8] = ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"];
const SMALL: [&str; 8] = ["m", "u", "n", "p", "f", "a", "z", "y"];

fn large(mut value: f64, base: f64, prefixes: [&'static str; 8]) -> String {
    let mut used = "";
    for prefix in prefixes {
        if value.abs() < base {
            break;
        }
        used = prefix;
        value /= base;
    }
    format!("{}{used}", short(value))
}

fn small(mut value: f64) -> String {
    let mut used = "";
    for prefix in SMALL {
        if value.abs() >= 1.0 {
            break;
        }
        used = prefix;
        value *= 1000.0;
    }
    format!("{}{used}", short(value))
}

/// `humanize`: with a metric prefix.
pub(super) fn humanize(value: f64) -> String {
    match value {
        _ if value == 0.0 || !value.is_finite() => short(value),
        _ if value.abs() >= 1.0 => large(value, 1000.0, LARGE),
        _ => small(value),
    }
}

/// `humanize1024`: with a binary prefix.
pub(super) fn humanize_1024(value: f64) -> String {
    if value.abs() <= 1.0 || !value.is_finite() { short(value) } else { large(value, 1024.0, BINARY) }
}

/// `humanizeDuration`, of seconds.
pub(super) fn humanize_duration(value: f64) -> String {
    if !value.is_finite() {
        return short(value);
    }
    if value == 0.0 || value.abs() < 1.0 {
        return if value == 0.0 { format!("{}s", short(value)) } else { format!("{}s", small(value)) };
    }
    let (sign, value) = (if value < 0.0 { "-" } else { "" }, value.abs());
    #[allow(clippy::cast_possible_truncation)] // saturates
    let whole = value as i64;
    let (days, hours, minutes, rest) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60, whole % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{sign}{}s", short(value)),
        (0, 0, _) => format!("{sign}{minutes}m {rest}s"),
        (0, _, _) => format!("{sign}{hours}h {minutes}m {rest}s"),
        _ => format!("{sign}{days}d {hours}h {minutes}m {rest}s"),
    }
}

/// `humanizePercentage`, of a ratio.
pub(super) fn humanize_percentage(value: f64) -> String {
    format!("{}%", short(value * 100.0))
}

/// `parseDuration`: seconds of a duration, which may begin with `-`.
pub(super) fn parse_duration(text: &str) -> Result<f64, String> {
    let (sign, unsigned) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let ns = crate::duration_ns(unsigned).ok_or_else(|| format!("not a valid duration string: {text:?}"))?;
    #[allow(clippy::cast_precision_loss)] // as in Go
    Ok((sign * ns) as f64 / 1e9)
}
