// SPDX-License-Identifier: Apache-2.0
//! Which buckets the histograms of a recorded line have: told once, as the line's label, so that its rows are counts.

use std::fmt::Write as _;
use std::sync::Arc;

use onlooker_promql::histogram::{Buckets, Hint, Histogram, Scale};
use onlooker_promql::source::STALE;
use onlooker_region::histogram::Shape;
use onlooker_region::number::exported;

/// Words of a row before the buckets: count, sum, count of the bucket of zero, hint.
const FRONT: usize = 4;
/// Words of a row at most, and buckets of a histogram.
pub(crate) const WIDEST: usize = 8_192;
pub(crate) const MOST: usize = WIDEST - FRONT;
const HINTS: [(Hint, f64); 4] = [(Hint::Unknown, 0.0), (Hint::Reset, 1.0), (Hint::NotReset, 2.0), (Hint::Gauge, 3.0)];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Structure {
    scale: Scale,
    /// Numbers of buckets, which rise.
    positive: Vec<i32>,
    negative: Vec<i32>,
}

fn numbers(buckets: &Buckets) -> Vec<i32> {
    buckets.iter().map(|(number, _)| *number).collect()
}

/// All numbers of both, in order.
fn joined(one: &[i32], other: &[i32]) -> Vec<i32> {
    let mut all = [one, other].concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// Runs of numbers that follow one another, as `first+more`.
fn put_runs(out: &mut String, numbers: &[i32]) {
    for run in numbers.chunk_by(|one, next| one + 1 == *next) {
        let _ = write!(out, ",{}+{}", run[0], run.len() - 1);
    }
}

fn runs(text: &str) -> Option<Vec<i32>> {
    let mut all = Vec::new();
    for run in text.split(',').filter(|run| !run.is_empty()) {
        let (first, more) = run.split_once('+')?;
        let (first, more): (i32, u16) = (first.parse().ok()?, more.parse().ok()?);
        all.extend(first..=first.checked_add(more.into())?);
        if all.len() > MOST {
            return None;
        }
    }
    Some(all)
}

fn bits(text: &str) -> Option<f64> {
    u64::from_str_radix(text, 16).ok().map(f64::from_bits)
}

/// Upper bounds of a region's buckets; the last one has none.
pub(crate) fn bounds(shape: Shape, scale: f64) -> Arc<[f64]> {
    #[allow(clippy::cast_precision_loss)] // a bound is as exact as a double is
    let bound = |bucket: usize| exported(shape.range(bucket).1 as f64, scale);
    (0..shape.buckets() - 1).map(bound).collect()
}

/// The shape and scale of a region's histogram with these bounds.
fn shape_of(own: &[f64]) -> Option<(Shape, f64)> {
    let (buckets, scale) = (own.len() + 1, *own.get(1)?);
    let shapes = (0..12u8).filter_map(|grouping_power| {
        let powers = buckets >> grouping_power;
        let max_power = u8::try_from(powers.checked_sub(1)? + usize::from(grouping_power)).ok()?;
        Some(Shape { grouping_power, max_power }).filter(|shape| shape.is_valid() && shape.buckets() == buckets)
    });
    let mut shapes = shapes.filter(|shape| bounds(*shape, scale).iter().eq(own));
    shapes.next().map(|shape| (shape, scale))
}

impl Structure {
    /// That of a histogram, with all buckets that a line had before, if it can have them.
    pub(crate) fn of(histogram: &Histogram, before: Option<&Self>) -> Self {
        let (scale, before) = (histogram.scale.clone(), before.filter(|before| before.scale == histogram.scale));
        let [had_positive, had_negative]: [&[i32]; 2] =
            before.map_or([&[], &[]], |before| [&before.positive, &before.negative]);
        let positive = joined(had_positive, &numbers(&histogram.positive));
        Self { scale, positive, negative: joined(had_negative, &numbers(&histogram.negative)) }
    }

    /// Whether a histogram has no other buckets.
    pub(crate) fn holds(&self, histogram: &Histogram) -> bool {
        let is_in = |own: &[i32], of: &Buckets| of.iter().all(|(number, _)| own.binary_search(number).is_ok());
        let Self { scale, positive, negative } = self;
        *scale == histogram.scale && is_in(positive, &histogram.positive) && is_in(negative, &histogram.negative)
    }

    pub(crate) fn words(&self) -> usize {
        FRONT + self.positive.len() + self.negative.len()
    }

    /// A histogram's row.
    pub(crate) fn row(&self, histogram: &Histogram) -> Vec<u64> {
        let hint = HINTS.iter().find(|(hint, _)| *hint == histogram.hint).map_or(0.0, |(_, number)| *number);
        let front = [histogram.count, histogram.sum, histogram.zero_count, hint].map(f64::to_bits);
        let counts = |own: &[i32], of: &Buckets| -> Vec<u64> {
            let count = |number| of.binary_search_by_key(number, |(number, _)| *number).map_or(0.0, |at| of[at].1);
            own.iter().map(|number| count(number).to_bits()).collect()
        };
        let buckets = [counts(&self.positive, &histogram.positive), counts(&self.negative, &histogram.negative)];
        front.into_iter().chain(buckets.concat()).collect()
    }

    /// The histogram of a row; `None`: it has ended.
    pub(crate) fn histogram(&self, row: &[u64]) -> Option<Histogram> {
        let [count, sum, zero_count, hint, counts @ ..] = row else { return None };
        let (positive, negative) = counts.split_at_checked(self.positive.len())?;
        let filled = |own: &[i32], of: &[u64]| -> Buckets {
            let all = own.iter().copied().zip(of.iter().copied().map(f64::from_bits));
            all.filter(|(_, count)| *count != 0.0).collect()
        };
        (*count != STALE.to_bits()).then(|| Histogram {
            scale: self.scale.clone(),
            count: f64::from_bits(*count),
            sum: f64::from_bits(*sum),
            zero_count: f64::from_bits(*zero_count),
            positive: filled(&self.positive, positive),
            negative: filled(&self.negative, negative),
            hint: HINTS.iter().find(|(_, number)| number.to_bits() == *hint).map_or(Hint::Unknown, |(hint, _)| *hint),
        })
    }

    /// As a label's value.
    pub(crate) fn text(&self) -> String {
        let mut out = match &self.scale {
            Scale::Exponential { schema, zero_threshold } => format!("e,{schema},{:x}", zero_threshold.to_bits()),
            Scale::Custom(bounds) => match shape_of(bounds) {
                Some((Shape { grouping_power, max_power }, scale)) => {
                    format!("r,{grouping_power},{max_power},{:x}", scale.to_bits())
                }
                None => bounds.iter().fold("c".to_owned(), |all, bound| format!("{all},{:x}", bound.to_bits())),
            },
        };
        for numbers in [&self.positive, &self.negative] {
            out.push('/');
            put_runs(&mut out, numbers);
        }
        out
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let [scale, positive, negative] = text.split('/').collect::<Vec<_>>().try_into().ok()?;
        let (kind, scale) = scale.split_once(',').unwrap_or((scale, ""));
        let parts: Vec<&str> = scale.split(',').filter(|part| !part.is_empty()).collect();
        let scale = match (kind, &parts[..]) {
            ("e", [schema, threshold]) => {
                Scale::Exponential { schema: schema.parse().ok()?, zero_threshold: bits(threshold)? }
            }
            ("r", [grouping_power, max_power, scale]) => {
                let (grouping_power, max_power) = (grouping_power.parse().ok()?, max_power.parse().ok()?);
                let shape = Some(Shape { grouping_power, max_power }).filter(|shape| shape.is_valid())?;
                Scale::Custom(bounds(shape, bits(scale)?))
            }
            ("c", all) => Scale::Custom(all.iter().map(|bound| bits(bound)).collect::<Option<Arc<[f64]>>>()?),
            _ => return None,
        };
        Some(Self { scale, positive: runs(positive)?, negative: runs(negative)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exponential() -> Histogram {
        Histogram {
            count: 12.5,
            sum: -3.25,
            zero_count: 2.0,
            positive: vec![(-3, 1.0), (-2, 4.0), (7, 0.5)],
            negative: vec![(0, 5.0)],
            hint: Hint::Gauge,
            ..Histogram::empty(Scale::Exponential { schema: 3, zero_threshold: 1e-128 })
        }
    }

    #[test]
    fn a_histogram_comes_back_as_it_was() {
        let custom = |bounds: &[f64]| Histogram {
            count: 3.0,
            positive: vec![(0, 1.0), (2, 2.0)],
            ..Histogram::empty(Scale::Custom(bounds.into()))
        };
        let region = bounds(Shape { grouping_power: 2, max_power: 40 }, 1e-9);
        let empty = Histogram::empty(Scale::Custom([].into()));
        for histogram in [exponential(), custom(&[0.5, 1.0]), custom(&region), empty] {
            let structure = Structure::of(&histogram, None);
            let text = structure.text();
            assert!(text.len() < 60, "{text}");
            let read = Structure::parse(&text).unwrap();
            assert_eq!(read, structure);
            assert_eq!(read.histogram(&structure.row(&histogram)), Some(histogram));
        }
        assert_eq!(Structure::of(&exponential(), None).text(), "e,3,255bba08cf8c979d/,-3+1,7+0/,0+0");
    }

    #[test]
    fn a_line_grows_by_the_buckets_that_come() {
        let before = Structure::of(&exponential(), None);
        let later = Histogram { positive: vec![(-2, 1.0), (5, 1.0)], negative: Vec::new(), ..exponential() };
        assert!(before.holds(&exponential()) && !before.holds(&later));
        let both = Structure::of(&later, Some(&before));
        assert_eq!((both.positive.as_slice(), both.negative.as_slice()), (&[-3, -2, 5, 7][..], &[0][..]));
        assert_eq!(both.histogram(&both.row(&later)), Some(later));
        // Other bounds have other buckets.
        let coarser = Histogram { scale: Scale::Exponential { schema: 2, zero_threshold: 1e-128 }, ..exponential() };
        assert_eq!(Structure::of(&coarser, Some(&before)), Structure::of(&coarser, None));
    }

    #[test]
    fn arbitrary_texts_are_none_or_a_structure() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Some(structure) = Structure::parse(text) {
                assert!(structure.histogram(&[]).is_none());
            }
        });
        for text in ["", "e,3,0", "e,x,0//", "e,3,0/,1/", "r,9,3,0//", "r,70,90,0//", "e,3,0/,2147483647+1/", "c,g//"] {
            assert_eq!(Structure::parse(text), None, "{text}");
        }
    }
}
