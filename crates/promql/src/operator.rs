// SPDX-License-Identifier: Apache-2.0
//! Binary operators, of values and of durations.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
    Atan2,
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    /// `</`: of histograms without what is larger.
    TrimUpper,
    /// `>/`: without what is less.
    TrimLower,
    And,
    Or,
    Unless,
}

impl Operator {
    /// All of them, as they are written.
    pub(crate) const ALL: [(Self, &str); 18] = [
        (Self::Add, "+"),
        (Self::Subtract, "-"),
        (Self::Multiply, "*"),
        (Self::Divide, "/"),
        (Self::Modulo, "%"),
        (Self::Power, "^"),
        (Self::Atan2, "atan2"),
        (Self::Equal, "=="),
        (Self::NotEqual, "!="),
        (Self::Greater, ">"),
        (Self::Less, "<"),
        (Self::GreaterOrEqual, ">="),
        (Self::LessOrEqual, "<="),
        (Self::TrimUpper, "</"),
        (Self::TrimLower, ">/"),
        (Self::And, "and"),
        (Self::Or, "or"),
        (Self::Unless, "unless"),
    ];

    pub(crate) fn is_set(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Unless)
    }

    pub(crate) fn is_comparison(self) -> bool {
        use Operator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        matches!(self, Equal | NotEqual | Greater | Less | GreaterOrEqual | LessOrEqual)
    }

    pub(crate) fn text(self) -> &'static str {
        Self::ALL.iter().find(|(operator, _)| *operator == self).map_or("", |(_, text)| *text)
    }

    /// The one that is written so, in letters of either case.
    pub(crate) fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, own)| own.eq_ignore_ascii_case(text)).map(|(operator, _)| operator)
    }
}
