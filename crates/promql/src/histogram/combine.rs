// SPDX-License-Identifier: Apache-2.0
//! Histograms with each other: what their buckets have in common decides which the result has.

use std::borrow::Cow;
use std::sync::Arc;

use super::bounds::{coarser, exponential, of};
use super::{Buckets, Hint, Histogram, Scale};
use crate::kahan::Number;

/// What was to be decided where two histograms differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Combined {
    /// One says that its counter began again, the other that it did not.
    pub(crate) is_collision: bool,
    /// Custom bounds differed: those of both were left.
    pub(crate) is_reconciled: bool,
}

/// Adds counts of buckets where they belong.
fn merge<N: Number>(own: &mut Buckets<N>, other: &Buckets<N>) {
    if other.is_empty() {
        return;
    }
    let mut merged = Vec::with_capacity(own.len().max(other.len()));
    let (mut left, mut right) = (own.iter().peekable(), other.iter().peekable());
    while let (Some((a, _)), Some((b, _))) = (left.peek(), right.peek()) {
        if a == b {
            if let (Some(&(number, mut count)), Some(&(_, other))) = (left.next(), right.next()) {
                count.add(other);
                merged.push((number, count));
            }
        } else {
            merged.extend(if a < b { left.next() } else { right.next() });
        }
    }
    merged.extend(left.chain(right));
    *own = merged;
}

/// Gives buckets other numbers, which rise as before, and adds up those that are now one.
fn renumber<N: Number>(buckets: &mut Buckets<N>, to: impl Fn(i32) -> i32) {
    buckets.iter_mut().for_each(|(number, _)| *number = to(*number));
    buckets.dedup_by(|next, kept| {
        let is_one = next.0 == kept.0;
        if is_one {
            kept.1.add(next.1);
        }
        is_one
    });
}

fn common(a: &[f64], b: &[f64]) -> Arc<[f64]> {
    // Both rise.
    let mut rest = b;
    let is_in_both = |bound: &&f64| {
        let less = rest.partition_point(|other| other < *bound);
        rest = &rest[less..];
        rest.first() == Some(*bound)
    };
    a.iter().filter(is_in_both).copied().collect()
}

impl<N: Number> Histogram<N> {
    /// Widens the bucket of zero so that no other one lies in it, not even in part. This may be further than asked for.
    fn widen_zero(&mut self, least: f64) {
        let Scale::Exponential { schema, zero_threshold } = &mut self.scale else { return };
        let mut threshold = least;
        loop {
            let cut = |buckets: &Buckets<N>| {
                let first = buckets.iter().find(|(number, _)| exponential(*number, *schema) > threshold)?;
                (exponential(first.0 - 1, *schema) < threshold).then(|| exponential(first.0, *schema))
            };
            match cut(&self.positive).into_iter().chain(cut(&self.negative)).reduce(f64::max) {
                Some(wider) => threshold = wider,
                None => break,
            }
        }
        *zero_threshold = threshold;
        for buckets in [&mut self.positive, &mut self.negative] {
            let inside = buckets.partition_point(|(number, _)| exponential(*number, *schema) <= threshold);
            buckets.drain(..inside).for_each(|(_, count)| self.zero_count.add(count));
        }
    }

    /// With wider buckets.
    pub(crate) fn reduce(&mut self, to: i8) {
        if let Scale::Exponential { schema, .. } = &mut self.scale
            && *schema > to
        {
            let from = std::mem::replace(schema, to);
            renumber(&mut self.positive, |number| coarser(number, from, to));
            renumber(&mut self.negative, |number| coarser(number, from, to));
        }
    }

    /// With these custom bounds, all of which are its own.
    fn with_bounds(&mut self, bounds: &Arc<[f64]>) {
        let scale = std::mem::replace(&mut self.scale, Scale::Custom(bounds.clone()));
        renumber(&mut self.positive, |number| {
            let upper = of(&scale, number).1;
            i32::try_from(bounds.partition_point(|bound| *bound < upper)).unwrap_or(i32::MAX)
        });
    }

    /// Adds one so many times. `None`: exponential buckets and such with bounds of their own have nothing in common.
    pub(crate) fn add(&mut self, other: &Histogram, times: f64) -> Option<Combined> {
        if self.is_custom() != other.is_custom() {
            return None;
        }
        let mut other = other.convert(|count| N::of(count * times));
        let is_collision = self.take_hint(other.hint);
        let is_reconciled = self.align(&mut other);
        self.count.add(other.count);
        self.sum.add(other.sum);
        self.zero_count.add(other.zero_count);
        merge(&mut self.positive, &other.positive);
        merge(&mut self.negative, &other.negative);
        self.drop_empty();
        Some(Combined { is_collision, is_reconciled })
    }

    /// Gives both the same buckets. Whether custom bounds differed.
    fn align(&mut self, other: &mut Self) -> bool {
        while self.zero_threshold() != other.zero_threshold() {
            let least = self.zero_threshold().max(other.zero_threshold());
            // The other one may only end there at the bounds of finer buckets than it has now.
            for one in [&mut *self, &mut *other].into_iter().filter(|one| one.zero_threshold() < least) {
                one.widen_zero(least);
            }
        }
        match (&self.scale, &other.scale) {
            (Scale::Exponential { schema: own, .. }, Scale::Exponential { schema: others, .. }) if own != others => {
                let schema = *own.min(others);
                self.reduce(schema);
                other.reduce(schema);
            }
            (Scale::Custom(own), Scale::Custom(others)) if own != others => {
                let bounds = common(own, others);
                self.with_bounds(&bounds);
                other.with_bounds(&bounds);
                return true;
            }
            _ => {}
        }
        false
    }

    /// What is known of a sum's counter. Whether the two contradict each other.
    fn take_hint(&mut self, other: Hint) -> bool {
        let own = self.hint;
        self.hint = match (own, other) {
            _ if own == other => own,
            (Hint::Gauge, _) | (_, Hint::Gauge) => Hint::Gauge,
            _ => Hint::Unknown,
        };
        matches!((own, other), (Hint::Reset, Hint::NotReset) | (Hint::NotReset, Hint::Reset))
    }
}

impl Histogram {
    /// With another one so many times, -1 for their difference. `None`: one has exponential buckets, the other bounds
    /// of its own.
    #[must_use]
    pub fn plus(&self, other: &Self, times: f64) -> Option<Self> {
        let mut sum = self.clone();
        sum.add(other, times)?;
        Some(sum)
    }

    /// Whether the counter began again between the sample before and this one.
    #[must_use]
    pub fn is_reset_after(&self, before: &Self) -> bool {
        match self.hint {
            Hint::Reset => return true,
            Hint::NotReset => return false,
            // Of a gauge this is asked, too: whoever asks warns of it.
            Hint::Unknown | Hint::Gauge => {}
        }
        if self.count < before.count {
            return true;
        }
        let (mut own, mut before) = (Cow::Borrowed(self), Cow::Borrowed(before));
        match (&self.scale, &before.scale) {
            (Scale::Custom(bounds), Scale::Custom(others)) => {
                if bounds != others {
                    own.to_mut().align(before.to_mut());
                }
            }
            (
                Scale::Exponential { schema, zero_threshold },
                Scale::Exponential { schema: other_schema, zero_threshold: other_threshold },
            ) => {
                // Neither becomes finer while a counter goes on.
                if schema > other_schema || zero_threshold < other_threshold {
                    return true;
                }
                let (is_wider, is_coarser) = (zero_threshold > other_threshold, schema < other_schema);
                if is_wider {
                    before.to_mut().widen_zero(*zero_threshold);
                    if before.zero_threshold() > *zero_threshold {
                        return true;
                    }
                }
                if is_coarser {
                    before.to_mut().reduce(*schema);
                }
            }
            _ => return true,
        }
        own.zero_count < before.zero_count
            || is_less(&own.positive, &before.positive)
            || is_less(&own.negative, &before.negative)
    }
}

/// Whether a bucket has less than before.
fn is_less(own: &Buckets, before: &Buckets) -> bool {
    let mut own = own.iter().peekable();
    before.iter().filter(|(_, count)| *count != 0.0).any(|(number, count)| {
        while own.next_if(|(other, _)| other < number).is_some() {}
        own.peek().filter(|(other, _)| other == number).is_none_or(|(_, left)| left < count)
    })
}
