// SPDX-License-Identifier: Apache-2.0
//! What the metrics of a collector are compared with: the group's own samples ([`crate::sampled`]). A group that is not
//! sampled has a small reader in its folder. Nothing of it outlives a check.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::AtomicU64;

use onlooker_region::block::Identity;
use onlooker_region::columns::Plan;
use onlooker_region::map::Map;
use onlooker_responder::clock::boot_time_ns;

use crate::groups::Group;
use crate::procfs::LINE_BYTES;
use crate::sampled::scrape::Scrapes;
use crate::sampled::{Context, Draft, NodeError, Sampled};

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

/// Reads a counterpart as it is now.
pub(crate) type Reader<'a> = Box<dyn FnMut() -> io::Result<Reading> + 'a>;

impl Counterpart {
    /// Ready to read what there is of the group now.
    ///
    /// # Errors
    /// [`NodeError`]: it cannot be sampled.
    pub(crate) fn reader(&self, group: Group) -> Result<Reader<'_>, NodeError> {
        match self {
            Self::Own(read) => Ok(Box::new(read)),
            Self::Samples(adjust) => {
                let mut samples = Samples::of(group)?;
                Ok(Box::new(move || {
                    let mut reading = samples.read()?;
                    adjust(&mut reading);
                    Ok(reading)
                }))
            }
        }
    }
}

/// A group in memory that nobody else sees.
struct Samples {
    sampled: Sampled,
    plan: Plan,
    scrapes: Scrapes,
    buffer: Box<[u8; LINE_BYTES]>,
}

impl Samples {
    fn of(group: Group) -> Result<Self, NodeError> {
        let mut scrapes = Scrapes::default();
        let draft = Draft::new(group, 0, None, &mut scrapes)?.ok_or(NodeError::Nothing)?;
        let words: Vec<AtomicU64> = (0..draft.bytes() / 8).map(|_| AtomicU64::new(0)).collect();
        let sampled = draft.over(Map::shared(words), Identity::first(1, 1));
        let plan = Plan::new(sampled.schema.clone());
        Ok(Self { sampled, plan, scrapes, buffer: Box::new([0; LINE_BYTES]) })
    }

    fn read(&mut self) -> io::Result<Reading> {
        let Self { sampled: Sampled { place, schema, sampler, .. }, plan, scrapes, buffer } = self;
        // A sample keeps what an earlier one had more of (idle time that the kernel took back): this one is the first.
        sampler.begin(place, schema, boot_time_ns());
        sampler.sample(place, &mut Context::new(buffer, scrapes))?;
        let mut reading = Reading::new();
        let blocks = place.blocks();
        let refused = plan.decode(place.identity, &blocks, |sample| {
            let labels = sample.labels();
            let labels = labels.iter().map(|(label, value)| (label.as_str(), value.as_str()));
            let value = Procfs { value: sample.scaled(), rounding: 0.0 };
            reading.insert(series(&sample.field.name, labels), value);
        });
        debug_assert!(refused.is_ok_and(|refused| refused.is_empty()));
        Ok(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reading_is_of_its_moment_and_rounded_as_the_group_says() {
        let samples = Counterpart::Samples(|reading| round(reading, "node_context_switches_total", 7.0));
        let mut reader = samples.reader(Group::CPU).unwrap();
        let mut read = || reader().unwrap()["node_context_switches_total{}"];
        let first = read();
        let moved = std::iter::repeat_with(read).take(10_000).find(|now| now.value > first.value);
        assert_eq!(moved.expect("tasks are switched").rounding.to_bits(), first.rounding.to_bits());
        assert_eq!(first.rounding.to_bits(), 7f64.to_bits());
    }

    #[test]
    fn a_metric_s_series_are_those_of_its_whole_name() {
        let series = ["m_total{a=\"m\"}", "m_total{}", "m{}"];
        let mut reading = Reading::from(series.map(|series| (series.to_owned(), Procfs::exact(3))));
        round(&mut reading, "m_total", 0.5);
        assert_eq!(series.map(|series| reading[series].rounding > 0.25), [true, true, false]);
    }
}
