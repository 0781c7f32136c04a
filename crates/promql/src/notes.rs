// SPDX-License-Identifier: Apache-2.0
//! What is told beside an answer: warnings and hints. Their texts are Prometheus's, which users and tests know, but
//! without positions.

use std::collections::BTreeSet;
use std::fmt;

use crate::labels::BUCKET;

/// Something about a query or its data that is no error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Note {
    /// The answer may be wrong.
    Warning(String),
    /// The answer may be other than expected.
    Info(String),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Warning(text) => write!(f, "PromQL warning: {text}"),
            Self::Info(text) => write!(f, "PromQL info: {text}"),
        }
    }
}

/// Notes kept of a query at most.
const MOST: usize = 100;

/// Each once, in the order of their texts.
#[derive(Debug, Default)]
pub(crate) struct Notes(BTreeSet<Note>);

impl Notes {
    fn add(&mut self, note: Note) {
        if self.0.len() < MOST {
            self.0.insert(note);
        }
    }

    pub(crate) fn into_vec(self) -> Vec<Note> {
        self.0.into_iter().collect()
    }

    pub(crate) fn quantile(&mut self, quantile: f64) {
        if !(0.0..=1.0).contains(&quantile) {
            self.add(Note::Warning(format!("quantile value should be between 0 and 1, got {quantile}")));
        }
    }

    pub(crate) fn bucket_label(&mut self, metric: &str, label: &str) {
        let text = format!("bucket label {BUCKET:?} is missing or has a malformed value of {label:?}");
        self.add(Note::Warning(with_metric(text, metric)));
    }

    pub(crate) fn sort_in_range(&mut self) {
        let text = "sort is ineffective for range queries since results are always ordered by labels";
        self.add(Note::Warning(text.to_owned()));
    }

    pub(crate) fn not_a_counter(&mut self, metric: &str) {
        let text = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket:";
        self.add(Note::Info(format!("{text} {metric:?}")));
    }

    pub(crate) fn forced_monotonicity(&mut self, metric: &str) {
        let text = "input to histogram_quantile needed to be fixed for monotonicity";
        let see = "(see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)";
        self.add(Note::Info(with_metric(format!("{text} {see}"), metric)));
    }
}

fn with_metric(text: String, metric: &str) -> String {
    if metric.is_empty() { text } else { format!("{text} for metric name {metric:?}") }
}
