// SPDX-License-Identifier: Apache-2.0
//! What is told beside an answer: warnings and hints. Their texts are Prometheus's, which users and tests know, with
//! the place in the query that they are about.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use crate::expr::Place;
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
type Texts = BTreeSet<Note>;

#[derive(Debug, Default)]
pub(crate) struct Notes {
    told: RefCell<Texts>,
    /// What is told only if nothing needs the buckets of the histograms that it is about.
    held_back: RefCell<Texts>,
}

fn add(all: &RefCell<Texts>, note: Note) {
    let mut all = all.borrow_mut();
    if all.len() < MOST {
        all.insert(note);
    }
}

fn extend(all: &RefCell<Texts>, other: Texts) {
    other.into_iter().for_each(|note| add(all, note));
}

impl Notes {
    fn add(&self, kind: fn(String) -> Note, text: &str, at: Place) {
        add(&self.told, kind(format!("{text} ({at})")));
    }

    /// Those of another thread as well.
    pub(crate) fn extend(&mut self, other: Self) {
        extend(&self.told, other.told.into_inner());
        extend(&self.held_back, other.held_back.into_inner());
    }

    pub(crate) fn into_vec(self) -> Vec<Note> {
        self.told.into_inner().into_iter().collect()
    }

    /// What is held back by now; from now on nothing is.
    pub(crate) fn begin(&self) -> Texts {
        self.held_back.take()
    }

    /// What has been held back since is told, or dropped; that of before is held back again.
    pub(crate) fn end(&self, before: Texts, is_told: bool) {
        let since = self.held_back.replace(before);
        if is_told {
            extend(&self.told, since);
        }
    }

    pub(crate) fn quantile(&self, quantile: f64, at: Place) {
        if !(0.0..=1.0).contains(&quantile) {
            self.add(Note::Warning, &format!("quantile value should be between 0 and 1, got {quantile}"), at);
        }
    }

    pub(crate) fn bucket_label(&self, metric: &str, label: &str, at: Place) {
        let text = format!("bucket label {BUCKET:?} is missing or has a malformed value of {label:?}");
        self.add(Note::Warning, &with_metric(text, metric), at);
    }

    pub(crate) fn sort_in_range(&self, at: Place) {
        let text = "sort is ineffective for range queries since results are always ordered by labels";
        self.add(Note::Warning, text, at);
    }

    pub(crate) fn not_a_counter(&self, metric: &str, at: Place) {
        let text = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket:";
        self.add(Note::Info, &format!("{text} {metric:?}"), at);
    }

    pub(crate) fn forced_monotonicity(&self, metric: &str, at: Place) {
        let text = "input to histogram_quantile needed to be fixed for monotonicity";
        let see = "(see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)";
        self.add(Note::Info, &with_metric(format!("{text} {see}"), metric), at);
    }
}

/// Notes of native histograms.
impl Notes {
    pub(crate) fn ignored(&self, aggregation: &str, at: Place) {
        self.add(Note::Info, &format!("ignored histogram in {aggregation} aggregation"), at);
    }

    pub(crate) fn ignored_in_range(&self, metric: &str, at: Place) {
        let text = "ignored histograms in a range containing both floats and histograms for metric name";
        self.add(Note::Info, &format!("{text} {metric:?}"), at);
    }

    pub(crate) fn mixed(&self, metric: &str, at: Place) {
        self.add(Note::Warning, &format!("encountered a mix of histograms and floats for metric name {metric:?}"), at);
    }

    pub(crate) fn mixed_in_aggregation(&self, at: Place) {
        self.add(Note::Warning, "encountered a mix of histograms and floats for aggregation", at);
    }

    pub(crate) fn classic_and_native(&self, metric: &str, at: Place) {
        let text = "vector contains a mix of classic and native histograms";
        self.add(Note::Warning, &with_metric(text.to_owned(), metric), at);
    }

    pub(crate) fn mixed_buckets(&self, metric: &str, at: Place) {
        let text = "vector contains a mix of histograms with exponential and custom buckets schemas for metric name";
        self.add(Note::Warning, &format!("{text} {metric:?}"), at);
    }

    pub(crate) fn mixed_buckets_of_operator(&self, operator: &str, at: Place) {
        self.add(Note::Warning, &format!("incompatible bucket layout encountered for binary operator {operator}"), at);
    }

    pub(crate) fn mixed_types(&self, [left, right]: [&str; 2], operator: &str, at: Place) {
        let text = "incompatible sample types encountered for binary operator";
        self.add(Note::Info, &format!("{text} {operator:?}: {left} {operator} {right}"), at);
    }

    pub(crate) fn no_native_counter(&self, metric: &str, at: Place) {
        self.add(Note::Warning, &format!("this native histogram metric is not a counter: {metric:?}"), at);
    }

    pub(crate) fn no_native_gauge(&self, metric: &str, at: Place) {
        self.add(Note::Warning, &format!("this native histogram metric is not a gauge: {metric:?}"), at);
    }

    /// Prometheus knows that a histogram began again only where it decodes no buckets; so it is held back.
    /// `operation`: addition, subtraction, aggregation.
    pub(crate) fn reset_collision(&self, operation: &str, at: Place) {
        let text = format!("conflicting counter resets during histogram {operation} ({at})");
        add(&self.held_back, Note::Warning(text));
    }

    /// `operation` as before.
    pub(crate) fn reconciled(&self, operation: &str, at: Place) {
        self.add(Note::Info, &format!("mismatched custom buckets were reconciled during {operation}"), at);
    }

    /// What observations of NaN did to `function`'s result.
    pub(crate) fn nan_observations(&self, function: &str, result: &str, metric: &str, at: Place) {
        let text = format!("input to {function} has NaN observations, {result}");
        self.add(Note::Info, &with_metric(text, metric), at);
    }
}

fn with_metric(text: String, metric: &str) -> String {
    if metric.is_empty() { text } else { format!("{text} for metric name {metric:?}") }
}
