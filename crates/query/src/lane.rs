// SPDX-License-Identifier: Apache-2.0
//! One track's samples of a series, piece by piece, and where the series ends.
//!
//! All rows of the track are looked at, also those in which the series has nothing new: they say that it is still
//! there.
//!
//! - **Ends.** `/metrics` leaves a host out that has not been read for 5 s, or for three of its intervals. So a series
//!   ends that long after the last row of its track ([`Tracks::silence_ns`]). A reading that is missing now and then ends
//!   nothing. A line of a table that does not change is stored every 10 s only, so one ends [`LINE_SILENCE_NS`] after its
//!   last row, or three times the least distance of its rows. What is recorded sample by sample has its markers itself.
//!   Buckets of a rollup are as far apart as they are wide, which ends nothing.
//! - **Values that stand.** Where the track has rows and the series has nothing new, its value is told again every
//!   [`REPEAT_NS`], as by a scrape; but not at a time of which a later row has something newer: that has the time at
//!   which it was acquired. Only where it comes so late that its value has been told again twice it has the row's.
//! - **Order.** Rows come as they were acquired. After a clock was set back times fall: such samples are left out until
//!   they are later than the last one, as Prometheus leaves them out.
//!
//! [`newest`] says the same of one time by looking at the last rows only.

use std::ops::ControlFlow;
use std::sync::Arc;

use onlooker_framestore::types::Line;
use onlooker_framestore::{Columns, Order, Run, Sample, Thinned, Thinner, Visit};
use onlooker_promql::histogram::Histogram;
use onlooker_promql::limits::Budget;
use onlooker_promql::source::{Chunk, STALE, SourceError};
use onlooker_series::series::Form;

use crate::exported::Reading;
use crate::native::Natives;
use crate::plan::{LanePlan, Lanes};
use crate::tracks::{INTERVALS, MAX_SILENCE_NS, SILENCE_NS, Tracks, piece_end_ns};
use crate::window::Edges;

/// Samples that the lanes of a series hold at most, together.
pub(crate) const MOST: usize = 16_384;
/// But each of them so many.
const LEAST: usize = 256;
/// A value that stands is told again after this time.
const REPEAT_NS: u64 = 10_000_000_000;

/// When a series ends whose last row was then: so long after it, or by the least distance of its rows.
fn end_ns(row_ns: u64, silence_ns: u64, distance_ns: u64) -> u64 {
    let by_distance_ns = match distance_ns {
        u64::MAX => 0,
        distance_ns => distance_ns.saturating_mul(INTERVALS).min(MAX_SILENCE_NS),
    };
    row_ns.saturating_add(silence_ns.max(by_distance_ns))
}

/// When a row's value was acquired, and its words.
fn split(row_ns: u64, words: &[u64], has_time: bool) -> (u64, &[u64]) {
    match words.split_last() {
        Some((sample_ns, words)) if has_time => (*sample_ns, words),
        _ => (row_ns, words),
    }
}

/// Samples as they come out: values, or whatever stands for them.
pub(crate) struct Out<V> {
    pub(crate) times_ns: Vec<i64>,
    pub(crate) values: Vec<V>,
    /// What stands for an end.
    end: V,
    /// Rows before this are looked at for what was acquired since, only.
    floor_ns: u64,
    /// Of the row that came first.
    first_row_ns: Option<u64>,
    /// Of the row that came last, and whether the series has ended since.
    row_ns: Option<u64>,
    pub(crate) has_ended: bool,
    /// When the last sample was acquired, and when it was told last.
    sample_ns: u64,
    told_ns: u64,
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
    fn dense(&mut self, times_ns: &[u64], acquired_ns: Option<&[u64]>, values: &[V]) {
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
    fn pass_on(&mut self, times_ns: &[u64], acquired_ns: &[u64]) {
        self.rows(times_ns);
        if let Some(last_ns) = acquired_ns.last() {
            (self.sample_ns, self.told_ns) = (*last_ns, *last_ns);
        }
    }

    /// Passes rows of which somebody else takes the samples next to the lines of a grid: from which one on, and how many of
    /// all were taken before or are too early. `None`: something ends, stands or is older than what came before.
    fn pass_thinned(&mut self, samples: &Thinned<'_>) -> Option<(usize, u32)> {
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

/// What a number's words are the greater by.
fn order(reading: &Reading) -> Option<Order> {
    match reading {
        Reading::Number(Form::Unsigned, _) => Some(Order::Unsigned),
        Reading::Number(Form::Signed, _) => Some(Order::Signed),
        Reading::Number(Form::Float, _) => Some(Order::Float),
        _ => None,
    }
}

/// Whether samples next to the lines of a grid are remembered: not of lines of tables, which come seldom.
pub(crate) fn may_be_thinned(lane: &LanePlan) -> bool {
    lane.line == Line::ONLY && order(&lane.reading).is_some()
}

/// Reads a lane's rows.
struct Reader<'a> {
    out: &'a mut Out<f64>,
    /// What is read.
    columns: &'a Columns,
    /// Where samples are histograms: values are their numbers.
    natives: Option<&'a mut Natives>,
    reading: &'a Reading,
    has_time: bool,
    /// Who wants edges of windows only.
    edges: Option<&'a mut Edges>,
    /// Samples that there are to be.
    most: usize,
    /// Time of the last row of the piece.
    until_ns: u64,
    /// Of the row with which there are so many.
    end_ns: Option<u64>,
}

impl Reader<'_> {
    /// After a row.
    fn flow(&mut self, row_ns: u64) -> ControlFlow<()> {
        if self.out.times_ns.len() < self.most {
            return ControlFlow::Continue(());
        }
        self.end_ns = Some(row_ns);
        ControlFlow::Break(())
    }
}

impl Reader<'_> {
    /// When the words of rows were acquired.
    fn acquired_ns<'r>(&self, run: &'r Run<'_>) -> &'r [u64] {
        if self.has_time { run.word(run.words() - 1) } else { run.times_ns }
    }

    /// Whether only edges are wanted, and each row has a new sample of one word.
    fn may_take_edges(&self, run: &Run<'_>) -> bool {
        let is_number = order(self.reading).is_some();
        let acquired_ns = self.acquired_ns(run);
        let is_new = || !self.has_time || acquired_ns.is_sorted_by(|one, next| one < next);
        let is_after = || acquired_ns[0] > self.out.sample_ns.max(self.out.told_ns);
        self.edges.is_some() && is_number && is_after() && is_new()
    }

    fn take_edges(&mut self, run: &Run<'_>) -> Option<ControlFlow<()>> {
        let (acquired_ns, words, reading) = (self.acquired_ns(run), run.word(0), self.reading);
        let value = |word: u64| reading.value(&[word]);
        // The first one tells how it stands with what was before.
        self.out.row(run.times_ns[0], acquired_ns[0], value(words[0]), false);
        let edges = self.edges.as_mut().filter(|_| !self.out.has_ended)?;
        edges.put(&self.out.times_ns, &self.out.values);
        self.out.clear();
        let (acquired_ns, words) = (&acquired_ns[1..], &words[1..]);
        match reading {
            Reading::Number(Form::Signed, _) => edges.take(acquired_ns, words, u64::cast_signed, value),
            Reading::Number(Form::Float, _) => edges.take(acquired_ns, words, f64::from_bits, value),
            _ => edges.take(acquired_ns, words, |word| word, value),
        }
        self.out.pass_on(&run.times_ns[1..], acquired_ns);
        Some(ControlFlow::Continue(()))
    }
}

impl Visit for Reader<'_> {
    fn thinner(&self) -> Option<Thinner> {
        let (grid_ns, order) = (self.edges.as_ref()?.grid_ns()?, order(self.reading)?);
        let [word, time @ ..] = &self.columns.words[..] else { return None };
        (self.columns.line == Line::ONLY).then_some(Thinner {
            word: *word,
            time: time.first().copied(),
            order,
            grid_ns,
        })
    }

    fn thinned(&mut self, samples: &Thinned<'_>) -> bool {
        let (_, last_ns) = samples.rows_ns;
        if self.out.row_ns >= Some(last_ns) {
            // With the piece before.
            return true;
        }
        if last_ns > self.until_ns && samples.max_distance_ns > SILENCE_NS {
            // Whether something ends is known piece by piece.
            return false;
        }
        let Some(edges) = self.edges.as_mut() else { return false };
        if !edges.may_take(samples) || self.natives.is_some() {
            return false;
        }
        let taken = self.out.pass_thinned(samples);
        if let Some(from) = taken {
            // What came one by one before.
            edges.put(&self.out.times_ns, &self.out.values);
            self.out.clear();
            edges.take_thinned(samples, from, |word| self.reading.value(&[word]));
        }
        taken.is_some()
    }

    fn sample(&mut self, sample: &Sample<'_>) -> ControlFlow<()> {
        let row_ns = sample.time_ns;
        let (sample_ns, words) = split(row_ns, sample.words, self.has_time);
        let value = match &mut self.natives {
            Some(natives) => natives.put(words),
            None => self.reading.value(words),
        };
        self.out.row(row_ns, sample_ns, value, sample.bucket.is_some());
        self.flow(row_ns)
    }

    fn run(&mut self, all: &Run<'_>) -> Option<ControlFlow<()>> {
        let is_later = self.out.row_ns < all.times_ns.first().copied();
        let may_end = all.max_distance_ns > self.out.silence_ns && !self.out.is_recorded;
        let is_before = all.times_ns.first().is_some_and(|first_ns| *first_ns < self.out.floor_ns);
        if !is_later || is_before || may_end || self.natives.is_some() {
            return None;
        }
        if self.may_take_edges(all) {
            return self.take_edges(all);
        }
        let out = &mut *self.out;
        let run = all.limited(self.most.saturating_sub(out.times_ns.len()));
        let words = run.words() - usize::from(self.has_time);
        let values = self.reading.values(&run, words);
        let acquired_ns = self.has_time.then(|| run.word(words));
        // The first one tells how it stands with what was before.
        let (first_ns, times_ns) = run.times_ns.split_first()?;
        out.row(*first_ns, acquired_ns.map_or(*first_ns, |acquired_ns| acquired_ns[0]), values[0], false);
        if out.has_ended {
            return None;
        }
        out.dense(times_ns, acquired_ns.map(|acquired_ns| &acquired_ns[1..]), &values[1..]);
        let last_ns = *times_ns.last().unwrap_or(first_ns);
        if run.times_ns.len() < all.times_ns.len() {
            self.end_ns = Some(last_ns);
            return Some(ControlFlow::Break(()));
        }
        Some(self.flow(last_ns))
    }
}

pub(crate) struct Lane<'a> {
    tracks: &'a Tracks<'a>,
    lanes: Lanes,
    number: usize,
    columns: Columns,
    has_time: bool,
    /// The last time that is asked for.
    until_ns: u64,
    /// Rows that are still to be read, both included.
    left_ns: Option<(u64, u64)>,
    /// Samples that it holds at most.
    most: usize,
    out: Out<f64>,
    natives: Option<Natives>,
    /// Of a piece that was handed on.
    histograms: Vec<Option<Arc<Histogram>>>,
    /// Behind the entry that was taken last.
    at: usize,
}

impl<'a> Lane<'a> {
    /// With `before`, what it had before the beginning is read, too, as far as it tells whether it goes on then.
    pub(crate) fn new(
        tracks: &'a Tracks<'a>,
        lanes: &Lanes,
        number: usize,
        (from_ns, to_ns): (u64, u64),
        before: bool,
    ) -> Result<Self, SourceError> {
        let (columns, has_time) = lanes[number].rows();
        let is_line = columns.line != Line::ONLY;
        let from_ns = match before {
            true if is_line => from_ns.saturating_sub(MAX_SILENCE_NS),
            true => from_ns.saturating_sub(tracks.silence_ns(&columns, from_ns)?),
            false => from_ns,
        };
        // A sample comes with a row that is later, or a bit earlier: that has the time of the first part of it.
        let late_ns = if has_time { tracks.silence_ns(&columns, to_ns)? } else { 0 };
        let floor_ns = from_ns;
        let from_ns = if before { from_ns } else { from_ns.saturating_sub(late_ns) };
        // Where there is nothing nobody looks.
        let left_ns = tracks.store.time_of(columns.track).map(|(first_ns, newest_ns)| {
            let last_ns = to_ns.saturating_add(late_ns);
            (from_ns.max(first_ns), last_ns.min(newest_ns.saturating_add(MAX_SILENCE_NS)))
        });
        let left_ns = left_ns.filter(|(from_ns, to_ns)| from_ns <= to_ns);
        let is_recorded = lanes[number].is_recorded();
        let out = Out { floor_ns, ..Out::new(is_line, is_recorded, STALE) };
        let natives = match &lanes[number].reading {
            Reading::Native(native) => Some(Natives::new(native)),
            _ => None,
        };
        let most = if natives.is_some() { LEAST } else { (MOST / lanes.len()).max(LEAST) };
        let (lanes, histograms, until_ns) = (lanes.clone(), Vec::new(), to_ns);
        Ok(Self { tracks, lanes, number, columns, has_time, until_ns, left_ns, most, out, natives, histograms, at: 0 })
    }

    /// The next sample, which stays the next one until [`Lane::advance`].
    pub(crate) fn peek(&mut self) -> Result<Option<(i64, f64)>, SourceError> {
        if self.at == self.out.times_ns.len() {
            self.fill(None)?;
        }
        Ok(self.held())
    }

    /// The same, of those that were read already.
    pub(crate) fn held(&self) -> Option<(i64, f64)> {
        self.out.times_ns.get(self.at).map(|time_ns| (*time_ns, self.out.values[self.at]))
    }

    /// The histogram that a sample's value stands for, if the lane's samples are such.
    pub(crate) fn histogram(&self, value: f64) -> Option<Arc<Histogram>> {
        self.natives.as_ref().and_then(|natives| natives.get(value)).cloned()
    }

    pub(crate) fn advance(&mut self) {
        self.at += 1;
    }

    /// All samples of the next piece.
    pub(crate) fn next(&mut self) -> Result<Option<Chunk<'_>>, SourceError> {
        self.fill(None)?;
        self.at = self.out.times_ns.len();
        if let Some(natives) = &self.natives {
            self.histograms = self.out.values.iter().map(|value| natives.get(*value).cloned()).collect();
            self.out.values.fill(STALE);
        }
        let chunk = Chunk { times_ns: &self.out.times_ns, values: &self.out.values, histograms: &self.histograms };
        Ok((self.at > 0).then_some(chunk))
    }

    /// When the first and the last row were of those that were read.
    pub(crate) fn rows_ns(&self) -> Option<(u64, u64)> {
        self.out.first_row_ns.zip(self.out.row_ns)
    }

    /// Gives all samples to `edges`; their number to `budget`.
    pub(crate) fn read_edges(&mut self, edges: &mut Edges, budget: &Budget) -> Result<(), SourceError> {
        while self.left_ns.is_some() {
            let before = edges.count;
            self.fill(Some(edges))?;
            edges.put(&self.out.times_ns, &self.out.values);
            budget.samples(usize::try_from(edges.count - before).unwrap_or(usize::MAX))?;
        }
        Ok(())
    }

    /// Reads on until there are samples, or there is no more. Where `edges` takes what it can of them, those come later.
    fn fill(&mut self, mut edges: Option<&mut Edges>) -> Result<(), SourceError> {
        self.out.clear();
        if let Some(natives) = &mut self.natives {
            natives.clear();
        }
        self.at = 0;
        let reading = &self.lanes[self.number].reading;
        while self.out.times_ns.is_empty()
            && let Some((from_ns, to_ns)) = self.left_ns
        {
            let before_ns = self.out.floor_ns.checked_sub(1).filter(|before_ns| *before_ns >= from_ns);
            let mut end_ns = piece_end_ns(from_ns).min(before_ns.unwrap_or(to_ns)).min(to_ns);
            self.out.silence_ns = self.tracks.silence_ns(&self.columns, from_ns)?;
            let (has_time, most, natives) = (self.has_time, self.most, self.natives.as_mut());
            let edges = edges.as_deref_mut();
            let mut reader = Reader {
                out: &mut self.out,
                columns: &self.columns,
                natives,
                reading,
                has_time,
                edges,
                most,
                until_ns: end_ns,
                end_ns: None,
            };
            // What is damaged is silence.
            self.tracks.store.read_decoded(&self.tracks.decoded, &self.columns, from_ns, end_ns, &mut reader)?;
            end_ns = reader.end_ns.unwrap_or(end_ns);
            self.out.pass(end_ns.min(self.until_ns).saturating_add(1));
            self.left_ns = (end_ns < to_ns).then_some((end_ns + 1, to_ns));
            // Numbers of histograms are of this piece.
            if self.left_ns.is_none() || self.natives.is_some() {
                self.out.settle();
            }
        }
        Ok(())
    }
}

/// What a lane has at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Last {
    /// All rows are to be read to know.
    Unknown,
    Nothing,
    /// It has ended, not later than this.
    Ended(u64),
    /// It goes on, and this is its newest sample.
    GoesOn(u64, f64),
}

/// What a lane has at `to_ns`, of its rows since `from_ns`. If no other lane depends on when it has ended, it `is_alone`.
pub(crate) fn newest(
    tracks: &Tracks<'_>,
    lane: &LanePlan,
    (from_ns, to_ns): (u64, u64),
    is_alone: bool,
) -> Result<Last, SourceError> {
    if lane.is_read_whole() {
        return Ok(Last::Unknown);
    }
    let (columns, has_time) = lane.rows();
    let (is_line, silence_ns) = (columns.line != Line::ONLY, tracks.silence_ns(&columns, to_ns)?);
    let from_ns = match (is_alone, is_line) {
        // If there is no row in that time it has ended.
        (true, false) => from_ns.max(to_ns.saturating_sub(silence_ns)),
        (true, true) => from_ns,
        (false, _) => from_ns.min(to_ns.saturating_sub(MAX_SILENCE_NS)),
    };
    // A sample comes with a row that is later.
    let last_ns = if has_time { to_ns.saturating_add(silence_ns) } else { to_ns };
    let mut sample: Option<(u64, f64)> = None;
    let (mut row_ns, mut distance_ns): (Option<u64>, u64) = (None, u64::MAX);
    let mut next_ns = 0;
    let is_told = tracks.store.read_back(&tracks.decoded, &columns, from_ns, last_ns, |time_ns, words| {
        let (sample_ns, words) = split(time_ns, words, has_time);
        let is_in_time = (1..=to_ns).contains(&sample_ns);
        let is_new = is_in_time && sample.is_none_or(|(newest_ns, _)| newest_ns < sample_ns);
        if is_new {
            sample = Some((sample_ns, lane.reading.value(words)));
        }
        if time_ns > to_ns {
            return ControlFlow::Continue(());
        }
        match row_ns {
            None => {
                row_ns = Some(time_ns);
                // A value that stands for long is told again.
                if let Some((told_ns, _)) = &mut sample
                    && time_ns.saturating_sub(*told_ns) >= REPEAT_NS
                {
                    *told_ns = time_ns;
                }
            }
            Some(_) if is_line => distance_ns = distance_ns.min(next_ns - time_ns),
            Some(_) => {}
        }
        next_ns = time_ns;
        let last_ns = row_ns.unwrap_or(time_ns);
        let is_known = !is_line || end_ns(last_ns, silence_ns, u64::MAX) > to_ns || {
            // A lesser distance makes the end earlier.
            distance_ns < u64::MAX && end_ns(last_ns, silence_ns, distance_ns) <= to_ns
        };
        if is_known && (sample.is_some() || sample_ns == 0) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    let end_ns = row_ns.map(|row_ns| end_ns(row_ns, silence_ns, distance_ns)).filter(|end_ns| *end_ns <= to_ns);
    Ok(match (sample, end_ns) {
        _ if !is_told => Last::Unknown,
        (None, _) => Last::Nothing,
        (Some((sample_ns, _)), Some(end_ns)) if sample_ns <= end_ns => Last::Ended(end_ns),
        // A later row still has what was over then, perhaps.
        (Some((sample_ns, _)), None) if row_ns.is_none() && sample_ns.saturating_add(silence_ns) < to_ns => {
            Last::Unknown
        }
        (Some((sample_ns, value)), _) => Last::GoesOn(sample_ns, value),
    })
}

#[cfg(test)]
mod tests {
    use bolero::check;

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
