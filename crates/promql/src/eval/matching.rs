// SPDX-License-Identifier: Apache-2.0
//! Which series of two sides belong together: those that agree in the labels that are matched.

use std::collections::HashMap;

use super::{LABELS, Matrix};
use crate::expr::Matching;
use crate::labels::Labels;
use crate::limits::Budget;
use crate::query::QueryError;
use crate::value::is_hole;

/// Series of both sides that agree.
pub(super) struct Match {
    /// In what.
    pub(super) labels: Labels,
    pub(super) left: Vec<usize>,
    pub(super) right: Vec<usize>,
}

/// All series of both sides, by what they agree in.
pub(super) fn matches(
    matching: &Matching,
    left: &Matrix,
    right: &Matrix,
    budget: &Budget,
) -> Result<Vec<Match>, QueryError> {
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut matches: Vec<Match> = Vec::new();
    for (is_left, side) in [(true, left), (false, right)] {
        for (member, series) in side.series.iter().enumerate() {
            budget.work(LABELS)?;
            let labels = match matching.on {
                true => series.labels.keep(&matching.labels),
                false => series.labels.without_metadata_and(&matching.labels),
            };
            let at = *places.entry(labels.clone()).or_insert(matches.len());
            if at == matches.len() {
                matches.push(Match { labels, left: Vec::new(), right: Vec::new() });
            }
            let own = &mut matches[at];
            if is_left { own.left.push(member) } else { own.right.push(member) }
        }
    }
    Ok(matches)
}

/// At which steps one of these series has a value.
pub(super) fn presence(matrix: &Matrix, members: impl Iterator<Item = usize>, steps: usize) -> Vec<bool> {
    let mut present = vec![false; steps];
    for member in members {
        let there = present.iter_mut().zip(&matrix.series[member].values);
        there.for_each(|(present, value)| *present |= !is_hole(*value));
    }
    present
}

/// The first two of these series that have a value at the same step, one for which `counts`.
pub(super) fn twins(matrix: &Matrix, members: &[usize], counts: impl Fn(usize) -> bool) -> Option<(usize, usize)> {
    let steps = matrix.series.first().map_or(0, |series| series.values.len());
    if members.len() < 2 {
        return None;
    }
    (0..steps).filter(|step| counts(*step)).find_map(|step| {
        let mut there = members.iter().filter(|member| !is_hole(matrix.series[**member].values[step]));
        Some((*there.next()?, *there.next()?))
    })
}

pub(super) fn duplicate(own: &Match, matrix: &Matrix, twins: (usize, usize), side: &str) -> QueryError {
    let mut texts = [twins.0, twins.1].map(|member| matrix.series[member].labels.to_string());
    texts.sort();
    let [one, other] = texts;
    QueryError::Invalid(format!(
        "found duplicate series for the match group {} on the {side} hand-side of the operation: [{one}, {other}]\
         ;many-to-many matching not allowed: matching labels must be unique on one side",
        own.labels
    ))
}
