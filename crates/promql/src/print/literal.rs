// SPDX-License-Identifier: Apache-2.0
//! Strings, numbers, durations and names as they are printed.

use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;

use crate::parse::UNITS;
use crate::written::Number;

const MS_NS: i64 = 1_000_000;

/// What Go prints as it is, beside a space.
static PRINTED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]").ok());

/// In double quotes, with the escapes that Go makes.
pub(super) fn string(out: &mut String, text: &str) {
    out.push('"');
    let mut buffer = [0; 4];
    for char in text.chars() {
        let simple = match char {
            '"' => Some('"'),
            '\\' => Some('\\'),
            '\x07' => Some('a'),
            '\x08' => Some('b'),
            '\x0c' => Some('f'),
            '\n' => Some('n'),
            '\r' => Some('r'),
            '\t' => Some('t'),
            '\x0b' => Some('v'),
            _ => None,
        };
        if let Some(simple) = simple {
            out.extend(['\\', simple]);
        } else if matches!(char, ' '..='~') || is_printed(char.encode_utf8(&mut buffer)) {
            out.push(char);
        } else {
            let _ = match u32::from(char) {
                code @ ..=0x7f => write!(out, "\\x{code:02x}"),
                code @ ..=0xffff => write!(out, "\\u{code:04x}"),
                code => write!(out, "\\U{code:08x}"),
            };
        }
    }
    out.push('"');
}

fn is_printed(char: &str) -> bool {
    PRINTED.as_ref().is_some_and(|printed| printed.is_match(char))
}

/// Without an exponent, as short as it reads back.
pub(super) fn number(out: &mut String, value: f64) {
    let _ = if value == f64::INFINITY {
        write!(out, "+Inf")
    } else if value.is_infinite() {
        write!(out, "-Inf")
    } else {
        write!(out, "{value}")
    };
}

/// As it is written: with units if it has some.
pub(super) fn literal(out: &mut String, number: Number) {
    if number.has_units { duration(out, number.value) } else { self::number(out, number.value) }
}

/// Of seconds; `None`: they are finer than milliseconds.
pub(super) fn whole_ms(seconds: f64) -> Option<i64> {
    let ms = (seconds * 1_000.0).round();
    #[allow(clippy::cast_possible_truncation)] // of durations: within bounds
    (ms / 1_000.0 == seconds).then_some(ms as i64)
}

/// With units, if it has whole milliseconds.
pub(super) fn duration(out: &mut String, seconds: f64) {
    let Some(ms) = whole_ms(seconds) else { return number(out, seconds) };
    if ms == 0 {
        return out.push_str("0s");
    }
    out.push_str(if ms < 0 { "-" } else { "" });
    let mut rest = ms.abs();
    for (unit, unit_ns) in UNITS {
        let unit_ms = unit_ns / MS_NS;
        // 90d are easier to read than 12w6d.
        let is_part = rest >= unit_ms && (!matches!(unit, "y" | "w") || rest % unit_ms == 0);
        if is_part {
            let _ = write!(out, "{}{unit}", rest / unit_ms);
            rest %= unit_ms;
        }
    }
}

/// In quotes if it needs them.
pub(super) fn name(out: &mut String, name: &str) {
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_word && !name.starts_with(|first: char| first.is_ascii_digit()) && !name.is_empty() {
        out.push_str(name);
    } else {
        string(out, name);
    }
}

/// In parentheses.
pub(super) fn names(out: &mut String, names: &[String]) {
    out.push('(');
    for (at, own) in names.iter().enumerate() {
        out.push_str(if at > 0 { ", " } else { "" });
        name(out, own);
    }
    out.push(')');
}
