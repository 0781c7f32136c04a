// SPDX-License-Identifier: Apache-2.0
//! `[checks]` of controller.toml.

use onlooker_settings::units::Span;
use serde::{Deserialize, Serialize};

/// Samples that a window may have: each costs two times eight bytes a series.
const WINDOW: std::ops::RangeInclusive<usize> = 3..=1024;
/// Rules that may be configured.
const MAX_RULES: usize = 1000;
/// Quantiles of a rule.
const MAX_QUANTILES: usize = 8;

/// A key, and what is wrong with its value.
pub type Mistake = (String, String);

/// How samples are judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Checks {
    /// Whether what is known of the kernel's metrics is checked, behind `rules`.
    pub shipped: bool,
    /// A series has the first rule that takes it.
    pub rules: Vec<Rule>,
}

impl Default for Checks {
    fn default() -> Self {
        Self { shipped: true, rules: Vec::new() }
    }
}

/// What is valid of some series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Selector of the series, as in PromQL.
    #[serde(rename = "match")]
    pub selector: String,
    /// Least and greatest value, in the metric's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// It never becomes less.
    #[serde(default)]
    pub monotone: bool,
    /// Most that it changes in a second, up or down, from the last valid sample on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_change_per_s: Option<f64>,
    /// What it may change beyond that, however short the time.
    #[serde(default)]
    pub slack: f64,
    /// So long it may be the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub still: Option<Span>,
    /// So many intervals without a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent_intervals: Option<u32>,
    /// Samples that `outlier` and `quantiles` look back.
    #[serde(default = "window")]
    pub window: usize,
    /// Most that it is away from the median of the window, in standard deviations as the median absolute deviation (MAD)
    /// gives them; of counters that holds of their increase per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlier: Option<f64>,
    /// What it may be away from the median in any case.
    #[serde(default)]
    pub outlier_slack: f64,
    /// Time constant of the moving average that is made of valid samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ema: Option<Span>,
    /// Quantiles that are made of the valid samples of the window, 0 to 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<f64>,
}

fn window() -> usize {
    61
}

impl Rule {
    /// Checks nothing of what the selector takes.
    #[must_use]
    pub fn of(selector: &str) -> Self {
        Self {
            selector: selector.to_owned(),
            range: None,
            monotone: false,
            max_change_per_s: None,
            slack: 0.0,
            still: None,
            absent_intervals: None,
            window: window(),
            outlier: None,
            outlier_slack: 0.0,
            ema: None,
            quantiles: Vec::new(),
        }
    }

    fn check(&self) -> Result<(), Mistake> {
        let refuse = |key: &str, message: String| Err((key.to_owned(), message));
        if let Some([least, greatest]) = self.range
            && (least.is_nan() || greatest.is_nan() || least > greatest)
        {
            return refuse("range", format!("[{least}, {greatest}] has no values: write [least, greatest]"));
        }
        let is_none = |value: f64| value.is_nan() || value < 0.0;
        for (key, value) in [
            ("max_change_per_s", self.max_change_per_s.unwrap_or(0.0)),
            ("slack", self.slack),
            ("outlier", self.outlier.unwrap_or(0.0)),
            ("outlier_slack", self.outlier_slack),
        ] {
            if is_none(value) {
                return refuse(key, format!("{value} must not be less than 0"));
            }
        }
        for (key, span) in [("still", self.still), ("ema", self.ema)] {
            if span.is_some_and(|span| span.as_ns() == 0) {
                return refuse(key, "must be longer than 0: leave it out for none".into());
            }
        }
        if self.absent_intervals.is_some_and(|intervals| intervals < 2) {
            return refuse("absent_intervals", "must be at least 2: a sample may be late".into());
        }
        if !WINDOW.contains(&self.window) {
            return refuse("window", format!("must be {} to {} samples", WINDOW.start(), WINDOW.end()));
        }
        if self.quantiles.len() > MAX_QUANTILES {
            return refuse("quantiles", format!("must be {MAX_QUANTILES} at most"));
        }
        if let Some(wrong) = self.quantiles.iter().find(|quantile| !(0.0..=1.0).contains(*quantile)) {
            return refuse("quantiles", format!("{wrong} is none: they are from 0 to 1"));
        }
        Ok(())
    }
}

/// Checks the values that need no look at the selectors, which [`crate::Rules::new`] takes.
///
/// # Errors
/// The first [`Mistake`].
pub(crate) fn check(rules: &[Rule]) -> Result<(), Mistake> {
    if rules.len() > MAX_RULES {
        return Err(("[[checks.rules]]".into(), format!("are {}: {MAX_RULES} at most", rules.len())));
    }
    rules.iter().enumerate().try_for_each(|(number, rule)| rule.check().map_err(|mistake| named(number, mistake)))
}

/// A mistake in the rule of a number.
pub(crate) fn named(number: usize, (key, message): Mistake) -> Mistake {
    (format!("[[checks.rules]] number {}, {key}", number + 1), message)
}
