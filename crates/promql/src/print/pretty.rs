// SPDX-License-Identifier: Apache-2.0
//! A tree in several lines: a node that is too long for one has its operands in lines of their own, further in.
//! Selectors stay in theirs, whatever they take.

use super::flat::{Flat, after_subquery, aggregation, operator};
use crate::expr::{Expr, RangeOf, Subquery};

/// Bytes of a node in one line, without what stands before it.
const MOST: usize = 100;
const INDENT: &str = "  ";

pub(super) fn pretty(expr: &Expr) -> String {
    let mut printer = Printer { flat: Flat::new(expr), node: 0, out: String::new() };
    printer.expr(expr, 0, true);
    printer.out
}

struct Printer {
    flat: Flat,
    /// The next node, in the order of [`Flat`]'s.
    node: usize,
    out: String,
}

impl Printer {
    /// `leads`: it begins its line, which so far has nothing.
    fn expr(&mut self, expr: &Expr, level: usize, leads: bool) {
        let node = &self.flat.nodes[self.node];
        if node.at.len() <= MOST || is_in_one_line(expr) {
            // A subquery that fits is not indented by Prometheus, either.
            self.indent(level, leads && subquery(expr).is_none());
            return self.whole();
        }
        self.node += 1;
        match expr {
            Expr::Negate(inner) => self.signed("-", inner, level, leads),
            Expr::Plus(inner) => self.signed("+", inner, level, leads),
            Expr::Binary(binary) => {
                self.expr(&binary.left, level + 1, leads);
                self.line(level);
                operator(&mut self.out, binary);
                self.out.push('\n');
                self.expr(&binary.right, level + 1, true);
            }
            Expr::Parentheses(inner) => {
                self.indent(level, leads);
                self.list([&**inner], level);
            }
            Expr::Aggregate(aggregate) => {
                self.indent(level, leads);
                aggregation(&mut self.out, aggregate);
                self.list(aggregate.param.iter().chain([&aggregate.expr]), level);
            }
            Expr::Call(call) => {
                self.indent(level, leads);
                self.out.push_str(&call.name);
                self.list(&call.args, level);
            }
            Expr::Range(range) => {
                if let RangeOf::Subquery(subquery) = &range.of {
                    self.expr(&subquery.expr, level, leads);
                    after_subquery(&mut self.out, range, subquery);
                }
            }
            Expr::Number(_) | Expr::String(_) | Expr::Select(_) => {}
        }
    }

    /// The next node in one line.
    fn whole(&mut self) {
        let node = &self.flat.nodes[self.node];
        self.out.push_str(&self.flat.text[node.at.clone()]);
        self.node = node.next;
    }

    fn signed(&mut self, sign: &str, inner: &Expr, level: usize, leads: bool) {
        self.indent(level, leads);
        self.out.push_str(sign);
        self.expr(inner, level, false);
    }

    /// In parentheses, each in its line.
    fn list<'e>(&mut self, all: impl IntoIterator<Item = &'e Expr>, level: usize) {
        for (at, expr) in all.into_iter().enumerate() {
            self.out.push_str(if at > 0 { ",\n" } else { "(\n" });
            self.expr(expr, level + 1, true);
        }
        self.line(level);
        self.out.push(')');
    }

    fn line(&mut self, level: usize) {
        self.out.push('\n');
        self.indent(level, true);
    }

    fn indent(&mut self, level: usize, leads: bool) {
        self.out.extend((0..level).filter(|_| leads).map(|_| INDENT));
    }
}

/// Whether it is, whatever it takes.
fn is_in_one_line(expr: &Expr) -> bool {
    match expr {
        Expr::Number(_) | Expr::String(_) | Expr::Select(_) => true,
        Expr::Range(_) => subquery(expr).is_none(),
        _ => false,
    }
}

fn subquery(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::Range(range) => match &range.of {
            RangeOf::Subquery(subquery) => Some(subquery),
            RangeOf::Select(_) => None,
        },
        _ => None,
    }
}
