// SPDX-License-Identifier: Apache-2.0
//! Windows over the samples of one series, each later than the one before. A sample is copied once, and looked at anew
//! only by functions that must.

use std::ops::Range;
use std::sync::Arc;

use super::Eval;
use crate::error::QueryError;
use crate::histogram::Histogram;
use crate::limits::{Budget, Held, PIECE};
use crate::source::{Chunk, Chunks, Span};
use crate::value::is_hole;

/// What is no longer in a window is thrown away when it is so much and half of all.
const MIN_DROP: usize = 1 << 10;

pub(super) struct Slide<'a> {
    budget: &'a Budget,
    /// Whether they are samples of the source, of which a query may read so many.
    is_source: bool,
    samples: Buffers,
    natives: Natives,
    /// Samples thrown away before the first that is here.
    gone: usize,
    /// The window: `begin..end` of what is here.
    begin: usize,
    end: usize,
    is_read: bool,
}

/// Memory of samples, which the next series may have when one is done with it.
pub(super) struct Buffers {
    held: Held,
    times_ns: Vec<i64>,
    values: Vec<f64>,
}

/// Samples that are histograms, which lie between the others by their times.
#[derive(Default)]
struct Natives {
    times_ns: Vec<i64>,
    histograms: Vec<Arc<Histogram>>,
    begin: usize,
    bytes: usize,
}

impl Natives {
    fn append(&mut self, chunk: Chunk<'_>) {
        if self.begin >= MIN_DROP && self.begin * 2 >= self.times_ns.len() {
            self.times_ns.drain(..self.begin);
            self.bytes -= self.histograms.drain(..self.begin).map(|gone| gone.bytes()).sum::<usize>();
            self.begin = 0;
        }
        for (time_ns, histogram) in chunk.times_ns.iter().zip(chunk.histograms) {
            if let Some(histogram) = histogram {
                self.times_ns.push(*time_ns);
                self.bytes += histogram.bytes();
                self.histograms.push(histogram.clone());
            }
        }
    }

    /// Those of the next window.
    fn window(&mut self, span: Span) -> (&[i64], &[Arc<Histogram>]) {
        self.begin += gallop(&self.times_ns[self.begin..], span.after_ns);
        let end = self.begin + gallop(&self.times_ns[self.begin..], span.until_ns);
        (&self.times_ns[self.begin..end], &self.histograms[self.begin..end])
    }
}

/// Samples of a window: those of the series without stale markers.
pub(super) struct View<'a> {
    pub(super) times_ns: &'a [i64],
    pub(super) values: &'a [f64],
    /// Histograms of the window, and their times.
    pub(super) native_times_ns: &'a [i64],
    pub(super) histograms: &'a [Arc<Histogram>],
    /// Number of the first within the series.
    pub(super) first: usize,
    /// How many of the last were in no window before.
    pub(super) fresh: usize,
    pub(super) budget: &'a Budget,
}

impl View<'_> {
    /// Which were in no window before.
    pub(super) fn fresh(&self) -> Range<usize> {
        self.values.len() - self.fresh..self.values.len()
    }

    /// Gives these values to `take`, with their places in the window, and looks in between.
    #[inline]
    pub(super) fn each(&self, which: Range<usize>, mut take: impl FnMut(usize, f64)) -> Result<(), QueryError> {
        for from in which.clone().step_by(PIECE) {
            let piece = from..which.end.min(from + PIECE);
            self.budget.work(piece.len())?;
            for (at, value) in piece.clone().zip(&self.values[piece]) {
                take(at, *value);
            }
        }
        Ok(())
    }

    /// As [`View::each`], of all.
    #[inline]
    pub(super) fn all(&self, mut take: impl FnMut(f64)) -> Result<(), QueryError> {
        self.each(0..self.values.len(), |_, value| take(value))
    }
}

impl<'a> Slide<'a> {
    /// Of one series. What another one has left is used again.
    pub(super) fn new(eval: &'a Eval<'_>, is_source: bool) -> Result<Self, QueryError> {
        let budget = &eval.budget;
        let samples = match eval.spare.take() {
            Some(mut spare) => {
                spare.times_ns.clear();
                spare.values.clear();
                spare
            }
            None => Buffers { held: budget.hold(0)?, times_ns: Vec::new(), values: Vec::new() },
        };
        let natives = Natives::default();
        Ok(Self { budget, is_source, samples, natives, gone: 0, begin: 0, end: 0, is_read: false })
    }

    /// Leaves its memory to the next one, if it counts no histograms.
    pub(super) fn leave(self, eval: &Eval<'_>) {
        if self.natives.times_ns.is_empty() {
            eval.spare.replace(Some(self.samples));
        }
    }

    /// The next window. Neither edge may lie before that of the window before.
    pub(super) fn window(&mut self, chunks: &mut dyn Chunks, span: Span) -> Result<View<'_>, QueryError> {
        while !self.is_read && self.is_until(span.until_ns) {
            self.begin += gallop(&self.samples.times_ns[self.begin..], span.after_ns);
            match chunks.next()? {
                Some(chunk) => self.append(chunk)?,
                None => self.is_read = true,
            }
        }
        let before = self.end;
        self.begin += gallop(&self.samples.times_ns[self.begin..], span.after_ns);
        self.end = before.max(self.begin);
        self.end += gallop(&self.samples.times_ns[self.end..], span.until_ns);
        let (native_times_ns, histograms) = self.natives.window(span);
        self.budget.work(self.end - before + 1 + histograms.len())?;
        Ok(View {
            times_ns: &self.samples.times_ns[self.begin..self.end],
            values: &self.samples.values[self.begin..self.end],
            native_times_ns,
            histograms,
            first: self.gone + self.begin,
            fresh: self.end - before.max(self.begin),
            budget: self.budget,
        })
    }

    /// Whether what has been read ends before a time, or at it.
    fn is_until(&self, until_ns: i64) -> bool {
        self.samples.times_ns.last().max(self.natives.times_ns.last()).is_none_or(|last_ns| *last_ns <= until_ns)
    }

    fn append(&mut self, chunk: Chunk<'_>) -> Result<(), QueryError> {
        let Chunk { times_ns, values, .. } = chunk;
        self.natives.append(chunk);
        if self.is_source {
            self.budget.samples(times_ns.len())?;
        }
        let dead = self.begin;
        if dead >= MIN_DROP && dead * 2 >= self.samples.times_ns.len() {
            self.samples.times_ns.drain(..dead);
            self.samples.values.drain(..dead);
            self.gone += dead;
            self.begin = 0;
            self.end = self.end.saturating_sub(dead);
        }
        if values.iter().any(|value| is_hole(*value)) {
            let live = || times_ns.iter().zip(values).filter(|(_, value)| !is_hole(**value));
            self.samples.times_ns.extend(live().map(|(time_ns, _)| time_ns));
            self.samples.values.extend(live().map(|(_, value)| value));
        } else {
            self.samples.times_ns.extend_from_slice(times_ns);
            self.samples.values.extend_from_slice(values);
        }
        let natives = self.natives.times_ns.capacity() * 16 + self.natives.bytes;
        let floats =
            self.samples.times_ns.capacity() * size_of::<i64>() + self.samples.values.capacity() * size_of::<f64>();
        self.samples.held.reach(floats + natives)
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
