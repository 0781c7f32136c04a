// SPDX-License-Identifier: Apache-2.0
//! Native histograms out of rows: a region's, with all its buckets, which keep the bounds that they have, and what rules
//! record.

use std::sync::Arc;

use onlooker_promql::histogram::{Buckets, Hint, Histogram, Scale};
use onlooker_promql::source::STALE;
use onlooker_region::columns::Value;
use onlooker_region::histogram::Shape;

use crate::structure::{Structure, bounds};

/// What rows' words are.
#[derive(Clone, Debug)]
pub(crate) enum Native {
    /// Counts of all buckets, and the sum.
    Region { shape: Shape, scale: f64 },
    /// A recorded one's.
    Recorded(Structure),
}

/// Histograms that rows were made of, by their numbers.
pub(crate) struct Natives {
    native: Arc<Native>,
    bounds: Arc<[f64]>,
    made: Vec<Arc<Histogram>>,
}

impl Natives {
    pub(crate) fn new(native: &Arc<Native>) -> Self {
        let bounds = if let Native::Region { shape, scale } = **native { bounds(shape, scale) } else { [].into() };
        Self { native: native.clone(), bounds, made: Vec::new() }
    }

    /// Makes one of a row's words. Returns its number, in the bits of a value, or [`STALE`].
    pub(crate) fn put(&mut self, words: &[u64]) -> f64 {
        let made = match &*self.native {
            Native::Region { scale, .. } => Some(of_region(&self.bounds, *scale, words)),
            Native::Recorded(structure) => words.get(..structure.words()).and_then(|row| structure.histogram(row)),
        };
        let Some(made) = made else { return STALE };
        self.made.push(Arc::new(made));
        f64::from_bits(self.made.len() as u64 - 1)
    }

    /// The one of this number; an end has none.
    pub(crate) fn get(&self, number: f64) -> Option<&Arc<Histogram>> {
        // No number is as large as the marker's bits are.
        usize::try_from(number.to_bits()).ok().and_then(|number| self.made.get(number))
    }

    pub(crate) fn clear(&mut self) {
        self.made.clear();
    }
}

fn of_region(bounds: &Arc<[f64]>, scale: f64, words: &[u64]) -> Histogram {
    let (counts, sum) = words.split_at(words.len().min(bounds.len() + 1));
    let count = |words: u64| Value::U64(words).scaled(1.0);
    let buckets = (0..).zip(counts).filter(|(_, observed)| **observed > 0);
    let positive: Buckets = buckets.map(|(number, observed)| (number, count(*observed))).collect();
    Histogram {
        scale: Scale::Custom(bounds.clone()),
        count: count(counts.iter().fold(0, |all, observed| all.wrapping_add(*observed))),
        sum: Value::U64(sum.first().copied().unwrap_or_default()).scaled(scale),
        zero_count: 0.0,
        positive,
        negative: Vec::new(),
        hint: Hint::Unknown,
    }
}
