// SPDX-License-Identifier: Apache-2.0
//! Literals: numbers, and durations such as `1h30m`.

const SECOND_NS: i64 = 1_000_000_000;

/// Longest units first; each may come once, in this order.
pub(crate) const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400 * SECOND_NS),
    ("w", 7 * 86_400 * SECOND_NS),
    ("d", 86_400 * SECOND_NS),
    ("h", 3_600 * SECOND_NS),
    ("m", 60 * SECOND_NS),
    ("s", SECOND_NS),
    ("ms", SECOND_NS / 1_000),
];

/// A number as Go has it: decimal, `0x` and, after a 0, octal; `_` may stand between digits.
pub(super) fn number(word: &str) -> Option<f64> {
    let is_hex = word.starts_with("0x") || word.starts_with("0X");
    let is_apart = |at: usize| {
        let of_number = |byte: &u8| if is_hex { byte.is_ascii_hexdigit() } else { byte.is_ascii_digit() };
        let is_digit = |at: Option<usize>| at.and_then(|at| word.as_bytes().get(at)).is_some_and(of_number);
        is_digit(at.checked_sub(1)) && is_digit(at.checked_add(1))
    };
    if !word.match_indices('_').all(|(at, _)| is_apart(at)) {
        return None;
    }
    let digits = word.replace('_', "");
    let integer = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => Some(i64::from_str_radix(hex, 16).ok()?),
        None if digits.starts_with('0') => i64::from_str_radix(&digits, 8).ok(),
        None => None,
    };
    #[allow(clippy::cast_precision_loss)] // as literals are everywhere
    integer.map(|integer| integer as f64).or_else(|| digits.parse().ok().filter(|number: &f64| number.is_finite()))
}

/// ns of a duration with units, as `1h30m`. `None`: it is none, or too long.
#[must_use]
pub fn duration_ns(text: &str) -> Option<i64> {
    let (mut rest, mut all_ns, mut units) = (text, 0i64, &UNITS[..]);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at_checked(digits)?;
        let letters = after.bytes().take_while(u8::is_ascii_lowercase).count();
        let (unit, after) = after.split_at_checked(letters)?;
        let at = units.iter().position(|(name, _)| *name == unit)?;
        all_ns = all_ns.checked_add(number.parse::<i64>().ok()?.checked_mul(units[at].1)?)?;
        (rest, units) = (after, &units[at + 1..]);
    }
    (!text.is_empty()).then_some(all_ns)
}
