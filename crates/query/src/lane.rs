// SPDX-License-Identifier: Apache-2.0
//! One track's samples of a series, piece by piece, and where the series ends.
//!
//! All rows of the track are looked at, also those in which the series has nothing new: they say that it is still
//! there.
//!
//! What comes of them is [`Out`]'s.
//!
//! [`newest`](crate::newest) says the same of one time by looking at the last rows only.

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
use crate::out::Out;
use crate::plan::{LanePlan, Lanes};
use crate::tracks::{MAX_SILENCE_NS, SILENCE_NS, Tracks, piece_end_ns};
use crate::window::Edges;

/// Samples that the lanes of a series hold at most, together.
pub(crate) const MOST: usize = 16_384;
/// But each of them so many.
const LEAST: usize = 256;

/// When a row's value was acquired, and its words.
pub(crate) fn split(row_ns: u64, words: &[u64], has_time: bool) -> (u64, &[u64]) {
    match words.split_last() {
        Some((sample_ns, words)) if has_time => (*sample_ns, words),
        _ => (row_ns, words),
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
        let mut out = Out::new(is_line, is_recorded, STALE);
        out.floor_ns = floor_ns;
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
