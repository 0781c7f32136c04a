// SPDX-License-Identifier: Apache-2.0
//! Rule files as Prometheus 3.16 reads them, and the templates in their alerts.
//!
//! [`read`] takes a file's text and gives its groups, or every mistake in it with its place. A group that it gives can
//! be evaluated: names are valid, expressions and templates have been parsed. [`template`] expands the texts of labels
//! and annotations.
//!
//! - Durations are ns as i64.
//! - Limits: [`MAX_FILE_BYTES`], [`template::Limits`].
//!
//! No I/O, no threads.
#![forbid(unsafe_code)]

mod mistake;
mod place;
mod read;
pub mod template;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use mistake::Mistake;
pub use read::{MAX_FILE_BYTES, read};

/// Rules that are evaluated one after the other, at the same times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name, once in a file.
    pub name: String,
    /// The file that it is from.
    pub file: PathBuf,
    /// From one evaluation to the next, ns; `None`: as the configuration has it.
    pub interval_ns: Option<i64>,
    /// How much earlier than the evaluation the queries' time is, ns (`query_offset`); 0 where the file says nothing.
    pub offset_ns: i64,
    /// Series or alerts of one rule at most; 0: as many as there are.
    pub limit: usize,
    /// In the file's order. A rule sees what those before it have recorded.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it makes of its expression.
    pub what: What,
    /// PromQL, as the file has it.
    pub expr: String,
    /// The rule's and its group's labels; where both name one, the rule's. Of an alert the values are templates.
    pub labels: BTreeMap<String, String>,
    /// The line of the file that it begins at, from 1.
    pub line: usize,
}

/// What becomes of a rule's expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Series.
    Record {
        /// The name of the metric.
        name: String,
    },
    /// Alerts, one a series.
    Alert {
        /// The alert's name.
        name: String,
        /// How long it is pending before it fires, ns (`for`).
        hold_ns: i64,
        /// How long it fires on after its series has gone, ns (`keep_firing_for`).
        keep_firing_ns: i64,
        /// Texts for people: templates.
        annotations: BTreeMap<String, String>,
    },
}

impl Rule {
    /// The metric's or the alert's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.what {
            What::Record { name } | What::Alert { name, .. } => name,
        }
    }
}

/// ns of a duration as rule files have it, `1h30m`; `None`: it is none.
fn duration_ns(text: &str) -> Option<i64> {
    if text == "0" { Some(0) } else { onlooker_promql::duration_ns(text) }
}
