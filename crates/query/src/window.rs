// SPDX-License-Identifier: Apache-2.0
//! Windows of a series of which only the edges are wanted: the first and the last sample of each, and where a counter
//! began again; or only the last one, an end among them. Rows that are decoded at once are not copied: only the samples
//! at the edges become numbers.

use std::ops::Range;

use onlooker_framestore::Thinned;
use onlooker_promql::source::{STALE, Span, Summary, Windows};

/// Grids of times whose samples are remembered, the widest first.
const GRIDS_NS: [u64; 2] = [60_000_000_000, 1_000_000_000];
/// So far from where an edge is supposed it is looked for one by one.
const NEAR: usize = 3;

/// The widest grid that has all these times.
pub(crate) fn grid_ns(times_ns: &[i64]) -> Option<u64> {
    GRIDS_NS.into_iter().find(|grid_ns| times_ns.iter().all(|ns| ns.unsigned_abs().is_multiple_of(*grid_ns)))
}

/// A sample, and its number in the series.
#[derive(Clone, Copy)]
struct At {
    number: u64,
    time_ns: i64,
    value: f64,
}

/// Takes the samples of a series, whose times rise, and finds the edges of windows.
pub(crate) struct Edges {
    windows: Windows,
    /// Of each window the last sample is wanted only, and it may be the end of the series.
    is_last_only: bool,
    /// Samples that have come.
    pub(crate) count: u64,
    /// The end of the series that came last, if nothing has come since.
    end_ns: Option<i64>,
    /// Times in which the series does not go on, both ends included, and since when it has not.
    pauses_ns: Vec<(i64, i64)>,
    paused_ns: Option<i64>,
    /// The last one of them.
    last: Option<At>,
    /// Of each window whose first sample has come.
    firsts: Vec<At>,
    /// The last sample of each window that is over, or one before the window.
    lasts: Vec<Option<At>>,
    /// Samples after which a counter began again: number, value.
    resets: Vec<(u64, f64)>,
}

impl Edges {
    pub(crate) fn new(windows: Windows) -> Self {
        let (firsts, lasts) = (Vec::with_capacity(windows.count), Vec::with_capacity(windows.count));
        let (pauses_ns, resets, paused_ns) = (Vec::new(), Vec::new(), Some(i64::MIN));
        let (count, is_last_only, end_ns, last) = (0, false, None, None);
        Self { windows, is_last_only, count, end_ns, pauses_ns, paused_ns, last, firsts, lasts, resets }
    }

    /// Of which the last samples are wanted.
    pub(crate) fn of_last(windows: Windows) -> Self {
        Self { is_last_only: true, ..Self::new(windows) }
    }

    /// The grid at whose lines all windows begin and end. Where they begin does not matter to who wants the last sample.
    pub(crate) fn grid_ns(&self) -> Option<u64> {
        let Windows { first_end_ns, step_ns, count, range_ns, .. } = self.windows;
        let range_ns = if self.is_last_only { 0 } else { range_ns };
        grid_ns(&[first_end_ns, range_ns, if count < 2 { 0 } else { step_ns }])
    }

    pub(crate) fn count_windows(&self) -> usize {
        self.windows.count
    }

    /// Runs of windows in which the series does not go on all the time, and edges of the same, of which nothing has come.
    pub(crate) fn paused(&mut self) -> Vec<(Range<usize>, Self)> {
        self.settle_end();
        let mut runs: Vec<Range<usize>> = Vec::new();
        let last = self.paused_ns.map(|paused_ns| (paused_ns, i64::MAX));
        for (from_ns, to_ns) in self.pauses_ns.iter().copied().chain(last) {
            // What is newest depends on how it is at the end only.
            let to_ns = if self.is_last_only { to_ns } else { to_ns.saturating_add(self.windows.range_ns) };
            let run = self.first_until(from_ns)..self.first_until(to_ns);
            match runs.last_mut() {
                _ if run.is_empty() => {}
                Some(before) if run.start <= before.end => before.end = before.end.max(run.end),
                _ => runs.push(run),
            }
        }
        let of_run = |run: Range<usize>| {
            let windows = Windows { first_end_ns: self.until_ns(run.start), count: run.len(), ..self.windows };
            let edges = Self { is_last_only: self.is_last_only, ..Self::new(windows) };
            (run, edges)
        };
        runs.into_iter().map(of_run).collect()
    }

    /// The first window that does not end before this.
    fn first_until(&self, time_ns: i64) -> usize {
        let Windows { first_end_ns, step_ns, count, .. } = self.windows;
        let after_ns = time_ns.saturating_sub(first_end_ns).max(0);
        let steps = after_ns / step_ns.max(1) + i64::from(after_ns % step_ns.max(1) > 0);
        usize::try_from(steps).unwrap_or(usize::MAX).min(count)
    }

    /// Whether such samples are enough: they are later than those that have come, and it is known where values fell.
    pub(crate) fn may_take(&self, samples: &Thinned<'_>) -> bool {
        let is_later = self.last.is_none_or(|last| last.time_ns < samples.acquired_ns[0].cast_signed());
        is_later && (!self.windows.is_counter || samples.falls.is_some())
    }

    /// The time that all of them have together.
    pub(crate) fn span(&self) -> Span {
        let until_ns = self.until_ns(self.windows.count.saturating_sub(1));
        Span { after_ns: self.until_ns(0).saturating_sub(self.windows.range_ns), until_ns }
    }

    /// A window's last time.
    fn until_ns(&self, window: usize) -> i64 {
        let steps = i64::try_from(window).unwrap_or(i64::MAX).saturating_mul(self.windows.step_ns);
        self.windows.first_end_ns.saturating_add(steps)
    }

    /// Samples one by one, and ends of the series.
    pub(crate) fn put(&mut self, times_ns: &[i64], values: &[f64]) {
        for (time_ns, value) in times_ns.iter().zip(values) {
            if value.to_bits() == STALE.to_bits() {
                self.settle_end();
                self.end_ns = Some(*time_ns);
            } else {
                self.take(&[time_ns.cast_unsigned()], &[value.to_bits()], f64::from_bits, f64::from_bits);
            }
        }
    }

    /// Samples at once: their times and words, what these are the greater by, and their values. Those that are not later
    /// than what has come were there already.
    pub(crate) fn take<T: PartialOrd>(
        &mut self,
        times_ns: &[u64],
        words: &[u64],
        rank: impl Fn(u64) -> T,
        value: impl Fn(u64) -> f64,
    ) {
        let last_ns = self.last.map_or(i64::MIN, |last| last.time_ns);
        let is_known = |time_ns: &u64| time_ns.cast_signed() <= last_ns;
        let known = if times_ns.first().is_some_and(is_known) { times_ns.partition_point(is_known) } else { 0 };
        let (times_ns, words) = (&times_ns[known..], &words[known..]);
        let Some(first_ns) = times_ns.first() else { return };
        self.meet(*first_ns);
        self.find_edges(times_ns, words, |at| at as u64, &value);
        if self.windows.is_counter {
            self.find_resets(words, rank, &value);
        }
        self.go_on(times_ns, words, times_ns.len() as u64, value);
    }

    /// The next sample is of this time, UTC ns: if that is before the series would end, it does not.
    fn meet(&mut self, time_ns: u64) {
        self.end_ns = self.end_ns.filter(|end_ns| *end_ns < time_ns.cast_signed());
        self.settle_end();
    }

    /// The series has ended as it was said last.
    fn settle_end(&mut self) {
        let Some(end_ns) = self.end_ns.take() else { return };
        if self.is_last_only {
            let (times_ns, words) = ([end_ns.cast_unsigned()], [STALE.to_bits()]);
            self.find_edges(&times_ns, &words, |_| 0, f64::from_bits);
            self.go_on(&times_ns, &words, 1, f64::from_bits);
        }
        self.paused_ns = Some(end_ns);
    }

    /// Samples next to the lines of the grid at which all windows begin and end, from the one at `from` on. So many samples
    /// of all these rows have come before, or are before all windows.
    pub(crate) fn take_thinned(
        &mut self,
        samples: &Thinned<'_>,
        (from, known): (usize, u32),
        value: impl Fn(u64) -> f64,
    ) {
        let (numbers, times_ns, words) =
            (&samples.numbers[from..], &samples.acquired_ns[from..], &samples.words[from..]);
        let Some(last) = numbers.last() else { return };
        self.meet(times_ns[0]);
        self.find_edges(times_ns, words, |at| u64::from(numbers[at] - known), &value);
        if self.windows.is_counter {
            if known == 0 {
                self.note_fall(value(words[0]));
            }
            // The last one that has come may be the one before a fall.
            let before = u32::from(self.count > 0);
            let falls = samples.falls.iter().copied().flatten().filter(|fall| fall.number + before >= known);
            let count = self.count;
            self.note_resets(falls.map(|fall| {
                (count + u64::from(fall.number) - u64::from(known), value(fall.before), value(fall.after))
            }));
        }
        self.go_on(times_ns, words, u64::from(last - known) + 1, value);
    }

    /// Edges that are known once these samples are; `number` has those of the samples, from the first of them.
    fn find_edges(
        &mut self,
        times_ns: &[u64],
        words: &[u64],
        number: impl Fn(usize) -> u64,
        value: impl Fn(u64) -> f64,
    ) {
        let Some(last_ns) = times_ns.last().map(|last_ns| last_ns.cast_signed()) else { return };
        let before = self.count;
        let at = |at: usize| At {
            number: before + number(at),
            time_ns: times_ns[at].cast_signed(),
            value: value(words[at]),
        };
        let mut rows = Evenly { times_ns, from: 0, stride: 0 };
        while self.firsts.len() < self.windows.count && !self.is_last_only {
            let after_ns = self.until_ns(self.firsts.len()).saturating_sub(self.windows.range_ns);
            if after_ns >= last_ns {
                break;
            }
            self.firsts.push(at(rows.until(after_ns)));
        }
        let mut rows = Evenly { times_ns, from: 0, stride: 0 };
        while self.lasts.len() < self.windows.count {
            let until_ns = self.until_ns(self.lasts.len());
            if until_ns >= last_ns {
                break;
            }
            let until = rows.until(until_ns);
            self.lasts.push(if until > 0 { Some(at(until - 1)) } else { self.last });
        }
    }

    /// These samples, so many in all, are over.
    fn go_on(&mut self, times_ns: &[u64], words: &[u64], count: u64, value: impl Fn(u64) -> f64) {
        let (Some(time_ns), Some(word)) = (times_ns.last(), words.last()) else { return };
        let pause = self.paused_ns.take().zip(times_ns.first().map(|time_ns| time_ns.cast_signed()));
        self.pauses_ns.extend(pause);
        self.count += count;
        self.last = Some(At { number: self.count - 1, time_ns: time_ns.cast_signed(), value: value(*word) });
    }

    /// The next sample's value may be less than the last one's.
    fn note_fall(&mut self, value: f64) {
        let before = self.last.filter(|last| value < last.value);
        self.resets.extend(before.map(|last| (last.number, last.value)));
    }

    /// Where words fell: the number of the sample before, and both values.
    fn note_resets(&mut self, falls: impl Iterator<Item = (u64, f64, f64)>) {
        // Large integers may differ where their numbers do not.
        let resets = falls.filter(|(_, before, after)| after < before);
        self.resets.extend(resets.map(|(number, before, _)| (number, before)));
    }

    fn find_resets<T: PartialOrd>(&mut self, words: &[u64], rank: impl Fn(u64) -> T, value: impl Fn(u64) -> f64) {
        self.note_fall(value(words[0]));
        let is_less = |two: &&[u64]| rank(two[1]) < rank(two[0]);
        // Counted first, without branches: nearly always there are none.
        if words.windows(2).filter(is_less).count() > 0 {
            let falls = (self.count..).zip(words.windows(2)).filter(|(_, two)| is_less(two));
            self.note_resets(falls.map(|(number, two)| (number, value(two[0]), value(two[1]))));
        }
    }

    /// Gives the last sample until the end of each window, however long before, and not before there is one.
    pub(crate) fn finish_last(mut self, take: &mut dyn FnMut(usize, i64, f64)) {
        self.settle_end();
        self.lasts.resize(self.windows.count, self.last);
        let known = self.lasts.iter().enumerate().filter_map(|(window, last)| Some((window, (*last)?)));
        known.for_each(|(window, last)| take(window, last.time_ns, last.value));
    }

    /// Gives what is known of each window that has samples.
    pub(crate) fn finish(mut self, take: &mut dyn FnMut(usize, Summary)) {
        self.lasts.resize(self.firsts.len().max(self.lasts.len()), self.last);
        let mut resets = &self.resets[..];
        for (window, (first, last)) in self.firsts.iter().zip(&self.lasts).enumerate() {
            let Some(last) = last.filter(|last| last.number >= first.number) else { continue };
            resets = &resets[resets.partition_point(|(number, _)| *number < first.number)..];
            let of_window = resets.iter().take_while(|(number, _)| *number < last.number);
            let increase = of_window.fold(last.value - first.value, |up, (_, before)| up + before);
            let (count, first_ns, last_ns) = (last.number - first.number + 1, first.time_ns, last.time_ns);
            take(window, Summary { count, first_ns, last_ns, first: first.value, last: last.value, increase });
        }
    }
}

/// Looks for times that are equally far apart among those of rows, which mostly are, too.
struct Evenly<'a> {
    times_ns: &'a [u64],
    /// Behind the row that was found last, and how many there were from one to the next.
    from: usize,
    stride: usize,
}

impl Evenly<'_> {
    /// How many are not later, of a time that is not before the one before.
    fn until(&mut self, until_ns: i64) -> usize {
        let (all, from) = (self.times_ns, self.from);
        let is_until = |at: usize| all[at].cast_signed() <= until_ns;
        let mut at = (from + self.stride).min(all.len());
        let mut steps = 0;
        while at < all.len() && steps < NEAR && is_until(at) {
            (at, steps) = (at + 1, steps + 1);
        }
        while at > from && steps < NEAR && !is_until(at - 1) {
            (at, steps) = (at - 1, steps + 1);
        }
        let is_found = (at == from || is_until(at - 1)) && (at == all.len() || !is_until(at));
        if !is_found {
            at = from + all[from..].partition_point(|time_ns| time_ns.cast_signed() <= until_ns);
        }
        (self.from, self.stride) = (at, at - from);
        at
    }
}

#[cfg(test)]
mod tests {
    use bolero::check;

    use super::*;

    /// What a window has, by looking at all samples.
    fn looked_up(samples: &[(i64, f64)], after_ns: i64, until_ns: i64, is_counter: bool) -> Option<Summary> {
        let inside: Vec<_> = samples.iter().filter(|(at, _)| *at > after_ns && *at <= until_ns).collect();
        let ((first_ns, first), (last_ns, last)) = (**inside.first()?, **inside.last()?);
        let steps = inside.windows(2).filter(|two| is_counter && two[1].1 < two[0].1);
        let increase = steps.fold(last - first, |up, two| up + two[0].1);
        Some(Summary { count: inside.len() as u64, first_ns, last_ns, first, last, increase })
    }

    #[test]
    fn edges_are_those_of_all_samples() {
        check!().with_type::<(u8, u8, u8, bool, Vec<Vec<(u8, i8)>>)>().for_each(|input| {
            let (first_end, step, range, is_counter, runs) = input;
            let windows = Windows {
                first_end_ns: (*first_end).into(),
                step_ns: i64::from(step % 20) + 1,
                count: 40,
                range_ns: i64::from(range % 60) + 1,
                is_counter: *is_counter,
            };
            let (mut edges, mut samples, mut now) = (Edges::new(windows), Vec::new(), 0i64);
            for (at, run) in runs.iter().enumerate() {
                let mut of_run = Vec::new();
                for (apart, value) in run {
                    now += i64::from(apart % 16) + 1;
                    of_run.push((now, f64::from(*value)));
                }
                let times: Vec<i64> = of_run.iter().map(|(at, _)| *at).collect();
                if at % 2 == 0 {
                    let values: Vec<f64> = of_run.iter().flat_map(|(_, value)| [*value]).collect();
                    edges.put(&times, &values);
                    edges.put(&[now], &[STALE]);
                } else {
                    let times: Vec<u64> = times.iter().map(|at| at.cast_unsigned()).collect();
                    let words: Vec<u64> = run.iter().map(|(_, value)| i64::from(*value).cast_unsigned()).collect();
                    edges.take(&times, &words, u64::cast_signed, |word| word.cast_signed() as f64);
                }
                samples.extend(of_run);
            }
            assert_eq!(edges.count, samples.len() as u64);
            let mut found = vec![None; windows.count];
            edges.finish(&mut |window, summary| found[window] = Some(summary));
            let mut until_ns = windows.first_end_ns;
            for (window, found) in found.into_iter().enumerate() {
                let expected = looked_up(&samples, until_ns - windows.range_ns, until_ns, windows.is_counter);
                assert_eq!(found, expected, "window {window} of {windows:?}");
                until_ns += windows.step_ns;
            }
        });
    }

    /// Of integers that are the same numbers none began again.
    #[test]
    fn what_is_less_by_less_than_a_double_tells_is_the_same() {
        let windows = Windows { first_end_ns: 10, step_ns: 1, count: 1, range_ns: 10, is_counter: true };
        let mut edges = Edges::new(windows);
        edges.take(&[1, 2, 3], &[1 << 60, (1 << 60) - 1, 1 << 60], |word| word, |word| word as f64);
        edges.finish(&mut |_, summary| assert_eq!(summary.increase, 0.0));
    }
}
