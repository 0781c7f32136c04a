// SPDX-License-Identifier: Apache-2.0
//! `[[forward]]` of controller.toml: one target.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use onlooker_promql::Query;
use onlooker_promql::labels::Matcher;
use onlooker_settings::units::{Size, Span};
use onlooker_targets::relabel::Rule;
use serde::{Deserialize, Serialize};

use crate::Protocol;

/// A key, and what is wrong with its value.
pub type Mistake = (String, String);

/// One target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forward {
    /// What its cursor and its metrics are called.
    pub name: String,
    /// Where requests go.
    pub url: String,
    /// How it wants samples.
    pub kind: Protocol,
    /// File with the token to show; empty: none.
    #[serde(default)]
    pub token_file: PathBuf,
    /// More headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Certificate authorities instead of the system's; empty: the system's.
    #[serde(default)]
    pub ca_file: PathBuf,
    /// Selectors: a series goes that one of them matches; none: all.
    #[serde(default, rename = "match")]
    pub selectors: Vec<String>,
    /// Rules for labels, in order.
    #[serde(default)]
    pub relabel: Vec<Rule>,
    /// One sample of each series in this time, the last; 0: all.
    #[serde(default = "no_step")]
    pub step: Span,
    /// Bytes of a body before it is packed.
    #[serde(default = "max_bytes")]
    pub max_bytes: Size,
    /// How long samples are collected.
    #[serde(default = "max_age")]
    pub max_age: Span,
    /// How long an answer may take.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

fn no_step() -> Span {
    Span::from_s(0)
}

fn max_bytes() -> Size {
    Size::from_mib(2)
}

fn max_age() -> Span {
    Span::from_s(5)
}

fn timeout() -> Span {
    Span::from_s(30)
}

impl Forward {
    /// What its selectors want.
    ///
    /// # Errors
    /// The first that is none.
    pub fn matchers(&self) -> Result<Vec<Vec<Matcher>>, Mistake> {
        let of =
            |text: &String| Query::selector(text).map_err(|error| ("match".to_owned(), format!("`{text}`: {error}")));
        self.selectors.iter().map(of).collect()
    }

    fn check(&self) -> Result<(), Mistake> {
        let refuse = |key: &str, message: String| Err((key.to_owned(), message));
        let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(is_letter) {
            return refuse("name", "must be 1 to 64 letters, digits, `-` and `_`: a file is called so".into());
        }
        let rest = self.url.strip_prefix("http://").or_else(|| self.url.strip_prefix("https://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
            return refuse("url", format!("`{}` must begin with http:// or https:// and have a host", self.url));
        }
        self.matchers()?;
        for (number, rule) in self.relabel.iter().enumerate() {
            if let Err((key, message)) = rule.compile() {
                return refuse(&format!("relabel number {}, {key}", number + 1), message);
            }
        }
        if !(64 << 10..=64 << 20).contains(&self.max_bytes.as_bytes()) {
            return refuse("max_bytes", "must be 64KiB to 64MiB".into());
        }
        if !(Span::from_ms(100)..=Span::from_s(60)).contains(&self.max_age) {
            return refuse("max_age", "must be 100ms to 1min".into());
        }
        // What a step has is read as a whole.
        if self.step > Span::from_s(300) {
            return refuse("step", "must be at most 5min, or 0s for all samples".into());
        }
        if !(Span::from_s(1)..=Span::from_s(600)).contains(&self.timeout) {
            return refuse("timeout", "must be 1s to 10min".into());
        }
        Ok(())
    }
}

/// Checks all `[[forward]]`.
///
/// # Errors
/// The first [`Mistake`].
pub fn check(targets: &[Forward]) -> Result<(), Mistake> {
    let mut names = BTreeSet::new();
    for (number, target) in targets.iter().enumerate() {
        let named = |(key, message)| (format!("[[forward]] number {}, {key}", number + 1), message);
        target.check().map_err(named)?;
        if !names.insert(&target.name) {
            return Err(named(("name".into(), format!("`{}` is there already; give it another name", target.name))));
        }
    }
    Ok(())
}
