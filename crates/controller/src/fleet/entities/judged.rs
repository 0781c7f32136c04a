// SPDX-License-Identifier: Apache-2.0
//! What became of samples that are judged, as series of their host: those that failed, moving averages, quantiles.
//!
//! A series that fails has a line for each reason, for [`KEPT_NS`] after the last time. Each failed sample is a row of it,
//! at the sample's time. What a host says decides how many there are, so there are [`MAX_LINES`]; what is beyond them has
//! a line of its reason without a metric.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onlooker_checks::{Failure, Now, Reason};
use onlooker_region::labels;
use onlooker_series::series::{EntityKey, Series};

use super::said::Said;
use super::{Acquired, Entities, Entity, Found, Named, News, OWN_KEY, OWN_REGION};

/// Group of samples that are not valid.
const INVALID: u32 = 1;
/// Of moving averages and quantiles.
const MOVING: u32 = 2;
/// Lines of a host: of failures, and of averages again.
const MAX_LINES: usize = 1000;
/// So long after its last sample a line of failures is there.
const KEPT_NS: u64 = 600_000_000_000;

/// Of a host.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// The reading's time.
    pub(super) now: Now,
    /// What failed in this reading.
    pub(super) failed: Vec<Failed>,
    /// What stands in the row instead: used within a row.
    pub(super) held: Vec<(usize, u64)>,
    /// By the series' texts and reasons; of no text what is beyond [`MAX_LINES`].
    lines: HashMap<(Arc<str>, Reason), Line>,
    /// How many have failed, by reason.
    totals: BTreeMap<&'static str, u64>,
    moving: Vec<Moving>,
    /// Number of the next line of either kind.
    next: u32,
}

/// A sample that failed, and whose it is.
#[derive(Debug)]
pub(super) struct Failed {
    series: Series,
    text: Arc<str>,
    failure: Failure,
}

impl Failed {
    pub(super) fn of(named: &Named, failure: Failure) -> Self {
        let of = failure.series;
        Self { series: named.series[of].clone(), text: named.texts[of].clone(), failure }
    }
}

#[derive(Debug)]
struct Line {
    number: u32,
    labels: Vec<(String, String)>,
    total: u64,
    last: Failure,
}

/// A series with a moving average or quantiles.
#[derive(Debug)]
struct Moving {
    number: u32,
    labels: Vec<(String, String)>,
    has_average: bool,
    quantiles: Box<[f64]>,
    /// Whose it is, and which of those that its entity has.
    of: EntityKey,
    at: usize,
}

impl Judged {
    /// An entity has come.
    pub(super) fn enter(&mut self, key: EntityKey, entity: &Entity, common: &BTreeMap<String, String>) {
        let Some(checked) = &entity.checked else { return };
        self.moving.retain(|moving| moving.of != key);
        for (at, (series, has_average, quantiles)) in checked.moving().enumerate() {
            if self.moving.len() >= MAX_LINES {
                return;
            }
            let labels = line_labels(&entity.named.series[series], None, common);
            let number = next(&mut self.next);
            self.moving.push(Moving { number, labels, has_average, quantiles: quantiles.into(), of: key, at });
        }
    }

    /// Enters what has failed.
    fn take_failed(&mut self, common: &BTreeMap<String, String>) {
        let Self { failed, lines, totals, next: next_number, .. } = self;
        for Failed { series, text, failure } in failed.drain(..) {
            let (mut key, reason) = ((text, failure.reason), failure.reason);
            *totals.entry(reason.text()).or_default() += 1;
            let mut of = Some(&series);
            if lines.len() >= MAX_LINES && !lines.contains_key(&key) {
                (key.0, of) = ("".into(), None);
            }
            let line = lines.entry(key).or_insert_with(|| {
                let labels = match of {
                    Some(series) => line_labels(series, Some(reason), common),
                    None => vec![reason_label(reason)],
                };
                Line { number: next(next_number), labels, total: 0, last: failure }
            });
            line.total += 1;
            line.last = failure;
        }
        let now_ns = self.now.utc_ns;
        lines.retain(|_, line| now_ns.saturating_sub(line.last.time_ns) < KEPT_NS);
    }
}

fn next(number: &mut u32) -> u32 {
    *number += 1;
    *number
}

fn reason_label(reason: Reason) -> (String, String) {
    ("reason".to_owned(), reason.text().to_owned())
}

/// Labels of a line beside those that all series of the host have.
fn line_labels(series: &Series, reason: Option<Reason>, common: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let own = series.labels.iter().filter(|(name, value)| common.get(*name).is_none_or(|common| common != value));
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let metric = ("metric".to_owned(), series.name.to_string());
    let ours: Vec<_> = [metric].into_iter().chain(reason.map(reason_label)).collect();
    labels::joined(&ours, own, None)
}

fn own_key(group: u32, number: u32) -> EntityKey {
    EntityKey { group, row: Some((number, 0)), ..OWN_KEY }
}

impl Entities {
    /// An entity goes: what was to come of it does not.
    pub(super) fn miss(&mut self, key: EntityKey) {
        let Some(entity) = self.by_key.get_mut(&key) else { return };
        let Some(checked) = &mut entity.checked else { return };
        let (row, named) = (&self.words[entity.at..][..entity.width], &entity.named);
        let Judged { now, failed, .. } = &mut self.judged;
        checked.miss(row, entity.time_ns, *now, true, |failure| failed.push(Failed::of(named, failure)));
    }

    /// Samples that were not valid, by reason.
    #[must_use]
    pub fn invalid(&self) -> &BTreeMap<&'static str, u64> {
        &self.judged.totals
    }

    /// Takes what has become of the samples that were judged since the last time.
    pub(in crate::fleet) fn judged(&mut self, common: &BTreeMap<String, String>, tell: &mut impl FnMut(News<'_>)) {
        if self.judged.failed.is_empty() && self.judged.lines.is_empty() && self.judged.moving.is_empty() {
            return;
        }
        let mut judged = std::mem::take(&mut self.judged);
        judged.take_failed(common);
        for Line { number, labels, total, last } in judged.lines.values() {
            let acquired = Acquired { utc_ns: last.time_ns, stamp_ns: last.time_ns };
            let words = [*total, last.value.to_bits()];
            self.take_own(own_key(INVALID, *number), acquired, &words, &Said::Invalid(labels), common, tell);
        }
        let mut words = Vec::new();
        judged.moving.retain(|moving| {
            let Some(entity) = self.by_key.get(&moving.of) else { return false };
            let acquired = Acquired { utc_ns: entity.time_ns, stamp_ns: entity.stamp_ns };
            words.clear();
            let outputs = entity.checked.iter().flat_map(|checked| checked.outputs().nth(moving.at));
            words.extend(outputs.flatten().map(f64::to_bits));
            let said = Said::Moving(&moving.labels, moving.has_average, &moving.quantiles);
            self.take_own(own_key(MOVING, moving.number), acquired, &words, &said, common, tell);
            true
        });
        self.judged = judged;
    }

    pub(super) fn take_own(
        &mut self,
        key: EntityKey,
        acquired: Acquired,
        words: &[u64],
        said: &Said<'_, '_>,
        common: &BTreeMap<String, String>,
        tell: &mut impl FnMut(News<'_>),
    ) {
        let found = Found { key, region: OWN_REGION, labels: &[], series: said.own(), texts: 0, which: 0, acquired };
        self.take_one(&found, common, words, said, tell);
    }
}
