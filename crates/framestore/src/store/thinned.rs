// SPDX-License-Identifier: Apache-2.0
//! Samples next to the lines of a grid, of chunks that queries read: found once for all queries.
//!
//! A dashboard asks every few seconds for windows that begin and end at whole seconds, or, of a day, at whole minutes.
//! Of rows that are 10 ms apart two of a hundred are at the edges of seconds; of rows that are 1 s apart two of sixty at
//! those of minutes. So these stay, with where the values fell in between, up to so many bytes. Who asks again does not
//! decode the column, nor its times.

use std::sync::{Arc, Mutex};

use super::decoded::Piece;
use super::lock;
use super::recent::Recent;
use super::visit::{Fall, Order, Thinned, Thinner};
use crate::damage::StoreError;
use crate::types::Line;
use crate::warm::Place;

/// Bytes of all columns; as many again, at most, of the times that they share.
const MOST_BYTES: usize = 32 << 20;
/// What an entry costs beside its words.
const ENTRY_BYTES: usize = 192;
/// One of so many samples may stay: where more are next to a line, nothing is.
const ONE_OF: usize = 4;
/// One of so many values may be less than the one before: else counters are read whole.
const FALLS_ONE_OF: usize = 16;

/// A chunk's arrival, the column that says when its values were acquired, and the grid.
type TimesKey = ((u32, u32), Option<usize>, u64);

/// Times of the samples that stay, of all columns that were acquired then.
pub(super) struct Times {
    /// When the first and the last row were.
    rows_ns: (u64, u64),
    max_distance_ns: u64,
    /// How long a row is after the sample that it has, at most.
    max_age_ns: u64,
    /// Which ones of all samples they are, and when they were acquired. Empty: too many would stay.
    numbers: Vec<u32>,
    acquired_ns: Vec<u64>,
}

/// The cell of the grid that a time is in, whose last ns is on a line.
fn cell(time_ns: u64, grid_ns: u64) -> u64 {
    time_ns.saturating_sub(1) / grid_ns
}

/// Rows with a sample, which is later than all before.
fn fresh(acquired_ns: &[u64]) -> Vec<u32> {
    let (mut newest_ns, mut rows) = (0, Vec::new());
    for (row, sample_ns) in (0..).zip(acquired_ns) {
        if *sample_ns > newest_ns {
            newest_ns = *sample_ns;
            rows.push(row);
        }
    }
    rows
}

impl Times {
    /// Of rows that rise, with when they were acquired. `None`: there are no rows.
    fn new(times_ns: &[u64], acquired_ns: &[u64], fresh: &[u32], max_distance_ns: u64, grid_ns: u64) -> Option<Self> {
        let rows_ns = (*times_ns.first()?, *times_ns.last()?);
        let mut newest_ns = 0;
        let max_age_ns = times_ns.iter().zip(acquired_ns).map(|(time_ns, sample_ns)| {
            newest_ns = newest_ns.max(*sample_ns);
            time_ns.saturating_sub(newest_ns)
        });
        let max_age_ns = max_age_ns.max().unwrap_or(0);
        let sample_ns = |number: usize| fresh.get(number).map(|row| acquired_ns[*row as usize]);
        let cell_of = |number: usize| sample_ns(number).map(|time_ns| cell(time_ns, grid_ns));
        let is_edge = |number: &usize| {
            let own = cell_of(*number);
            number.checked_sub(1).and_then(cell_of) != own || cell_of(number + 1) != own
        };
        let mut edges: Vec<usize> = (0..fresh.len()).filter(is_edge).collect();
        if edges.len() * ONE_OF > times_ns.len() {
            edges.clear();
        }
        let acquired_ns = edges.iter().copied().filter_map(sample_ns).collect();
        let numbers = edges.into_iter().map(|number| u32::try_from(number).unwrap_or(u32::MAX)).collect();
        Some(Self { rows_ns, max_distance_ns, max_age_ns, numbers, acquired_ns })
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + 4 * self.numbers.capacity() + 8 * self.acquired_ns.capacity()
    }
}

/// Values of a column.
pub(super) struct Column {
    times: Arc<Times>,
    words: Vec<u64>,
    /// `None`: there are many.
    falls: Option<Vec<Fall>>,
}

impl Column {
    fn new(times: &Arc<Times>, fresh: &[u32], words: &[u64], order: Order) -> Self {
        let most = fresh.len() / FALLS_ONE_OF;
        let mut falls = Vec::new();
        for (number, two) in (0..).zip(fresh.windows(2)) {
            let [before, after] = [two[0], two[1]].map(|row| words[row as usize]);
            if order.is_less(after, before) {
                falls.push(Fall { number, before, after });
            }
            if falls.len() > most {
                break;
            }
        }
        let falls = (falls.len() <= most).then_some(falls);
        let words = times.numbers.iter().map(|number| words[fresh[*number as usize] as usize]).collect();
        Self { times: times.clone(), words, falls }
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + 8 * self.words.capacity() + self.falls.as_ref().map_or(0, |falls| size_of_val(&falls[..]))
    }

    pub(super) fn thinned(&self) -> Thinned<'_> {
        let Self { times, words, falls } = self;
        let Times { rows_ns, max_distance_ns, max_age_ns, numbers, acquired_ns } = &**times;
        let (rows_ns, max_distance_ns, max_age_ns) = (*rows_ns, *max_distance_ns, *max_age_ns);
        Thinned { rows_ns, max_distance_ns, max_age_ns, numbers, acquired_ns, words, falls: falls.as_deref() }
    }
}

/// What was asked for last.
pub(super) struct Cache {
    times: Mutex<Recent<TimesKey, Arc<Times>>>,
    columns: Mutex<Recent<(TimesKey, usize, Order), Arc<Column>>>,
}

impl Default for Cache {
    fn default() -> Self {
        Self { times: Mutex::new(Recent::new(MOST_BYTES)), columns: Mutex::new(Recent::new(MOST_BYTES)) }
    }
}

impl Cache {
    /// Of a chunk that is no table's. `None`: its rows do not rise, or too many samples would stay.
    pub(super) fn of(
        &self,
        place: &Place,
        piece: &Piece,
        Thinner { word, time, order, grid_ns }: Thinner,
    ) -> Result<Option<Arc<Column>>, StoreError> {
        let of_times = (place.chunk().arrival(), time, grid_ns.max(1));
        let key = (of_times, word, order);
        if let Some(known) = lock(&self.columns).get(key) {
            return Ok(Some(known));
        }
        let times = lock(&self.times).get(of_times);
        if times.is_some_and(|times| times.numbers.is_empty()) {
            return Ok(None);
        }
        // Others do not wait until it is decoded.
        let column = self.decode(piece, of_times, word, order)?.map(Arc::new);
        if let Some(column) = &column {
            lock(&self.columns).keep(key, column, column.bytes());
        }
        Ok(column)
    }

    fn decode(&self, piece: &Piece, key: TimesKey, word: usize, order: Order) -> Result<Option<Column>, StoreError> {
        let Some(max_distance_ns) = piece.times().max_distance_ns(Line::ONLY) else { return Ok(None) };
        let times_ns = &piece.times().times_ns;
        let acquired = key.1.map(|time| piece.columns(&[time])).transpose()?.and_then(|mut columns| columns.pop());
        let acquired_ns = acquired.as_ref().map_or(&times_ns[..], |acquired| acquired.of(0..times_ns.len()));
        let fresh = fresh(acquired_ns);
        let Some(times) = Times::new(times_ns, acquired_ns, &fresh, max_distance_ns, key.2) else { return Ok(None) };
        let times = lock(&self.times).get(key).unwrap_or_else(|| times.into());
        lock(&self.times).keep(key, &times, times.bytes());
        if times.numbers.is_empty() {
            return Ok(None);
        }
        let words = piece.columns(&[word])?;
        Ok(words.first().map(|words| Column::new(&times, &fresh, words.of(0..times_ns.len()), order)))
    }
}

#[cfg(test)]
mod tests {
    use bolero::check;

    use super::*;
    use crate::types::SECOND_NS;

    /// Whatever rows have, each window between lines of the grid has the first and the last of its samples.
    #[test]
    fn edges_of_the_grid_stay() {
        check!().with_type::<(u8, Vec<(u8, u8, u8)>)>().for_each(|(grid, rows)| {
            let grid_ns = (1 + u64::from(grid % 4)) * SECOND_NS / 2;
            let (mut times_ns, mut acquired_ns, mut words, mut now_ns) =
                (Vec::new(), Vec::new(), Vec::new(), SECOND_NS);
            for (apart, age, word) in rows {
                now_ns += (1 + u64::from(apart % 8)) * SECOND_NS / 64;
                times_ns.push(now_ns);
                acquired_ns.push(now_ns - u64::from(age % 16) * SECOND_NS / 64);
                words.push(u64::from(*word));
            }
            let own = fresh(&acquired_ns);
            let Some(times) = Times::new(&times_ns, &acquired_ns, &own, 0, grid_ns) else {
                return assert!(rows.is_empty());
            };
            let fresh: Vec<(u64, u64)> =
                own.iter().map(|row| (acquired_ns[*row as usize], words[*row as usize])).collect();
            assert!(fresh.is_sorted_by(|one, next| one.0 < next.0));
            if times.numbers.is_empty() {
                return;
            }
            let column = Column::new(&times.into(), &own, &words, Order::Unsigned);
            let thinned = column.thinned();
            let kept: Vec<(u64, u64)> =
                thinned.acquired_ns.iter().copied().zip(thinned.words.iter().copied()).collect();
            for at_ns in (0..=now_ns / grid_ns + 1).map(|line| line * grid_ns) {
                let split = |all: &[(u64, u64)]| {
                    let at = all.partition_point(|(time_ns, _)| *time_ns <= at_ns);
                    (at.checked_sub(1).map(|at| all[at]), all.get(at).copied())
                };
                assert_eq!(split(&kept), split(&fresh));
            }
            for ((number, time_ns), word) in thinned.numbers.iter().zip(thinned.acquired_ns).zip(thinned.words) {
                assert_eq!(fresh[*number as usize], (*time_ns, *word));
            }
            let fell = fresh.windows(2).filter(|two| two[1].1 < two[0].1).count();
            match thinned.falls {
                Some(falls) => assert_eq!(falls.len(), fell),
                None => assert!(fell > fresh.len() / FALLS_ONE_OF),
            }
        });
    }
}
