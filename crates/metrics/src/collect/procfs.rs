// SPDX-License-Identifier: Apache-2.0
//! What procfs says of the metrics that collectors compute, in one form for all groups: what they are checked against.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;

/// Values by series, and how far from the true value each may be.
pub(crate) type Reading = HashMap<String, Procfs>;

/// A value of procfs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Procfs {
    /// As exported; not a number where procfs has none.
    pub(crate) value: f64,
    /// What rounding may have taken off or added; where procfs has none, the most that the value can be.
    pub(crate) rounding: f64,
}

impl Procfs {
    /// A number that procfs prints as it is.
    #[allow(clippy::cast_precision_loss, reason = "as exported")]
    pub(crate) fn exact(value: u64) -> Self {
        Self { value: value as f64, rounding: 0.0 }
    }

    /// procfs has no such value: all that can be said is that it is 0 to `most`.
    pub(crate) fn none(most: f64) -> Self {
        Self { value: f64::NAN, rounding: most }
    }
}

/// A series by name and labels, in one form for kernel and procfs.
pub(crate) fn series<'a>(name: &str, labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let labels: BTreeMap<&str, &str> = labels.into_iter().collect();
    let labels: Vec<String> = labels.into_iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
    format!("{name}{{{}}}", labels.join(","))
}

/// Lines of a name and a number.
pub(crate) fn numbers(path: &str) -> io::Result<HashMap<String, u64>> {
    let text = fs::read_to_string(path)?;
    let lines = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(|separator: char| separator == ':' || separator.is_ascii_whitespace())?;
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some((name.to_owned(), value))
    });
    Ok(lines.collect())
}
