// SPDX-License-Identifier: Apache-2.0
//! The times that a query is asked for.

use crate::value::Grid;

/// When a query is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The first time, ns since 1970.
    pub start_ns: i64,
    /// Not later than this.
    pub end_ns: i64,
    /// From one to the next, ns; 0 where there is only one.
    pub step_ns: i64,
}

impl Times {
    /// Only one.
    #[must_use]
    pub fn instant(time_ns: i64) -> Self {
        Self { start_ns: time_ns, end_ns: time_ns, step_ns: 0 }
    }

    pub(crate) fn grid(self) -> Grid {
        let Self { start_ns, end_ns, step_ns } = self;
        let steps = match end_ns.saturating_sub(start_ns) {
            span_ns if span_ns < 0 => 0,
            span_ns if step_ns > 0 => (span_ns / step_ns).saturating_add(1),
            _ => 1,
        };
        Grid { start_ns, step_ns, count: usize::try_from(steps).unwrap_or(usize::MAX) }
    }
}
