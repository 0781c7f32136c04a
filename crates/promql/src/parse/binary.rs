// SPDX-License-Identifier: Apache-2.0
//! Operators between two expressions, their modifiers, and what they take.

use super::grammar::{Parsed, Parser, binds};
use super::token::{Kind, Token};
use super::{ParseError, unsupported};
use crate::expr::{Binary, Expr, Many, Matching, Operator, Type};

impl Parser<'_> {
    /// After its operator.
    pub(super) fn binary(&mut self, left: Parsed, token: Token<'_>, tightness: u8) -> Result<Parsed, ParseError> {
        let Some(operator) = Operator::of(token.text) else { return Err(self.unexpected("")) };
        let to_bool = self.takes_word("bool");
        let matching = self.matching()?;
        // Powers are taken from the right.
        let least = if operator == Operator::Power { binds("^") - 1 } else { tightness };
        let right = self.expression(least)?;
        let at = left.at.start..right.at.end;
        let kinds = [left.kind, right.kind];
        let is_scalar = kinds == [Type::Scalar; 2];
        let is_set = operator.is_set();
        let of_vectors = kinds == [Type::Vector; 2];
        if to_bool && !operator.is_comparison() {
            self.mistype(token.place(), "bool modifier can only be used on comparison operators");
        }
        if operator.is_comparison() && !to_bool && is_scalar {
            self.mistype(token.place(), "comparisons between scalars must use BOOL modifier");
        }
        if let Some(twice) = matching.labels.iter().find(|label| matching.on && matching.include.contains(label)) {
            let text = format!("label {twice:?} must not occur in ON and GROUP clause at once");
            self.mistype(token.place(), text);
        }
        for side in [&left, &right] {
            if !matches!(side.kind, Type::Scalar | Type::Vector) {
                let text = "binary expression must contain only scalar and instant vector types";
                self.mistype(side.at.clone(), text);
            }
        }
        let name = token.text.to_ascii_lowercase();
        if !of_vectors && !matching.labels.is_empty() {
            self.mistype(at.clone(), "vector matching only allowed between instant vectors");
        }
        if is_set && matching.many != Many::Neither {
            self.mistype(at.clone(), format!("no grouping allowed for {name:?} operation"));
        }
        if is_set && kinds.contains(&Type::Scalar) {
            self.mistype(at.clone(), format!("set operator {name:?} not allowed in binary scalar expression"));
        }
        let place = self.place(&at);
        let (left, right) = (left.expr, right.expr);
        let expr = Expr::Binary(Box::new(Binary { operator, left, right, matching, of_vectors, to_bool, at: place }));
        Ok(Parsed { expr, kind: if is_scalar { Type::Scalar } else { Type::Vector }, at, is_bare: true })
    }

    /// `on (...)` or `ignoring (...)`, and which side may have several.
    fn matching(&mut self) -> Result<Matching, ParseError> {
        let mut matching = Matching { on: false, labels: Vec::new(), many: Many::Neither, include: Vec::new() };
        let on = self.takes_word("on");
        if on || self.takes_word("ignoring") {
            (matching.on, matching.labels) = (on, self.names()?);
            let left = self.takes_word("group_left");
            if left || self.takes_word("group_right") {
                matching.many = if left { Many::Left } else { Many::Right };
                matching.include = if self.peek().is_sign("(") { self.names()? } else { Vec::new() };
            }
        }
        let token = self.peek();
        let is_fill = ["fill", "fill_left", "fill_right"].iter().any(|word| token.is_word(word));
        if is_fill && token.kind == Kind::Word && self.after().is_sign("(") {
            return unsupported("the experimental fill modifiers");
        }
        Ok(matching)
    }
}
