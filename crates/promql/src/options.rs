// SPDX-License-Identifier: Apache-2.0
//! What a query is run with.

use std::time::Instant;

use crate::helpers::Helpers;
use crate::limits::{Cancel, Limits};

/// What holds for a query beside its text.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it may cost.
    pub limits: Limits,
    /// When it must be done.
    pub until: Option<Instant>,
    /// What stops it.
    pub cancel: Cancel,
    /// How far back the newest sample of a series is looked for, ns.
    pub lookback_ns: i64,
    /// Step of subqueries that name none, ns.
    pub subquery_step_ns: i64,
    /// Whether a series keeps its name until the end even where that says no longer what it is, so that it can be
    /// matched and grouped by; as Prometheus's feature `promql-delayed-name-removal`.
    pub delays_names: bool,
    /// Threads that may help.
    pub helpers: Helpers,
}

/// As Prometheus has them.
impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            until: None,
            cancel: Cancel::default(),
            lookback_ns: 300_000_000_000,
            subquery_step_ns: 60_000_000_000,
            delays_names: false,
            helpers: Helpers::default(),
        }
    }
}
