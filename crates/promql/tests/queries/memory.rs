// SPDX-License-Identifier: Apache-2.0
//! Series in memory, handed out in chunks of any size.

use std::collections::BTreeMap;
use std::sync::Arc;

use onlooker_promql::histogram::Histogram;
use onlooker_promql::labels::{Comparison, Labels, Matcher};
use onlooker_promql::limits::Budget;
use onlooker_promql::source::{Chunk, Chunks, Found, STALE, SeriesSource, SourceError, Span};
use regex::Regex;

use crate::histograms::hint;

/// ns in a millisecond.
pub(crate) const MS: i64 = 1_000_000;

#[derive(Clone, Debug)]
pub(crate) enum Sample {
    Float(f64),
    Histogram(Arc<Histogram>),
}

impl From<f64> for Sample {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Memory {
    series: BTreeMap<Labels, Vec<(i64, Sample)>>,
    /// Samples a chunk.
    chunk: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self::of_chunks(120)
    }
}

impl Memory {
    /// Hands out so many samples a chunk.
    pub(crate) fn of_chunks(chunk: usize) -> Self {
        Self { series: BTreeMap::new(), chunk }
    }

    /// Times in ns. Of two samples of one time the later one counts.
    pub(crate) fn add(&mut self, labels: Labels, samples: impl IntoIterator<Item = (i64, impl Into<Sample>)>) {
        let own = self.series.entry(labels).or_default();
        for (time_ns, value) in samples {
            match own.binary_search_by_key(&time_ns, |(time_ns, _)| *time_ns) {
                Ok(at) => own[at].1 = value.into(),
                Err(at) => own.insert(at, (time_ns, value.into())),
            }
        }
    }
}

fn is_match(matcher: &Matcher, labels: &Labels) -> Result<bool, SourceError> {
    let value = labels.get(&matcher.name);
    let regex = || Regex::new(&format!("^(?s:{})$", matcher.value));
    Ok(match matcher.comparison {
        Comparison::Equal => value == matcher.value,
        Comparison::NotEqual => value != matcher.value,
        Comparison::Regex => regex()?.is_match(value),
        Comparison::NotRegex => !regex()?.is_match(value),
    })
}

impl SeriesSource for Memory {
    fn select(&self, matchers: &[Matcher], span: Span, budget: &Budget) -> Result<Vec<Found>, SourceError> {
        let mut found = Vec::new();
        for (key, (labels, samples)) in (0..).zip(&self.series) {
            let mut all = true;
            for matcher in matchers {
                all &= is_match(matcher, labels)?;
            }
            let inside = samples.iter().any(|(time_ns, _)| (span.after_ns + 1..=span.until_ns).contains(time_ns));
            if all && inside {
                budget.series(found.len() + 1)?;
                found.push(Found { key, labels: labels.clone() });
            }
        }
        Ok(found)
    }

    fn read<'a>(&'a self, key: u64, span: Span) -> Result<Box<dyn Chunks + 'a>, SourceError> {
        let samples = self.series.values().nth(usize::try_from(key)?).ok_or("no such series")?;
        let begin = samples.partition_point(|(time_ns, _)| *time_ns <= span.after_ns);
        let end = samples.partition_point(|(time_ns, _)| *time_ns <= span.until_ns);
        let rest = samples.get(begin..end).unwrap_or_default();
        let before = before(&samples[..begin.min(samples.len())]);
        Ok(Box::new(Reading { rest, before, chunk: self.chunk, ..Reading::default() }))
    }
}

/// The histogram right before what is read.
fn before(samples: &[(i64, Sample)]) -> Option<&Histogram> {
    if let Some((_, Sample::Histogram(histogram))) = samples.last() { Some(histogram) } else { None }
}

#[derive(Default)]
struct Reading<'a> {
    rest: &'a [(i64, Sample)],
    before: Option<&'a Histogram>,
    chunk: usize,
    times_ns: Vec<i64>,
    values: Vec<f64>,
    histograms: Vec<Option<Arc<Histogram>>>,
}

impl<'a> Reading<'a> {
    fn append(&mut self, sample: &'a Sample) {
        let histogram = match sample {
            Sample::Float(_) => None,
            Sample::Histogram(own) => {
                let hint = hint(self.before, own);
                self.before = Some(own);
                Some(Arc::new(Histogram { hint, ..Histogram::clone(own) }))
            }
        };
        if let Sample::Float(_) = sample {
            self.before = None;
        }
        self.values.push(if let Sample::Float(value) = sample { *value } else { STALE });
        self.histograms.push(histogram);
    }
}

impl Chunks for Reading<'_> {
    fn next(&mut self) -> Result<Option<Chunk<'_>>, SourceError> {
        let (now, rest) = self.rest.split_at(self.chunk.min(self.rest.len()));
        self.rest = rest;
        self.times_ns = now.iter().map(|(time_ns, _)| *time_ns).collect();
        self.values.clear();
        self.histograms.clear();
        now.iter().for_each(|(_, sample)| self.append(sample));
        if self.histograms.iter().all(Option::is_none) {
            self.histograms.clear();
        }
        let (values, histograms) = (&self.values, &self.histograms);
        Ok((!now.is_empty()).then_some(Chunk { times_ns: &self.times_ns, values, histograms }))
    }
}
