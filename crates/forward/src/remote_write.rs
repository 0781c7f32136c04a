// SPDX-License-Identifier: Apache-2.0
//! Prometheus remote write, versions 1.0 and 2.0: snappy's block format around one protobuf message.
//!
//! - 1.0 (prometheus.io/docs/specs/prw/remote_write_spec): `WriteRequest`; each series has its labels as texts. What a
//!   metric is stands beside the series, once for each that a body is the first to name.
//! - 2.0 (.../remote_write_spec_2_0): `Request`; texts stand in one table, and series refer to them. What a metric is
//!   stands with each series.
//!
//! Both want the labels of a series sorted by name. Times are ms; a nanosecond's fraction is cut off.

use std::collections::HashMap;

use onlooker_region::schema::Metric;

use crate::family::Family;
use crate::naming::Pairs;
use crate::protobuf::{bytes, double, number, sized, take_bytes, varint};

const NS_A_MS: i64 = 1_000_000;

/// The fields of a series' labels, as 1.0 has them.
pub(crate) fn labels(pairs: &Pairs) -> Box<[u8]> {
    let (mut out, mut label) = (Vec::new(), Vec::new());
    for (name, value) in pairs {
        label.clear();
        bytes(&mut label, 1, name.as_bytes());
        bytes(&mut label, 2, value.as_bytes());
        bytes(&mut out, 1, &label);
    }
    out.into()
}

/// `Sample` of both versions.
fn samples(out: &mut Vec<u8>, samples: impl Iterator<Item = (i64, f64)>) -> u64 {
    let (mut sample, mut count) = (Vec::with_capacity(20), 0);
    for (time_ns, value) in samples {
        sample.clear();
        double(&mut sample, 1, value);
        number(&mut sample, 2, time_ns.div_euclid(NS_A_MS).cast_unsigned());
        bytes(out, 2, &sample);
        count += 1;
    }
    count
}

/// `MetricType`: the same numbers in both.
fn metric_type(metric: Metric) -> u64 {
    match metric {
        Metric::Counter => 1,
        Metric::Gauge => 2,
        Metric::Histogram => 3,
        Metric::Info => 6,
    }
}

/// Appends a `TimeSeries` of 1.0; returns its samples.
pub(crate) fn push_1(
    out: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
    key: &[u8],
    of: impl Iterator<Item = (i64, f64)>,
) -> u64 {
    scratch.clear();
    let count = samples(scratch, of);
    sized(out, 1, key.len() + scratch.len());
    out.extend_from_slice(key);
    out.extend_from_slice(scratch);
    count
}

/// Appends a `MetricMetadata` of 1.0.
pub(crate) fn push_metadata(out: &mut Vec<u8>, family: &Family) {
    let mut metadata = Vec::new();
    number(&mut metadata, 1, metric_type(family.metric));
    bytes(&mut metadata, 2, family.name.as_bytes());
    bytes(&mut metadata, 4, family.help.as_bytes());
    bytes(&mut metadata, 5, family.unit.as_bytes());
    bytes(out, 3, &metadata);
}

/// The texts of a `Request` of 2.0. The first is empty.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    numbers: HashMap<Box<[u8]>, u64>,
    /// Fields, but for the first text's.
    encoded: Vec<u8>,
}

impl Symbols {
    fn number(&mut self, text: &[u8]) -> u64 {
        if text.is_empty() {
            return 0;
        }
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.numbers.len() as u64 + 1;
        self.numbers.insert(text.into(), number);
        bytes(&mut self.encoded, 4, text);
        number
    }

    pub(crate) fn bytes(&self) -> usize {
        self.encoded.len()
    }

    /// Puts the table before the series.
    pub(crate) fn finish(&mut self, series: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded.len() + series.len() + 2);
        bytes(&mut out, 4, &[]);
        out.append(&mut self.encoded);
        out.extend_from_slice(series);
        self.numbers.clear();
        out
    }
}

/// Appends a `TimeSeries` of 2.0 whose labels are those of 1.0; returns its samples.
pub(crate) fn push_2(
    out: &mut Vec<u8>,
    symbols: &mut Symbols,
    mut key: &[u8],
    family: &Family,
    of: impl Iterator<Item = (i64, f64)>,
) -> u64 {
    let (mut refs, mut series) = (Vec::new(), Vec::new());
    while let Some(mut label) = take_bytes(&mut key) {
        while let Some(text) = take_bytes(&mut label) {
            varint(&mut refs, symbols.number(text));
        }
    }
    bytes(&mut series, 1, &refs);
    let count = samples(&mut series, of);
    let mut metadata = Vec::new();
    number(&mut metadata, 1, metric_type(family.metric));
    number(&mut metadata, 3, symbols.number(family.help.as_bytes()));
    number(&mut metadata, 4, symbols.number(family.unit.as_bytes()));
    bytes(&mut series, 5, &metadata);
    bytes(out, 5, &series);
    count
}
