// SPDX-License-Identifier: Apache-2.0
//! A tree in one line, and the parts that more than one printer writes: what stands around a node's operands.

use std::fmt::Write as _;
use std::ops::Range as Span;

use super::literal::{duration, literal, name, names, string, whole_ms};
use crate::expr::{Aggregate, Binary, Edges, Expr, Many, Range, RangeOf, Select, Subquery};
use crate::labels::Matcher;
use crate::written::{Bound, Calculated, Calculation, Duration, Modifiers};

/// The line. Nodes are in the order in which they begin, each before its operands.
pub(super) struct Flat {
    pub(super) text: String,
    pub(super) nodes: Vec<Node>,
}

pub(super) struct Node {
    /// Its part of the text.
    pub(super) at: Span<usize>,
    /// The first node that is no part of it.
    pub(super) next: usize,
}

impl Flat {
    pub(super) fn new(expr: &Expr) -> Self {
        let mut flat = Self { text: String::new(), nodes: Vec::new() };
        flat.expr(expr);
        flat
    }

    fn expr(&mut self, expr: &Expr) {
        let (node, from) = (self.nodes.len(), self.text.len());
        self.nodes.push(Node { at: from..from, next: 0 });
        match expr {
            Expr::Number(number) => literal(&mut self.text, *number),
            Expr::String(text) => string(&mut self.text, text),
            Expr::Select(select) => selector(&mut self.text, select, None),
            Expr::Range(range) => match &range.of {
                RangeOf::Select(select) => selector(&mut self.text, select, Some(&range.written)),
                RangeOf::Subquery(subquery) => {
                    self.expr(&subquery.expr);
                    after_subquery(&mut self.text, range, subquery);
                }
            },
            Expr::Negate(inner) => self.around("-", inner, ""),
            Expr::Plus(inner) => self.around("+", inner, ""),
            Expr::Parentheses(inner) => self.around("(", inner, ")"),
            Expr::Binary(binary) => {
                self.expr(&binary.left);
                self.text.push(' ');
                operator(&mut self.text, binary);
                self.text.push(' ');
                self.expr(&binary.right);
            }
            Expr::Aggregate(aggregate) => {
                aggregation(&mut self.text, aggregate);
                self.list(aggregate.param.iter().chain([&aggregate.expr]));
            }
            Expr::Call(call) => {
                self.text.push_str(&call.name);
                self.list(call.args.iter());
            }
        }
        self.nodes[node] = Node { at: from..self.text.len(), next: self.nodes.len() };
    }

    fn around(&mut self, before: &str, inner: &Expr, after: &str) {
        self.text.push_str(before);
        self.expr(inner);
        self.text.push_str(after);
    }

    fn list<'e>(&mut self, all: impl Iterator<Item = &'e Expr>) {
        self.text.push('(');
        for (at, expr) in all.enumerate() {
            self.text.push_str(if at > 0 { ", " } else { "" });
            self.expr(expr);
        }
        self.text.push(')');
    }
}

/// With its modifiers. Those of samples beyond the edges stand behind a range, but behind the time where there is none.
fn selector(out: &mut String, select: &Select, range: Option<&Duration>) {
    let written = &select.written;
    out.push_str(written.name.as_deref().unwrap_or_default());
    let mut matchers: Vec<String> = written.matchers.iter().map(matcher).collect();
    matchers.sort_unstable();
    if !matchers.is_empty() || written.name.is_none() {
        let _ = write!(out, "{{{}}}", matchers.join(","));
    }
    if let Some(range) = range {
        out.push('[');
        whole_duration(out, range);
        out.push(']');
        edges(out, select.edges);
    }
    at(out, &written.modifiers);
    if range.is_none() {
        edges(out, select.edges);
    }
    offset(out, &written.modifiers);
}

fn matcher(matcher: &Matcher) -> String {
    let mut out = String::new();
    name(&mut out, &matcher.name);
    out.push_str(matcher.comparison.text());
    string(&mut out, &matcher.value);
    out
}

fn edges(out: &mut String, edges: Edges) {
    out.push_str(match edges {
        Edges::Plain => "",
        Edges::Anchored => " anchored",
        Edges::Smoothed => " smoothed",
    });
}

fn at(out: &mut String, modifiers: &Modifiers) {
    let _ = match modifiers.at {
        None => Ok(()),
        Some(Bound::Start) => write!(out, " @ start()"),
        Some(Bound::End) => write!(out, " @ end()"),
        // No -0.
        Some(Bound::Seconds(seconds)) if whole_ms(seconds).is_some() => write!(out, " @ {:.3}", seconds + 0.0),
        Some(Bound::Seconds(seconds)) => write!(out, " @ {seconds}"),
    };
}

fn offset(out: &mut String, modifiers: &Modifiers) {
    if let Some(offset) = &modifiers.offset {
        out.push_str(" offset ");
        whole_duration(out, offset);
    }
}

/// One that stands alone has units even if it is written without.
fn whole_duration(out: &mut String, written: &Duration) {
    match written {
        Duration::Number(number) => duration(out, number.value),
        Duration::Calculated(calculated) => calculation(out, calculated),
    }
}

fn part_of_duration(out: &mut String, written: &Duration) {
    match written {
        Duration::Number(number) => literal(out, *number),
        Duration::Calculated(calculated) => calculation(out, calculated),
    }
}

fn calculation(out: &mut String, Calculated { how, left, right, in_parentheses }: &Calculated) {
    out.push_str(if *in_parentheses { "(" } else { "" });
    match (how, left, right) {
        (Calculation::Operator(operator), None, Some(right)) => {
            // A `+` changes nothing.
            out.push_str(operator.text().trim_start_matches('+'));
            part_of_duration(out, right);
        }
        (Calculation::Operator(operator), Some(left), Some(right)) => {
            part_of_duration(out, left);
            let _ = write!(out, " {} ", operator.text());
            part_of_duration(out, right);
        }
        _ => {
            let _ = write!(out, "{}(", how.text());
            for (at, side) in left.iter().chain(right).enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                part_of_duration(out, side);
            }
            out.push(')');
        }
    }
    out.push_str(if *in_parentheses { ")" } else { "" });
}

/// Its range, step and modifiers.
pub(super) fn after_subquery(out: &mut String, range: &Range, subquery: &Subquery) {
    out.push('[');
    whole_duration(out, &range.written);
    out.push(':');
    if let Some(step) = &subquery.written_step {
        whole_duration(out, step);
    }
    out.push(']');
    at(out, &subquery.modifiers);
    offset(out, &subquery.modifiers);
}

/// An operator with what follows it before the right side.
pub(super) fn operator(out: &mut String, binary: &Binary) {
    out.push_str(binary.operator.text());
    out.push_str(if binary.to_bool { " bool" } else { "" });
    let matching = &binary.matching;
    let group = match matching.many {
        Many::Neither => None,
        Many::Left => Some(" group_left "),
        Many::Right => Some(" group_right "),
    };
    if !binary.of_vectors || !matching.on && matching.labels.is_empty() && group.is_none() {
        return;
    }
    out.push_str(if matching.on { " on " } else { " ignoring " });
    names(out, &matching.labels);
    if let Some(group) = group {
        out.push_str(group);
        names(out, &matching.include);
    }
}

/// An aggregation without its arguments.
pub(super) fn aggregation(out: &mut String, aggregate: &Aggregate) {
    out.push_str(aggregate.how.text());
    if aggregate.without || !aggregate.labels.is_empty() {
        out.push_str(if aggregate.without { " without " } else { " by " });
        names(out, &aggregate.labels);
        out.push(' ');
    }
}
