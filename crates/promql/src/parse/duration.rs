// SPDX-License-Identifier: Apache-2.0
//! Durations as they are calculated: of literals, and of the query's own times.

use super::ParseError;
use super::grammar::{Parser, binds};
use super::token::Kind;
use crate::times::Times;
use crate::value::seconds;

/// Seconds as ns, for what may be less than 0.
pub(super) fn nanoseconds(seconds: f64) -> Result<i64, &'static str> {
    if seconds.is_nan() || seconds.is_infinite() {
        return Err("duration is NaN or infinite");
    }
    #[allow(clippy::cast_precision_loss)]
    if seconds.abs() * 1e9 >= i64::MAX as f64 {
        return Err("duration out of range");
    }
    #[allow(clippy::cast_possible_truncation)] // within bounds
    Ok((seconds * 1e9).round() as i64)
}

impl Parser<'_> {
    /// Of a range, or a step: more than 0; ns.
    pub(super) fn positive_ns(&mut self) -> Result<i64, ParseError> {
        let from = self.peek().at;
        let seconds = self.duration(0)?;
        let place = from..self.end();
        match nanoseconds(seconds) {
            Ok(1..) => nanoseconds(seconds).map_err(|text| self.wrong(place, text)),
            Ok(_) => Err(self.wrong(place, "duration must be greater than 0")),
            Err(text) => Err(self.wrong(place, text)),
        }
    }

    /// After `offset`: one term with its sign; ns.
    pub(super) fn offset_ns(&mut self) -> Result<i64, ParseError> {
        let from = self.peek().at;
        let is_negative = self.takes_sign("-");
        if !is_negative {
            self.takes_sign("+");
        }
        let seconds = self.duration_term("offset, expected number, duration, step(), or range()")?;
        nanoseconds(if is_negative { -seconds } else { seconds }).map_err(|text| self.wrong(from..self.end(), text))
    }

    /// Everything that binds tighter than `least`; seconds.
    fn duration(&mut self, least: u8) -> Result<f64, ParseError> {
        let mut left = if self.takes_sign("-") {
            -self.duration(binds("*"))?
        } else if self.takes_sign("+") {
            self.duration(binds("*"))?
        } else {
            self.duration_term("a duration, expected number, duration, step(), or range()")?
        };
        loop {
            let token = self.peek();
            let operator = token.text;
            if token.kind != Kind::Sign || !["+", "-", "*", "/", "%", "^"].contains(&operator) {
                return Ok(left);
            }
            let tightness = binds(operator);
            if tightness <= least {
                return Ok(left);
            }
            self.advance();
            // Powers are taken from the right.
            let right = self.duration(if operator == "^" { tightness - 1 } else { tightness })?;
            left = match operator {
                "+" => left + right,
                "-" => left - right,
                "*" => left * right,
                "/" if right == 0.0 => return Err(self.wrong(token.place(), "division by zero")),
                "/" => left / right,
                "%" if right == 0.0 => return Err(self.wrong(token.place(), "modulo by zero")),
                "%" => left % right,
                _ => left.powf(right),
            };
        }
    }

    /// What stands alone: a literal, a function, parentheses; seconds.
    fn duration_term(&mut self, context: &str) -> Result<f64, ParseError> {
        let token = self.peek();
        if let Kind::Number(seconds) | Kind::Duration(seconds) = token.kind {
            self.advance();
            return Ok(seconds);
        }
        if self.takes_sign("(") {
            let inner = self.duration(0)?;
            self.expect(")", context)?;
            return Ok(inner);
        }
        let name = ["step", "range", "min_of", "max_of"].into_iter().find(|name| token.is_word(name));
        let Some(name) = name else { return Err(self.unexpected(context)) };
        self.advance();
        self.expect("(", context)?;
        let Times { start_ns, end_ns, step_ns } = self.times;
        let value = match name {
            "step" => seconds(step_ns),
            "range" => seconds(end_ns.saturating_sub(start_ns)),
            _ => {
                let one = self.duration(0)?;
                self.expect(",", context)?;
                let other = self.duration(0)?;
                if name == "min_of" { one.min(other) } else { one.max(other) }
            }
        };
        self.expect(")", context)?;
        Ok(value)
    }
}
