// SPDX-License-Identifier: Apache-2.0
//! Durations: literals, and what is calculated of them and of the query's own times.

use std::ops::Range;

use super::ParseError;
use super::grammar::{Parser, binds};
use super::token::Kind;
use crate::expr::Operator;
use crate::written::{Calculation, Duration, Number};

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

fn is_zero(duration: &Duration) -> bool {
    matches!(duration, Duration::Number(number) if number.value == 0.0)
}

impl Parser<'_> {
    /// Of a range, or a step: more than 0; ns.
    pub(super) fn positive(&mut self) -> Result<(Duration, i64), ParseError> {
        let from = self.peek().at;
        let duration = self.duration(0)?;
        let at = from..self.end();
        match self.ns(&duration, at.clone())? {
            Some(..=0) => Err(self.wrong(at, "duration must be greater than 0")),
            ns => Ok((duration, ns.unwrap_or_default())),
        }
    }

    /// After `offset`, ns; that of 0 is none.
    pub(super) fn offset(&mut self) -> Result<(Option<Duration>, i64), ParseError> {
        let token = self.peek();
        let has_sign = token.is_sign("-") || token.is_sign("+");
        // Operators after it are the duration's only where it begins so.
        let goes_on =
            if has_sign { ["-", "+"].iter().any(|sign| self.after().is_sign(sign)) } else { token.is_sign("(") };
        let duration = if goes_on { self.duration(0)? } else { self.offset_term()? };
        let ns = self.ns(&duration, token.at..self.end())?.unwrap_or_default();
        let is_none = ns == 0 && matches!(duration, Duration::Number(_));
        Ok(((!is_none).then_some(duration), ns))
    }

    /// One term with its sign.
    fn offset_term(&mut self) -> Result<Duration, ParseError> {
        let sign = match self.peek().text {
            "+" => Some(Operator::Add),
            "-" => Some(Operator::Subtract),
            _ => None,
        };
        if sign.is_some() {
            self.advance();
        }
        let term = self.duration_term("offset, expected number, duration, step(), or range()")?;
        Ok(match (sign, &term) {
            (None, _) => term,
            // Before a function a `+` is kept.
            (Some(sign), Duration::Calculated(own)) if !own.in_parentheses => Duration::sign(sign, term),
            (Some(sign), _) => term.signed(sign == Operator::Subtract),
        })
    }

    /// ns of what has been read, where there are times for it.
    fn ns(&self, duration: &Duration, at: Range<usize>) -> Result<Option<i64>, ParseError> {
        let seconds = match (duration, self.times) {
            (Duration::Number(number), _) => Ok(number.value),
            (Duration::Calculated(_), Some(times)) => duration.seconds(times),
            (Duration::Calculated(_), None) => return Ok(None),
        };
        seconds.and_then(nanoseconds).map(Some).map_err(|why| self.wrong(at, why))
    }

    /// Everything that binds tighter than `least`.
    fn duration(&mut self, least: u8) -> Result<Duration, ParseError> {
        let token = self.peek();
        let mut left = if token.is_sign("-") || token.is_sign("+") {
            self.advance();
            self.duration(binds("*"))?.signed(token.text == "-")
        } else {
            self.duration_term("a duration, expected number, duration, step(), or range()")?
        };
        loop {
            let token = self.peek();
            let is_operator = token.kind == Kind::Sign && ["+", "-", "*", "/", "%", "^"].contains(&token.text);
            let Some(operator) = Operator::of(token.text).filter(|_| is_operator) else { return Ok(left) };
            let tightness = binds(token.text);
            if tightness <= least {
                return Ok(left);
            }
            self.advance();
            // Powers are taken from the right.
            let right = self.duration(if operator == Operator::Power { tightness - 1 } else { tightness })?;
            match operator {
                Operator::Divide if is_zero(&right) => return Err(self.wrong(token.place(), "division by zero")),
                Operator::Modulo if is_zero(&right) => return Err(self.wrong(token.place(), "modulo by zero")),
                _ => left = Duration::calculated(Calculation::Operator(operator), Some(left), Some(right)),
            }
        }
    }

    /// What stands alone: a literal, a function, parentheses.
    fn duration_term(&mut self, context: &str) -> Result<Duration, ParseError> {
        let token = self.peek();
        if let Kind::Number(value) | Kind::Duration(value) = token.kind {
            self.advance();
            nanoseconds(value).map_err(|why| self.wrong(token.place(), why))?;
            return Ok(Duration::Number(Number { value, has_units: matches!(token.kind, Kind::Duration(_)) }));
        }
        if self.takes_sign("(") {
            let inner = self.duration(0)?;
            self.expect(")", context)?;
            return Ok(inner.in_parentheses());
        }
        let function = Calculation::FUNCTIONS.into_iter().find(|(_, name)| token.is_word(name));
        let Some((how, _)) = function else { return Err(self.unexpected(context)) };
        self.advance();
        self.expect("(", context)?;
        let (mut left, mut right) = (None, None);
        if matches!(how, Calculation::Least | Calculation::Largest) {
            left = Some(self.duration(0)?);
            self.expect(",", context)?;
            right = Some(self.duration(0)?);
        }
        self.expect(")", context)?;
        Ok(Duration::calculated(how, left, right))
    }
}
