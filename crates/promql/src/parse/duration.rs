// SPDX-License-Identifier: Apache-2.0
//! Durations: `1h30m`, seconds, and what is calculated of them and of the query's own times.

use super::{ParseError, wrong};
use crate::query::Times;
use crate::value::seconds;

/// Longest units first; each may come once, in this order.
const UNITS: [(&str, f64); 7] =
    [("y", 31_536_000.0), ("w", 604_800.0), ("d", 86_400.0), ("h", 3_600.0), ("m", 60.0), ("s", 1.0), ("ms", 0.001)];

/// A duration or a number, as seconds.
pub(super) fn literal(word: &str) -> Option<f64> {
    if word == "0" {
        return Some(0.0);
    }
    if word.starts_with(|first: char| first.is_ascii_digit()) {
        if let Some(hex) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
            #[allow(clippy::cast_precision_loss)] // as literals are everywhere
            return u64::from_str_radix(hex, 16).ok().map(|number| number as f64);
        }
        if let Some(all) = with_units(word) {
            return Some(all);
        }
    }
    // Not what f64 knows beside numbers.
    word.starts_with(|first: char| first.is_ascii_digit() || first == '.').then(|| word.parse().ok())?
}

fn with_units(word: &str) -> Option<f64> {
    let (mut rest, mut all, mut units) = (word, 0.0, &UNITS[..]);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at_checked(digits)?;
        let letters = after.bytes().take_while(u8::is_ascii_lowercase).count();
        let (unit, after) = after.split_at_checked(letters)?;
        let at = units.iter().position(|(name, _)| *name == unit)?;
        all += number.parse::<f64>().ok()? * units[at].1;
        (rest, units) = (after, &units[at + 1..]);
    }
    Some(all)
}

/// Seconds as ns, for what may be less than 0.
pub(super) fn nanoseconds(seconds: f64) -> Result<i64, ParseError> {
    if seconds.is_nan() || seconds.is_infinite() {
        return Err(wrong("duration is NaN or infinite"));
    }
    #[allow(clippy::cast_precision_loss)]
    if seconds.abs() * 1e9 >= i64::MAX as f64 {
        return Err(wrong("duration out of range"));
    }
    #[allow(clippy::cast_possible_truncation)] // within bounds
    Ok((seconds * 1e9).round() as i64)
}

/// What stands at `at` of a text: expressions of durations, seconds each.
pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) times: Times,
    /// How deep in parentheses and operators.
    depth: usize,
}

const DEEPEST: usize = 64;

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, at: usize, times: Times) -> Self {
        Self { text, at, times, depth: 0 }
    }

    pub(super) fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        let rest = rest.trim_start();
        self.at = self.text.len() - rest.len();
        rest.chars().next()
    }

    pub(super) fn takes(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        if is_next {
            self.at += wanted.len_utf8();
        }
        is_next
    }

    fn expect(&mut self, wanted: char) -> Result<(), ParseError> {
        if self.takes(wanted) {
            Ok(())
        } else {
            Err(wrong(format!("unexpected text in a duration, expected {wanted:?}")))
        }
    }

    fn word(&mut self) -> &'a str {
        self.peek();
        let rest = &self.text[self.at..];
        let letters =
            rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')).count();
        self.at += letters;
        &rest[..letters]
    }

    /// Everything that binds tighter than `least`.
    pub(super) fn expression(&mut self, least: u8) -> Result<f64, ParseError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(wrong("a duration is calculated in too many steps"));
        }
        let mut left = match self.peek() {
            Some('-') if self.takes('-') => -self.expression(2)?,
            Some('+') if self.takes('+') => self.expression(2)?,
            _ => self.term()?,
        };
        while let Some(operator) = self.peek() {
            let binds = match operator {
                '+' | '-' => 1,
                '*' | '/' | '%' => 2,
                '^' => 3,
                _ => break,
            };
            if binds <= least {
                break;
            }
            self.takes(operator);
            // Powers are taken from the right.
            let right = self.expression(if operator == '^' { 2 } else { binds })?;
            left = match operator {
                '+' => left + right,
                '-' => left - right,
                '*' => left * right,
                '/' if right == 0.0 => return Err(wrong("division by zero")),
                '/' => left / right,
                '%' if right == 0.0 => return Err(wrong("modulo by zero")),
                '%' => left % right,
                _ => left.powf(right),
            };
        }
        self.depth -= 1;
        Ok(left)
    }

    /// What stands alone: a literal, a function, parentheses.
    pub(super) fn term(&mut self) -> Result<f64, ParseError> {
        if self.takes('(') {
            let inner = self.expression(0)?;
            self.expect(')')?;
            return Ok(inner);
        }
        let word = self.word();
        let Times { start_ns, end_ns, step_ns } = self.times;
        match word.to_ascii_lowercase().as_str() {
            name @ ("step" | "range") => {
                self.expect('(')?;
                self.expect(')')?;
                Ok(seconds(if name == "step" { step_ns } else { end_ns.saturating_sub(start_ns) }))
            }
            name @ ("min_of" | "max_of") => {
                self.expect('(')?;
                let one = self.expression(0)?;
                self.expect(',')?;
                let other = self.expression(0)?;
                self.expect(')')?;
                Ok(if name == "min_of" { one.min(other) } else { one.max(other) })
            }
            _ => literal(word).ok_or_else(|| wrong(format!("unexpected {word:?}, expected number or duration"))),
        }
    }
}
