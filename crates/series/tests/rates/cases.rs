// SPDX-License-Identifier: Apache-2.0
//! The vectors of rates, for all who make some: this crate, `range`, `top`, and the dashboard, which reads the JSON itself.

use serde::Deserialize;

/// Rows of a counter, and the rate that each of them ends with.
#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) what: String,
    /// Times of acquisition, ms, and values.
    pub(crate) rows: Vec<(u64, f64)>,
    /// From and to, ms.
    pub(crate) gaps: Vec<(u64, u64)>,
    pub(crate) rates: Vec<Option<f64>>,
}

pub(crate) fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("rates.json")).unwrap()
}
