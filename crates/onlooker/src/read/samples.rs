// SPDX-License-Identifier: Apache-2.0
//! What was read, gathered for output, within limits of its own: a label is repeated for each sample, so a host could turn little memory into much text.

use super::is_wanted;
use onlooker_region::columns::{Sample, Value};
use onlooker_region::control::RegionEntry;
use onlooker_region::labels;
use onlooker_region::schema::Field;
use onlooker_transport::reader::Session;

/// Most samples of one reading.
const MAX_SAMPLES: usize = 1_000_000;
/// Most bytes of labels and values of one reading.
const MAX_SAMPLE_BYTES: usize = 256 << 20;

/// A sample with its labels.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) entry: &'a RegionEntry,
    pub(super) field: &'a Field,
    /// Sorted by name; without `value` of infos and `le` of histograms.
    pub(super) labels: Vec<(String, String)>,
    pub(super) value: Value,
    /// Acquisition time on the host's boot clock; `None`: the time of the READ.
    pub(super) time_ns: Option<u64>,
    /// When the READ was answered, the reader's steady clock.
    pub(super) answered_ns: u64,
    /// Row number and generation, in tables.
    pub(super) row: Option<(usize, u32)>,
}

/// One reading.
#[derive(Debug, Default)]
pub(super) struct Collected<'a> {
    pub(super) rows: Vec<Row<'a>>,
    /// Samples left out for the limits.
    pub(super) left_out: u64,
    bytes: usize,
}

/// The samples that match, by name, then in the directory's order.
pub(super) fn collect<'a>(session: &'a Session, patterns: &[String]) -> Collected<'a> {
    let mut collected = Collected::default();
    for frame in session.frames() {
        let answered_ns = frame.times_ns().1;
        frame.decode(|sample| {
            if is_wanted(patterns, &sample.field.name) {
                collected.take(frame.entry(), sample, answered_ns);
            }
        });
    }
    collected.rows.sort_by(|a, b| a.field.name.cmp(&b.field.name));
    collected
}

impl<'a> Collected<'a> {
    fn take(&mut self, entry: &'a RegionEntry, sample: Sample<'a>, answered_ns: u64) {
        if self.rows.len() >= MAX_SAMPLES || self.bytes >= MAX_SAMPLE_BYTES {
            self.left_out += 1;
            return;
        }
        let labels = labels::joined(&entry.labels, sample.labels(), labels::reserved(sample.field.metric));
        let value_bytes = match &sample.value {
            Value::Text(text) => text.len(),
            Value::Histogram { buckets, .. } => buckets.len() * 8,
            _ => 8,
        };
        self.bytes += value_bytes + labels.iter().map(|(name, value)| name.len() + value.len() + 48).sum::<usize>();
        self.rows.push(Row {
            entry,
            field: sample.field,
            labels,
            time_ns: sample.time_ns,
            answered_ns,
            row: sample.row.map(|row| (row.number, row.generation)),
            value: sample.value,
        });
    }

    /// Whether there is a sample of a metric.
    pub(super) fn has(&self, name: &str) -> bool {
        self.rows.binary_search_by(|row| row.field.name.as_str().cmp(name)).is_ok()
    }
}
