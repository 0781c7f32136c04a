// SPDX-License-Identifier: Apache-2.0
//! What one of our series is to Prometheus: itself, or as many series as a classic histogram has, and a native one.

use std::sync::Arc;

use onlooker_framestore::Run;
use onlooker_region::number::Scale;
use onlooker_series::exposition::bounds;
use onlooker_series::series::{Form, Series};

use crate::native::Native;

/// Endings of the names of a histogram's series.
const BUCKET: &str = "_bucket";
const SUM: &str = "_sum";
const COUNT: &str = "_count";

/// One series of Prometheus.
#[derive(Clone, Debug)]
pub(crate) struct Exported {
    pub(crate) name: String,
    /// Of a bucket its upper bound.
    pub(crate) le: Option<String>,
    /// Words of the row that it takes.
    pub(crate) words: std::ops::Range<usize>,
    pub(crate) reading: Reading,
}

/// What the words make.
#[derive(Clone, Debug)]
pub(crate) enum Reading {
    /// An info: 1.
    One,
    /// A float, bit by bit: it may be a stale marker.
    Recorded,
    /// A number, and its scale.
    Number(Form, Scale),
    /// So many observations as there are in all these buckets.
    Counts,
    /// A whole histogram; [`crate::native`] makes it.
    Native(Arc<Native>),
}

impl Reading {
    pub(crate) fn value(&self, words: &[u64]) -> f64 {
        let word = words.first().copied().unwrap_or_default();
        match self {
            Self::Recorded => f64::from_bits(word),
            Self::One | Self::Number(Form::Text, _) => 1.0,
            Self::Number(Form::Signed, scale) => scale.of(word.cast_signed() as f64),
            Self::Number(Form::Float, scale) => scale.of(f64::from_bits(word)),
            Self::Number(Form::Unsigned | Form::Histogram(_), scale) => scale.of(word as f64),
            Self::Counts | Self::Native(..) => words.iter().fold(0u64, |all, count| all.wrapping_add(*count)) as f64,
        }
    }

    /// The same of rows whose first `count` words are the series'.
    pub(crate) fn values(&self, run: &Run<'_>, count: usize) -> Vec<f64> {
        let words = run.word(0).iter().copied();
        match self {
            Self::Recorded => words.map(f64::from_bits).collect(),
            Self::One | Self::Number(Form::Text, _) => vec![1.0; run.times_ns.len()],
            Self::Number(Form::Signed, scale) => words.map(|word| scale.of(word.cast_signed() as f64)).collect(),
            Self::Number(Form::Float, scale) => words.map(|word| scale.of(f64::from_bits(word))).collect(),
            Self::Number(Form::Unsigned | Form::Histogram(_), scale) => {
                words.map(|word| scale.of(word as f64)).collect()
            }
            Self::Counts | Self::Native(..) => {
                let mut all: Vec<u64> = words.collect();
                for number in 1..count {
                    let counts = run.word(number);
                    all.iter_mut().zip(counts).for_each(|(all, count)| *all = all.wrapping_add(*count));
                }
                all.into_iter().map(|count| count as f64).collect()
            }
        }
    }
}

/// All names that a series of ours which is called `name` may have in Prometheus, whatever its form.
pub(crate) fn possible_names(name: &str) -> [String; 4] {
    ["", BUCKET, SUM, COUNT].map(|end| format!("{name}{end}"))
}

/// Calls `visit` with each name that a series has in Prometheus.
pub(crate) fn each_name(series: &Series, mut visit: impl FnMut(&str)) {
    match series.form {
        Form::Histogram(_) => [BUCKET, SUM, COUNT].iter().for_each(|end| visit(&format!("{}{end}", series.name))),
        _ => visit(&series.name),
    }
}

/// All that a series is beside a native histogram; words count from the row's first.
pub(crate) fn exported(series: &Series) -> Vec<Exported> {
    let (name, at) = (&*series.name, series.at);
    let Form::Histogram(shape) = series.form else {
        let number = || Reading::Number(series.form, Scale::new(series.scale));
        let reading = if series.form == Form::Text { Reading::One } else { number() };
        return vec![Exported { name: name.to_owned(), le: None, words: at..at + series.form.words(), reading }];
    };
    let of = |end: &str, le, words, reading| Exported { name: format!("{name}{end}"), le, words, reading };
    let buckets = bounds(shape, series.scale).into_iter();
    let buckets = buckets.map(|(le, count)| of(BUCKET, Some(le), at..at + count, Reading::Counts));
    let end = at + shape.buckets();
    buckets
        .chain([
            of(SUM, None, end..end + 1, Reading::Number(Form::Unsigned, Scale::new(series.scale))),
            of(COUNT, None, at..end, Reading::Counts),
        ])
        .collect()
}

/// The native histogram that a series is.
pub(crate) fn native(series: &Series) -> Option<Exported> {
    let Form::Histogram(shape) = series.form else { return None };
    let reading = Reading::Native(Native::Region { shape, scale: series.scale }.into());
    let words = series.at..series.at + series.form.words();
    Some(Exported { name: series.name.to_string(), le: None, words, reading })
}
