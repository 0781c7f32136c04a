// SPDX-License-Identifier: Apache-2.0
//! What is said of an entity once: when it is first seen.

use std::collections::BTreeMap;

use onlooker_region::columns::{Sample, Value};
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::{self, Metric, Schema};
use onlooker_series::derive::{Sum, row_of, sum_of};
use onlooker_series::series::{Form, Series, describe_own};

const BOOT_TIME: &str = "node_boot_time_seconds";
const INVALID_TOTAL: &str = "onlooker_invalid_samples_total";
const INVALID_TOTAL_HELP: &str = "Samples of a series that failed a check, by the first one that they failed.";
const INVALID: &str = "onlooker_invalid_sample";
const INVALID_HELP: &str = "What such a sample was, in its metric's unit, at the time of that sample.";
const MOVING_AVERAGE: &str = "onlooker_moving_average";
const MOVING_AVERAGE_HELP: &str = "Exponential moving average of a series' valid samples, in its metric's unit.";
const MOVING_QUANTILE: &str = "onlooker_moving_quantile";
const MOVING_QUANTILE_HELP: &str = "Quantile of a series' last valid samples, in its metric's unit.";
const BOOT_TIME_HELP: &str = "Node boot time, in unixtime.";

/// What there is to describe an entity by.
pub(super) enum Said<'a, 's> {
    /// Its samples.
    Samples(&'a RegionEntry, &'a [Sample<'s>]),
    /// Sums of a region.
    Sum(&'a RegionEntry, &'a Sum<'a>),
    /// The host's boot time.
    Boot,
    /// Samples that were not valid; with the labels of their row.
    Invalid(&'a [(String, String)]),
    /// A moving average, if there is one, and quantiles.
    Moving(&'a [(String, String)], bool, &'a [f64]),
}

/// The description.
pub(super) struct Described {
    /// With labels of their own only.
    pub(super) own: Vec<Series>,
    pub(super) row: Vec<(String, String)>,
    /// Texts of infos.
    pub(super) texts: Vec<Option<String>>,
}

impl Said<'_, '_> {
    /// Bytes of names and labels, but for those that all series of the host have.
    pub(super) fn text_bytes(&self) -> u64 {
        match self {
            Self::Samples(entry, samples) => samples
                .iter()
                .map(|sample| text_bytes(entry, &sample.field.name, &sample.labels().into_iter().collect()))
                .sum(),
            Self::Sum(entry, sum) => {
                sum.metrics.iter().map(|metric| text_bytes(entry, &metric.name, &metric.labels)).sum()
            }
            Self::Boot | Self::Invalid(_) | Self::Moving(..) => 0,
        }
    }

    /// Series of what is the controller's own.
    pub(super) fn own(&self) -> usize {
        match self {
            Self::Samples(..) | Self::Sum(..) => 0,
            Self::Boot => 1,
            Self::Invalid(_) => 2,
            Self::Moving(_, has_average, quantiles) => usize::from(*has_average) + quantiles.len(),
        }
    }

    pub(super) fn described(&self) -> Described {
        match self {
            Self::Samples(entry, samples) => of_samples(entry, samples),
            Self::Sum(_, sum) => of_sum(sum),
            Self::Boot => of_own(vec![boot_series()], &[]),
            Self::Invalid(row) => of_own(invalid_series(), row),
            Self::Moving(row, has_average, quantiles) => of_own(moving_series(*has_average, quantiles), row),
        }
    }
}

/// Of a region's samples, in their order, those of a group or of one of its rows that no sum replaces.
pub(super) fn samples_of<'a>(
    entry: &RegionEntry,
    schema: &Schema,
    all: &[Sample<'a>],
    group: u32,
    row: Option<(u32, u32)>,
) -> Vec<Sample<'a>> {
    let place = |sample: &Sample<'_>| (std::ptr::from_ref(sample.group), row_of(sample));
    let wanted = (std::ptr::from_ref(&schema.groups[group as usize]), row);
    let rest = &all[all.partition_point(|sample| place(sample) < wanted)..];
    let mine = rest.iter().take_while(|sample| place(sample) == wanted);
    mine.filter(|sample| !sum_of(entry, sample.field).is_some_and(schema::Sum::replaces)).cloned().collect()
}

fn of_samples(entry: &RegionEntry, samples: &[Sample<'_>]) -> Described {
    let text = |sample: &Sample<'_>| match &sample.value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    let row = samples.first().map(Sample::row_labels).unwrap_or_default();
    Described { own: describe_own(entry, samples), row, texts: samples.iter().map(text).collect() }
}

fn of_sum(sum: &Sum<'_>) -> Described {
    let own: Vec<Series> = sum.metrics.iter().enumerate().map(|(at, metric)| metric.series(at)).collect();
    Described { texts: vec![None; own.len()], own, row: sum.row_labels.to_vec() }
}

fn of_own(own: Vec<Series>, row: &[(String, String)]) -> Described {
    Described { texts: vec![None; own.len()], own, row: row.to_vec() }
}

fn invalid_series() -> Vec<Series> {
    let total = Series::new(INVALID_TOTAL, Metric::Counter, Form::Unsigned);
    let value = Series::new(INVALID, Metric::Gauge, Form::Float);
    vec![Series { help: INVALID_TOTAL_HELP.into(), ..total }, Series { help: INVALID_HELP.into(), at: 1, ..value }]
}

fn moving_series(has_average: bool, quantiles: &[f64]) -> Vec<Series> {
    let gauge =
        |at, name, help: &str| Series { help: help.into(), at, ..Series::new(name, Metric::Gauge, Form::Float) };
    let average = has_average.then(|| gauge(0, MOVING_AVERAGE, MOVING_AVERAGE_HELP));
    let quantile = |(at, quantile): (usize, &f64)| Series {
        labels: vec![("quantile".to_owned(), quantile.to_string())].into(),
        ..gauge(at + usize::from(has_average), MOVING_QUANTILE, MOVING_QUANTILE_HELP)
    };
    average.into_iter().chain(quantiles.iter().enumerate().map(quantile)).collect()
}

fn boot_series() -> Series {
    Series {
        unit: "seconds".into(),
        help: BOOT_TIME_HELP.into(),
        resolution_ns: 1_000_000_000,
        ..Series::new(BOOT_TIME, Metric::Gauge, Form::Float)
    }
}

/// Bytes of a series' name and labels, but for those that all series of the host have.
fn text_bytes(entry: &RegionEntry, name: &str, own: &BTreeMap<String, String>) -> u64 {
    let labels = entry.labels.iter().map(|(label, value)| label.len() + value.len());
    let own = own.iter().map(|(label, value)| label.len() + value.len());
    (name.len() + labels.chain(own).sum::<usize>()) as u64
}
