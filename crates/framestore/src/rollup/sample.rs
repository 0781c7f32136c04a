// SPDX-License-Identifier: Apache-2.0
//! Which rows are samples of which bucket.

use std::ops::Range;

use onlooker_series::rate::per_second;

use super::{Part, Plan};
use crate::chunk::Joined;
use crate::damage::Damage;

/// A row in which a part is new.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) row: usize,
    /// The row of the sample that came before it, of the same line.
    pub(super) before: Option<usize>,
    /// The rate per second of a counter that went up by 1 since; 0 if it was not acquired after that one.
    pub(super) rate: f64,
}

/// The samples that a part has in a row of the rollup.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Number of the rollup's row.
    pub(super) row: usize,
    /// Number of the line among those of the chunks.
    pub(super) line: usize,
    pub(super) samples: Range<usize>,
}

/// Samples of a part, and how they are grouped.
#[derive(Debug, Default)]
pub(super) struct OfPart {
    pub(super) samples: Vec<Sample>,
    /// In the order of the rollup's rows.
    pub(super) groups: Vec<Group>,
}

/// All samples.
#[derive(Debug)]
pub(super) struct Sampled {
    pub(super) parts: Vec<OfPart>,
    /// Line and bucket of each row of the rollup, ascending.
    pub(super) rows: Vec<(usize, u64)>,
    /// The first row of each line in the chunks.
    pub(super) firsts: Vec<usize>,
}

impl Sampled {
    pub(super) fn new(plan: &Plan, joined: &mut Joined, window_ns: Range<u64>, width_ns: u64) -> Result<Self, Damage> {
        let mut firsts = vec![0];
        for rows in joined.rows_by_line() {
            firsts.push(firsts[firsts.len() - 1] + rows);
        }
        let (mut parts, mut rows) = (Vec::new(), Vec::new());
        for part in &plan.parts {
            let mut of_part = OfPart::default();
            // The buckets of its groups; their rows follow when those of all parts are known.
            let mut buckets = Vec::new();
            let found = part.samples(joined, &firsts, &window_ns)?;
            for (line, mut samples) in found.into_iter().enumerate() {
                samples.sort_by_key(|(time_ns, _)| *time_ns);
                for (time_ns, sample) in samples {
                    let (at, bucket) = (of_part.samples.len(), (line, time_ns - time_ns % width_ns));
                    if buckets.last() != Some(&bucket) {
                        buckets.push(bucket);
                        of_part.groups.push(Group { row: 0, line, samples: at..at });
                    }
                    of_part.samples.push(sample);
                    if let Some(group) = of_part.groups.last_mut() {
                        group.samples.end = at + 1;
                    }
                }
            }
            rows.extend(&buckets);
            parts.push((of_part, buckets));
        }
        rows.sort_unstable();
        rows.dedup();
        for (of_part, buckets) in &mut parts {
            for (group, bucket) in of_part.groups.iter_mut().zip(buckets.iter()) {
                group.row = rows.partition_point(|row| row < bucket);
            }
        }
        Ok(Self { parts: parts.into_iter().map(|(of_part, _)| of_part).collect(), rows, firsts })
    }
}

impl Part {
    /// Its samples within a time, line by line in the order of arrival, with their times.
    fn samples(
        &self,
        joined: &mut Joined,
        firsts: &[usize],
        window_ns: &Range<u64>,
    ) -> Result<Vec<Vec<(u64, Sample)>>, Damage> {
        // Rows of rollups are in buckets themselves; raw ones where the part's time says.
        let times_ns = match self.time.filter(|_| self.count.is_none()) {
            Some(column) => joined.values(column)?.to_vec(),
            None => joined.times()?.to_vec(),
        };
        let counts = match self.count {
            Some(column) => joined.values(column)?,
            None => &[],
        };
        let is_new = |row: usize, last: Option<usize>| match (self.count, self.time) {
            (Some(_), _) => counts[row] > 0,
            (None, Some(_)) => times_ns[row] != 0 && last.is_none_or(|last| times_ns[last] != times_ns[row]),
            (None, None) => true,
        };
        let of_line = |pair: &[usize]| {
            let (mut samples, mut before) = (Vec::new(), None);
            for (row, time_ns) in times_ns.iter().enumerate().take(pair[1]).skip(pair[0]) {
                if is_new(row, before) {
                    if window_ns.contains(time_ns) {
                        let rate = before.and_then(|before| per_second(1.0, times_ns[before], *time_ns)).unwrap_or(0.0);
                        samples.push((*time_ns, Sample { row, before, rate }));
                    }
                    before = Some(row);
                }
            }
            samples
        };
        Ok(firsts.windows(2).map(of_line).collect())
    }
}
