// SPDX-License-Identifier: Apache-2.0
//! The last values of a series, in order of time and of size.
//!
//! Cost: to push one is a search and a move of half of them; a quantile is a look, the median deviation a walk from the
//! median outwards over half of them.

/// Of a fixed length.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// In the order of time; the oldest is at `next` once it is full.
    ring: Vec<f64>,
    next: usize,
    sorted: Vec<f64>,
    length: usize,
}

impl Window {
    pub(crate) fn new(length: usize) -> Self {
        Self { ring: Vec::new(), next: 0, sorted: Vec::new(), length }
    }

    /// Takes a value that is a number.
    pub(crate) fn push(&mut self, value: f64) {
        let Self { ring, next, sorted, length } = self;
        if ring.len() < *length {
            ring.push(value);
        } else {
            let old = std::mem::replace(&mut ring[*next], value);
            *next = (*next + 1) % *length;
            sorted.remove(sorted.partition_point(|one| one.total_cmp(&old).is_lt()));
        }
        sorted.insert(sorted.partition_point(|one| one.total_cmp(&value).is_lt()), value);
    }

    /// Whether it has enough to say what is usual.
    pub(crate) fn is_half_full(&self) -> bool {
        2 * self.sorted.len() >= self.length
    }

    /// Between the values, as PromQL's `quantile_over_time`; `None` of none.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<f64> {
        let last = self.sorted.len().checked_sub(1)?;
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // 1,024 at most, and not less than 0
        let (rank, below) = (quantile * last as f64, (quantile * last as f64) as usize);
        #[allow(clippy::cast_precision_loss)] // as before
        let share = rank - below as f64;
        Some(self.sorted[below] * (1.0 - share) + self.sorted[(below + 1).min(last)] * share)
    }

    /// Median, and median of the distances from it.
    pub(crate) fn median_and_deviation(&self) -> Option<(f64, f64)> {
        let median = self.quantile(0.5)?;
        let (mut below, mut above) = {
            let at = self.sorted.partition_point(|one| *one < median);
            (self.sorted[..at].iter().rev().peekable(), self.sorted[at..].iter().peekable())
        };
        let mut nearest = || {
            let distances = (below.peek().map(|one| median - **one), above.peek().map(|one| **one - median));
            match distances {
                (Some(low), Some(high)) if low < high => below.next().map(|_| low),
                (_, Some(high)) => above.next().map(|_| high),
                (low, None) => below.next().and(low),
            }
        };
        let count = self.sorted.len();
        let mut before = 0.0;
        for _ in 0..count.div_ceil(2) {
            before = nearest()?;
        }
        let deviation = if count.is_multiple_of(2) { before.midpoint(nearest()?) } else { before };
        Some((median, deviation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        if values.len() % 2 == 1 { values[middle] } else { values[middle - 1].midpoint(values[middle]) }
    }

    #[test]
    fn medians_are_those_of_the_last_values() {
        bolero::check!().with_type::<(u8, Vec<i16>)>().for_each(|(length, values)| {
            let length = usize::from(*length).max(3);
            let mut window = Window::new(length);
            for (at, value) in values.iter().enumerate() {
                window.push(f64::from(*value));
                let last = &values[(at + 1).saturating_sub(length)..=at];
                let last: Vec<f64> = last.iter().map(|value| f64::from(*value)).collect();
                let expected = median(last.clone());
                let deviation = median(last.iter().map(|value| (value - expected).abs()).collect());
                assert_eq!(window.median_and_deviation(), Some((expected, deviation)), "{last:?}");
                assert_eq!(window.quantile(1.0), last.iter().copied().reduce(f64::max));
            }
        });
    }

    #[test]
    fn an_empty_window_says_nothing() {
        let window = Window::new(3);
        assert_eq!((window.quantile(0.5), window.median_and_deviation()), (None, None));
        assert!(!window.is_half_full());
    }
}
