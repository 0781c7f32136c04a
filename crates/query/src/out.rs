// SPDX-License-Identifier: Apache-2.0
//! What comes out of a lane's rows: samples, and the series' end.
//!
//! - **Ends.** `/metrics` leaves a host out that has not been read for 5 s, or for three of its intervals. So a series
//!   ends that long after the last row of its track (`Tracks::silence_ns`). A reading that is missing now and then ends
//!   nothing. A line of a table that does not change is stored every 10 s only, so one ends `LINE_SILENCE_NS` after its
//!   last row, or three times the least distance of its rows. What is recorded sample by sample has its markers itself.
//!   Buckets of a rollup are as far apart as they are wide, which ends nothing.
//! - **Values that stand.** Where the track has rows and the series has nothing new, its value is told again every
//!   [`REPEAT_NS`], as by a scrape; but not at a time of which a later row has something newer: that has the time at
//!   which it was acquired. Only where it comes so late that its value has been told again twice it has the row's.
//! - **Order.** Rows come as they were acquired. After a clock was set back times fall: such samples are left out until
//!   they are later than the last one, as Prometheus leaves them out.

use onlooker_framestore::Thinned;

use crate::tracks::{INTERVALS, MAX_SILENCE_NS};

/// A value that stands is told again after this time.
pub(crate) const REPEAT_NS: u64 = 10_000_000_000;

/// When a series ends whose last row was then: so long after it, or by the least distance of its rows.
pub(crate) fn end_ns(row_ns: u64, silence_ns: u64, distance_ns: u64) -> u64 {
    let by_distance_ns = match distance_ns {
        u64::MAX => 0,
        distance_ns => distance_ns.saturating_mul(INTERVALS).min(MAX_SILENCE_NS),
    };
    row_ns.saturating_add(silence_ns.max(by_distance_ns))
}

/// Samples as they come out: values, or whatever stands for them.
pub(crate) struct Out<V> {
    pub(crate) times_ns: Vec<i64>,
    pub(crate) values: Vec<V>,
    /// What stands for an end.
    end: V,
    /// Rows before this are looked at for what was acquired since, only.
    pub(crate) floor_ns: u64,
    /// Of the row that came first.
    pub(crate) first_row_ns: Option<u64>,
    /// Of the row that came last, and whether the series has ended since.
    pub(crate) row_ns: Option<u64>,
    pub(crate) has_ended: bool,
    /// When the last sample was acquired, and when it was told last.
    pub(crate) sample_ns: u64,
    pub(crate) told_ns: u64,
    /// A value that is told again, if nothing comes that was acquired before: it goes out before what comes next.
    standing: Option<Standing<V>>,
    /// Of the piece that is read.
    pub(crate) silence_ns: u64,
    is_line: bool,
    /// Samples and markers are what they are.
    pub(crate) is_recorded: bool,
    /// The least distance of two rows of a line, or of buckets.
    distance_ns: u64,
}

struct Standing<V> {
    time_ns: u64,
    value: V,
    /// When it was told before.
    told_ns: u64,
}

impl<V: Copy> Out<V> {
    pub(crate) fn new(is_line: bool, is_recorded: bool, end: V) -> Self {
        Self {
            times_ns: Vec::new(),
            values: Vec::new(),
            end,
            floor_ns: 0,
            first_row_ns: None,
            row_ns: None,
            has_ended: false,
            sample_ns: 0,
            told_ns: 0,
            standing: None,
            silence_ns: 0,
            is_line,
            is_recorded,
            distance_ns: u64::MAX,
        }
    }

    fn put(&mut self, time_ns: u64, value: V) {
        self.settle();
        self.times_ns.push(time_ns.cast_signed());
        self.values.push(value);
        self.told_ns = time_ns;
    }

    /// Puts what stands, whatever comes.
    pub(crate) fn settle(&mut self) {
        if let Some(Standing { time_ns, value, .. }) = self.standing.take() {
            self.times_ns.push(time_ns.cast_signed());
            self.values.push(value);
        }
    }

    /// The value stands in this row.
    fn stand(&mut self, time_ns: u64, value: V) {
        self.settle();
        self.standing = Some(Standing { time_ns, value, told_ns: self.told_ns });
        self.told_ns = time_ns;
    }

    /// A sample that is newer than the one before came with this row.
    fn put_new(&mut self, row_ns: u64, sample_ns: u64, value: V) {
        if let Some(over) = self.standing.take_if(|standing| sample_ns <= standing.time_ns) {
            self.told_ns = over.told_ns;
        }
        if sample_ns > self.told_ns {
            self.put(sample_ns, value);
        } else {
            self.stand(row_ns, value);
        }
    }

    /// A row with what the series has in it since `sample_ns`, 0 where it never had anything.
    pub(crate) fn row(&mut self, row_ns: u64, sample_ns: u64, value: V, is_bucket: bool) {
        let before_ns = self.row_ns;
        if before_ns.is_some_and(|before_ns| row_ns <= before_ns) {
            return;
        }
        if row_ns < self.floor_ns {
            if sample_ns >= self.floor_ns && sample_ns > self.sample_ns {
                self.put_new(row_ns, sample_ns, value);
                self.sample_ns = sample_ns;
            }
            return;
        }
        self.first_row_ns = self.first_row_ns.or(Some(row_ns));
        if self.is_recorded {
            self.row_ns = Some(row_ns);
            return self.put(row_ns, value);
        }
        if let Some(before_ns) = before_ns {
            let is_seldom = self.is_line || is_bucket;
            self.distance_ns = if is_seldom { self.distance_ns.min(row_ns - before_ns) } else { u64::MAX };
            self.pass(row_ns);
        }
        self.row_ns = Some(row_ns);
        let is_new = sample_ns > self.sample_ns;
        if is_new {
            self.put_new(row_ns, sample_ns, value);
        }
        // The first row may have what was there long before.
        let may_stand = sample_ns > 0 && (!is_new || before_ns.is_none());
        if may_stand && (self.has_ended || row_ns.saturating_sub(self.told_ns) >= REPEAT_NS) {
            self.stand(row_ns, value);
        }
        self.has_ended &= sample_ns == 0;
        self.sample_ns = self.sample_ns.max(sample_ns);
    }

    /// Rows after one that was taken, none so far from the one before that anything ends. Where the part has a time of
    /// its own that is in `acquired_ns`.
    pub(crate) fn dense(&mut self, times_ns: &[u64], acquired_ns: Option<&[u64]>, values: &[V]) {
        let Some(last_ns) = times_ns.last() else { return };
        self.rows(times_ns);
        let Some(acquired_ns) = acquired_ns.filter(|_| !self.is_recorded) else {
            self.times_ns.extend(times_ns.iter().map(|time_ns| time_ns.cast_signed()));
            self.values.extend_from_slice(values);
            (self.sample_ns, self.told_ns) = (*last_ns, *last_ns);
            return;
        };
        for ((row_ns, sample_ns), value) in times_ns.iter().zip(acquired_ns).zip(values) {
            if *sample_ns > self.sample_ns {
                self.put_new(*row_ns, *sample_ns, *value);
            } else if *sample_ns > 0 && row_ns.saturating_sub(self.told_ns) >= REPEAT_NS {
                self.stand(*row_ns, *value);
            }
            self.sample_ns = self.sample_ns.max(*sample_ns);
        }
    }

    /// Rows after one that was taken, each of which has a new sample that somebody else takes.
    pub(crate) fn pass_on(&mut self, times_ns: &[u64], acquired_ns: &[u64]) {
        self.rows(times_ns);
        if let Some(last_ns) = acquired_ns.last() {
            (self.sample_ns, self.told_ns) = (*last_ns, *last_ns);
        }
    }

    /// Passes rows of which somebody else takes the samples next to the lines of a grid: from which one on, and how many of
    /// all were taken before or are too early. `None`: something ends, stands or is older than what came before.
    pub(crate) fn pass_thinned(&mut self, samples: &Thinned<'_>) -> Option<(usize, u32)> {
        let (first_ns, last_ns) = samples.rows_ns;
        let distance_ns = first_ns.saturating_sub(self.row_ns.unwrap_or(first_ns)).max(samples.max_distance_ns);
        let may_end = self.has_ended || distance_ns > self.silence_ns;
        let may_stand = self.standing.is_some() || self.told_ns != self.sample_ns || samples.max_age_ns >= REPEAT_NS;
        let is_later = self.row_ns < Some(first_ns) && self.sample_ns <= samples.acquired_ns[0];
        if may_end || may_stand || !is_later || self.is_recorded {
            return None;
        }
        let is_before = |time_ns: &u64| *time_ns <= self.sample_ns || *time_ns < self.floor_ns;
        let from = samples.acquired_ns.partition_point(is_before);
        // Only the first one can be the one that came last; the first that is not too early is next to a line.
        let is_same = samples.acquired_ns[0] == self.sample_ns && from == 1;
        let known = if is_same { 1 } else { samples.numbers.get(from).copied().unwrap_or(0) };
        if last_ns >= self.floor_ns {
            self.first_row_ns = self.first_row_ns.or(Some(first_ns.max(self.floor_ns)));
            (self.row_ns, self.distance_ns) = (Some(last_ns), u64::MAX);
        }
        if let Some(newest_ns) = samples.acquired_ns[from..].last() {
            (self.sample_ns, self.told_ns) = (*newest_ns, *newest_ns);
        }
        Some((from, known))
    }

    /// Notes when there were rows, after one that was taken.
    fn rows(&mut self, times_ns: &[u64]) {
        let (Some(row_ns), Some(last_ns)) = (self.row_ns, times_ns.last()) else { return };
        self.distance_ns = if self.is_line {
            let before = [row_ns].into_iter().chain(times_ns.iter().copied());
            before.zip(times_ns).map(|(before_ns, time_ns)| time_ns - before_ns).fold(self.distance_ns, u64::min)
        } else {
            u64::MAX
        };
        self.row_ns = Some(*last_ns);
    }

    /// There is no row before `to_ns`.
    pub(crate) fn pass(&mut self, to_ns: u64) {
        let goes_on = self.told_ns > 0 && !self.has_ended && !self.is_recorded;
        let Some(row_ns) = self.row_ns.filter(|_| goes_on) else { return };
        let end_ns = end_ns(row_ns, self.silence_ns, self.distance_ns);
        if end_ns < to_ns {
            self.put(end_ns, self.end);
            self.has_ended = true;
        }
    }

    /// Whether there is something of the series now.
    pub(crate) fn goes_on(&self) -> bool {
        self.told_ns > 0 && !self.has_ended
    }

    /// Samples that came out were taken.
    pub(crate) fn clear(&mut self) {
        self.times_ns.clear();
        self.values.clear();
    }
}

#[cfg(test)]
mod tests {
    use bolero::check;

    use onlooker_promql::source::STALE;

    use super::*;

    const S: u64 = 1_000_000_000;

    /// A minute's buckets, then rows.
    #[test]
    fn buckets_are_as_far_apart_as_they_are_wide() {
        let mut out = Out { silence_ns: 5 * S, ..Out::new(false, false, STALE) };
        (1..=10u64).for_each(|at| out.row(at * 60 * S, at * 60 * S, 1.0, true));
        (601..=610u64).for_each(|at| out.row(at * S, at * S, 2.0, false));
        assert_eq!(out.values, [[1.0; 10], [2.0; 10]].concat());
        out.pass(700 * S);
        assert_eq!((out.times_ns.last(), out.has_ended), (Some(&(615 * S).cast_signed()), true));
    }

    /// Distances of rows up to what ends nothing, in s; what is acquired is new in some rows, and was never there in others.
    #[test]
    fn rows_at_once_are_as_one_by_one() {
        check!().with_type::<(bool, bool, bool, Vec<(u8, u8)>)>().for_each(|(is_line, is_recorded, has_time, rows)| {
            let silence_ns = 20 * S;
            let mut out = Out { silence_ns, ..Out::new(*is_line, *is_recorded, 0) };
            let mut times_ns = Vec::new();
            for (distance, _) in rows {
                times_ns.push(times_ns.last().unwrap_or(&(1000 * S)) + (1 + u64::from(distance % 20)) * S);
            }
            let acquired = |(time_ns, (_, age)): (&u64, &(u8, u8))| match age {
                0 => 0,
                age => time_ns - u64::from(*age) * S / 8,
            };
            let acquired_ns: Vec<u64> = times_ns.iter().zip(rows).map(acquired).collect();
            let values: Vec<usize> = (1..=rows.len()).collect();
            let of_row = |at: usize| if *has_time { acquired_ns[at] } else { times_ns[at] };
            (0..rows.len()).for_each(|at| out.row(times_ns[at], of_row(at), values[at], false));
            let mut at_once = Out { silence_ns, ..Out::new(*is_line, *is_recorded, 0) };
            if !rows.is_empty() {
                at_once.row(times_ns[0], of_row(0), values[0], false);
                at_once.dense(&times_ns[1..], has_time.then_some(&acquired_ns[1..]), &values[1..]);
            }
            for out in [&mut out, &mut at_once] {
                out.pass(times_ns.last().unwrap_or(&0) + 400 * S);
            }
            assert_eq!((&out.times_ns, &out.values), (&at_once.times_ns, &at_once.values));
        });
    }
}
