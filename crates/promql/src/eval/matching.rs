// SPDX-License-Identifier: Apache-2.0
//! Which series of two sides belong together: those that agree in the labels that are matched.

use std::collections::HashMap;

use super::{LABELS, Matrix};
use crate::error::QueryError;
use crate::expr::Matching;
use crate::labels::Labels;
use crate::limits::{Budget, Held};
use crate::value::{Series, is_hole};

/// Series of both sides that agree.
pub(super) struct Match {
    /// In what.
    pub(super) labels: Labels,
    pub(super) left: Vec<usize>,
    pub(super) right: Vec<usize>,
}

/// All series of both sides, by what they agree in. Their memory counts as long as they live.
pub(super) struct Matches {
    pub(super) matches: Vec<Match>,
    _held: Held,
}

pub(super) fn matches(
    matching: &Matching,
    left: &Matrix,
    right: &Matrix,
    budget: &Budget,
) -> Result<Matches, QueryError> {
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut matches: Vec<Match> = Vec::new();
    let mut held = budget.hold((left.series.len() + right.series.len()) * size_of::<usize>())?;
    for (is_left, side) in [(true, left), (false, right)] {
        for (member, series) in side.series.iter().enumerate() {
            budget.work(LABELS)?;
            let labels = match matching.on {
                true => series.labels.keep(&matching.labels),
                false => series.labels.without_metadata_and(&matching.labels),
            };
            let at = *places.entry(labels.clone()).or_insert(matches.len());
            if at == matches.len() {
                held.grow(labels.bytes() + size_of::<(Labels, usize)>() + size_of::<Match>())?;
                matches.push(Match { labels, left: Vec::new(), right: Vec::new() });
            }
            let own = &mut matches[at];
            if is_left { own.left.push(member) } else { own.right.push(member) }
        }
    }
    Ok(Matches { matches, _held: held })
}

/// At which steps one of these series has a value.
pub(super) fn presence(
    matrix: &Matrix,
    members: impl IntoIterator<Item = usize>,
    steps: usize,
    budget: &Budget,
) -> Result<Vec<bool>, QueryError> {
    let mut present = vec![false; steps];
    for member in members {
        let Series { values, histograms, .. } = &matrix.series[member];
        budget.each_with(&mut present, values, |present, value| *present |= !is_hole(value))?;
        present.iter_mut().zip(histograms).for_each(|(present, histogram)| *present |= histogram.is_some());
    }
    Ok(present)
}

/// The first two of these series that have a value at the same step, one of `steps`.
pub(super) fn twins(
    matrix: &Matrix,
    members: &[usize],
    steps: &[bool],
    budget: &Budget,
) -> Result<Option<(usize, usize)>, QueryError> {
    if members.len() < 2 {
        return Ok(None);
    }
    for step in (0..steps.len()).filter(|step| steps[*step]) {
        budget.work(members.len())?;
        let mut there = members.iter().copied().filter(|member| matrix.series[*member].has(step));
        if let (Some(one), Some(other)) = (there.next(), there.next()) {
            return Ok(Some((one, other)));
        }
    }
    Ok(None)
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
