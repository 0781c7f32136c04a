// SPDX-License-Identifier: Apache-2.0
//! Instant selectors: of each series the newest sample of each step, if it is new enough and the series has not ended.

use std::sync::Arc;

use super::slide::{Slide, gallop};
use super::{Eval, Matrix, Node, edges, invalid, native_range, sorted};
use crate::error::QueryError;
use crate::expr::{Edges, Select};
use crate::histogram::Histogram;
use crate::limits::SERIES;
use crate::source::{Chunks, Found, Newest, Span, Windows};
use crate::value::{Grid, Point, Samples, Series, is_hole, seconds};

impl Eval<'_> {
    /// Series of a selector, in the order in which they are to be read.
    pub(super) fn find(&self, select: &Select, span: Span) -> Result<Vec<Found>, QueryError> {
        let found = self.source.select(&select.matchers, span, &self.budget)?;
        self.budget.series(found.len())?;
        sorted(found, &self.budget, &|a: &Found, b: &Found| a.key.cmp(&b.key))
    }

    pub(super) fn select(&mut self, select: &Select, grid: Grid) -> Result<Matrix, QueryError> {
        match select.edges {
            Edges::Smoothed => self.smoothed(select, grid),
            Edges::Plain | Edges::Anchored => self.newest(select, grid, |_, value| value, true),
        }
    }

    /// When the samples were taken, s.
    pub(super) fn timestamps(&mut self, select: &Select, grid: Grid) -> Result<Matrix, QueryError> {
        let matrix = self.newest(select, grid, |time_ns, _| seconds(time_ns), false)?;
        self.unnamed(matrix)
    }

    /// What `of` makes of each sample, or where `is_native`, histograms as they are.
    fn newest(
        &mut self,
        select: &Select,
        grid: Grid,
        of: fn(i64, f64) -> f64,
        is_native: bool,
    ) -> Result<Matrix, QueryError> {
        if grid.count == 0 {
            return self.empty();
        }
        let time_of = |step| select.when.of(grid.time_ns(step));
        let lookback_ns = self.options.lookback_ns;
        let span_of =
            |first, last| Span { after_ns: i64::saturating_sub(time_of(first), lookback_ns), until_ns: time_of(last) };
        let span = span_of(0, grid.count - 1);
        // At a fixed time all steps are as the first.
        let steps = if select.when.at_ns.is_some() { 1 } else { grid.count };
        let found = self.find(select, span)?;
        self.each_found(found, grid, &|eval, matrix, Found { key, labels }| {
            let mut series = Series::floats(labels, eval.holes(grid));
            let is_sparse = steps == 1 || eval.source.prefers_newest(key, span, grid.step_ns)?;
            let stride = if is_sparse { 1 } else { steps };
            let (next, before, before_native) = (0, None, None);
            let mut steps_of = Steps { series: &mut series, steps, next, before, before_native, of, is_native, eval };
            if !is_sparse {
                let (first_end_ns, step_ns, range_ns) = (time_of(0), grid.step_ns, lookback_ns);
                let windows = Windows { first_end_ns, step_ns, count: steps, range_ns, is_counter: false };
                let mut put = |step: usize, own_ns, value| {
                    steps_of.next = step;
                    steps_of.put(Some((own_ns, value)), None, time_of(step));
                };
                if eval.source.last_samples(key, windows, &eval.budget, &mut put)? {
                    eval.budget.work(SERIES + steps)?;
                    steps_of.next = steps;
                }
            }
            while steps_of.next < steps {
                eval.budget.work(SERIES)?;
                steps_of.steps = steps_of.next + stride;
                let span = span_of(steps_of.next, steps_of.steps - 1);
                match if is_sparse { eval.source.newest(key, span)? } else { Newest::Unknown } {
                    Newest::Unknown => steps_of.take(&mut *eval.source.read(key, span)?, time_of)?,
                    Newest::Nothing => steps_of.put(None, None, span.until_ns),
                    Newest::Sample { time_ns, value } => {
                        eval.budget.samples(1)?;
                        steps_of.put(Some((time_ns, value)), None, span.until_ns);
                    }
                }
            }
            let first = series.values[0];
            series.values[steps..].fill(first);
            if let Some(first) = series.histograms.first().cloned() {
                series.histograms[steps..].fill(first);
            }
            matrix.push_if_any(series)
        })
    }

    fn smoothed(&mut self, select: &Select, grid: Grid) -> Result<Matrix, QueryError> {
        if grid.count == 0 {
            return self.empty();
        }
        let (when, lookback_ns) = (select.when, self.options.lookback_ns);
        let around = |time_ns: i64| Span {
            after_ns: time_ns.saturating_sub(lookback_ns),
            until_ns: time_ns.saturating_add(lookback_ns),
        };
        let span = Span {
            after_ns: around(when.of(grid.start_ns)).after_ns,
            until_ns: around(when.of(grid.last_ns())).until_ns,
        };
        let found = self.find(select, span)?;
        self.each_found(found, grid, &|eval, matrix, Found { key, labels }| {
            let mut chunks = eval.source.read(key, span)?;
            let mut slide = Slide::new(eval, true)?;
            let mut series = Series::floats(labels, eval.holes(grid));
            for step in 0..grid.count {
                let time_ns = when.of(grid.time_ns(step));
                let view = slide.window(&mut *chunks, around(time_ns))?;
                if view.histograms.is_empty() {
                    series.values[step] = edges::between(view.times_ns, view.values, time_ns);
                } else {
                    let told = eval.told(series.labels.name(), select.at);
                    let histogram = native_range::between(&view, time_ns, told);
                    series.put(step, histogram.map(Point::from));
                }
            }
            matrix.push_if_any(series)
        })
    }

    /// What a range selector gives at one step.
    pub(super) fn range_of_select(&mut self, select: &Select, range_ns: i64, grid: Grid) -> Result<Node, QueryError> {
        let until_ns = select.when.of(grid.start_ns);
        let inner = Span { after_ns: until_ns.saturating_sub(range_ns), until_ns };
        let span = edges::wider(inner, select.edges, self.options.lookback_ns);
        let mut all = Vec::new();
        let mut held = self.budget.hold(0)?;
        for Found { key, labels } in self.find(select, span)? {
            let mut chunks = self.source.read(key, span)?;
            let mut slide = Slide::new(self, true)?;
            let view = slide.window(&mut *chunks, span)?;
            // Two more at most: one at each edge.
            let natives: usize = view.histograms.iter().map(|one| one.bytes() + 16).sum();
            held.grow((view.values.len() + 2) * 16 + natives + labels.bytes())?;
            if !view.histograms.is_empty() && select.edges != Edges::Plain {
                let kind = format!("{:?}", select.edges).to_lowercase();
                return invalid(format!("{kind} modifier is not supported with histograms"));
            }
            let histograms = view.native_times_ns.iter().copied().zip(view.histograms.iter().cloned()).collect();
            let (times_ns, values) = edges::cut(view.times_ns, view.values, inner, select.edges);
            if !values.is_empty() || !view.histograms.is_empty() {
                all.push(Samples { labels, times_ns, values, histograms });
            }
        }
        Ok(Node::Samples(all, held))
    }
}

/// Finds the newest sample of each step, chunk by chunk.
struct Steps<'a> {
    series: &'a mut Series,
    /// Those before this one are looked at.
    steps: usize,
    /// The first step that has not been looked at.
    next: usize,
    /// The last sample of the chunks before.
    before: Option<(i64, f64)>,
    before_native: Option<Arc<Histogram>>,
    of: fn(i64, f64) -> f64,
    is_native: bool,
    eval: &'a Eval<'a>,
}

impl Steps<'_> {
    fn take(&mut self, chunks: &mut dyn Chunks, time_of: impl Fn(usize) -> i64) -> Result<(), QueryError> {
        (self.before, self.before_native) = (None, None);
        while self.next < self.steps {
            let Some(chunk) = chunks.next()? else { break };
            let (times_ns, values) = (chunk.times_ns, chunk.values);
            let native = |at: usize| chunk.histograms.get(at).and_then(Option::as_ref);
            self.eval.budget.samples(times_ns.len())?;
            let mut at = 0;
            while self.next < self.steps {
                let time_ns = time_of(self.next);
                at += gallop(&times_ns[at..], time_ns);
                if at == times_ns.len() {
                    break;
                }
                if at > 0 {
                    self.put(Some((times_ns[at - 1], values[at - 1])), native(at - 1).cloned(), time_ns);
                } else {
                    self.put(self.before, self.before_native.clone(), time_ns);
                }
            }
            if let (Some(time_ns), Some(value)) = (times_ns.last(), values.last()) {
                self.before = Some((*time_ns, *value));
                self.before_native = native(times_ns.len() - 1).cloned();
            }
        }
        while self.next < self.steps {
            self.put(self.before, self.before_native.clone(), time_of(self.next));
        }
        self.eval.budget.work(self.steps)
    }

    fn put(&mut self, newest: Option<(i64, f64)>, native: Option<Arc<Histogram>>, time_ns: i64) {
        if let Some((own_ns, value)) = newest {
            let is_new = own_ns > time_ns.saturating_sub(self.eval.options.lookback_ns) && own_ns <= time_ns;
            match native {
                Some(native) if is_new && self.is_native => {
                    self.series.put(self.next, Some(Point::Histogram(native)));
                }
                native if is_new && (native.is_some() || !is_hole(value)) => {
                    self.series.values[self.next] = (self.of)(own_ns, value);
                }
                _ => {}
            }
        }
        self.next += 1;
    }
}
