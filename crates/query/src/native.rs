// SPDX-License-Identifier: Apache-2.0
//! Histograms of regions as PromQL's native ones: all their buckets, which keep the bounds that they have.

use std::sync::Arc;

use onlooker_promql::histogram::{Buckets, Hint, Histogram, Scale};
use onlooker_promql::source::STALE;
use onlooker_region::columns::Value;
use onlooker_region::histogram::Shape;
use onlooker_region::number::exported;

/// Histograms that rows were made of, by their numbers.
pub(crate) struct Natives {
    scale: f64,
    /// Upper bounds; the last bucket has none.
    bounds: Arc<[f64]>,
    made: Vec<Arc<Histogram>>,
}

impl Natives {
    pub(crate) fn new(shape: Shape, scale: f64) -> Self {
        #[allow(clippy::cast_precision_loss)] // a bound is as exact as a double is
        let bound = |bucket: usize| exported(shape.range(bucket).1 as f64, scale);
        Self { scale, bounds: (0..shape.buckets() - 1).map(bound).collect(), made: Vec::new() }
    }

    /// Makes one of a row's words, the counts and the sum. Returns its number, in the bits of a value.
    pub(crate) fn put(&mut self, words: &[u64]) -> f64 {
        let (counts, sum) = words.split_at(words.len().min(self.bounds.len() + 1));
        let count = |words: u64| Value::U64(words).scaled(1.0);
        let buckets = (0..).zip(counts).filter(|(_, observed)| **observed > 0);
        let positive: Buckets = buckets.map(|(number, observed)| (number, count(*observed))).collect();
        self.made.push(Arc::new(Histogram {
            scale: Scale::Custom(self.bounds.clone()),
            count: count(counts.iter().fold(0, |all, observed| all.wrapping_add(*observed))),
            sum: Value::U64(sum.first().copied().unwrap_or_default()).scaled(self.scale),
            zero_count: 0.0,
            positive,
            negative: Vec::new(),
            hint: Hint::Unknown,
        }));
        f64::from_bits(self.made.len() as u64 - 1)
    }

    /// The one of this number; an end has none.
    pub(crate) fn get(&self, number: f64) -> Option<&Arc<Histogram>> {
        usize::try_from(number.to_bits())
            .ok()
            .filter(|_| number.to_bits() != STALE.to_bits())
            .and_then(|at| self.made.get(at))
    }

    pub(crate) fn clear(&mut self) {
        self.made.clear();
    }
}
