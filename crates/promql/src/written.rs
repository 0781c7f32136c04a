// SPDX-License-Identifier: Apache-2.0
//! What a query's text says and its evaluation does not need: how durations are written, which modifiers there are,
//! names before braces. The parser makes it, [`crate::print`] reads it.

use crate::labels::Matcher;
use crate::operator::Operator;
use crate::times::Times;
use crate::value::seconds;

/// A literal. With units it is a duration, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub(crate) value: f64,
    pub(crate) has_units: bool,
}

impl Number {
    pub(crate) fn signed(self, is_negative: bool) -> Self {
        Self { value: if is_negative { -self.value } else { self.value }, ..self }
    }
}

/// Of a range, a step, an offset.
#[derive(Clone, Debug)]
pub(crate) enum Duration {
    Number(Number),
    Calculated(Box<Calculated>),
}

/// Of two durations, of the right one alone (a sign, or parentheses around a literal), or of none.
#[derive(Clone, Debug)]
pub(crate) struct Calculated {
    pub(crate) how: Calculation,
    pub(crate) left: Option<Duration>,
    pub(crate) right: Option<Duration>,
    pub(crate) in_parentheses: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calculation {
    Operator(Operator),
    /// The query's step.
    Step,
    /// From the query's first time to its last.
    Range,
    Least,
    Largest,
}

impl Calculation {
    /// Those that are written as functions.
    pub(crate) const FUNCTIONS: [(Self, &str); 4] =
        [(Self::Step, "step"), (Self::Range, "range"), (Self::Least, "min_of"), (Self::Largest, "max_of")];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Operator(operator) => operator.text(),
            _ => Self::FUNCTIONS.iter().find(|(own, _)| *own == self).map_or("", |(_, text)| *text),
        }
    }
}

impl Duration {
    pub(crate) fn calculated(how: Calculation, left: Option<Self>, right: Option<Self>) -> Self {
        Self::Calculated(Box::new(Calculated { how, left, right, in_parentheses: false }))
    }

    /// With a sign before it; a `+` changes nothing.
    pub(crate) fn signed(self, is_negative: bool) -> Self {
        match self {
            Self::Number(number) => Self::Number(number.signed(is_negative)),
            calculated if is_negative => Self::sign(Operator::Subtract, calculated),
            calculated => calculated,
        }
    }

    /// With a sign that is kept.
    pub(crate) fn sign(sign: Operator, right: Self) -> Self {
        Self::calculated(Calculation::Operator(sign), None, Some(right))
    }

    /// Those around others change nothing.
    pub(crate) fn in_parentheses(self) -> Self {
        let mut calculated = match self {
            Self::Calculated(calculated) => calculated,
            number @ Self::Number(_) => {
                let how = Calculation::Operator(Operator::Add);
                Box::new(Calculated { how, left: None, right: Some(number), in_parentheses: true })
            }
        };
        calculated.in_parentheses = true;
        Self::Calculated(calculated)
    }

    /// What it is in a query for these times, seconds.
    pub(crate) fn seconds(&self, times: Times) -> Result<f64, &'static str> {
        let Calculated { how, left, right, .. } = match self {
            Self::Number(number) => return Ok(number.value),
            Self::Calculated(calculated) => &**calculated,
        };
        let of = |side: &Option<Self>| side.as_ref().map_or(Ok(0.0), |side| side.seconds(times));
        let (left, right) = (of(left)?, of(right)?);
        Ok(match how {
            Calculation::Step => seconds(times.step_ns),
            Calculation::Range => seconds(times.end_ns.saturating_sub(times.start_ns)),
            Calculation::Least => left.min(right),
            Calculation::Largest => left.max(right),
            Calculation::Operator(Operator::Add) => left + right,
            Calculation::Operator(Operator::Subtract) => left - right,
            Calculation::Operator(Operator::Multiply) => left * right,
            Calculation::Operator(Operator::Divide) if right == 0.0 => return Err("division by zero"),
            Calculation::Operator(Operator::Divide) => left / right,
            Calculation::Operator(Operator::Modulo) if right == 0.0 => return Err("modulo by zero"),
            Calculation::Operator(Operator::Modulo) => left % right,
            Calculation::Operator(Operator::Power) => left.powf(right),
            Calculation::Operator(_) => return Err("no operator of durations"),
        })
    }
}

/// After `@`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// Since 1970.
    Seconds(f64),
    Start,
    End,
}

/// Which other time a selector or a subquery looks at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Modifiers {
    pub(crate) at: Option<Bound>,
    /// None of 0.
    pub(crate) offset: Option<Duration>,
}

impl Modifiers {
    pub(crate) fn is_none(&self) -> bool {
        self.at.is_none() && self.offset.is_none()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Select {
    /// Before the braces.
    pub(crate) name: Option<String>,
    /// In the braces; regular expressions as they are written.
    pub(crate) matchers: Vec<Matcher>,
    pub(crate) modifiers: Modifiers,
}
