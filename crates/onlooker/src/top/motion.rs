// SPDX-License-Identifier: Apache-2.0
//! How one series moves: rate of a counter, the last minute, percentiles of the last seconds. Fed by each reading; times are the reader's steady clock, ns.
//!
//! A counter's rate ([`onlooker_series::rate`]) is taken over about a second of acquisition time (longer where values come more rarely), so that a
//! resolution of some milliseconds does not make it jump.

use onlooker_region::columns::Value;
use onlooker_region::histogram::Shape;
use onlooker_region::number::exported;
use onlooker_region::schema::Metric;
use onlooker_series::rate::{Growth, per_second};
use std::collections::VecDeque;

/// Steps of the sparkline's past; of a second each, unless readings are rarer.
pub(super) const STEPS: usize = 60;
/// Time that a rate covers at least, once there are values so old.
const RATE_NS: u64 = 1_000_000_000;
/// Distance of the values that rates are taken from.
const MARK_NS: u64 = 200_000_000;
/// Time that percentiles cover.
const WINDOW_NS: u64 = 10_000_000_000;
/// How long a reset is shown.
const RESET_SHOWN_NS: u64 = 3_000_000_000;

/// One reading of a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken<'a> {
    pub(super) value: &'a Value,
    pub(super) metric: Metric,
    pub(super) scale: f64,
    /// When the value was acquired.
    pub(super) acquired_ns: u64,
    /// When it was read.
    pub(super) read_ns: u64,
    /// Step of the sparkline, counted from anywhere.
    pub(super) step: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Motion {
    last: Option<(Value, u64)>,
    /// Increase since the first value; (when, increase until then).
    total: f64,
    marks: VecDeque<(u64, f64)>,
    rate: Option<f64>,
    reset_ns: Option<u64>,
    past: VecDeque<Option<f64>>,
    step: u64,
    /// Histograms: buckets about once a second.
    snapshots: VecDeque<(u64, Vec<u64>)>,
}

/// A percentile: the bound of the bucket that it is in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Percentile {
    pub(super) bound: f64,
    /// The bucket is open-ended: it is at least so much.
    pub(super) at_least: bool,
}

impl Motion {
    /// The series goes on in other memory (its program or the agent began anew): nothing can be said of the time between.
    pub(super) fn anew(&mut self) {
        self.last = None;
        self.marks.clear();
        self.snapshots.clear();
    }

    /// Whether there was anything but zero in the last minute.
    pub(super) fn has_moved(&self) -> bool {
        self.past.iter().flatten().any(|shown| *shown != 0.0)
    }

    /// Whether it was not always the same in the last minute.
    pub(super) fn has_changed(&self) -> bool {
        let mut known = self.past.iter().flatten();
        known.next().is_some_and(|first| known.any(|shown| shown != first))
    }

    pub(super) fn take(&mut self, taken: Taken) {
        match taken.metric {
            Metric::Counter | Metric::Histogram => self.count(taken),
            Metric::Gauge | Metric::Info => {}
        }
        let shown = match taken.metric {
            Metric::Gauge => Some(taken.value.scaled(taken.scale)),
            Metric::Counter | Metric::Histogram => self.rate,
            Metric::Info => None,
        };
        if let Some(shown) = shown.filter(|shown| shown.is_finite()) {
            self.remember(taken.step, shown);
        }
    }

    fn count(&mut self, taken: Taken) {
        let counted = match taken.value {
            Value::Histogram { buckets, .. } => {
                Value::U64(buckets.iter().fold(0, |sum, bucket| sum.wrapping_add(*bucket)))
            }
            other => other.clone(),
        };
        let scale = if taken.metric == Metric::Histogram { 1.0 } else { taken.scale };
        let at_ns = taken.acquired_ns;
        let Some((before, before_ns)) = &self.last else {
            self.marks.push_back((at_ns, self.total));
            self.snapshot(taken.value, at_ns);
            self.last = Some((counted, at_ns));
            return;
        };
        // Nothing new was acquired: the rate stays.
        if at_ns <= *before_ns {
            return;
        }
        let Growth { increase, is_reset } = Growth::of_values(before, &counted, scale);
        if is_reset {
            self.reset_ns = Some(taken.read_ns);
        }
        self.total += increase;
        self.last = Some((counted, at_ns));
        let old_enough = |mark: &(u64, f64)| at_ns.saturating_sub(mark.0) >= RATE_NS;
        while self.marks.get(1).is_some_and(old_enough) {
            self.marks.pop_front();
        }
        if let Some((mark_ns, total)) = self.marks.front() {
            self.rate = per_second(self.total - total, *mark_ns, at_ns);
        }
        if self.marks.back().is_none_or(|mark| at_ns - mark.0 >= MARK_NS) {
            self.marks.push_back((at_ns, self.total));
        }
        self.snapshot(taken.value, at_ns);
    }

    fn snapshot(&mut self, value: &Value, at_ns: u64) {
        let Value::Histogram { buckets, .. } = value else { return };
        // Another shape, or a reset: what was before is of no use.
        let goes_on = self.snapshots.back().is_none_or(|(_, before)| {
            before.len() == buckets.len() && before.iter().zip(buckets).all(|(before, now)| before <= now)
        });
        if !goes_on {
            self.snapshots.clear();
        }
        while self.snapshots.get(1).is_some_and(|(then, _)| at_ns.saturating_sub(*then) >= WINDOW_NS) {
            self.snapshots.pop_front();
        }
        if self.snapshots.back().is_none_or(|(then, _)| at_ns.saturating_sub(*then) >= RATE_NS) {
            self.snapshots.push_back((at_ns, buckets.clone()));
        }
    }

    fn remember(&mut self, step: u64, shown: f64) {
        let behind = step.saturating_sub(self.step);
        if self.past.is_empty() || behind > STEPS as u64 {
            self.past.clear();
            self.past.push_back(Some(shown));
        } else if behind == 0 {
            // The largest of a step: a short peak is to be seen.
            if let Some(last) = self.past.back_mut() {
                *last = Some(last.map_or(shown, |last| last.max(shown)));
            }
        } else {
            self.past.extend((1..behind).map(|_| None));
            self.past.push_back(Some(shown));
        }
        self.step = self.step.max(step);
        while self.past.len() > STEPS {
            self.past.pop_front();
        }
    }

    /// It is in this step as it was in the one before.
    pub(super) fn stand(&mut self, step: u64) {
        if let Some(last) = self.past.back().copied().flatten().filter(|_| step == self.step + 1) {
            self.remember(step, last);
        }
    }

    /// Per second, scaled; of histograms the observations.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Whether it went down a moment ago.
    pub(super) fn is_reset(&self, now_ns: u64) -> bool {
        self.reset_ns.is_some_and(|reset_ns| now_ns.saturating_sub(reset_ns) < RESET_SHOWN_NS)
    }

    /// The last [`STEPS`] steps up to `step`, the oldest first; `None` where nothing was read.
    pub(super) fn past(&self, step: u64) -> Vec<Option<f64>> {
        let behind = usize::try_from(step.saturating_sub(self.step)).unwrap_or(STEPS).min(STEPS);
        let mut past: Vec<Option<f64>> = self.past.iter().copied().collect();
        past.extend(std::iter::repeat_n(None, behind));
        let mut full = vec![None; STEPS.saturating_sub(past.len())];
        full.extend_from_slice(&past[past.len().saturating_sub(STEPS)..]);
        full
    }

    /// The steps that there are, the oldest first; the last one is the newest that was read.
    pub(super) fn past_steps(&self) -> Vec<Option<f64>> {
        self.past.iter().copied().collect()
    }

    /// How far it is now from its mean of the last minute, as a part of that mean; `None` while there is nothing to compare with.
    #[allow(clippy::cast_precision_loss)] // 60 at most
    pub(super) fn change(&self) -> Option<f64> {
        let now = self.past.back().copied().flatten()?;
        let before: Vec<f64> = self.past.iter().rev().skip(1).flatten().copied().collect();
        if before.is_empty() {
            return None;
        }
        let mean = before.iter().sum::<f64>() / before.len() as f64;
        let difference = now - mean;
        if difference.abs() <= f64::EPSILON * mean.abs() {
            return Some(0.0);
        }
        Some(difference / mean.abs())
    }

    /// The value below which `part` of the observations of the last [`WINDOW_NS`] lie; `None` without any.
    #[allow(clippy::cast_precision_loss)] // for people
    pub(super) fn percentile(&self, value: &Value, scale: f64, part: f64) -> Option<Percentile> {
        let Value::Histogram { buckets, shape, .. } = value else { return None };
        let (_, before) = self.snapshots.front()?;
        // Only one so far: all that there ever was.
        let whole = self.snapshots.len() == 1 && before == buckets || before.len() != buckets.len();
        let new = |index: usize| if whole { buckets[index] } else { buckets[index].saturating_sub(before[index]) };
        let count = (0..buckets.len()).fold(0u64, |sum, index| sum.saturating_add(new(index)));
        let wanted = (count as f64 * part).ceil();
        let mut seen = 0u64;
        let found = (0..buckets.len()).find(|index| {
            seen = seen.saturating_add(new(*index));
            count > 0 && seen as f64 >= wanted
        })?;
        Some(bound(*shape, found, buckets.len(), scale))
    }
}

#[allow(clippy::cast_precision_loss)] // for people
fn bound(shape: Shape, index: usize, buckets: usize, scale: f64) -> Percentile {
    let (low, high) = shape.range(index);
    let at_least = index + 1 >= buckets;
    Percentile { bound: exported(if at_least { low } else { high } as f64, scale), at_least }
}

#[cfg(test)]
#[path = "../../../series/tests/rates/cases.rs"]
mod cases;

#[cfg(test)]
mod tests {
    use super::cases::{Case, cases};
    use super::*;

    const MS: u64 = 1_000_000;

    fn counter(motion: &mut Motion, at_ms: u64, value: u64) {
        value_of(motion, at_ms, &Value::U64(value));
    }

    fn value_of(motion: &mut Motion, at_ms: u64, value: &Value) {
        let at_ns = at_ms * MS;
        let taken = Taken {
            value,
            metric: Metric::Counter,
            scale: 1.0,
            acquired_ns: at_ns,
            read_ns: at_ns,
            step: at_ms / 1000,
        };
        motion.take(taken);
    }

    fn near(a: Option<f64>, b: f64) {
        assert!(a.is_some_and(|a| (a - b).abs() < 1e-6 * b.abs().max(1.0)), "{a:?} is not {b}");
    }

    #[test]
    fn a_rate_is_that_of_about_a_second() {
        let mut motion = Motion::default();
        counter(&mut motion, 10_000, 500);
        assert_eq!(motion.rate(), None);
        for step in 1..=50 {
            counter(&mut motion, 10_000 + step * 100, 500 + step * 7);
        }
        near(motion.rate(), 70.0);
        // From now on it stands still: after little more than a second the rate is 0.
        for step in 51..=63 {
            counter(&mut motion, 10_000 + step * 100, 500 + 50 * 7);
        }
        near(motion.rate(), 0.0);
    }

    /// Those without gaps, of which `top` knows nothing, and with rows that are far enough apart for a rate each.
    #[test]
    fn rates_are_those_of_the_vectors() {
        let is_ours =
            |case: &Case| case.gaps.is_empty() && case.rows.windows(2).all(|two| two[1].0 - two[0].0 >= 1_000);
        let ours: Vec<Case> = cases().into_iter().filter(is_ours).collect();
        assert!(ours.len() >= 4, "{}", ours.len());
        for Case { what, rows, rates, .. } in ours {
            let mut motion = Motion::default();
            for ((at_ms, value), rate) in rows.iter().zip(rates) {
                // The clock of a host that has been up for a while.
                value_of(&mut motion, 10_000 + at_ms, &Value::F64(*value));
                match rate {
                    Some(rate) => near(motion.rate(), rate),
                    None => assert_eq!(motion.rate(), None, "{what}"),
                }
            }
        }
    }

    #[test]
    fn what_was_not_acquired_anew_changes_nothing() {
        let mut motion = Motion::default();
        counter(&mut motion, 1_000, 0);
        counter(&mut motion, 2_000, 30);
        counter(&mut motion, 2_000, 30);
        counter(&mut motion, 1_500, 99);
        near(motion.rate(), 30.0);
    }

    /// Two seconds of CPU a second, in a table that is sampled every second and read ten times as often.
    #[test]
    fn what_is_sampled_seldom_is_no_faster_for_being_read_often() {
        let mut motion = Motion::default();
        for reading in 0..60 {
            let sampled_ms = 10_000 + reading / 10 * 1_000;
            counter(&mut motion, sampled_ms, sampled_ms / 500);
            if reading >= 10 {
                near(motion.rate(), 2.0);
            }
        }
    }

    #[test]
    fn a_reset_counts_from_nothing_and_is_told_for_a_while() {
        let mut motion = Motion::default();
        counter(&mut motion, 1_000, 1_000_000);
        counter(&mut motion, 2_000, 1_000_010);
        assert!(!motion.is_reset(2_000 * MS));
        counter(&mut motion, 3_000, 4);
        near(motion.rate(), 4.0);
        assert!(motion.is_reset(3_100 * MS) && !motion.is_reset(6_100 * MS));
        counter(&mut motion, 4_000, 24);
        near(motion.rate(), 20.0);
    }

    #[test]
    fn other_memory_gives_no_rate_over_the_time_between() {
        let mut motion = Motion::default();
        counter(&mut motion, 1_000, 10);
        counter(&mut motion, 2_000, 20);
        motion.anew();
        counter(&mut motion, 3_000, 5_000);
        counter(&mut motion, 4_000, 5_002);
        near(motion.rate(), 2.0);
        assert!(!motion.is_reset(4_000 * MS));
    }

    fn gauge(motion: &mut Motion, at_ms: u64, value: i64) {
        let value = Value::I64(value);
        let (at_ns, step) = (at_ms * MS, at_ms / 1000);
        motion.take(Taken {
            value: &value,
            metric: Metric::Gauge,
            scale: 1.0,
            acquired_ns: at_ns,
            read_ns: at_ns,
            step,
        });
    }

    #[test]
    fn the_past_has_holes_where_nothing_was_read() {
        let mut motion = Motion::default();
        gauge(&mut motion, 1_000, 1);
        gauge(&mut motion, 1_400, 9);
        gauge(&mut motion, 1_800, 2);
        gauge(&mut motion, 5_000, 3);
        let past = motion.past(6);
        assert_eq!(past.len(), STEPS);
        assert_eq!(&past[STEPS - 7..], &[None, Some(9.0), None, None, None, Some(3.0), None]);
        assert!(motion.past(500).iter().all(Option::is_none));
        gauge(&mut motion, 500_000, 4);
        assert_eq!(motion.past(500)[STEPS - 1], Some(4.0));
        assert_eq!(motion.past(500).iter().flatten().count(), 1);
    }

    #[test]
    fn what_stands_leaves_no_hole_but_what_was_not_looked_at_does() {
        let mut motion = Motion::default();
        gauge(&mut motion, 1_000, 7);
        (1..4).for_each(|step| motion.stand(step));
        assert_eq!(motion.past_steps(), [Some(7.0); 3]);
        motion.stand(9);
        gauge(&mut motion, 5_000, 8);
        assert_eq!(motion.past_steps()[3..], [None, Some(8.0)]);
    }

    #[test]
    fn a_change_is_measured_by_the_last_minute() {
        let mut motion = Motion::default();
        assert_eq!(motion.change(), None);
        for second in 1..=10 {
            gauge(&mut motion, second * 1000, 100);
        }
        near(motion.change(), 0.0);
        gauge(&mut motion, 11_000, 150);
        near(motion.change(), 0.5);
        gauge(&mut motion, 12_000, -1);
        assert!(motion.change().is_some_and(|change| change < -0.9));
    }

    #[test]
    fn percentiles_are_of_the_last_seconds_only() {
        let shape = Shape { grouping_power: 0, max_power: 8 };
        let mut motion = Motion::default();
        let take = |motion: &mut Motion, at_ms: u64, counts: &[(usize, u64)]| {
            let mut buckets = vec![0; shape.buckets()];
            counts.iter().for_each(|(index, count)| buckets[*index] = *count);
            let value = Value::Histogram { buckets, shape, sum: 0 };
            let at_ns = at_ms * MS;
            motion.take(Taken {
                value: &value,
                metric: Metric::Histogram,
                scale: 1.0,
                acquired_ns: at_ns,
                read_ns: at_ns,
                step: at_ms / 1000,
            });
            value
        };
        let first = take(&mut motion, 1_000, &[(2, 1_000_000)]);
        assert_eq!(motion.percentile(&first, 1.0, 0.5), Some(Percentile { bound: 3.0, at_least: false }));
        // 100 new ones: 60 in one bucket, 40 in a higher one.
        let next = take(&mut motion, 2_000, &[(2, 1_000_000), (3, 60), (5, 40)]);
        let bounds = [0.5, 0.99].map(|part| motion.percentile(&next, 1.0, part).unwrap().bound);
        assert_eq!(bounds, [shape.range(3).1 as f64, shape.range(5).1 as f64]);
        near(motion.rate(), 100.0);
        // Twelve quiet seconds later there are none.
        let mut last = next;
        for second in 3..=15 {
            last = take(&mut motion, second * 1000, &[(2, 1_000_000), (3, 60), (5, 40)]);
        }
        assert_eq!(motion.percentile(&last, 1.0, 0.5), None);
        // The open-ended bucket has no upper bound; a reset forgets what was before.
        let top = shape.buckets() - 1;
        let last = take(&mut motion, 16_000, &[(top, 5)]);
        assert_eq!(motion.percentile(&last, 1.0, 0.5).map(|p| p.at_least), Some(true));
    }

    #[test]
    fn nothing_a_host_says_panics() {
        bolero::check!().with_type::<Vec<(u64, u64, u32)>>().for_each(|readings| {
            let mut motion = Motion::default();
            for (value, acquired_ns, step) in readings {
                let value = Value::U64(*value);
                let step = u64::from(*step);
                motion.take(Taken {
                    value: &value,
                    metric: Metric::Counter,
                    scale: 1e300,
                    acquired_ns: *acquired_ns,
                    read_ns: step,
                    step,
                });
                let _ = (motion.rate(), motion.change(), motion.past(step + 1));
            }
        });
    }
}
