// SPDX-License-Identifier: Apache-2.0
//! Instant selectors: of each series the newest sample of each step, if it is new enough and the series has not ended.

use super::slide::Slide;
use super::{Eval, Matrix, edges, sorted};
use crate::expr::{Edges, Select};
use crate::query::QueryError;
use crate::source::{Chunks, Found, Span};
use crate::value::{Grid, Samples, Series, is_hole, seconds};

impl Eval<'_> {
    /// Series of a selector, in the order of their labels.
    pub(super) fn find(&self, select: &Select, span: Span) -> Result<Vec<Found>, QueryError> {
        let found = self.source.select(&select.matchers, span, self.budget.limits.series)?;
        self.budget.series(found.len())?;
        sorted(found, &self.budget, &|a: &Found, b: &Found| a.labels.cmp(&b.labels))
    }

    pub(super) fn select(&mut self, select: &Select, grid: Grid) -> Result<Matrix, QueryError> {
        match select.edges {
            Edges::Smoothed => self.smoothed(select, grid),
            Edges::Plain | Edges::Anchored => self.newest(select, grid, |_, value| value),
        }
    }

    /// When the samples were taken, s.
    pub(super) fn timestamps(&mut self, select: &Select, grid: Grid) -> Result<Matrix, QueryError> {
        let mut matrix = self.newest(select, grid, |time_ns, _| seconds(time_ns))?;
        matrix.series.iter_mut().for_each(|series| series.drop_name = true);
        Ok(matrix)
    }

    fn newest(&mut self, select: &Select, grid: Grid, of: fn(i64, f64) -> f64) -> Result<Matrix, QueryError> {
        let mut matrix = self.empty()?;
        if grid.count == 0 {
            return Ok(matrix);
        }
        let when = select.when;
        let after_ns = when.of(grid.start_ns).saturating_sub(self.lookback_ns);
        let span = Span { after_ns, until_ns: when.of(grid.last_ns()) };
        // At a fixed time all steps are as the first.
        let steps = if when.at_ns.is_some() { 1 } else { grid.count };
        for Found { key, labels } in self.find(select, span)? {
            let mut values = self.holes(grid);
            let mut newest = Newest { values: &mut values[..steps], next: 0, before: None, of, eval: self };
            newest.take(&mut *self.source.read(key, span)?, |step| when.of(grid.time_ns(step)))?;
            let first = values[0];
            values[steps..].fill(first);
            if values.iter().any(|value| !is_hole(*value)) {
                matrix.push(Series { labels, values, drop_name: false })?;
            }
        }
        Ok(matrix)
    }

    fn smoothed(&mut self, select: &Select, grid: Grid) -> Result<Matrix, QueryError> {
        let mut matrix = self.empty()?;
        if grid.count == 0 {
            return Ok(matrix);
        }
        let (when, lookback_ns) = (select.when, self.lookback_ns);
        let around = |time_ns: i64| Span {
            after_ns: time_ns.saturating_sub(lookback_ns),
            until_ns: time_ns.saturating_add(lookback_ns),
        };
        let span = Span {
            after_ns: around(when.of(grid.start_ns)).after_ns,
            until_ns: around(when.of(grid.last_ns())).until_ns,
        };
        for Found { key, labels } in self.find(select, span)? {
            let mut chunks = self.source.read(key, span)?;
            let mut slide = Slide::new(&self.budget, true)?;
            let mut values = self.holes(grid);
            for (step, value) in values.iter_mut().enumerate() {
                let time_ns = when.of(grid.time_ns(step));
                let view = slide.window(&mut *chunks, around(time_ns))?;
                *value = edges::between(view.times_ns, view.values, time_ns);
            }
            if values.iter().any(|value| !is_hole(*value)) {
                matrix.push(Series { labels, values, drop_name: false })?;
            }
        }
        Ok(matrix)
    }

    /// What a range selector gives at one step.
    pub(super) fn range_of_select(
        &mut self,
        select: &Select,
        range_ns: i64,
        grid: Grid,
    ) -> Result<Vec<Samples>, QueryError> {
        let until_ns = select.when.of(grid.start_ns);
        let inner = Span { after_ns: until_ns.saturating_sub(range_ns), until_ns };
        let span = edges::wider(inner, select.edges, self.lookback_ns);
        let mut all = Vec::new();
        let mut held = self.budget.hold(0)?;
        for Found { key, labels } in self.find(select, span)? {
            let mut chunks = self.source.read(key, span)?;
            let mut slide = Slide::new(&self.budget, true)?;
            let view = slide.window(&mut *chunks, span)?;
            let (times_ns, values) = edges::cut(view.times_ns, view.values, inner, select.edges);
            if !values.is_empty() {
                held.grow(values.len() * 16 + labels.bytes())?;
                all.push(Samples { labels, times_ns, values, drop_name: false });
            }
        }
        Ok(all)
    }
}

/// Finds the newest sample of each step, chunk by chunk.
struct Newest<'a> {
    values: &'a mut [f64],
    /// The first step that has not been looked at.
    next: usize,
    /// The last sample of the chunks before.
    before: Option<(i64, f64)>,
    of: fn(i64, f64) -> f64,
    eval: &'a Eval<'a>,
}

impl Newest<'_> {
    fn take(&mut self, chunks: &mut dyn Chunks, time_of: impl Fn(usize) -> i64) -> Result<(), QueryError> {
        while self.next < self.values.len() {
            let Some(chunk) = chunks.next()? else { break };
            let (times_ns, values) = (chunk.times_ns, chunk.values);
            self.eval.budget.samples(times_ns.len())?;
            let mut at = 0;
            while self.next < self.values.len() {
                let time_ns = time_of(self.next);
                at += gallop(&times_ns[at..], time_ns);
                if at == times_ns.len() {
                    break;
                }
                let newest = if at > 0 { Some((times_ns[at - 1], values[at - 1])) } else { self.before };
                self.put(newest, time_ns);
            }
            self.before = times_ns.last().copied().zip(values.last().copied()).or(self.before);
        }
        while self.next < self.values.len() {
            self.put(self.before, time_of(self.next));
        }
        self.eval.budget.work(self.values.len())
    }

    fn put(&mut self, newest: Option<(i64, f64)>, time_ns: i64) {
        if let Some((own_ns, value)) = newest {
            let is_new = own_ns > time_ns.saturating_sub(self.eval.lookback_ns) && own_ns <= time_ns;
            if is_new && !is_hole(value) {
                self.values[self.next] = (self.of)(own_ns, value);
            }
        }
        self.next += 1;
    }
}

/// How many of the first times are not later than `until_ns`: as quick as few are.
pub(super) fn gallop(times_ns: &[i64], until_ns: i64) -> usize {
    let mut bound = 1;
    while bound <= times_ns.len() && times_ns[bound - 1] <= until_ns {
        bound *= 2;
    }
    let from = bound / 2;
    from + times_ns[from..times_ns.len().min(bound)].partition_point(|time_ns| *time_ns <= until_ns)
}
