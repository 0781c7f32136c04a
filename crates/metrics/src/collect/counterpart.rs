// SPDX-License-Identifier: Apache-2.0
//! What the metrics of a collector are compared with, as its group says it: the group's own samples, or, where it is not
//! sampled, a small reader in its folder. [`super::samples`] reads it.

use std::collections::{BTreeMap, HashMap};
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

/// The metric's name in a series.
pub(crate) fn name_of(series: &str) -> &str {
    series.split_once('{').map_or(series, |(name, _)| name)
}

/// How far from the true value any series of a metric may be.
pub(crate) fn round(reading: &mut Reading, metric: &str, rounding: f64) {
    let of_metric = reading.iter_mut().filter(|(series, _)| name_of(series) == metric);
    of_metric.for_each(|(_, procfs)| procfs.rounding = rounding);
}

/// Where a group's counterpart is.
pub(crate) enum Counterpart {
    /// In the group's samples, after this has said how far they may be from the true values, and has added what they
    /// have under another name.
    Samples(fn(&mut Reading)),
    /// The group is not sampled: what this reads.
    Own(Box<dyn Fn() -> io::Result<Reading>>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_s_series_are_those_of_its_whole_name() {
        let series = ["m_total{a=\"m\"}", "m_total{}", "m{}"];
        let mut reading = Reading::from(series.map(|series| (series.to_owned(), Procfs::exact(3))));
        round(&mut reading, "m_total", 0.5);
        assert_eq!(series.map(|series| reading[series].rounding > 0.25), [true, true, false]);
    }
}
