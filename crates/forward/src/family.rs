// SPDX-License-Identifier: Apache-2.0
//! What a metric is, as databases are told it beside its samples.

use std::sync::Arc;

use onlooker_region::schema::Metric;

/// What is said of a metric, whichever series it has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Family {
    /// Its name; of a histogram without the endings of its series.
    pub name: Arc<str>,
    /// What it is.
    pub metric: Metric,
    /// Help, or nothing.
    pub help: Arc<str>,
    /// Unit, or nothing.
    pub unit: Arc<str>,
}
