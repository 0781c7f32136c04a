// SPDX-License-Identifier: Apache-2.0
//! Templates of labels and annotations: Go's `text/template` with Prometheus' functions.
//!
//! | module | what |
//! |---|---|
//! | `token`, `parse` | text to nodes |
//! | `run` | nodes to text |
//! | `function`, `compare`, `printf` | the functions |
//! | `context` | what functions see of an expansion |
//! | `method` | methods of times and durations |
//! | `value`, `number`, `time` | values, and how they are printed |
//!
//! An expansion is bounded: its steps (longer texts count as more of them), the bytes of each text, the queries, and
//! how deep things lie within each other. Not here: complex numbers, hexadecimal floats, methods of times with zones.

mod compare;
mod context;
mod function;
mod method;
mod number;
mod parse;
mod printf;
mod run;
mod time;
mod token;
mod value;

use std::collections::BTreeMap;

pub use function::functions;

/// What the templates of one alert see.
#[derive(Clone, Debug)]
pub struct Data<'a> {
    /// The series' labels: `$labels`.
    pub labels: &'a BTreeMap<String, String>,
    /// `$externalLabels`.
    pub external_labels: &'a BTreeMap<String, String>,
    /// `$externalURL`: where this program is for those who read alerts.
    pub external_url: &'a str,
    /// The series' value: `$value`.
    pub value: f64,
    /// When the rule is evaluated, ns since 1970: `now`, and the time of queries.
    pub time_ns: i64,
}

/// What a query in a template gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its labels, the metric's name among them as `__name__`.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// Whoever runs queries.
pub trait Ask {
    /// Runs an instant query at the evaluation's time.
    ///
    /// # Errors
    /// Why there is no answer.
    fn ask(&mut self, query: &str) -> Result<Vec<Sample>, String>;
}

/// What one expansion may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Actions and function calls.
    pub steps: usize,
    /// Bytes of the result, and of every text on the way.
    pub bytes: usize,
    /// Queries.
    pub queries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 100_000, bytes: 64 << 10, queries: 10 }
    }
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ParseError {
    /// Byte of the template that it is about.
    pub at: usize,
    /// What is wrong.
    pub text: String,
}

/// Why a template could not be expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ExpandError {
    /// Byte of the template where it was.
    pub at: usize,
    /// Why.
    pub text: String,
}

/// A text with actions.
#[derive(Clone, Debug)]
pub struct Template {
    parsed: parse::Parsed,
}

impl Template {
    /// Of its text; `$labels`, `$value`, `$externalLabels` and `$externalURL` are defined.
    ///
    /// # Errors
    /// [`ParseError`].
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Ok(Self { parsed: parse::parse(text)? })
    }

    /// Expands it, within the default [`Limits`].
    ///
    /// # Errors
    /// [`ExpandError`].
    pub fn expand(&self, data: &Data<'_>, ask: &mut dyn Ask) -> Result<String, ExpandError> {
        self.expand_within(Limits::default(), data, ask)
    }

    /// Expands it, within these limits.
    ///
    /// # Errors
    /// [`ExpandError`].
    pub fn expand_within(&self, limits: Limits, data: &Data<'_>, ask: &mut dyn Ask) -> Result<String, ExpandError> {
        run::run(&self.parsed, data, ask, limits)
    }
}

#[cfg(test)]
mod tests;
