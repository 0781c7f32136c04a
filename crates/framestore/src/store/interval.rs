// SPDX-License-Identifier: Apache-2.0
//! How far apart the rows of a track are. Queries must know before they say that a host has fallen silent.
//!
//! Each query asks it of each track, and an answer takes all times of hours of rows. So answers are kept, for all queries,
//! until there are an eighth more rows or fewer: by then other distances can hardly have become the most frequent ones.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Mutex;

use super::decoded::Decoded;
use super::visit::{Columns, Sample};
use super::{Store, lock};
use crate::damage::StoreError;
use crate::types::{Line, TrackId};

/// Answers that are kept; with one more all are forgotten. 50 bytes each.
const MOST: usize = 1 << 18;
/// An answer stands until so many of its rows have come or gone: one in so many.
const STANDS: u64 = 8;

/// By track and time.
#[derive(Default)]
pub(super) struct Intervals(Mutex<HashMap<(TrackId, u64, u64), Interval>>);

#[derive(Clone, Copy)]
struct Interval {
    rows: u64,
    middle_ns: u64,
}

impl Store {
    /// Time between two rows of a track without lines, of its raw rows between two times (UTC ns, both included): half
    /// of the distances are not longer. `None`: there are fewer than two rows.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn interval_ns(
        &self,
        decoded: &Decoded,
        track: TrackId,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<Option<u64>, StoreError> {
        let Some(rows) = self.extent_between(track, from_ns, to_ns).map(|extent| extent.rows) else { return Ok(None) };
        let (key, intervals) = ((track, from_ns, to_ns), &self.0.intervals.0);
        let known = lock(intervals).get(&key).copied();
        if let Some(Interval { middle_ns, .. }) = known.filter(|known| known.rows.abs_diff(rows) <= known.rows / STANDS)
        {
            return Ok(Some(middle_ns));
        }
        let columns = Columns { track, line: Line::ONLY, part: 0, time: None, words: Vec::new() };
        let (mut before_ns, mut distances_ns) = (None, Vec::new());
        self.read_decoded(decoded, &columns, from_ns, to_ns, &mut |row: &Sample<'_>| {
            if row.bucket.is_none() {
                let before_ns = before_ns.replace(row.time_ns);
                distances_ns.extend(before_ns.map(|before_ns: u64| row.time_ns.saturating_sub(before_ns)));
            }
            ControlFlow::Continue(())
        })?;
        let middle = distances_ns.len() / 2;
        if distances_ns.is_empty() {
            return Ok(None);
        }
        let middle_ns = *distances_ns.select_nth_unstable(middle).1;
        let mut all = lock(intervals);
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(key, Interval { rows, middle_ns });
        Ok(Some(middle_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{World, description};
    use super::*;

    #[test]
    fn the_distance_in_the_middle_is_that_of_most_rows() {
        let mut world = World::new();
        let track = world.appender().track(&description("a", false), 1_000_000_000).unwrap();
        let mut time_ns = 1_000_000_000;
        let mut append = |world: &mut World, rows: usize, distance_ns: u64| {
            for _ in 0..rows {
                time_ns += distance_ns;
                world.appender().append(track, Line::ONLY, time_ns, &[time_ns, 0, 0, time_ns, 0, 0]).unwrap();
            }
            world.turn();
            world.store().interval_ns(&Decoded::new(1 << 20), track, 0, u64::MAX).unwrap()
        };
        assert_eq!(append(&mut world, 1, 1), None);
        assert_eq!(append(&mut world, 1, 20), Some(20));
        // A pause, and more rows.
        assert_eq!(append(&mut world, 1, 5_000), Some(5_000));
        assert_eq!(append(&mut world, 900, 20), Some(20));
        // The answer stands, and is looked for again when others may have become the most.
        assert_eq!(append(&mut world, 100, 70), Some(20));
        assert_eq!(append(&mut world, 900, 70), Some(70));
    }
}
