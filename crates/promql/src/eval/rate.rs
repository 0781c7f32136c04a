// SPDX-License-Identifier: Apache-2.0
//! `rate`, `increase` and `delta`: the difference of a window's last and first sample, extended to the window's edges
//! where samples are near them.

use std::collections::VecDeque;

use super::over_time::{Ask, Fold, Folded};
use super::slide::View;
use crate::error::QueryError;
use crate::limits::{Budget, PIECE};
use crate::value::{HOLE, seconds};

/// A gap to an edge is bridged if it is not longer than this, in average distances of samples.
const NEAR: f64 = 1.1;

#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// What goes down has begun again at 0.
    pub(super) is_counter: bool,
    pub(super) per_second: bool,
}

impl Kind {
    pub(super) fn of(function: &str) -> Self {
        Self { is_counter: function != "delta", per_second: function == "rate" }
    }
}

pub(super) struct Rate {
    kind: Kind,
    /// Samples after which the counter began again: number and value.
    resets: VecDeque<(usize, f64)>,
}

impl Rate {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, resets: VecDeque::new() }
    }

    fn find_resets(&mut self, view: &View<'_>) -> Result<(), QueryError> {
        while self.resets.front().is_some_and(|(at, _)| *at < view.first) {
            self.resets.pop_front();
        }
        let fresh = view.fresh();
        for from in (fresh.start.saturating_sub(1)..fresh.end).step_by(PIECE) {
            // One sample more: the first of the next piece.
            let piece = &view.values[from..fresh.end.min(from + PIECE + 1)];
            view.budget.work(piece.len())?;
            // Counted first, without branches: nearly always there are none.
            let is_reset = |pair: &&[f64]| pair[1] < pair[0];
            if piece.windows(2).filter(is_reset).count() > 0 {
                let resets = piece.windows(2).enumerate().filter(|(_, pair)| is_reset(pair));
                self.resets.extend(resets.map(|(at, pair)| (view.first + from + at, pair[0])));
            }
        }
        Ok(())
    }

    /// What was lost in all resets of the window, added to what went up otherwise.
    fn with_resets(&self, mut up: f64, budget: &Budget) -> Folded {
        for (at, (_, before)) in self.resets.iter().enumerate() {
            if at % PIECE == 0 {
                budget.work(PIECE.min(self.resets.len() - at))?;
            }
            up += before;
        }
        Ok(up)
    }
}

impl Fold for Rate {
    fn value(&mut self, view: &View<'_>, ask: &Ask) -> Folded {
        if self.kind.is_counter {
            self.find_resets(view)?;
        }
        let ([first_ns, .., last_ns], [first, .., last]) = (view.times_ns, view.values) else { return Ok(HOLE) };
        let up = self.with_resets(last - first, view.budget)?;
        let window =
            Window { samples: view.values.len() as u64, first_ns: *first_ns, last_ns: *last_ns, first: *first };
        Ok(extend(&window, up, self.kind, ask))
    }

    fn bytes(&self) -> usize {
        self.resets.capacity() * size_of::<(usize, f64)>()
    }
}

/// What is known of the samples of a window, at least two.
pub(super) struct Window {
    pub(super) samples: u64,
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    pub(super) first: f64,
}

/// Makes what went up between samples into what went up in the range.
pub(super) fn extend(window: &Window, up: f64, kind: Kind, ask: &Ask) -> f64 {
    up * extension(window, up, kind, ask)
}

/// How many times what went up between samples went up in the range.
pub(super) fn extension(window: &Window, up: f64, kind: Kind, ask: &Ask) -> f64 {
    let mut to_start = seconds(window.first_ns - ask.range.after_ns);
    let mut to_end = seconds(ask.range.until_ns - window.last_ns);
    let sampled = seconds(window.last_ns - window.first_ns);
    #[allow(clippy::cast_precision_loss)] // counts of samples
    let apart = sampled / (window.samples - 1) as f64;
    if to_start >= apart * NEAR {
        to_start = apart / 2.0;
    }
    if kind.is_counter && up > 0.0 && window.first >= 0.0 {
        // A counter was never less than 0.
        to_start = to_start.min(sampled * (window.first / up));
    }
    if to_end >= apart * NEAR {
        to_end = apart / 2.0;
    }
    let mut factor = (sampled + to_start + to_end) / sampled;
    if kind.per_second {
        factor /= range_seconds(ask.range_ns);
    }
    factor
}

/// A range's length in seconds, rounded as Go rounds durations.
#[allow(clippy::cast_precision_loss)]
pub(super) fn range_seconds(range_ns: i64) -> f64 {
    (range_ns / 1_000_000_000) as f64 + (range_ns % 1_000_000_000) as f64 / 1e9
}
