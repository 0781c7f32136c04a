// SPDX-License-Identifier: Apache-2.0
//! Operators between numbers and vectors.

use std::collections::HashMap;

use super::matching::{Match, duplicate, matches, presence, twins};
use super::{Eval, Matrix, Node, invalid, join};
use crate::expr::{Binary, Many, Matching, Operator};
use crate::labels::Labels;
use crate::query::QueryError;
use crate::value::{Grid, HOLE, Series, is_hole};

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
        Operator::And | Operator::Or | Operator::Unless => |_, _| HOLE,
    }
}

fn holds(value: f64) -> f64 {
    if is_hole(value) { 0.0 } else { 1.0 }
}

impl Eval<'_> {
    pub(super) fn binary(&mut self, binary: &Binary, grid: Grid) -> Result<Node, QueryError> {
        let left = self.eval(&binary.left, grid)?;
        let right = self.eval(&binary.right, grid)?;
        let operator = binary.operator;
        let of = function(operator);
        Ok(match (left, right) {
            (Node::Scalar(left), Node::Scalar(right)) => {
                let is_comparison = operator.is_comparison();
                let result = |value: f64| if is_comparison { holds(value) } else { value };
                Node::Scalar(left.map(|step, value| result(of(value, right[step]))))
            }
            (Node::Matrix(left), Node::Scalar(right)) => {
                Node::Matrix(self.with_scalar(left, binary, |step, value| of(value, right[step]))?)
            }
            (Node::Scalar(left), Node::Matrix(right)) => {
                // Whichever side it is on, a comparison leaves the vector's value.
                let kept =
                    |result: f64, value| if operator.is_comparison() && !is_hole(result) { value } else { result };
                Node::Matrix(self.with_scalar(right, binary, |step, value| kept(of(left[step], value), value))?)
            }
            (Node::Matrix(left), Node::Matrix(right)) => {
                let mut matrix = match operator {
                    Operator::And | Operator::Or | Operator::Unless => self.set(binary, left, right, grid)?,
                    _ => self.vectors(binary, of, [left, right], grid)?,
                };
                if grid.count > 1 {
                    matrix.series = join(matrix.series, &self.budget)?;
                }
                Node::Matrix(matrix)
            }
            _ => return invalid("binary expression must contain only scalar and instant vector types"),
        })
    }

    fn with_scalar(
        &self,
        mut matrix: Matrix,
        binary: &Binary,
        of: impl Fn(usize, f64) -> f64,
    ) -> Result<Matrix, QueryError> {
        for series in &mut matrix.series {
            self.budget.work(series.values.len())?;
            for (step, value) in series.values.iter_mut().enumerate().filter(|(_, value)| !is_hole(**value)) {
                let result = of(step, *value);
                *value = if binary.to_bool { holds(result) } else { result };
            }
            series.drop_name |= binary.to_bool || !binary.operator.is_comparison();
        }
        Ok(matrix.compact())
    }

    fn set(&self, binary: &Binary, mut left: Matrix, mut right: Matrix, grid: Grid) -> Result<Matrix, QueryError> {
        let all = matches(&binary.matching, &left, &right, &self.budget)?;
        let is_or = binary.operator == Operator::Or;
        for Match { left: lefts, right: rights, .. } in all {
            self.budget.work(grid.count * (lefts.len() + rights.len()))?;
            // Of `or` the right side is masked, where the left one is there.
            let (mask, masked, side, keep) = match binary.operator {
                Operator::Or => (presence(&left, lefts.into_iter(), grid.count), rights, &mut right, false),
                Operator::And => (presence(&right, rights.into_iter(), grid.count), lefts, &mut left, true),
                _ => (presence(&right, rights.into_iter(), grid.count), lefts, &mut left, false),
            };
            for member in masked {
                let values = side.series[member].values.iter_mut().zip(&mask);
                values.filter(|(_, present)| **present != keep).for_each(|(value, _)| *value = HOLE);
            }
        }
        if is_or {
            left.series.append(&mut right.series);
            left.held.grow(right.held.bytes())?;
        }
        Ok(left.compact())
    }

    fn vectors(
        &self,
        binary: &Binary,
        of: fn(f64, f64) -> f64,
        [left, right]: [Matrix; 2],
        grid: Grid,
    ) -> Result<Matrix, QueryError> {
        let matching = &binary.matching;
        let all = matches(matching, &left, &right, &self.budget)?;
        let is_swapped = matching.many == Many::Right;
        let (many, one, side) = if is_swapped { (&right, &left, "left") } else { (&left, &right, "right") };
        let sides = |own: &Match| {
            if is_swapped { [own.right.clone(), own.left.clone()] } else { [own.left.clone(), own.right.clone()] }
        };
        // Without anything on the other side nothing is matched.
        let mut any: Option<Vec<bool>> = None;
        for own in &all {
            let [_, ones] = sides(own);
            if ones.len() > 1 {
                self.budget.work(grid.count * (ones.len() + many.series.len()))?;
                let any = any.get_or_insert_with(|| presence(many, 0..many.series.len(), grid.count));
                if let Some(found) = twins(one, &ones, |step| any[step]) {
                    return Err(duplicate(own, one, found, side));
                }
            }
        }
        let mut result = self.empty()?;
        for own in &all {
            let [manys, ones] = sides(own);
            if manys.is_empty() || ones.is_empty() {
                continue;
            }
            if matching.many == Many::Neither && manys.len() > 1 {
                let there = presence(one, ones.iter().copied(), grid.count);
                if twins(many, &manys, |step| there[step]).is_some() {
                    return invalid(
                        "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
                    );
                }
            }
            let mut seen: HashMap<Labels, Vec<bool>> = HashMap::new();
            for (a, b) in manys.iter().flat_map(|a| ones.iter().map(move |b| (&many.series[*a], &one.series[*b]))) {
                self.budget.work(grid.count)?;
                let labels = labels(binary, &a.labels, &b.labels);
                if matching.many != Many::Neither {
                    let seen = seen.entry(labels.clone()).or_insert_with(|| vec![false; grid.count]);
                    for (seen, (a, b)) in seen.iter_mut().zip(a.values.iter().zip(&b.values)) {
                        let is_matched = !is_hole(*a) && !is_hole(*b);
                        if is_matched && *seen {
                            return invalid("multiple matches for labels: grouping labels must ensure unique matches");
                        }
                        *seen |= is_matched;
                    }
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
                    result.push(Series { labels, values, drop_name: binary.to_bool })?;
                    self.budget.series(result.series.len())?;
                }
            }
        }
        Ok(result)
    }
}

/// What the result of two series is called, of which the first is on the side that may have many.
fn labels(binary: &Binary, many: &Labels, one: &Labels) -> Labels {
    let Matching { on, labels: matched, many: side, include } = &binary.matching;
    let mut labels = if binary.operator.is_comparison() { many.clone() } else { many.without_metadata() };
    if *side == Many::Neither {
        labels = if *on { labels.keep(matched) } else { labels.without(matched) };
    }
    for name in include {
        labels = labels.with(name, one.get(name));
    }
    labels
}
