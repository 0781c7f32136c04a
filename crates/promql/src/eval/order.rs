// SPDX-License-Identifier: Apache-2.0
//! Sorting that can be stopped: of 100,000 series it takes longer than a cancelled query may.

use std::cmp::Ordering;

use crate::error::QueryError;
use crate::limits::Budget;

/// Items that are sorted between two looks.
const RUN: usize = 1 << 10;
/// What sorting one of a run costs, and merging one.
const SORT: usize = 20;
const MERGE: usize = 2;

/// Those that are equal stay in their order.
pub(crate) fn sorted<T>(
    mut items: Vec<T>,
    budget: &Budget,
    compare: &impl Fn(&T, &T) -> Ordering,
) -> Result<Vec<T>, QueryError> {
    if items.len() <= RUN {
        budget.work(items.len() * SORT)?;
        items.sort_by(compare);
        return Ok(items);
    }
    let mut merged = Vec::with_capacity(items.len());
    let right = items.split_off(items.len() / 2);
    let mut left = sorted(items, budget, compare)?.into_iter().peekable();
    let mut right = sorted(right, budget, compare)?.into_iter().peekable();
    loop {
        budget.work(MERGE)?;
        let is_right = match (left.peek(), right.peek()) {
            (Some(left), Some(right)) => compare(right, left).is_lt(),
            (left, _) => left.is_none(),
        };
        match if is_right { right.next() } else { left.next() } {
            Some(next) => merged.push(next),
            None => return Ok(merged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Cancel, Limits};

    #[test]
    fn it_sorts_as_sorting_does_until_it_is_stopped() {
        let cancel = Cancel::default();
        let budget = Budget::new(Limits::default(), cancel.clone(), None);
        let items: Vec<(u32, u32)> = (0..50_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) % 1_000, at)).collect();
        let compare = |a: &(u32, u32), b: &(u32, u32)| a.0.cmp(&b.0);
        let mut expected = items.clone();
        expected.sort_by(compare);
        assert_eq!(sorted(items.clone(), &budget, &compare).expect("sorted"), expected);
        cancel.cancel();
        assert!(matches!(sorted(items, &budget, &compare), Err(QueryError::Cancelled)));
    }
}
