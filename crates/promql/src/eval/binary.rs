// SPDX-License-Identifier: Apache-2.0
//! Operators between numbers and vectors.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::matching::{Match, duplicate, matches, presence, twins};
use super::native_binary::Outcome;
use super::{Eval, LABELS, Matrix, Node, invalid};
use crate::error::QueryError;
use crate::expr::{Binary, Many, Matching, Operator};
use crate::labels::Labels;
use crate::value::{Grid, HOLE, Point, Series, is_hole};

/// What an operator makes of two values. A comparison that holds gives the left one, otherwise nothing.
fn function(operator: Operator) -> fn(f64, f64) -> f64 {
    fn keep(value: f64, holds: bool) -> f64 {
        if holds { value } else { HOLE }
    }
    match operator {
        Operator::Add => |a, b| a + b,
        Operator::Subtract => |a, b| a - b,
        Operator::Multiply => |a, b| a * b,
        Operator::Divide => |a, b| a / b,
        Operator::Modulo => |a, b| a % b,
        Operator::Power => f64::powf,
        Operator::Atan2 => f64::atan2,
        Operator::Equal => |a, b| keep(a, a == b),
        Operator::NotEqual => |a, b| keep(a, a != b),
        Operator::Greater => |a, b| keep(a, a > b),
        Operator::Less => |a, b| keep(a, a < b),
        Operator::GreaterOrEqual => |a, b| keep(a, a >= b),
        Operator::LessOrEqual => |a, b| keep(a, a <= b),
        // Floats have nothing to trim.
        Operator::TrimUpper | Operator::TrimLower | Operator::And | Operator::Or | Operator::Unless => |_, _| HOLE,
    }
}

fn holds(value: f64) -> f64 {
    if is_hole(value) { 0.0 } else { 1.0 }
}

fn is_trim(binary: &Binary) -> bool {
    matches!(binary.operator, Operator::TrimUpper | Operator::TrimLower)
}

/// Whether values stay what they are: what they are called holds on.
fn is_filter(binary: &Binary) -> bool {
    binary.operator.is_comparison() && !binary.to_bool || is_trim(binary)
}

impl Eval<'_> {
    pub(super) fn binary(&mut self, binary: &Binary, grid: Grid) -> Result<Node, QueryError> {
        let left = self.eval(&binary.left, grid)?;
        let right = self.eval(&binary.right, grid)?;
        let operator = binary.operator;
        let of = function(operator);
        Ok(match (left, right) {
            (Node::Scalar(_), Node::Scalar(_)) if is_trim(binary) => {
                return invalid(format!("operator {:?} not allowed for Scalar operations", operator.text()));
            }
            (Node::Scalar(left), Node::Scalar(right)) => {
                let is_comparison = operator.is_comparison();
                let result = |value: f64| if is_comparison { holds(value) } else { value };
                Node::Scalar(left.map(|step, value| result(of(value, right[step]))))
            }
            (Node::Matrix(left), Node::Scalar(right)) => {
                let natives = |step: usize, own: Point| self.native_outcome(binary, &own, &Point::Float(right[step]));
                Node::Matrix(self.with_scalar(left, binary, |step, value| of(value, right[step]), natives)?)
            }
            (Node::Scalar(left), Node::Matrix(right)) => {
                // Whichever side it is on, a comparison leaves the vector's value.
                let kept =
                    |result: f64, value| if operator.is_comparison() && !is_hole(result) { value } else { result };
                let natives = |step: usize, own: Point| self.native_outcome(binary, &Point::Float(left[step]), &own);
                let floats = |step: usize, value| kept(of(left[step], value), value);
                Node::Matrix(self.with_scalar(right, binary, floats, natives)?)
            }
            (Node::Matrix(left), Node::Matrix(right)) => {
                let matrix = match operator {
                    operator if operator.is_set() => self.set(binary, left, right, grid)?,
                    _ => self.vectors(binary, of, [left, right], grid)?,
                };
                Node::Matrix(matrix.join(&self.budget)?)
            }
            _ => return invalid("binary expression must contain only scalar and instant vector types"),
        })
    }

    fn with_scalar(
        &self,
        mut matrix: Matrix,
        binary: &Binary,
        of: impl Fn(usize, f64) -> f64,
        natives: impl Fn(usize, Point) -> Outcome,
    ) -> Result<Matrix, QueryError> {
        for series in &mut matrix.series {
            if is_trim(binary) && series.values.iter().any(|value| !is_hole(*value)) {
                self.notes.mixed_types(["float"; 2], binary.operator.text(), binary.at);
            }
            self.budget.each(&mut series.values, |step, value| {
                if !is_hole(*value) {
                    let result = of(step, *value);
                    *value = if binary.to_bool { holds(result) } else { result };
                }
            })?;
            for step in 0..series.histograms.len() {
                if let Some(own) = series.histogram(step).cloned() {
                    self.budget.work(own.bytes() / 16)?;
                    series.put(step, natives(step, Point::Histogram(own)).point(binary.to_bool));
                }
            }
        }
        let matrix = matrix.compact(&self.budget)?;
        if is_filter(binary) { Ok(matrix) } else { self.unnamed(matrix) }
    }

    fn set(&self, binary: &Binary, mut left: Matrix, mut right: Matrix, grid: Grid) -> Result<Matrix, QueryError> {
        let budget = &self.budget;
        let all = matches(&binary.matching, &left, &right, budget)?;
        for Match { left: lefts, right: rights, .. } in all.matches {
            // Of `or` the right side is masked, where the left one is there.
            let (mask, masked, side, keep) = match binary.operator {
                Operator::Or => (presence(&left, lefts, grid.count, budget)?, rights, &mut right, false),
                Operator::And => (presence(&right, rights, grid.count, budget)?, lefts, &mut left, true),
                _ => (presence(&right, rights, grid.count, budget)?, lefts, &mut left, false),
            };
            for member in masked {
                let Series { values, histograms, .. } = &mut side.series[member];
                budget.each_with(values, &mask, |value, present| {
                    if present != keep {
                        *value = HOLE;
                    }
                })?;
                budget.each_with(histograms, &mask, |histogram, present| {
                    if present != keep {
                        *histogram = None;
                    }
                })?;
            }
        }
        if binary.operator == Operator::Or {
            left.series.append(&mut right.series);
            left.held.absorb(&mut right.held);
        }
        left.compact(budget)
    }

    fn vectors(
        &self,
        binary: &Binary,
        of: fn(f64, f64) -> f64,
        [left, right]: [Matrix; 2],
        grid: Grid,
    ) -> Result<Matrix, QueryError> {
        let matching = &binary.matching;
        let budget = &self.budget;
        let all = matches(matching, &left, &right, budget)?;
        let is_swapped = matching.many == Many::Right;
        let (many, one, side) = if is_swapped { (&right, &left, "left") } else { (&left, &right, "right") };
        // Without anything on the other side nothing is matched.
        let mut any: Option<Vec<bool>> = None;
        for own in &all.matches {
            let [_, ones] = sides(own, is_swapped);
            if ones.len() > 1 {
                let any = match &mut any {
                    Some(any) => any,
                    None => any.insert(presence(many, 0..many.series.len(), grid.count, budget)?),
                };
                if let Some(found) = twins(one, ones, any, budget)? {
                    return Err(duplicate(own, one, found, side));
                }
            }
        }
        let mut result = self.empty()?;
        for own in &all.matches {
            let [manys, ones] = sides(own, is_swapped);
            if manys.is_empty() || ones.is_empty() {
                continue;
            }
            if matching.many == Many::Neither && manys.len() > 1 {
                let there = presence(one, ones.iter().copied(), grid.count, budget)?;
                if twins(many, manys, &there, budget)?.is_some() {
                    return invalid(
                        "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
                    );
                }
            }
            let mut seen: HashMap<Labels, Vec<bool>> = HashMap::new();
            let mut seen_held = budget.hold(0)?;
            for (a, b) in manys.iter().flat_map(|a| ones.iter().map(move |b| (&many.series[*a], &one.series[*b]))) {
                budget.work(LABELS + grid.count)?;
                let labels = labels(binary, self.options.delays_names, &a.labels, &b.labels);
                if matching.many != Many::Neither {
                    let seen = match seen.entry(labels.clone()) {
                        Entry::Occupied(seen) => seen.into_mut(),
                        Entry::Vacant(free) => {
                            seen_held.grow(labels.bytes() + size_of::<(Labels, Vec<bool>)>() + grid.count)?;
                            free.insert(vec![false; grid.count])
                        }
                    };
                    for (step, seen) in seen.iter_mut().enumerate() {
                        let is_matched = a.has(step) && b.has(step);
                        if is_matched && *seen {
                            return invalid("multiple matches for labels: grouping labels must ensure unique matches");
                        }
                        *seen |= is_matched;
                    }
                }
                if !a.histograms.is_empty() || !b.histograms.is_empty() || is_trim(binary) {
                    let series = self.natives_of(binary, of, if is_swapped { [b, a] } else { [a, b] }, labels);
                    if !series.is_empty() {
                        result.push(series)?;
                        budget.series(result.series.len())?;
                    }
                    continue;
                }
                let pairs = a.values.iter().zip(&b.values).map(|(a, b)| match () {
                    () if is_hole(*a) || is_hole(*b) => HOLE,
                    () if binary.to_bool => holds(if is_swapped { of(*b, *a) } else { of(*a, *b) }),
                    () => {
                        if is_swapped {
                            of(*b, *a)
                        } else {
                            of(*a, *b)
                        }
                    }
                });
                let values: Vec<f64> = pairs.collect();
                if values.iter().any(|value| !is_hole(*value)) {
                    result.push(self.flagged(binary, Series::floats(labels, values)))?;
                    budget.series(result.series.len())?;
                }
            }
        }
        Ok(result)
    }
}

impl Eval<'_> {
    /// Of two series that have histograms.
    fn natives_of(&self, binary: &Binary, of: fn(f64, f64) -> f64, sides: [&Series; 2], labels: Labels) -> Series {
        let [left, right] = sides;
        let mut result = Series::floats(labels, vec![HOLE; left.values.len()]);
        for step in 0..left.values.len() {
            let (Some(left), Some(right)) = (left.point(step), right.point(step)) else { continue };
            let outcome = match (&left, &right) {
                (Point::Float(left), Point::Float(right)) if !is_trim(binary) => match of(*left, *right) {
                    value if is_hole(value) => Outcome::No,
                    value => Outcome::Is(Point::Float(value)),
                },
                _ => self.native_outcome(binary, &left, &right),
            };
            result.put(step, outcome.point(binary.to_bool));
        }
        self.flagged(binary, result)
    }

    /// A result of `bool` says nothing of its name.
    fn flagged(&self, binary: &Binary, series: Series) -> Series {
        Series { drops_name: self.options.delays_names && binary.to_bool, ..series }
    }
}

/// Series of the side that may have many, and of the other one.
fn sides(own: &Match, is_swapped: bool) -> [&[usize]; 2] {
    if is_swapped { [&own.right, &own.left] } else { [&own.left, &own.right] }
}

/// What the result of two series is called, of which the first is on the side that may have many.
fn labels(binary: &Binary, delays_names: bool, many: &Labels, one: &Labels) -> Labels {
    let Matching { on, labels: matched, many: side, include } = &binary.matching;
    let keeps_name = is_filter(binary) || delays_names && binary.to_bool;
    let mut labels = if keeps_name { many.clone() } else { many.without_metadata() };
    if *side == Many::Neither {
        labels = if *on { labels.keep(matched) } else { labels.without(matched) };
    }
    for name in include {
        labels = labels.with(name, one.get(name));
    }
    labels
}
