// SPDX-License-Identifier: Apache-2.0
//! Functions that change labels only.

use super::args::{arg, text};
use super::{Eval, Matrix, invalid};
use crate::error::QueryError;
use crate::expr::{Call, Expr, RangeOf};
use crate::labels::{Comparison, Labels, NAME, is_metadata};
use crate::limits::Budget;
use crate::pattern::{translated, whole};
use crate::value::Grid;

/// Bytes of a label's value that is made here at most.
const MAX_VALUE_BYTES: usize = 64 << 10;

impl Eval<'_> {
    pub(super) fn label_replace(&mut self, call: &Call, grid: Grid) -> Result<Matrix, QueryError> {
        let [target, replacement, source, pattern] = [1, 2, 3, 4].map(|at| text(call, at));
        let (target, replacement, source, pattern) = (target?, replacement?, source?, pattern?);
        let Ok(regex) = whole(&translated(pattern)) else {
            return invalid(format!("invalid regular expression in label_replace(): {pattern}"));
        };
        if target.is_empty() {
            return invalid("invalid destination label name in label_replace(): ");
        }
        let groups = replacement.matches('$').count();
        self.relabel(call, grid, target, |labels, budget| {
            let from = labels.get(source);
            budget.work(from.len() + replacement.len())?;
            let Some(captures) = regex.captures(from) else { return Ok(None) };
            // No group is longer than the whole.
            let _held = budget.hold(groups.saturating_mul(from.len()).saturating_add(replacement.len()))?;
            let mut value = String::new();
            captures.expand(replacement, &mut value);
            Ok(Some(value))
        })
    }

    pub(super) fn label_join(&mut self, call: &Call, grid: Grid) -> Result<Matrix, QueryError> {
        let (target, separator) = (text(call, 1)?, text(call, 2)?);
        let sources: Result<Vec<&str>, QueryError> = (3..call.args.len()).map(|at| text(call, at)).collect();
        let sources = sources?;
        for (name, what) in sources.iter().map(|source| (*source, "source")).chain([(target, "destination")]) {
            if name.is_empty() {
                return invalid(format!("invalid {what} label name in label_join(): {name}"));
            }
        }
        self.relabel(call, grid, target, |labels, budget| {
            let texts: Vec<&str> = sources.iter().map(|source| labels.get(source)).collect();
            let len = texts.iter().map(|text| text.len() + separator.len()).sum();
            budget.work(len)?;
            let _held = budget.hold(len)?;
            Ok(Some(texts.join(separator)))
        })
    }

    fn relabel(
        &mut self,
        call: &Call,
        grid: Grid,
        target: &str,
        value_of: impl Fn(&Labels, &Budget) -> Result<Option<String>, QueryError>,
    ) -> Result<Matrix, QueryError> {
        let mut matrix = self.matrix(arg(call, 0)?, grid)?;
        for series in &mut matrix.series {
            // Expressions may be slow.
            self.budget.work(1_000)?;
            let Some(value) = value_of(&series.labels, &self.budget)? else { continue };
            if value.len() > MAX_VALUE_BYTES {
                return invalid(format!("{}() makes a value longer than {MAX_VALUE_BYTES} bytes", call.name));
            }
            series.labels = series.labels.with(target, &value);
            series.drops_name &= target != NAME;
            matrix.held.grow(series.labels.bytes())?;
        }
        matrix.join(&self.budget)
    }
}

/// Labels that a series must have had that a selector does not find.
pub(super) fn absent(expr: &Expr) -> Labels {
    let matchers = match expr {
        Expr::Select(select) => &select.matchers,
        Expr::Range(range) => match &range.of {
            RangeOf::Select(select) => &select.matchers,
            RangeOf::Subquery(_) => return Labels::default(),
        },
        _ => return Labels::default(),
    };
    let mut labels = Labels::default();
    let mut seen: Vec<&str> = Vec::new();
    for matcher in matchers.iter().filter(|matcher| !is_metadata(&matcher.name)) {
        let is_only = matcher.comparison == Comparison::Equal && !seen.contains(&&*matcher.name);
        labels = labels.with(&matcher.name, if is_only { &matcher.value } else { "" });
        if is_only {
            seen.push(&matcher.name);
        }
    }
    labels
}
