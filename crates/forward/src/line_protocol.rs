// SPDX-License-Identifier: Apache-2.0
//! InfluxDB's line protocol: a line a sample, `name,label=value value=1.5 1700000000000000000`.
//!
//! The measurement is the metric's name, labels are tags, the one field is `value`, a float; times are ns. What the
//! protocol cannot say is not sent: NaN and infinities, and with them markers of ends.

use std::io::Write as _;

use onlooker_promql::source::STALE;

use crate::naming::Pairs;

/// The label that has a metric's name.
const NAME: &str = "__name__";

/// What stands before the value.
pub(crate) fn prefix(pairs: &Pairs) -> Box<[u8]> {
    let mut out = String::new();
    let name = pairs.get(NAME).map_or("", String::as_str);
    escape(name, &[',', ' '], &mut out);
    for (name, value) in pairs.iter().filter(|(name, _)| *name != NAME) {
        out.push(',');
        escape(name, &[',', '=', ' '], &mut out);
        out.push('=');
        escape(value, &[',', '=', ' '], &mut out);
    }
    out.push_str(" value=");
    out.into_bytes().into()
}

/// Writes a text with a backslash before these. The protocol has no way to write a backslash that stands before one of
/// them or at the end, nor a line end: those become `/` and a space.
fn escape(text: &str, special: &[char], out: &mut String) {
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        let next = if matches!(next, '\n' | '\r') { ' ' } else { next };
        let is_special = |c: &char| special.contains(c) || matches!(c, '\n' | '\r');
        if next == '\\' && rest.peek().is_none_or(is_special) {
            out.push('/');
            continue;
        }
        if special.contains(&next) {
            out.push('\\');
        }
        out.push(next);
    }
}

/// Appends lines. Returns how many samples they have, and how many could not be written; markers of ends are no samples.
pub(crate) fn push(out: &mut Vec<u8>, prefix: &[u8], of: impl Iterator<Item = (i64, f64)>) -> (u64, u64) {
    let (mut written, mut left) = (0, 0);
    for (time_ns, value) in of {
        if !value.is_finite() {
            left += u64::from(value.to_bits() != STALE.to_bits());
            continue;
        }
        out.extend_from_slice(prefix);
        // The shortest digits that read back as the same double; without an exponent up to where they are all digits.
        let size = value.abs();
        let plain = size == 0.0 || (1e-5..1e16).contains(&size);
        let line = if plain { write!(out, "{value} {time_ns}") } else { write!(out, "{value:e} {time_ns}") };
        line.expect("memory takes everything");
        out.push(b'\n');
        written += 1;
    }
    (written, left)
}
