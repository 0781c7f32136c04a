// SPDX-License-Identifier: Apache-2.0
//! Windows over the samples of one series, each later than the one before. A sample is copied once, and looked at anew
//! only by functions that must.

use super::select::gallop;
use crate::limits::{Budget, Held};
use crate::query::QueryError;
use crate::source::{Chunk, Chunks, Span};
use crate::value::is_hole;

/// What is no longer in a window is thrown away when it is so much and half of all.
const MIN_DROP: usize = 1 << 10;

pub(super) struct Slide<'a> {
    budget: &'a Budget,
    /// Whether they are samples of the source, of which a query may read so many.
    is_source: bool,
    held: Held,
    held_samples: usize,
    times_ns: Vec<i64>,
    values: Vec<f64>,
    /// Samples thrown away before the first that is here.
    gone: usize,
    /// The window: `begin..end` of what is here.
    begin: usize,
    end: usize,
    is_read: bool,
}

/// Samples of a window: those of the series without stale markers.
pub(super) struct View<'a> {
    pub(super) times_ns: &'a [i64],
    pub(super) values: &'a [f64],
    /// Number of the first within the series.
    pub(super) first: usize,
    /// How many of the last were in no window before.
    pub(super) fresh: usize,
}

impl<'a> Slide<'a> {
    pub(super) fn new(budget: &'a Budget, is_source: bool) -> Result<Self, QueryError> {
        let held = budget.hold(0)?;
        let (times_ns, values) = (Vec::new(), Vec::new());
        Ok(Self {
            budget,
            is_source,
            held,
            held_samples: 0,
            times_ns,
            values,
            gone: 0,
            begin: 0,
            end: 0,
            is_read: false,
        })
    }

    /// The next window. Neither edge may lie before that of the window before.
    pub(super) fn window(&mut self, chunks: &mut dyn Chunks, span: Span) -> Result<View<'_>, QueryError> {
        while !self.is_read && self.times_ns.last().is_none_or(|last_ns| *last_ns <= span.until_ns) {
            self.begin += gallop(&self.times_ns[self.begin..], span.after_ns);
            match chunks.next()? {
                Some(chunk) => self.append(chunk)?,
                None => self.is_read = true,
            }
        }
        let before = self.end;
        self.begin += gallop(&self.times_ns[self.begin..], span.after_ns);
        self.end = before.max(self.begin);
        self.end += gallop(&self.times_ns[self.end..], span.until_ns);
        self.budget.work(self.end - before + 1)?;
        Ok(View {
            times_ns: &self.times_ns[self.begin..self.end],
            values: &self.values[self.begin..self.end],
            first: self.gone + self.begin,
            fresh: self.end - before.max(self.begin),
        })
    }

    fn append(&mut self, Chunk { times_ns, values }: Chunk<'_>) -> Result<(), QueryError> {
        if self.is_source {
            self.budget.samples(times_ns.len())?;
        }
        let dead = self.begin;
        if dead >= MIN_DROP && dead * 2 >= self.times_ns.len() {
            self.times_ns.drain(..dead);
            self.values.drain(..dead);
            self.gone += dead;
            self.begin = 0;
            self.end = self.end.saturating_sub(dead);
        }
        if values.iter().any(|value| is_hole(*value)) {
            let live = || times_ns.iter().zip(values).filter(|(_, value)| !is_hole(**value));
            self.times_ns.extend(live().map(|(time_ns, _)| time_ns));
            self.values.extend(live().map(|(_, value)| value));
        } else {
            self.times_ns.extend_from_slice(times_ns);
            self.values.extend_from_slice(values);
        }
        let samples = self.times_ns.capacity();
        if samples > self.held_samples {
            self.held.grow((samples - self.held_samples) * 16)?;
            self.held_samples = samples;
        }
        Ok(())
    }
}
